/* Products of quantised weights: 16 rows at once, dot products by VNNI. */
#include "kern/vec_avx512vnni.h"

#define KERN(name) name##_avx512vnni

#include "kern/mul_tile.h"
