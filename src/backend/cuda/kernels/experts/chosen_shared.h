/* chosen_shared.h - the experts that one row has chosen (chosen_in.cu, chosen_out.cu, chosen_in_32.cu, chosen_out_32.cu): of which types,
 * and what a launch tells. */
#ifndef LODE_CUDA_CHOSEN_SHARED_H
#define LODE_CUDA_CHOSEN_SHARED_H

#include "backend/cuda/kernels/experts/experts_shared.h"
#include "backend/cuda/kernels/products/stream_shared.h"

enum {
    LODE_CHOSEN_WARPS = 24,  /* of a block of threads */
    LODE_CHOSEN_SLOTS = 4,   /* units that a warp, or turns that a block of threads has room for, at most */
    LODE_CHOSEN_USED = 32,   /* experts of a row, at most */
    LODE_CHOSEN_EACH_32 = 2, /* rows of gate, and of up, of a unit in blocks of 32 */
};

/* X(suffix, type): of blocks of 256, of 32.  Each of the latter has 16 bytes of codes or more, one block's behind the other's: there
 * chosen_in_32.cu puts pairs. */
#define LODE_CHOSEN_256_LIST(X) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K)
#define LODE_CHOSEN_32_LIST(X)                                                                     \
    X(q4_0, Q4_0) X(q4_1, Q4_1) X(q5_0, Q5_0) X(q5_1, Q5_1) X(q8_0, Q8_0) X(iq4_nl, IQ4_NL)        \
    X(mxfp4, MXFP4) X(nvfp4, NVFP4) X(nvfp4g, NVFP4G)

/* Bytes of one rounded row of x: halves of blocks and their sums (stream_x.cuh); blocks of 32 (chosen_32.cuh). */
#define LODE_CHOSEN_X256(cols) ((cols) / 128 * (LODE_STREAM_K_HALF + 16))
#define LODE_CHOSEN_X32(cols) (((cols) / 32 * 40 + 15) & ~15u)
/* Bytes of a row's pairs; two: a block of 32 has two of them.  For the banks an odd number of 16. */
#define LODE_CHOSEN_PAIRS256(cols) LODE_STREAM_K_PAIRS(cols)
#define LODE_CHOSEN_PAIRS32(cols, two) ((((cols) / 32 * ((two) ? 16 : 8) + 15) / 16 | 1) * 16)

/* Gate and up.  A unit is `each` rows of an expert's gate and the same of its up.  Shared memory: x; the choice, where it is made
 * here; then what each warp has: slots for units, and (chosen_in.cu) pairs of `batch` of them. */
struct lode_cuda_chosen_in_args {
    struct lode_cuda_gemv_args a; /* n_units: of these */
    struct lode_cuda_divisor each; /* rows, */
    struct lode_cuda_divisor per;  /* and units of an expert */
    struct lode_cuda_divisor nb;   /* blocks of a row */
    uint32_t batch, slots;
    uint32_t pitch;               /* bytes from one row of a slot to the next */
    uint32_t slot_size, own;      /* bytes; of a warp, all that it has */
    uint32_t own_at;              /* bytes before the first warp's */
    uint32_t chooses, choice_at;  /* whether the route is made here, by `choice`, whose y is a.route; bytes before what it needs */
    struct lode_cuda_route_args choice;
};

/* Down.  A turn has some rows of each expert.  Shared memory: n_x rows of x; slots for turns; a turn's pairs. */
struct lode_cuda_chosen_out_args {
    struct lode_cuda_gemv_args a;       /* n_units: turns */
    struct lode_cuda_divisor rows;      /* of a turn */
    struct lode_cuda_divisor of_expert; /* copies of its rows */
    struct lode_cuda_divisor nb;        /* blocks of a row */
    uint32_t copies, together;          /* of a turn; rows of a copy */
    uint32_t slots, slots_at;           /* slots_at: bytes before them */
    uint32_t pitch, slot_size;          /* bytes from one row of a slot to the next, an odd number of 16; of a slot */
    uint32_t known;                     /* the route was written before the launch before this one let it begin */
    struct lode_cuda_divisor pieces;    /* of a row of x, four blocks of 32 each (chosen_out_32.cu) */
};

#endif
