/* mul_many_vnni.h - many columns against V_TILES tiles, of mul_tile.h, where four products are summed in one
 * instruction.  What is around them counts then: multiplications share the dots' pipes (on Zen 5; of a
 * block of Q4_K 64 are dots and were 28 not, now 20), and loads are as many as dots can be unless codes and
 * numbers are kept in registers.  bench/notes/kern-quant.md
 *
 * The including file defines v_mul_pairs(a, b): int16, sums of 2 products of neighbouring bytes, a
 * unsigned, at most 127, b signed. */

/* ---- blocks of 256 ---- */

/* What products of many columns want of a block of a column beside what it holds. */
struct side {
    union {
        int32_t start[16]; /* types with a bias: bias times minus the sum of each of s.groups groups */
        struct {           /* others with groups of 32: */
            int16_t sums[8]; /* their sums times m, if all fit */
            int32_t fit;
        };
    };
};

/* Unpacked blocks of V_TILES tiles that meet the columns together, so that a number of a column is
 * broadcast once for all of them. */
struct block256 {
    struct head head;
    V sc[8]; /* pairs of scales, as v_mul_pairs takes them */
    V mn[4]; /* minima of groups of 32 in pairs of int16 */
    V w[64];
};

#include "kern/mul_sides.h"

INLINE void side_of(struct side *side, struct shape s, const struct lode_block_a256 *a) {
    if (s.bias) {
        /* 2^15 / m rounded: sums are at most 2032 m, so they times its error are under half a sum */
        static const int32_t inverse[LODE_A256_MUL + 1] = {
            0,    32768, 16384, 10923, 8192, 6554, 5461, 4681, 4096,
            3641, 3277,  2979,  2731,  2521, 2341, 2185, 2048};
        int32_t sum[16];
        for (int g = 0; g < 16; g++)
            sum[g] = -s.bias * ((a->sums[g] * inverse[a->m[g / 2]] + (1 << 14)) >> 15);
        for (int g = 0; g < s.groups; g++)
            side->start[g] = s.groups == 16 ? sum[g] : sum[2 * g] + sum[2 * g + 1];
    } else if (s.groups == 8) {
        side->fit = sums_of_32(side->sums, a);
    }
}

INLINE void make_sides(struct sides *sides, struct shape s, const uint8_t *x, size_t x_stride, size_t n_x,
                       size_t n_blocks) {
    if (!s.groups)
        return;
    for (size_t j = 0; j < n_x; j++, x += x_stride)
        for (size_t b = 0; b < n_blocks; b++)
            side_of(&sides->at[b * n_x + j], s, (const struct lode_block_a256 *)x + b);
}

/* Groups are taken in pairs: of 32 numbers the first and third, second and fourth of each four, as
 * v_mul_pairs wants them; of 16 numbers neighbours. */
INLINE int pair_first(struct shape s, int p) { return s.groups == 8 ? p / 2 * 4 + p % 2 : 2 * p; }
INLINE int pair_second(struct shape s, int p) { return pair_first(s, p) + (s.groups == 8 ? 2 : 1); }

/* Whether a group's products, less the bias, fit 16 bits. */
INLINE bool sums_are_short(struct shape s) {
    return !s.wide && 256 / s.groups * 127 * (s.bias ? s.bias : s.top) <= 32767;
}
/* Whether the scales of a pair are multiplied with the column's multipliers in one instruction. */
INLINE bool scales_in_pairs(struct shape s) { return s.groups == 8 || sums_are_short(s); }

INLINE void pair_scales(struct shape s, struct block256 *b) {
    const V byte = v_set32(255);
    for (int p = 0; p < s.groups / 2 && scales_in_pairs(s); p++) {
        const V low = b->head.sc[pair_first(s, p)] & byte, high = b->head.sc[pair_second(s, p)] & byte;
        b->sc[p] = (low | high << 16) << (s.groups == 8 && p % 2 ? 8 : 0);
    }
    for (int i = 0; i < 4 && s.groups == 8 && s.minima; i++)
        b->mn[i] = v_pair(b->head.mn[2 * i], b->head.mn[2 * i + 1]);
}

/* part[h][j][t] + the products of 4 n codes with 4 n numbers of each column, of groups that begin `apart`
 * numbers from one another: a number is broadcast once for all tiles, codes are read once for all
 * columns, and sums of both groups take turns, or they would wait for one another. */
INLINE void meet(size_t n_cols, V part[2][V_COLUMNS][V_TILES], const V *const w[V_TILES],
                 const int8_t *const x[V_COLUMNS], size_t apart, size_t n) {
    UNROLL
    for (size_t i = 0; i < n; i++)
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            V codes[V_TILES];
            UNROLL
            for (int t = 0; t < V_TILES; t++)
                codes[t] = v_held(w[t][h * apart / 4 + i]);
            UNROLL
            for (size_t j = 0; j < n_cols; j++) {
                const V four = v_held(v_bcast4(x[j] + h * apart + 4 * i));
                UNROLL
                for (int t = 0; t < V_TILES; t++)
                    part[h][j][t] = v_dot4_wide(part[h][j][t], codes[t], four);
            }
        }
}

/* sums[t][j0 ..] of n_cols columns (constant) after one more block of each tile, but for its minima. */
INLINE void columns256(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                       const struct block256 block[V_TILES], const uint8_t *x, size_t x_stride,
                       const struct side *side) {
    const struct lode_block_a256 *a[V_COLUMNS];
    V isum[V_COLUMNS][V_TILES];
    UNROLL_CLANG
    for (size_t j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++)
            isum[j][t] = v_zero();
    }
#pragma GCC unroll 1
    for (size_t p = 0; p < (size_t)s.groups / 2; p++) {
        const size_t first = (size_t)pair_first(s, (int)p), second = (size_t)pair_second(s, (int)p);
        const size_t length = 256 / (size_t)s.groups;
        const V *w[V_TILES];
        const int8_t *q[V_COLUMNS];
        V part[2][V_COLUMNS][V_TILES];
        UNROLL
        for (int t = 0; t < V_TILES; t++)
            w[t] = block[t].w + first * length / 4;
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            q[j] = a[j]->q + first * length;
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                part[0][j][t] = s.bias ? v_bcast4(&side[j].start[first]) : v_zero();
                part[1][j][t] = s.bias ? v_bcast4(&side[j].start[second]) : v_zero();
            }
        }
        meet(n_cols, part, w, q, s.groups == 8 ? 64 : 16, length / 4);
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                const V low = part[0][j][t], high = part[1][j][t];
                if (!scales_in_pairs(s)) {
                    const V *sc = &block[t].head.sc[2 * p];
                    isum[j][t] += (low * sc[0] + high * sc[1]) * v_set32(a[j]->m[p]);
                    continue;
                }
                const V m = s.groups == 8 ? v_bcast4(&a[j]->m[p / 2 * 4]) : v_set8(a[j]->m[p]);
                const V scale = v_mul_pairs(m, block[t].sc[p]);
                if (sums_are_short(s))
                    isum[j][t] = v_dot2(isum[j][t], v_pair(low, high), scale);
                else
                    isum[j][t] += low * v_sra32(scale << 16, 16) + high * v_sra32(scale, 16);
            }
    }
    UNROLL
    for (size_t j = 0; j < n_cols; j++) {
        const F dx = f_set(a[j]->d);
        UNROLL
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = f_fma(block[t].head.d * dx, f_int(isum[j][t]), sums[t][j0 + j]);
    }
}

INLINE void many256(F sums[V_TILES][CHUNK], TYPE_256, MANY_ARGS) {
    for (size_t b = from; b < to; b++, x += sizeof(struct lode_block_a256)) {
        const struct side *side = sides->at + (b - from) * n_x;
        struct block256 block[V_TILES];
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++) {
            prefetch(r[t].p[0] + next + LANES * b * size, LANES * size);
            read_head(&block[t].head, &r[t], b * size);
            pair_scales(s, &block[t]);
            UNROLL
            for (int c = 0; c < 16 / s.runs; c++) {
                V w[4][4];
                unpack(w, &block[t].head, &r[t], b * size, c);
                for (int n = 0; n < s.runs; n++)
                    for (int i = 0; i < 4; i++)
                        block[t].w[4 * group_of(s, c, n) + i] = w[n][i];
            }
        }
#define CALL(n, j) columns256(s, n, sums, j, block, x, x_stride, side + (j))
        EACH_COLUMNS(V_COLUMNS, n_x, CALL);
#undef CALL
        if (s.minima)
            minima256(s, n_x, sums, block, x, x_stride, side);
    }
}

/* ---- blocks of 32 ---- */

/* sums[t][j0 ..] of n_cols columns (constant) after n_blocks more blocks of each tile. */
INLINE void columns32(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                      const struct run32 run[V_TILES], int n_blocks, const uint8_t *x,
                      size_t x_stride) {
    F acc[V_COLUMNS][V_TILES];
    UNROLL_CLANG
    for (size_t j = 0; j < n_cols; j++)
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++)
            acc[j][t] = sums[t][j0 + j];
#pragma GCC unroll 1
    for (int b = 0; b < n_blocks; b++) {
        const struct lode_block_a32 *a[V_COLUMNS];
        const V *w[V_TILES];
        const int8_t *q[V_COLUMNS];
        V part[2][V_COLUMNS][V_TILES];
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++)
            w[t] = run[t].w[b];
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            a[j] = (const struct lode_block_a32 *)(x + (j0 + j) * x_stride) + b;
            q[j] = a[j]->q;
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                part[0][j][t] = s.bias ? v_zero() - v_bcast4(&a[j]->sum) * (uint32_t)s.bias : v_zero();
                part[1][j][t] = v_zero();
            }
        }
        meet(n_cols, part, w, q, 16, 4);
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            const F dx = f_set(a[j]->d);
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                acc[j][t] = f_fma(run[t].d[b] * dx, f_int(part[0][j][t] + part[1][j][t]), acc[j][t]);
                if (s.minima)
                    acc[j][t] = f_fma(run[t].m[b] * dx, f_set((float)a[j]->sum), acc[j][t]);
            }
        }
    }
    UNROLL_CLANG
    for (size_t j = 0; j < n_cols; j++)
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = acc[j][t];
}

INLINE void many32(F sums[V_TILES][CHUNK], TYPE_32, MANY_ARGS) {
    (void)sides;
    for (size_t b = from; b < to; b += RUN32, x += RUN32 * sizeof(struct lode_block_a32)) {
        const int n_run = to - b < RUN32 ? (int)(to - b) : RUN32;
        struct run32 run[V_TILES];
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++) {
            prefetch(r[t].p[0] + next + LANES * b * size, LANES * size * (size_t)n_run);
            for (int c = 0; c < n_run; c++)
                unpack(run[t].w[c], &run[t].d[c], &run[t].m[c], &r[t], (b + (size_t)c) * size);
        }
#define CALL(n, j) columns32(s, n, sums, j, run, n_run, x, x_stride)
        EACH_COLUMNS(V_COLUMNS, n_x, CALL);
#undef CALL
    }
}
