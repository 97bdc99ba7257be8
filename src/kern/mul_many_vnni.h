/* mul_many_vnni.h - many columns against V_TILES tiles, of mul_tile.h, where four products are summed in one
 * instruction.  What is around them counts then: multiplications share the dots' pipes on Zen 5, everything but loads
 * and stores does on Intel's cores (of a block of Q4_K 64 are dots and 28 not, there 45 before chains), and loads are as
 * many as dots can be unless codes and numbers are kept in registers.  bench/notes/kern-quant.md
 *
 * The including file defines V_CHAINS and
 *
 *   v_mul_pairs(a, b)       int16, sums of 2 products of neighbouring bytes, a unsigned, at most 127, b signed
 *   v_low_halves(low, high) the low halves of their lanes, in pairs
 *
 * and where LANES is 16 what make_start takes besides; V_PARTS where it pays (see chain), V_SCALES_FIRST where that
 * pays. */

/* ---- blocks of 256 ---- */

/* Sums of so many codes times numbers, less a bias of the codes, fit 16 bits; then two of them meet their scales in one
 * instruction.  So groups are summed in chains of 8, 16 or 32 numbers; 0: no length would do.  Chains that are a part of
 * a group take more multiplications than products of 32 bits do, and fewer other instructions, hence V_PARTS. */
INLINE size_t chain(struct shape s) {
    if (s.wide)
        return 0;
    const int most = s.minima && s.groups == 16 ? s.top : (s.top + 1) / 2; /* size of a code less its bias */
    const size_t group = 256 / (size_t)s.groups;
    size_t n = group;
    while (most * 127 * (int)n > 32767)
        n /= 2;
#ifdef V_PARTS
    return n >= 8 ? n : 0;
#else
    return n == group ? n : 0;
#endif
}
/* Whether the sums of two groups of 16 meet their scales before the multiplier that the column has for both: as many
 * multiplications as the other way round, and no shifts. */
INLINE bool scales_first(struct shape s) {
#ifdef V_SCALES_FIRST
    return s.groups == 16 && !chain(s);
#else
    (void)s;
    return false;
#endif
}
/* The bias: the type's own; or, of types of which minima are taken, one that is given back for all of a block. */
INLINE bool gives_back(struct shape s) { return s.minima && s.groups == 8 && chain(s); }
INLINE int centre(struct shape s) { return gives_back(s) ? (s.top + 1) / 2 : s.bias; }

/* What products of many columns want of a block of a column beside what it holds. */
struct side {
    union {
        int32_t wide[16];  /* of a type without chains: what its groups' sums begin with, minus the bias times the
                              numbers' sums */
        int16_t start[33]; /* of chains, as they are met; what comes behind one is read with it */
    };
    union {
        struct { /* of groups of 32 whose types have minima: */
            int16_t sums[8]; /* their sums times m, if all fit */
            int32_t fit;
        };
        uint32_t m[8]; /* of groups of 16: for two neighbours, in both halves or (scales_first) as it is */
    };
};

/* Unpacked blocks of V_TILES tiles that meet the columns together, so that a number of a column is
 * broadcast once for all of them. */
struct block256 {
    struct head head;
    V sc[8];   /* pairs of scales, as v_mul_pairs takes them */
    V mn[4];   /* minima of groups of 32 in pairs of int16, */
    V back[4]; /* and scales times the centre */
    V w[64];
};

INLINE size_t sides_each(struct shape s) {
    (void)s;
    return 1;
}
#include "kern/mul_sides.h"

/* Groups are taken in pairs: of 32 numbers the first and third, second and fourth of each four, as
 * v_mul_pairs wants them; of 16 numbers neighbours. */
INLINE size_t pair_first(struct shape s, size_t p) { return s.groups == 8 ? p / 2 * 4 + p % 2 : 2 * p; }
INLINE size_t pair_second(struct shape s, size_t p) { return pair_first(s, p) + (s.groups == 8 ? 2 : 1); }
/* Chains (or whole groups, of a type without) are taken in pairs too, one of each group: where the c-th pair's first
 * begins, and how far apart they are. */
INLINE size_t group_length(struct shape s) { return 256 / (size_t)s.groups; }
INLINE size_t step(struct shape s) { return chain(s) ? chain(s) : group_length(s); }
INLINE size_t pair_at(struct shape s, size_t c) {
    return pair_first(s, c * step(s) / group_length(s)) * group_length(s) + c * step(s) % group_length(s);
}
INLINE size_t pair_apart(struct shape s) { return (pair_second(s, 0) - pair_first(s, 0)) * group_length(s); }

#if LANES == 16
/* Where chain c's sum is once those of four neighbouring numbers have been added up to those of chains of n, by the
 * fewest instructions. */
INLINE size_t sum_at(size_t n, size_t c) {
    return n == 8    ? c / 16 * 16 + c % 8 / 2 * 4 + c / 8 % 2 * 2 + c % 2
           : n == 16 ? c % 4 * 4 + c / 4
                     : c % 2 * 8 + c / 2;
}
INLINE void make_start(struct side *side, struct shape s, const int8_t q[256]) {
    const size_t n = step(s);
    const V by = v_set32((uint32_t)-centre(s));
    V four[4], sums[2];
    for (int i = 0; i < 4; i++) {
        memcpy(&four[i], q + 64 * i, 64);
        four[i] = v_dot4_wide(v_zero(), v_set8(1), four[i]);
    }
    sums[0] = n == 8 ? v_add_twos(four[0], four[1]) : v_add_fours(four);
    sums[1] = n == 8 ? v_add_twos(four[2], four[3]) : v_zero();
    if (n == 32)
        sums[0] += v_swap_quarters(sums[0]);
    if (chain(s)) {
        uint16_t order[32] = {0};
        UNROLL
        for (size_t c = 0; c < 128 / n; c++) { /* numbers that the compiler knows */
            order[2 * c] = (uint16_t)sum_at(n, pair_at(s, c) / n);
            order[2 * c + 1] = (uint16_t)sum_at(n, (pair_at(s, c) + pair_apart(s)) / n);
        }
        v_store_low16(side->start, sums[0] * by, sums[1] * by, order);
        return;
    }
    uint32_t all[16];
    sums[0] *= by;
    memcpy(all, &sums[0], sizeof all);
    UNROLL
    for (size_t g = 0; g < (size_t)s.groups; g++)
        side->wide[g] = (int32_t)all[sum_at(n, g)];
}
#else
INLINE void make_start(struct side *side, struct shape s, const int8_t q[256]) {
    const size_t n = step(s);
    int32_t four[64]; /* sums of four neighbouring numbers */
    for (size_t i = 0; i < 64; i += LANES) {
        V v;
        memcpy(&v, q + 4 * i, sizeof v);
        v = v_dot4_wide(v_zero(), v_set8(1), v);
        memcpy(four + i, &v, sizeof v);
    }
    for (size_t c = 0; c < 256 / n; c++) {
        const size_t from = pair_at(s, c / 2) + c % 2 * pair_apart(s);
        int32_t sum = 0;
        for (size_t i = 0; i < n / 4; i++)
            sum -= four[from / 4 + i] * centre(s);
        if (chain(s))
            side->start[c] = (int16_t)sum;
        else
            side->wide[from / n] = sum;
    }
}
#endif

INLINE void make_sides(struct sides *sides, struct shape s, const uint8_t *x, size_t x_stride, size_t n_x,
                       size_t n_blocks) {
    if (!s.groups)
        return;
    for (size_t j = 0; j < n_x; j++, x += x_stride)
        for (size_t b = 0; b < n_blocks; b++) {
            const struct lode_block_a256 *a = (const struct lode_block_a256 *)x + b;
            struct side *side = &sides->at[b * n_x + j];
            if (centre(s))
                make_start(side, s, a->q);
            for (int g = 0; g < 8 && s.groups == 16; g++)
                side->m[g] = (scales_first(s) ? 1 : 0x10001u) * a->m[g];
            if (s.minima && s.groups == 8)
                side->fit = sums_of_32(side->sums, a);
        }
}

INLINE void pair_scales(struct shape s, struct block256 *b) {
    const V byte = v_set32(255);
    for (size_t p = 0; p < (size_t)s.groups / 2; p++) {
        const V low = b->head.sc[pair_first(s, p)] & byte, high = b->head.sc[pair_second(s, p)] & byte;
        b->sc[p] = (low | high << 16) << (s.groups == 8 && p % 2 ? 8 : 0);
    }
    for (int i = 0; i < 4 && s.minima && s.groups == 8; i++) {
        b->mn[i] = v_pair(b->head.mn[2 * i], b->head.mn[2 * i + 1]);
        if (gives_back(s))
            b->back[i] = v_mul16(v_pair(b->head.sc[2 * i], b->head.sc[2 * i + 1]),
                                 v_set32(0x10001u * (uint32_t)centre(s)));
    }
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

/* What the sum of pair c's first or second chain begins with. */
INLINE V first_part(struct shape s, const struct side *side, size_t c, size_t second) {
    if (!centre(s))
        return v_zero();
    return chain(s) ? v_bcast4(&side->start[2 * c + second])
                    : v_bcast4(&side->wide[(pair_at(s, c) + second * pair_apart(s)) / group_length(s)]);
}

/* isum[t][.. n_x]: what the centre takes from the codes of a block of each tile, to begin with. */
INLINE void give_back(struct shape s, size_t n_x, V isum[V_TILES][CHUNK], const struct block256 block[V_TILES],
                      const uint8_t *x, size_t x_stride, const struct side *side) {
    for (size_t j = 0; j < n_x; j++, x += x_stride, side++) {
        const int16_t *sums = ((const struct lode_block_a256 *)x)->sums;
        UNROLL
        for (int t = 0; t < V_TILES; t++) {
            V sum = v_zero();
            if (side->fit)
                UNROLL
                for (int i = 0; i < 4; i++)
                    sum = v_dot2(sum, block[t].back[i], v_bcast4(&side->sums[2 * i]));
            else
                for (int g = 0; g < 8; g++)
                    sum = v_dot2(sum, block[t].head.sc[g] * v_set32(0x10001u * (uint32_t)centre(s)), v_bcast4(&sums[2 * g]));
            isum[t][j] = sum;
        }
    }
}

/* sums[t][j0 ..] of n_cols columns (constant) after one more block of each tile, but for its minima. */
INLINE void columns256(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                       V begin[V_TILES][CHUNK], const struct block256 block[V_TILES], const uint8_t *x,
                       size_t x_stride, const struct side *side) {
    const struct lode_block_a256 *a[V_COLUMNS];
    V isum[V_COLUMNS][V_TILES];
    UNROLL_CLANG
    for (size_t j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
        UNROLL_CLANG
        for (int t = 0; t < V_TILES; t++)
            isum[j][t] = gives_back(s) ? begin[t][j0 + j] : v_zero();
    }
/* one loop, or scales that two chains share would be kept for the second, on the stack */
#pragma GCC unroll 1
    for (size_t c = 0; c < 128 / step(s); c++) {
        const size_t p = c * step(s) / group_length(s), at = pair_at(s, c);
        const V *w[V_TILES];
        const int8_t *q[V_COLUMNS];
        V part[2][V_COLUMNS][V_TILES];
        UNROLL
        for (int t = 0; t < V_TILES; t++)
            w[t] = block[t].w + at / 4;
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            q[j] = a[j]->q + at;
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                part[0][j][t] = first_part(s, &side[j], c, 0);
                part[1][j][t] = first_part(s, &side[j], c, 1);
            }
        }
        meet(n_cols, part, w, q, pair_apart(s), step(s) / 4);
        UNROLL
        for (size_t j = 0; j < n_cols; j++)
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                const V low = part[0][j][t], high = part[1][j][t];
                const V m = s.groups == 8 ? v_bcast4(&a[j]->m[p / 2 * 4]) : v_bcast4(&side[j].m[p]);
                if (scales_first(s)) {
                    const V *sc = block[t].head.sc;
                    isum[j][t] += (low * sc[pair_first(s, p)] + high * sc[pair_second(s, p)]) * m;
                    continue;
                }
                const V scale = v_mul_pairs(m, block[t].sc[p]);
                if (chain(s))
                    isum[j][t] = v_dot2(isum[j][t], v_low_halves(low, high), scale);
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
            prefetch_next(r[t].p[0] + next + LANES * b * size, LANES * size, next);
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
        V begin[V_TILES][CHUNK];
        if (gives_back(s))
            give_back(s, n_x, begin, block, x, x_stride, side);
#define CALL(n, j) columns256(s, n, sums, j, begin, block, x, x_stride, side + (j))
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
                part[0][j][t] = s.halves ? half_start(s, a[j], 0)
                                : s.bias ? v_zero() - v_bcast4(&a[j]->sum) * (uint32_t)s.bias
                                         : v_zero();
                part[1][j][t] = s.halves ? half_start(s, a[j], 1) : v_zero();
            }
        }
        meet(n_cols, part, w, q, 16, 4);
        UNROLL
        for (size_t j = 0; j < n_cols; j++) {
            const F dx = f_set(a[j]->d);
            UNROLL
            for (int t = 0; t < V_TILES; t++) {
                if (s.halves) {
                    acc[j][t] = add_halves(acc[j][t], part[0][j][t], part[1][j][t], run[t].d[b], run[t].m[b], dx);
                    continue;
                }
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
            prefetch_next(r[t].p[0] + next + LANES * b * size, LANES * size * (size_t)n_run, next);
            for (int c = 0; c < n_run; c++)
                unpack(run[t].w[c], &run[t].d[c], &run[t].m[c], &r[t], (b + (size_t)c) * size);
        }
#define CALL(n, j) columns32(s, n, sums, j, run, n_run, x, x_stride)
        EACH_COLUMNS(V_COLUMNS, n_x, CALL);
#undef CALL
    }
}
