/* Products of pairs of BF16 numbers in vectors: lane l of an accumulator takes the pairs l, l + 16, ..
 * of k in ascending order, and the lanes are joined as a tree. */
#include "kern/fast.h"

#include "kern/v16_avx512.h"

#define INLINE static inline __attribute__((always_inline))

enum {
    TILE_ROWS = 4,    /* rows and columns that meet in registers */
    TILE_COLUMNS = 6,
    BLOCK_ROWS = 16,  /* rows whose BLOCK_K numbers, as BF16, stay in the nearest cache */
    BLOCK_K = 1024,
    BLOCK_COLUMNS = 96, /* columns that pass them before the next rows come */
    AHEAD = 8,        /* rows of a single column's product: they ask for the next ones */
};
_Static_assert(BLOCK_COLUMNS % TILE_COLUMNS == 0 && BLOCK_ROWS % TILE_ROWS == 0, "");

typedef __m512bh step(const char *p, size_t n); /* 32 numbers of a row, or n < 32 and zeros */

INLINE __mmask32 first(size_t n) { return n < 32 ? (__mmask32)((1u << n) - 1) : 0xffffffff; }
INLINE __m512bh step_bf16(const char *p, size_t n) {
    return (__m512bh)(n < 32 ? _mm512_maskz_loadu_epi16(first(n), p) : _mm512_loadu_si512(p));
}
INLINE __m512bh step_f16(const char *p, size_t n) {
    const __m512i h = n < 32 ? _mm512_maskz_loadu_epi16(first(n), p) : _mm512_loadu_si512(p);
    return _mm512_cvtne2ps_pbh(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)),
                               _mm512_cvtph_ps(_mm512_castsi512_si256(h)));
}

/* Where a tile's results go, and its lanes, BLOCK_COLUMNS apart, which wait between blocks of k. */
struct out {
    float *y;
    size_t ldy;
    __m512 *sums; /* neither read by the first block nor written by the last */
    bool first, last;
};

/* < w row r, x row c > over n more numbers; R, C constant. */
INLINE void tile(const struct out *o, size_t R, size_t C, step *read, const char *w, size_t w_stride,
                 const char *x, size_t x_stride, size_t n, bool ahead) {
    __m512 acc[AHEAD][TILE_COLUMNS];
    for (size_t r = 0; r < R; r++)
        for (size_t c = 0; c < C; c++)
            acc[r][c] = o->first ? _mm512_setzero_ps() : o->sums[r * BLOCK_COLUMNS + c];
    for (size_t l = 0; l < n; l += 32) {
        __m512bh row[AHEAD];
        for (size_t r = 0; r < R; r++)
            row[r] = read(w + r * w_stride + 2 * l, n - l);
        if (ahead)
            for (size_t r = 0; r < R; r++)
                __builtin_prefetch(w + R * w_stride + 2 * l * R + 64 * r);
        for (size_t c = 0; c < C; c++) {
            __m512i column = _mm512_loadu_si512(x + c * x_stride + 2 * l);
            __asm__("" : "+v"(column)); /* the compiler would load it again for each row */
            for (size_t r = 0; r < R; r++)
                acc[r][c] = _mm512_dpbf16_ps(acc[r][c], row[r], (__m512bh)column);
        }
    }
    if (!o->last) {
        for (size_t r = 0; r < R; r++)
            for (size_t c = 0; c < C; c++)
                o->sums[r * BLOCK_COLUMNS + c] = acc[r][c];
        return;
    }
    for (size_t c = 0; c < C; c++) {
        float *y = o->y + c * o->ldy;
        size_t r = 0;
        for (; r + 4 <= R; r += 4)
            v16_join_4(y + r, acc[r][c], acc[r + 1][c], acc[r + 2][c], acc[r + 3][c]);
        for (; r < R; r++)
            y[r] = vf_join((VF){{acc[r][c]}});
    }
}

/* One column: rows are read from end to end. */
INLINE void one(float *y, step *read, const char *w, size_t w_stride, size_t n_w, const char *x,
                size_t k) {
    for (size_t i = 0; i < n_w; i += AHEAD) {
        const size_t n = n_w - i < AHEAD ? n_w - i : AHEAD;
        struct out o = {.y = y + i, .first = true, .last = true};
        if (n == AHEAD)
            tile(&o, AHEAD, 1, read, w + i * w_stride, w_stride, x, 0, k, true);
        for (size_t r = 0; r < n && n < AHEAD; r++, o.y++)
            tile(&o, 1, 1, read, w + (i + r) * w_stride, w_stride, x, 0, k, false);
    }
}

/* n_w <= BLOCK_ROWS rows of `n` numbers against n_x <= BLOCK_COLUMNS columns. */
INLINE void block(struct out o, step *read, const char *w, size_t w_stride, size_t n_w,
                  const char *x, size_t x_stride, size_t n_x, size_t n) {
    for (size_t c = 0; c < n_x; c += TILE_COLUMNS)
        for (size_t r = 0; r < n_w; r += TILE_ROWS) {
            struct out t = {o.y + c * o.ldy + r, o.ldy, o.sums + r * BLOCK_COLUMNS + c, o.first, o.last};
            const char *row = w + r * w_stride, *column = x + c * x_stride;
            if (n_w - r >= TILE_ROWS && n_x - c >= TILE_COLUMNS) {
                tile(&t, TILE_ROWS, TILE_COLUMNS, read, row, w_stride, column, x_stride, n, false);
                continue;
            }
            const size_t columns = n_x - c < TILE_COLUMNS ? n_x - c : TILE_COLUMNS;
            for (size_t j = 0; j < columns; j++)
                for (size_t i = 0; i < TILE_ROWS && i < n_w - r; i++) {
                    t.y = o.y + (c + j) * o.ldy + r + i;
                    t.sums = o.sums + (r + i) * BLOCK_COLUMNS + c + j;
                    tile(&t, 1, 1, read, row + i * w_stride, w_stride, column + j * x_stride, x_stride, n, false);
                }
        }
}

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

INLINE void product(step *read, float *y, size_t ldy, const char *w, size_t w_stride,
                    size_t n_w, const char *x, size_t x_stride, size_t n_x, size_t k) {
    if (n_x == 1) {
        one(y, read, w, w_stride, n_w, x, k);
        return;
    }
    for (size_t i = 0; i < n_w; i += BLOCK_ROWS)
        for (size_t j = 0; j < n_x; j += BLOCK_COLUMNS) {
            __m512 sums[BLOCK_ROWS * BLOCK_COLUMNS];
            const size_t rows = least(n_w - i, BLOCK_ROWS), columns = least(n_x - j, BLOCK_COLUMNS);
            for (size_t l = 0; l < k || l == 0; l += BLOCK_K) { /* once if k is 0 */
                const size_t n = least(k - l, BLOCK_K);
                const struct out o = {y + j * ldy + i, ldy, sums, l == 0, l + n == k};
                const char *from = w + i * w_stride + 2 * l, *column = x + j * x_stride + 2 * l;
                __m512i wide[BLOCK_ROWS][BLOCK_K / 32 + 1]; /* rows in different sets of the cache */
                for (size_t r = 0; r < rows; r++)
                    for (size_t b = 0; b < n; b += 32)
                        wide[r][b / 32] = (__m512i)read(from + r * w_stride + 2 * b, n - b);
                block(o, step_bf16, (const char *)wide, sizeof wide[0], rows, column, x_stride,
                      columns, (n + 31) & ~(size_t)31);
            }
        }
}

void fast_bf16_avx512bf16 LODE_MUL_ARGS {
    product(step_bf16, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
}
void fast_f16_avx512bf16 LODE_MUL_ARGS {
    product(step_f16, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
}
