/* dequant_iq_scalar.c - blocks to float32: codebooks, ternary, binary, NVFP4.  These types have no
 * direct kernels; a matrix of them is widened a few rows at a time.  Layouts: tensor/block.h. */
#include "kern/isa.h"
#include "kern/unpack.h"

#define DEQUANT(name) void dequant_##name##_scalar(float *y, const void *x, size_t n)

static const float iq1_levels[4] = LODE_IQ1_LEVELS, iq2_levels[4] = LODE_IQ2_LEVELS,
                   iq3_xxs_levels[8] = LODE_IQ3_XXS_LEVELS, iq3_s_levels[8] = LODE_IQ3_S_LEVELS;

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t load32(const uint8_t *p) { return load16(p) | load16(p + 2) << 16; }

/* Seven stored signs and the eighth that makes their number even. */
static uint32_t even_signs(uint32_t s) {
    s &= 127;
    return s | (uint32_t)__builtin_parity(s) << 7;
}

static float flip(float v, uint32_t sign) { return lode_bits_f32(lode_f32_bits(v) ^ sign << 31); }

/* 8 numbers: scale times the levels of a grid word, signed by the bits of `signs`. */
static void put8(float *y, float scale, uint32_t word, uint32_t signs) {
    for (int j = 0; j < 8; j++)
        y[j] = flip(scale * iq2_levels[word >> (2 * j) & 3], signs >> j & 1);
}

static void put4(float *y, float scale, const float levels[8], uint32_t word, uint32_t signs) {
    for (int j = 0; j < 4; j++)
        y[j] = flip(scale * levels[word >> (4 * j) & 7], signs >> j & 1);
}

DEQUANT(iq2_xxs) {
    const struct lode_block_iq2_xxs *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++) { /* 32 numbers */
            const uint8_t *q = b->qs + 8 * g;
            const uint32_t word = load32(q + 4);
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            for (int j = 0; j < 4; j++, y += 8)
                put8(y, scale, lode_grid_iq2_xxs[q[j]], even_signs(word >> (7 * j)));
        }
    }
}

DEQUANT(iq2_xs) {
    const struct lode_block_iq2_xs *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t word = load16(b->qs + 2 * j), sc = b->scales[j / 4] >> (j / 2 % 2 * 4) & 15;
            const float scale = d * (0.5f + (float)sc) * 0.25f;
            put8(y, scale, lode_grid_iq2_xs[word & 511], even_signs(word >> 9));
        }
    }
}

DEQUANT(iq2_s) {
    const struct lode_block_iq2_s *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t idx = b->qs[j] | (b->qh[j / 4] >> (j % 4 * 2) & 3u) << 8;
            const uint32_t sc = b->scales[j / 4] >> (j / 2 % 2 * 4) & 15;
            const float scale = d * (0.5f + (float)sc) * 0.25f;
            put8(y, scale, lode_grid_iq2_s[idx], b->signs[j]);
        }
    }
}

DEQUANT(iq3_xxs) {
    const struct lode_block_iq3_xxs *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const uint32_t word = load32(b->signs + 4 * g);
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            for (int j = 0; j < 8; j++, y += 4)
                put4(y, scale, iq3_xxs_levels, lode_grid_iq3_xxs[b->qs[8 * g + j]],
                     even_signs(word >> (j / 2 * 7)) >> (j % 2 * 4));
        }
    }
}

DEQUANT(iq3_s) {
    const struct lode_block_iq3_s *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 64; j++, y += 4) {
            const uint32_t idx = b->qs[j] | (b->qh[j / 8] >> (j % 8) & 1u) << 8;
            const int sc = b->scales[j / 16] >> (j / 8 % 2 * 4) & 15;
            put4(y, d * (float)(1 + 2 * sc), iq3_s_levels, lode_grid_iq3_s[idx],
                 (uint32_t)b->signs[j / 2] >> (j % 2 * 4));
        }
    }
}

/* 8 numbers scale * (level + delta). */
static void put8_delta(float *y, float scale, uint32_t word, float delta) {
    for (int j = 0; j < 8; j++)
        y[j] = scale * (iq1_levels[word >> (2 * j) & 3] + delta);
}

DEQUANT(iq1_s) {
    const struct lode_block_iq1_s *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t qh = load16(b->qh + j / 4 * 2);
            const uint32_t idx = b->qs[j] | (qh >> (j % 4 * 3) & 7) << 8;
            const float scale = d * (float)(2 * (qh >> 12 & 7) + 1);
            put8_delta(y, scale, lode_grid_iq1[idx], qh & 0x8000 ? -0.125f : 0.125f);
        }
    }
}

DEQUANT(iq1_m) {
    const struct lode_block_iq1_m *b = x;
    for (; n; n -= 256, b++) {
        uint32_t half = 0;
        for (int k = 0; k < 4; k++)
            half |= load16(b->scales + 2 * k) >> 12 << (4 * k);
        const float d = lode_f16_f32((uint16_t)half);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t nibble = b->qh[j / 2] >> (j % 2 * 4);
            const uint32_t idx = b->qs[j] | (nibble & 7) << 8;
            const uint32_t sc = load16(b->scales + j / 8 * 2) >> (j / 2 % 4 * 3) & 7;
            put8_delta(y, d * (float)(2 * sc + 1), lode_grid_iq1[idx],
                       nibble & 8 ? -0.125f : 0.125f);
        }
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
