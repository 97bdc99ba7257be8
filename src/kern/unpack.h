/* unpack.h - one block of each type that has direct kernels, as plain integers.
 *
 * The scalar definitions of dequantisation and of the dot products are written over these, so the
 * layout of a block is read in one place.
 *
 *   unpack32   w = d q + m               32 numbers   (m = 0 where the type has none)
 *   unpack_u   w = d q + m               32 numbers of U2 .. U8G32; q unsigned
 *              w = d q, or d q and m q: 32 numbers of Q1_0, Q2_0; of NVFP4's types, whose halves have d and m
 *   unpack256  w = d scale[g] q - dmin min[g]   256 numbers in 16 groups g of 16; types with groups
 *                                        of 32 have each scale twice; codebook types: kern/codebook.h
 */
#ifndef LODE_KERN_UNPACK_H
#define LODE_KERN_UNPACK_H

#include "base/half.h"
#include "kern/codebook.h"
#include "kern/fp8.h"
#include "tensor/block.h"

struct unpack32 {
    float d, m;
    int8_t q[32];
};

struct unpack_u {
    float d, m;
    uint8_t q[32];
};

struct unpack256 {
    float d, dmin;
    int16_t scale[16], min[16];
    int8_t q[256];
};

/* (byte, 32): the two nibbles of 16 bytes as numbers i and i + 16. */
static inline void unpack_nibbles(int8_t q[32], const uint8_t qs[16]) {
    for (int i = 0; i < 16; i++) {
        q[i] = (int8_t)(qs[i] & 15);
        q[i + 16] = (int8_t)(qs[i] >> 4);
    }
}

/* The E8M0 exponent byte, halved: 2^(e-128); 2^-128 and 2^-127 are subnormal. */
static inline float unpack_e8m0_half(uint8_t e) {
    return lode_bits_f32(e < 2 ? 0x200000u << e : (uint32_t)(e - 1) << 23);
}

static inline void unpack_q4_0(struct unpack32 *u, const struct lode_block_q4_0 *b) {
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    unpack_nibbles(u->q, b->qs);
    for (int i = 0; i < 32; i++)
        u->q[i] -= 8;
}

static inline void unpack_q4_1(struct unpack32 *u, const struct lode_block_q4_1 *b) {
    u->d = lode_f16_f32(b->d);
    u->m = lode_f16_f32(b->m);
    unpack_nibbles(u->q, b->qs);
}

static inline void unpack_fifth_bit(int8_t q[32], const uint8_t qh[4]) {
    for (int i = 0; i < 32; i++)
        q[i] = (int8_t)(q[i] | (qh[i / 8] >> (i % 8) & 1) << 4);
}

static inline void unpack_q5_0(struct unpack32 *u, const struct lode_block_q5_0 *b) {
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    unpack_nibbles(u->q, b->qs);
    unpack_fifth_bit(u->q, b->qh);
    for (int i = 0; i < 32; i++)
        u->q[i] -= 16;
}

static inline void unpack_q5_1(struct unpack32 *u, const struct lode_block_q5_1 *b) {
    u->d = lode_f16_f32(b->d);
    u->m = lode_f16_f32(b->m);
    unpack_nibbles(u->q, b->qs);
    unpack_fifth_bit(u->q, b->qh);
}

static inline void unpack_q8_0(struct unpack32 *u, const struct lode_block_q8_0 *b) {
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    memcpy(u->q, b->qs, 32);
}

static inline void unpack_levels(int8_t q[32], const uint8_t qs[16], const int8_t levels[16]) {
    for (int i = 0; i < 16; i++) {
        q[i] = levels[qs[i] & 15];
        q[i + 16] = levels[qs[i] >> 4];
    }
}

static inline void unpack_iq4_nl(struct unpack32 *u, const struct lode_block_iq4_nl *b) {
    static const int8_t levels[16] = LODE_IQ4_LEVELS;
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    unpack_levels(u->q, b->qs, levels);
}

static inline void unpack_mxfp4(struct unpack32 *u, const struct lode_block_mxfp4 *b) {
    static const int8_t levels[16] = LODE_FP4_LEVELS;
    u->d = unpack_e8m0_half(b->e);
    u->m = 0;
    unpack_levels(u->q, b->qs, levels);
}

/* The planes of 32 codes (tensor/block.h). */
static inline void unpack_planes(uint8_t q[32], const uint8_t *p, int bits) {
    int at = 0;
    memset(q, 0, 32);
    if (bits == 8) {
        memcpy(q, p, 32);
        return;
    }
    if (bits & 4) {
        for (int i = 0; i < 32; i++)
            q[i] = p[i % 16] >> (i / 16 * 4) & 15;
        p += 16;
        at = 4;
    }
    if (bits & 2) {
        for (int i = 0; i < 32; i++)
            q[i] = (uint8_t)(q[i] | (p[i / 16 * 4 + i % 4] >> (i / 4 % 4 * 2) & 3) << at);
        p += 8;
        at += 2;
    }
    if (bits & 1)
        for (int i = 0; i < 32; i++)
            q[i] = (uint8_t)(q[i] | (p[i % 4] >> (i / 4) & 1) << at);
}

/* The i-th 32 numbers of a row. */
#define UNPACK_U(bits, bytes)                                                                      \
    static inline void unpack_u##bits(struct unpack_u *u, const void *row, size_t i) {             \
        const struct lode_block_u##bits *b = (const struct lode_block_u##bits *)row + i / 2;       \
        u->d = b->half[0].dm;                                                                      \
        u->m = b->half[1].dm;                                                                      \
        unpack_planes(u->q, b->half[i % 2].q, bits);                                               \
    }
LODE_U_LIST(UNPACK_U)
#undef UNPACK_U
#define UNPACK_UG32(bits)                                                                          \
    static inline void unpack_u##bits##g32(struct unpack_u *u, const void *row, size_t i) {        \
        const struct lode_block_u##bits##g32 *b = (const struct lode_block_u##bits##g32 *)row + i; \
        u->d = b->d;                                                                               \
        u->m = b->m;                                                                               \
        unpack_planes(u->q, b->q, bits);                                                           \
    }
UNPACK_UG32(4)
UNPACK_UG32(8)
#undef UNPACK_UG32

/* The i-th 32 numbers of a row. */
static inline void unpack_q1_0(struct unpack32 *u, const void *row, size_t i) {
    const struct lode_block_q1_0 *b = (const struct lode_block_q1_0 *)row + i / 4;
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    for (int l = 0; l < 32; l++)
        u->q[l] = b->qs[i % 4 * 4 + (size_t)l / 8] >> l % 8 & 1 ? 1 : -1;
}
static inline void unpack_q2_0(struct unpack32 *u, const void *row, size_t i) {
    const struct lode_block_q2_0 *b = (const struct lode_block_q2_0 *)row + i / 2;
    u->d = lode_f16_f32(b->d);
    u->m = 0;
    for (int l = 0; l < 32; l++)
        u->q[l] = (int8_t)((b->qs[i % 2 * 8 + (size_t)l / 4] >> l % 4 * 2 & 3) - 1);
}

/* E4M3 without its sign bit (bit 7 is not looked at), halved.  0x7f is NaN in that format; GGML
 * reads it as 0, and so do we. */
static inline float unpack_ue4m3_half(uint8_t e) {
    const int exp = e >> 3 & 15, man = e & 7;
    if (e == 0x7f)
        return 0;
    return exp ? lode_bits_f32((uint32_t)(exp - 7 - 1 + 127) << 23 | (uint32_t)man << 20)
               : (float)man * 0x1p-10f;
}
/* Two groups of 16, of eight bytes each: the low nibbles, then the high ones. */
static inline void unpack_fp4(int8_t q[32], const uint8_t qs[16]) {
    static const int8_t levels[16] = LODE_FP4_LEVELS;
    for (int l = 0; l < 32; l++)
        q[l] = levels[qs[l / 16 * 8 + l % 8] >> l / 8 % 2 * 4 & 15];
}
static inline void unpack_nvfp4(struct unpack32 *u, const void *row, size_t i) {
    const struct lode_block_nvfp4 *b = (const struct lode_block_nvfp4 *)row + i / 2;
    u->d = unpack_ue4m3_half(b->d[i % 2 * 2]);
    u->m = unpack_ue4m3_half(b->d[i % 2 * 2 + 1]);
    unpack_fp4(u->q, b->qs + i % 2 * 16);
}
static inline void unpack_nvfp4g(struct unpack32 *u, const void *row, size_t i) {
    const struct lode_block_nvfp4g *b = (const struct lode_block_nvfp4g *)row + i / 2;
    u->d = e4m3[b->d[i % 2 * 2]] / b->by * 0.5f;
    u->m = e4m3[b->d[i % 2 * 2 + 1]] / b->by * 0.5f;
    unpack_fp4(u->q, b->qs + i % 2 * 16);
}

/* 64 bytes of 2-bit codes: number 128 h + 32 j + l is bits 2j, 2j+1 of byte 32 h + l. */
static inline void unpack_two_bits(int8_t q[256], const uint8_t qs[64]) {
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++)
                q[128 * h + 32 * j + l] = (int8_t)(qs[32 * h + l] >> (2 * j) & 3);
}

static inline void unpack_q2_k(struct unpack256 *u, const struct lode_block_q2_k *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = lode_f16_f32(b->dmin);
    for (int g = 0; g < 16; g++) {
        u->scale[g] = b->scales[g] & 15;
        u->min[g] = b->scales[g] >> 4;
    }
    unpack_two_bits(u->q, b->qs);
}

static inline void unpack_tq2_0(struct unpack256 *u, const struct lode_block_tq2_0 *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = 0;
    for (int g = 0; g < 16; g++) {
        u->scale[g] = 1;
        u->min[g] = 0;
    }
    unpack_two_bits(u->q, b->qs);
    for (int i = 0; i < 256; i++)
        u->q[i] = (int8_t)(u->q[i] - 1);
}

static inline void unpack_q3_k(struct unpack256 *u, const struct lode_block_q3_k *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = 0;
    for (int g = 0; g < 16; g++) {
        const int lo = b->scales[g % 8] >> (g / 8 * 4) & 15;
        const int hi = b->scales[8 + g % 4] >> (g / 4 * 2) & 3;
        u->scale[g] = (int16_t)((lo | hi << 4) - 32);
        u->min[g] = 0;
    }
    unpack_two_bits(u->q, b->qs);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < 32; l++) /* the bit says: do not subtract */
            u->q[32 * j + l] = (int8_t)(u->q[32 * j + l] - 4 + (b->hmask[l] >> j & 1) * 4);
}

/* The 6-bit scales and minima of Q4_K and Q5_K. */
static inline void unpack_k_scales(struct unpack256 *u, const uint8_t s[12]) {
    for (int g = 0; g < 4; g++) {
        const int scale[2] = {s[g] & 63, (s[8 + g] & 15) | s[g] >> 6 << 4};
        const int min[2] = {s[4 + g] & 63, s[8 + g] >> 4 | s[4 + g] >> 6 << 4};
        for (int h = 0; h < 2; h++) {
            u->scale[8 * h + 2 * g] = u->scale[8 * h + 2 * g + 1] = (int16_t)scale[h];
            u->min[8 * h + 2 * g] = u->min[8 * h + 2 * g + 1] = (int16_t)min[h];
        }
    }
}

static inline void unpack_k_nibbles(int8_t q[256], const uint8_t qs[128]) {
    for (int c = 0; c < 4; c++)
        for (int l = 0; l < 32; l++) {
            q[64 * c + l] = (int8_t)(qs[32 * c + l] & 15);
            q[64 * c + 32 + l] = (int8_t)(qs[32 * c + l] >> 4);
        }
}

static inline void unpack_q4_k(struct unpack256 *u, const struct lode_block_q4_k *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = lode_f16_f32(b->dmin);
    unpack_k_scales(u, b->scales);
    unpack_k_nibbles(u->q, b->qs);
}

static inline void unpack_q5_k(struct unpack256 *u, const struct lode_block_q5_k *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = lode_f16_f32(b->dmin);
    unpack_k_scales(u, b->scales);
    unpack_k_nibbles(u->q, b->qs);
    for (int j = 0; j < 8; j++)
        for (int l = 0; l < 32; l++)
            u->q[32 * j + l] = (int8_t)(u->q[32 * j + l] | (b->qh[l] >> j & 1) << 4);
}

static inline void unpack_q6_k(struct unpack256 *u, const struct lode_block_q6_k *b) {
    u->d = lode_f16_f32(b->d);
    u->dmin = 0;
    for (int g = 0; g < 16; g++) {
        u->scale[g] = b->scales[g];
        u->min[g] = 0;
    }
    for (int h = 0; h < 2; h++)
        for (int j = 0; j < 4; j++)
            for (int l = 0; l < 32; l++) {
                const int lo = b->ql[64 * h + 32 * (j % 2) + l] >> (j / 2 * 4) & 15;
                const int hi = b->qh[32 * h + l] >> (2 * j) & 3;
                u->q[128 * h + 32 * j + l] = (int8_t)((lo | hi << 4) - 32);
            }
}

static inline void unpack_iq4_xs(struct unpack256 *u, const struct lode_block_iq4_xs *b) {
    static const int8_t levels[16] = LODE_IQ4_LEVELS;
    u->d = lode_f16_f32(b->d);
    u->dmin = 0;
    for (int g = 0; g < 16; g++) {
        const int lo = b->scales_l[g / 4] >> (g / 2 % 2 * 4) & 15,
                  hi = b->scales_h >> (g / 2 * 2) & 3;
        u->scale[g] = (int16_t)((lo | hi << 4) - 32);
        u->min[g] = 0;
    }
    for (int c = 0; c < 8; c++)
        unpack_levels(u->q + 32 * c, b->qs + 16 * c, levels);
}

/* Codebook types: d has their power of two. */
#define UNPACK_CODES(name, type, groups, most, per, bias)                                          \
    static inline void unpack_##name(struct unpack256 *u, const struct lode_block_##name *b) {     \
        u->d = lode_f16_f32(half_##name(b)) * (1.0f / (per));                                      \
        u->dmin = 0;                                                                               \
        for (int g = 0; g < 8; g++) {                                                              \
            struct codes32 c;                                                                      \
            read_##name(&c, b, g);                                                                 \
            unpack_codes(u, g, &c, bias);                                                          \
        }                                                                                          \
    }
static inline void unpack_codes(struct unpack256 *u, int g, const struct codes32 *c, int bias) {
    for (int h = 0; h < 2; h++) {
        u->scale[2 * g + h] = c->scale[h];
        u->min[2 * g + h] = 0;
    }
    for (int i = 0; i < 32; i++)
        u->q[32 * g + i] = (int8_t)codes_number(c, i, bias);
}
LODE_CODEBOOK_LIST(UNPACK_CODES)
#undef UNPACK_CODES

#endif
