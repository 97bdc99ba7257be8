/* dequant_scalar.c - blocks to float32: all types but the codebooks (dequant_iq.h).
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

DEQUANT(tq1_0) {
    static const uint8_t pow3[5] = {1, 3, 9, 27, 81};
    /* the three runs of a block: bytes, numbers a byte holds */
    static const struct {
        int bytes, digits;
    } runs[3] = {{32, 5}, {16, 5}, {4, 4}};
    const struct lode_block_tq1_0 *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        const uint8_t *q[3] = {b->qs, b->qs + 32, b->qh};
        for (int r = 0; r < 3; r++)
            for (int k = 0; k < runs[r].digits; k++)
                for (int l = 0; l < runs[r].bytes; l++) {
                    const uint8_t rest = (uint8_t)(q[r][l] * pow3[k]); /* the digits above are gone */
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
        for (int i = 0; i < 128; i++)
            y[i] = b->qs[i / 8] >> (i % 8) & 1 ? d : -d;
    }
}

DEQUANT(q2_0) {
    const struct lode_block_q2_0 *b = x;
    for (; n; n -= 64, y += 64, b++) {
        const float d = lode_f16_f32(b->d);
        for (int i = 0; i < 64; i++)
            y[i] = d * (float)((b->qs[i / 4] >> (i % 4 * 2) & 3) - 1);
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

DEQUANT(nvfp4) {
    static const float levels[16] = LODE_FP4_LEVELS;
    const struct lode_block_nvfp4 *b = x;
    for (; n; n -= 64, y += 64, b++)
        for (int i = 0; i < 64; i++)
            y[i] = ue4m3_half(b->d[i / 16]) *
                   levels[b->qs[i / 16 * 8 + i % 8] >> (i % 16 / 8 * 4) & 15];
}
