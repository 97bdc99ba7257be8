/* planes.h - how weights lie in a device's memory, type by type.
 *
 * A row of a quantised matrix is kept as planes: a field of all its blocks, then the next field of all its blocks, so that a warp reads each
 * with whole 16-byte loads whatever the size of a block is in the file.  Rows lie a multiple of 16 bytes apart.  The same bytes otherwise:
 * nothing is converted. */
#ifndef LODE_CUDA_PLANES_H
#define LODE_CUDA_PLANES_H

#include "backend/cuda/kernels/shared.h"

/* rows.cu's repack: blocks to planes. */
struct lode_cuda_repack_args {
    lode_dev dst, src;
    unsigned long long rows, dst_stride;
    uint32_t blocks, block_size, n_planes;
    uint32_t offset[LODE_CUDA_PLANES], size[LODE_CUDA_PLANES];
};

/* X(suffix, type, numbers in a block, {offset in the block, bytes} of each plane).  Widest first. */
#define LODE_CUDA_QUANT_LIST(X)                                                                    \
    X(q4_0, Q4_0, 32, {2, 16}, {0, 2})                                                             \
    X(q4_1, Q4_1, 32, {4, 16}, {0, 4})                                                             \
    X(q5_0, Q5_0, 32, {6, 16}, {2, 4}, {0, 2})                                                     \
    X(q5_1, Q5_1, 32, {8, 16}, {4, 4}, {0, 4})                                                     \
    X(q8_0, Q8_0, 32, {2, 32}, {0, 2})                                                             \
    X(iq4_nl, IQ4_NL, 32, {2, 16}, {0, 2})                                                         \
    X(mxfp4, MXFP4, 32, {1, 16}, {0, 1})                                                           \
    X(q2_k, Q2_K, 256, {16, 64}, {0, 16}, {80, 4})                                                 \
    X(q3_k, Q3_K, 256, {32, 64}, {0, 32}, {96, 12}, {108, 2})                                      \
    X(q4_k, Q4_K, 256, {16, 128}, {0, 16})                                                         \
    X(q5_k, Q5_K, 256, {48, 128}, {16, 32}, {0, 16})                                               \
    X(q6_k, Q6_K, 256, {0, 128}, {128, 64}, {192, 16}, {208, 2})                                   \
    X(iq4_xs, IQ4_XS, 256, {8, 128}, {0, 8})
#define LODE_CUDA_FLOAT_LIST(X) X(f32, F32) X(f16, F16) X(bf16, BF16)
/* lode's own: blocks of 64 are pairs of 32, in planes of the first and of the second.  Of fused kernels those of one row
 * know them (gemv_own.cu). */
/* What GPTQ, AWQ and MLX directories of 4 bits become. */
#define LODE_CUDA_U4_LIST(X) X(u4, U4, 64, {4, 16}, {24, 16}, {0, 4}, {20, 4})
#define LODE_CUDA_U_LIST(X)                                                                        \
    X(u2, U2, 64, {4, 8}, {16, 8}, {0, 4}, {12, 4})                                                \
    X(u3, U3, 64, {4, 8}, {20, 8}, {12, 4}, {28, 4}, {0, 4}, {16, 4})                              \
    LODE_CUDA_U4_LIST(X)                                                                           \
    X(u5, U5, 64, {4, 16}, {28, 16}, {20, 4}, {44, 4}, {0, 4}, {24, 4})                            \
    X(u6, U6, 64, {4, 16}, {32, 16}, {20, 8}, {48, 8}, {0, 4}, {28, 4})                            \
    X(u4g32, U4G32, 32, {8, 16}, {0, 8})
/* The same with codes of eight bits, which gemm.cu, whose codes have signs, does not take. */
#define LODE_CUDA_U8_LIST(X)                                                                       \
    X(u8, U8, 64, {4, 32}, {40, 32}, {0, 4}, {36, 4})                                              \
    X(u8g32, U8G32, 32, {8, 32}, {0, 8})
/* Blocks of several 32, whose scales lie together (parts.cuh): as those. */
#define LODE_CUDA_BITS_LIST(X) X(q1_0, Q1_0, 128, {2, 16}, {0, 2}) X(q2_0, Q2_0, 64, {2, 16}, {0, 2})
#define LODE_CUDA_PART_LIST(X)                                                                     \
    LODE_CUDA_BITS_LIST(X)                                                                         \
    X(nvfp4, NVFP4, 64, {4, 32}, {0, 4})                                                           \
    X(nvfp4g, NVFP4G, 64, {8, 32}, {0, 8})
/* Of these, what kernels of a few rows and Hopper's warpgroups know too (few_own.cu, wide_own.cu). */
#define LODE_CUDA_OWN_LIST(X) LODE_CUDA_U4_LIST(X) LODE_CUDA_BITS_LIST(X)
/* Codebooks and ternary digits (codebook.cuh): of fused kernels those of one row know them. */
#define LODE_CUDA_CODEBOOK_LIST(X)                                                                 \
    X(tq1_0, TQ1_0, 256, {0, 32}, {32, 16}, {48, 4}, {52, 2})                                      \
    X(tq2_0, TQ2_0, 256, {0, 64}, {64, 2})                                                         \
    X(iq1_s, IQ1_S, 256, {2, 32}, {34, 16}, {0, 2})                                                \
    X(iq1_m, IQ1_M, 256, {0, 32}, {32, 16}, {48, 8})                                               \
    X(iq2_xxs, IQ2_XXS, 256, {2, 64}, {0, 2})                                                      \
    X(iq2_xs, IQ2_XS, 256, {2, 64}, {66, 8}, {0, 2})                                               \
    X(iq2_s, IQ2_S, 256, {2, 32}, {34, 32}, {66, 8}, {74, 8}, {0, 2})                              \
    X(iq3_xxs, IQ3_XXS, 256, {2, 64}, {66, 32}, {0, 2})                                            \
    X(iq3_s, IQ3_S, 256, {2, 64}, {74, 32}, {66, 8}, {106, 4}, {0, 2})
enum { LODE_CODEBOOK_GRIDS = 33792 }; /* bytes of shared memory that gemv_codebook.cu keeps for grids */
/* X(suffix, type): as they lie in the file, with products in float (packed.cuh). */
#define LODE_CUDA_PACKED_LIST(X) X(e4m3, E4M3) X(e5m2, E5M2)

#endif
