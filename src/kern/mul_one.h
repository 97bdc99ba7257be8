/* mul_one.h - what forms of one column that take a tile's rows as they lie share (AVX2): mul_one_rows.h,
 * mul_one_broadcast.h, mul_one_pairs.h, mul_one_ternary.h.  mul_one_codes.h has the same for all of x86. */
#ifndef LODE_KERN_MUL_ONE_H
#define LODE_KERN_MUL_ONE_H

#include "kern/mul_one_codes.h"

/* What is taken from codes that are bytes with a sign here, whatever V_WIDE_BIAS. */
INLINE int bias_of(struct shape s) { return s.wide ? s.bias - V_WIDE_BIAS : s.bias; }
INLINE V iq4_levels(void) { return iq4_table() ^ v_set8(V_WIDE_BIAS); }

/* Pairs of int16 added. */
INLINE __m256i sums32(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

/* sum + the products of bytes, the first without signs, that fit an int16 in pairs: of four in each lane. */
INLINE __m256i add_fours(__m256i sum, __m256i a, __m256i b) {
#ifdef __AVXVNNI__
    return _mm256_dpbusd_avx_epi32(sum, a, b);
#else
    return _mm256_add_epi32(sum, sums32(_mm256_maddubs_epi16(a, b)));
#endif
}

/* Rows i and 4 + i in a half each: 16 bytes. */
INLINE __m256i two_rows(const struct rows *r, int i, size_t off) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(r->p[i] + off))),
                                   _mm_loadu_si128((const __m128i *)(r->p[4 + i] + off)), 1);
}

/* 128 numbers of two bits, most of them where they lie: what each 32 meet has a factor, so that all are 16 times what
 * they should be. */
INLINE void row_two_bits(V w[4], const uint8_t *p) {
    const V q = v_held(v_load(p));
    w[0] = q & v_set8(3);
    w[1] = q & v_set8(3 << 2);
    w[2] = q & v_set8(3 << 4);
    w[3] = v_srl16(q, 2) & v_set8(3 << 4);
}
INLINE __m256i two_bits_factors(void) { /* of each 32 numbers, in both halves */
    return both_halves(_mm_setr_epi16(16, 4, 1, 1, 16, 4, 1, 1));
}
INLINE V without_factor(V sums) { return v_sra32(sums, 4); }

#endif
