/* chosen_shared.h - the experts that one row has chosen, in Q4_K, Q5_K and Q6_K (chosen_in.cu, chosen_out.cu): what a launch tells. */
#ifndef LODE_CUDA_CHOSEN_SHARED_H
#define LODE_CUDA_CHOSEN_SHARED_H

#include "backend/cuda/kernels/products/stream_shared.h"

enum {
    LODE_CHOSEN_WARPS = 24, /* of a block of threads */
    LODE_CHOSEN_SLOTS = 4,  /* units that a warp, or turns that a block of threads has room for, at most */
    LODE_CHOSEN_USED = 32,  /* experts of a row, at most */
};

/* Bytes of one rounded row of x: halves of blocks and their sums (stream_x.cuh). */
#define LODE_CHOSEN_X(cols) ((cols) / 128 * (LODE_STREAM_K_HALF + 16))

/* Gate and up.  A unit is `each` rows of an expert's gate and the same of its up.  Shared memory: x; the choice, where it is made
 * here; then what each warp has: slots for units, and pairs of `batch` of them. */
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
};

#endif
