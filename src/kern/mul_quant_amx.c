/* Products of quantised weights with many columns, on AMX tiles; few columns are AVX-512's with VNNI.
 *
 * tile_unpack.h's vectors (four neighbouring codes of each of 16 rows) are, eight of them, the right
 * operand of TILE_DOT for 32 numbers; the left one are 16 columns as they lie, 32 bytes of each.  So
 * one instruction gives the integer sums of 32 numbers for 16 rows and 16 columns, a vector for each
 * column whose lane i belongs to row i, and what follows is mul_tile.h's arithmetic: the scale of the
 * row and the multiplier of the column in int32, or the float chain of a block of 32.
 *
 * Types with a scale for 16 numbers would use half of each tile.  Their scales go into the codes
 * instead: scale (q - bias) = 64 high + low, at most 128 x 32 in size, in two signed bytes and two
 * products.
 *
 * Codes are signed here: a bias is taken off before they are stored.
 */
#include "kern/vec_avx512.h"

#define V_WIDE_BIAS 0
#include "kern/mul_shape.h"
#include "kern/tile_amx.h"

enum {
    TILES = 2,          /* tiles of 16 rows that pass a group of columns together */
    COLUMNS = 16,       /* rows of a left operand */
    CHUNK = 8 * COLUMNS, /* see mul_tile.h */
    FEW = 6,            /* fewer columns than this are not worth a tile */
    DOTS = 8,           /* groups of 32 numbers that are multiplied before their sums are used */
};

/* The integer sums of DOTS groups for COLUMNS columns: lane i of [g][j] belongs to row i. */
typedef V products[DOTS][COLUMNS];

/* Registers 0 and 1 are sums, 2 and 3 columns, 4 and 5 weights; 6 and 7 sums and columns of the last
 * group, which has fewer columns. */
static void configure(size_t n_last) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        const int columns = i == 2 || i == 3 || i == 7, weights = i == 4 || i == 5;
        c.bytes[i] = columns ? 32 : 64;
        c.rows[i] = weights ? 8 : i >= 6 ? (uint8_t)(n_last ? n_last : 1) : COLUMNS;
    }
    TILE_CONFIG(&c);
}

/* sums[g] = the first n groups of w, eight vectors each, times the columns at x: group g of a column
 * lies `step` bytes after its first. */
INLINE void multiply(products sums, int n, const V *w, const int8_t *x, size_t step, size_t x_stride,
                     size_t n_cols) {
    int g = 0;
    for (; g + 2 <= n && n_cols == COLUMNS; g += 2) {
        TILE_LOAD(2, x + (size_t)g * step, x_stride);
        TILE_LOAD(4, w + 8 * g, 64);
        TILE_ZERO(0);
        TILE_DOT(0, 2, 4);
        TILE_LOAD(3, x + ((size_t)g + 1) * step, x_stride);
        TILE_LOAD(5, w + 8 * g + 8, 64);
        TILE_ZERO(1);
        TILE_DOT(1, 3, 5);
        TILE_STORE(0, sums[g], 64);
        TILE_STORE(1, sums[g + 1], 64);
    }
    for (; g < n && n_cols == COLUMNS; g++) {
        TILE_LOAD(2, x + (size_t)g * step, x_stride);
        TILE_LOAD(4, w + 8 * g, 64);
        TILE_ZERO(0);
        TILE_DOT(0, 2, 4);
        TILE_STORE(0, sums[g], 64);
    }
    for (; g < n; g++) {
        TILE_LOAD(7, x + (size_t)g * step, x_stride);
        TILE_LOAD(4, w + 8 * g, 64);
        TILE_ZERO(6);
        TILE_DOT(6, 7, 4);
        TILE_STORE(6, sums[g], 64);
    }
}

/* What stands between unpacking and the end of a block: each group of columns meets each tile, and
 * while the vectors end one meeting the tiles are busy with the next.  start(buffer, t, j, n) and
 * end(buffer, t, j, n): tile t, n columns from j on. */
#define EACH_MEETING(n_x, n_tiles, start, end)                                                     \
    do {                                                                                           \
        const size_t n_meetings = ((n_x) + COLUMNS - 1) / COLUMNS * (n_tiles);                     \
        for (size_t m = 0; m <= n_meetings; m++) {                                                 \
            if (m < n_meetings) {                                                                  \
                const size_t j = m / (n_tiles) * COLUMNS;                                          \
                start(m % 2, m % (n_tiles), j, least((n_x)-j, COLUMNS));                           \
            }                                                                                      \
            if (m > 0) {                                                                           \
                const size_t j = (m - 1) / (n_tiles) * COLUMNS;                                    \
                end((m - 1) % 2, (m - 1) % (n_tiles), j, least((n_x)-j, COLUMNS));                 \
            }                                                                                      \
        }                                                                                          \
    } while (0)

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* What a panel of up to TILES x 16 rows and CHUNK columns is multiplied with. */
struct panel {
    struct rows r[TILES];
    size_t n_tiles, next; /* `next` bytes on begin the rows of the next panel */
    const uint8_t *x;
    size_t x_stride, n_x, k;
};

/* ---- blocks of 256 ---- */

struct block256 {
    struct head head;
    V low[64], high[64]; /* high: groups of 16 only */
};

/* scale (q - bias) of four codes as 64 high + low, low from -32 to 31. */
INLINE void scaled(V *low, V *high, V codes, int bias, V scale) {
    const V16 s = (V16)((scale & v_set32(0xffff)) | scale << 16), b = (V16){0} + (uint16_t)bias;
    const V even = (V)(((V16)codes & 255) - b), odd = (V)(((V16)codes >> 8) - b);
    const V p[2] = {(V)((V16)even * s), (V)((V16)odd * s)};
    V h[2], l[2];
    for (int i = 0; i < 2; i++) {
        h[i] = v_sra16((V)((V16)p[i] + 32), 6);
        l[i] = (V)((V16)p[i] - ((V16)h[i] << 6));
    }
    *high = (h[0] & v_set32(0x00ff00ff)) | v_sll16(h[1], 8);
    *low = (l[0] & v_set32(0x00ff00ff)) | v_sll16(l[1], 8);
}

/* Block i of a tile. */
INLINE void unpack256(struct block256 *b, TYPE_256, const struct rows *r, size_t i) {
    const size_t off = i * size;
    read_head(&b->head, r, off);
#pragma GCC unroll 8
    for (int c = 0; c < 16 / s.runs; c++) {
        V w[4][4];
        unpack(w, &b->head, r, off, c);
        for (int n = 0; n < s.runs; n++)
            for (int v = 0; v < 4; v++) {
                const int g = group_of(s, c, n), at = 4 * g + v;
                if (s.groups == 16)
                    scaled(&b->low[at], &b->high[at], w[n][v], s.bias, b->head.sc[g]);
                else
                    b->low[at] = w[n][v];
            }
    }
}

/* The sums of columns after one more block. */
INLINE void end256(struct shape s, F *sums, const struct block256 *b, const products low,
                   const products high, const uint8_t *x, size_t x_stride, size_t n_cols) {
    const struct shape rest = {.minima = s.minima}; /* no bias is left */
    for (size_t j = 0; j < n_cols; j++) {
        const struct lode_block_a256 *a = (const struct lode_block_a256 *)(x + j * x_stride);
        V isum = v_zero();
        for (int g = 0; g < DOTS; g++) {
            const V mul = v_set32(a->m[g]);
            if (s.groups == 16)
                isum += mul * (low[g][j] + (high[g][j] << 6));
            else /* both fit 16 bits */
                isum += low[g][j] * v_dot2(v_zero(), b->head.sc[g], mul);
        }
        sums[j] = add_block(rest, sums[j], &b->head, a, isum);
    }
}

INLINE void panel256(F sums[TILES][CHUNK], TYPE_256, const struct panel *p) {
    const uint8_t *x = p->x;
    for (size_t b = 0; b < p->k / 256; b++, x += sizeof(struct lode_block_a256)) {
        struct block256 block[TILES];
        products low[2], high[2];
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size);
            unpack256(&block[t], s, read_head, unpack, size, &p->r[t], b);
        }
        const int8_t *q = ((const struct lode_block_a256 *)x)->q;
#define START(buffer, t, j, n)                                                                     \
    multiply(low[buffer], DOTS, block[t].low, q + (j) * p->x_stride, 32, p->x_stride, n);          \
    if (s.groups == 16)                                                                            \
    multiply(high[buffer], DOTS, block[t].high, q + (j) * p->x_stride, 32, p->x_stride, n)
#define END(buffer, t, j, n)                                                                       \
    end256(s, &sums[t][j], &block[t], (const V(*)[COLUMNS])low[buffer],                            \
           (const V(*)[COLUMNS])high[buffer], x + (j) * p->x_stride, p->x_stride, n)
        EACH_MEETING(p->n_x, p->n_tiles, START, END);
#undef START
#undef END
    }
}

/* ---- blocks of 32 ---- */

struct run32 {
    V w[DOTS * 8];
    F d[DOTS], m[DOTS];
};

INLINE void end32(struct shape s, F *sums, const struct run32 *run, int n_blocks,
                  const products dots, const uint8_t *x, size_t x_stride, size_t n_cols) {
    for (size_t j = 0; j < n_cols; j++) {
        const struct lode_block_a32 *a = (const struct lode_block_a32 *)(x + j * x_stride);
        F acc = sums[j];
        for (int b = 0; b < n_blocks; b++) {
            const F dx = f_set(a[b].d);
            V isum = dots[b][j];
            if (s.wide && s.bias) /* a whole byte of codes has lost 128, which is none of its bias */
                isum += v_set32((uint32_t)(-s.bias * a[b].sum));
            acc = f_fma(run->d[b] * dx, f_int(isum), acc);
            if (s.minima)
                acc = f_fma(run->m[b] * dx, f_set((float)a[b].sum), acc);
        }
        sums[j] = acc;
    }
}

INLINE void panel32(F sums[TILES][CHUNK], TYPE_32, const struct panel *p) {
    const size_t n_blocks = p->k / 32;
    const uint8_t *x = p->x;
    for (size_t b = 0; b < n_blocks; b += DOTS, x += DOTS * sizeof(struct lode_block_a32)) {
        const int n = (int)least(n_blocks - b, DOTS);
        struct run32 run[TILES];
        products dots[2];
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size * (size_t)n);
            for (int c = 0; c < n; c++) {
                V *w = &run[t].w[8 * c];
                run[t].m[c] = f_zero();
                unpack(w, &run[t].d[c], &run[t].m[c], &p->r[t], (b + (size_t)c) * size);
                for (int i = 0; i < 8 && !s.wide && s.bias; i++)
                    w[i] = (V)((V8)w[i] - (uint8_t)s.bias);
            }
        }
        const int8_t *q = ((const struct lode_block_a32 *)x)->q;
#define START(buffer, t, j, n_cols)                                                                \
    multiply(dots[buffer], n, run[t].w, q + (j) * p->x_stride, sizeof(struct lode_block_a32),      \
             p->x_stride, n_cols)
#define END(buffer, t, j, n_cols)                                                                  \
    end32(s, &sums[t][j], &run[t], n, (const V(*)[COLUMNS])dots[buffer], x + (j) * p->x_stride,    \
          p->x_stride, n_cols)
        EACH_MEETING(p->n_x, p->n_tiles, START, END);
#undef START
#undef END
    }
}

/* ---- all of a product ---- */

typedef void panel_fn(F sums[TILES][CHUNK], const struct panel *p);

static void mul(panel_fn *panel, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    configure(n_x % COLUMNS);
    for (size_t j = 0; j < n_x; j += CHUNK) {
        struct panel p = {.next = TILES * LANES * w_stride, .x = x + j * x_stride,
                          .x_stride = x_stride, .n_x = least(n_x - j, CHUNK), .k = k};
        for (size_t i = 0; i < n_w; i += TILES * LANES) {
            F sums[TILES][CHUNK];
            p.n_tiles = (least(n_w - i, TILES * LANES) + LANES - 1) / LANES;
            for (size_t t = 0; t < p.n_tiles; t++) {
                const size_t first = i + t * LANES;
                p.r[t] = tile_rows(w + first * w_stride, w_stride, rows_left(n_w, first));
                for (size_t c = 0; c < p.n_x; c++)
                    sums[t][c] = f_zero();
            }
            panel(sums, &p);
            for (size_t t = 0; t < p.n_tiles; t++)
                for (size_t c = 0; c < p.n_x; c++)
                    f_store(y + (j + c) * ldy + i + t * LANES, rows_left(n_w, i + t * LANES),
                            sums[t][c]);
        }
    }
    TILE_RELEASE(); /* so that a switch of threads need not save them */
}

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    static __attribute__((noinline)) void panel_##name(F sums[TILES][CHUNK],                       \
                                                       const struct panel *p) {                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        panel##block(sums, s, UNPACK_##block(name), size, p);                                      \
    }                                                                                              \
    void mul_##name##_amx LODE_MUL_ARGS {                                                          \
        if (n_x < FEW)                                                                             \
            mul_##name##_avx512vnni(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                \
        else                                                                                       \
            mul(panel_##name, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                      \
    }
#include "kern/mul_types.h"
