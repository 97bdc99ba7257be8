/* mul_rows512_all.h - products of the types that have forms beyond tiles: one column row after row, more otherwise.  The including
 * file defines
 *
 *   ROWS(name)           name##_ISA
 *   ROWS_MORE(name, s)   the mul of a type of shape s for more columns than one
 *   ROWS_APART           where a few of them are multiplied by tiles of rows that lie far apart (mul_apart.h), as on Intel's cores;
 *                        AMD's follow sixteen neighbouring rows
 *   ROWS_BITS            for MUL_BITS alone
 *
 * One column's are functions of their own: what they keep on the stack is not beside what more columns do. */
#include "kern/mul_rows512.h"

#ifdef ROWS_APART
#include "kern/mul_apart.h"
#define CALL_MORE(name, s, y, ...) mul_apart(ROWS_MORE(name, s), apart_columns(s), y, __VA_ARGS__)
#else
#define CALL_MORE(name, s, ...) ((void)(s), ROWS_MORE(name, s)(__VA_ARGS__))
#endif

#undef MUL
#undef MUL_OF
#undef MUL_CODES
#undef MUL_TILED
#define LINES_32(name) lines_##name
#define LINES_256(name) (struct lines){0}
#ifdef ROWS_BITS
#define MUL(...)
#define MUL_OF(...)
#define MUL_BITS(name, block, ...) MUL_ROWS(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#else
#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF MUL_ROWS
#endif
#define MUL_ROWS(name, block, size, ...)                                                           \
    static __attribute__((noinline)) void rows_##name(float *y, const uint8_t *w, size_t w_stride, \
                                                      size_t n_w, const uint8_t *x, size_t k) {    \
        const struct shape s = {__VA_ARGS__};                                                      \
        mul_rows(s, LINES_##block(name), size, y, w, w_stride, n_w, x, k);                         \
    }                                                                                              \
    void ROWS(mul_##name) LODE_MUL_ARGS {                                                          \
        const struct shape s = {__VA_ARGS__};                                                      \
        if (n_x == 1 && k > 0)                                                                     \
            rows_##name(y, w, w_stride, n_w, x, k);                                                \
        else                                                                                       \
            CALL_MORE(name, s, y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                        \
    }
#include "kern/mul_types.h"
