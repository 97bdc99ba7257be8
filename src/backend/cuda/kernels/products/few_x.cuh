/* few_x.cuh - x of a few rows' products (few.cuh): what lies where in it, and how it comes to those who multiply it.
 *
 * It was put in the order in which threads want it (few_x): every load is whole lines.  A warp reads its own from the memory, ahead
 * of where it uses it.  Of more rows than eight registers are too few to read far ahead, and warps waited for x in the second cache
 * longer than for anything else: there, on Hopper, a block of threads has a ring of x's blocks in shared memory, brought in bulk, for
 * all of its warps. */
#ifndef LODE_CUDA_FEW_X_CUH
#define LODE_CUDA_FEW_X_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "few_copies.cuh"
#include "x_ring.cuh"

/* Whether x comes to shared memory: of weights in blocks of so many numbers, so many groups of eight columns.  In blocks of 32 its
 * place is worth more to weights on their way. */
static constexpr __device__ bool x_is_shared(int block, int columns) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    return block == 256 && columns >= LODE_FEW_X_SHARED;
#else
    return false;
#endif
}

/* Where things lie in a block of x: 256 numbers of eight rows.  Codes: 512 bytes for each two groups of 32. */
enum {
    X_SUMS = 2048,    /* A256, a thread: the sixteen sums' low bytes, then high, as an mma takes them, and d of its two columns */
    X_FACTORS = 2560, /* A256, two columns: m, bytes of (group, column) */
    X_BLOCKS = 2048,  /* A32: (d, sum) of (block, column) */
};

/* Bytes of it, by the numbers of a block of weights. */
static constexpr __device__ uint32_t x_bytes(int block) { return block == 256 ? LODE_FEW_X256 : LODE_FEW_X32; }

DEVICE uint4 read16(const uint8_t *p) { return *(const uint4 *)p; }

/* Where a thread reads a block of x: codes and sums; what belongs to two columns. */
struct few_x_at {
    const uint8_t *p, *m;
    DEVICE_MEMBER struct few_x_at by(size_t bytes) const { return {p + bytes, m + bytes}; }
};
DEVICE struct few_x_at x_places(const uint8_t *x, uint32_t lane) { return {x + 16 * lane, x + 16 * (lane % 4)}; }

/* ---- read ahead ---- */

/* What an item needs of x in the memory first, on its way before the weights are looked at: all of one group of columns; of more the
 * codes of groups 0 and 1 and the factors, as registers are too few. */
template <int BLOCK, int C>
struct few_x_first {
    enum { ALL = BLOCK == 32 || C == 1, N = BLOCK == 256 ? C : 1, PAIRS = ALL ? 4 : 1 };
    uint4 codes[N][PAIRS], m[N], sums[N];
};
template <int BLOCK, int C>
DEVICE void read_first(struct few_x_first<BLOCK, C> &v, const struct few_x_at &x) {
#pragma unroll
    for (int c = 0; c < v.N; c++) {
        const struct few_x_at from = x.by(c * LODE_FEW_X256);
#pragma unroll
        for (int p = 0; p < v.PAIRS; p++)
            v.codes[c][p] = read16(from.p + 512 * p);
        if (BLOCK == 256)
            v.m[c] = read16(from.m + X_FACTORS);
        if (BLOCK == 256 && v.ALL)
            v.sums[c] = read16(from.p + X_SUMS);
    }
}

#endif
