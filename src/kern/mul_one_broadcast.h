/* mul_one_broadcast.h - one column of groups of 32, of mul_tile.h, row by row (AVX2): Q4_K, Q5_K, IQ4_XS.
 *
 * A block's scales, times the column's multipliers, are made for the tile's rows first and put into memory, from where
 * each is broadcast to a vector of 32 codes' products.  Nothing but what stands before the codes is transposed.
 * bench/notes/kern-quant.md */
#include "kern/mul_one.h"

/* What a block's rows have beside their codes. */
struct row_heads {
    __m256i by[LANES]; /* of a row: scales times the column's multipliers, each twice as int16 */
    V msum;            /* minima times sums of the column */
    F d, dmin;
};

/* Q4_K and Q5_K; m: the column's multipliers, twice as int16 each. */
INLINE void heads_k(struct row_heads *h, const struct rows *r, size_t off, const int16_t sums[16], __m256i m) {
    /* scales, then minima: from some bytes their low bits, from others their high ones */
    const __m256i low = both_halves(_mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15));
    const __m256i high = both_halves(_mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11));
    const __m256i lows = both_halves(_mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0));
    const __m256i nibbles = both_halves(_mm_setr_epi32(0, 0, 0, 0x0f0f0f0f)), highs = _mm256_set1_epi8(48);
    const __m256i twice0 = both_halves(_mm_setr_epi8(8, -1, 8, -1, 9, -1, 9, -1, 10, -1, 10, -1, 11, -1, 11, -1));
    const __m256i twice4 = both_halves(_mm_setr_epi8(12, -1, 12, -1, 13, -1, 13, -1, 14, -1, 14, -1, 15, -1, 15, -1));
    const __m256i sums0 = load_twice(sums);
    const __m256i sums8 = load_twice(sums + 8);
    __m256i v[4], s[4];
    for (int i = 0; i < 4; i++) {
        v[i] = two_rows(r, i, off);
        const __m256i t = _mm256_shuffle_epi8(v[i], low), u = _mm256_shuffle_epi8(v[i], high);
        const __m256i six = _mm256_or_si256(
            _mm256_or_si256(_mm256_and_si256(t, lows), _mm256_and_si256(_mm256_srli_epi16(t, 4), nibbles)),
            _mm256_and_si256(_mm256_srli_epi16(u, 2), highs));
        h->by[i] = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm256_castsi256_si128(six)), m);
        h->by[4 + i] = _mm256_mullo_epi32(_mm256_cvtepu8_epi32(_mm256_extracti128_si256(six, 1)), m);
        s[i] = _mm256_add_epi32(_mm256_madd_epi16(_mm256_shuffle_epi8(six, twice0), sums0),
                                _mm256_madd_epi16(_mm256_shuffle_epi8(six, twice4), sums8));
    }
    h->msum = (V)add_halves4(s);
    const __m256i d = _mm256_unpacklo_epi64(_mm256_unpacklo_epi32(v[0], v[1]), _mm256_unpacklo_epi32(v[2], v[3]));
    f_halves(&h->d, &h->dmin, (V)d);
}

INLINE void heads_iq4_xs(struct row_heads *h, const struct rows *r, size_t off, __m256i m) {
    const __m256i m32 = _mm256_slli_epi16(m, 5);
    for (int i = 0; i < LANES; i++) { /* scale g = nibble g of scales_l | bits 2 g of scales_h << 4, less 32 */
        const V high = v_bcast4(r->p[i] + off), low = v_bcast4(r->p[i] + off + 4);
        const __m256i lows = _mm256_srlv_epi32((__m256i)low, _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        const __m256i highs = _mm256_srlv_epi32((__m256i)high, _mm256_setr_epi32(12, 14, 16, 18, 20, 22, 24, 26));
        const __m256i six = _mm256_or_si256(_mm256_and_si256(lows, _mm256_set1_epi32(15)),
                                            _mm256_and_si256(highs, _mm256_set1_epi32(48)));
        h->by[i] = _mm256_sub_epi16(_mm256_mullo_epi32(six, m), m32);
    }
    h->d = f_half(v_load4(r, off));
}

/* ---- a row's products ---- */

INLINE V by_scale(V sum, V products, const __m256i *by, int g) {
    return v_dot2(sum, products, v_bcast4((const char *)by + 4 * g));
}

INLINE V row_sum_k(struct shape s, const uint8_t *p, const V x[8], const __m256i *by) {
    const V m16 = v_set8(16);
    const uint8_t *qs = p + (s.top > 15 ? offsetof(struct lode_block_q5_k, qs) : offsetof(struct lode_block_q4_k, qs));
    const V fifth = s.top > 15 ? v_held(v_load(p + offsetof(struct lode_block_q5_k, qh))) : v_zero();
    V sum = v_zero();
    UNROLL
    for (int j = 0; j < 4; j++) {
        const V q = v_held(v_load(qs + 32 * j));
        V w[2] = {low_bits(q, 4), low_bits(v_srl16(q, 4), 4)};
        UNROLL
        for (int n = 0; n < 2; n++) {
            if (s.top > 15)
                w[n] |= move_bits(fifth, 2 * j + n, 4) & m16;
            sum = by_scale(sum, v_mul_pairs(w[n], x[2 * j + n]), by, 2 * j + n);
        }
    }
    return sum;
}

/* Sizes of numbers times codes with the numbers' signs; no code is -128. */
INLINE V row_sum_iq4_xs(const uint8_t *p, const V sizes[8], const int8_t *x, const __m256i *by) {
    const V table = iq4_levels();
    const __m256i shifts = _mm256_setr_epi32(0, 0, 0, 0, 4, 4, 4, 4);
    V sum = v_zero();
    UNROLL
    for (int g = 0; g < 8; g++) {
        const __m256i q = load_twice(p + offsetof(struct lode_block_iq4_xs, qs) + 16 * g);
        const V codes = v_lookup(table, low_bits((V)_mm256_srlv_epi32(q, shifts), 4));
        sum = by_scale(sum, v_mul_pairs(sizes[g], v_sign8(codes, v_load(x + 32 * g))), by, g);
    }
    return sum;
}

INLINE V row_sum32(struct shape s, const uint8_t *p, const V x[8], const int8_t *q, const __m256i *by) {
    return s.wide ? row_sum_iq4_xs(p, x, q, by) : row_sum_k(s, p, x, by);
}

INLINE F one_broadcast256(TYPE_256, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    (void)unpack, (void)read_head;
    for (size_t b = 0; b < k / 256; b++, x += sizeof(struct lode_block_a256)) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        const __m256i once = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)a->m));
        const __m256i m = _mm256_or_si256(once, _mm256_slli_epi32(once, 16));
        struct row_heads h;
        __m256i isum[4];
        V xs[8];
        if (s.wide)
            heads_iq4_xs(&h, r, b * size, m);
        else
            heads_k(&h, r, b * size, a->sums, m);
        __asm__("" : "+m"(h.by)); /* else gcc takes them out of the vectors again */
        for (int g = 0; g < 8; g++) {
            const V q = v_load(a->q + 32 * g);
            xs[g] = v_held(s.wide ? v_sign8(q, q) : q);
        }
        UNROLL
        for (int i = 0; i < 4; i++) {
            prefetch_row(r, 2 * i, &ahead, b, size);
            const __m256i lo = (__m256i)row_sum32(s, r->p[i] + b * size, xs, a->q, &h.by[i]);
            prefetch_row(r, 2 * i + 1, &ahead, b, size);
            const __m256i hi = (__m256i)row_sum32(s, r->p[4 + i] + b * size, xs, a->q, &h.by[4 + i]);
            isum[i] = fold_two(lo, hi);
        }
        const F dx = f_set(a->d);
        acc = f_fma(h.d * dx, f_int((V)add_halves4(isum)), acc);
        if (s.minima)
            acc = f_fnma(h.dmin * dx, f_int(h.msum), acc);
    }
    return acc;
}

