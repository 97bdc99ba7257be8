/* stream_shared.h - products of one row whose weights come through shared memory (gemv_stream.cu): what a launch
 * tells them. */
#ifndef LODE_CUDA_STREAM_SHARED_H
#define LODE_CUDA_STREAM_SHARED_H

#include "backend/cuda/kernels/shared.h"

enum {
    LODE_STREAM_WARPS = 16,   /* of a block of threads, at most */
    LODE_STREAM_SLOTS = 8,    /* of a warp's ring, at most */
    LODE_STREAM_CHUNK = 1024, /* bytes of a row in a slot; Q8_0: of its codes */
    /* floats: rows of a warp at a time; bytes between them, for the banks */
    LODE_STREAM_ROWS = 8,
    LODE_STREAM_PITCH = LODE_STREAM_CHUNK + 16,
    LODE_STREAM_SLOT = LODE_STREAM_ROWS * LODE_STREAM_PITCH,
    LODE_STREAM_Q8_ROWS = 4,
    LODE_STREAM_Q8_SLOT = LODE_STREAM_Q8_ROWS * (LODE_STREAM_PITCH + LODE_STREAM_CHUNK / 16),
    LODE_STREAM_Q8_OWN = 2 * LODE_STREAM_Q8_ROWS * (128 + 16), /* of a warp, beside its ring: two times sixteen pairs a row */
};

/* A unit has a warp's rows at a time, of gate and of up as many.  Shared memory: x (Q8_0: floats of a norm, from x_at on
 * the rounded row), from ring_at on what warps have. */
struct lode_cuda_stream_args {
    struct lode_cuda_gemv_args a;
    uint32_t ring_at, slots; /* bytes; of a ring, 2 and more */
    uint32_t warps, pad;     /* that have units; the others of a block only make x */
};

#endif
