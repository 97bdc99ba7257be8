/* dequant_scalar.c - blocks to float32: the plain types and those that have direct kernels.
 *
 * The order of the roundings is the format's (tests/vectors/quant has GGML's own results): with a
 * minimum d q + m, two roundings; K-quants (d scale) q - (dmin min), each product rounded.
 */
#include "kern/isa.h"
#include "kern/unpack.h"

#define DEQUANT(name) void dequant_##name##_scalar(float *y, const void *x, size_t n)

DEQUANT(f32) { memcpy(y, x, n * sizeof *y); }

DEQUANT(f16) {
    const uint16_t *h = x;
    for (size_t i = 0; i < n; i++)
        y[i] = lode_f16_f32(h[i]);
}

DEQUANT(bf16) {
    const uint16_t *h = x;
    for (size_t i = 0; i < n; i++)
        y[i] = lode_bf16_f32(h[i]);
}

/* Integers and doubles: rounded to nearest even.  memcpy: a file aligns them to 8 bytes at most. */
#define DEQUANT_NUMBER(name, type)                                                                 \
    DEQUANT(name) {                                                                                \
        for (size_t i = 0; i < n; i++) {                                                           \
            type v;                                                                                \
            memcpy(&v, (const char *)x + i * sizeof v, sizeof v);                                  \
            y[i] = (float)v;                                                                       \
        }                                                                                          \
    }
DEQUANT_NUMBER(f64, double)
DEQUANT_NUMBER(i8, int8_t)
DEQUANT_NUMBER(i16, int16_t)
DEQUANT_NUMBER(i32, int32_t)
DEQUANT_NUMBER(i64, int64_t)

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

DEQUANT(q8_1) {
    const struct lode_block_q8_1 *b = x;
    for (; n; n -= 32, y += 32, b++) {
        const float d = lode_f16_f32(b->d);
        for (int i = 0; i < 32; i++)
            y[i] = d * b->qs[i];
    }
}

#define DEQUANT_256(name, with_min)                                                                \
    DEQUANT(name) {                                                                                \
        const struct lode_block_##name *b = x;                                                     \
        for (; n; n -= 256, y += 256, b++) {                                                       \
            struct unpack256 u;                                                                    \
            unpack_##name(&u, b);                                                                  \
            for (int i = 0; i < 256; i++) {                                                        \
                const float v = u.d * u.scale[i / 16] * u.q[i];                                    \
                y[i] = with_min ? v - u.dmin * u.min[i / 16] : v;                                  \
            }                                                                                      \
        }                                                                                          \
    }
DEQUANT_256(q2_k, 1)
DEQUANT_256(q3_k, 0)
DEQUANT_256(q4_k, 1)
DEQUANT_256(q5_k, 1)
DEQUANT_256(q6_k, 0)
DEQUANT_256(iq4_xs, 0)

DEQUANT(q8_k) {
    const struct lode_block_q8_k *b = x;
    for (; n; n -= 256, y += 256, b++) {
        float d;
        memcpy(&d, b->d, sizeof d);
        for (int i = 0; i < 256; i++)
            y[i] = d * b->qs[i];
    }
}
