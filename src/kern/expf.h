/* expf.h - exp, tanh, silu and gelu of one float: what the scalar kernels use, and the definition
 * that the vector kernels equal bit for bit.  Errors and their derivation: exp_body.h.
 *
 *     lode_expf   overflows to infinity above 88.73, underflows to 0 below -103.98
 *     lode_tanhf  odd; +-1 from about +-9
 *     lode_siluf  x / (1 + e^-x); 0 * ... : silu(-inf) is NaN, silu(-1000) is -0
 *     lode_geluf  the tanh form; lode_gelu_erff the one by the error function
 *     lode_relu2f max(x, 0)^2
 *     lode_clampedf  gpt-oss's gated activation
 */
#ifndef LODE_KERN_EXPF_H
#define LODE_KERN_EXPF_H

#include "base/half.h"

#include <math.h>

#define VF float
#define VF_FN static inline
static inline float vf_set(float x) { return x; }
static inline float vf_add(float a, float b) { return a + b; }
static inline float vf_sub(float a, float b) { return a - b; }
static inline float vf_mul(float a, float b) { return a * b; }
static inline float vf_div(float a, float b) { return a / b; }
static inline float vf_fma(float a, float b, float c) { return fmaf(a, b, c); }
static inline float vf_lesser(float a, float b) { return a < b ? a : b; }
static inline float vf_greater(float a, float b) { return a > b ? a : b; }
static inline float vf_abs(float x) { return lode_bits_f32(lode_f32_bits(x) & 0x7fffffff); }
static inline float vf_sign(float x, float s) {
    return lode_bits_f32((lode_f32_bits(x) & 0x7fffffff) | (lode_f32_bits(s) & 0x80000000));
}
/* MAGIC's own bits end in 22 zeros, so shifting t's bits by 23 leaves n where the exponent lies. */
static inline float vf_pow2(float t) {
    return lode_bits_f32((lode_f32_bits(t) << 23) + 0x3f800000);
}
static inline float vf_times_pow2(float x, float t) {
    /* t's low bits as a signed number: 0x4b400000 is MAGIC */
    const int32_t n = (int32_t)(lode_f32_bits(t) - 0x4b400000);
    const float half = lode_bits_f32(((uint32_t)(n >> 1) << 23) + 0x3f800000);
    const float rest = lode_bits_f32(((uint32_t)(n - (n >> 1)) << 23) + 0x3f800000);
    return x * half * rest;
}

#include "kern/exp_body.h"
#undef VF
#undef VF_FN

static inline float lode_expf(float x) { return vf_exp(x); }
static inline float lode_tanhf(float x) { return vf_tanh(x); }
static inline float lode_siluf(float x) { return vf_silu(x); }
static inline float lode_geluf(float x) { return vf_gelu(x); }
static inline float lode_gelu_erff(float x) { return vf_gelu_erf(x); }
static inline float lode_relu2f(float x) { return vf_relu2(x); }
static inline float lode_clampedf(float gate, float up) { return vf_clamped(gate, up); }

#endif
