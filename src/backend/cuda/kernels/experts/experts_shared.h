/* experts_shared.h - what the kernels of routed experts are told (experts.cu, few_experts.cu; of one row: chosen_shared.h). */
#ifndef LODE_CUDA_EXPERTS_SHARED_H
#define LODE_CUDA_EXPERTS_SHARED_H

#include "backend/cuda/kernels/products/products_shared.h"

struct lode_cuda_spread_met_args { /* of pairs of a row and an expert, gate and up meet where they are rounded */
    struct lode_cuda_spread_args to; /* x: gate's rows, of pairs */
    struct lode_cuda_mat route;
    lode_dev up; /* rows as far apart as x's */
    uint32_t n_used, act, weigh_input, pad;
};
enum { LODE_GROUP_EXPERTS = 1024 }; /* at most */
struct lode_cuda_group_args {
    struct lode_cuda_mat route;
    lode_dev tiles, list; /* tiles: a number, padded to a tile; the tiles.  list: pairs by expert */
    uint32_t n_pairs, n_used, tile; /* pairs of a tile, at most */
};

/* EXPERTS: products for (row, place) pairs, pair = row * n_used + place.  w: expert e's matrix at
 * w + e * expert_size. */
struct lode_cuda_moe_args {
    lode_dev w[2], bias[2], y[2]; /* of gate and up, or of down alone */
    struct lode_cuda_mat x;       /* row of pair / x_div */
    struct lode_cuda_mat route;
    unsigned long long expert_size, w_stride, y_stride;
    uint32_t n_kinds, n_used, x_div, rows, cols, n_pairs;
};

struct lode_cuda_moe_act_args {
    lode_dev gate, up, y; /* (n_pairs, stride) */
    struct lode_cuda_mat route;
    unsigned long long stride;
    uint32_t n, n_used, act, weigh_input;
};

struct lode_cuda_moe_sum_args {
    lode_dev down;
    struct lode_cuda_mat route, y;
    unsigned long long stride;
    uint32_t n, n_used, weigh_input;
};

struct lode_cuda_route_args {
    struct lode_cuda_mat x, y;
    lode_dev bias;
    uint32_t n, n_used, gating, normalise, n_groups, n_groups_used;
    float scale;
    uint32_t part_bits; /* choose_quick: 1 << this many threads an expert, up to LODE_QUICK_PARTS */
};
/* choose_quick: experts, and of them those that a row goes to, at most; bytes of shared memory. */
enum { LODE_QUICK_EXPERTS = 256, LODE_QUICK_USED = 32, LODE_QUICK_PARTS = 3, LODE_QUICK_CHOICE = 8 * LODE_QUICK_EXPERTS + 4 * 32 + 8 * LODE_QUICK_USED };

/* ---- routed experts of a few rows (few_experts.cu), by group_pairs' tiles of so many pairs ---- */

enum { LODE_FEW_PAIRS = 8 };

/* Pairs' rows of x to the order in which few.cuh reads them: (tiles, cols / 256) blocks. */
struct lode_cuda_few_pairs_args {
    struct lode_cuda_mat x, route; /* row of pair / x_div: rounded (input LODE_GEMV_AS_IS), or floats */
    lode_dev up;                   /* 0, or x is gate and this up, whose activation is meant; rows as far apart as x's */
    lode_dev tiles, list, y;
    uint32_t cols, x_div, n_used, input, act, weigh_input;
};
struct lode_cuda_few_experts_part {
    lode_dev w, bias, y;
    unsigned long long expert_size, w_stride;
    uint32_t type, rows, tiles; /* tiles: of 16 rows of an expert */
};
struct lode_cuda_few_experts_args {
    struct lode_cuda_few_experts_part parts[2];
    lode_dev x, tiles, list;
    unsigned long long y_stride; /* of pairs */
    struct lode_cuda_divisor each; /* an expert's tiles of all parts */
    uint32_t n_parts, cols, depth, slot_size;
};

#endif
