/* v16_avx512.h - the sixteen lanes of kern.h in one register.  v16.h describes the functions. */
#ifndef LODE_KERN_V16_H
#define LODE_KERN_V16_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ISA(name) name##_avx512
#define VF __m512
/* 24 accumulators and a row of weights fill the 32 registers */
#define VF_TILE_ROWS 4
#define VF_ROWS_1 4
#define VF_TILE_COLUMNS 6
#define VF_MIX_TILE 16

static inline VF vf_set(float x) { return _mm512_set1_ps(x); }
static inline VF vf_add(VF a, VF b) { return _mm512_add_ps(a, b); }
static inline VF vf_sub(VF a, VF b) { return _mm512_sub_ps(a, b); }
static inline VF vf_mul(VF a, VF b) { return _mm512_mul_ps(a, b); }
static inline VF vf_div(VF a, VF b) { return _mm512_div_ps(a, b); }
static inline VF vf_fma(VF a, VF b, VF c) { return _mm512_fmadd_ps(a, b, c); }
/* MINPS and MAXPS give their second operand when the comparison fails, as ours do. */
static inline VF vf_lesser(VF a, VF b) { return _mm512_min_ps(a, b); }
static inline VF vf_greater(VF a, VF b) { return _mm512_max_ps(a, b); }
static inline VF vf_abs(VF x) { return _mm512_abs_ps(x); }
static inline VF vf_sign(VF x, VF s) {
    return _mm512_or_ps(vf_abs(x), _mm512_and_ps(s, _mm512_set1_ps(-0.0f)));
}

static inline VF vf_exponent(__m512i n) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(n, 23), _mm512_set1_epi32(0x3f800000)));
}
static inline __m512i vf_n(VF t) {
    return _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x4b400000));
}
static inline VF vf_pow2(VF t) { return vf_exponent(vf_n(t)); }
static inline VF vf_pow2_half(VF t) { return vf_exponent(_mm512_srai_epi32(vf_n(t), 1)); }
static inline VF vf_pow2_rest(VF t) {
    return vf_exponent(_mm512_sub_epi32(vf_n(t), _mm512_srai_epi32(vf_n(t), 1)));
}

static inline __mmask16 vf_first(size_t n) { return (__mmask16)((1u << n) - 1); }
static inline VF vf_keep(VF x, size_t n, float fill) {
    return _mm512_mask_mov_ps(vf_set(fill), vf_first(n), x);
}
static inline VF vf_load(const float *p) { return _mm512_loadu_ps(p); }
static inline VF vf_load_n(const float *p, size_t n, float fill) {
    return _mm512_mask_loadu_ps(vf_set(fill), vf_first(n), p);
}
static inline void vf_store(float *p, VF x) { _mm512_storeu_ps(p, x); }
static inline void vf_store_n(float *p, VF x, size_t n) {
    _mm512_mask_storeu_ps(p, vf_first(n), x);
}

static inline void vf_load2(const float *p, VF *even, VF *odd) {
    const VF a = vf_load(p), b = vf_load(p + 16);
    const __m512i i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    *even = _mm512_permutex2var_ps(a, i, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(i, _mm512_set1_epi32(1)), b);
}
static inline void vf_store2(float *p, VF even, VF odd) {
    const __m512i i = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    vf_store(p, _mm512_permutex2var_ps(even, i, odd));
    vf_store(p + 16,
             _mm512_permutex2var_ps(even, _mm512_add_epi32(i, _mm512_set1_epi32(8)), odd));
}

static inline float vf_join(VF x) {
    const __m256 s8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline float vf_join_max(VF x) {
    const __m256 s8 = _mm256_max_ps(_mm512_extractf32x8_ps(x, 1), _mm512_castps512_ps256(x));
    const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
    const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}

/* Two of them: their lower halves side by side + their upper ones.  Then four, in quarters. */
static inline VF vf_join_halves(VF x, VF y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
}
static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    const VF a = vf_join_halves(x[0], x[1]), b = vf_join_halves(x[2], x[3]);
    const VF s4 = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    const VF s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0xee));
    const VF s1 = _mm512_add_ps(s2, _mm512_permute_ps(s2, 0x55));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(y, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s1)));
}

static inline float vf_half(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _cvtsh_ss(h);
}
static inline VF vf_load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
static inline VF vf_load_f16_n(const void *p, size_t n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_first(n), p));
}
static inline VF vf_from_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline VF vf_load_bf16(const void *p) { return vf_from_bf16(_mm256_loadu_si256(p)); }
static inline VF vf_load_bf16_n(const void *p, size_t n) {
    return vf_from_bf16(_mm256_maskz_loadu_epi16(vf_first(n), p));
}
static inline VF vf_load_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}

static inline void vf_store_f16(void *p, VF x, size_t n) {
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    const __m512i bits = _mm512_castps_si512(x), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_epi32(high, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_epi32(high, _mm512_set1_epi32(0x40));
    const __m512i h = _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16),
                                            _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtepi32_epi16(h));
}

static inline void vf_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }

#include "kern/exp_body.h"

#endif
