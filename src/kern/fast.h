/* fast.h - products of --numerics fast: instructions that multiply pairs of BF16 numbers.
 *
 * What they give depends on the instruction set (subnormal numbers are zeros to them, and they round
 * in an order of their own), so they are nobody's definition and take part only where the user asked.
 * Law 2 holds all the same: the result of one (row, column) does not depend on the others.
 *
 *     y[j * ldy + i] = < w row i, x row j >
 *
 * with both rounded to BF16 (to nearest even; F16 weights as they are read) and summed up in float32.
 * Arguments as in LODE_MUL_ARGS, but x rows are BF16, with zeros from k to the next multiple of
 * LODE_FAST_STEP, a multiple of 4 bytes apart, and rows to the next multiple of LODE_FAST_ROWS can be read (what they
 * hold does not matter). */
#ifndef LODE_KERN_FAST_H
#define LODE_KERN_FAST_H

#include "kern/kern.h"

/* Weakest first. */
#define LODE_FAST_LIST(X) X(avx512bf16) X(amxbf16)
/* Weights that have such products: X(suffix, dtype). */
#define LODE_FAST_TYPES(X) X(f16, F16) X(bf16, BF16)

enum { LODE_FAST_STEP = 32, LODE_FAST_ROWS = 16 };

enum lode_fast {
    LODE_FAST_none,
#define LODE_FAST_ENUM(name) LODE_FAST_##name,
    LODE_FAST_LIST(LODE_FAST_ENUM)
#undef LODE_FAST_ENUM
};

/* The best that this computer has without going beyond `isa`; none where it has nothing. */
enum lode_fast lode_fast_best(enum lode_isa isa);
const char *lode_fast_name(enum lode_fast f); /* "none", "avx512bf16", ... */

typedef void lode_fast_mul LODE_MUL_ARGS;
/* NULL: this type has none, and is multiplied as ever. */
lode_fast_mul *lode_fast_of(enum lode_fast f, enum lode_dtype type);

#define LODE_FAST_PROTO(isa)                                                                       \
    lode_fast_mul fast_f16_##isa, fast_bf16_##isa;
LODE_FAST_LIST(LODE_FAST_PROTO)

#endif
