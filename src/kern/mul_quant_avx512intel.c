/* Products for Intel's cores: one column row after row, many of the types whose groups are summed in parts there; the
 * others are mul_quant_avx512vnni.c's. */
#include "kern/vec_avx512vnni.h"

#include "kern/kern.h"

static void mul_q5_k_parts LODE_MUL_ARGS;
static void mul_q6_k_parts LODE_MUL_ARGS;

#define KERN(name) name##_parts
#define V_PARTS
#define V_TYPES "kern/mul_types_parts.h"
#include "kern/mul_tile.h"

#include "kern/mul_rows512.h"

typedef void mul_fn LODE_MUL_ARGS;

#undef MUL
#undef MUL_OF
#define LINES_32(name) lines_##name
#define LINES_256(name) (struct lines){0}
#define MUL(name, block, ...) MUL_OF(name, block, sizeof(struct lode_block_##name), __VA_ARGS__)
#define MUL_OF(name, block, size, ...)                                                             \
    void mul_##name##_avx512intel LODE_MUL_ARGS {                                                  \
        const struct shape s = {__VA_ARGS__};                                                      \
        mul_fn *const more = s.groups && s.top == 31   ? mul_q5_k_parts                            \
                             : s.groups && s.top == 63 ? mul_q6_k_parts                            \
                                                       : mul_##name##_avx512vnni;                  \
        if (n_x == 1 && k > 0)                                                                     \
            mul_rows(s, LINES_##block(name), size, y, w, w_stride, n_w, x, k);                     \
        else                                                                                       \
            more(y, ldy, w, w_stride, n_w, x, x_stride, n_x, k);                                   \
    }
#include "kern/mul_types.h"
