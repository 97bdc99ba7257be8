/* list_quant.h - which kernels of quantised types exist beyond scalar, by instruction set:
 * LODE_QUANT_isa: X(name of LODE_KERN_LIST); LODE_DEQUANT_isa: X(suffix, dtype) as in
 * LODE_DEQUANT_LIST.  kern.c lays them over the scalar ones. */
#ifndef LODE_KERN_LIST_QUANT_H
#define LODE_KERN_LIST_QUANT_H

/* kern/mul_tile.h and quant_vec.h define all of these for any width; mul_rows512.h has forms of its own for the first,
 * codes_vbmi.h for the second */
#define LODE_QUANT_ROWS(X)                                                                         \
    X(mul_q4_0) X(mul_q4_1) X(mul_q5_0) X(mul_q5_1) X(mul_q8_0) X(mul_q2_k) X(mul_q3_k)            \
    X(mul_q4_k) X(mul_q5_k) X(mul_q6_k) X(mul_iq4_nl) X(mul_iq4_xs) X(mul_mxfp4)                   \
    X(mul_u2) X(mul_u3) X(mul_u4) X(mul_u5) X(mul_u6) X(mul_u8) X(mul_u4g32) X(mul_u8g32)
#define LODE_QUANT_CODES(X)                                                                        \
    X(mul_tq1_0) X(mul_iq1_s) X(mul_iq1_m) X(mul_iq2_xxs) X(mul_iq2_xs) X(mul_iq2_s)               \
    X(mul_iq3_xxs) X(mul_iq3_s)
#define LODE_QUANT_MUL(X)                                                                          \
    LODE_QUANT_ROWS(X) LODE_QUANT_CODES(X)                                                         \
    X(mul_tq2_0) X(mul_q1_0) X(mul_q2_0) X(mul_nvfp4) X(mul_nvfp4g)
#define LODE_QUANT_PUT(X) X(quant_a32) X(quant_a256) X(kv_put_q8_0)

#define LODE_QUANT_avx2(X) LODE_QUANT_MUL(X) LODE_QUANT_PUT(X)
#define LODE_QUANT_avxvnni(X) LODE_QUANT_MUL(X)
#define LODE_QUANT_avx512(X) LODE_QUANT_MUL(X) LODE_QUANT_PUT(X)
#define LODE_QUANT_avx512vnni(X) LODE_QUANT_MUL(X)
#define LODE_QUANT_avx512vbmi(X) LODE_QUANT_CODES(X)
#define LODE_QUANT_avx512zen4(X) LODE_QUANT_ROWS(X)
#define LODE_QUANT_avx512intel(X) LODE_QUANT_ROWS(X)
#define LODE_QUANT_amx(X) LODE_QUANT_ROWS(X) LODE_QUANT_CODES(X)
#define LODE_QUANT_neon(X) LODE_QUANT_MUL(X) LODE_QUANT_PUT(X)

/* what is missing is not faster than the scalar version */
#define LODE_DEQUANT_avx2(X)                                                                       \
    X(f16, F16) X(bf16, BF16) X(f64, F64) X(i8, I8) X(i16, I16) X(i32, I32) X(q8_1, Q8_1)          \
    X(q2_k, Q2_K) X(q3_k, Q3_K) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K) X(q8_k, Q8_K)            \
    X(iq1_s, IQ1_S) X(iq1_m, IQ1_M) X(iq2_xxs, IQ2_XXS) X(iq2_xs, IQ2_XS) X(iq2_s, IQ2_S)          \
    X(iq3_xxs, IQ3_XXS) X(iq3_s, IQ3_S) X(iq4_xs, IQ4_XS) X(tq1_0, TQ1_0) X(tq2_0, TQ2_0)          \
    X(q1_0, Q1_0) X(q2_0, Q2_0) X(nvfp4, NVFP4)                                                    \
    LODE_MUL_U_LIST(X) X(nvfp4g, NVFP4G)
#define LODE_DEQUANT_avxvnni(X)
#define LODE_DEQUANT_avx512(X) X(f16, F16)
#define LODE_DEQUANT_avx512vnni(X)
#define LODE_DEQUANT_avx512vbmi(X)
#define LODE_DEQUANT_avx512zen4(X)
#define LODE_DEQUANT_avx512intel(X)
#define LODE_DEQUANT_amx(X)
#define LODE_DEQUANT_neon(X)

#endif
