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

DEQUANT(tq1_0) {
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    /* the three runs of a block: bytes, numbers a byte holds */
    static const struct { int bytes, digits; } runs[3] = {{32, 5}, {16, 5}, {4, 4}};
    const struct lode_block_tq1_0 *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        const uint8_t *q[3] = {b->qs, b->qs + 32, b->qh};
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < runs[r].digits; k++)
                for (int l = 0; l < runs[r].bytes; l++) {
                    const uint8_t rest =
                        (uint8_t)(q[r][l] * pow3[k]); /* the digits above are gone */
                    *y++ = d * (float)((rest * 3 >> 8) - 1);
                }
    }
}

DEQUANT(tq2_0) {
    const struct lode_block_tq2_0 *b = x;
    for (; n; n -= 256, y += 256, b++) {
        const float d = lode_f16_f32(b->d);
        int8_t q[256];
        unpack_two_bits(q, b->qs);
        for (int i = 0; i < 256; i++)
            y[i] = d * (float)(q[i] - 1);
    }
}

DEQUANT(q1_0) {
    const struct lode_block_q1_0 *b = x;
    for (; n; n -= 128, y += 128, b++) {
        const float d = lode_f16_f32(b->d);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 8; j++)
                y[8 * i + j] = b->qs[i] >> j & 1 ? d : -d;
    }
}

DEQUANT(q2_0) {
    const struct lode_block_q2_0 *b = x;
    for (; n; n -= 64, y += 64, b++) {
        const float d = lode_f16_f32(b->d);
        for (int i = 0; i < 16; i++)
            for (int j = 0; j < 4; j++)
                y[4 * i + j] = d * (float)((b->qs[i] >> (2 * j) & 3) - 1);
    }
}

/* E4M3 without its sign bit (bit 7 is not looked at), halved.  0x7f is NaN in that format; GGML
 * reads it as 0, and so do we. */
static float ue4m3_half(uint8_t e) {
    const int exp = e >> 3 & 15, man = e & 7;
    if (e == 0x7f)
        return 0;
    return exp ? lode_bits_f32((uint32_t)(exp - 7 - 1 + 127) << 23 | (uint32_t)man << 20)
               : (float)man * 0x1p-10f;
}

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

DEQUANT(nvfp4g) {
    static const float levels[16] = LODE_FP4_LEVELS; /* doubled */
    const struct lode_block_nvfp4g *b = x;
    for (; n; n -= 64, b++)
        for (int g = 0; g < 4; g++, y += 16) {
            const float scale = e4m3[b->d[g]] / b->by;
            for (int i = 0; i < 8; i++) {
                y[i] = scale * (levels[b->qs[8 * g + i] & 15] * 0.5f);
                y[i + 8] = scale * (levels[b->qs[8 * g + i] >> 4] * 0.5f);
            }
        }
}

DEQUANT(nvfp4) {
    static const float levels[16] = LODE_FP4_LEVELS;
    const struct lode_block_nvfp4 *b = x;
    for (; n; n -= 64, b++)
        for (int g = 0; g < 4; g++, y += 16) {
            const float scale = ue4m3_half(b->d[g]);
            for (int i = 0; i < 8; i++) {
                y[i] = scale * levels[b->qs[8 * g + i] & 15];
                y[i + 8] = scale * levels[b->qs[8 * g + i] >> 4];
            }
        }
}
