/* mul_rows512_all.h - products of all types: one column row after row, more otherwise.  The including file defines
 *
 *   ROWS(name)           name##_ISA
 *   ROWS_MORE(name, s)   the mul of a type of shape s for more columns than one */
#include "kern/mul_rows512.h"

#undef MUL
#undef MUL_OF
#define LINES_32(name) lines_##name
#define LINES_256(name) (struct lines){0}
#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    void ROWS(mul_##name) LODE_MUL_ARGS {                                                          \
        const struct shape s = {__VA_ARGS__};                                                      \
        if (n_x == 1 && k > 0)                                                                     \
            mul_rows(s, LINES_##block(name), size, y, w, w_stride, n_w, x, k);                     \
        else                                                                                       \
            ROWS_MORE(name, s)(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                     \
    }
#include "kern/mul_types.h"
