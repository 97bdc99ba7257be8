/* products_shared.h - what the kernels of products are told: of many rows, of one with what surrounds it, of a few. */
#ifndef LODE_CUDA_PRODUCTS_SHARED_H
#define LODE_CUDA_PRODUCTS_SHARED_H

#include "backend/cuda/kernels/shared.h"

struct lode_cuda_part {
    lode_dev w, bias, y;
    unsigned long long w_stride, y_stride; /* bytes of a row */
    uint32_t rows, first_tile;             /* tiles of the parts before */
};

struct lode_cuda_mul_args {
    struct lode_cuda_part parts[LODE_CUDA_PARTS];
    struct lode_cuda_mat x;
    uint32_t n_parts, n_x, cols;
    uint32_t rounds; /* one row of HEADS by quantised weights: x are floats, a head's of which (LODE_ROUNDED_HEAD at most) each block rounds */
    /* HEADS: the part's rows in n_heads pieces, each with its own columns of x (x_head bytes from one's to the next one's); y_head: bytes
     * between a head's results and the next one's. */
    uint32_t head_rows, x_head, y_head, pad;
};
enum { LODE_ROUNDED_HEAD = 512 }; /* numbers */

/* Products of many rows; of experts where there are tiles (gemm.cu). */
enum {
    LODE_GEMM_TILE_W = 128,
    LODE_GEMM_TILE_X = 64,
    LODE_GEMM_LARGE_X = 128,           /* of gemm_large_* */
    LODE_GEMM_THREADS = 4,             /* a row of x */
    LODE_GEMM_SHARED = 38 << 10,       /* bytes of shared memory */
    LODE_GEMM_LARGE_SHARED = 98 << 10,
    LODE_GEMM_FLOAT_SHARED = 64 << 10, /* of gemm_float.cu's, all that Turing has */
};
struct lode_cuda_gemm_tile { /* of pairs of one expert */
    uint32_t expert, first, n, pad;
};
struct lode_cuda_gemm_args {
    struct lode_cuda_part parts[LODE_CUDA_PARTS];
    unsigned long long expert_size[LODE_CUDA_PARTS];
    struct lode_cuda_mat x; /* of pairs: row by x_div */
    uint32_t n_parts, n_x, cols, x_div;
    lode_dev tiles, list; /* as group_pairs leaves them; 0: rows as they come */
    /* wide.cu: tiles of all parts; units (a tile of x by one of w) from first_unit on, n_units of them or, 0, all.  beside:
     * the launch before, one of wide.cu too, multiplies the same x: it need not have ended.  halved: x is spread in tiles
     * of twice the kernel's, two units each. */
    uint32_t w_tiles, first_unit, n_units, beside, halved;
    /* HEADS: a head's tiles of w, which are whole, bytes from a head's x to the next one's (wide.cu: from its spread tiles), and between
     * a head's results and the next one's; both 0: there are no heads. */
    struct lode_cuda_divisor head_tiles;
    uint32_t x_head, y_head;
};
/* The same on Hopper's warpgroups (wide.cu), where x is what spread leaves. */
enum {
    LODE_WIDE_W = 128,
    LODE_WIDE_SHARED = 227 << 10,
    LODE_WIDE_THREADS = 384,
};
struct lode_cuda_spread_args {
    struct lode_cuda_mat x;
    lode_dev y, tiles, list; /* y: tiles of `tile` rows, each of tile_size bytes */
    unsigned long long tile_size;
    uint32_t n_x, cols, tile, x_div;
    uint32_t x_head, y_head; /* HEADS: bytes of x, and of its tiles, from a head (blockIdx.z) to the next */
};

/* ---- a product of one row with what surrounds it (gemv.cu) ---- */

enum lode_cuda_gemv_input {
    LODE_GEMV_AS_IS, /* x is rounded already (float weights: x are floats) */
    LODE_GEMV_ROUND, /* x are floats */
    LODE_GEMV_NORM,  /* x are floats that an RMS norm comes before */
};
enum lode_cuda_gemv_output {
    LODE_GEMV_STORE,
    LODE_GEMV_ADD, /* a residual is added to the one part */
    LODE_GEMV_GLU, /* gate and up to their gated product; of one matrix each, or of the chosen experts */
    LODE_GEMV_SUM, /* the chosen experts' results, weighed and summed */
};
enum { LODE_GEMV_TILE = 16 }; /* rows of a tile */

struct lode_cuda_gemv_part {
    lode_dev w, bias, y;
    unsigned long long expert_size;
    uint32_t w_stride, rows, type, first_unit;
};

/* A unit of work is a tile of rows of one part (STORE, ADD), of gate and up (GLU: of one expert), of all
 * chosen experts (SUM); a block of threads takes every gridDim-th. */
struct lode_cuda_gemv_args {
    struct lode_cuda_gemv_part parts[LODE_CUDA_PARTS];
    lode_dev x, norm; /* norm: weights; may be 0 */
    lode_dev x_out, q_out; /* where the normed and the rounded row go; 0: nobody else reads them */
    lode_dev residual, route;
    unsigned long long x_stride, y_stride; /* bytes; of the experts' rows */
    uint32_t n_parts, cols, input, output, n_units, per_unit /* tiles */;
    uint32_t n_x, n_used, act, weigh_input, product_first;
    uint32_t ld;    /* floats of a row of the stage */
    uint32_t phase; /* units that the stage has room for */
    uint32_t x_at;  /* bytes of shared memory before x */
    uint32_t ahead; /* tiles to fetch before they are needed */
    float eps, scale;
    lode_dev next; /* weights that the next product begins with, to be fetched when this one's are read */
    uint32_t next_size; /* bytes for each block of threads */
    uint32_t rows_at;   /* gemv_float.cu: bytes of shared memory before a block's only unit of rows; 0: not there */
};
enum { LODE_ROWS_APART = 64 }; /* bytes between rows there, for the banks */
enum { LODE_FLOAT_ROWS = 4 };  /* of a unit of gemv_float.cu, and of a block of gemv_near.cu at most */

/* Numbers of a row in one of the sixteen lanes of a norm's sum, and some for the banks. */
#define LODE_LANE_PITCH(cols) ((((cols) / 16 + 31) & ~31u) + 4)
/* Bytes of a row that lies so. */
#define LODE_LANES_SIZE(cols) (16 * 4 * LODE_LANE_PITCH(cols))
/* gemv_near.cu: threads of a block, its rows of weights are 1 << i, i below LODE_NEAR_SIZES; numbers of a row, at most, in multiples of
 * LODE_NEAR_STEP; bytes of shared memory: x, rows, the norm's weights. */
enum { LODE_NEAR_THREADS = 512, LODE_NEAR_SIZES = 3, LODE_NEAR_COLS = 8192, LODE_NEAR_STEP = 16 };
#define LODE_NEAR_SHARED(cols, rows) ((1 + (rows)) * LODE_LANES_SIZE(cols) + 4 * (cols))

/* ---- the same of a few rows (few.cu) ---- */

enum {
    LODE_FEW_ROWS = 32,   /* at most */
    LODE_FEW_WARPS = 16,  /* of a block of threads, at most: half or a quarter where shared memory is small */
    LODE_FEW_SUMS = 512,  /* bytes of a tile's, of eight columns */
    LODE_FEW_X256 = 2624, /* bytes of 256 numbers of eight rows of x, rounded to A256 */
    LODE_FEW_X32 = 2560,  /* to A32 */
    LODE_X_SLOTS = 64, /* of x's ring, at most */
    LODE_FEW_X_SHARED = 2, /* groups of eight columns from which on there is one, of A256 */
};

/* Rows of x to the order in which few.cuh reads them: (cols / 256, groups) blocks. */
struct lode_cuda_few_x_args {
    struct lode_cuda_mat x, x_out; /* x_out: normed, for others; may be 0 */
    lode_dev norm, y;
    uint32_t cols, n_x, input, groups; /* groups: of eight columns */
    float eps;
};

/* a.x: such blocks; a.q_out: 0; a.x_out, a.route: not used.  A block of threads computes `tiles` tiles at a
 * time, at most one for each warp. */
struct lode_cuda_few_args {
    struct lode_cuda_gemv_args a;
    uint32_t y_stride[LODE_CUDA_PARTS], residual_stride; /* bytes */
    uint32_t tiles;
    uint32_t depth, slot_size; /* items that a warp has room for; bytes of one */
    struct lode_cuda_divisor x_slots; /* blocks of x that there is room for; on Hopper (few_x.cuh) */
};

/* ---- 16-bit weights in --numerics tensor (fast.cuh) ---- */

enum {
    LODE_FAST_SLICE = 256, /* numbers of K between float additions */
    LODE_FAST_TILE = 128,  /* rows of w, and of x, of a block of threads */
    LODE_FAST_PANEL = LODE_FAST_TILE * 128, /* bytes of 64 numbers of a tile's rows */
    LODE_FAST_THREADS = 384,
    LODE_FAST_SHARED = 6 * 2 * LODE_FAST_PANEL + 2048,
    LODE_FAST_TILE_SHARED = 2 * 2 * LODE_FAST_PANEL + 1024,
    LODE_FAST_CLUSTER_X = 1, /* tiles of x, and of w, whose blocks share what they load */
    LODE_FAST_CLUSTER_W = 2,
};

/* Rows of x to tiles of panels (fast_x: tile_size bytes each, then the rows' factors), or to the order in
 * which few rows are read (few_fast_x: for each 16 numbers `groups` times 32 pieces of 8 bytes, then 8 factors
 * a group).  Of exact products to spread tiles (spread_floats, wide.cu). */
struct lode_cuda_fast_x_args {
    struct lode_cuda_mat x, x_out; /* x_out: normed, for others; may be 0 */
    lode_dev norm, y;
    unsigned long long tile_size;
    uint32_t cols, n_x, input, groups;
    uint32_t paired; /* few: numbers 2 q, 2 q + 1, 2 q + 8 and 2 q + 9 of sixteen are thread q's, not 4 q and on (gemv_stream_fast.cu) */
    float eps;
};

/* What comes after a product of many rows, before it is stored: nothing, a residual (LODE_GEMV_ADD), or the gated
 * product of the two parts (LODE_GEMV_GLU), which goes where the first part says, or to tiles: panels where these weights are BF16,
 * spread ones where they are blocks of 32. */
struct lode_cuda_fast_end {
    lode_dev residual;
    unsigned long long residual_stride;
    struct lode_cuda_tiles tiles;
    uint32_t output, act, product_first;
    float scale;
};

/* g.x: such tiles; maps: of each part's w, for Hopper.  Of gate and up a tile has half the rows of both. */
struct lode_cuda_fast_args {
    struct lode_cuda_map maps[LODE_CUDA_PARTS];
    struct lode_cuda_gemm_args g;
    struct lode_cuda_fast_end end;
    uint32_t w_tiles, x_tiles;
};
/* The same of packed weights (wide.cu, wide_glu.cu; --numerics fast: wide_fast.cu, wide_gated.cu). */
struct lode_cuda_packed_args {
    struct lode_cuda_gemm_args g;
    struct lode_cuda_fast_end end;
};

#endif
