/* dequant_iq.h - blocks to float32: the codebook types IQ1, IQ2, IQ3 (layouts: tensor/block.h),
 * which have no direct kernels; a matrix of them is widened a few rows at a time.
 *
 * An including file defines KERN and how 8 numbers are written (levels: kern/iq_grids.h):
 *
 *   put_iq2(y, scale, word, signs)            scale * level of code j of the grid word, bit j of
 *                                             signs its sign
 *   put_iq3(y, scale, levels, words, signs)   the same of two grid words of 4, the second << 16
 *   put_iq1(y, scale, word, delta)            scale * (level + delta)
 */
#include "kern/isa.h"
#include "kern/unpack.h"

#define DEQUANT(name) void KERN(dequant_##name)(float *y, const void *x, size_t n)

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t load32(const uint8_t *p) { return load16(p) | load16(p + 2) << 16; }

/* Seven stored signs and the eighth that makes their number even. */
static uint32_t even_signs(uint32_t s) {
    s &= 127;
    return s | (uint32_t)__builtin_parity(s) << 7;
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
                put_iq2(y, scale, lode_grid_iq2_xxs[q[j]], even_signs(word >> (7 * j)));
        }
    }
}

DEQUANT(iq2_xs) {
    const struct lode_block_iq2_xs *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t word = load16(b->qs + 2 * j),
                           sc = b->scales[j / 4] >> (j / 2 % 2 * 4) & 15;
            const float scale = d * (0.5f + (float)sc) * 0.25f;
            put_iq2(y, scale, lode_grid_iq2_xs[word & 511], even_signs(word >> 9));
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
            put_iq2(y, scale, lode_grid_iq2_s[idx], b->signs[j]);
        }
    }
}

static const float iq3_xxs_levels[8] = LODE_IQ3_XXS_LEVELS, iq3_s_levels[8] = LODE_IQ3_S_LEVELS;

DEQUANT(iq3_xxs) {
    const struct lode_block_iq3_xxs *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++) {
            const uint32_t word = load32(b->signs + 4 * g);
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.5f;
            for (int j = 0; j < 4; j++, y += 8) {
                const uint8_t *q = b->qs + 8 * g + 2 * j;
                put_iq3(y, scale, iq3_xxs_levels,
                        lode_grid_iq3_xxs[q[0]] | (uint32_t)lode_grid_iq3_xxs[q[1]] << 16,
                        even_signs(word >> (7 * j)));
            }
        }
    }
}

DEQUANT(iq3_s) {
    const struct lode_block_iq3_s *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint8_t *q = b->qs + 2 * j, high = b->qh[j / 4] >> (j % 4 * 2);
            const uint32_t words = lode_grid_iq3_s[q[0] | (high & 1) << 8] |
                                   (uint32_t)lode_grid_iq3_s[q[1] | (high & 2) << 7] << 16;
            const int sc = b->scales[j / 8] >> (j / 4 % 2 * 4) & 15;
            put_iq3(y, d * (float)(1 + 2 * sc), iq3_s_levels, words, b->signs[j]);
        }
    }
}

DEQUANT(iq1_s) {
    const struct lode_block_iq1_s *b = x;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int j = 0; j < 32; j++, y += 8) {
            const uint32_t qh = load16(b->qh + j / 4 * 2);
            const uint32_t idx = b->qs[j] | (qh >> (j % 4 * 3) & 7) << 8;
            const float scale = d * (float)(2 * (qh >> 12 & 7) + 1);
            put_iq1(y, scale, lode_grid_iq1[idx], qh & 0x8000 ? -0.125f : 0.125f);
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
            put_iq1(y, d * (float)(2 * sc + 1), lode_grid_iq1[idx], nibble & 8 ? -0.125f : 0.125f);
        }
    }
}
