/* halves.cuh - numbers of 16 bits on the tensor cores: the instruction, and rows of floats rounded for it.
 * What the hardware makes of sixteen products and a float is at the head of fast.cuh. */
#ifndef LODE_CUDA_HALVES_CUH
#define LODE_CUDA_HALVES_CUH

#include "common.cuh"

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

/* For a row whose largest number has these bits: its factor, and what undoes it. */
template <class T> DEVICE float2 factors_of(uint32_t most) {
    if (!T::SCALED)
        return make_float2(1, 1);
    const uint32_t e = most >> 23, b = e < 28 ? 28 : e > 254 ? 254 : e;
    return make_float2(lode_bits_f32((268 - b) << 23), lode_bits_f32((b - 14) << 23));
}
/* Both rounded, to nearest even; a in the lower half. */
template <class T> DEVICE uint32_t rounded_pair(float a, float b);
template <> __device__ __forceinline__ uint32_t rounded_pair<f16>(float a, float b) {
    uint32_t v;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
    return v;
}
template <> __device__ __forceinline__ uint32_t rounded_pair<bf16>(float a, float b) {
    uint32_t v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
    return v;
}
template <class T> DEVICE uint32_t pair_16(float a, float b, float factor) {
    return T::SCALED ? rounded_pair<T>(a * factor, b * factor) : rounded_pair<T>(a, b);
}

/* Pairs of halves; each result is rounded once. */
DEVICE uint32_t sub_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE uint32_t mul_halves(uint32_t a, uint32_t b) {
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}

/* Four pieces of 8 rows by 16 bytes; thread 8 i + r has the address of row r of piece i. */
DEVICE void load_pieces(uint32_t (&v)[4], uint32_t p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(p)
                 : "memory");
}
DEVICE void load_turned(uint32_t (&v)[4], uint32_t p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(p)
                 : "memory");
}

#endif
