/* mul_types.h - every quantised type with a product of its own, and how its codes become a sum
 * (struct shape of mul_shape.h): MUL(name, numbers of a block, ...) and, where what the loops take is
 * not the block of tensor/block.h, MUL_OF(name, numbers, bytes, ...).  Types that have no forms beyond
 * mul_tile.h's: codebook types, all of blocks of 256 numbers, MUL_CODES(name, ...), and others, MUL_TILED
 * as MUL_OF.  Includers define all four, but for the last two where they do without.  MUL_BITS: MUL, but where the type whose
 * codes are bits from two places has another form. */

#include "kern/codebook.h"

#ifndef MUL_BITS
#define MUL_BITS(name, ...) MUL(name, __VA_ARGS__)
#endif

/* halves of a block: 32 numbers, as the loops take them */
#define HALF(name) sizeof(struct lode_block_##name) / 2
MUL(q4_0, 32, .codes = 2, .top = 15, .bias = 8)
MUL(q4_1, 32, .codes = 4, .top = 15, .minima = 1)
MUL(q5_0, 32, .codes = 6, .top = 31, .bias = 16)
MUL(q5_1, 32, .codes = 8, .top = 31, .minima = 1)
MUL(q8_0, 32, .codes = 2, .wide = 1, .bias = V_WIDE_BIAS)
MUL(iq4_nl, 32, .codes = 2, .levels = 1, .wide = 1, .bias = V_WIDE_BIAS)
MUL(mxfp4, 32, .codes = 1, .levels = 1, .top = 2 * FP4_BIAS, .bias = FP4_BIAS)
MUL_OF(u2, 32, HALF(u2), .top = 3, .minima = 1)
MUL_OF(u3, 32, HALF(u3), .top = 7, .minima = 1)
MUL_OF(u4, 32, HALF(u4), .codes = 4, .top = 15, .minima = 1)
MUL_OF(u5, 32, HALF(u5), .top = 31, .minima = 1)
MUL_OF(u6, 32, HALF(u6), .top = 63, .minima = 1)
MUL_OF(u8, 32, HALF(u8), .codes = 4, .wide = 1, .bias = V_WIDE_BIAS - 128, .minima = 1)
MUL(u4g32, 32, .codes = 8, .top = 15, .minima = 1)
MUL(u8g32, 32, .codes = 8, .wide = 1, .bias = V_WIDE_BIAS - 128, .minima = 1)
MUL(q2_k, 256, .top = 3, .groups = 16, .runs = 4, .minima = 1)
MUL_BITS(q3_k, 256, .top = 7, .groups = 16, .runs = 4, .bias = 4)
MUL(q4_k, 256, .top = 15, .groups = 8, .runs = 2, .minima = 1)
#include "kern/mul_types_parts.h"
MUL(iq4_xs, 256, .groups = 8, .runs = 2, .adjacent = 1, .wide = 1, .bias = V_WIDE_BIAS)
#ifdef MUL_CODES
MUL_TILED(q1_0, 32, PART_BYTES(q1_0), .top = 2, .bias = 1)
MUL_TILED(q2_0, 32, PART_BYTES(q2_0), .top = 3, .bias = 1)
#define NVFP4(name)                                                                                \
    MUL_TILED(name, 32, PART_BYTES(name), .codes = offsetof(struct lode_block_##name, qs), .levels = 1, \
              .top = 2 * FP4_BIAS, .bias = FP4_BIAS, .halves = 1)
NVFP4(nvfp4)
NVFP4(nvfp4g)
#undef NVFP4
MUL_TILED(tq2_0, 256, sizeof(struct lode_block_tq2_0), .top = 3, .groups = 16, .runs = 4, .bias = 1, .ternary = 1)
#define CODES(name, type, n, most, ...)                                                            \
    MUL_CODES(name, .top = 2 * (most), .groups = n, .runs = 2, .adjacent = 1, .bias = most, .codebook = 1, \
              .ternary = (most) == 1)
LODE_CODEBOOK_LIST(CODES)
#undef CODES
#endif
