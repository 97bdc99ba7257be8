/* Products for Zen 4: one column row after row, more by tiles of its own, which are asked for into the second level as
 * the first has 32 KB. */
#include "kern/vec_avx512vnni.h"

#include "kern/kern.h"

#define MUL(name, ...) static void mul_##name##_tiles LODE_MUL_ARGS;
#define MUL_OF MUL
#include "kern/mul_types.h"
#undef MUL
#undef MUL_OF

#define KERN(name) name##_tiles
#define V_NEAR_TILE 12288
#define V_SCALES_FIRST
#define V_ASK_SUMS
#define V_NO_CODEBOOKS
#include "kern/mul_tile.h"

#define ROWS(name) name##_avx512zen4
#define ROWS_MORE(name, s) mul_##name##_tiles
#include "kern/mul_rows512_all.h"
