/* Products of pairs of BF16 numbers on AMX tiles.  32 numbers of 16 columns are a left operand as they
 * lie; 32 numbers of 16 weight rows become a right one, row t of which are their pairs t.  The sums of a
 * tile are those of 16 columns, lane i of each belongs to row i.
 *
 * One column takes the same instruction, whose order of additions is its own (law 2), with the operands
 * exchanged: weights as they lie on the left, and the column's pairs, a right operand 4 bytes wide. */
#include "kern/fast.h"
#include "kern/tile_amx.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS = 16,     /* of a tile, and columns */
    STRIP = 32,    /* weight rows that are taken together: two tiles */
    BLOCK_K = 1024, /* numbers of them that wait as right operands */
    STEPS = BLOCK_K / 32,
    CHUNK = 256, /* columns that pass them before the next rows come */
    AHEAD = 512, /* bytes of a row that are asked for in advance */
};
_Static_assert((int)ROWS == (int)LODE_FAST_ROWS, "");

typedef __m512i right[STEPS][2][ROWS];           /* [step][tile][pair] */
typedef float sums[CHUNK / ROWS][2][ROWS][ROWS]; /* [columns][tile][column][row] */

INLINE __m512i step_bf16(const char *p, size_t n) {
    const __mmask32 first = n < 32 ? (__mmask32)((1u << n) - 1) : 0xffffffff;
    return _mm512_maskz_loadu_epi16(first, p);
}
INLINE __m512i step_f16(const char *p, size_t n) {
    const __m512i h = step_bf16(p, n);
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(h, 1)),
                                        _mm512_cvtph_ps(_mm512_castsi512_si256(h)));
}

/* Dwords [row][pair] to [pair][row]. */
INLINE void transpose(__m512i v[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 4) {
        const __m512i a = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        const __m512i b = _mm512_unpackhi_epi32(v[i], v[i + 1]);
        const __m512i c = _mm512_unpacklo_epi32(v[i + 2], v[i + 3]);
        const __m512i d = _mm512_unpackhi_epi32(v[i + 2], v[i + 3]);
        t[i] = _mm512_unpacklo_epi64(a, c); /* dword 4q of rows i .. i+3 in quarter q */
        t[i + 1] = _mm512_unpackhi_epi64(a, c);
        t[i + 2] = _mm512_unpacklo_epi64(b, d);
        t[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    for (int i = 0; i < 4; i++) { /* quarters: [rows of four][q] to [q][rows of four] */
        const __m512i a = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
        v[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        v[4 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
        v[8 + i] = _mm512_shuffle_i32x4(a, c, 0xdd);
        v[12 + i] = _mm512_shuffle_i32x4(b, d, 0xdd);
    }
}

typedef __m512i step(const char *p, size_t n);

/* n numbers of a strip's rows; where fewer are left, the last one again, which is not stored. */
INLINE void unpack(right out, step *read, const char *w, size_t w_stride, size_t n_w, size_t n) {
    for (size_t b = 0; b < n; b += 32)
        for (size_t t = 0; t < 2; t++) {
            __m512i v[ROWS];
#pragma GCC unroll 16
            for (size_t r = 0; r < ROWS; r++) {
                const size_t row = ROWS * t + r < n_w ? ROWS * t + r : n_w - 1;
                const char *p = w + row * w_stride + 2 * b;
                __builtin_prefetch(p + AHEAD);
                v[r] = read(p, n - b);
            }
            transpose(v);
#pragma GCC unroll 16
            for (size_t r = 0; r < ROWS; r++)
                out[b / 32][t][r] = v[r];
        }
}

/* Registers 0 to 3 are sums, 4 and 5 columns, 6 and 7 weights. */
static void configure(void) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = 64;
        c.rows[i] = ROWS;
    }
    TILE_CONFIG(&c);
}

/* Registers 0 and 1 are sums, 4 and 5 weights, 6 the column. */
static void configure_one(void) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = i == 4 || i == 5 ? 64 : 4;
        c.rows[i] = ROWS;
    }
    TILE_CONFIG(&c);
}

/* 32 numbers of 16 rows to where a tile takes them from. */
INLINE void read_rows(__m512i out[ROWS], step *read, const char *w, size_t w_stride) {
#pragma GCC unroll 16
    for (size_t r = 0; r < ROWS; r++) {
        __builtin_prefetch(w + r * w_stride + AHEAD);
        out[r] = read(w + r * w_stride, 32);
    }
}

/* One column of k numbers, a multiple of 32; returns how many rows are done, whole strips. */
INLINE size_t one(step *read, float *y, const char *w, size_t w_stride, size_t n_w, const char *x,
                  size_t k) {
    size_t i = 0;
    configure_one();
    for (; i + STRIP <= n_w; i += STRIP) {
        const char *row = w + i * w_stride, *other = row + ROWS * w_stride;
        TILE_ZERO(0);
        TILE_ZERO(1);
        for (size_t b = 0; b < 2 * k; b += 64) {
            __m512i v[2][ROWS];
            read_rows(v[0], read, row + b, w_stride);
            read_rows(v[1], read, other + b, w_stride);
            TILE_LOAD(6, x + b, 4);
            TILE_LOAD(4, v[0], 64);
            TILE_DOT_BF16(0, 4, 6);
            TILE_LOAD(5, v[1], 64);
            TILE_DOT_BF16(1, 5, 6);
        }
        TILE_STORE(0, y + i, 4);
        TILE_STORE(1, y + i + ROWS, 4);
    }
    return i;
}

/* s += a strip times 32 columns. */
INLINE void multiply(float s[2][2][ROWS][ROWS], right w, const char *x, size_t x_stride, size_t n) {
    const char *other = x + ROWS * x_stride;
    TILE_LOAD(0, s[0][0], 64);
    TILE_LOAD(1, s[0][1], 64);
    TILE_LOAD(2, s[1][0], 64);
    TILE_LOAD(3, s[1][1], 64);
    for (size_t b = 0; b < n; b += 32) {
        TILE_LOAD(4, x + 2 * b, x_stride);
        TILE_LOAD(6, w[b / 32][0], 64);
        TILE_DOT_BF16(0, 4, 6);
        TILE_LOAD(7, w[b / 32][1], 64);
        TILE_DOT_BF16(1, 4, 7);
        TILE_LOAD(5, other + 2 * b, x_stride);
        TILE_DOT_BF16(2, 5, 6);
        TILE_DOT_BF16(3, 5, 7);
    }
    TILE_STORE(0, s[0][0], 64);
    TILE_STORE(1, s[0][1], 64);
    TILE_STORE(2, s[1][0], 64);
    TILE_STORE(3, s[1][1], 64);
}

INLINE void multiply_last(float s[2][ROWS][ROWS], right w, const char *x, size_t x_stride, size_t n) {
    TILE_LOAD(0, s[0], 64);
    TILE_LOAD(1, s[1], 64);
    for (size_t b = 0; b < n; b += 32) {
        TILE_LOAD(4, x + 2 * b, x_stride);
        TILE_LOAD(6, w[b / 32][0], 64);
        TILE_DOT_BF16(0, 4, 6);
        TILE_LOAD(7, w[b / 32][1], 64);
        TILE_DOT_BF16(1, 4, 7);
    }
    TILE_STORE(0, s[0], 64);
    TILE_STORE(1, s[1], 64);
}

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

INLINE void product(step *read, float *y, size_t ldy, const char *w, size_t w_stride, size_t n_w,
                    const char *x, size_t x_stride, size_t n_x, size_t k) {
    const size_t done = n_x == 1 && k % 32 == 0 ? one(read, y, w, w_stride, n_w, x, k) : 0;
    configure();
    for (size_t i = done; i < n_w; i += STRIP)
        for (size_t j = 0; j < n_x; j += CHUNK) {
            const size_t rows = least(n_w - i, STRIP), columns = least(n_x - j, CHUNK);
            const size_t groups = (columns + ROWS - 1) / ROWS;
            right strip;
            sums s;
            memset(s, 0, groups * sizeof s[0]);
            for (size_t l = 0; l < k; l += BLOCK_K) {
                const size_t n = least(k - l, BLOCK_K);
                const char *column = x + j * x_stride + 2 * l;
                unpack(strip, read, w + i * w_stride + 2 * l, w_stride, rows, n);
                size_t g = 0;
                for (; g + 2 <= groups; g += 2)
                    multiply(s + g, strip, column + g * ROWS * x_stride, x_stride, n);
                if (g < groups)
                    multiply_last(s[g], strip, column + g * ROWS * x_stride, x_stride, n);
            }
            for (size_t c = 0; c < columns; c++)
                for (size_t t = 0; t < 2 && t * ROWS < rows; t++) {
                    const size_t n = least(rows - t * ROWS, ROWS);
                    _mm512_mask_storeu_ps(y + (j + c) * ldy + i + t * ROWS,
                                          (__mmask16)((1u << n) - 1),
                                          _mm512_loadu_ps(s[c / ROWS][t][c % ROWS]));
                }
        }
    TILE_RELEASE();
}

void fast_bf16_amxbf16 LODE_MUL_ARGS {
    product(step_bf16, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
}
void fast_f16_amxbf16 LODE_MUL_ARGS {
    product(step_f16, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);
}
