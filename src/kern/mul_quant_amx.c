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

/* Every tile meets every group of columns, in `n_parts` parts.  make(buffer, t, j, part)
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
INLINE void pack256(struct columns256 *c, int i, const struct lode_block_a256 *a) {
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
    for (int g = 0; g < 16; g++) {
        c->sum_low[i][g] = (int8_t)a->sums[g];
        c->sum_high[i][g] = (int8_t)((a->sums[g] - c->sum_low[i][g]) >> 8);
    }
}

INLINE void multiply256(struct shape s, struct results256 *out, const struct block256 *w,
                        const struct columns256 *x) {
    TILE_ZERO(0);
    TILE_ZERO(1);
    TILE_ZERO(2);
    TILE_ZERO(3);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        TILE_LOAD(4, x->high[v], 64);
        TILE_LOAD(6, w->high + 16 * v, 64);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(7, w->low + 16 * v, 64);
        TILE_DOT(1, 4, 7);
        TILE_LOAD(5, x->low[v], 64);
        TILE_DOT(2, 5, 6);
        TILE_DOT(3, 5, 7);
    }
    TILE_STORE(0, out->high_high, 64);
    TILE_STORE(1, out->high_low, 64);
    TILE_STORE(2, out->low_high, 64);
    TILE_STORE(3, out->low_low, 64);
    if (s.minima) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_LOAD(4, x->sum_high, 64);
        TILE_LOAD(5, x->sum_low, 64);
        TILE_LOAD(6, w->min, 64);
        TILE_DOT(0, 4, 6);
        TILE_DOT(1, 5, 6);
        TILE_STORE(0, out->min_high, 64);
        TILE_STORE(1, out->min_low, 64);
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

INLINE void panel256(F sums[TILES][CHUNK], TYPE_256, const struct panel *p) {
    const uint8_t *x = p->x;
    struct block256 block[TILES];
    struct columns256 columns[CHUNK / COLUMNS];
    struct results256 r[2];
    configure(64);
    memset(columns, 0, sizeof columns);
    for (size_t t = 0; t < TILES; t++)
        for (int g = 0; g < 16; g++)
            block[t].min[g] = v_zero();
    for (size_t b = 0; b < p->k / 256; b++, x += sizeof(struct lode_block_a256)) {
        for (size_t t = 0; t < p->n_tiles; t++) {
            prefetch(p->r[t].p[0] + p->next + LANES * b * size, LANES * size);
            unpack256(&block[t], s, read_head, unpack, size, &p->r[t], b);
        }
        for (size_t j = 0; j < p->n_x; j++)
            pack256(&columns[j / COLUMNS], (int)(j % COLUMNS),
                    (const struct lode_block_a256 *)(x + j * p->x_stride));
#define MAKE(buffer, t, j, part) multiply256(s, &r[meeting % 2], &block[t], &columns[(j) / COLUMNS])
#define BEGIN(t, j) meeting++
#define END(t, j)
#define USE(buffer, t, j, part)                                                                    \
    EACH_COLUMN sums[t][(j) + i] = end_block256(s, sums[t][(j) + i], &block[t],                    \
                                                &columns[(j) / COLUMNS], &r[(meeting - 1) % 2], i)
        size_t meeting = 0;
        EACH_MEETING(p->n_x, p->n_tiles, 1, MAKE, BEGIN, USE, END);
#undef MAKE
#undef BEGIN
#undef END
#undef USE
    }
}

/* ---- blocks of 32 ---- */

/* Two times two results of 16 columns, 4096 bytes in all, so that no load of one has the page offset of
 * a store of the other that is still waiting for its tile: the processor would hold it back. */
typedef V results32[2][2][COLUMNS];

/* Columns as left operands, [group of 16 columns][32 numbers][column]. */
typedef int8_t packed32[CHUNK / COLUMNS][RUN][COLUMNS][32];

/* out[0] = w0 times x0, out[1] = w1 times x1. */
INLINE void multiply32(V out[2][COLUMNS], const V *w0, const int8_t *x0, const V *w1,
                       const int8_t *x1) {
    TILE_ZERO(0);
    TILE_LOAD(4, x0, 32);
    TILE_LOAD(6, w0, 64);
    TILE_DOT(0, 4, 6);
    TILE_ZERO(1);
    TILE_LOAD(5, x1, 32);
    TILE_LOAD(7, w1, 64);
    TILE_DOT(1, 5, 7);
    TILE_STORE(0, out[0], 64);
    TILE_STORE(1, out[1], 64);
}

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
    results32 c;
    packed32 q; /* where a run is short its rest is multiplied too, and not used */
    configure(32);
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
                memcpy(q[j / COLUMNS][i][j % COLUMNS], a[j][i].q, 32);
        }
        F acc[COLUMNS];
#define BEGIN(t, j) EACH_COLUMN acc[i] = sums[t][(j) + i]
#define END(t, j) EACH_COLUMN sums[t][(j) + i] = acc[i]
#define MAKE(buffer, t, j, g)                                                                      \
    multiply32(c[buffer], run[t].w + 16 * (g), q[(j) / COLUMNS][2 * (g)][0], run[t].w + 16 * (g) + 8,\
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
