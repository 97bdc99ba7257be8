/* mul_many.h - many columns against V_TILES tiles, of mul_tile.h, for instruction sets that form the sum
 * of four products in several instructions, and are not AVX2 (mul_many_short.h). */

/* What a product wants to know of its columns beside what they hold (mul_many_vnni.h): nothing. */
struct sides {
    char none;
};
INLINE size_t most_run(struct shape s, size_t n_blocks, size_t n_x) {
    (void)s, (void)n_x;
    return n_blocks;
}
INLINE void make_sides(struct sides *sides, struct shape s, const uint8_t *x, size_t x_stride, size_t n_x,
                       size_t n_blocks) {
    (void)sides, (void)s, (void)x, (void)x_stride, (void)n_x, (void)n_blocks;
}

/* ---- blocks of 256 ---- */

/* Unpacked blocks of V_TILES tiles that meet the columns together, so that a number of a column is
 * broadcast once for all of them. */
struct block256 {
    struct head head;
    V w[64];
};

/* sums[t][j0 ..] of n_cols columns (constant) after one more block of each tile. */
INLINE void columns256(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                       const struct block256 block[V_TILES], const uint8_t *x, size_t x_stride) {
    const struct lode_block_a256 *a[V_COLUMNS];
    V isum[V_COLUMNS][V_TILES];
    for (size_t j = 0; j < n_cols; j++) {
        a[j] = (const struct lode_block_a256 *)(x + (j0 + j) * x_stride);
        for (int t = 0; t < V_TILES; t++)
            isum[j][t] = v_zero();
    }
    for (int g = 0; g < 8; g++)
#pragma GCC unroll 16
        for (size_t j = 0; j < n_cols; j++) {
            const struct x16 lo = bcast16(a[j]->q + 32 * g), hi = bcast16(a[j]->q + 32 * g + 16);
            const V mul = v_set32(a[j]->m[g]);
            for (int t = 0; t < V_TILES; t++) {
                const V *w = block[t].w + 8 * g, *sc = block[t].head.sc;
                const V a16 = dot16(s, v_zero(), w, lo), b16 = dot16(s, v_zero(), w + 4, hi);
                isum[j][t] += mul * (s.groups == 8 ? (a16 + b16) * sc[g]
                                                   : a16 * sc[2 * g] + b16 * sc[2 * g + 1]);
            }
        }
#pragma GCC unroll 16
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = add_block(s, sums[t][j0 + j], &block[t].head, a[j], isum[j][t]);
}

INLINE void many256(F sums[V_TILES][CHUNK], TYPE_256, MANY_ARGS) {
    /* twice the scales want registers, of which there are 16 where vectors are short */
    const size_t most = s.groups == 16 && LANES < 16 ? 4 : V_COLUMNS;
    (void)sides;
    for (size_t b = from; b < to; b++, x += sizeof(struct lode_block_a256)) {
        struct block256 block[V_TILES];
        for (int t = 0; t < V_TILES; t++) {
            prefetch_next(r[t].p[0] + next + LANES * b * size, LANES * size, next);
            read_head(&block[t].head, &r[t], b * size);
#pragma GCC unroll 8
            for (int c = 0; c < 16 / s.runs; c++) {
                V w[4][4];
                unpack(w, &block[t].head, &r[t], b * size, c);
                for (int n = 0; n < s.runs; n++)
                    for (int i = 0; i < 4; i++)
                        block[t].w[4 * group_of(s, c, n) + i] = w[n][i];
            }
        }
#define CALL(n, j) columns256(s, n, sums, j, block, x, x_stride)
        EACH_COLUMNS(most, n_x, CALL);
#undef CALL
    }
}

/* ---- blocks of 32 ---- */

/* Wide codes: one vector of them by all columns, so that it is loaded, and its sign taken, once.  gcc
 * would form a tree of the sums of a column, and keep its leaves in memory. */
INLINE void add_wide32(struct shape s, size_t n_cols, F acc[V_COLUMNS][V_TILES], int t,
                       const struct run32 *run, int b, const struct lode_block_a32 *const *a) {
    V isum[V_COLUMNS];
    for (size_t j = 0; j < n_cols; j++)
        isum[j] = v_set32((uint32_t)(-s.bias * a[j]->sum));
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const V w = run->w[b][i];
#pragma GCC unroll 16
        for (size_t j = 0; j < n_cols; j++)
            isum[j] = v_held(v_dot4_wide(isum[j], w, v_bcast4(a[j]->q + 4 * i)));
    }
#pragma GCC unroll 16
    for (size_t j = 0; j < n_cols; j++) {
        const F dx = f_set(a[j]->d);
        acc[j][t] = f_fma(run->d[b] * dx, f_int(isum[j]), acc[j][t]);
        if (s.minima)
            acc[j][t] = f_fma(run->m[b] * dx, f_set((float)a[j]->sum), acc[j][t]);
    }
}

/* sums[t][j0 ..] of n_cols columns (constant) after n_blocks more blocks of each tile. */
INLINE void columns32(struct shape s, size_t n_cols, F sums[V_TILES][CHUNK], size_t j0,
                      const struct run32 run[V_TILES], int n_blocks, const uint8_t *x,
                      size_t x_stride) {
    F acc[V_COLUMNS][V_TILES];
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            acc[j][t] = sums[t][j0 + j];
    for (int b = 0; b < n_blocks; b++) {
        const struct lode_block_a32 *a[V_COLUMNS];
        for (size_t j = 0; j < n_cols; j++)
            a[j] = (const struct lode_block_a32 *)(x + (j0 + j) * x_stride) + b;
        if (s.wide)
            for (int t = 0; t < V_TILES; t++)
                add_wide32(s, n_cols, acc, t, &run[t], b, a);
        else
#pragma GCC unroll 16
            for (size_t j = 0; j < n_cols; j++) {
                const struct x16 lo = bcast16(a[j]->q), hi = bcast16(a[j]->q + 16);
                for (int t = 0; t < V_TILES; t++)
                    acc[j][t] =
                        add_block32(s, acc[j][t], run[t].w[b], run[t].d[b], run[t].m[b], a[j], lo, hi);
            }
    }
    for (size_t j = 0; j < n_cols; j++)
        for (int t = 0; t < V_TILES; t++)
            sums[t][j0 + j] = acc[j][t];
}

INLINE void many32(F sums[V_TILES][CHUNK], TYPE_32, MANY_ARGS) {
    (void)sides;
    for (size_t b = from; b < to; b += RUN32, x += RUN32 * sizeof(struct lode_block_a32)) {
        const int n_run = to - b < RUN32 ? (int)(to - b) : RUN32;
        struct run32 run[V_TILES];
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
