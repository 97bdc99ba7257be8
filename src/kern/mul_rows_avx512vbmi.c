/* Products of one column with Q3_K row after row (mul_rows512.h), whose codes are taken out of bytes as products of bits (GFNI), for
 * Intel's cores; more columns are mul_quant_avx512intel.c's.  Part of no table: mul_quant_amx.c has it for few columns. */
#include "kern/vec_avx512vnni.h"

#include "kern/mul_shape.h"
#include "kern/unpack.h"

#define ROWS(name) name##_avx512vbmi
#define ROWS_MORE(name, s) ((mul_fn *)mul_##name##_avx512intel)
#define ROWS_BITS
#define ROWS_APART
#include "kern/mul_rows512_all.h"
