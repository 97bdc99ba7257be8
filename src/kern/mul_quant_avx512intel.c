/* Products of one column for Intel's cores, row after row; more columns are mul_quant_avx512vnni.c's. */
#include "kern/vec_avx512vnni.h"

#include "kern/mul_shape.h"

#include "kern/mul_rows512.h"

#define LINES_32(name) lines_##name
#define LINES_256(name) (struct lines){0}
#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    void mul_##name##_avx512intel LODE_MUL_ARGS {                                                   \
        const struct shape s = {__VA_ARGS__};                                                      \
        if (n_x == 1 && k > 0)                                                                     \
            mul_rows(s, LINES_##block(name), size, y, w, w_stride, n_w, x, k);                     \
        else                                                                                       \
            mul_##name##_avx512vnni(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                \
    }
#include "kern/mul_types.h"
