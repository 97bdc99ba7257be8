/* mul_all.h - products of any number of columns by mul_tile.h's tiles, read where they lie. */

/* Many, once their blocks are unpacked. */

#define RUN32 8 /* blocks unpacked before the columns see them */
struct run32 {
    V w[RUN32][8];
    F d[RUN32], m[RUN32];
};

/* call(n, j) for all columns in n's that are constants, `most` first. */
#define EACH_COLUMNS(most, n_x, call)                                                              \
    do {                                                                                           \
        size_t j = 0;                                                                              \
        for (; j + (most) <= (n_x); j += (most))                                                   \
            call(most, j);                                                                         \
        for (; j + 2 <= (n_x); j += 2)                                                             \
            call(2, j);                                                                            \
        if (j < (n_x))                                                                             \
            call(1, j);                                                                            \
    } while (0)

/* n_x <= CHUNK columns, blocks from .. to of the rows; x is where the columns' block `from` lies, and
 * `next` bytes after a row that of the next tiles. */
#define MANY_ARGS                                                                                  \
    const struct rows *r, size_t next, const uint8_t *x, size_t x_stride, size_t n_x,              \
        const struct sides *sides, size_t from, size_t to

#ifdef V_CHAINS
#include "kern/mul_many_vnni.h"
#elif defined(V_WIDE_COLUMNS)
#include "kern/mul_many_short.h"
#else
#include "kern/mul_many.h"
#endif

/* What is compiled of a product for each type: functions of their own, which together would get in one
 * another's way in the compiler's registers, and only the forms that run, as they are most of the code. */
struct product {
    struct shape s;
    F (*one)(F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k);
    size_t most_few;
    void (*few)(F acc[FEW], const struct rows *r, struct ahead ahead, const uint8_t *const *x, size_t n, size_t k);
    void (*sides)(struct sides *sides, const uint8_t *x, size_t x_stride, size_t n_x, size_t n_blocks);
    void (*many)(F sums[V_TILES][CHUNK], MANY_ARGS);
};

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    ONE(name, block, size, __VA_ARGS__)                                                            \
    FEW_OF(name, block, size, __VA_ARGS__)                                                         \
    MUL_BY(name, block, size, __VA_ARGS__)
#ifndef V_NO_CODEBOOKS
#define MUL_TILED MUL_OF
#define MUL_CODES(name, ...)                                                                       \
    ONE_CODEBOOK(name, __VA_ARGS__)                                                                \
    FEW_CODEBOOK(name, __VA_ARGS__)                                                                \
    MUL_BY(name, 256, sizeof(struct lode_block_##name), __VA_ARGS__)
#endif
#define MUL_BY(name, block, size, ...)                                                             \
    static void sides_##name(struct sides *sides, const uint8_t *x, size_t x_stride, size_t n_x,   \
                             size_t n_blocks) {                                                    \
        const struct shape s = {__VA_ARGS__};                                                      \
        make_sides(sides, s, x, x_stride, n_x, n_blocks);                                          \
    }                                                                                              \
    static __attribute__((noinline)) void many_##name(F sums[V_TILES][CHUNK], MANY_ARGS) {         \
        const struct shape s = {__VA_ARGS__};                                                      \
        many##block(sums, s, UNPACK_##block(name), size, r, next, x, x_stride, n_x, sides, from,   \
                    to);                                                                           \
    }                                                                                              \
    void KERN(mul_##name) LODE_MUL_ARGS {                                                          \
        static const struct shape s = {__VA_ARGS__};                                               \
        const struct product p = {s, one_##name, most_few(s), few_##name, sides_##name, many_##name}; \
        mul(&p, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                                    \
    }

/* n_x <= CHUNK columns; where a row is longer than a run of blocks, y keeps its sums meanwhile. */
static void mul_many(const struct product *p, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                     const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    const size_t size = block_of_x(p->s), n_blocks = k / block_numbers(p->s), run = most_run(p->s, n_blocks, n_x);
    size_t from = 0;
    do { /* once if k is 0 */
        const size_t to = n_blocks - from < run ? n_blocks : from + run;
        struct sides sides;
        p->sides(&sides, x + from * size, x_stride, n_x, to - from);
        for (size_t i = 0; i < n_w; i += V_TILES * LANES) {
            struct rows r[V_TILES];
            F sums[V_TILES][CHUNK];
            for (size_t t = 0; t < V_TILES; t++) {
                const size_t first = i + t * LANES < n_w ? i + t * LANES : n_w - 1;
                const int n_rows = rows_left(n_w, first);
                r[t] = tile_rows(w + first * w_stride, w_stride, n_rows);
                for (size_t j = 0; j < n_x; j++)
                    sums[t][j] = f_zero();
                for (size_t j = 0; from > 0 && j < n_x; j++)
                    memcpy(&sums[t][j], y + j * ldy + first, (size_t)n_rows * sizeof(float));
            }
#ifdef V_ASK_SUMS
            for (size_t j = 0; j < n_x; j++)
                for (size_t t = 0; t < V_TILES; t++)
                    __builtin_prefetch(y + j * ldy + i + t * LANES, 1, 2);
#endif
            p->many(sums, r, V_TILES * LANES * w_stride, x + from * size, x_stride, n_x, &sides, from, to);
            for (size_t j = 0; j < n_x; j++)
                for (size_t t = 0; t < V_TILES && i + t * LANES < n_w; t++)
                    f_store(y + j * ldy + i + t * LANES, rows_left(n_w, i + t * LANES), sums[t][j]);
        }
        from = to;
    } while (from < n_blocks);
}

static void mul(const struct product *p, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    const struct ahead ahead = {LANES * w_stride}, if_any = {n_w > LANES ? LANES * w_stride : 0};
    for (size_t j = 0; j < n_x; j += CHUNK) {
        const size_t n_cols = n_x - j < CHUNK ? n_x - j : CHUNK;
        for (size_t i = 0; n_cols == 1 && i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            const struct rows r = tile_rows(w + i * w_stride, w_stride, n_rows);
            f_store(y + j * ldy + i, n_rows, p->one(f_zero(), &r, ahead, x + j * x_stride, k));
        }
        const bool is_few = n_cols > 1 && n_cols <= p->most_few;
        for (size_t i = 0; is_few && i < n_w; i += LANES) {
            const int n_rows = rows_left(n_w, i);
            const struct rows r = tile_rows(w + i * w_stride, w_stride, n_rows);
            const uint8_t *columns[FEW];
            F acc[FEW];
            few_columns(columns, x + j * x_stride, x_stride, n_cols);
            for (size_t c = 0; c < FEW; c++)
                acc[c] = f_zero();
            p->few(acc, &r, if_any, columns, n_cols, k);
            for (size_t c = 0; c < n_cols; c++)
                f_store(y + (j + c) * ldy + i, n_rows, acc[c]);
        }
        if (n_cols > 1 && !is_few)
            mul_many(p, y + j * ldy, ldy, w, w_stride, n_w, x + j * x_stride, x_stride, n_cols, k);
    }
}

#ifndef V_TYPES
#define V_TYPES "kern/mul_types.h"
#endif
#include V_TYPES
