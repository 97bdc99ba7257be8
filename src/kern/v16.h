/* v16.h - sixteen floats side by side: the lanes of kern.h as an instruction set has them.
 *
 * The float kernels are written once, in *_body.h, over the functions below; float_ISA.c includes
 * them after v16_ISA.h, which defines these for one 512-bit, two 256-bit or four 128-bit registers.
 * Each does one IEEE operation a lane, so that all give the scalar kernels' bits.  (This file is
 * their description; nothing includes it.)
 *
 *     VF, and the arithmetic that exp_body.h lists
 *     ISA(name)                      name with the instruction set's suffix
 *     VF_TILE_ROWS, VF_TILE_COLUMNS  accumulators of a matrix product that fit into the registers
 *     VF_ROWS_1                      rows at a time where there is one column
 *     VF_MIX_TILE                    accumulators of kv_mix
 *
 *     vf_load(p), vf_store(p, x)     unaligned
 *     vf_load_n(p, n, fill)          the first n < 16 from memory, the others are `fill`
 *     vf_store_n(p, x, n)            only the first n
 *     vf_keep(x, n, fill)            the first n of x, the others `fill`
 *     vf_load2, vf_store2            32 floats, the even ones in one, the odd ones in the other
 *     vf_join(x), vf_join_max(x)     the tree of kern.h, over + and over greater(upper, lower)
 *     vf_join_rows(y, x)             y[r] = vf_join(x[r]) for VF_TILE_ROWS of them, together
 *
 *     vf_half(p)                     one binary16 as float
 *     vf_load_f16, vf_load_bf16      16 halves widened;  .._n(p, n): the others are +0
 *     vf_load_i8                     16 signed bytes as floats
 *     vf_store_f16, vf_store_bf16    the first n <= 16, rounded to nearest even; NaNs as base/half.h
 *     vf_prefetch(p)
 *
 * A remainder of n numbers is added to sixteen lanes with weights filled up with +0 and activations
 * with -0: the product -0 leaves every lane as it is, even one that is -0.
 */
