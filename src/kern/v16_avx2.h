/* v16_avx2.h - the sixteen lanes of kern.h in two registers: a has lanes 0-7, b 8-15.
 * v16.h describes the functions. */
#ifndef LODE_KERN_V16_H
#define LODE_KERN_V16_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    __m256 a, b;
} v16;

#define ISA(name) name##_avx2
#define VF v16
/* 12 of the 16 registers are accumulators */
#define VF_TILE_ROWS 2
#define VF_ROWS_1 4
#define VF_TILE_COLUMNS 3
#define VF_MIX_TILE 4

static inline VF vf_set(float x) { return (VF){_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

#define VF_BOTH(name, op)                                                                          \
    static inline VF name(VF x, VF y) { return (VF){op(x.a, y.a), op(x.b, y.b)}; }
VF_BOTH(vf_add, _mm256_add_ps)
VF_BOTH(vf_sub, _mm256_sub_ps)
VF_BOTH(vf_mul, _mm256_mul_ps)
VF_BOTH(vf_div, _mm256_div_ps)
/* MINPS and MAXPS give their second operand when the comparison fails, as ours do. */
VF_BOTH(vf_lesser, _mm256_min_ps)
VF_BOTH(vf_greater, _mm256_max_ps)
VF_BOTH(vf_and, _mm256_and_ps)
VF_BOTH(vf_andnot, _mm256_andnot_ps)
VF_BOTH(vf_or, _mm256_or_ps)

static inline VF vf_fma(VF x, VF y, VF z) {
    return (VF){_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
static inline VF vf_abs(VF x) { return vf_andnot(vf_set(-0.0f), x); }
static inline VF vf_sign(VF x, VF s) { return vf_or(vf_abs(x), vf_and(s, vf_set(-0.0f))); }

static inline __m256 v8_exponent(__m256i n) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(n, 23), _mm256_set1_epi32(0x3f800000)));
}
static inline __m256i v8_n(__m256 t) {
    return _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_set1_epi32(0x4b400000));
}
static inline __m256i v8_n_half(__m256 t) { return _mm256_srai_epi32(v8_n(t), 1); }
static inline __m256i v8_n_rest(__m256 t) { return _mm256_sub_epi32(v8_n(t), v8_n_half(t)); }
static inline VF vf_pow2(VF t) { return (VF){v8_exponent(v8_n(t.a)), v8_exponent(v8_n(t.b))}; }
static inline VF vf_pow2_half(VF t) {
    return (VF){v8_exponent(v8_n_half(t.a)), v8_exponent(v8_n_half(t.b))};
}
static inline VF vf_pow2_rest(VF t) {
    return (VF){v8_exponent(v8_n_rest(t.a)), v8_exponent(v8_n_rest(t.b))};
}

/* Masks of the first n lanes: 16 - n on, they are cut from this. */
static const int32_t v16_masks[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                                      -1, -1, -1, -1, -1, 0};
static inline __m256i v16_mask_a(size_t n) {
    return _mm256_loadu_si256((const __m256i *)(v16_masks + 16 - n));
}
static inline __m256i v16_mask_b(size_t n) {
    return _mm256_loadu_si256((const __m256i *)(v16_masks + 24 - n));
}

static inline VF vf_keep(VF x, size_t n, float fill) {
    const __m256 f = _mm256_set1_ps(fill);
    return (VF){_mm256_blendv_ps(f, x.a, _mm256_castsi256_ps(v16_mask_a(n))),
                _mm256_blendv_ps(f, x.b, _mm256_castsi256_ps(v16_mask_b(n)))};
}
static inline VF vf_load(const float *p) {
    return (VF){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
static inline VF vf_load_n(const float *p, size_t n, float fill) {
    const VF x = {_mm256_maskload_ps(p, v16_mask_a(n)), _mm256_maskload_ps(p + 8, v16_mask_b(n))};
    return vf_keep(x, n, fill);
}
static inline void vf_store(float *p, VF x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
}
static inline void vf_store_n(float *p, VF x, size_t n) {
    _mm256_maskstore_ps(p, v16_mask_a(n), x.a);
    _mm256_maskstore_ps(p + 8, v16_mask_b(n), x.b);
}

/* 16 numbers -> the 8 even and the 8 odd ones, and back */
static inline void v8_split(__m256 x, __m256 y, __m256 *even, __m256 *odd) {
    const __m256 lo = _mm256_permute2f128_ps(x, y, 0x20), hi = _mm256_permute2f128_ps(x, y, 0x31);
    /* lo = x0-3 y0-3, hi = x4-7 y4-7 */
    *even = _mm256_shuffle_ps(lo, hi, 0x88);
    *odd = _mm256_shuffle_ps(lo, hi, 0xdd);
}
static inline void v8_weave(float *p, __m256 even, __m256 odd) {
    const __m256 lo = _mm256_unpacklo_ps(even, odd), hi = _mm256_unpackhi_ps(even, odd);
    _mm256_storeu_ps(p, _mm256_permute2f128_ps(lo, hi, 0x20));
    _mm256_storeu_ps(p + 8, _mm256_permute2f128_ps(lo, hi, 0x31));
}
static inline void vf_load2(const float *p, VF *even, VF *odd) {
    v8_split(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8), &even->a, &odd->a);
    v8_split(_mm256_loadu_ps(p + 16), _mm256_loadu_ps(p + 24), &even->b, &odd->b);
}
static inline void vf_store2(float *p, VF even, VF odd) {
    v8_weave(p, even.a, odd.a);
    v8_weave(p + 16, even.b, odd.b);
}

static inline float vf_join(VF x) {
    const __m256 s8 = _mm256_add_ps(x.a, x.b);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline float vf_join_max(VF x) {
    const __m256 s8 = _mm256_max_ps(x.b, x.a);
    const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
    const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}

static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    const __m256 a = _mm256_add_ps(x[0].a, x[0].b), b = _mm256_add_ps(x[1].a, x[1].b);
    const __m256 s4 =
        _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    const __m256 s2 = _mm256_add_ps(s4, _mm256_permute_ps(s4, 0xee));
    const __m256 s1 = _mm256_add_ps(s2, _mm256_permute_ps(s2, 0x55));
    _mm_store_ss(y, _mm256_castps256_ps128(s1));
    _mm_store_ss(y + 1, _mm256_extractf128_ps(s1, 1));
}

static inline float vf_half(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}
static inline VF vf_load_f16(const void *p) {
    const __m128i *q = p;
    return (VF){_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
static inline __m256 v8_from_bf16(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static inline VF vf_load_bf16(const void *p) {
    const __m128i *q = p;
    return (VF){v8_from_bf16(_mm_loadu_si128(q)), v8_from_bf16(_mm_loadu_si128(q + 1))};
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
    const __m128i q = _mm_loadu_si128(p);
    return (VF){_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(q, 8)))};
}

static inline void v16_store_halves(void *p, __m128i a, __m128i b, size_t n) {
    __m128i h[2] = {a, b};
    if (n == 16)
        memcpy(p, h, sizeof h);
    else
        memcpy(p, h, n * sizeof(uint16_t));
}
static inline void vf_store_f16(void *p, VF x, size_t n) {
    v16_store_halves(p, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT),
                     _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT), n);
}
static inline __m128i v8_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    v16_store_halves(p, v8_to_bf16(x.a), v8_to_bf16(x.b), n);
}

static inline void vf_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

#include "kern/exp_body.h"

#endif
