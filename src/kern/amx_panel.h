/* amx_panel.h - what products on AMX tiles share: a panel of rows and the columns that it meets, columns on their
 * way to operands, the end of a meeting.  amx_256.h and amx_32.h multiply with it.
 *
 * tile_unpack.h's vectors (four neighbouring codes of each of 16 rows) are the right operand of TILE_DOT;
 * the left one are bytes of each of 16 columns.  So one instruction gives integer sums for 16 rows and 16
 * columns, a vector for each column whose lane i belongs to row i.
 *
 * While a meeting of 16 rows and 16 columns is multiplied, an earlier one is brought to its end, a piece after
 * each product: the processor looks ahead some hundred operations, too few to find the vectors' work behind all
 * of the tiles', and half as many where another thread has its share of the core.  So operands are loaded, and
 * sums set to zero, a piece before their product.  Columns of the next meetings are packed meanwhile, a few in
 * each, into the nearest cache, where they stay until all rows have met them.  bench/notes/kern-amx.md
 */
#ifndef LODE_KERN_AMX_PANEL_H
#define LODE_KERN_AMX_PANEL_H

#include "kern/vec_avx512.h"

#define V_WIDE_BIAS 0
#include "kern/mul_shape.h"
#include "kern/tile_amx.h"

enum {
    TILES = 32,      /* tiles of 16 rows that are unpacked together, for all columns */
    COLUMNS = 16,    /* rows of a left operand: a group */
    CHUNK = 512,     /* columns whose sums wait for the next blocks */
    AHEAD = 6,       /* columns that are asked for before they are packed, */
    TILES_AHEAD = 2, /* and tiles before they are unpacked */
};

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The results of a meeting, where the vectors take them from. */
typedef V results[4][COLUMNS];

/* Tiles 0 to 3 are sums, 4 and 5 columns, 6 and 7 weights, `depth` numbers of each. */
static void configure(uint8_t depth) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = i == 4 || i == 5 ? depth : 64;
        c.rows[i] = i < 6 ? COLUMNS : depth / 4;
    }
    TILE_CONFIG(&c);
}

/* Columns on their way to the operands of the next meetings. */
struct packing {
    const uint8_t *x; /* the block, or the run of blocks, of the first */
    size_t x_stride;
    void *ready, *next;   /* groups that meet now; groups that are made */
    size_t done, n, step; /* of those that are made; step: in a meeting */
    size_t n_blocks;      /* of a run of blocks of 32 */
};

/* A run of blocks of up to TILES x 16 rows, and the columns that they meet.  y is the accumulator; it is not
 * read at first. */
struct panel {
    const uint8_t *w, *x;
    size_t w_stride, n_w, x_stride, n_x;
    float *y;
    size_t ldy;
    size_t block, n_blocks, n_next; /* the first and how many, and how many the next run has */
    struct packing *packing;
};

INLINE size_t tiles_of(const struct panel *p) { return (p->n_w + LANES - 1) / LANES; }
INLINE struct rows rows_of(const struct panel *p, size_t t) {
    return tile_rows(p->w + t * LANES * p->w_stride, p->w_stride, rows_left(p->n_w, t * LANES));
}

/* Asks for blocks of a tile that is not unpacked yet: its rows lie far apart. */
INLINE void prefetch_tile(const struct panel *p, size_t t, size_t at, size_t bytes) {
    if (t >= tiles_of(p))
        return;
    const struct rows r = rows_of(p, t);
    for (int i = 0; i < LANES; i++)
        prefetch(r.p[i] + at, bytes);
}

/* Columns j and on, up to `most`, begin to meet, all of which are packed; what follows them is next. */
static void begin(const struct panel *p, size_t j, size_t most, size_t run) {
    struct packing *x = p->packing;
    void *ready = x->next;
    x->next = x->ready;
    x->ready = ready;
    x->done = x->step = 0;
    if (j + most < p->n_x) {
        x->x = p->x + (j + most) * p->x_stride;
        x->n = least(p->n_x - j - most, most);
    } else { /* the first ones' next blocks */
        x->x = p->x + run;
        x->n = p->n_next ? least(p->n_x, most) : 0;
        x->n_blocks = p->n_next;
    }
}

/* What is packed in the meeting after meeting i of n.  Nothing in the first two: columns may still end that lay
 * where these go. */
INLINE void go_on(struct packing *x, size_t i, size_t n) {
    x->done = least(x->done + x->step, x->n);
    x->step = i == 0 || n < 3 ? 0 : (x->n + n - 3) / (n - 2);
}

/* Quarter g of column j. */
typedef void pack_fn(const struct packing *p, size_t j, size_t g);

INLINE void pack_some(const struct packing *p, pack_fn *pack, size_t g) {
    const size_t end = least(p->done + p->step, p->n);
    for (size_t j = p->done; j < end; j++)
        pack(p, j, g);
}
static __attribute__((noinline)) void pack_rest(struct packing *p, pack_fn *pack) {
    for (; p->done < p->n; p->done++)
        for (size_t g = 0; g < 4; g++)
            pack(p, p->done, g);
}

/* A meeting whose products are made: what its end needs.  n: columns that exist. */
struct ending {
    const void *weights, *columns;
    float *y;
    size_t ldy, n;
    __mmask16 rows, old; /* old: rows whose sums go on */
};

INLINE struct ending ending(const struct panel *p, size_t t, size_t j, bool first) {
    const __mmask16 rows = (__mmask16)((1u << rows_left(p->n_w, t * LANES)) - 1);
    return (struct ending){.y = p->y + j * p->ldy + t * LANES, .ldy = p->ldy, .n = least(p->n_x - j, COLUMNS),
                           .rows = rows, .old = first ? 0 : rows};
}
INLINE F sum_before(const struct ending *e, size_t i) {
    return (F)_mm512_maskz_loadu_ps(e->old, e->y + i * e->ldy);
}
INLINE void put_sum(const struct ending *e, size_t i, F sum) {
    _mm512_mask_storeu_ps(e->y + i * e->ldy, e->rows, (__m512)sum);
}

#endif
