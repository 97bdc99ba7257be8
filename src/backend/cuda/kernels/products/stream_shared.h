/* stream_shared.h - products of one row whose weights come through shared memory (gemv_stream.cu, gemv_stream_k.cu):
 * what a launch tells them. */
#ifndef LODE_CUDA_STREAM_SHARED_H
#define LODE_CUDA_STREAM_SHARED_H

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/shared.h"

enum {
    LODE_STREAM_WARPS = 16,   /* of a block of threads, at most */
    LODE_STREAM_SLOTS = 8,    /* of a warp's ring, at most */
    LODE_STREAM_CHUNK = 1024, /* bytes of a row in a slot; Q8_0: of its codes */
    LODE_STREAM_LINE = 128,   /* of those, what stands together: a slot has all rows' first lines, then all second ones .. */
    LODE_STREAM_LINES = LODE_STREAM_CHUNK / LODE_STREAM_LINE,
    LODE_STREAM_ALIGN = 1024, /* of slots, by which lines' pieces are exchanged */
    /* floats: rows of a warp at a time */
    LODE_STREAM_ROWS = 8,
    LODE_STREAM_SLOT = LODE_STREAM_ROWS * LODE_STREAM_CHUNK,
    LODE_STREAM_Q8_ROWS = 4,
    LODE_STREAM_Q8_SLOT = LODE_STREAM_Q8_ROWS * LODE_STREAM_CHUNK,
    LODE_STREAM_Q8_HEADS = LODE_STREAM_Q8_ROWS * (LODE_STREAM_CHUNK / 16), /* of a slot, beside it: scales */
    LODE_STREAM_FEW = 32,  /* rows of x, at most */
    LODE_STREAM_X_ROOM = 96 << 10, /* bytes of shared memory for more of them than one, at most (x_ring.cuh) */
    LODE_STREAM_PARTS = 4, /* products of a launch */
    LODE_STREAM_MAPS = 4,  /* of a part: of what is in slots, and beside them */
    /* Q4_K, Q5_K, Q6_K: rows of a warp at a time, blocks of a row in a slot, whose codes are lines; bytes beside it: high bits, heads
     * (scales), of Q6_K another two a block; of half a block of x (128 of codes, a head), whose sums are another 16; of a
     * warp beside its ring: two times sixteen times two pairs */
    LODE_STREAM_K_ROWS = 4,
    LODE_STREAM_K_BLOCKS = 8,
    LODE_STREAM_K_SLOT = LODE_STREAM_K_ROWS * LODE_STREAM_CHUNK,
    LODE_STREAM_K_LINE = LODE_STREAM_K_ROWS * LODE_STREAM_LINE, /* of all rows */
    LODE_STREAM_Q4_K_HEADS = LODE_STREAM_K_LINE,
    LODE_STREAM_Q5_K_HEADS = 3 * LODE_STREAM_K_LINE,
    LODE_STREAM_Q6_K_HEADS = 5 * LODE_STREAM_K_LINE + LODE_STREAM_LINE,
    LODE_STREAM_K_HALF = 144,
    LODE_STREAM_K_OWN = 2 * 4 * (64 + 16),
    LODE_STREAM_Q8_OWN = 2 * LODE_STREAM_Q8_ROWS * (128 + 16), /* of a warp, beside its ring: two times sixteen pairs a row */
};

/* Bytes of the pairs that several warps of a unit leave for one to add: of a row, some for the banks. */
#define LODE_STREAM_K_PAIRS(cols) ((cols) / 256 * 16 + 16)
/* A unit has a warp's rows at a time, of gate and of up as many.  Shared memory: x (Q8_0: floats of a norm, from x_at on
 * the rounded row), from ring_at on, which is moved to a multiple of LODE_STREAM_ALIGN, what warps have. */
struct lode_cuda_stream_args {
    struct lode_cuda_map maps[LODE_STREAM_PARTS][LODE_STREAM_MAPS];
    struct lode_cuda_gemv_args a;
    uint32_t ring_at, slots;       /* bytes; of a ring, 2 and more */
    uint32_t slot_size, head_size; /* bytes; beside a slot */
    uint32_t heads_at, own_at;     /* bytes from ring_at on to what stands beside slots, and to what warps have beside rings */
    uint32_t own;                  /* bytes; of a warp, beside its ring */
    uint32_t early;                /* slots that are asked for before x is */
    struct lode_cuda_divisor split; /* warps of a unit, each with some of its chunks */
    uint32_t stage_at;              /* bytes before what those leave */
    uint32_t warps;                /* that have units; the others of a block only make x */
};
/* Bytes of a slot's numbers of so many groups of eight rows of x. */
#define LODE_STREAM_X_SLOT(groups) ((groups) * 8 * LODE_STREAM_CHUNK)
/* Of gemv_stream_fast.cu, for up to LODE_STREAM_FEW rows of x (s.a.n_x): bytes from one row's results to the next's, and residuals'; x's slots. */
struct lode_cuda_stream_few_args {
    struct lode_cuda_stream_args s;
    uint32_t y_stride[LODE_STREAM_PARTS], residual_stride;
    struct lode_cuda_divisor x_slots;
};

#endif
