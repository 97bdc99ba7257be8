/* packed.cuh - weights whose products are made in float (their type has no rounded activations): two
 * neighbouring numbers of a row at a time, computed from the block as it lies in the file.
 *
 *   float2 T::pair(row, k)   numbers k and k + 1, k even: the bits of kern/dequant.h, dequant_iq.h
 *
 * Layouts: tensor/block.h.
 */
#ifndef LODE_CUDA_PACKED_CUH
#define LODE_CUDA_PACKED_CUH

#include "common.cuh"

#include "kern/fp8.h"

#define LODE_GRID(name, n) static __device__ const uint16_t grid_##name[n]
#include "kern/iq_grids_data.h"
#include "kern/iq_grids.h"

#define PACKED(name, numbers, bytes)                                                               \
    struct name {                                                                                  \
        static __device__ __forceinline__ float2 pair(const uint8_t *row, uint32_t k) {            \
            return in_block(row + (size_t)(k / (numbers)) * (bytes), k % (numbers));               \
        }                                                                                          \
        static __device__ __forceinline__ float2 in_block(const uint8_t *b, uint32_t i);           \
    };                                                                                             \
    __device__ __forceinline__ float2 name::in_block(const uint8_t *b, uint32_t i)

DEVICE uint32_t u8_at(const uint8_t *p) { return __ldg(p); }
DEVICE uint32_t u16_at(const uint8_t *p) { return __ldg((const uint16_t *)p); }
DEVICE uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }
DEVICE float half_at(const uint8_t *p) { return f16_f32((uint16_t)u16_at(p)); }
DEVICE float float_at(const uint8_t *p) { return lode_bits_f32(u32_at(p)); }

/* ---- codebooks ---- */

/* Seven stored signs and the eighth that makes their number even. */
DEVICE uint32_t even_signs(uint32_t s) { return (s & 127) | (uint32_t)(__popc(s & 127) & 1) << 7; }
DEVICE float flip(float v, uint32_t sign) { return lode_bits_f32(lode_f32_bits(v) ^ sign << 31); }

/* The level of a code, from the eight bytes of a list. */
#define LEVELS(name, ...)                                                                          \
    DEVICE float name(uint32_t code) {                                                             \
        constexpr uint8_t l[8] = __VA_ARGS__;                                                      \
        constexpr uint32_t lo = l[0] | l[1] << 8 | l[2] << 16 | (uint32_t)l[3] << 24,              \
                           hi = l[4] | l[5] << 8 | l[6] << 16 | (uint32_t)l[7] << 24;              \
        return (float)(__byte_perm(lo, hi, code) & 255);                                           \
    }
LEVELS(iq2_level, LODE_IQ2_LEVELS)
LEVELS(iq3_xxs_level, LODE_IQ3_XXS_LEVELS)
LEVELS(iq3_s_level, LODE_IQ3_S_LEVELS)

/* Numbers e and e + 1 of an entry of eight (grids of 8: two bits a number), of two entries of four. */
DEVICE float2 iq2_pair(float scale, uint32_t word, uint32_t signs, uint32_t e) {
    return make_float2(flip(scale * iq2_level(word >> (2 * e) & 3), signs >> e & 1),
                       flip(scale * iq2_level(word >> (2 * e + 2) & 3), signs >> (e + 1) & 1));
}
template <float level(uint32_t)>
DEVICE float2 iq3_pair(float scale, uint32_t words, uint32_t signs, uint32_t e) {
    return make_float2(flip(scale * level(words >> (4 * e) & 7), signs >> e & 1),
                       flip(scale * level(words >> (4 * e + 4) & 7), signs >> (e + 1) & 1));
}
DEVICE float2 iq1_pair(float scale, uint32_t word, float delta, uint32_t e) {
    return make_float2(scale * ((float)(int)(word >> (2 * e) & 3) - 1.0f + delta),
                       scale * ((float)(int)(word >> (2 * e + 2) & 3) - 1.0f + delta));
}

PACKED(iq2_xxs, 256, 66) {
    const uint8_t *q = b + 2 + i / 32 * 8;
    const uint32_t j = i / 8 % 4, word = u32_at(q + 4);
    const float scale = half_at(b) * (0.5f + (float)(word >> 28)) * 0.25f;
    return iq2_pair(scale, grid_iq2_xxs[u8_at(q + j)], even_signs(word >> (7 * j)), i % 8);
}
DEVICE float iq2_scale(const uint8_t *d, const uint8_t *scales, uint32_t j) {
    const uint32_t sc = u8_at(scales + j / 4) >> (j / 2 % 2 * 4) & 15;
    return half_at(d) * (0.5f + (float)sc) * 0.25f;
}
PACKED(iq2_xs, 256, 74) {
    const uint32_t j = i / 8, word = u16_at(b + 2 + 2 * j);
    return iq2_pair(iq2_scale(b, b + 66, j), grid_iq2_xs[word & 511], even_signs(word >> 9), i % 8);
}
PACKED(iq2_s, 256, 82) {
    const uint32_t j = i / 8, high = u8_at(b + 66 + j / 4) >> (j % 4 * 2) & 3;
    return iq2_pair(iq2_scale(b, b + 74, j), grid_iq2_s[u8_at(b + 2 + j) | high << 8],
                    u8_at(b + 34 + j), i % 8);
}
PACKED(iq3_xxs, 256, 98) {
    const uint32_t j = i / 8, word = u32_at(b + 66 + j / 4 * 4), q = u16_at(b + 2 + 2 * j);
    const float scale = half_at(b) * (0.5f + (float)(word >> 28)) * 0.5f;
    const uint32_t words = grid_iq3_xxs[q & 255] | (uint32_t)grid_iq3_xxs[q >> 8] << 16;
    return iq3_pair<iq3_xxs_level>(scale, words, even_signs(word >> (7 * (j % 4))), i % 8);
}
PACKED(iq3_s, 256, 110) {
    const uint32_t j = i / 8, q = u16_at(b + 2 + 2 * j);
    const uint32_t high = u8_at(b + 66 + j / 4) >> (j % 4 * 2);
    const uint32_t words = grid_iq3_s[(q & 255) | (high & 1) << 8] |
                           (uint32_t)grid_iq3_s[q >> 8 | (high & 2) << 7] << 16;
    const uint32_t sc = u8_at(b + 106 + j / 8) >> (j / 4 % 2 * 4) & 15;
    return iq3_pair<iq3_s_level>(half_at(b) * (float)(1 + 2 * sc), words, u8_at(b + 74 + j), i % 8);
}
PACKED(iq1_s, 256, 50) {
    const uint32_t j = i / 8, qh = u16_at(b + 34 + j / 4 * 2);
    const uint32_t index = u8_at(b + 2 + j) | (qh >> (j % 4 * 3) & 7) << 8;
    return iq1_pair(half_at(b) * (float)(2 * (qh >> 12 & 7) + 1), grid_iq1[index],
                    qh & 0x8000 ? -0.125f : 0.125f, i % 8);
}
PACKED(iq1_m, 256, 56) {
    const uint32_t j = i / 8, nibble = u8_at(b + 32 + j / 2) >> (j % 2 * 4);
    const uint32_t sc = u16_at(b + 48 + j / 8 * 2) >> (j / 2 % 4 * 3) & 7;
    uint32_t half = 0;
    for (int k = 0; k < 4; k++)
        half |= u16_at(b + 48 + 2 * k) >> 12 << (4 * k);
    return iq1_pair(f16_f32((uint16_t)half) * (float)(2 * sc + 1),
                    grid_iq1[u8_at(b + j) | (nibble & 7) << 8], nibble & 8 ? -0.125f : 0.125f, i % 8);
}

/* ---- ternary, binary, two bits ---- */

DEVICE float2 two_levels(float d, uint32_t a, uint32_t z) {
    return make_float2(d * (float)((int)a - 1), d * (float)((int)z - 1));
}
/* Digit k of a byte of five digits to base 3: those above fall out at the left, those below at the right. */
DEVICE uint32_t ternary(uint32_t byte, uint32_t k) {
    const uint32_t pow3 = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
    return (byte * pow3 & 255) * 3 >> 8;
}
PACKED(tq1_0, 256, 54) {
    const uint8_t *q = b + i % 32;
    uint32_t k = i / 32;
    if (i >= 240) {
        q = b + 48 + i % 4;
        k = (i - 240) / 4;
    } else if (i >= 160) {
        q = b + 32 + i % 16;
        k = (i - 160) / 16;
    }
    return two_levels(half_at(b + 52), ternary(u8_at(q), k), ternary(u8_at(q + 1), k));
}
PACKED(tq2_0, 256, 66) { /* bits 2 j of byte 32 h + l: number 128 h + 32 j + l */
    const uint32_t v = u16_at(b + i / 128 * 32 + i % 32) >> (i / 32 % 4 * 2);
    return two_levels(half_at(b + 64), v & 3, v >> 8 & 3);
}
PACKED(q1_0, 128, 18) {
    const uint32_t v = u8_at(b + 2 + i / 8) >> i % 8;
    const float d = half_at(b);
    return make_float2(v & 1 ? d : -d, v & 2 ? d : -d);
}
PACKED(q2_0, 64, 18) {
    const uint32_t v = u8_at(b + 2 + i / 4) >> (i % 4 * 2);
    return two_levels(half_at(b), v & 3, v >> 2 & 3);
}

/* ---- floats of 4 and 8 bits ---- */

/* The number of an 8-bit float: kern/fp8.h's tables, computed. */
DEVICE float e4m3_of(uint32_t c) { return FP8_E4M3((int)c); }
DEVICE float e5m2_of(uint32_t c) { return FP8_E5M2((int)c); }
/* Twice the number of a 4-bit float, from kern/iq_grids.h's levels. */
DEVICE float fp4_of(uint32_t code) {
    constexpr int l[16] = LODE_FP4_LEVELS;
    constexpr uint32_t lo = l[0] | l[1] << 8 | l[2] << 16 | l[3] << 24,
                       hi = l[4] | l[5] << 8 | l[6] << 16 | l[7] << 24;
    const int level = (int)(__byte_perm(lo, hi, code & 7) & 255);
    return (float)(code & 8 ? -level : level);
}
/* Group i / 16 of an NVFP4 block: byte l of its eight has numbers l (lo) and l + 8 (hi). */
DEVICE uint32_t fp4_codes(const uint8_t *q, uint32_t i) {
    const uint32_t v = u16_at(q + i / 16 * 8 + i % 8) >> (i / 8 % 2 * 4);
    return (v & 15) | (v >> 4 & 0xf0); /* of i, of i + 1 */
}
PACKED(nvfp4, 64, 36) { /* scales: E4M3 without a sign, halved; 0x7f is 0 */
    const uint32_t c = u8_at(b + i / 16), man = c & 7, exp = c >> 3 & 15, v = fp4_codes(b + 4, i);
    const float scale = c == 0x7f ? 0.0f
                        : exp     ? (float)((8 + man) << exp) * 0x1p-11f
                                  : (float)man * 0x1p-10f;
    return make_float2(scale * fp4_of(v & 15), scale * fp4_of(v >> 4));
}
PACKED(nvfp4g, 64, 40) {
    const float scale = e4m3_of(u8_at(b + 4 + i / 16)) / float_at(b);
    const uint32_t v = fp4_codes(b + 8, i);
    return make_float2(scale * (fp4_of(v & 15) * 0.5f), scale * (fp4_of(v >> 4) * 0.5f));
}
PACKED(e4m3, 32, 36) {
    const uint32_t v = u16_at(b + 4 + i);
    const float d = float_at(b);
    return make_float2(d * e4m3_of(v & 255), d * e4m3_of(v >> 8));
}
PACKED(e5m2, 32, 36) {
    const uint32_t v = u16_at(b + 4 + i);
    const float d = float_at(b);
    return make_float2(d * e5m2_of(v & 255), d * e5m2_of(v >> 8));
}

#endif
