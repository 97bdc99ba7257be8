/* vec_avx512.h - what kern/mul_tile.h needs, in 512 bits.  F, BW, VL, DQ. */
#ifndef LODE_KERN_VEC_AVX512_H
#define LODE_KERN_VEC_AVX512_H

#define LANES 16
#include "kern/vec.h"

#include <immintrin.h>

INLINE V v_pick(V v, uint32_t pick) {
    /* the shuffle counts bytes within 16; a byte's top bit means zero, with or without the base */
    const __m512i base =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return (V)_mm512_shuffle_epi8((__m512i)v, _mm512_or_si512(base, _mm512_set1_epi32((int)pick)));
}

INLINE V v_table(const int8_t table[16]) {
    return (V)_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
}

INLINE V v_lookup(V table, V codes) {
    return (V)_mm512_shuffle_epi8((__m512i)table, (__m512i)codes);
}

INLINE V v_low32(V a, V b) { return (V)_mm512_unpacklo_epi32((__m512i)a, (__m512i)b); }
INLINE V v_high32(V a, V b) { return (V)_mm512_unpackhi_epi32((__m512i)a, (__m512i)b); }
INLINE V v_low64(V a, V b) { return (V)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b); }
INLINE V v_high64(V a, V b) { return (V)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b); }

/* out[i], lane j of each 16 bytes: lane i of v[j] there. */
INLINE void v_turn_lanes(V out[4], const V v[4]) {
    const V a = v_low32(v[0], v[1]), b = v_high32(v[0], v[1]), c = v_low32(v[2], v[3]), d = v_high32(v[2], v[3]);
    out[0] = v_low64(a, c);
    out[1] = v_high64(a, c);
    out[2] = v_low64(b, d);
    out[3] = v_high64(b, d);
}

/* Rows 4L .. 4L+3 belong in lane group L: load them so, then transpose 4 x 4 within the groups. */
INLINE void v_load16(V out[4], const struct rows *r, size_t off) {
    V v[4];
    for (int i = 0; i < 4; i++) {
        __m512i t = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(r->p[i] + off)));
        t = _mm512_inserti32x4(t, _mm_loadu_si128((const __m128i *)(r->p[4 + i] + off)), 1);
        t = _mm512_inserti32x4(t, _mm_loadu_si128((const __m128i *)(r->p[8 + i] + off)), 2);
        v[i] = (V)_mm512_inserti32x4(t, _mm_loadu_si128((const __m128i *)(r->p[12 + i] + off)), 3);
    }
    v_turn_lanes(out, v);
}

INLINE V v_load4(const struct rows *r, size_t off) {
    uint32_t x[16];
    for (int i = 0; i < 16; i++)
        memcpy(&x[i], r->p[i] + off, 4);
    return (V)_mm512_setr_epi32((int)x[0], (int)x[1], (int)x[2], (int)x[3], (int)x[4], (int)x[5],
                                (int)x[6], (int)x[7], (int)x[8], (int)x[9], (int)x[10], (int)x[11],
                                (int)x[12], (int)x[13], (int)x[14], (int)x[15]);
}

INLINE V v_held(V v) {
    __asm__("" : "+v"(v));
    return v;
}

INLINE V v_dot2(V acc, V a, V b) {
#ifdef __AVX512VNNI__
    return (V)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#else
    return acc + (V)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#endif
}

INLINE F f_set(float x) { return (F)_mm512_set1_ps(x); }
INLINE F f_half(V v) { return (F)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)v)); }
INLINE F f_fma(F a, F b, F c) { return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE F f_fnma(F a, F b, F c) { return (F)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE void f_store(float *p, int n, F v) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), (__m512)v);
}

#endif
