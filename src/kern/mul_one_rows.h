/* mul_one_rows.h - one column of groups of 16, of mul_tile.h, row by row (AVX2): Q2_K, Q3_K, Q6_K.
 *
 * Where each 16 numbers have a scale, rows side by side meet one after every four vectors of codes, and more is
 * transposed than multiplied.  Here a vector holds 32 codes of one row and meets the column's numbers as
 * they lie; pairs of products fit an int16, and one multiplication by pairs applies the scales of both halves.
 * What a row's vector holds after a block is added together with that of the tile's other rows.
 * bench/notes/kern-quant.md
 *
 * A block's scales are int16, those of even groups in the low half of a vector, of odd ones in the high half: what
 * vector n of codes meets is the n-th of each half. */
#include "kern/mul_one.h"

/* ---- a block's head ---- */

struct heads16 {
    __m256i sc[LANES]; /* of a row */
    V msum;            /* minima times sums of the column */
    F d, dmin;
};

/* Signed bytes of rows i and 4 + i. */
INLINE void set_scales(struct heads16 *h, int i, __m256i bytes) {
    const __m256i order = both_halves(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    const __m256i v = _mm256_shuffle_epi8(bytes, order);
    h->sc[i] = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(v));
    h->sc[4 + i] = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(v, 1));
}

INLINE void heads_q2_k(struct heads16 *h, const struct rows *r, size_t off, const struct lode_block_a256 *a) {
    const __m256i m15 = _mm256_set1_epi8(15), zero = _mm256_setzero_si256();
    const __m256i sums0 = load_twice(a->sums);
    const __m256i sums8 = load_twice(a->sums + 8);
    __m256i s[4];
    for (int i = 0; i < 4; i++) {
        const __m256i v = two_rows(r, i, off), mn = _mm256_and_si256(_mm256_srli_epi16(v, 4), m15);
        set_scales(h, i, _mm256_and_si256(v, m15));
        s[i] = _mm256_add_epi32(_mm256_madd_epi16(_mm256_unpacklo_epi8(mn, zero), sums0),
                                _mm256_madd_epi16(_mm256_unpackhi_epi8(mn, zero), sums8));
    }
    h->msum = (V)add_halves4(s);
    f_halves(&h->d, &h->dmin, v_load4(r, off + offsetof(struct lode_block_q2_k, d)));
}

INLINE void heads_q3_k(struct heads16 *h, const struct rows *r, size_t off) {
    /* the block's last 16 bytes: two that are not wanted, 12 of scales, d */
    const size_t at = off + sizeof(struct lode_block_q3_k) - 16;
    const __m256i low = both_halves(_mm_setr_epi8(2, 3, 4, 5, 6, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9));
    const __m256i high = both_halves(_mm_setr_epi8(10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13, 10, 11, 12, 13));
    const __m256i nibbles = both_halves(_mm_setr_epi32(0x0f0f0f0f, 0x0f0f0f0f, 0, 0));
    const __m256i nibbles8 = both_halves(_mm_setr_epi32(0, 0, 0x0f0f0f0f, 0x0f0f0f0f));
    const __m256i m48 = _mm256_set1_epi8(48), m32 = _mm256_set1_epi8(32);
    __m256i v[4];
    for (int i = 0; i < 4; i++) {
        v[i] = two_rows(r, i, at);
        const __m256i t = _mm256_shuffle_epi8(v[i], low), u = _mm256_shuffle_epi8(v[i], high);
        const __m256i two = _mm256_srlv_epi32(_mm256_sllv_epi32(u, both_halves(_mm_setr_epi32(4, 2, 0, 0))),
                                              both_halves(_mm_setr_epi32(0, 0, 0, 2)));
        const __m256i six = _mm256_or_si256(
            _mm256_or_si256(_mm256_and_si256(t, nibbles), _mm256_and_si256(_mm256_srli_epi16(t, 4), nibbles8)),
            _mm256_and_si256(two, m48));
        set_scales(h, i, _mm256_sub_epi8(six, m32));
    }
    const __m256i d = _mm256_unpackhi_epi64(_mm256_unpackhi_epi32(v[0], v[1]), _mm256_unpackhi_epi32(v[2], v[3]));
    h->d = f_half((V)d >> 16);
}

/* Of Q6_K, where scales are bytes: a row's when it is its turn, as rows come from memory in order. */
INLINE V scales_q6_k(const struct lode_block_q6_k *b) {
    const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
    return (V)_mm256_cvtepi8_epi16(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)b->scales), order));
}

/* ---- codes of half a block, in the order of its numbers ---- */

INLINE void row_q3_k(V w[4], const struct lode_block_q3_k *b, int half) {
    const V third = v_held(v_load(b->hmask));
    row_two_bits(w, b->qs + 32 * half);
    for (int n = 0; n < 4; n++) {
        const int to = n < 3 ? 2 * n + 2 : 6; /* above the two others */
        w[n] |= move_bits(third, 4 * half + n, to) & v_set8((uint8_t)(1 << to));
    }
}

INLINE void row_q6_k(V w[4], const struct lode_block_q6_k *b, int half) {
    const V m48 = v_set8(48);
    const V p0 = v_load(b->ql + 64 * half), p1 = v_load(b->ql + 64 * half + 32), hi = v_load(b->qh + 32 * half);
    w[0] = low_bits(p0, 4) | (v_sll16(hi, 4) & m48);
    w[1] = low_bits(p1, 4) | (v_sll16(hi, 2) & m48);
    w[2] = low_bits(v_srl16(p0, 4), 4) | (hi & m48);
    w[3] = low_bits(v_srl16(p1, 4), 4) | (v_srl16(hi, 2) & m48);
}

INLINE void row_codes(struct shape s, V w[4], const uint8_t *block, int half) {
    if (s.top == 63)
        row_q6_k(w, (const struct lode_block_q6_k *)block, half);
    else if (s.top == 7)
        row_q3_k(w, (const struct lode_block_q3_k *)block, half);
    else
        row_two_bits(w, ((const struct lode_block_q2_k *)block)->qs + 32 * half);
}

/* ---- */

INLINE F one_rows256(TYPE_256, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    (void)read_head, (void)unpack;
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        const struct codes_column column = column_of(a);
        const bool times16 = s.top < 63; /* row_two_bits */
        const V m = times16 ? v_mul16((V)column.m, (V)two_bits_factors()) : (V)column.m, sums = (V)column.sums;
        struct heads16 h;
        V isum[LANES];
        if (s.top == 7)
            heads_q3_k(&h, r, b * size);
        else if (s.top == 3)
            heads_q2_k(&h, r, b * size, a);
        UNROLL
        for (int i = 0; i < LANES; i++) {
            const uint8_t *row = r->p[i] + b * size;
            prefetch_row(r, i, &ahead, b, size);
            const V sc = s.top == 63 ? scales_q6_k((const struct lode_block_q6_k *)row) : (V)h.sc[i], by = v_mul16(sc, m);
            V sum = s.bias ? v_dot2(v_zero(), sc, sums) * v_set32((uint32_t)(times16 ? -16 * s.bias : -s.bias)) : v_zero();
            UNROLL
            for (int half = 0; half < 2; half++) {
                V w[4];
                row_codes(s, w, row, half);
                UNROLL
                for (int n = 0; n < 4; n++)
                    sum = v_dot2(sum, v_mul_pairs(w[n], v_load(a->q + 128 * half + 32 * n)),
                                 (V)spread_word((__m256i)by, 4 * half + n));
            }
            isum[i] = sum;
        }
        const F dx = f_set(a->d), d = s.top == 63 ? half_before(r, (b + 1) * size) : h.d;
        const V sum = add_rows((const __m256i *)isum);
        acc = f_fma(d * dx, f_int(times16 ? without_factor(sum) : sum), acc);
        if (s.minima)
            acc = f_fnma(h.dmin * dx, f_int(h.msum), acc);
    }
    return acc;
}
