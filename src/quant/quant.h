/* quant.h - from float32 to the blocks of a file: one function a type, the definition and the only
 * version.
 *
 * Each finds, for a block of numbers x with weights v, scales and codes whose values w make
 * sum v (x - w)^2 small: it tries scales around the one that the largest number asks for, fits each
 * by least squares to the codes that it gives, and keeps the best (quant/search.h).  Without
 * weights all count the same.  Results depend on x and v alone, so rows can be shared out to any
 * number of threads; sums run in a fixed order without fused multiply-adds, so the bytes are the
 * same on every CPU.
 *
 * Numbers are finite and below 65504 in size; n is a multiple of the type's block.
 */
#ifndef LODE_QUANT_QUANT_H
#define LODE_QUANT_QUANT_H

#include "tensor/dtype.h"

/* y: n numbers in the type's blocks; x: (n); v: (n) none negative, or NULL. */
typedef void lode_quant_fn(void *y, const float *x, const float *v, size_t n);

/* NULL: nothing is quantised to this type. */
lode_quant_fn *lode_quantiser(enum lode_dtype t);

/* The same codes in another layout, only the scales rounded: n numbers; NULL where the types share
 * no codes (quant/repack.c). */
typedef void lode_repack_fn(void *y, const void *x, size_t n);
lode_repack_fn *lode_repacker(enum lode_dtype from, enum lode_dtype to);

/* X(function suffix, dtype) */
#define LODE_QUANT_LIST(X)                                                                         \
    X(f32, F32)                                                                                    \
    X(f16, F16)                                                                                    \
    X(bf16, BF16)                                                                                  \
    X(q4_0, Q4_0)                                                                                  \
    X(q4_1, Q4_1)                                                                                  \
    X(q5_0, Q5_0)                                                                                  \
    X(q5_1, Q5_1)                                                                                  \
    X(q8_0, Q8_0)                                                                                  \
    X(iq4_nl, IQ4_NL)                                                                              \
    X(mxfp4, MXFP4)                                                                                \
    X(q2_k, Q2_K)                                                                                  \
    X(q3_k, Q3_K)                                                                                  \
    X(q4_k, Q4_K)                                                                                  \
    X(q5_k, Q5_K)                                                                                  \
    X(q6_k, Q6_K)                                                                                  \
    X(iq4_xs, IQ4_XS)

#define LODE_QUANT_DECLARE(s, t)                                                                   \
    void lode_quant_##s(void *y, const float *x, const float *v, size_t n);
LODE_QUANT_LIST(LODE_QUANT_DECLARE)
#undef LODE_QUANT_DECLARE

#endif
