/* dequant_scalar.c - blocks to float32, the definition.  A block's roundings are in the format's
 * order (tests/vectors/quant has GGML's own results): d q, or (d q) + m in two.
 *
 * The types with blocks of 32 are here alone: gcc's SSE2 of these loops is faster than its AVX2,
 * for which it first unrolls a block into single numbers. */
#define KERN(name) name##_scalar
#include "kern/dequant.h"

DEQUANT(f32) { memcpy(y, x, n * sizeof *y); }

DEQUANT(f16) {
    const uint16_t *h = x;
    for (size_t i = 0; i < n; i++)
        y[i] = lode_f16_f32(h[i]);
}

#define DEQUANT_32(name, with_m)                                                                   \
    DEQUANT(name) {                                                                                \
        const struct lode_block_##name *b = x;                                                     \
        for (; n; n -= 32, y += 32, b++) {                                                         \
            struct unpack32 u;                                                                     \
            unpack_##name(&u, b);                                                                  \
            for (int i = 0; i < 32; i++)                                                           \
                y[i] = with_m ? u.d * u.q[i] + u.m : u.d * u.q[i];                                 \
        }                                                                                          \
    }
DEQUANT_32(q4_0, 0)
DEQUANT_32(q4_1, 1)
DEQUANT_32(q5_0, 0)
DEQUANT_32(q5_1, 1)
DEQUANT_32(q8_0, 0)
DEQUANT_32(iq4_nl, 0)
DEQUANT_32(mxfp4, 0)
