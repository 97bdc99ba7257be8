/* Products of quantised weights: 4 rows at once, baseline ARMv8 NEON. */
#define LANES 4
#include "kern/vec.h"

#include <arm_neon.h>

#define KERN(name) name##_neon
#define V_COLUMNS 4
#define V_TILES 1
#define V_FEW_256 1
#define V_WIDE_BIAS 0

/* Indices beyond 15 read as zero, the top bit of a pick among them. */
INLINE V v_pick(V v, uint32_t pick) {
    const V base = {0, 0x04040404, 0x08080808, 0x0c0c0c0c};
    return (V)vqtbl1q_u8((uint8x16_t)v, (uint8x16_t)(base | v_set32(pick)));
}

INLINE V v_table(const int8_t table[16]) { return (V)vld1q_s8(table); }
INLINE V v_lookup(V table, V codes) { return (V)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes); }

INLINE void v_load16(V out[4], const struct rows *r, size_t off) {
    uint32x4_t v[4];
    for (int i = 0; i < 4; i++)
        v[i] = vreinterpretq_u32_u8(vld1q_u8(r->p[i] + off));
    const uint32x4_t a = vzip1q_u32(v[0], v[2]), b = vzip2q_u32(v[0], v[2]);
    const uint32x4_t c = vzip1q_u32(v[1], v[3]), d = vzip2q_u32(v[1], v[3]);
    out[0] = (V)vzip1q_u32(a, c);
    out[1] = (V)vzip2q_u32(a, c);
    out[2] = (V)vzip1q_u32(b, d);
    out[3] = (V)vzip2q_u32(b, d);
}

INLINE V v_load4(const struct rows *r, size_t off) {
    V x;
    for (int i = 0; i < 4; i++) {
        uint32_t word;
        memcpy(&word, r->p[i] + off, 4);
        x[i] = word;
    }
    return x;
}

/* Signed bytes: codes of at most 63 are the same either way, wide ones are kept signed.
 * A product is at most 128 * 127, so 16 bits hold it, but not the sum of two. */
INLINE V v_dot4_wide(V acc, V w, V x) {
    const int8x16_t a = (int8x16_t)w, b = (int8x16_t)x;
    const int32x4_t lo = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    const int32x4_t hi = vpaddlq_s16(vmull_high_s8(a, b));
    return acc + (V)vpaddq_s32(lo, hi);
}

INLINE V v_held(V v) {
    __asm__("" : "+w"(v));
    return v;
}

INLINE V v_dot2(V acc, V a, V b) {
    const int16x8_t s = (int16x8_t)a, t = (int16x8_t)b;
    const int32x4_t lo = vmull_s16(vget_low_s16(s), vget_low_s16(t)), hi = vmull_high_s16(s, t);
    return acc + (V)vpaddq_s32(lo, hi);
}

INLINE F f_set(float x) { return (F)vdupq_n_f32(x); }
INLINE F f_half(V v) { return (F)vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32((uint32x4_t)v))); }
INLINE F f_fma(F a, F b, F c) {
    return (F)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE F f_fnma(F a, F b, F c) {
    return (F)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
INLINE void f_store(float *p, int n, F v) { memcpy(p, &v, (size_t)n * sizeof *p); }

#include "kern/mul_tile.h"
