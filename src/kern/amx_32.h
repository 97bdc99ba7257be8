/* amx_32.h - products of blocks of 32 on AMX tiles: each is a product.  What follows is mul_tile.h's arithmetic. */
#ifndef LODE_KERN_AMX_32_H
#define LODE_KERN_AMX_32_H

#include "kern/amx_panel.h"

enum {
    PART = 4,  /* blocks of 32 that make a meeting, */
    PARTS = 2, /* and meetings that make a run, whose blocks are unpacked together */
};

/* A meeting is PART blocks of a tile and of 16 columns, a run PARTS times that.  Where a row ends before,
 * blocks follow that change no sum, not even the sign of a zero: all 0, but -0 for the scales of weights. */
struct columns32 {
    int8_t x[PART][COLUMNS][32];
    struct {
        float d[PART], sum[PART];
    } of[COLUMNS];
};

struct part32 {
    V w[PART][8];
    F d[PART], m[PART];
};

/* Blocks 2 g and 2 g + 1 of a run of column j. */
INLINE void pack32(const struct packing *p, size_t j, size_t g) {
    const struct lode_block_a32 *a = (const struct lode_block_a32 *)(p->x + j * p->x_stride);
    struct columns32 *to = p->next;
    if (g == 0)
        prefetch(p->x + (j + AHEAD) * p->x_stride, PARTS * PART * sizeof *a);
    for (size_t b = 2 * g; b < 2 * g + 2; b++) {
        static const struct lode_block_a32 none = {.d = 1};
        const struct lode_block_a32 *from = b < p->n_blocks ? a + b : &none;
        struct columns32 *out = &to[b / PART];
        memcpy(out->x[b % PART][j], from->q, 32);
        out->of[j].d[b % PART] = from->d;
        out->of[j].sum[b % PART] = (float)from->sum;
    }
}

/* Block b of a run. */
INLINE void unpack32(struct part32 run[PARTS], TYPE_32, const struct rows *r, size_t b, size_t i) {
    const V8 bias = (V8){0} + (uint8_t)(s.wide ? 0 : s.bias);
    struct part32 *part = &run[b / PART];
    V *w = part->w[b % PART];
    F *d = &part->d[b % PART], *m = &part->m[b % PART];
    *m = f_zero();
    unpack(w, d, m, r, i * size);
    for (int v = 0; v < 8; v++)
        w[v] = (V)((V8)w[v] - bias);
}
INLINE void no_block32(struct part32 run[PARTS], size_t b) {
    struct part32 *part = &run[b / PART];
    for (int v = 0; v < 8; v++)
        part->w[b % PART][v] = v_zero();
    part->d[b % PART] = part->m[b % PART] = f_set(-0.0f);
}

/* Block b of a meeting. */
INLINE void end32(struct shape s, const struct ending *e, const V in[COLUMNS], size_t b, F sum[COLUMNS]) {
    const struct part32 *w = e->weights;
    const struct columns32 *c = e->columns;
    const F d = w->d[b], m = s.minima ? w->m[b] : f_zero();
    UNROLL
    for (size_t i = 0; i < COLUMNS; i++) {
        const F dx = f_set(c->of[i].d[b]);
        V isum = in[i];
        if (s.wide && s.bias) /* a whole byte of codes has lost 128, which is none of its bias */
            isum += v_set32((uint32_t)(-s.bias * (int32_t)c->of[i].sum[b]));
        sum[i] = f_fma(d * dx, f_int(isum), sum[i]);
        if (s.minima)
            sum[i] = f_fma(m * dx, f_set(c->of[i].sum[b]), sum[i]);
    }
}

/* The sums of columns that do not exist are anything. */
INLINE void sums_before(const struct ending *e, F sum[COLUMNS]) {
    UNROLL
    for (size_t i = 0; i < COLUMNS; i++)
        if (i < e->n)
            sum[i] = sum_before(e, i);
}
INLINE void put_sums(const struct ending *e, const F sum[COLUMNS]) {
    UNROLL
    for (size_t i = 0; i < COLUMNS; i++)
        if (i < e->n)
            put_sum(e, i, sum[i]);
}

/* Part `odd` of a run.  What a meeting makes stays in its tiles until the next one, and ends in the one after that
 * (e), with sums that stay in registers from a run's first part to its last: a store that waits for its tile is some
 * 70 operations, which fill what the processor keeps of those that wait. */
INLINE void meet32(struct shape s, const struct part32 *w, const struct columns32 *c, const struct ending *e,
                   results out[2], bool odd, const struct packing *x, F sum[COLUMNS]) {
    V(*from)[COLUMNS] = out[odd], (*to)[COLUMNS] = out[!odd];
    if (!odd)
        sums_before(e, sum);
#define PRODUCT(b, column, weight)                                                                 \
    TILE_LOAD(column, c->x[b], 32);                                                                \
    TILE_LOAD(weight, w->w[b], 64);                                                                \
    TILE_STORE(b, to[b], 64);                                                                      \
    TILE_ZERO(b);                                                                                  \
    end32(s, e, from[b], b, sum);                                                                  \
    pack_some(x, pack32, b);                                                                       \
    TILE_DOT(b, column, weight)
    PRODUCT(0, 4, 6);
    PRODUCT(1, 5, 7);
    PRODUCT(2, 4, 6);
    PRODUCT(3, 5, 7);
#undef PRODUCT
    if (odd)
        put_sums(e, sum);
}

/* The run before, of which one part waits in out[0] and one in tiles. */
INLINE void end_all32(struct shape s, struct ending e[PARTS], results out[2], F sum[COLUMNS]) {
    TILE_STORE(0, out[1][0], 64);
    TILE_STORE(1, out[1][1], 64);
    TILE_STORE(2, out[1][2], 64);
    TILE_STORE(3, out[1][3], 64);
    sums_before(&e[0], sum);
    for (size_t h = 0; h < PARTS; h++)
        for (size_t b = 0; b < PART; b++)
            end32(s, &e[h], out[h][b], b, sum);
    put_sums(&e[1], sum);
    e[0].n = e[1].n = 0;
}

INLINE void panel32(TYPE_32, const struct panel *p) {
    struct part32 run[TILES][PARTS];
    results out[2];
    struct packing *x = p->packing;
    struct ending e[PARTS] = {{.weights = run, .columns = x->next}, {.weights = run, .columns = x->next}};
    F sum[COLUMNS] = {f_zero()};
    for (size_t t = 0; t < tiles_of(p); t++) {
        const struct rows r = rows_of(p, t);
        prefetch_tile(p, t + TILES_AHEAD, p->block * size, p->n_blocks * size);
        for (size_t b = 0; b < PARTS * PART; b++)
            if (b < p->n_blocks)
                unpack32(run[t], s, unpack, size, &r, b, p->block + b);
            else
                no_block32(run[t], b);
    }
    for (size_t j = 0; j < p->n_x; j += COLUMNS) {
        const size_t n = tiles_of(p) * PARTS;
        if (x->done < x->n) {
            end_all32(s, e, out, sum);
            pack_rest(x, pack32);
        }
        begin(p, j, COLUMNS, PARTS * PART * sizeof(struct lode_block_a32));
        const struct columns32 *columns = x->ready;
        for (size_t t = 0; t < tiles_of(p); t++)
#pragma GCC unroll 2
            for (size_t h = 0; h < PARTS; h++) {
                meet32(s, &run[t][h], &columns[h], &e[h], out, h, x, sum);
                go_on(x, t * PARTS + h, n);
                e[h] = ending(p, t, j, p->block == 0);
                e[h].weights = &run[t][h];
                e[h].columns = &columns[h];
            }
    }
    end_all32(s, e, out, sum);
}

#endif
