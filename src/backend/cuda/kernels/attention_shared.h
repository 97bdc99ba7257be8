/* attention_shared.h - what attention's kernels and those who launch them agree on beside shared.h. */
#ifndef LODE_CUDA_ATTENTION_SHARED_H
#define LODE_CUDA_ATTENTION_SHARED_H

#include "backend/cuda/kernels/shared.h"

/* decode_walk.cu: blocks of a multiprocessor, warps of a block, each with its ring of slots of so many rows of
 * keys or values. */
enum { LODE_WALK_BLOCKS = 3, LODE_WALK_WARPS = 4, LODE_WALK_SLOTS = 2, LODE_WALK_ROWS = 32 };
/* Bytes from one key in 16 bits to the next in a slot; dim is a multiple of 16. */
#define LODE_WALK_KEY_STRIDE(dim) ((dim) % 64 ? 32 * ((dim) / 16 | 1) : 2 * (dim))
struct lode_cuda_walk_args {
    struct lode_cuda_decode_args decode;
    uint32_t slot_size, pad; /* bytes */
};
/* decode_join: pages that are merged at a time, by a thread each; numbers of a head that a block has. */
enum { LODE_JOIN_PAGES = 128, LODE_JOIN_COLS = 32, LODE_JOIN_THREADS = LODE_JOIN_PAGES + 32 };

/* attention_large.cu: query rows of a block and its threads; bytes of shared memory: queries or sums, keys or
 * values, scores, seven numbers a row, keys or values as stored. */
enum {
    LODE_LARGE_ROWS = 64,
    LODE_LARGE_THREADS = 128,
    LODE_LARGE_SHARED = 4 * (LODE_LARGE_ROWS * 128 + 64 * (128 + 4) + 64 * (LODE_LARGE_ROWS + 4) + 7 * LODE_LARGE_ROWS) +
                        64 * (2 * 128 + 16),
};

#endif
