/* mma.cuh - products of bytes on the tensor cores: 16 rows of a by 8 columns of b, sums of 32 bits.
 *
 * Before Ampere an instruction takes 8 rows by 16 bytes; the larger ones are made of it, register by
 * register, and the sums, being integers, are the same. */
#ifndef LODE_CUDA_MMA_CUH
#define LODE_CUDA_MMA_CUH

#include "backend/cuda/kernels/common.cuh"

#if __CUDA_ARCH__ >= 800
#define MMA_K32(name, types)                                                                       \
    DEVICE void name(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,    \
                     uint32_t b1) {                                                                \
        asm("mma.sync.aligned.m16n8k32.row.col.s32." types                                         \
            ".s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"                           \
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                       \
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));                               \
    }
#define MMA_K16(name, types)                                                                       \
    DEVICE void name(int c[4], uint32_t a0, uint32_t a1, uint32_t b) {                             \
        asm("mma.sync.aligned.m16n8k16.row.col.s32." types                                         \
            ".s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"                                    \
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])                                       \
            : "r"(a0), "r"(a1), "r"(b));                                                           \
    }
#else
#define MMA_8_ROWS(c, a, b, types)                                                                 \
    asm("mma.sync.aligned.m8n8k16.row.col.s32." types ".s32 {%0,%1}, {%2}, {%3}, {%0,%1};"         \
        : "+r"((c)[0]), "+r"((c)[1])                                                               \
        : "r"(a), "r"(b))
#define MMA_K32(name, types)                                                                       \
    DEVICE void name(int c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,    \
                     uint32_t b1) {                                                                \
        MMA_8_ROWS(c, a0, b0, types);                                                              \
        MMA_8_ROWS(c, a2, b1, types);                                                              \
        MMA_8_ROWS(c + 2, a1, b0, types);                                                          \
        MMA_8_ROWS(c + 2, a3, b1, types);                                                          \
    }
#define MMA_K16(name, types)                                                                       \
    DEVICE void name(int c[4], uint32_t a0, uint32_t a1, uint32_t b) {                             \
        MMA_8_ROWS(c, a0, b, types);                                                               \
        MMA_8_ROWS(c + 2, a1, b, types);                                                           \
    }
#endif

/* Signed and unsigned bytes of a and b. */
MMA_K32(mma_bytes, "s8.s8")
MMA_K16(mma_ss, "s8.s8")
MMA_K16(mma_su, "s8.u8")
MMA_K16(mma_us, "u8.s8")
MMA_K16(mma_uu, "u8.u8")

#endif
