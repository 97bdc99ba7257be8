/* mul_many_short.h - many columns against V_TILES tiles, of mul_tile.h, where products of bytes are added
 * in pairs to 16 bits and nothing adds four (AVX2).
 *
 * Multiplications share two pipes of four (Zen 3 to 5), so what counts is how few follow the eight that a
 * group of 32 needs.  Sums stay in 16 bits as long as they fit: all 32 numbers of a group where codes are
 * nibbles.  Then one multiplication by pairs widens them and applies the scale.  Codes with a bias may
 * wrap around meanwhile: the sum begins with minus the bias times its numbers, so that it ends within 16
 * bits.  Loads count as well: a vector of codes meets V_COLUMNS columns and four numbers of a column meet
 * V_TILES tiles.  bench/notes/kern-quant.md
 *
 * The including file defines V_WIDE_COLUMNS (V_COLUMNS of wide codes) and, of vectors of 32 bytes,
 *
 *   v_mul_pairs(a, b)     int16: sums of 2 products of neighbouring bytes, a unsigned, b signed
 *   v_sign8(v, by)        bytes of v times -1, 0 or 1, the signs of by's
 *   v_negative8(v)        bytes: all ones where negative
 *   v_sub8(a, b)          bytes
 *   v_load(p)
 *   v_add_quads(V v[4])   int16: the sums of each half's four lanes, first of all vectors' low halves
 *   v_add_twos16(a, b)    int16: in each half the sums of a's first and second two lanes, of b's */

INLINE V v_add16(V a, V b) { return (V)((V16)a + (V16)b); }
INLINE V v_twice16(V v) { return v_pair(v, v); } /* the low half of each lane in both */

/* Vectors of codes (four of each row) whose sum of products fits 16 bits: two products of each go to one
 * half of a lane.  Codes of groups with a bias count without it. */
INLINE size_t short_run(struct shape s) {
    const int most = s.groups && s.bias ? s.bias : s.top;
    return most <= 16 ? 8 : most <= 32 ? 4 : 2;
}

/* Of a group of 32 numbers of a block of 256: with groups of 16 half of it. */
INLINE size_t short_part(struct shape s) { return s.groups == 16 && short_run(s) > 4 ? 4 : short_run(s); }

/* part[j][t] + (or, first: =) the products of n vectors of each tile's codes with 4 n numbers of each column. */
INLINE void meet(size_t n_cols, bool first, V part[V_COLUMNS][V_TILES], const V *const w[V_TILES],
                 const int8_t *const x[V_COLUMNS], size_t n) {
    UNROLL
    for (size_t i = 0; i < n; i++) {
        V codes[V_TILES];
        UNROLL
        for (int t = 0; t < V_TILES; t++)
            codes[t] = v_held(w[t][i]);
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            const V four = v_bcast4(x[j] + 4 * i);
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                const V pairs = v_mul_pairs(codes[t], four);
                part[j][t] = first && i == 0 ? pairs : v_held(v_add16(part[j][t], pairs));
            }
        }
    }
}

/* Eight vectors of wide codes w, as magnitudes m and signs s (all ones where negative): m (x ^ s) is w x
 * where w >= 0 and else w x - m, so that a sum that starts with the magnitudes of the negative ones is
 * theirs.  An exclusive or leaves the multiplications' pipes alone, where vpsignb does not.  |w| <= 128 and
 * -128 <= x ^ s <= 127: two products fit 16 bits. */
struct signs {
    V s[8], start;
};
INLINE void split_signs(V w[8], struct signs *signs) {
    V negative = v_zero();
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const V s = v_negative8(w[i]);
        w[i] = v_sub8(w[i] ^ s, s);
        negative = v_add16(negative, v_mul_pairs(w[i] & s, v_set8(1)));
        signs->s[i] = s;
    }
    signs->start = v_dot2(v_zero(), negative, v_twice16(v_set32(1)));
}

/* sum[j] + the products of such codes of one tile with 32 numbers of each column: one vector by all columns.
 * gcc would form a tree of the sums of a column, and keep its leaves in memory. */
INLINE void meet_wide(size_t n_cols, V sum[V_WIDE_COLUMNS], const V w[8], const struct signs *signs,
                      const int8_t *const x[V_WIDE_COLUMNS]) {
    const V one = v_twice16(v_set32(1));
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        const V codes = v_held(w[i]), s = v_held(signs->s[i]);
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            sum[j] = v_held(v_dot2(sum[j], v_mul_pairs(codes, v_bcast4(x[j] + 4 * i) ^ s), one));
    }
}

/* ---- blocks of 256 ---- */

/* What products of many columns want of a block of a column beside what it holds. */
struct side {
    uint32_t m[8]; /* its multipliers: twice as int16 where short_part is 8, else as int32 */
    union {
        uint32_t start[16]; /* types with a bias: minus bias times the sums of 16 numbers, as meet adds them, or of
                               32 where it adds so many; where it adds 8, of half a block (sides_each) */
        struct {            /* others with groups of 32: */
            int16_t sums[8]; /* their sums times m, if all fit */
            int32_t fit;
        };
    };
};

/* Unpacked blocks of V_TILES tiles that meet the columns together. */
struct block256 {
    struct head head;
    V sc[16]; /* scales, twice as int16 */
    V mn[4];  /* minima of groups of 32 in pairs of int16 */
    V w[64];
    struct signs signs[8]; /* of wide codes */
};

/* A block's sides: two where each has the starts of half of its numbers. */
INLINE size_t sides_each(struct shape s) { return s.groups && s.bias && !s.wide && short_part(s) == 2 ? 2 : 1; }

#include "kern/mul_sides.h"

/* Where the start of the part that begins with number i of a block lies: a register holds the sums of eight groups of 16,
 * even ones first, or those of eight parts of 8 numbers. */
INLINE size_t start_of(struct shape s, size_t i) {
    const size_t n = i / (sides_each(s) == 2 ? 8 : 16) % 16, at = n / 8 * 8;
    return at + (sides_each(s) == 2 ? n % 2 + n / 4 % 2 * 2 + n / 2 % 2 * 4 : n % 2 * 4 + n % 8 / 2);
}
INLINE const uint32_t *start_at(struct shape s, const struct side *side, size_t i) {
    return &side[i / 128 * (sides_each(s) - 1)].start[start_of(s, i)];
}

INLINE void side_of(struct side *side, struct shape s, const struct lode_block_a256 *a) {
    for (int g = 0; g < 8; g++)
        side->m[g] = a->m[g] * (!s.wide && short_part(s) == 8 ? 0x10001u : 1u);
    if (s.wide)
        return;
    if (s.bias)
        for (int half = 0; half < 2; half++) {
            V p[4];
            UNROLL
            for (int i = 0; i < 4; i++)
                p[i] = v_mul_pairs(v_set8(1), v_load(a->q + 128 * half + 32 * i));
            const V by = v_twice16(v_set32((uint32_t)-s.bias));
            if (sides_each(s) == 1) {
                typedef int16_t eight __attribute__((vector_size(16)));
                const V start = v_mul16(v_add_quads(p), by);
                eight of[2]; /* even groups of 16, odd ones */
                memcpy(of, &start, sizeof of);
                if (short_part(s) == 8)
                    of[0] += of[1];
                memcpy(&side->start[8 * half], of, sizeof of);
                continue;
            }
            for (int i = 0; i < 2; i++) {
                const V start = v_mul16(v_add_twos16(p[2 * i], p[2 * i + 1]), by);
                memcpy(&side[half].start[8 * i], &start, sizeof start);
            }
        }
    else if (s.groups == 8)
        side->fit = sums_of_32(side->sums, a);
}

INLINE void make_sides(struct sides *sides, struct shape s, const uint8_t *x, size_t x_stride, size_t n_x,
                       size_t n_blocks) {
    if (!s.groups)
        return;
    /* a column's sides lie in one set of the nearest cache: all columns of a block, then those of the next */
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t j = 0; j < n_x; j++)
            side_of(&sides->at[(b * n_x + j) * sides_each(s)], s, (const struct lode_block_a256 *)(x + j * x_stride) + b);
}

INLINE void finish_head(struct shape s, struct block256 *b) {
    for (int g = 0; g < s.groups && !s.wide; g++)
        b->sc[g] = v_twice16(b->head.sc[g]);
    for (int i = 0; i < 4 && s.groups == 8 && s.minima; i++)
        b->mn[i] = v_pair(b->head.mn[2 * i], b->head.mn[2 * i + 1]);
}

/* isum[j][t] + the products of group g of 32 numbers, scaled. */
INLINE void group256(struct shape s, size_t n_cols, V isum[V_COLUMNS][V_TILES],
                     const struct block256 block[V_TILES], const int8_t *const q[V_COLUMNS],
                     const struct side *side, size_t g) {
    const size_t n = short_part(s);
    V part[V_COLUMNS][V_TILES], sum[V_COLUMNS][V_TILES];
    UNROLL
    for (size_t i = 0; i < 8; i += n) {
        const V *w[V_TILES];
        const int8_t *x[V_COLUMNS];
        const size_t scale = g * (size_t)s.groups / 8 + (s.groups == 16 ? i / 4 : 0);
        UNROLL
        for (int t = 0; t < V_TILES; t++)
            w[t] = block[t].w + 8 * g + i;
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            x[j] = q[j] + 32 * g + 4 * i;
            for (int t = 0; t < V_TILES; t++)
                part[j][t] = s.bias ? v_bcast4(start_at(s, side + j * sides_each(s), 32 * g + 4 * i)) : v_zero();
        }
        meet(n_cols, !s.bias, part, w, x, n);
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            const V m = v_bcast4(&side[j * sides_each(s)].m[g]);
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                const V sc = block[t].sc[scale];
                if (n == 8)
                    isum[j][t] = v_dot2(isum[j][t], part[j][t], v_mul16(sc, m));
                else
                    sum[j][t] = v_dot2(i == 0 ? v_zero() : sum[j][t], part[j][t], sc);
                if (n < 8 && i + n == 8)
                    isum[j][t] += sum[j][t] * m;
            }
        }
    }
}

/* sums[t][j0 ..] of n_cols columns (constant) after one more block of each tile, but for its minima. */
INLINE void columns256(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                       const struct block256 block[V_TILES], const uint8_t *x, size_t x_stride,
                       const struct side *side) {
    const struct lode_block_a256 *a[V_COLUMNS];
    const int8_t *q[V_COLUMNS];
    V isum[V_COLUMNS][V_TILES];
    UNROLL
    for (size_t j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
        q[j] = a[j]->q;
        for (int t = 0; t < V_TILES; t++)
            isum[j][t] = v_zero();
    }
#pragma GCC unroll 1
    for (size_t g = 0; g < 8; g++)
        group256(s, n_cols, isum, block, q, side + j0 * sides_each(s), g);
    UNROLL
    for (size_t j = 0; j < n_cols; j++) {
        const F dx = f_set(a[j]->d);
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = f_fma(block[t].head.d * dx, f_int(isum[j][t]), sums[t][j0 + j]);
    }
}

/* The same of wide codes, tile after tile. */
INLINE void wide256(size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                    const struct block256 block[V_TILES], const uint8_t *x, size_t x_stride,
                    const struct side *side) {
    const struct lode_block_a256 *a[V_WIDE_COLUMNS];
    UNROLL
    for (size_t j = 0; j < n_cols; j++)
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
    for (int t = 0; t < V_TILES; t++) {
        V isum[V_WIDE_COLUMNS];
        for (size_t j = 0; j < n_cols; j++)
            isum[j] = v_zero();
#pragma GCC unroll 1
        for (size_t g = 0; g < 8; g++) {
            const int8_t *q[V_WIDE_COLUMNS];
            V sum[V_WIDE_COLUMNS];
            UNROLL
            for (size_t j = 0; j < n_cols; j++) {
                q[j] = a[j]->q + 32 * g;
                sum[j] = block[t].signs[g].start;
            }
            meet_wide(n_cols, sum, block[t].w + 8 * g, &block[t].signs[g], q);
            UNROLL
            for (size_t j = 0; j < n_cols; j++)
                isum[j] += sum[j] * (block[t].head.sc[g] * v_bcast4(&side[j0 + j].m[g]));
        }
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            sums[t][j0 + j] = f_fma(block[t].head.d * f_set(a[j]->d), f_int(isum[j]), sums[t][j0 + j]);
    }
}

INLINE void many256(F sums[V_TILES][CHUNK], TYPE_256, MANY_ARGS) {
    for (size_t b = from; b < to; b++, x += sizeof(struct lode_block_a256)) {
        const struct side *side = sides->at + (b - from) * n_x * sides_each(s);
        struct block256 block[V_TILES];
        for (int t = 0; t < V_TILES; t++) {
            prefetch_next(r[t].p[0] + next + LANES * b * size, LANES * size, next);
            read_head(&block[t].head, &r[t], b * size);
            finish_head(s, &block[t]);
#pragma GCC unroll 8
            for (int c = 0; c < 16 / s.runs; c++) {
                V w[4][4];
                unpack(w, &block[t].head, &r[t], b * size, c);
                for (int n = 0; n < s.runs; n++)
                    for (int i = 0; i < 4; i++)
                        block[t].w[4 * group_of(s, c, n) + i] = w[n][i];
            }
            for (int g = 0; g < 8 && s.wide; g++)
                split_signs(block[t].w + 8 * g, &block[t].signs[g]);
        }
#define SHORT(n, j) columns256(s, n, sums, j, block, x, x_stride, side)
#define WIDE(n, j) wide256(n, sums, j, block, x, x_stride, side)
        if (s.wide)
            EACH_COLUMNS(V_WIDE_COLUMNS, n_x, WIDE);
        else
            EACH_COLUMNS(V_COLUMNS, n_x, SHORT);
#undef SHORT
#undef WIDE
        if (s.minima)
            minima256(s, n_x, sums, block, x, x_stride, side);
    }
}

/* ---- blocks of 32 ---- */

/* acc after a block of column a whose integer sum is isum. */
INLINE F scale32(struct shape s, F acc, V isum, const struct run32 *run, int b, const struct lode_block_a32 *a) {
    const F dx = f_set(a->d);
    acc = f_fma(run->d[b] * dx, f_int(isum), acc);
    return s.minima ? f_fma(run->m[b] * dx, f_set((float)a->sum), acc) : acc;
}

/* What that sum, or a half's, begins with. */
INLINE V start32(struct shape s, const struct lode_block_a32 *a, size_t half) {
    return s.halves ? half_start(s, a, (int)half) : s.bias ? v_bcast4(&a->sum) * v_set32((uint32_t)-s.bias) : v_zero();
}

/* sums[t][j0 ..] of n_cols columns (constant) after n_blocks more blocks of each tile. */
INLINE void columns32(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                      const struct run32 run[V_TILES], int n_blocks, const uint8_t *x,
                      size_t x_stride) {
    const size_t n = s.halves && short_run(s) > 4 ? 4 : short_run(s);
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        const struct lode_block_a32 *a[V_COLUMNS];
        V part[V_COLUMNS][V_TILES], sum[2][V_COLUMNS][V_TILES]; /* [1]: of the last 16 numbers, where they have a scale */
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            a[j] = (const struct lode_block_a32 *)(x + (j0 + j) * x_stride) + b;
        UNROLL
        for (size_t i = 0; i < 8; i += n) {
            const V *w[V_TILES];
            const int8_t *q[V_COLUMNS];
            UNROLL
            for (int t = 0; t < V_TILES; t++)
                w[t] = run[t].w[b] + i;
            UNROLL
            for (size_t j = 0; j < n_cols; j++)
                q[j] = a[j]->q + 4 * i;
            meet(n_cols, true, part, w, q, n);
            UNROLL
            for (size_t j = 0; j < n_cols; j++)
                UNROLL
                for (int t = 0; t < V_TILES; t++) {
                    const size_t h = s.halves ? i / 4 : 0;
                    const V before = i == 0 || (s.halves && i == 4) ? start32(s, a[j], i / 4) : sum[h][j][t];
                    sum[h][j][t] = v_dot2(before, part[j][t], v_twice16(v_set32(1)));
                }
        }
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            UNROLL
            for (int t = 0; t < V_TILES; t++)
                sums[t][j0 + j] = s.halves ? add_halves(sums[t][j0 + j], sum[0][j][t], sum[1][j][t], run[t].d[b],
                                                        run[t].m[b], f_set(a[j]->d))
                                           : scale32(s, sums[t][j0 + j], sum[0][j][t], &run[t], b, a[j]);
    }
}

struct signs32 { /* wide codes' */
    struct signs of[RUN32];
};

/* The same of wide codes, tile after tile. */
INLINE void wide32(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                   const struct run32 run[V_TILES], const struct signs32 signs[V_TILES], int n_blocks,
                   const uint8_t *x, size_t x_stride) {
    for (int t = 0; t < V_TILES; t++) {
        F acc[V_WIDE_COLUMNS];
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            acc[j] = sums[t][j0 + j];
        for (int b = 0; b < n_blocks; b++) {
            const struct lode_block_a32 *a[V_WIDE_COLUMNS];
            const int8_t *q[V_WIDE_COLUMNS];
            V sum[V_WIDE_COLUMNS];
            UNROLL
            for (size_t j = 0; j < n_cols; j++) {
                a[j] = (const struct lode_block_a32 *)(x + (j0 + j) * x_stride) + b;
                q[j] = a[j]->q;
                sum[j] = start32(s, a[j], 0) + signs[t].of[b].start;
            }
            meet_wide(n_cols, sum, run[t].w[b], &signs[t].of[b], q);
            UNROLL
            for (size_t j = 0; j < n_cols; j++)
                acc[j] = scale32(s, acc[j], sum[j], &run[t], b, a[j]);
        }
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            sums[t][j0 + j] = acc[j];
    }
}

INLINE void many32(F sums[V_TILES][CHUNK], TYPE_32, MANY_ARGS) {
    (void)sides;
    for (size_t b = from; b < to; b += RUN32, x += RUN32 * sizeof(struct lode_block_a32)) {
        const int n_run = to - b < RUN32 ? (int)(to - b) : RUN32;
        struct run32 run[V_TILES];
        struct signs32 signs[V_TILES];
        for (int t = 0; t < V_TILES; t++) {
            prefetch_next(r[t].p[0] + next + LANES * b * size, LANES * size * (size_t)n_run, next);
            for (int c = 0; c < n_run; c++) {
                unpack(run[t].w[c], &run[t].d[c], &run[t].m[c], &r[t], (b + (size_t)c) * size);
                if (s.wide)
                    split_signs(run[t].w[c], &signs[t].of[c]);
            }
        }
#define SHORT(n, j) columns32(s, n, sums, j, run, n_run, x, x_stride)
#define WIDE(n, j) wide32(s, n, sums, j, run, signs, n_run, x, x_stride)
        if (s.wide)
            EACH_COLUMNS(V_WIDE_COLUMNS, n_x, WIDE);
        else
            EACH_COLUMNS(V_COLUMNS, n_x, SHORT);
#undef SHORT
#undef WIDE
    }
}
