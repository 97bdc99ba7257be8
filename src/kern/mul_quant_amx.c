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
 * While a meeting of 16 rows and 16 columns is multiplied, the meeting before is brought to its end, a column or
 * a few after each product: the processor looks ahead some hundred operations, too few to find the vectors'
 * work behind all of the tiles'.  bench/notes/kern-amx.md
 */
#include "kern/vec_avx512.h"

#define V_WIDE_BIAS 0
#include "kern/mul_shape.h"
#include "kern/tile_amx.h"

enum {
    TILES = 2,    /* tiles of 16 rows that meet a group of columns one after the other */
    COLUMNS = 16, /* rows of a left operand */
    CHUNK = 512,  /* columns whose operands wait for all rows */
    FEW_32 = 12,  /* fewer columns than this are not worth a tile, */
    FEW_256 = 24, /* nor digits */
    AHEAD = 6,    /* columns that are asked for before they are packed */
    PART = 4,     /* blocks of 32 that make a meeting, */
    PARTS = 2,    /* and meetings of blocks that are unpacked together */
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

/* Up to TILES x 16 rows, and the columns that they meet: n_x in groups of 16.  y is the accumulator; it is
 * not read at first. */
struct strip {
    struct rows r[TILES];
    __mmask16 rows[TILES]; /* that exist */
    size_t next;           /* bytes from a row to its place in the next strip */
    const void *columns;   /* struct columns256 or columns32 of each group */
    float *y;
    size_t ldy, n_x;
    size_t block, n_blocks; /* the first and how many, of the rows */
    bool first;
};

/* Lines of the next strip's rows: their blocks lie far apart. */
INLINE void prefetch_rows(const struct strip *p, size_t at, size_t bytes) {
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < LANES; i++)
            prefetch(p->r[t].p[i] + p->next + at, bytes);
}

/* A meeting whose products are there: what its end needs.  n: columns that exist. */
struct ending {
    V (*sums)[COLUMNS];
    const void *weights, *columns;
    float *y;
    size_t ldy, n;
    __mmask16 rows, old; /* old: rows whose sums go on */
};

INLINE struct ending ending(const struct strip *p, size_t t, size_t j, results sums) {
    return (struct ending){.sums = sums, .y = p->y + j * p->ldy + t * LANES, .ldy = p->ldy,
                           .n = least(p->n_x - j, COLUMNS), .rows = p->rows[t],
                           .old = p->first ? 0 : p->rows[t]};
}
INLINE F sum_before(const struct ending *e, size_t i) {
    return (F)_mm512_maskz_loadu_ps(e->old, e->y + i * e->ldy);
}
INLINE void put_sum(const struct ending *e, size_t i, F sum) {
    _mm512_mask_storeu_ps(e->y + i * e->ldy, e->rows, (__m512)sum);
}

/* ---- blocks of 256 ---- */

/* 16 columns, a block of each. */
struct columns256 {
    int8_t x[2][4][COLUMNS][64]; /* high, low digits; 64 numbers of a column */
    struct {
        float d;
        int16_t sums[16];
        uint8_t pad[28];
    } of[COLUMNS];
};

struct block256 {
    struct head head;
    V w[2][64]; /* high, low digits; or all in one */
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

static void pack256(struct columns256 *c, const uint8_t *x, size_t x_stride, size_t n_x) {
    for (size_t j = 0; j < n_x; j++, x += x_stride) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)x;
        struct columns256 *out = &c[j / COLUMNS];
        const size_t i = j % COLUMNS;
        prefetch(x + AHEAD * x_stride, sizeof *a);
        out->of[i].d = a->d;
        memcpy(out->of[i].sums, a->sums, sizeof a->sums);
        for (int g = 0; g < 4; g++) {
            const __m512i m = _mm512_inserti64x4(_mm512_set1_epi16(a->m[2 * g]),
                                                 _mm256_set1_epi16(a->m[2 * g + 1]), 1);
            V even, odd, digit[2];
            memcpy(&digit, a->q + 64 * g, 64);
            times(&even, &odd, digit[0], (V)m);
            split(digit, even, odd);
            memcpy(out->x[0][g][i], &digit[0], 64);
            memcpy(out->x[1][g][i], &digit[1], 64);
        }
    }
}

INLINE void unpack256(struct block256 *b, TYPE_256, const struct rows *r, size_t i) {
    const size_t off = i * size;
    const V8 bias = (V8){0} + (uint8_t)s.bias;
    read_head(&b->head, r, off);
#pragma GCC unroll 8
    for (int c = 0; c < 16 / s.runs; c++) {
        V w[4][4];
        unpack(w, &b->head, r, off, c);
        for (int n = 0; n < s.runs; n++)
            for (int v = 0; v < 4; v++) {
                const int g = group_of(s, c, n), at = 4 * g + v;
                const V sc = b->head.sc[g * s.groups / 16], scale = (sc & v_set32(0xffff)) | sc << 16;
                const V codes = turned(s) ? (V)(bias - (V8)w[n][v]) : (V)((V8)w[n][v] - bias);
                V even, odd, digit[2];
                times(&even, &odd, codes, scale);
                split(digit, even, odd);
                b->w[0][at] = digits(s) == 1 ? join(even, odd) : digit[0];
                if (digits(s) == 2)
                    b->w[1][at] = digit[1];
            }
    }
}

/* What ends read of a block, in registers: tiles' instructions let nothing that is in memory stay there. */
struct held {
    V mn[8];
    F d, dmin;
};
INLINE struct held hold(struct shape s, const struct ending *e) {
    const struct head *h = &((const struct block256 *)e->weights)->head;
    struct held held = {.d = h->d};
    if (s.minima) {
        held.dmin = h->dmin;
        for (int g = 0; g < 8; g++)
            held.mn[g] = h->mn[g];
    }
    return held;
}

/* Column i of a meeting. */
INLINE void end256(struct shape s, const struct held *h, const struct ending *e, size_t i) {
    if (i >= e->n)
        return;
    const struct columns256 *c = e->columns;
    const F dx = f_set(c->of[i].d);
    V isum = (e->sums[0][i] << 6) + e->sums[1][i];
    if (digits(s) == 2)
        isum = (isum << 6) + e->sums[2][i];
    F sum = f_fma(h->d * dx, f_int(turned(s) ? v_zero() - isum : isum), sum_before(e, i));
    if (s.minima) {
        V msum = v_zero();
        for (int g = 0; g < 8; g++)
            msum = v_dot2(msum, h->mn[g], v_bcast4(&c->of[i].sums[2 * g]));
        sum = f_fnma(h->dmin * dx, f_int(msum), sum);
    }
    put_sum(e, i, sum);
}

/* A tile and 16 columns; e comes to its end meanwhile. */
INLINE void meet256(struct shape s, results out, const struct block256 *b, const struct columns256 *c,
                    const struct ending *e) {
    const struct held held = hold(s, e);
    TILE_ZERO(0);
    TILE_ZERO(1);
    if (digits(s) == 2)
        TILE_ZERO(2);
#pragma GCC unroll 4
    for (size_t g = 0; g < 4; g++) {
        TILE_LOAD(4, c->x[0][g], 64);
        TILE_LOAD(6, b->w[0] + 16 * g, 64);
        TILE_DOT(0, 4, 6);
        end256(s, &held, e, 4 * g);
        if (digits(s) == 1) {
            end256(s, &held, e, 4 * g + 1);
            TILE_LOAD(5, c->x[1][g], 64);
            TILE_DOT(1, 5, 6);
        } else {
            TILE_LOAD(7, b->w[1] + 16 * g, 64);
            TILE_DOT(1, 4, 7);
            end256(s, &held, e, 4 * g + 1);
            TILE_LOAD(5, c->x[1][g], 64);
            TILE_DOT(2, 5, 7);
        }
        end256(s, &held, e, 4 * g + 2);
        if (digits(s) == 2)
            TILE_DOT(1, 5, 6);
        end256(s, &held, e, 4 * g + 3);
    }
    TILE_STORE(0, out[0], 64);
    TILE_STORE(1, out[1], 64);
    if (digits(s) == 2)
        TILE_STORE(2, out[2], 64);
}

INLINE void strip256(TYPE_256, const struct strip *p) {
    struct block256 block[TILES];
    results out[2];
    struct ending e = {.weights = block};
    prefetch_rows(p, p->block * size, size);
    for (size_t t = 0; t < TILES; t++)
        unpack256(&block[t], s, read_head, unpack, size, &p->r[t], p->block);
    for (size_t j = 0; j < p->n_x; j += COLUMNS)
        for (size_t t = 0; t < TILES; t++) {
            const struct columns256 *c = (const struct columns256 *)p->columns + j / COLUMNS;
            meet256(s, out[t % 2], &block[t], c, &e);
            e = ending(p, t, j, out[t % 2]);
            e.weights = &block[t];
            e.columns = c;
        }
    const struct held held = hold(s, &e);
    for (size_t i = 0; i < e.n; i++)
        end256(s, &held, &e, i);
}

/* ---- blocks of 32 ---- */

/* A meeting is PART blocks of a tile and of 16 columns, a run PARTS times that.  Where a row ends before,
 * blocks follow that change no sum, not even the sign of a zero: all 0, but -0 for the scales of weights. */
struct columns32 {
    int8_t x[PART][COLUMNS][32];
    struct {
        float d;
        int32_t sum;
    } of[COLUMNS][PART];
};

struct part32 {
    V w[PART][8];
    F d[PART], m[PART];
};

static void pack32(struct columns32 c[][PARTS], const uint8_t *x, size_t x_stride, size_t n_x,
                   size_t n_blocks) {
    for (size_t j = 0; j < n_x; j++, x += x_stride)
        for (size_t b = 0; b < PARTS * PART; b++) {
            static const struct lode_block_a32 none = {.d = 1};
            const struct lode_block_a32 *a =
                b < n_blocks ? (const struct lode_block_a32 *)x + b : &none;
            struct columns32 *out = &c[j / COLUMNS][b / PART];
            memcpy(out->x[b % PART][j % COLUMNS], a->q, 32);
            out->of[j % COLUMNS][b % PART].d = a->d;
            out->of[j % COLUMNS][b % PART].sum = a->sum;
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

INLINE void end32(struct shape s, const struct ending *e, size_t i) {
    if (i >= e->n)
        return;
    const struct part32 *w = e->weights;
    const struct columns32 *c = e->columns;
    F sum = sum_before(e, i);
#pragma GCC unroll 4
    for (size_t b = 0; b < PART; b++) {
        const F dx = f_set(c->of[i][b].d);
        const int32_t *x_sum = &c->of[i][b].sum;
        V isum = e->sums[b][i];
        if (s.wide && s.bias) /* a whole byte of codes has lost 128, which is none of its bias */
            isum += v_set32((uint32_t)(-s.bias * *x_sum));
        sum = f_fma(w->d[b] * dx, f_int(isum), sum);
        if (s.minima)
            sum = f_fma(w->m[b] * dx, f_int(v_bcast4(x_sum)), sum);
    }
    put_sum(e, i, sum);
}

INLINE void meet32(struct shape s, results out, const struct part32 *w, const struct columns32 *c,
                   const struct ending *e) {
#define PRODUCT(b, column, weight)                                                                 \
    TILE_ZERO(b);                                                                                  \
    TILE_LOAD(column, c->x[b], 32);                                                                \
    TILE_LOAD(weight, w->w[b], 64);                                                                \
    TILE_DOT(b, column, weight);                                                                   \
    for (size_t i = 0; i < COLUMNS / PART; i++)                                                    \
        end32(s, e, COLUMNS / PART * b + i);                                                       \
    TILE_STORE(b, out[b], 64)
    PRODUCT(0, 4, 6);
    PRODUCT(1, 5, 7);
    PRODUCT(2, 4, 6);
    PRODUCT(3, 5, 7);
#undef PRODUCT
}

INLINE void strip32(TYPE_32, const struct strip *p) {
    struct part32 run[TILES][PARTS];
    results out[2];
    struct ending e = {.n = 0};
    prefetch_rows(p, p->block * size, p->n_blocks * size);
    for (size_t t = 0; t < TILES; t++)
        for (size_t b = 0; b < PARTS * PART; b++)
            if (b < p->n_blocks)
                unpack32(run[t], s, unpack, size, &p->r[t], b, p->block + b);
            else
                no_block32(run[t], b);
    for (size_t j = 0; j < p->n_x; j += COLUMNS)
        for (size_t t = 0; t < TILES; t++)
            for (size_t h = 0; h < PARTS; h++) {
                const struct columns32 *c = (const struct columns32 *)p->columns + j / COLUMNS * PARTS + h;
                meet32(s, out[h % 2], &run[t][h], c, &e);
                e = ending(p, t, j, out[h % 2]);
                e.weights = &run[t][h];
                e.columns = c;
                if (h > 0)
                    e.old = e.rows;
            }
    for (size_t i = 0; i < e.n; i++)
        end32(s, &e, i);
}

/* ---- all of a product ---- */

typedef void strip_fn(const struct strip *p);

static void mul(strip_fn *strip, size_t block, float *y, size_t ldy, const uint8_t *w, size_t w_stride,
                size_t n_w, const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    const size_t run = block == 256 ? 1 : PARTS * PART, n_blocks = k / block;
    const size_t size = block == 256 ? sizeof(struct lode_block_a256) : sizeof(struct lode_block_a32);
    union {
        struct columns256 of256[CHUNK / COLUMNS];
        struct columns32 of32[CHUNK / COLUMNS][PARTS];
    } columns;
    configure(block == 256 ? 64 : 32);
    for (size_t j = 0; j < n_x; j += CHUNK)
        for (size_t b = 0; b < n_blocks; b += run) {
            const uint8_t *from = x + j * x_stride + b * size;
            struct strip p = {.next = TILES * LANES * w_stride, .columns = &columns, .ldy = ldy,
                              .n_x = least(n_x - j, CHUNK), .block = b,
                              .n_blocks = least(n_blocks - b, run), .first = b == 0};
            if (block == 256)
                pack256(columns.of256, from, x_stride, p.n_x);
            else
                pack32(columns.of32, from, x_stride, p.n_x, p.n_blocks);
            for (size_t i = 0; i < n_w; i += TILES * LANES) {
                for (size_t t = 0; t < TILES; t++) { /* where only one tile is left it comes twice */
                    const size_t first = i + t * LANES < n_w ? i + t * LANES : i;
                    const int n = rows_left(n_w, first);
                    p.r[t] = tile_rows(w + first * w_stride, w_stride, n);
                    p.rows[t] = first == i + t * LANES ? (__mmask16)((1u << n) - 1) : 0;
                }
                p.y = y + j * ldy + i;
                strip(&p);
            }
        }
    TILE_RELEASE(); /* so that a switch of threads need not save them */
}

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    static __attribute__((noinline)) void strip_##name(const struct strip *p) {                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        strip##block(s, UNPACK_##block(name), size, p);                                            \
    }                                                                                              \
    void mul_##name##_amx LODE_MUL_ARGS {                                                          \
        if (n_x < FEW_##block || k == 0)                                                           \
            mul_##name##_avx512intel(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
        else                                                                                       \
            mul(strip_##name, block, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);               \
    }
#include "kern/mul_types.h"
