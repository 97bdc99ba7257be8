/* fast.cuh - products of --numerics fast: rows of x rounded to the type of 16-bit weights, multiplied by the
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

struct f16 { enum { SCALED = 1 }; };
struct bf16 { enum { SCALED = 0 }; };

/* 16 rows by 8 columns, sixteen numbers of K.  u, v: a thread's four numbers of rows r and r + 8 of w, x: of
 * column r of x. */
template <class T> DEVICE void mma_fast(float (&c)[4], uint2 u, uint2 v, uint2 x);
#define MMA_FAST(name, type)                                                                       \
    template <> __device__ __forceinline__ void mma_fast<name>(float(&c)[4], uint2 u, uint2 v, uint2 x) { \
        asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0,%1,%2,%3}, "          \
            "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                                               \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                       \
            : "r"(u.x), "r"(v.x), "r"(u.y), "r"(v.y), "r"(x.x), "r"(x.y));                         \
    }
MMA_FAST(f16, "f16")
MMA_FAST(bf16, "bf16")

/* ---- x ---- */

/* For a row whose largest number has these bits: its factor, and what undoes it. */
template <class T> DEVICE float2 factors_of(uint32_t most) {
    if (!T::SCALED)
        return make_float2(1, 1);
    const uint32_t e = most >> 23, b = e < 28 ? 28 : e > 254 ? 254 : e;
    return make_float2(lode_bits_f32((268 - b) << 23), lode_bits_f32((b - 14) << 23));
}
template <class T> DEVICE uint32_t pair_16(float a, float b, float factor) {
    if (T::SCALED)
        return f32_f16(a * factor) | (uint32_t)f32_f16(b * factor) << 16;
    return f32_bf16(a) | (uint32_t)f32_bf16(b) << 16;
}

/* The largest magnitude's bits of all threads' m. */
DEVICE uint32_t block_max(uint32_t m) {
    __shared__ uint32_t most[GEMV_WARPS];
    m = warp_max(m, 32);
    if (threadIdx.x % 32 == 0)
        most[threadIdx.x / 32] = m;
    __syncthreads();
    m = threadIdx.x % 32 < GEMV_WARPS ? most[threadIdx.x % 32] : 0;
    return warp_max(m, 32);
}
DEVICE uint32_t most_of(float4 v, uint32_t m) {
    m = max(m, magnitude(v.x)), m = max(m, magnitude(v.y));
    return max(max(m, magnitude(v.z)), magnitude(v.w));
}

#endif
