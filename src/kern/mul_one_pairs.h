/* mul_one_pairs.h - one column of blocks of 32, of mul_tile.h, two rows to a vector (AVX2).
 *
 * Rows side by side (mul_tile.h) transpose all codes of a block, and for one column that is most of the work.  Here
 * rows i and 4 + i have a half of a vector each, meet the column's numbers as they lie, and what is transposed are
 * sums of products, as far as they fit 16 bits in those.  Types name where a block's codes begin (shape.codes).
 * bench/notes/kern-quant.md */
#include "kern/mul_one.h"

/* A block of the column, each 16 numbers in both halves: the first ones, then the others; of halves with a scale of
 * their own the first 8 of each. */
struct twice32 {
    __m256i x[2], sizes[2]; /* sizes: of halves */
};
INLINE struct twice32 twice32(struct shape s, const struct lode_block_a32 *a) {
    const __m256i q = _mm256_loadu_si256((const __m256i *)a->q);
    if (s.halves) {
        const __m256i a0 = _mm256_permute4x64_epi64(q, 0x88), a1 = _mm256_permute4x64_epi64(q, 0xdd);
        return (struct twice32){{a0, a1}, {_mm256_abs_epi8(a0), _mm256_abs_epi8(a1)}};
    }
    return (struct twice32){{_mm256_permute4x64_epi64(q, 0x44), _mm256_permute4x64_epi64(q, 0xee)}, {q, q}};
}

/* Whether sums of products are added in 16 bits at first: where nothing adds four products at once. */
INLINE bool in_16_bits(struct shape s) {
#ifdef __AVXVNNI__
    (void)s;
    return false;
#else
    return !s.wide;
#endif
}

/* Fifth bits of 32 codes from the four bytes before them: bit i is code i's. */
INLINE void or_fifth(__m256i w[2], __m256i bits) {
    const __m256i each = both_halves(_mm_set1_epi64x((long long)0x8040201008040201)), m16 = _mm256_set1_epi8(16);
    for (int n = 0; n < 2; n++) {
        const __m128i byte = _mm_setr_epi32(0x02020202 * n, 0x02020202 * n, 0x02020202 * n + 0x01010101, 0x02020202 * n + 0x01010101);
        const __m256i spread = _mm256_shuffle_epi8(bits, both_halves(byte));
        w[n] |= _mm256_cmpeq_epi8(_mm256_and_si256(spread, each), each) & m16;
    }
}

/* The sums of products of rows i and 4 + i in their halves: int16 or int32. */
INLINE __m256i pair_sums(struct shape s, const struct rows *r, int i, size_t at, const struct twice32 *x) {
    __m256i w[2] = {two_rows(r, i, at)};
    if (s.wide && !s.levels) {
        w[1] = two_rows(r, i, at + 16);
        if (bias_of(s)) /* unsigned in the file */
            w[0] ^= (__m256i)v_set8(128), w[1] ^= (__m256i)v_set8(128);
    } else {
        const V q = v_held((V)w[0]);
        w[0] = (__m256i)low_bits(q, 4);
        w[1] = (__m256i)low_bits(v_srl16(q, 4), 4);
        if (s.top == 31)
            or_fifth(w, two_rows(r, i, at - 4));
        if (s.levels) {
            const V table = s.wide ? iq4_levels() : s.halves ? v_sub8(fp4_table(), v_set8(FP4_BIAS)) : fp4_table();
            w[0] = (__m256i)v_lookup(table, (V)w[0]);
            w[1] = (__m256i)v_lookup(table, (V)w[1]);
        }
    }
    __m256i x8[2] = {x->x[0], x->x[1]};
    for (int n = 0; s.halves && n < 2; n++) { /* sizes of numbers, and levels with the numbers' signs */
        x8[n] = _mm256_sign_epi8(w[n], x->x[n]);
        w[n] = x->sizes[n];
    }
    if (in_16_bits(s))
        return _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x8[0]), _mm256_maddubs_epi16(w[1], x8[1]));
    __m256i sum = _mm256_setzero_si256();
    for (int n = 0; n < 2; n++) /* x is never -128, a code may be */
        sum = s.wide ? add_fours(sum, _mm256_abs_epi8(w[n]), _mm256_sign_epi8(x->x[n], w[n])) : add_fours(sum, w[n], x8[n]);
    return sum;
}

/* Sums of 8 int16 (at most 4 top 127) in each half, of four vectors: lane i of v[i]'s low half, 4 + i of its high one. */
INLINE V add_pairs16(struct shape s, const __m256i v[4]) {
    __m256i t[2];
    for (int i = 0; i < 2; i++)
        t[i] = _mm256_add_epi16(_mm256_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm256_unpackhi_epi32(v[2 * i], v[2 * i + 1]));
    if (s.top <= 16)
        return (V)sums32(_mm256_add_epi16(_mm256_unpacklo_epi64(t[0], t[1]), _mm256_unpackhi_epi64(t[0], t[1])));
    t[0] = sums32(t[0]);
    t[1] = sums32(t[1]);
    return (V)_mm256_add_epi32(_mm256_unpacklo_epi64(t[0], t[1]), _mm256_unpackhi_epi64(t[0], t[1]));
}

/* The sums of the first and of the last half of each half. */
INLINE void add_quarters(struct shape s, V sum[2], const __m256i v[4]) {
    for (int n = 0; n < 2; n++) {
        const __m256i a = n ? _mm256_unpackhi_epi32(v[0], v[1]) : _mm256_unpacklo_epi32(v[0], v[1]);
        const __m256i b = n ? _mm256_unpackhi_epi32(v[2], v[3]) : _mm256_unpacklo_epi32(v[2], v[3]);
        const __m256i low = _mm256_unpacklo_epi64(a, b), high = _mm256_unpackhi_epi64(a, b);
        sum[n] = (V)(in_16_bits(s) ? sums32(_mm256_add_epi16(low, high)) : _mm256_add_epi32(low, high));
    }
}

/* Where the 32 codes are of which bytes off .. off + size are the share: with halves a block has two of them, and the
 * scales of both before the codes. */
INLINE size_t codes_of(struct shape s, size_t off, size_t size) {
    const size_t parts = s.halves ? 2 : 1;
    return part_at(off / size, parts, parts * size, (size_t)s.codes, 16).codes;
}

INLINE F pair_block(TYPE_32, F acc, const struct rows *r, size_t off, const struct lode_block_a32 *a,
                    const struct ahead *ahead, const uint8_t *next, size_t n) {
    const struct twice32 x = twice32(s, a);
    const F dx = f_set(a->d);
    F d, m = f_zero();
    V unused[8];
    __m256i v[4];
    unpack(unused, &d, &m, r, off);
    UNROLL
    for (size_t i = 0; i < 4; i++) {
        const size_t part = LANES * size / 4;
        prefetch_part(ahead, next, (4 * n + i) * part, (4 * n + i + 1) * part);
        v[i] = pair_sums(s, r, (int)i, codes_of(s, off, size), &x);
    }
    if (s.halves) {
        V sum[2];
        add_quarters(s, sum, v);
        return add_halves(acc, sum[0], sum[1], d, m, dx);
    }
    const V sum = (in_16_bits(s) ? add_pairs16(s, v) : (V)add_halves4(v)) - v_set32((uint32_t)(bias_of(s) * a->sum));
    acc = f_fma(d * dx, f_int(sum), acc);
    return s.minima ? f_fma(m * dx, f_set((float)a->sum), acc) : acc;
}

INLINE F one_pairs32(TYPE_32, F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k) {
    enum { RUN = 4 }; /* whose lines are counted together */
    const struct lode_block_a32 *a = (const struct lode_block_a32 *)x;
    size_t b = 0;
    for (; b + RUN <= k / 32; b += RUN, a += RUN) {
        struct rows run; /* so that places in it are constants */
        for (int i = 0; i < LANES; i++)
            run.p[i] = r->p[i] + b * size;
        UNROLL
        for (size_t i = 0; i < RUN; i++)
            acc = pair_block(s, unpack, size, acc, &run, i * size, a + i, &ahead, run.p[0] + ahead.tile + (LANES - 1) * b * size, i);
    }
    for (; b < k / 32; b++, a++)
        acc = pair_block(s, unpack, size, acc, r, b * size, a, &ahead, r->p[0] + ahead.tile + b * LANES * size, 0);
    return acc;
}
