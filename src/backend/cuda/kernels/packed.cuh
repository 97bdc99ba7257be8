/* packed.cuh - weights whose products are made in float (their type has no rounded activations): two
 * neighbouring numbers of a row at a time, computed from the block as it lies in the file.
 *
 *   float2 T::pair(row, k)   numbers k and k + 1, k even: the bits of kern/dequant.h
 *
 * Layouts: tensor/block.h.
 */
#ifndef LODE_CUDA_PACKED_CUH
#define LODE_CUDA_PACKED_CUH

#include "common.cuh"

#include "kern/fp8.h"

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
