/* vec_avx2.h - what kern/mul_tile.h needs, in 256 bits.  AVX2, FMA, F16C. */
#ifndef LODE_KERN_VEC_AVX2_H
#define LODE_KERN_VEC_AVX2_H

#define LANES 8
#include "kern/vec.h"

#include <immintrin.h>

INLINE V v_pick(V v, uint32_t pick) {
    const __m256i base =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    return (V)_mm256_shuffle_epi8((__m256i)v, _mm256_or_si256(base, _mm256_set1_epi32((int)pick)));
}

INLINE V v_table(const int8_t table[16]) {
    return (V)_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}

INLINE V v_lookup(V table, V codes) {
    return (V)_mm256_shuffle_epi8((__m256i)table, (__m256i)codes);
}

/* Rows 4L .. 4L+3 belong in half L: load them so, then transpose 4 x 4 within the halves. */
INLINE void v_load16(V out[4], const struct rows *r, size_t off) {
    __m256i v[4];
    for (int i = 0; i < 4; i++)
        v[i] = _mm256_inserti128_si256(
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(r->p[i] + off))),
            _mm_loadu_si128((const __m128i *)(r->p[4 + i] + off)), 1);
    const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = (V)_mm256_unpacklo_epi64(a, c);
    out[1] = (V)_mm256_unpackhi_epi64(a, c);
    out[2] = (V)_mm256_unpacklo_epi64(b, d);
    out[3] = (V)_mm256_unpackhi_epi64(b, d);
}

INLINE V v_load4(const struct rows *r, size_t off) {
    int32_t x[8];
    for (int i = 0; i < 8; i++)
        memcpy(&x[i], r->p[i] + off, 4);
    return (V)_mm256_setr_epi32(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]);
}

INLINE V v_held(V v) {
    __asm__("" : "+x"(v));
    return v;
}

INLINE V v_dot2(V acc, V a, V b) {
#ifdef __AVXVNNI__
    return (V)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#else
    return acc + (V)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#endif
}

typedef int8_t Vs8 __attribute__((vector_size(4 * LANES)));
INLINE V v_load(const void *p) { return (V)_mm256_loadu_si256(p); }
INLINE V v_sign8(V v, V by) { return (V)_mm256_sign_epi8((__m256i)v, (__m256i)by); }
INLINE V v_sub8(V a, V b) { return (V)((V8)a - (V8)b); }
INLINE V v_mul_pairs(V a, V b) { return (V)_mm256_maddubs_epi16((__m256i)a, (__m256i)b); }

INLINE F f_set(float x) { return (F)_mm256_set1_ps(x); }
INLINE F f_half(V v) {
    /* the low halves of the lanes: to 16 bits in place, then the two 64-bit ends together */
    const __m256i low = _mm256_and_si256((__m256i)v, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_packus_epi32(low, low);
    return (F)_mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
}
/* Two halves in each lane: all low ones, all high ones. */
#define F_HALVES
INLINE void f_halves(F *low, F *high, V v) {
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    const __m256i apart = _mm256_permute4x64_epi64(_mm256_shuffle_epi8((__m256i)v, order), 0xd8);
    *low = (F)_mm256_cvtph_ps(_mm256_castsi256_si128(apart));
    *high = (F)_mm256_cvtph_ps(_mm256_extracti128_si256(apart, 1));
}
/* A half of each row. */
#define F_HALF_AT
INLINE F f_half_at(const struct rows *r, size_t off) {
    __m128i h[2] = {_mm_setzero_si128(), _mm_setzero_si128()};
#define HALF_OF(i)                                                                                 \
    {                                                                                              \
        int16_t x;                                                                                 \
        memcpy(&x, r->p[i] + off, 2);                                                              \
        h[(i) / 4] = _mm_insert_epi16(h[(i) / 4], x, (i) % 4);                                     \
    }
    HALF_OF(0) HALF_OF(1) HALF_OF(2) HALF_OF(3) HALF_OF(4) HALF_OF(5) HALF_OF(6) HALF_OF(7)
#undef HALF_OF
    return (F)_mm256_cvtph_ps(_mm_unpacklo_epi64(h[0], h[1]));
}
INLINE F f_fma(F a, F b, F c) { return (F)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE F f_fnma(F a, F b, F c) { return (F)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }

INLINE __m256i first_lanes(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* Masked stores take some forty operations on Zen 4. */
INLINE void f_store(float *p, int n, F v) {
    if (n == LANES)
        _mm256_storeu_ps(p, (__m256)v);
    else
        _mm256_maskstore_ps(p, first_lanes(n), (__m256)v);
}

#endif
