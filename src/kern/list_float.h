/* list_float.h - which float kernels exist beyond scalar: X(name), by instruction set.
 * kern.c lays them over the scalar ones. */
#ifndef LODE_KERN_LIST_FLOAT_H
#define LODE_KERN_LIST_FLOAT_H

/* products of what is widened as it is read */
#define LODE_FLOAT_WIDENED(X) X(mul_f16) X(mul_bf16) X(mul_e4m3) X(mul_e5m2)

/* keys and values of the cache (kv_put_f32 is memcpy) */
#define LODE_FLOAT_KV(X)                                                                           \
    X(kv_put_f16) X(kv_put_bf16)                                                                   \
    X(kv_score_f32) X(kv_score_f16) X(kv_score_bf16) X(kv_score_q8_0)                              \
    X(kv_mix_f32) X(kv_mix_f16) X(kv_mix_bf16) X(kv_mix_q8_0)

/* What *_body.h define for every instruction set that has a v16_ISA.h. */
#define LODE_FLOAT_V16(X)                                                                          \
    X(dot_f32) X(rms_norm) X(layer_norm) X(add) X(scale) X(axpy) X(silu_mul) X(gelu_mul)           \
    X(clamped_mul) X(gelu) X(gelu_erf) X(relu2) X(times) X(sigmoid_mul)                            \
    X(conv_row) X(delta_rule)                                                                      \
    X(softcap) X(rope_half) X(softmax_part)                                                        \
    X(att_score) X(att_weigh) X(att_mix)                                                           \
    X(mul_f32) LODE_FLOAT_WIDENED(X) LODE_FLOAT_KV(X)

#define LODE_FLOAT_avx2(X) LODE_FLOAT_V16(X)
#define LODE_FLOAT_avxvnni(X)
#define LODE_FLOAT_avx512(X) LODE_FLOAT_V16(X)
#define LODE_FLOAT_avx512vnni(X)
#define LODE_FLOAT_avx512vbmi(X)
#define LODE_FLOAT_avx512zen4(X)
#define LODE_FLOAT_avx512intel(X) LODE_FLOAT_WIDENED(X) LODE_FLOAT_KV(X)
#define LODE_FLOAT_amx(X)
#define LODE_FLOAT_neon(X) LODE_FLOAT_V16(X)

#endif
