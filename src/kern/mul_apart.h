/* mul_apart.h - products of a few columns by tiles whose rows lie far apart, on Intel's cores.
 *
 * Sixteen neighbouring rows are sixteen short streams, some two to a page: the second level's prefetcher, which follows one stream in
 * a page, loses them, and a line that is asked for instead has one of the first level's sixteen buffers for all the time that
 * memory takes.  Whatever else misses that level then waits, so that reading and multiplying add up.  Rows that are far apart, each followed
 * by the row behind it, are sixteen long streams, and nothing need be asked for.  bench/notes/kern-intel.md */
#ifndef LODE_KERN_MUL_APART_H
#define LODE_KERN_MUL_APART_H

#include "kern/kern.h"
#include "kern/mul_shape.h"

typedef void mul_fn LODE_MUL_ARGS;

enum {
    APART_MOST = 8,           /* columns of any type, at most */
    APART_ROWS = 3 * LANES,   /* at least */
    APART_STREAM = 3 * 4096,  /* bytes of a stream, at least: each page is followed anew */
};

/* Columns up to which it pays: where arithmetic takes longer than reading, lines in the first level are worth more. */
INLINE size_t apart_columns(struct shape s) {
    const bool two_bits = s.groups == 16 && s.top < 63, fp4 = s.levels && !s.wide, bytes = s.wide && !s.groups && !s.levels;
    return two_bits || fp4 ? 1 : bytes ? APART_MOST : 4;
}

/* f over all rows, 16 at a time.  From one of them to the next it is an odd number of rows: of rows that are a multiple of lines
 * sixteen at the same place of a page would share a set of the first level. */
INLINE void mul_apart(mul_fn *f, size_t columns, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w, const uint8_t *x,
                      size_t x_stride, size_t n_x, size_t k) {
    size_t apart = n_x <= columns && n_w >= APART_ROWS ? (n_w / LANES - 1) | 1 : 0;
    if (apart * w_stride < APART_STREAM)
        apart = 0;
    for (size_t i = 0; i < apart; i++) {
        float tile[APART_MOST][LANES];
        f(tile[0], LANES, w + i * w_stride, apart * w_stride, LANES, x, x_stride, n_x, k);
        for (size_t c = 0; c < n_x; c++)
            for (size_t l = 0; l < LANES; l++)
                y[c * ldy + l * apart + i] = tile[c][l];
    }
    const size_t done = apart * LANES;
    if (done < n_w || n_w == 0)
        f(y + done, ldy, w + done * w_stride, w_stride, n_w - done, x, x_stride, n_x, k);
}

#endif
