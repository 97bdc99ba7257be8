/* Products of quantised weights with many columns, on AMX tiles; few columns are AVX-512's with VNNI.
 *
 * tile_unpack.h's vectors (four neighbouring codes of each of 16 rows) are, sixteen of them, the right
 * operand of TILE_DOT for 64 numbers; the left one are 64 bytes of each of 16 columns.  So one
 * instruction gives the integer sums of 64 numbers for 16 rows and 16 columns, a vector for each
 * column whose lane i belongs to row i.
 *
 * Blocks of 256 have scales for groups of 16 or 32 weights and multipliers for groups of 32
 * activations.  To scale each group's sums takes vectors several times longer than tiles take to form
 * them, so both go into the operands instead:
 *
 *     scale (q - bias) = 64 high + low        at most 128 x 32 in size
 *     multiplier x     = 64 high + low        at most  16 x 127
 *
 * in two signed bytes each, and four products of tiles.  What is left for the vectors is once a block.
 * Minima meet the columns' sums on tiles too, the sums in two digits.
 *
 * Blocks of 32 are half a tile deep and their float chain is mul_tile.h's.
 *
 * Codes are signed here: a bias is taken off before they are stored.
 */
#include "kern/vec_avx512.h"

#define V_WIDE_BIAS 0
#include "kern/mul_shape.h"
#include "kern/tile_amx.h"

enum {
    TILES = 8,            /* tiles of 16 rows that pass a group of columns together */
    COLUMNS = 16,         /* rows of a left operand */
    CHUNK = 16 * COLUMNS, /* see mul_tile.h */
    FEW = 12,            /* fewer columns than this are not worth a tile */
    RUN = 8,             /* blocks of 32 that are unpacked before the columns see them */
};

/* Registers 0 to 3 are sums, 4 and 5 columns, 6 and 7 weights; `depth` numbers (64 or 32) meet. */
static void configure(int depth) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.bytes[i] = (uint16_t)(i == 4 || i == 5 ? depth : 64);
        c.rows[i] = (uint8_t)(i < 6 ? COLUMNS : depth / 4);
    }
    TILE_CONFIG(&c);
}

INLINE size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* What a panel of up to TILES x 16 rows and CHUNK columns is multiplied with. */
struct panel {
    struct rows r[TILES];
    size_t n_tiles, next; /* `next` bytes on begin the rows of the next panel */
    const uint8_t *x;
    size_t x_stride, n_x, k;
};

/* ---- blocks of 256 ---- */

/* A block of a tile as right operands. */
struct block256 {
    F d, dmin;
    V high[64], low[64]; /* scale (q - bias) */
    V min[16];           /* minima of 16 groups, four to a vector; the rest is zero */
};

/* A block of 16 columns as left operands, which lie thousands of bytes apart in x. */
struct columns256 {
    int8_t high[4][COLUMNS][64], low[4][COLUMNS][64];   /* multiplier x */
    int8_t sum_high[COLUMNS][64], sum_low[COLUMNS][64]; /* sums = 256 high + low; the rest is zero */
    float d[COLUMNS];
};

/* What the tiles leave for the vectors, lane i of each belongs to row i: a's halves times w's, sums
 * times minima.  While the vectors take up one the tiles make the other. */
struct results256 {
    V high_high[COLUMNS], high_low[COLUMNS], low_high[COLUMNS], low_low[COLUMNS];
    V min_high[COLUMNS], min_low[COLUMNS];
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
    struct head head;
    read_head(&head, r, off);
    b->d = head.d;
    if (s.minima)
        b->dmin = head.dmin;
#pragma GCC unroll 8
    for (int c = 0; c < 16 / s.runs; c++) {
        V w[4][4];
        unpack(w, &head, r, off, c);
        for (int n = 0; n < s.runs; n++)
            for (int v = 0; v < 4; v++) {
                const int g = group_of(s, c, n), at = 4 * g + v;
                const V codes = s.wide ? w[n][v] ^ v_set8(128) : w[n][v]; /* unsigned */
                scaled(&b->low[at], &b->high[at], codes, s.wide ? 128 : s.bias,
                       head.sc[g * s.groups / 16]);
            }
    }
    for (int g = 0; g < 4 && s.minima; g++) {
        const V a = head.mn[2 * g], c = head.mn[2 * g + 1]; /* pairs of 16 bits, below 128 */
        b->min[g] = (a & v_set32(255)) | ((a >> 8) & v_set32(255 << 8)) | ((c << 16) & v_set32(255 << 16)) |
                    ((c & v_set32(255 << 16)) << 8);
    }
}

/* Column i of a group. */
INLINE void pack256(struct shape s, struct columns256 *c, int i, const struct lode_block_a256 *a) {
    for (int v = 0; v < 4; v++) { /* two groups of 32 */
        const __m256i m0 = _mm256_set1_epi32(a->m[2 * v]), m1 = _mm256_set1_epi32(a->m[2 * v + 1]);
        V q, low, high;
        memcpy(&q, a->q + 64 * v, sizeof q);
        scaled(&low, &high, q ^ v_set8(128), 128,
               (V)_mm512_inserti64x4(_mm512_castsi256_si512(m0), m1, 1));
        memcpy(c->high[v][i], &high, sizeof high);
        memcpy(c->low[v][i], &low, sizeof low);
    }
    c->d[i] = a->d;
    if (s.minima) {
        const __m256i sums = _mm256_loadu_si256((const __m256i *)a->sums);
        const __m128i low = _mm256_cvtepi16_epi8(sums);
        const __m256i high = _mm256_srai_epi16(_mm256_sub_epi16(sums, _mm256_cvtepi8_epi16(low)), 8);
        memcpy(c->sum_low[i], &low, sizeof low);
        const __m128i bytes = _mm256_cvtepi16_epi8(high);
        memcpy(c->sum_high[i], &bytes, sizeof bytes);
    }
}

/* Column i's sum after one more block (sums below 2^31 in size, whatever wraps on the way). */
INLINE F end_block256(struct shape s, F acc, const struct block256 *w, const struct columns256 *x,
                      const struct results256 *r, size_t i) {
    const F dx = f_set(x->d[i]);
    const V middle = r->high_low[i] + r->low_high[i];
    acc = f_fma(w->d * dx, f_int((r->high_high[i] << 12) + (middle << 6) + r->low_low[i]), acc);
    if (!s.minima)
        return acc;
    return f_fnma(w->dmin * dx, f_int((r->min_high[i] << 8) + r->min_low[i]), acc);
}

/* 16 rows and 16 columns: their results and where these go. */
struct meeting {
    const struct block256 *w;
    const struct columns256 *x;
    struct results256 *r;
    F *sums; /* (COLUMNS) */
};

/* The tiles' part of one meeting and the vectors' part of the one before, a column after each product:
 * the processor looks some hundred instructions ahead, which one part alone would fill.  m or last may
 * be NULL, which is known where this is inlined. */
INLINE void meet(struct shape s, const struct meeting *m, const struct meeting *last) {
#define COLUMN(i)                                                                                  \
    if (last)                                                                                      \
    last->sums[i] = end_block256(s, last->sums[i], last->w, last->x, last->r, i)
#define TILES(what)                                                                                \
    if (m)                                                                                         \
    what
    TILES(TILE_ZERO(0));
    TILES(TILE_ZERO(1));
    TILES(TILE_ZERO(2));
    TILES(TILE_ZERO(3));
#pragma GCC unroll 4
    for (size_t v = 0; v < 4; v++) {
        TILES(TILE_LOAD(4, m->x->high[v], 64));
        TILES(TILE_LOAD(6, m->w->high + 16 * v, 64));
        TILES(TILE_DOT(0, 4, 6));
        COLUMN(4 * v);
        TILES(TILE_LOAD(7, m->w->low + 16 * v, 64));
        TILES(TILE_DOT(1, 4, 7));
        COLUMN(4 * v + 1);
        TILES(TILE_LOAD(5, m->x->low[v], 64));
        TILES(TILE_DOT(2, 5, 6));
        COLUMN(4 * v + 2);
        TILES(TILE_DOT(3, 5, 7));
        COLUMN(4 * v + 3);
    }
    TILES(TILE_STORE(0, m->r->high_high, 64));
    TILES(TILE_STORE(1, m->r->high_low, 64));
    if (s.minima) {
        TILES(TILE_ZERO(0));
        TILES(TILE_ZERO(1));
        TILES(TILE_LOAD(6, m->w->min, 64));
        TILES(TILE_LOAD(4, m->x->sum_high, 64));
        TILES(TILE_LOAD(5, m->x->sum_low, 64));
        TILES(TILE_DOT(0, 4, 6));
        TILES(TILE_DOT(1, 5, 6));
    }
    TILES(TILE_STORE(2, m->r->low_high, 64));
    TILES(TILE_STORE(3, m->r->low_low, 64));
    if (s.minima) {
        TILES(TILE_STORE(0, m->r->min_high, 64));
        TILES(TILE_STORE(1, m->r->min_low, 64));
    }
#undef COLUMN
#undef TILES
}

INLINE void panel256(F sums[TILES][CHUNK], TYPE_256, const struct panel *p) {
    const uint8_t *x = p->x;
    struct block256 block[TILES];
    struct columns256 columns[CHUNK / COLUMNS];
    struct results256 r[2];
    configure(64);
    memset(columns, 0, (p->n_x + COLUMNS - 1) / COLUMNS * sizeof *columns);
    for (size_t t = 0; t < p->n_tiles; t++)
        for (int g = 0; g < 16; g++)
            block[t].min[g] = v_zero();
    for (size_t b = 0; b < p->k / 256; b++, x += sizeof(struct lode_block_a256)) {
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size);
            unpack256(&block[t], s, read_head, unpack, size, &p->r[t], b);
        }
        for (size_t j = 0; j < p->n_x; j++)
            pack256(s, &columns[j / COLUMNS], (int)(j % COLUMNS),
                    (const struct lode_block_a256 *)(x + j * p->x_stride));
        struct meeting last = {0};
        size_t n = 0;
        for (size_t j = 0; j < p->n_x; j += COLUMNS)
            for (size_t t = 0; t < p->n_tiles; t++, n++) {
                const struct meeting now = {&block[t], &columns[j / COLUMNS], &r[n % 2],
                                            &sums[t][j]};
                if (n)
                    meet(s, &now, &last);
                else
                    meet(s, &now, NULL);
                last = now;
            }
        meet(s, NULL, &last);
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

/* 16 rows and 16 columns over a run: their results, a block each, and where these go. */
struct meeting32 {
    const struct run32 *w;
    const struct lode_block_a32 *const *a; /* (COLUMNS) */
    const int8_t (*x)[COLUMNS][32];        /* [block][column] */
    V (*r)[COLUMNS];                       /* [block][column] */
    F *sums;                               /* (COLUMNS) */
};

INLINE F end_run32(struct shape s, const struct meeting32 *m, size_t i, int n) {
    F acc = m->sums[i];
#pragma GCC unroll 8
    for (int g = 0; g < RUN && g < n; g++)
        acc = end_block32(s, acc, m->r[g][i], m->w->d[g], m->w->m[g], &m->a[i][g]);
    return acc;
}

/* As meet: two columns of the meeting before after each product.  n: blocks of the run (where it is
 * short the rest is multiplied too, and not used). */
INLINE void meet32(struct shape s, const struct meeting32 *m, const struct meeting32 *last, int n) {
#define COLUMN(i)                                                                                  \
    if (last)                                                                                      \
    last->sums[i] = end_run32(s, last, i, n)
#define PRODUCT(c, a, b, g)                                                                        \
    do {                                                                                           \
        if (m) {                                                                                   \
            TILE_ZERO(c);                                                                          \
            TILE_LOAD(a, m->x[g], 32);                                                             \
            TILE_LOAD(b, m->w->w + 8 * (g), 64);                                                   \
            TILE_DOT(c, a, b);                                                                     \
        }                                                                                          \
        COLUMN(2 * (g));                                                                           \
        COLUMN(2 * (g) + 1);                                                                       \
        if (m)                                                                                     \
            TILE_STORE(c, m->r[g], 64);                                                            \
    } while (0)
    PRODUCT(0, 4, 6, 0);
    PRODUCT(1, 5, 7, 1);
    PRODUCT(2, 4, 6, 2);
    PRODUCT(3, 5, 7, 3);
    PRODUCT(0, 4, 6, 4);
    PRODUCT(1, 5, 7, 5);
    PRODUCT(2, 4, 6, 6);
    PRODUCT(3, 5, 7, 7);
#undef COLUMN
#undef PRODUCT
}

INLINE void panel32(F sums[TILES][CHUNK], TYPE_32, const struct panel *p) {
    const size_t n_blocks = p->k / 32, last_x = p->n_x - 1;
    const uint8_t *x = p->x;
    V results[2][RUN][COLUMNS];
    int8_t q[CHUNK / COLUMNS][RUN][COLUMNS][32]; /* columns as left operands */
    struct run32 run[TILES];
    memset(run, 0, p->n_tiles * sizeof *run);
    memset(q, 0, (p->n_x + COLUMNS - 1) / COLUMNS * sizeof *q);
    configure(32);
    for (size_t b = 0; b < n_blocks; b += RUN, x += RUN * sizeof(struct lode_block_a32)) {
        const int n_run = (int)least(n_blocks - b, RUN);
        const struct lode_block_a32 *a[CHUNK];
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size * (size_t)n_run);
            for (int i = 0; i < n_run; i++) {
                V *w = &run[t].w[8 * i];
                run[t].m[i] = f_zero();
                unpack(w, &run[t].d[i], &run[t].m[i], &p->r[t], (b + (size_t)i) * size);
                for (int v = 0; v < 8 && !s.wide && s.bias; v++)
                    w[v] = (V)((V8)w[v] - (uint8_t)s.bias);
            }
        }
        for (size_t j = 0; j <= (last_x | (COLUMNS - 1)); j++) {
            a[j] = (const struct lode_block_a32 *)(x + least(j, last_x) * p->x_stride);
            for (int i = 0; i < n_run; i++)
                memcpy(q[j / COLUMNS][i][j % COLUMNS], a[j][i].q, 32);
        }
        struct meeting32 last = {0};
        size_t n = 0;
        for (size_t j = 0; j < p->n_x; j += COLUMNS)
            for (size_t t = 0; t < p->n_tiles; t++, n++) {
                const struct meeting32 now = {&run[t], a + j, (const int8_t(*)[COLUMNS][32])q[j / COLUMNS],
                                              results[n % 2], &sums[t][j]};
                if (n)
                    meet32(s, &now, &last, n_run);
                else
                    meet32(s, &now, NULL, n_run);
                last = now;
            }
        meet32(s, NULL, &last, n_run);
    }
}

/* ---- all of a product ---- */

typedef void panel_fn(F sums[TILES][CHUNK], const struct panel *p);

static void mul(panel_fn *panel, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    for (size_t j = 0; j < n_x; j += CHUNK) {
        struct panel p = {.next = TILES * LANES * w_stride, .x = x + j * x_stride,
                          .x_stride = x_stride, .n_x = least(n_x - j, CHUNK), .k = k};
        for (size_t i = 0; i < n_w; i += TILES * LANES) {
            F sums[TILES][CHUNK];
            p.n_tiles = (least(n_w - i, TILES * LANES) + LANES - 1) / LANES;
            for (size_t t = 0; t < p.n_tiles; t++) {
                const size_t first = i + t * LANES;
                p.r[t] = tile_rows(w + first * w_stride, w_stride, rows_left(n_w, first));
                for (size_t c = 0; c <= ((p.n_x - 1) | (COLUMNS - 1)); c++)
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
