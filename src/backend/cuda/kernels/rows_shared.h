/* rows_shared.h - what the kernels of rows, of recurrent layers and of the largest numbers are told (rows.cu, recur.cu, best.cu, reads.cu). */
#ifndef LODE_CUDA_ROWS_SHARED_H
#define LODE_CUDA_ROWS_SHARED_H

#include "backend/cuda/kernels/shared.h"

struct lode_cuda_embed_args {
    lode_dev step, w;
    struct lode_cuda_mat y;
    unsigned long long w_stride;
    uint32_t cols, by;
    float scale;
};

/* Ops on rows: y = f(a, b).  rms_norm: b, if it is there, is added to the norm, scale and product_first tell how; or, where it `gates`, is
 * what the norm is multiplied with after the activation `kind`.  glu: where n is not 0, a's numbers are `group` from number `first` on of each
 * n of a row. */
struct lode_cuda_row_args {
    lode_dev step;
    struct lode_cuda_mat y, a, b;
    lode_dev w, bias;
    uint32_t width, width_a, width_b; /* numbers; of y, a, b */
    uint32_t group, n, first, kind, product_first, gates;
    float scale, eps;
    struct lode_cuda_divisor head; /* CUT, JOIN */
};
/* ROW_GATE, and ADDs of what it gives to other rows. */
enum { LODE_GATE_SUMS = 2, LODE_GATE_NUMBERS = 4 /* of a thread, at most */ };
struct lode_cuda_row_gate_args {
    struct lode_cuda_mat x, gate, y;
    struct lode_cuda_row_sum {
        struct lode_cuda_mat to;
        float scale;
        uint32_t product_first;
    } sums[LODE_GATE_SUMS];
    uint32_t width, n_sums;
};
/* rms_norm: numbers of a thread, in fours; threads of a block at most, and at least where there is a four for each. */
enum { LODE_NORM_FOURS = 2, LODE_NORM_THREADS = 1024, LODE_NORM_LEAST = 128, LODE_NORM_COLS = 4 * LODE_NORM_FOURS * LODE_NORM_THREADS };

struct lode_cuda_gather_args {
    lode_dev order; /* (width) uint32_t */
    struct lode_cuda_mat x, y;
    uint32_t width, pad;
};

/* Numbers of rows of x: number h of a row is number first + h / each * apart + h % each. */
struct lode_cuda_numbers {
    struct lode_cuda_mat x;
    uint32_t first, apart;
    struct lode_cuda_divisor each;
};

/* DELTA_GATES: of each head a decay and a rate, made of two numbers and two weights. */
struct lode_cuda_gates_args {
    lode_dev a, dt; /* weights */
    struct lode_cuda_numbers alpha, beta;
    struct lode_cuda_mat y;
    struct lode_cuda_divisor n_heads;
};

/* CONV: rows of a block of threads, at most, and columns. */
enum { LODE_CUDA_CONV_ROWS = 16, LODE_CUDA_CONV_COLUMNS = 128 };
/* CONV, and what may come with it: an L2_NORM of what it gives, and DELTA_GATES. */
struct lode_cuda_conv_args {
    lode_dev step, w;
    struct lode_cuda_mat x, y;
    unsigned long long at, w_stride; /* at: bytes from a block's start to the layer's part */
    uint32_t width, taps, silu;
    uint32_t columns, blocks; /* of a block of threads; of these, behind which are those that make gates */
    uint32_t group, n, n_scaled; /* the norm's, whose groups are parts of a block's columns; n 0: there is none */
    struct lode_cuda_divisor groups; /* of a block's columns */
    float scale, eps;
    struct lode_cuda_gates_args gates;
};

/* DELTA. */
struct lode_cuda_recur_args {
    lode_dev step;
    struct lode_cuda_mat x, gates, y;
    unsigned long long at;
    uint32_t n_k_heads, n_heads, dim_k, dim_v, tiled, pad;
};

/* The largest numbers of rows (best.cu). */
enum {
    LODE_BEST_MOST = 256,    /* that are wanted */
    LODE_BEST_SLICES = 1024, /* of a row, at most */
    LODE_BEST_SLICE_THREADS = 256,
    LODE_BEST_THREADS = LODE_BEST_SLICES, /* a slice each */
};
struct lode_cuda_best_args {
    struct lode_cuda_mat x;
    lode_dev tops; /* (rows, n_slices): the largest of each slice */
    lode_dev y;    /* the host's: (rows, k) pairs of a number and its place, -1: there are no more; draws: none */
    uint32_t width, log_slice, n_slices, k; /* log_slice: of a slice's numbers, 32 and more */
};

enum { LODE_READS_THREADS = 256 };
struct lode_cuda_reads_args {
    lode_dev at;
    unsigned long long n; /* pieces of 16 bytes */
};

#endif
