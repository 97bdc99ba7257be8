/* Products of quantised weights with many columns, on AMX tiles; few columns are mul_quant_avx512intel.c's.
 *
 * tile_unpack.h's vectors (four neighbouring codes of each of 16 rows) are the right operand of TILE_DOT;
 * the left one are bytes of each of 16 columns.  So one instruction gives integer sums for 16 rows and 16
 * columns, a vector for each column whose lane i belongs to row i.
 *
 * Blocks of 256 add up in the tiles as a whole, because their scales and multipliers go into the operands:
 * scale (q - bias), at most 4096 in size, and mul xq, at most 2032, are 64 high + low, high from -64 to 64, low
 * from 0 to 63, and
 *
 *     isum = 4096 high high' + 64 (high low' + low high') + low low'
 *
 * is three sums of four products of bytes.  They may wrap around, the total does not.  Q2_K and Q3_K need
 * one digit.  Of blocks of 32 each is a product.  What follows is mul_tile.h's arithmetic.
 *
 * While a meeting of 16 rows and 16 columns is multiplied, an earlier one is brought to its end, a piece after
 * each product: the processor looks ahead some hundred operations, too few to find the vectors' work behind all
 * of the tiles', and half as many where another thread has its share of the core.  So operands are loaded, and
 * sums set to zero, a piece before their product.  Columns of the next meetings are packed meanwhile, a few in
 * each, into the nearest cache, where they stay until all rows have met them.  bench/notes/kern-amx.md
 */
#include "kern/vec_avx512.h"

#define V_WIDE_BIAS 0
#include "kern/mul_shape.h"
#include "kern/tile_amx.h"

enum {
    TILES = 32,      /* tiles of 16 rows that are unpacked together, for all columns */
    COLUMNS = 16,    /* rows of a left operand: a group */
    GROUPS_256 = 2,  /* groups that meet all tiles one after the other; more fill the nearest cache (of blocks of 32: 1) */
    NEAR_256 = GROUPS_256 * COLUMNS,
    CHUNK = 512,     /* columns whose sums wait for the next blocks */
    FEW_32 = 12,     /* fewer columns than this are not worth a tile, */
    FEW_256 = 24,    /* nor digits */
    AHEAD = 6,       /* columns that are asked for before they are packed, */
    TILES_AHEAD = 2, /* and tiles before they are unpacked */
    PART = 4,        /* blocks of 32 that make a meeting, */
    PARTS = 2,       /* and meetings that make a run, whose blocks are unpacked together */
    PAGE = 4096,     /* see struct work256 */
};

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* The results of a meeting, where the vectors take them from. */
typedef V results[PART][COLUMNS];

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

/* ---- blocks of 256 ---- */

/* 16 columns, a block of each: digits, and what is beside them. */
struct columns256 {
    int8_t x[2][4][COLUMNS][64]; /* high, low digits; 64 numbers of a column */
};
struct beside256 {
    float d;
    int16_t sums[16], pairs[8]; /* pairs: sums of 32 numbers, if they `fit` */
    uint32_t fit;
    uint8_t pad[8];
};
struct group256 {
    struct columns256 c[GROUPS_256];
    struct beside256 of[PAGE / COLUMNS / sizeof(struct beside256)][COLUMNS];
};
_Static_assert(sizeof(struct group256) % PAGE == 0 && PAGE / COLUMNS / sizeof(struct beside256) >= GROUPS_256, "");

struct head256 {
    V mn[8], pairs[4];
    F d, dmin;
};

/* A load that comes soon after a store to the same place of another page waits for it.  So what is loaded to tiles
 * lies at whole pages, of which quarter g is loaded as the g-th, and results are stored to the last three quarters:
 * where they lay by chance, products of 512 columns took up to a quarter longer. */
struct work256 {
    V w[TILES][2][64]; /* high, low digits; or all in one */
    results out[2];
    struct head256 head[TILES];
};

INLINE int digits(struct shape s) { return s.top && s.top <= 7 ? 1 : 2; }
/* Codes below their bias would be 128 at a negative scale, and no byte: they are turned. */
INLINE int turned(struct shape s) { return digits(s) == 1 && s.bias; }

/* The low bytes of two vectors of int16. */
INLINE V join(V even, V odd) { return (even & v_set32(0x00ff00ff)) | v_sll16(odd, 8); }

/* digit[0] = high, digit[1] = low digits of even and odd numbers (int16). */
INLINE void split(V digit[2], V even, V odd) {
    const V byte = v_set32(0x00ff00ff);
    digit[0] = (v_srl16(even, 6) & byte) | (v_sll16(odd, 2) & ~byte);
    digit[1] = join(even, odd) & v_set8(63);
}

/* Signed bytes times m, as even and odd int16. */
INLINE void times(V *even, V *odd, V bytes, V m) {
    *even = v_mul16(v_sra16(v_sll16(bytes, 8), 8), m);
    *odd = v_mul16(v_sra16(bytes, 8), m);
}

/* Numbers 64 g .. 64 g + 63 of column j. */
INLINE void pack256(const struct packing *p, size_t j, size_t g) {
    const struct lode_block_a256 *a = (const struct lode_block_a256 *)(p->x + j * p->x_stride);
    struct group256 *to = p->next;
    int8_t(*high)[COLUMNS][64] = to->c[j / COLUMNS].x[0], (*low)[COLUMNS][64] = to->c[j / COLUMNS].x[1];
    const size_t i = j % COLUMNS;
    if (g == 0) {
        struct beside256 *b = &to->of[j / COLUMNS][i];
        prefetch(p->x + (j + AHEAD) * p->x_stride, sizeof *a);
        b->d = a->d;
        memcpy(b->sums, a->sums, sizeof a->sums);
        b->fit = sums_of_32(b->pairs, a);
    }
    const __m512i m =
        _mm512_inserti64x4(_mm512_set1_epi16(a->m[2 * g]), _mm256_set1_epi16(a->m[2 * g + 1]), 1);
    V even, odd, digit[2];
    memcpy(&digit, a->q + 64 * g, 64);
    times(&even, &odd, digit[0], (V)m);
    split(digit, even, odd);
    memcpy(high[g][i], &digit[0], 64);
    memcpy(low[g][i], &digit[1], 64);
}

/* Where a group's numbers meet one minimum. */
INLINE int by_pairs(struct shape s) { return s.groups == 8; }

INLINE void unpack256(V to[2][64], struct head256 *h, TYPE_256, const struct rows *r, size_t i) {
    const size_t off = i * size;
    const V8 bias = (V8){0} + (uint8_t)s.bias;
    struct head head;
    read_head(&head, r, off);
    h->d = head.d;
    if (s.minima) {
        h->dmin = head.dmin;
        memcpy(h->mn, head.mn, sizeof h->mn);
        for (int g = 0; by_pairs(s) && g < 4; g++)
            h->pairs[g] = (head.mn[2 * g] & v_set32(0xffff)) | head.mn[2 * g + 1] << 16;
    }
#pragma GCC unroll 8
    for (int c = 0; c < 16 / s.runs; c++) {
        V w[4][4];
        unpack(w, &head, r, off, c);
        for (int n = 0; n < s.runs; n++)
            for (int v = 0; v < 4; v++) {
                const int g = group_of(s, c, n), at = 4 * g + v;
                const V sc = head.sc[g * s.groups / 16], scale = (sc & v_set32(0xffff)) | sc << 16;
                const V codes = turned(s) ? (V)(bias - (V8)w[n][v]) : (V)((V8)w[n][v] - bias);
                V even, odd, digit[2];
                times(&even, &odd, codes, scale);
                split(digit, even, odd);
                to[0][at] = digits(s) == 1 ? join(even, odd) : digit[0];
                if (digits(s) == 2)
                    to[1][at] = digit[1];
            }
    }
}

/* What ends read of a block, in registers: tiles' instructions let nothing that is in memory stay there. */
struct held {
    V mn[8];
    F d, dmin;
};
INLINE struct held hold(struct shape s, const struct ending *e) {
    const struct head256 *h = e->weights;
    struct held held = {.d = h->d};
    if (s.minima) {
        held.dmin = h->dmin;
        for (int g = 0; g < (by_pairs(s) ? 4 : 8); g++)
            held.mn[g] = by_pairs(s) ? h->pairs[g] : h->mn[g];
    }
    return held;
}

INLINE V minima256(struct shape s, const struct held *h, const struct ending *e, const struct beside256 *x) {
    V sum = v_zero();
    if (by_pairs(s) && __builtin_expect(x->fit, 1))
        for (int g = 0; g < 4; g++)
            sum = v_dot2(sum, h->mn[g], v_bcast4(&x->pairs[2 * g]));
    else if (by_pairs(s))
#pragma GCC unroll 1
        for (int g = 0; g < 8; g++)
            sum = v_dot2(sum, ((const struct head256 *)e->weights)->mn[g], v_bcast4(&x->sums[2 * g]));
    else
        for (int g = 0; g < 8; g++)
            sum = v_dot2(sum, h->mn[g], v_bcast4(&x->sums[2 * g]));
    return sum;
}

/* Column i of a meeting; in[1] to in[3]: its sums of high, both and low digits, or without the last. */
INLINE void end256(struct shape s, const struct held *h, const struct ending *e, results in, size_t i) {
    if (i >= e->n)
        return;
    const struct beside256 *x = (const struct beside256 *)e->columns + i;
    const F dx = f_set(x->d);
    V isum = (in[1][i] << 6) + in[2][i];
    if (digits(s) == 2)
        isum = (isum << 6) + in[3][i];
    F sum = f_fma(h->d * dx, f_int(turned(s) ? v_zero() - isum : isum), sum_before(e, i));
    if (s.minima)
        sum = f_fnma(h->dmin * dx, f_int(minima256(s, h, e, x)), sum);
    put_sum(e, i, sum);
}

/* A tile and 16 columns. */
struct pair256 {
    V (*w)[64];
    const struct columns256 *c;
};

/* Before the first meeting of some: what each meeting does for the one after it. */
INLINE void begin256(struct pair256 first) {
    TILE_LOAD(4, first.c->x[0][0], 64);
    TILE_LOAD(6, first.w[0], 64);
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
}

/* e, whose sums are in out[!odd], comes to its end and columns are packed meanwhile. */
INLINE void meet256(struct shape s, struct pair256 now, struct pair256 next, const struct ending *e, results out[2],
                    bool odd, const struct packing *x) {
    const struct held held = hold(s, e);
    V(*from)[COLUMNS] = out[!odd], (*to)[COLUMNS] = out[odd];
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        const struct pair256 *then = g < 3 ? &now : &next;
        const size_t h = (g + 1) % 4;
        TILE_DOT(0, 4, 6);
        if (digits(s) == 2)
            TILE_LOAD(7, now.w[1] + 16 * g, 64);
        else
            TILE_LOAD(5, now.c->x[1][g], 64);
        end256(s, &held, e, from, 4 * g);
        if (digits(s) == 2) {
            TILE_DOT(1, 4, 7);
            TILE_LOAD(5, now.c->x[1][g], 64);
        }
        end256(s, &held, e, from, 4 * g + 1);
        if (digits(s) == 2)
            TILE_DOT(2, 5, 7);
        TILE_LOAD(4, then->c->x[0][h], 64);
        end256(s, &held, e, from, 4 * g + 2);
        TILE_DOT(1, 5, 6);
        TILE_LOAD(6, then->w[0] + 16 * h, 64);
        end256(s, &held, e, from, 4 * g + 3);
        pack_some(x, pack256, (g + 2) % 4);
    }
    TILE_STORE(0, to[1], 64);
    TILE_ZERO(0);
    TILE_STORE(1, to[2], 64);
    TILE_ZERO(1);
    if (digits(s) == 2) {
        TILE_STORE(2, to[3], 64);
        TILE_ZERO(2);
    }
}

INLINE void end_all256(struct shape s, struct ending *e, results in) {
    const struct held held = hold(s, e);
#pragma GCC unroll 1
    for (size_t i = 0; i < e->n; i++)
        end256(s, &held, e, in, i);
    e->n = 0;
}

INLINE void panel256(TYPE_256, const struct panel *p) {
    struct work256 work __attribute__((aligned(PAGE)));
    struct packing *x = p->packing;
    struct ending e = {.weights = work.head};
    bool odd = false;
    for (size_t t = 0; t < tiles_of(p); t++) {
        const struct rows r = rows_of(p, t);
        prefetch_tile(p, t + TILES_AHEAD, p->block * size, size);
        unpack256(work.w[t], &work.head[t], s, read_head, unpack, size, &r, p->block);
    }
    for (size_t j = 0; j < p->n_x; j += NEAR_256) {
        const size_t groups = (least(p->n_x - j, NEAR_256) + COLUMNS - 1) / COLUMNS, n = tiles_of(p) * groups;
        if (x->done < x->n) {
            end_all256(s, &e, work.out[!odd]);
            pack_rest(x, pack256);
        }
        begin(p, j, NEAR_256, sizeof(struct lode_block_a256));
        const struct group256 *columns = x->ready;
        struct pair256 now = {work.w[0], &columns->c[0]};
        begin256(now);
        for (size_t i = 0; i < n; i++, odd = !odd) {
            const size_t t = i / groups, g = i % groups, then = i + 1 < n ? i + 1 : i;
            const struct pair256 next = {work.w[then / groups], &columns->c[then % groups]};
            meet256(s, now, next, &e, work.out, odd, x);
            now = next;
            go_on(x, i, n);
            e = ending(p, t, j + g * COLUMNS, p->block == 0);
            e.weights = &work.head[t];
            e.columns = columns->of[g];
        }
    }
    end_all256(s, &e, work.out[!odd]);
}

/* ---- blocks of 32 ---- */

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
#pragma GCC unroll 16
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
    if (e->n == COLUMNS) {
#pragma GCC unroll 16
        for (size_t i = 0; i < COLUMNS; i++)
            sum[i] = sum_before(e, i);
        return;
    }
#pragma GCC unroll 16
    for (size_t i = 0; i < COLUMNS; i++)
        if (i < e->n)
            sum[i] = sum_before(e, i);
}
INLINE void put_sums(const struct ending *e, const F sum[COLUMNS]) {
    if (e->n == COLUMNS) {
#pragma GCC unroll 16
        for (size_t i = 0; i < COLUMNS; i++)
            put_sum(e, i, sum[i]);
        return;
    }
#pragma GCC unroll 16
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
                meet32(s, &run[t][h], &columns[h], &e[h], out, h == 1, x, sum);
                go_on(x, t * PARTS + h, n);
                e[h] = ending(p, t, j, p->block == 0);
                e[h].weights = &run[t][h];
                e[h].columns = &columns[h];
            }
    }
    end_all32(s, e, out, sum);
}

/* ---- all of a product ---- */

typedef void panel_fn(const struct panel *p);

static void mul(panel_fn *panel, size_t block, float *y, size_t ldy, const uint8_t *w, size_t w_stride,
                size_t n_w, const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    const size_t run = block == 256 ? 1 : PARTS * PART, n_blocks = k / block;
    const size_t size = block == 256 ? sizeof(struct lode_block_a256) : sizeof(struct lode_block_a32);
    const size_t most = block == 256 ? NEAR_256 : COLUMNS;
    union {
        struct group256 of256;
        struct columns32 of32[PARTS];
    } columns[2] __attribute__((aligned(PAGE)));
    configure(block == 256 ? 64 : 32);
    for (size_t j = 0; j < n_x; j += CHUNK)
        for (size_t i = 0; i < n_w; i += TILES * LANES) {
            struct packing packing = {.x = x + j * x_stride, .x_stride = x_stride, .ready = &columns[0],
                                      .next = &columns[1], .n = least(least(n_x - j, CHUNK), most),
                                      .n_blocks = least(n_blocks, run)};
            for (size_t b = 0; b < n_blocks; b += run) {
                const size_t left = n_blocks - b;
                const struct panel p = {.w = w + i * w_stride, .w_stride = w_stride, .n_w = least(n_w - i, TILES * LANES),
                                        .x = x + j * x_stride + b * size, .x_stride = x_stride,
                                        .n_x = least(n_x - j, CHUNK), .y = y + j * ldy + i, .ldy = ldy, .block = b,
                                        .n_blocks = least(left, run), .n_next = least(left - least(left, run), run),
                                        .packing = &packing};
                panel(&p);
            }
        }
    TILE_RELEASE(); /* so that a switch of threads need not save them */
}

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    static __attribute__((noinline)) void panel_##name(const struct panel *p) {                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        panel##block(s, UNPACK_##block(name), size, p);                                            \
    }                                                                                              \
    void mul_##name##_amx LODE_MUL_ARGS {                                                          \
        if (n_x < FEW_##block || k == 0)                                                           \
            mul_##name##_avx512intel(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
        else                                                                                       \
            mul(panel_##name, block, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
    }
#include "kern/mul_types.h"
