/* quant_vec.h - quant_scalar.c for vectors; an including file defines KERN, LANES and
 * store_bytes(int8_t *, V), which stores the low byte of each lane.
 *
 * Equal bit for bit: largest magnitudes are found on integers, the float operations are the same
 * ones in the same order for each number, and the sums are of integers. */
#include "base/half.h"
#include "kern/isa.h"
#include "tensor/block.h"

#include <math.h>

/* v with its upper half of 2 w lanes moved down: the step of a tree over lanes. */
#if LANES == 16
#define FOLD(v, w)                                                                                 \
    __builtin_shufflevector(v, v, (0 + w) % 16, (1 + w) % 16, (2 + w) % 16, (3 + w) % 16,          \
                            (4 + w) % 16, (5 + w) % 16, (6 + w) % 16, (7 + w) % 16, (8 + w) % 16,  \
                            (9 + w) % 16, (10 + w) % 16, (11 + w) % 16, (12 + w) % 16,             \
                            (13 + w) % 16, (14 + w) % 16, (15 + w) % 16)
#elif LANES == 8
#define FOLD(v, w)                                                                                 \
    __builtin_shufflevector(v, v, (0 + w) % 8, (1 + w) % 8, (2 + w) % 8, (3 + w) % 8, (4 + w) % 8, \
                            (5 + w) % 8, (6 + w) % 8, (7 + w) % 8)
#else
#define FOLD(v, w) __builtin_shufflevector(v, v, (0 + w) % 4, (1 + w) % 4, (2 + w) % 4, (3 + w) % 4)
#endif

INLINE F load(const float *x) {
    F v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* of numbers below 2^31 */
INLINE V max_of(V a, V b) {
    const V m = v_gt32(a, b);
    return (a & m) | (b & ~m);
}

INLINE uint32_t max_lane(V v) {
#if LANES >= 16
    v = max_of(v, FOLD(v, 8));
#endif
#if LANES >= 8
    v = max_of(v, FOLD(v, 4));
#endif
    v = max_of(v, FOLD(v, 2));
    v = max_of(v, FOLD(v, 1));
    return v[0];
}

INLINE int32_t sum_lanes(V v) {
#if LANES >= 16
    v += FOLD(v, 8);
#endif
#if LANES >= 8
    v += FOLD(v, 4);
#endif
    v += FOLD(v, 2);
    v += FOLD(v, 1);
    return (int32_t)v[0];
}

/* Lane by lane the largest bits of |x| of 32 numbers. */
INLINE V max_bits(const float *x) {
    V max = v_zero();
    for (int i = 0; i < 32; i += LANES)
        max = max_of(max, (V)load(x + i) & v_set32(0x7fffffff));
    return max;
}

/* 16 numbers to bytes, q = round(x * inverse); returns the sum of them. */
INLINE int32_t put16(int8_t *q, const float *x, float inverse) {
    V sum = v_zero();
    for (int i = 0; i < 16; i += LANES) {
        /* the sum with 1.5 * 2^23 is rounded to an integer and has it in its low bits */
        const V bits = (V)(load(x + i) * inverse + 0x1.8p23f) - v_set32(0x4b400000);
        store_bytes(q + i, bits);
        sum += bits;
    }
    return sum_lanes(sum);
}

void KERN(quant_a32)(void *y, const float *x, size_t n) {
    struct lode_block_a32 *b = y;
    for (; n; n -= 32, x += 32, b++) {
        const uint32_t bits = max_lane(max_bits(x));
        const float max = lode_bits_f32(bits);
        if (bits >= 0x7f800000 || max < 0x1p-100f) {
            memset(b, 0, sizeof *b);
            b->d = bits >= 0x7f800000 ? NAN : 0;
            continue;
        }
        const float inverse = 127.0f / max;
        b->d = max / 127.0f;
        b->sum = put16(b->q, x, inverse) + put16(b->q + 16, x + 16, inverse);
    }
}

void KERN(quant_a256)(void *y, const float *x, size_t n) {
    struct lode_block_a256 *b = y;
    for (; n; n -= 256, x += 256, b++) {
        uint32_t part[8], bits = 0;
        for (int g = 0; g < 8; g++) {
            part[g] = max_lane(max_bits(x + 32 * g));
            bits = part[g] > bits ? part[g] : bits;
        }
        const float max = lode_bits_f32(bits);
        if (bits >= 0x7f800000 || max < 0x1p-100f) {
            memset(b, 0, sizeof *b);
            b->d = bits >= 0x7f800000 ? NAN : 0;
            memset(b->m, 1, sizeof b->m);
            continue;
        }
        const float inverse = 127.0f * LODE_A256_MUL / max, to_m = LODE_A256_MUL / max;
        b->d = max / (127.0f * LODE_A256_MUL);
        memset(b->pad, 0, sizeof b->pad);
        for (int g = 0; g < 8; g++) {
            const float m = ceilf(lode_bits_f32(part[g]) * to_m);
            b->m[g] = (uint8_t)(m < 1 ? 1 : m > LODE_A256_MUL ? LODE_A256_MUL : m);
            const float scale = inverse / b->m[g];
            for (int i = 2 * g; i < 2 * g + 2; i++)
                b->sums[i] = (int16_t)(b->m[g] * put16(b->q + 16 * i, x + 16 * i, scale));
        }
    }
}

void KERN(kv_put_q8_0)(void *y, const float *x, size_t n) {
    struct lode_block_q8_0 *b = y;
    for (; n; n -= 32, x += 32, b++) {
        const uint32_t bits = max_lane(max_bits(x));
        const float d = lode_bits_f32(bits) / 127.0f;
        b->d = bits >= 0x7f800000 ? 0x7e00 : lode_f32_f16(d < 65504.0f ? d : 65504.0f);
        if (bits >= 0x7f800000 || b->d == 0) {
            memset(b->qs, 0, sizeof b->qs);
            continue;
        }
        const float inverse = 1.0f / lode_f16_f32(b->d);
        for (int i = 0; i < 32; i += LANES) {
            const V v = (V)(load(x + i) * inverse), sign = v & v_set32(0x80000000);
            /* held to +-127 by magnitude */
            const V most = v_set32(0x42fe0000), abs = v ^ sign, over = v_gt32(abs, most);
            const F held = (F)((most & over) | (abs & ~over) | sign);
            store_bytes(b->qs + i, (V)(held + 0x1.8p23f) - v_set32(0x4b400000));
        }
    }
}
