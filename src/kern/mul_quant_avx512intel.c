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

#define ROWS(name) name##_avx512intel
#define ROWS_MORE(name, s)                                                                         \
    ((s).groups && (s).top == 31   ? (mul_fn *)mul_q5_k_parts                                      \
     : (s).groups && (s).top == 63 ? (mul_fn *)mul_q6_k_parts                                      \
                                   : (mul_fn *)mul_##name##_avx512vnni)
#define ROWS_APART
#include "kern/mul_rows512_all.h"
