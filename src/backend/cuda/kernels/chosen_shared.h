/* chosen_shared.h - the experts that one row has chosen, in Q4_K, Q5_K and Q6_K (chosen.cu): what a launch tells. */
#ifndef LODE_CUDA_CHOSEN_SHARED_H
#define LODE_CUDA_CHOSEN_SHARED_H

#include "backend/cuda/kernels/stream_shared.h"

enum {
    LODE_CHOSEN_WARPS = 24, /* of a block of threads */
    LODE_CHOSEN_SLOTS = 4,  /* units that a warp has room for, at most */
    LODE_CHOSEN_USED = 32,  /* experts of a row, at most */
};

/* Bytes of one rounded row of x: halves of blocks and their sums (stream_x.cuh). */
#define LODE_CHOSEN_X(cols) ((cols) / 128 * (LODE_STREAM_K_HALF + 16))

/* A unit is `each` rows of an expert's gate and the same of its up; or one row of all chosen experts' down.  Shared
 * memory: x, n_x rows of it; then what each warp has: slots for units, and pairs of `batch` of them. */
struct lode_cuda_chosen_args {
    struct lode_cuda_gemv_args a; /* n_units: of these */
    struct lode_cuda_divisor each; /* gate and up: rows, */
    struct lode_cuda_divisor per;  /* and units of an expert */
    struct lode_cuda_divisor nb;   /* blocks of a row */
    uint32_t batch, slots;
    uint32_t pitch;               /* bytes from one row of a slot to the next */
    uint32_t slot_size, own;      /* bytes; of a warp, all that it has */
    uint32_t own_at;              /* bytes before the first warp's */
    uint32_t known;               /* down: the route was written before the launch before this one began */
};

#endif
