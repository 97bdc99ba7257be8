/* codebook.h - 32 numbers of a block of a codebook type (IQ1, IQ2, IQ3) or of base-3 digits (TQ1_0) as plain integers;
 * layouts: tensor/block.h.
 *
 *   read_T(c, block, g)   numbers 32 g .. 32 g + 31 of a block
 *   half_T(block)         the bits of its d
 *
 * w = d / per scale w', where w' is a byte with a sign, or a byte less the type's bias; |w'| <= most.  Every type's scale
 * is an odd number, 2 s + 1, and what is left is a power of two: so blocks have products in integers like the K-quants'. */
#ifndef LODE_KERN_CODEBOOK_H
#define LODE_KERN_CODEBOOK_H

#include "kern/iq_grids.h"
#include "tensor/block.h"

#include <stddef.h>
#include <stdint.h>

/* X(suffix, dtype, scales of a block, most, per, bias; 0: bytes have signs) */
#define LODE_CODEBOOK_LIST(X) X(tq1_0, TQ1_0, 8, 1, 1, 1) LODE_GRID_LIST(X)
#define LODE_GRID_LIST(X)                                                                          \
    X(iq1_s, IQ1_S, 8, 9, 8, 9)                                                                    \
    X(iq1_m, IQ1_M, 16, 9, 8, 9)                                                                   \
    X(iq2_xxs, IQ2_XXS, 8, 43, 8, 0)                                                               \
    X(iq2_xs, IQ2_XS, 16, 43, 8, 0)                                                                \
    X(iq2_s, IQ2_S, 16, 43, 8, 0)                                                                  \
    X(iq3_xxs, IQ3_XXS, 8, 62, 4, 0)                                                               \
    X(iq3_s, IQ3_S, 8, 15, 1, 0)

struct codes32 {
    uint64_t byte[4];  /* eight numbers each, the first the lowest */
    uint32_t signs;    /* bit i: number i is negative; of types with a bias 0 */
    uint8_t scale[2];  /* of the first 16 numbers and of the others; at most 31 */
};

/* Number i, w'. */
static inline int codes_number(const struct codes32 *c, int i, int bias) {
    const int v = (int)(c->byte[i / 8] >> (8 * (i % 8)) & 255);
    return bias ? v - bias : c->signs >> i & 1 ? -v : v;
}

static inline uint32_t codes_load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static inline uint32_t codes_load32(const uint8_t *p) { return codes_load16(p) | codes_load16(p + 2) << 16; }

/* Seven stored signs and the eighth that makes their number even, in each byte. */
static inline uint32_t codes_even(uint32_t seven) {
    uint32_t parity = seven ^ seven >> 4;
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    return seven | (parity & 0x01010101) << 7;
}
/* The same of 28 bits: four sevens, the first the lowest. */
static inline uint32_t codes_even28(uint32_t s) {
    const uint32_t two = (s & 0x3fff) | (s & 0xfffc000) << 2;
    return codes_even((two & 0x007f007f) | (two & 0x3f803f80) << 1);
}
static inline uint8_t codes_scale(uint32_t s) { return (uint8_t)(2 * s + 1); }
static inline void codes_one_scale(struct codes32 *c, uint32_t s) { c->scale[0] = c->scale[1] = codes_scale(s); }
static inline void codes_two_scales(struct codes32 *c, uint32_t byte) {
    c->scale[0] = codes_scale(byte & 15);
    c->scale[1] = codes_scale(byte >> 4);
}

static inline void read_iq2_xxs(struct codes32 *c, const struct lode_block_iq2_xxs *b, int g) {
    const uint8_t *q = b->qs + 8 * g;
    const uint32_t word = codes_load32(q + 4);
    for (int i = 0; i < 4; i++)
        c->byte[i] = lode_grid_iq2_xxs[q[i]];
    c->signs = codes_even28(word);
    codes_one_scale(c, word >> 28);
}
static inline void read_iq2_xs(struct codes32 *c, const struct lode_block_iq2_xs *b, int g) {
    uint32_t sevens = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t word = codes_load16(b->qs + 8 * g + 2 * i);
        c->byte[i] = lode_grid_iq2_xs[word & 511];
        sevens |= word >> 9 << (8 * i);
    }
    c->signs = codes_even(sevens);
    codes_two_scales(c, b->scales[g]);
}
static inline void read_iq2_s(struct codes32 *c, const struct lode_block_iq2_s *b, int g) {
    const uint32_t high = b->qh[g];
    for (int i = 0; i < 4; i++)
        c->byte[i] = lode_grid_iq2_s[b->qs[4 * g + i] | (high << (8 - 2 * i) & 0x300)];
    c->signs = codes_load32(b->signs + 4 * g);
    codes_two_scales(c, b->scales[g]);
}
static inline void read_iq3_xxs(struct codes32 *c, const struct lode_block_iq3_xxs *b, int g) {
    const uint8_t *q = b->qs + 8 * g;
    const uint32_t word = codes_load32(b->signs + 4 * g);
    for (int i = 0; i < 4; i++)
        c->byte[i] = lode_grid_iq3_xxs[q[2 * i]] | (uint64_t)lode_grid_iq3_xxs[q[2 * i + 1]] << 32;
    c->signs = codes_even28(word);
    codes_one_scale(c, word >> 28);
}
static inline void read_iq3_s(struct codes32 *c, const struct lode_block_iq3_s *b, int g) {
    const uint8_t *q = b->qs + 8 * g;
    const uint32_t high = b->qh[g];
    for (int i = 0; i < 4; i++)
        c->byte[i] = lode_grid_iq3_s[q[2 * i] | (high << (8 - 2 * i) & 256)] |
                     (uint64_t)lode_grid_iq3_s[q[2 * i + 1] | (high << (7 - 2 * i) & 256)] << 32;
    c->signs = codes_load32(b->signs + 4 * g);
    codes_one_scale(c, b->scales[g / 2] >> (g % 2 * 4) & 15);
}

/* IQ1: the byte is 9 more than eight times (number +- 1/8). */
enum { CODES_PLUS = 2 };
static inline uint64_t codes_each(uint32_t n) { return n * 0x0101010101010101u; }
static inline void read_iq1_s(struct codes32 *c, const struct lode_block_iq1_s *b, int g) {
    const uint32_t high = codes_load16(b->qh + 2 * g);
    for (int i = 0; i < 4; i++)
        c->byte[i] = lode_grid_iq1[b->qs[4 * g + i] | (high >> (3 * i) & 7) << 8] +
                     codes_each(high & 0x8000 ? 0 : CODES_PLUS);
    c->signs = 0;
    codes_one_scale(c, high >> 12 & 7);
}
static inline void read_iq1_m(struct codes32 *c, const struct lode_block_iq1_m *b, int g) {
    const uint32_t high = codes_load16(b->qh + 2 * g);
    const uint32_t scales = codes_load16(b->scales + g / 2 * 2) >> (g % 2 * 6);
    for (int i = 0; i < 4; i++) {
        const uint32_t nibble = high >> (4 * i);
        c->byte[i] = lode_grid_iq1[b->qs[4 * g + i] | (nibble & 7) << 8] + codes_each(nibble & 8 ? 0 : CODES_PLUS);
    }
    c->signs = 0;
    c->scale[0] = codes_scale(scales & 7);
    c->scale[1] = codes_scale(scales >> 3 & 7);
}

/* Digit k of each of n bytes: what is above it falls out of the byte, and three times the rest has it there instead. */
static inline void codes_digits(uint8_t *to, const uint8_t *bytes, int n, int k) {
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)((uint8_t)(bytes[i] * power[k]) * 3 >> 8);
}
static inline void read_tq1_0(struct codes32 *c, const struct lode_block_tq1_0 *b, int g) {
    uint8_t *to = (uint8_t *)c->byte;
    if (g < 5)
        codes_digits(to, b->qs, 32, g);
    for (int h = 0; h < 2 && g >= 5; h++) /* five digits of 16 bytes, then four of four */
        if (2 * (g - 5) + h < 5)
            codes_digits(to + 16 * h, b->qs + 32, 16, 2 * (g - 5) + h);
        else
            for (int k = 0; k < 4; k++)
                codes_digits(to + 16 + 4 * k, b->qh, 4, k);
    c->signs = 0;
    codes_one_scale(c, 0);
}

static inline uint16_t half_tq1_0(const struct lode_block_tq1_0 *b) { return b->d; }
static inline uint16_t half_iq1_s(const struct lode_block_iq1_s *b) { return b->d; }
static inline uint16_t half_iq1_m(const struct lode_block_iq1_m *b) {
    uint32_t half = 0;
    for (int k = 0; k < 4; k++)
        half |= codes_load16(b->scales + 2 * k) >> 12 << (4 * k);
    return (uint16_t)half;
}
static inline uint16_t half_iq2_xxs(const struct lode_block_iq2_xxs *b) { return b->d; }
static inline uint16_t half_iq2_xs(const struct lode_block_iq2_xs *b) { return b->d; }
static inline uint16_t half_iq2_s(const struct lode_block_iq2_s *b) { return b->d; }
static inline uint16_t half_iq3_xxs(const struct lode_block_iq3_xxs *b) { return b->d; }
static inline uint16_t half_iq3_s(const struct lode_block_iq3_s *b) { return b->d; }

#endif
