/* v16.h - sixteen floats side by side: the lanes of kern.h as an instruction set has them.
 *
 * The float kernels are written once, in *_body.h, over the functions named here, each of which
 * does one IEEE operation a lane, so that all instruction sets give the scalar kernels' bits.
 * float_ISA.c includes v16_ISA.h and then the bodies.  v16_ISA.h defines
 *
 *     ISA(name)                      name with the instruction set's suffix
 *     VP, VP_LANES                   a register of floats, and how many; 16 / VP_LANES make a VF
 *     VF_TILE_ROWS, VF_TILE_COLUMNS  accumulators of a matrix product that fit into the registers
 *     VF_ROWS_1                      rows at a time where there is one column
 *     VF_COPY_NUMBERS                if it exists: mul_copied.h, the floats that it copies, with
 *     vp_load_bf16_even, _odd(p)     of sixteen halves, as floats; and below
 *     vf_apart(x), vf_together(x)    lanes 0, 2, .. 14, 1, 3, .. 15 of x, and back
 *     VF_TILE_LOOP, VF_STEP_LOOP     if they exist: what unrolls the loops over a tile's accumulators, so that these
 *                                    stay in registers, and over steps of k
 *     VF_MIX_TILE                    accumulators of kv_mix
 *     VF_MIX_VECTORS                 vectors of a tile of six queries there
 *     VF_ATT_KEYS                    keys of a tile of two registers of queries (att_score)
 *     VF_FEW_MIX                     if it exists: kv_few.h, its accumulators of values,
 *     VF_FEW_QUERIES                 the most queries that share them, 2 or 4,
 *     vf_few_takes(f, n_q)           whether it has so many queries that share keys of format f,
 *     vf_few_rows(p)                 what asks for lines of the next piece,
 *     vf_few_near(p)                 what is asked for into the first level, if anything, and what joins its sums:
 *     vp_join_4(y, x), vp_join_2_by_4(y0, y1, x)   of registers of sixteen lanes, or of eight that hold lanes l and
 *                                    l + 8 added up, y[i] the rest of the tree of x[i]; y1[i] of x[4 + i]
 *
 *     vp_set, vp_load, vp_store, vp_add, vp_sub, vp_mul, vp_div, vp_fma(a, b, c) = a b + c
 *     vp_lesser, vp_greater, vp_abs, vp_sign, vp_pow2, vp_times_pow2: exp_body.h
 *     vp_load_f16, vp_load_bf16      VP_LANES halves, widened
 *     vp_load_i8                     VP_LANES signed bytes, as floats
 *     vp_load_e4m3, vp_load_e5m2     VP_LANES 8-bit floats: as binary16, whose upper byte E5M2 is,
 *                                    and E4M3 but for its bias (a product with 2^8) and its NaN
 *     vp_set_f16(p)                  one binary16, in all lanes
 *     vp_held(x)                     x, but the compiler must keep it in a register
 *
 * then includes this file, which makes of them the same functions of a VF (vf_add, ...), and adds
 *
 *     vf_load_n(p, n, fill)          the first n < 16 from memory, the others are `fill`
 *     vf_load_f16_n, .._bf16_n(p, n) likewise, the others +0
 *     vf_store_n(p, x, n)            only the first n
 *     vf_keep(x, n, fill)            the first n of x, the others `fill`
 *     vf_hide(x, seen, j)            x, but -infinity where seen[i] <= j; both below 2^31
 *     vf_load2                       32 floats, the even ones in one, the odd ones in the other
 *     vf_join(x), vf_join_max(x)     the tree of kern.h, over + and over greater(upper, lower)
 *     vf_join_rows(y, x)             y[r] = vf_join(x[r]) for VF_TILE_ROWS of them, together
 *     vf_store_f16, vf_store_bf16    the first n <= 16, rounded as base/half.h does
 *     vf_prefetch(p)                 a macro: gcc 12 sees no effect in a function that does only
 *                                    this and leaves its calls out
 *     vf_prefetch_rows(p)            the same of rows that are read later: into the second level, which takes more
 *                                    misses at a time
 *     VF_AHEAD                       bytes that are asked for ahead of rows that a tile reads side by side
 *
 * Loads and stores need no alignment.  A remainder of n numbers is added to sixteen lanes with
 * weights filled up with +0 and activations with -0: the product -0 leaves every lane as it is,
 * even one that is -0.
 */
#ifndef LODE_KERN_V16_H
#define LODE_KERN_V16_H

enum { VF_PARTS = 16 / VP_LANES };

typedef struct {
    VP v[VF_PARTS]; /* lanes 0 .. VP_LANES-1 first */
} v16;
#define VF v16

/* Structs of several registers are handed over in memory, where gcc puts them together from halves: exp took
 * seven times as long.  So their functions are never called. */
#if VP_LANES < 16
#define VF_FN static inline __attribute__((always_inline))
#else
#define VF_FN static inline
#endif

#define VF_PART for (int i = 0; i < VF_PARTS; i++)
#define VF_OF_1(op)                                                                                \
    VF_FN VF vf_##op(VF x) {                                                                         \
        VF_PART x.v[i] = vp_##op(x.v[i]);                                                          \
        return x;                                                                                  \
    }
#define VF_OF_2(op)                                                                                \
    static inline VF vf_##op(VF x, VF y) {                                                         \
        VF_PART x.v[i] = vp_##op(x.v[i], y.v[i]);                                                  \
        return x;                                                                                  \
    }
VF_OF_1(abs)
VF_OF_1(pow2)
VF_OF_2(add)
VF_OF_2(sub)
VF_OF_2(mul)
VF_OF_2(div)
VF_OF_2(lesser)
VF_OF_2(greater)
VF_OF_2(sign)
VF_OF_2(times_pow2)

static inline VF vf_fma(VF x, VF y, VF z) {
    VF_PART z.v[i] = vp_fma(x.v[i], y.v[i], z.v[i]);
    return z;
}
static inline VF vf_set(float f) {
    VF x;
    VF_PART x.v[i] = vp_set(f);
    return x;
}
static inline VF vf_load(const float *p) {
    VF x;
    VF_PART x.v[i] = vp_load(p + i * VP_LANES);
    return x;
}
static inline void vf_store(float *p, VF x) { VF_PART vp_store(p + i * VP_LANES, x.v[i]); }

#include "kern/exp_body.h"

#endif
