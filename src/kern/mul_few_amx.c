/* Products of one column and of a few on cores that have AMX: mul_quant_avx512vnni.c's, of weights that are copied on
 * the way (mul_ahead.h). */
#include "kern/mul_few_amx.h"
#include "kern/vec_avx512vnni.h"

#define KERN(name) name##_few_amx
#define MANY(name) name##_avx512vnni
#define V_COPIES

#include "kern/mul_tile.h"
