/* mul_one_ternary.h - one column of TQ1_0 and TQ2_0, of mul_tile.h, row by row (AVX2).
 *
 * Their groups have no scales, so that products meet the column's multipliers alone, which lie in memory for all rows.
 * bench/notes/kern-quant.md */
#include "kern/mul_one.h"

/* Digits are those of codebook_rows.h's bytes_tq1_0; here a byte's are made one after the other. */
INLINE V next_digit(V v) { return (V)triple((__m256i)v, 1); }
struct digit_bounds {
    V one, two;
};
INLINE V top_digit(V v, struct digit_bounds d) { return (V)-(((Vs8)v > (Vs8)d.one) + ((Vs8)v > (Vs8)d.two)); }
/* Dwords of high where bits of `which`, a constant, are set, else of low. */
#define JOIN32(low, high, which) (V)_mm256_blend_epi32((__m256i)(low), (__m256i)(high), which)

/* sum + 32 codes times numbers 32 g and on of the column, whose multipliers m has twice as int16 each. */
INLINE V add_codes(V sum, V codes, const int8_t *q, const V m[8], int g) {
    return v_dot2(sum, v_mul_pairs(codes, v_load(q + 32 * g)), m[g]);
}

INLINE V row_sum_tq1_0(V sum, const struct lode_block_tq1_0 *b, const int8_t *q, const V m[8], struct digit_bounds d) {
    const V top = v_set8(128);
    V v = v_load(b->qs) ^ top;
    sum = add_codes(sum, top_digit(v, d), q, m, 0);
    UNROLL
    for (int g = 1; g < 5; g++) {
        v = next_digit(v);
        sum = add_codes(sum, top_digit(v, d), q, m, g);
    }
    v = (V)load_twice(b->qs + 32) ^ top;
    v = JOIN32(v, next_digit(v), 0xf0); /* two digits of sixteen bytes side by side */
    sum = add_codes(sum, top_digit(v, d), q, m, 5);
    v = next_digit(next_digit(v));
    sum = add_codes(sum, top_digit(v, d), q, m, 6);
    V four = v_bcast4(b->qh) ^ top; /* the fifth of them, and four of four bytes */
    four = JOIN32(four, next_digit(four), 0xaa);
    four = JOIN32(four, next_digit(next_digit(four)), 0xcc);
    return add_codes(sum, top_digit(JOIN32(next_digit(next_digit(v)), four, 0xf0), d), q, m, 7);
}

INLINE V row_sum_tq2_0(V sum, const struct lode_block_tq2_0 *b, const int8_t *q, const V m[8]) {
    UNROLL
    for (int half = 0; half < 2; half++) {
        V w[4];
        row_two_bits(w, b->qs + 32 * half);
        UNROLL
        for (int n = 0; n < 4; n++)
            sum = add_codes(sum, w[n], q, m, 4 * half + n);
    }
    return sum;
}

INLINE F one_ternary256(struct shape s, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    /* held: gcc makes a comparison with a constant two instructions */
    const struct digit_bounds digits = {v_held(v_set8(85 - 128)), v_held(v_set8(170 - 128))};
    const size_t size = s.codebook ? sizeof(struct lode_block_tq1_0) : sizeof(struct lode_block_tq2_0);
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        __m128i each = _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)a->m));
        if (!s.codebook)
            each = _mm_mullo_epi16(each, _mm256_castsi256_si128(two_bits_factors()));
        const __m256i once = _mm256_cvtepu16_epi32(each);
        __m256i twice = _mm256_or_si256(once, _mm256_slli_epi32(once, 16));
        V start = v_zero() - v_dot2(v_zero(), v_load(a->sums), v_set32(0x10001)); /* codes are less 1 */
        if (!s.codebook)
            start *= 16;
        V m[8], isum[LANES];
        __asm__("" : "+m"(twice)); /* to be broadcast from memory, where the results then stay */
        for (int g = 0; g < 8; g++)
            m[g] = v_bcast4((const char *)&twice + 4 * g);
        __asm__("" : "+m"(m));
        UNROLL
        for (int i = 0; i < LANES; i++) {
            const uint8_t *row = r->p[i] + b * size;
            prefetch_row(r, i, &ahead, b, size);
            isum[i] = s.codebook ? row_sum_tq1_0(start, (const struct lode_block_tq1_0 *)row, a->q, m, digits)
                                 : row_sum_tq2_0(start, (const struct lode_block_tq2_0 *)row, a->q, m);
        }
        const V sum = add_rows((const __m256i *)isum);
        acc = f_fma(half_before(r, (b + 1) * size) * f_set(a->d), f_int(s.codebook ? sum : without_factor(sum)), acc);
    }
    return acc;
}
#undef JOIN32
