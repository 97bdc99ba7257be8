/* Products of quantised weights with many columns, on AMX tiles; few columns are AVX-512's with VNNI.
 *
 * tile_unpack.h's vectors (four neighbouring codes of each of 16 rows) are, eight of them, the right
 * operand of TILE_DOT for 32 numbers; the left one are 32 bytes of each of 16 columns.  So one instruction gives the integer sums of 32 numbers for 16 rows and 16 columns, a vector for each
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
    TILES = 4,           /* tiles of 16 rows that pass a group of columns together */
    COLUMNS = 16,        /* rows of a left operand */
    CHUNK = 8 * COLUMNS, /* see mul_tile.h */
    FEW = 12,            /* fewer columns than this are not worth a tile */
    RUN = 8,             /* blocks of 32 that are unpacked before the columns see them */
};

/* What the tiles leave for the vectors: two times two results of 16 columns, lane i of each belongs to
 * row i.  While the vectors take up one pair the tiles make the other.  4096 bytes in all, so that no
 * load of one has the page offset of a store of the other that is still waiting for its tile: the
 * processor would hold it back. */
typedef V results[2][2][COLUMNS];

/* Columns as left operands, [group of 16 columns][32 numbers][column].  Where they lie their rows are
 * thousands of bytes apart: sixteen lines, and sixteen pages, for each load of a tile. */
typedef int8_t packed[CHUNK / COLUMNS][RUN][COLUMNS][32];

INLINE void pack(packed out, size_t j, int g, const int8_t q[32]) {
    memcpy(out[j / COLUMNS][g][j % COLUMNS], q, 32);
}

/* Registers 0 and 1 are sums, 2 and 3 columns, 4 and 5 weights. */
static void configure(void) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 6; i++) {
        c.bytes[i] = i == 2 || i == 3 ? 32 : 64;
        c.rows[i] = i < 4 ? COLUMNS : 8;
    }
    TILE_CONFIG(&c);
}

/* out[0] = w0 times x0, out[1] = w1 times x1. */
INLINE void multiply(V out[2][COLUMNS], const V *w0, const int8_t *x0, const V *w1,
                     const int8_t *x1) {
    TILE_ZERO(0);
    TILE_LOAD(2, x0, 32);
    TILE_LOAD(4, w0, 64);
    TILE_DOT(0, 2, 4);
    TILE_ZERO(1);
    TILE_LOAD(3, x1, 32);
    TILE_LOAD(5, w1, 64);
    TILE_DOT(1, 3, 5);
    TILE_STORE(0, out[0], 64);
    TILE_STORE(1, out[1], 64);
}

/* Every tile meets every group of columns, in `n_parts` (even) pairs of results.  make(buffer, t, j, part)
 * is ahead of use(buffer, t, j, part) by one; begin and end(t, j) stand around the parts of a meeting.
 * There are always 16 columns: those beyond the last repeat it, and are never stored. */
#define EACH_MEETING(n_x, n_tiles, n_parts, make, begin, use, end)                                 \
    do {                                                                                           \
        make(0, 0, 0, 0);                                                                          \
        for (size_t j = 0; j < (n_x); j += COLUMNS)                                                \
            for (size_t t = 0; t < (n_tiles); t++) {                                               \
                const bool turn = t + 1 == (n_tiles);                                              \
                const size_t next_t = turn ? 0 : t + 1, next_j = turn ? j + COLUMNS : j;           \
                begin(t, j);                                                                       \
                _Pragma("GCC unroll 8") for (int part = 0; part < (n_parts); part++) {             \
                    if (part + 1 < (n_parts))                                                      \
                        make((part + 1) % 2, t, j, part + 1);                                      \
                    else if (next_j < (n_x))                                                       \
                        make(0, next_t, next_j, 0);                                                \
                    use(part % 2, t, j, part);                                                     \
                }                                                                                  \
                end(t, j);                                                                         \
            }                                                                                      \
    } while (0)
#define EACH_COLUMN _Pragma("GCC unroll 16") for (size_t i = 0; i < COLUMNS; i++)

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
    V low[64];
    union {
        V high[64];   /* groups of 16 */
        V centre[8]; /* small codes: (CENTRE scale, CENTRE scale), int16 */
    };
};

/* Codes to 15, less CENTRE: 32 products of at most 8 x 127 fit 16 bits, so that one instruction scales
 * and adds them; CENTRE times the scales goes with the columns' sums. */
enum { CENTRE = 8 };
INLINE int small_codes(struct shape s) { return s.groups == 8 && !s.wide && s.top <= 15; }

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
                    b->low[at] = small_codes(s) ? (V)((V8)w[n][v] - CENTRE) : w[n][v];
            }
    }
    for (int g = 0; g < 8 && small_codes(s); g++)
        b->centre[g] = CENTRE * (b->head.sc[g] | b->head.sc[g] << 16);
}

/* isum after the results for group g; mul: the columns' multipliers as they are broadcast. */
INLINE V add_group(struct shape s, V isum, const struct block256 *b, int g, V low, V high,
                   const int32_t mul[8]) {
    const V m = v_bcast4(&mul[g]);
    if (small_codes(s))
        return v_dot2(isum, low, (V)((V16)b->head.sc[g] * (V16)m));
    if (s.groups == 16)
        return isum + m * (low + (high << 6));
    /* both fit 16 bits, and their upper halves meet in 0 */
    return isum + low * (V)_mm512_madd_epi16((__m512i)b->head.sc[g], (__m512i)m);
}

INLINE F end_block(struct shape s, F sum, const struct block256 *b, const struct lode_block_a256 *a,
                   V isum) {
    for (int g = 0; g < 8 && small_codes(s); g++)
        isum = v_dot2(isum, b->centre[g], v_bcast4(&a->sums[2 * g]));
    return add_block((struct shape){.minima = s.minima}, sum, &b->head, a, isum); /* no bias is left */
}

INLINE void panel256(F sums[TILES][CHUNK], TYPE_256, const struct panel *p) {
    const uint8_t *x = p->x;
    const size_t last = p->n_x - 1;
    results c;
    packed q;
    for (size_t b = 0; b < p->k / 256; b++, x += sizeof(struct lode_block_a256)) {
        struct block256 block[TILES];
        const struct lode_block_a256 *a[CHUNK];
        int32_t mul[CHUNK][8];
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size);
            unpack256(&block[t], s, read_head, unpack, size, &p->r[t], b);
        }
        for (size_t j = 0; j <= (last | (COLUMNS - 1)); j++) {
            a[j] = (const struct lode_block_a256 *)(x + least(j, last) * p->x_stride);
            for (int g = 0; g < 8; g++) {
                mul[j][g] = a[j]->m[g];
                pack(q, j, g, a[j]->q + 32 * g);
            }
        }
        V isum[COLUMNS];
#define BEGIN(t, j) EACH_COLUMN isum[i] = v_zero()
#define END(t, j)                                                                                  \
    EACH_COLUMN sums[t][(j) + i] =                                                                 \
        end_block(s, sums[t][(j) + i], &block[t], a[(j) + i], isum[i])
#define MAKE_2(buffer, t, j, g)                                                                    \
    multiply(c[buffer], block[t].low + 16 * (g), q[(j) / COLUMNS][2 * (g)][0],                     \
             block[t].low + 16 * (g) + 8, q[(j) / COLUMNS][2 * (g) + 1][0])
#define USE_2(buffer, t, j, g)                                                                     \
    EACH_COLUMN isum[i] = add_group(                                                               \
        s,                                                                                         \
        add_group(s, isum[i], &block[t], 2 * (g), c[buffer][0][i], v_zero(), mul[(j) + i]),        \
        &block[t], 2 * (g) + 1, c[buffer][1][i], v_zero(), mul[(j) + i])
#define MAKE_1(buffer, t, j, g)                                                                    \
    multiply(c[buffer], block[t].low + 8 * (g), q[(j) / COLUMNS][g][0], block[t].high + 8 * (g),   \
             q[(j) / COLUMNS][g][0])
#define USE_1(buffer, t, j, g)                                                                     \
    EACH_COLUMN isum[i] = add_group(s, isum[i], &block[t], g, c[buffer][0][i], c[buffer][1][i],    \
                                    mul[(j) + i])
        if (s.groups == 16)
            EACH_MEETING(p->n_x, p->n_tiles, 8, MAKE_1, BEGIN, USE_1, END);
        else
            EACH_MEETING(p->n_x, p->n_tiles, 4, MAKE_2, BEGIN, USE_2, END);
#undef BEGIN
#undef END
    }
}

/* ---- blocks of 32 ---- */

struct run32 {
    V w[RUN * 8];
    F d[RUN], m[RUN];
};

INLINE F end_block32(struct shape s, F acc, V isum, F d, F m, const struct lode_block_a32 *a) {
    const F dx = f_set(a->d);
    if (s.wide && s.bias) /* a whole byte of codes has lost 128, which is none of its bias */
        isum += v_set32((uint32_t)(-s.bias * a->sum));
    acc = f_fma(d * dx, f_int(isum), acc);
    return s.minima ? f_fma(m * dx, f_int(v_bcast4(&a->sum)), acc) : acc;
}

INLINE void panel32(F sums[TILES][CHUNK], TYPE_32, const struct panel *p) {
    const size_t n_blocks = p->k / 32, last = p->n_x - 1;
    const uint8_t *x = p->x;
    results c;
    packed q; /* where a run is short its rest is multiplied too, and not used */
    for (size_t b = 0; b < n_blocks; b += RUN, x += RUN * sizeof(struct lode_block_a32)) {
        const int n = (int)least(n_blocks - b, RUN);
        struct run32 run[TILES];
        const struct lode_block_a32 *a[CHUNK];
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size * (size_t)n);
            for (int i = 0; i < n; i++) {
                V *w = &run[t].w[8 * i];
                run[t].m[i] = f_zero();
                unpack(w, &run[t].d[i], &run[t].m[i], &p->r[t], (b + (size_t)i) * size);
                for (int v = 0; v < 8 && !s.wide && s.bias; v++)
                    w[v] = (V)((V8)w[v] - (uint8_t)s.bias);
            }
        }
        for (size_t j = 0; j <= (last | (COLUMNS - 1)); j++) {
            a[j] = (const struct lode_block_a32 *)(x + least(j, last) * p->x_stride);
            for (int i = 0; i < n; i++)
                pack(q, j, i, a[j][i].q);
        }
        F acc[COLUMNS];
#define BEGIN(t, j) EACH_COLUMN acc[i] = sums[t][(j) + i]
#define END(t, j) EACH_COLUMN sums[t][(j) + i] = acc[i]
#define MAKE(buffer, t, j, g)                                                                      \
    multiply(c[buffer], run[t].w + 16 * (g), q[(j) / COLUMNS][2 * (g)][0], run[t].w + 16 * (g) + 8,\
             q[(j) / COLUMNS][2 * (g) + 1][0])
#define USE(buffer, t, j, g)                                                                       \
    do {                                                                                           \
        if (2 * (g) < n)                                                                           \
            EACH_COLUMN acc[i] = end_block32(s, acc[i], c[buffer][0][i], run[t].d[2 * (g)],        \
                                             run[t].m[2 * (g)], &a[(j) + i][2 * (g)]);             \
        if (2 * (g) + 1 < n)                                                                       \
            EACH_COLUMN acc[i] = end_block32(s, acc[i], c[buffer][1][i], run[t].d[2 * (g) + 1],    \
                                             run[t].m[2 * (g) + 1], &a[(j) + i][2 * (g) + 1]);     \
    } while (0)
        EACH_MEETING(p->n_x, p->n_tiles, RUN / 2, MAKE, BEGIN, USE, END);
#undef BEGIN
#undef END
    }
}

/* ---- all of a product ---- */

typedef void panel_fn(F sums[TILES][CHUNK], const struct panel *p);

static void mul(panel_fn *panel, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    configure();
    for (size_t j = 0; j < n_x; j += CHUNK) {
        struct panel p = {.next = TILES * LANES * w_stride, .x = x + j * x_stride,
                          .x_stride = x_stride, .n_x = least(n_x - j, CHUNK), .k = k};
        for (size_t i = 0; i < n_w; i += TILES * LANES) {
            F sums[TILES][CHUNK];
            p.n_tiles = (least(n_w - i, TILES * LANES) + LANES - 1) / LANES;
            for (size_t t = 0; t < p.n_tiles; t++) {
                const size_t first = i + t * LANES;
                p.r[t] = tile_rows(w + first * w_stride, w_stride, rows_left(n_w, first));
                for (size_t c = 0; c < CHUNK; c++)
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
