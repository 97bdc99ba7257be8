/* fast.cuh - products of --numerics tensor: rows of x rounded to the type of 16-bit weights, multiplied by the
 * tensor cores.
 *
 * Of a result <w, x>, the tensor cores make the sum of a slice, 256 numbers of K, sixteen at a time in
 * ascending order into one float32; slices are added in ascending order by float additions.  On a GPU that is
 * the same for one row and for many, tile by tile or column by column, so law 2 holds there; how sixteen
 * products and a float become one float is the hardware's own (Hopper: exact products, cut off 25 bits below the
 * largest, and a sum cut off after 24), and so is the result.  Hopper's warpgroups give mma.sync's bits,
 * whatever the order within the sixteen; elsewhere all products are mma.sync's, with one order:
 *
 *     thread q of a row's four has numbers 4 q .. 4 q + 3 of the sixteen, as the instruction's 2 q, 2 q + 1,
 *     2 q + 8 and 2 q + 9.
 *
 * BF16 has float32's range.  Halves end at 65504, so rows that meet F16 weights are first multiplied by the
 * power of two that puts their largest number into [2^14, 2^15): exact, but for numbers 2^-39 of the largest
 * and less.  The result is divided by it. */
#ifndef LODE_CUDA_FAST_CUH
#define LODE_CUDA_FAST_CUH

#include "few.cuh"
#include "backend/cuda/kernels/halves.cuh"

/* ---- x ---- */

/* The largest magnitude's bits of all threads' m. */
DEVICE uint32_t block_max(uint32_t m) {
    __shared__ uint32_t most[GEMV_WARPS];
    m = max_of_warp(m);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = m;
    __syncthreads();
    m = threadIdx.x % 32 < blockDim.x / 32 ? most[threadIdx.x % 32] : 0;
    return max_of_warp(m);
}

#endif
