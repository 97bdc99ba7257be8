/* dequant.h - blocks to float32: the types whose plain loops a compiler turns into good vector
 * code, all but the codebooks (dequant_iq.h) and those of dequant_scalar.c.  An including file
 * defines KERN.
 *
 * The order of the roundings is the format's (tests/vectors/quant has GGML's own results): K-quants
 * are (d scale) q - (dmin min), each product rounded.
 */
#include "kern/fp8.h"
#include "kern/isa.h"
#include "kern/unpack.h"

#define DEQUANT(name) void KERN(dequant_##name)(float *y, const void *x, size_t n)

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
            for (int g = 0; g < 16; g++) {                                                         \
                const float scale = u.d * u.scale[g], min = u.dmin * u.min[g];                     \
                for (int i = 16 * g; i < 16 * g + 16; i++)                                         \
                    y[i] = with_min ? scale * u.q[i] - min : scale * u.q[i];                       \
            }                                                                                      \
        }                                                                                          \
    }
DEQUANT_256(tq2_0, 0)
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

/* 32 numbers of larger blocks; those of which each half has a scale */
#define DEQUANT_PARTS(name, second)                                                                \
    DEQUANT(name) {                                                                                \
        for (size_t i = 0; i < n / 32; i++, y += 32) {                                             \
            struct unpack32 u;                                                                     \
            unpack_##name(&u, x, i);                                                               \
            for (int l = 0; l < 16; l++)                                                           \
                y[l] = u.d * u.q[l];                                                               \
            for (int l = 16; l < 32; l++)                                                          \
                y[l] = u.second * u.q[l];                                                          \
        }                                                                                          \
    }
#define DEQUANT_PART(name, type) DEQUANT_PARTS(name, d)
#define DEQUANT_HALVES(name, type) DEQUANT_PARTS(name, m)
LODE_MUL_PART_LIST(DEQUANT_PART)
LODE_MUL_HALVES_LIST(DEQUANT_HALVES)

#define DEQUANT_U(name, type)                                                                      \
    DEQUANT(name) {                                                                                \
        for (size_t i = 0; i < n / 32; i++, y += 32) {                                             \
            struct unpack_u u;                                                                     \
            unpack_##name(&u, x, i);                                                               \
            for (int l = 0; l < 32; l++)                                                           \
                y[l] = u.d * u.q[l] + u.m;                                                         \
        }                                                                                          \
    }
LODE_MUL_U_LIST(DEQUANT_U)

/* by table: what is computed instead is slower */
#define DEQUANT_FP8(name)                                                                          \
    DEQUANT(name) {                                                                                \
        const struct lode_block_##name *b = x;                                                     \
        for (; n; n -= 32, y += 32, b++) {                                                         \
            const struct lode_block_##name copy = *b; /* which y does not overlap */               \
            for (int i = 0; i < 32; i++)                                                           \
                y[i] = copy.d * name[copy.q[i]];                                                   \
        }                                                                                          \
    }
DEQUANT_FP8(e4m3)
DEQUANT_FP8(e5m2)
