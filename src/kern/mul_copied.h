/* mul_copied.h - products of one and of a few columns whose weights are copied before they are multiplied
 * (mul_ahead.h), or read row after row (mul_rows512.h).  What results is mul_tile.h's: a row's blocks come in their
 * order, whatever the pieces.
 *
 * The including file defines MANY(name): the product of more columns, or of shorter rows. */

struct product {
    struct shape s;
    /* of one column; NULL: of a type that goes row after row */
    F (*one)(F acc, const struct rows *r, struct ahead ahead, const uint8_t *x, size_t k);
    void (*few)(F acc[FEW], const struct rows *r, struct ahead ahead, const uint8_t *const *x, size_t n, size_t k);
    size_t size; /* bytes of a block of weights */
};

/* Where a product is: a tile of rows, and which part of their blocks. */
struct place {
    size_t row, part;
};

struct matrix {
    const uint8_t *w;
    size_t stride, n; /* bytes from a row to the next, rows */
    size_t size, n_blocks, parts;
};

/* Even, because two halves of 32 numbers may share what is before them. */
INLINE size_t first_block(const struct matrix *m, size_t part) {
    return part == m->parts ? m->n_blocks : m->n_blocks * part / m->parts & ~(size_t)1;
}
INLINE size_t run_bytes(const struct matrix *m, size_t part) {
    return (first_block(m, part + 1) - first_block(m, part)) * m->size;
}

/* The piece at p, to be copied to `to`; past the last row nothing. */
static struct ahead piece(const struct matrix *m, struct place p, uint8_t *to) {
    if (p.row >= m->n)
        return (struct ahead){.runs = 0};
    const size_t n_rows = (size_t)rows_left(m->n, p.row), run = run_bytes(m, p.part);
    struct ahead a = {.from = m->w + p.row * m->stride + first_block(m, p.part) * m->size,
                      .to = to, .run = run, .left = run, .runs = n_rows, .stride = m->stride, .early = m->stride};
    if (run == m->stride) { /* rows lie one after the other */
        a.run = a.left = run * n_rows;
        a.runs = 1;
        a.early = EARLY;
    }
    return a;
}

INLINE struct place after(const struct matrix *m, struct place p) {
    return p.part + 1 < m->parts ? (struct place){p.row, p.part + 1} : (struct place){p.row + LANES, 0};
}

static void mul_copied(const struct product *p, float *y, size_t ldy, const uint8_t *w, size_t w_stride, size_t n_w,
                       const uint8_t *x, size_t x_stride, size_t n_x, size_t k) {
    _Alignas(64) uint8_t pieces[2][COPIED];
    const size_t block = block_numbers(p->s);
    struct matrix m = {.w = w, .stride = w_stride, .n = n_w, .size = p->size, .n_blocks = k / block};
    m.parts = (LANES * m.n_blocks * m.size + COPIED - 2 * LANES * m.size - 1) / (COPIED - 2 * LANES * m.size);
    struct place at = {0, 0};
    struct ahead ahead = piece(&m, at, pieces[0]);
    F acc[FEW];
    bring_rest(&ahead);
    for (int turn = 0; at.row < n_w; turn = !turn) {
        const int n_rows = rows_left(n_w, at.row);
        const size_t from = first_block(&m, at.part), numbers = (first_block(&m, at.part + 1) - from) * block;
        const struct rows r = tile_rows(pieces[turn], run_bytes(&m, at.part), n_rows);
        const uint8_t *columns[FEW];
        few_columns(columns, x + from * block_of_x(p->s), x_stride, n_x);
        for (size_t c = 0; at.part == 0 && c < FEW; c++)
            acc[c] = f_zero();
        const struct place next = after(&m, at);
        ahead = piece(&m, next, pieces[!turn]);
        if (n_x == 1)
            acc[0] = p->one(acc[0], &r, ahead, columns[0], numbers);
        else
            p->few(acc, &r, ahead, columns, n_x, numbers);
        for (size_t c = 0; next.part == 0 && c < n_x; c++)
            f_store(y + c * ldy + at.row, n_rows, acc[c]);
        at = next;
    }
}

#include "kern/mul_rows512.h"

#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    ONE_AND_FEW(name, block, size, __VA_ARGS__)                                                    \
    void KERN(mul_##name) LODE_MUL_ARGS {                                                          \
        const struct shape s = {__VA_ARGS__};                                                      \
        const struct product p = {s, by_rows(s, size) ? NULL : one_##name, few_##name, size};      \
        if (by_rows(s, size) && n_x == 1 && k > 0)                                                 \
            mul_rows(s, size, y, w, w_stride, n_w, x, k);                                          \
        else if (n_x == 0 || n_w == 0 || n_x > most_few(s) || k / (block) * (size) < LINE)         \
            MANY(mul_##name)(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                       \
        else                                                                                       \
            mul_copied(&p, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                         \
    }
#include "kern/mul_types.h"
