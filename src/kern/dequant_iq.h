/* dequant_iq.h - blocks to float32: the codebook types IQ1, IQ2, IQ3 (layouts: tensor/block.h),
 * which have no direct kernels; a matrix of them is widened a few rows at a time.
 *
 * An including file defines KERN and how numbers are written (codes and levels: kern/iq_grids.h):
 *
 *   put_iq2(y, scale, words, signs)           32 numbers of four grid words, the first 16 times scale[0], the others
 *                                             times scale[1]; bit j of signs is the sign of number j
 *   put_iq3(y, scale, levels, words, signs)   32 numbers of eight grid words, four in each of words[2]
 *   put_iq1(y, scale, word, delta)            8 numbers: scale * (level + delta)
 */
#include "kern/isa.h"
#include "kern/unpack.h"

#define DEQUANT(name) void KERN(dequant_##name)(float *y, const void *x, size_t n)

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t load32(const uint8_t *p) { return load16(p) | load16(p + 2) << 16; }

/* Seven stored signs and the eighth that makes their number even, of all that there are. */
#define SIGN(s) ((s) | (((s) ^ (s) >> 1 ^ (s) >> 2 ^ (s) >> 3 ^ (s) >> 4 ^ (s) >> 5 ^ (s) >> 6) & 1) << 7)
#define SIGN4(s) SIGN(s), SIGN((s) + 1), SIGN((s) + 2), SIGN((s) + 3)
#define SIGN16(s) SIGN4(s), SIGN4((s) + 4), SIGN4((s) + 8), SIGN4((s) + 12)
static const uint8_t even_signs[128] = {SIGN16(0),  SIGN16(16), SIGN16(32), SIGN16(48),
                                        SIGN16(64), SIGN16(80), SIGN16(96), SIGN16(112)};

/* The signs of 32 numbers, seven stored for each eight; and of those in a row. */
static uint32_t four_signs(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return even_signs[a] | (uint32_t)even_signs[b] << 8 | (uint32_t)even_signs[c] << 16 | (uint32_t)even_signs[d] << 24;
}
static uint32_t even_signs32(uint32_t s) {
    return four_signs(s & 127, s >> 7 & 127, s >> 14 & 127, s >> 21 & 127);
}

static uint64_t four(uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
    return a | (uint64_t)b << 16 | (uint64_t)c << 32 | (uint64_t)d << 48;
}

DEQUANT(iq2_xxs) {
    const struct lode_block_iq2_xxs *b = x;
    const uint16_t *grid = lode_grid_iq2_xxs;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b->qs + 8 * g;
            const uint32_t word = load32(q + 4);
            const float scale = d * (0.5f + (float)(word >> 28)) * 0.25f;
            put_iq2(y, (const float[2]){scale, scale}, four(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]]),
                    even_signs32(word));
        }
    }
}

/* Two scales of four bits: of 16 numbers each. */
#define IQ2_SCALES(d, sc)                                                                          \
    (const float[2]) { (d) * (0.5f + (float)((sc) & 15)) * 0.25f, (d) * (0.5f + (float)((sc) >> 4)) * 0.25f }

DEQUANT(iq2_xs) {
    const struct lode_block_iq2_xs *b = x;
    const uint16_t *grid = lode_grid_iq2_xs;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b->qs + 8 * g;
            const uint32_t w0 = load16(q), w1 = load16(q + 2), w2 = load16(q + 4), w3 = load16(q + 6);
            put_iq2(y, IQ2_SCALES(d, b->scales[g]), four(grid[w0 & 511], grid[w1 & 511], grid[w2 & 511], grid[w3 & 511]),
                    four_signs(w0 >> 9, w1 >> 9, w2 >> 9, w3 >> 9));
        }
    }
}

DEQUANT(iq2_s) {
    const struct lode_block_iq2_s *b = x;
    const uint16_t *grid = lode_grid_iq2_s;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b->qs + 4 * g;
            const uint32_t high = b->qh[g];
            put_iq2(y, IQ2_SCALES(d, b->scales[g]),
                    four(grid[q[0] | (high << 8 & 0x300)], grid[q[1] | (high << 6 & 0x300)],
                         grid[q[2] | (high << 4 & 0x300)], grid[q[3] | (high << 2 & 0x300)]),
                    load32(b->signs + 4 * g));
        }
    }
}

static const int8_t iq3_xxs_levels[8] = LODE_IQ3_XXS_LEVELS, iq3_s_levels[8] = LODE_IQ3_S_LEVELS;

DEQUANT(iq3_xxs) {
    const struct lode_block_iq3_xxs *b = x;
    const uint16_t *grid = lode_grid_iq3_xxs;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b->qs + 8 * g;
            const uint32_t word = load32(b->signs + 4 * g);
            const uint64_t words[2] = {four(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]]),
                                       four(grid[q[4]], grid[q[5]], grid[q[6]], grid[q[7]])};
            put_iq3(y, d * (0.5f + (float)(word >> 28)) * 0.5f, iq3_xxs_levels, words, even_signs32(word));
        }
    }
}

DEQUANT(iq3_s) {
    const struct lode_block_iq3_s *b = x;
    const uint16_t *grid = lode_grid_iq3_s;
    for (; n; n -= 256, b++) {
        const float d = lode_f16_f32(b->d);
        for (int g = 0; g < 8; g++, y += 32) {
            const uint8_t *q = b->qs + 8 * g;
            const uint32_t high = b->qh[g], sc = b->scales[g / 2] >> (g % 2 * 4) & 15;
#define POINT(i) grid[q[i] | (high << (8 - i) & 0x100)]
            const uint64_t words[2] = {four(POINT(0), POINT(1), POINT(2), POINT(3)),
                                       four(POINT(4), POINT(5), POINT(6), POINT(7))};
#undef POINT
            put_iq3(y, d * (float)(1 + 2 * sc), iq3_s_levels, words, load32(b->signs + 4 * g));
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
