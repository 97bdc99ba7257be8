/* mul_rows512.h - one column, row after row (AVX-512 with VNNI).
 *
 * Rows side by side (mul_tile.h) are read at 16 places at once and turned so that lane i belongs to row i, which is
 * half of the work.  Here weights are read in the order in which they lie, many codes of one row a vector, and meet
 * the column's numbers in the same order.  What a row's vectors hold is added up some blocks at a time (a unit), and
 * turned only then: the sums of a tile's rows become lanes in which blocks come in their order (the arithmetic is
 * add_block's and add_block32's).  bench/notes/kern-amx.md */

enum { MOST_UNITS = 16 }; /* of a tile's rows at a time */

INLINE V v_load64(const void *p) { return (V)_mm512_loadu_si512(p); }
INLINE V v_twice32(const void *p) { /* 32 bytes, twice */
    return (V)_mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)p));
}
INLINE V v_by_halves(int low, int high) { /* int16 each */
    return (V)_mm512_inserti64x4(_mm512_set1_epi16((short)low), _mm256_set1_epi16((short)high), 1);
}
INLINE V v_sllv16(V v, V n) { return (V)_mm512_sllv_epi16((__m512i)v, (__m512i)n); }
INLINE V v_srlv16(V v, V n) { return (V)_mm512_srlv_epi16((__m512i)v, (__m512i)n); }
INLINE V v_shuffle(V v, V from) { return (V)_mm512_shuffle_epi8((__m512i)v, (__m512i)from); }

INLINE V v_each16(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { /* the same 16 bytes four times */
    return (V)_mm512_set4_epi32((int)d, (int)c, (int)b, (int)a);
}

/* 16 bytes of each of n blocks. */
INLINE V v_load16s(const uint8_t *p, size_t size, int n) {
    __m512i v = _mm512_zextsi128_si512(_mm_loadu_si128((const __m128i *)p));
    if (n > 1)
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + size)), 1);
    if (n > 2)
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 2 * size)), 2);
    if (n > 3)
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(p + 3 * size)), 3);
    return (V)v;
}


/* The i-th 16 bytes: the sum of v[i]'s four. */
INLINE V v_add_quarters(const V v[4]) {
    return v_add_pairs(v_add_pairs(v[0], v[1]), v_add_pairs(v[2], v[3]));
}
#include "kern/mul_rows512_256.h"
#include "kern/mul_rows512_32.h"

/* A unit of a column, and what a tile's rows come to with it. */
union unit {
    struct quad quad;
    struct span span;
};
union unit_sums {
    struct halfway quad;
    struct halfway32 span;
};

INLINE void unit_of(struct shape s, union unit *out, const uint8_t *x, size_t n) {
    if (s.groups)
        quad_of(s, &out->quad, x, n);
    else
        span_of(&out->span, x, n);
}
/* The first n blocks of a unit of a row; what comes after them is asked for meanwhile. */
INLINE void unit_row(struct shape s, struct lines l, union unit_sums *out, int row, const uint8_t *w, size_t size, size_t n,
                     const union unit *x) {
    ask_ahead(w, n * size);
    if (s.groups)
        quad_row(s, &out->quad, row, w, size, n, &x->quad);
    else
        span_row(s, l, &out->span, row, w, size, n, &x->span);
}
INLINE F end_unit(struct shape s, struct lines l, F acc, const union unit_sums *h, size_t n, const union unit *x) {
    return s.groups ? end_quad(s, acc, &h->quad, n, &x->quad) : end_span(s, l, acc, &h->span, n, &x->span);
}

INLINE void mul_rows(struct shape s, struct lines l, size_t size, float *y, const uint8_t *w, size_t w_stride, size_t n_w,
                     const uint8_t *x, size_t k) {
    const size_t n_blocks = k / block_numbers(s), unit = s.groups ? QUAD : SPAN;
    for (size_t from = 0; from < n_blocks; from += unit * MOST_UNITS) {
        const size_t n = n_blocks - from < unit * MOST_UNITS ? n_blocks - from : unit * MOST_UNITS;
        const size_t whole = n / unit, rest = n % unit;
        union unit column[MOST_UNITS];
        union unit_sums sums[MOST_UNITS];
        for (size_t b = 0; b < n; b += unit)
            unit_of(s, &column[b / unit], x + (from + b) * block_of_x(s), n - b < unit ? n - b : unit);
        for (size_t i = 0; i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            if (n_rows < LANES)
                memset(sums, 0, sizeof sums);
            for (int row = 0; row < n_rows; row++) {
                const uint8_t *at = w + (i + (size_t)row) * w_stride + from * size;
                for (size_t u = 0; u < whole; u++, at += unit * size)
                    unit_row(s, l, &sums[u], row, at, size, unit, &column[u]);
                if (rest > 0)
                    unit_row(s, l, &sums[whole], row, at, size, rest, &column[whole]);
            }
            F acc = f_zero();
            if (from > 0)
                memcpy(&acc, y + i, (size_t)n_rows * sizeof(float));
            for (size_t u = 0; u < whole; u++)
                acc = end_unit(s, l, acc, &sums[u], unit, &column[u]);
            if (rest > 0)
                acc = end_unit(s, l, acc, &sums[whole], rest, &column[whole]);
            f_store(y + i, n_rows, acc);
        }
    }
}
