/* v16_neon.h - the sixteen lanes of kern.h in four registers.  v16.h describes the functions. */
#include <arm_neon.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ISA(name) name##_neon
#define VP float32x4_t
#define VP_LANES 4
/* 24 accumulators, 2 rows of weights and a column: 27 of the 32 registers */
#define VF_TILE_ROWS 2
#define VF_TILE_COLUMNS 3
#define VF_ROWS_1 4
#define VF_MIX_TILE 4
#define VF_MIX_VECTORS 1
#define VF_ATT_KEYS 3

static inline VP vp_set(float x) { return vdupq_n_f32(x); }
static inline VP vp_load(const float *p) { return vld1q_f32(p); }
static inline void vp_store(float *p, VP x) { vst1q_f32(p, x); }
static inline VP vp_add(VP a, VP b) { return vaddq_f32(a, b); }
static inline VP vp_sub(VP a, VP b) { return vsubq_f32(a, b); }
static inline VP vp_mul(VP a, VP b) { return vmulq_f32(a, b); }
static inline VP vp_div(VP a, VP b) { return vdivq_f32(a, b); }
static inline VP vp_fma(VP a, VP b, VP c) { return vfmaq_f32(c, a, b); }
/* Not FMIN and FMAX: those let NaN win and order the zeros. */
static inline VP vp_lesser(VP a, VP b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
static inline VP vp_greater(VP a, VP b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
static inline VP vp_abs(VP x) { return vabsq_f32(x); }
static inline VP vp_sign(VP x, VP s) { return vbslq_f32(vdupq_n_u32(0x80000000), s, x); }

static inline VP vp_exponent(int32x4_t n) {
    return vreinterpretq_f32_s32(vaddq_s32(vshlq_n_s32(n, 23), vdupq_n_s32(0x3f800000)));
}
static inline int32x4_t vp_n(VP t) {
    return vsubq_s32(vreinterpretq_s32_f32(t), vdupq_n_s32(0x4b400000));
}
static inline VP vp_pow2(VP t) { return vp_exponent(vp_n(t)); }
static inline VP vp_times_pow2(VP x, VP t) {
    const int32x4_t n = vp_n(t), half = vshrq_n_s32(n, 1);
    return vp_mul(vp_mul(x, vp_exponent(half)), vp_exponent(vsubq_s32(n, half)));
}

static inline VP vp_from_f16(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
static inline VP vp_load_f16(const void *p) { return vp_from_f16(vld1_u16(p)); }
static inline VP vp_load_bf16(const void *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline VP vp_load_i8(const void *p) {
    int8_t q[8] = {0}; /* there is no load of four bytes */
    memcpy(q, p, VP_LANES);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vld1_s8(q)))));
}
static inline uint16x4_t vp_load_u8(const void *p) {
    uint8_t q[8] = {0};
    memcpy(q, p, VP_LANES);
    return vget_low_u16(vmovl_u8(vld1_u8(q)));
}
static inline VP vp_load_e4m3(const void *p) {
    const uint16x4_t b = vp_load_u8(p), size = vdup_n_u16(0x7f), low = vand_u16(b, size);
    const uint16x4_t half = vorr_u16(vshl_n_u16(low, 7), vshl_n_u16(vbic_u16(b, size), 8));
    return vmulq_n_f32(vp_from_f16(vorr_u16(half, vceq_u16(low, size))), 0x1p8f);
}
static inline VP vp_load_e5m2(const void *p) {
    return vp_from_f16(vshl_n_u16(vp_load_u8(p), 8));
}
static inline VP vp_set_f16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return vp_from_f16(vdup_n_u16(h));
}

static inline VP vp_held(VP x) {
    __asm__("" : "+w"(x));
    return x;
}

#include "kern/v16.h"

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
static inline VF vf_hide(VF x, const uint32_t *seen, uint32_t j) {
    VF_PART x.v[i] = vbslq_f32(vcgtq_u32(vld1q_u32(seen + i * VP_LANES), vdupq_n_u32(j)), x.v[i], vp_set(-INFINITY));
    return x;
}
static inline VF vf_load_f16_n(const void *p, size_t n) {
    uint16_t h[16] = {0};
    VF x;
    memcpy(h, p, n * sizeof *h);
    VF_PART x.v[i] = vp_load_f16(h + i * VP_LANES);
    return x;
}
static inline VF vf_load_bf16_n(const void *p, size_t n) {
    uint16_t h[16] = {0};
    VF x;
    memcpy(h, p, n * sizeof *h);
    VF_PART x.v[i] = vp_load_bf16(h + i * VP_LANES);
    return x;
}

static inline void vf_load2(const float *p, VF *even, VF *odd) {
    VF_PART {
        const float32x4x2_t x = vld2q_f32(p + 8 * i);
        even->v[i] = x.val[0];
        odd->v[i] = x.val[1];
    }
}

static inline float vf_join(VF x) {
    const VP s4 = vp_add(vp_add(x.v[0], x.v[2]), vp_add(x.v[1], x.v[3]));
    const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
    return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
static inline float vf_join_max(VF x) {
    const VP s4 = vp_greater(vp_greater(x.v[3], x.v[1]), vp_greater(x.v[2], x.v[0]));
    const VP s2 = vp_greater(vextq_f32(s4, s4, 2), s4);
    const float lower = vgetq_lane_f32(s2, 0), upper = vgetq_lane_f32(s2, 1);
    return upper > lower ? upper : lower;
}
static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    for (size_t r = 0; r < VF_TILE_ROWS; r++)
        y[r] = vf_join(x[r]);
}

static inline void vf_store_f16(void *p, VF x, size_t n) {
    uint16_t h[16];
    VF_PART vst1_u16(h + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(x.v[i])));
    memcpy(p, h, n * sizeof *h);
}
static inline uint16x4_t vp_to_bf16(VP x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x), high = vshrq_n_u32(bits, 16);
    const uint32x4_t odd = vandq_u32(high, vdupq_n_u32(1));
    const uint32x4_t sum = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t quiet = vorrq_u32(high, vdupq_n_u32(0x40));
    return vmovn_u32(vbslq_u32(vceqq_f32(x, x), vshrq_n_u32(sum, 16), quiet));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    uint16_t h[16];
    VF_PART vst1_u16(h + 4 * i, vp_to_bf16(x.v[i]));
    memcpy(p, h, n * sizeof *h);
}

#define vf_prefetch(p) __builtin_prefetch(p)
#define vf_prefetch_rows vf_prefetch
#define VF_AHEAD 4096
