/* v16_neon.h - the sixteen lanes of kern.h in four registers: v[i] has lanes 4i .. 4i+3.
 * v16.h describes the functions. */
#ifndef LODE_KERN_V16_H
#define LODE_KERN_V16_H

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    float32x4_t a, b, c, d;
} v16;

#define ISA(name) name##_neon
#define VF v16
/* 24 of the 32 registers are accumulators */
#define VF_TILE_ROWS 2
#define VF_ROWS_1 4
#define VF_TILE_COLUMNS 3
#define VF_MIX_TILE 4

static inline VF vf_set(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return (VF){v, v, v, v};
}

static inline float32x4_t v4_lesser(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcltq_f32(x, y), x, y);
}
static inline float32x4_t v4_greater(float32x4_t x, float32x4_t y) {
    return vbslq_f32(vcgtq_f32(x, y), x, y);
}
static inline float32x4_t v4_sign(float32x4_t x, float32x4_t s) {
    return vbslq_f32(vdupq_n_u32(0x80000000), s, x);
}

#define VF_EACH(name, op)                                                                          \
    static inline VF name(VF x, VF y) {                                                            \
        return (VF){op(x.a, y.a), op(x.b, y.b), op(x.c, y.c), op(x.d, y.d)};                       \
    }
VF_EACH(vf_add, vaddq_f32)
VF_EACH(vf_sub, vsubq_f32)
VF_EACH(vf_mul, vmulq_f32)
VF_EACH(vf_div, vdivq_f32)
VF_EACH(vf_lesser, v4_lesser)
VF_EACH(vf_greater, v4_greater)
VF_EACH(vf_sign, v4_sign)

static inline VF vf_fma(VF x, VF y, VF z) {
    return (VF){vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
                vfmaq_f32(z.d, x.d, y.d)};
}
static inline VF vf_abs(VF x) {
    return (VF){vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}

static inline float32x4_t v4_exponent(int32x4_t n) {
    return vreinterpretq_f32_s32(vaddq_s32(vshlq_n_s32(n, 23), vdupq_n_s32(0x3f800000)));
}
static inline int32x4_t v4_n(float32x4_t t) {
    return vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32(0x4b400000));
}
static inline float32x4_t v4_pow2(float32x4_t t) { return v4_exponent(v4_n(t)); }
static inline float32x4_t v4_pow2_half(float32x4_t t) {
    return v4_exponent(vshrq_n_s32(v4_n(t), 1));
}
static inline float32x4_t v4_pow2_rest(float32x4_t t) {
    return v4_exponent(vsubq_s32(v4_n(t), vshrq_n_s32(v4_n(t), 1)));
}
static inline VF vf_pow2(VF t) {
    return (VF){v4_pow2(t.a), v4_pow2(t.b), v4_pow2(t.c), v4_pow2(t.d)};
}
static inline VF vf_pow2_half(VF t) {
    return (VF){v4_pow2_half(t.a), v4_pow2_half(t.b), v4_pow2_half(t.c), v4_pow2_half(t.d)};
}
static inline VF vf_pow2_rest(VF t) {
    return (VF){v4_pow2_rest(t.a), v4_pow2_rest(t.b), v4_pow2_rest(t.c), v4_pow2_rest(t.d)};
}

static inline VF vf_load(const float *p) {
    return (VF){vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
static inline void vf_store(float *p, VF x) {
    vst1q_f32(p, x.a);
    vst1q_f32(p + 4, x.b);
    vst1q_f32(p + 8, x.c);
    vst1q_f32(p + 12, x.d);
}
static inline VF vf_load_n(const float *p, size_t n, float fill) {
    float x[16];
    vf_store(x, vf_set(fill));
    memcpy(x, p, n * sizeof *x);
    return vf_load(x);
}
static inline void vf_store_n(float *p, VF v, size_t n) {
    float x[16];
    vf_store(x, v);
    memcpy(p, x, n * sizeof *x);
}
static inline VF vf_keep(VF v, size_t n, float fill) {
    float x[16];
    vf_store(x, v);
    return vf_load_n(x, n, fill);
}

static inline void vf_load2(const float *p, VF *even, VF *odd) {
    const float32x4x2_t a = vld2q_f32(p), b = vld2q_f32(p + 8), c = vld2q_f32(p + 16),
                        d = vld2q_f32(p + 24);
    *even = (VF){a.val[0], b.val[0], c.val[0], d.val[0]};
    *odd = (VF){a.val[1], b.val[1], c.val[1], d.val[1]};
}
static inline void vf_store2(float *p, VF even, VF odd) {
    vst2q_f32(p, ((float32x4x2_t){{even.a, odd.a}}));
    vst2q_f32(p + 8, ((float32x4x2_t){{even.b, odd.b}}));
    vst2q_f32(p + 16, ((float32x4x2_t){{even.c, odd.c}}));
    vst2q_f32(p + 24, ((float32x4x2_t){{even.d, odd.d}}));
}

static inline float vf_join(VF x) {
    const float32x4_t s4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
static inline float vf_join_max(VF x) {
    const float32x4_t s4 = v4_greater(v4_greater(x.d, x.b), v4_greater(x.c, x.a));
    const float32x4_t s2 = v4_greater(vextq_f32(s4, s4, 2), s4);
    const float lower = vgetq_lane_f32(s2, 0), upper = vgetq_lane_f32(s2, 1);
    return upper > lower ? upper : lower;
}

static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    for (size_t r = 0; r < VF_TILE_ROWS; r++)
        y[r] = vf_join(x[r]);
}

static inline float32x4_t v4_from_f16(uint16x4_t h) {
    return vcvt_f32_f16(vreinterpret_f16_u16(h));
}
static inline float vf_half(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vgetq_lane_f32(v4_from_f16(vdup_n_u16(h)), 0);
}
static inline VF vf_load_f16(const void *p) {
    const uint16_t *h = p;
    return (VF){v4_from_f16(vld1_u16(h)), v4_from_f16(vld1_u16(h + 4)),
                v4_from_f16(vld1_u16(h + 8)), v4_from_f16(vld1_u16(h + 12))};
}
static inline float32x4_t v4_from_bf16(uint16x4_t h) {
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}
static inline VF vf_load_bf16(const void *p) {
    const uint16_t *h = p;
    return (VF){v4_from_bf16(vld1_u16(h)), v4_from_bf16(vld1_u16(h + 4)),
                v4_from_bf16(vld1_u16(h + 8)), v4_from_bf16(vld1_u16(h + 12))};
}
static inline VF vf_load_f16_n(const void *p, size_t n) {
    uint16_t h[16] = {0};
    memcpy(h, p, n * sizeof *h);
    return vf_load_f16(h);
}
static inline VF vf_load_bf16_n(const void *p, size_t n) {
    uint16_t h[16] = {0};
    memcpy(h, p, n * sizeof *h);
    return vf_load_bf16(h);
}
static inline VF vf_load_i8(const void *p) {
    const int8x16_t q = vld1q_s8(p);
    const int16x8_t lo = vmovl_s8(vget_low_s8(q)), hi = vmovl_s8(vget_high_s8(q));
    return (VF){vcvtq_f32_s32(vmovl_s16(vget_low_s16(lo))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(lo))),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(hi))),
                vcvtq_f32_s32(vmovl_s16(vget_high_s16(hi)))};
}

static inline void v16_store_halves(void *p, uint16x4_t a, uint16x4_t b, uint16x4_t c,
                                    uint16x4_t d, size_t n) {
    uint16_t h[16];
    vst1_u16(h, a);
    vst1_u16(h + 4, b);
    vst1_u16(h + 8, c);
    vst1_u16(h + 12, d);
    memcpy(p, h, n * sizeof *h);
}
static inline uint16x4_t v4_to_f16(float32x4_t x) { return vreinterpret_u16_f16(vcvt_f16_f32(x)); }
static inline void vf_store_f16(void *p, VF x, size_t n) {
    v16_store_halves(p, v4_to_f16(x.a), v4_to_f16(x.b), v4_to_f16(x.c), v4_to_f16(x.d), n);
}
static inline uint16x4_t v4_to_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(sum, 16), quiet));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    v16_store_halves(p, v4_to_bf16(x.a), v4_to_bf16(x.b), v4_to_bf16(x.c), v4_to_bf16(x.d), n);
}

static inline void vf_prefetch(const void *p) { __builtin_prefetch(p); }

#include "kern/exp_body.h"

#endif
