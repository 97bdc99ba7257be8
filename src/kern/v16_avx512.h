/* v16_avx512.h - the sixteen lanes of kern.h in one register.  v16.h describes the functions. */
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef ISA
#define ISA(name) name##_avx512
#endif
#define VP __m512
#define VP_LANES 16
/* 24 accumulators, 4 rows of weights and a column: 29 of the 32 registers */
#define VF_TILE_ROWS 4
#define VF_TILE_COLUMNS 6
#define VF_ROWS_1 8
#define VF_MIX_TILE 16
#define VF_MIX_VECTORS 4
/* 16 accumulators, as many sums that wait, of three levels one, 2 registers of queries, a key: 27 */
#define VF_ATT_KEYS 4
#define VF_FEW_MIX 16
#define VF_FEW_QUERIES 4
#ifndef vf_few_rows /* as Zen 5 wants it */
#define vf_few_rows vf_prefetch
#define vf_few_near(p) ((void)(p))
#define vf_few_takes(f, n_q) ((f) == VF_Q8_0 || (n_q) != 2) /* two by tiles of two */
#endif

static inline VP vp_set(float x) { return _mm512_set1_ps(x); }
static inline VP vp_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void vp_store(float *p, VP x) { _mm512_storeu_ps(p, x); }
static inline VP vp_add(VP a, VP b) { return _mm512_add_ps(a, b); }
static inline VP vp_sub(VP a, VP b) { return _mm512_sub_ps(a, b); }
static inline VP vp_mul(VP a, VP b) { return _mm512_mul_ps(a, b); }
static inline VP vp_div(VP a, VP b) { return _mm512_div_ps(a, b); }
static inline VP vp_fma(VP a, VP b, VP c) { return _mm512_fmadd_ps(a, b, c); }
/* MINPS and MAXPS give their second operand when the comparison fails, as ours do. */
static inline VP vp_lesser(VP a, VP b) { return _mm512_min_ps(a, b); }
static inline VP vp_greater(VP a, VP b) { return _mm512_max_ps(a, b); }
static inline VP vp_abs(VP x) { return _mm512_abs_ps(x); }
static inline VP vp_sign(VP x, VP s) {
    return _mm512_or_ps(vp_abs(x), _mm512_and_ps(s, vp_set(-0.0f)));
}

static inline VP vp_exponent(__m512i n) {
    return _mm512_castsi512_ps(
        _mm512_add_epi32(_mm512_slli_epi32(n, 23), _mm512_set1_epi32(0x3f800000)));
}
static inline __m512i vp_n(VP t) {
    return _mm512_sub_epi32(_mm512_castps_si512(t), _mm512_set1_epi32(0x4b400000));
}
static inline VP vp_pow2(VP t) { return vp_exponent(vp_n(t)); }
/* One instruction, which does not take from the pipes of the multiply-adds. */
static inline VP vp_times_pow2(VP x, VP t) {
    return _mm512_scalef_ps(x, vp_sub(t, vp_set(0x1.8p23f)));
}

static inline VP vp_from_bf16(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static inline VP vp_load_f16(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256(p)); }
static inline VP vp_load_bf16(const void *p) { return vp_from_bf16(_mm256_loadu_si256(p)); }
static inline VP vp_load_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p)));
}
static inline VP vp_load_e4m3(const void *p) {
    const __m256i b = _mm256_cvtepu8_epi16(_mm_loadu_si128(p)), size = _mm256_set1_epi16(0x7f);
    const __m256i low = _mm256_and_si256(b, size);
    const __m256i half = _mm256_or_si256(_mm256_slli_epi16(low, 7),
                                         _mm256_slli_epi16(_mm256_andnot_si256(size, b), 8));
    const __m256i nan = _mm256_cmpeq_epi16(low, size);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(half, nan)), _mm512_set1_ps(0x1p8f));
}
static inline VP vp_load_e5m2(const void *p) {
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(p)), 8));
}
static inline VP vp_set_f16(const void *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm512_cvtph_ps(_mm256_set1_epi16(h));
}

static inline VP vp_held(VP x) {
    __asm__("" : "+v"(x));
    return x;
}

#include "kern/v16.h"

static inline __mmask16 vf_first(size_t n) { return (__mmask16)((1u << n) - 1); }
static inline VF vf_keep(VF x, size_t n, float fill) {
    return (VF){{_mm512_mask_mov_ps(vp_set(fill), vf_first(n), x.v[0])}};
}
static inline VF vf_load_n(const float *p, size_t n, float fill) {
    return (VF){{_mm512_mask_loadu_ps(vp_set(fill), vf_first(n), p)}};
}
static inline VF vf_hide(VF x, const uint32_t *seen, uint32_t j) {
    const __mmask16 sees = _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(seen), _mm512_set1_epi32((int)j));
    return (VF){{_mm512_mask_mov_ps(vp_set(-INFINITY), sees, x.v[0])}};
}
static inline VF vf_load_f16_n(const void *p, size_t n) {
    return (VF){{_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_first(n), p))}};
}
static inline VF vf_load_bf16_n(const void *p, size_t n) {
    return (VF){{vp_from_bf16(_mm256_maskz_loadu_epi16(vf_first(n), p))}};
}
static inline void vf_store_n(float *p, VF x, size_t n) {
    _mm512_mask_storeu_ps(p, vf_first(n), x.v[0]);
}

static inline void vf_load2(const float *p, VF *even, VF *odd) {
    const VP a = vp_load(p), b = vp_load(p + 16);
    const __m512i i = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even->v[0] = _mm512_permutex2var_ps(a, i, b);
    odd->v[0] = _mm512_permutex2var_ps(a, _mm512_add_epi32(i, _mm512_set1_epi32(1)), b);
}

static inline float vf_join(VF x) {
    const __m256 s8 =
        _mm256_add_ps(_mm512_castps512_ps256(x.v[0]), _mm512_extractf32x8_ps(x.v[0], 1));
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline float vf_join_max(VF x) {
    const __m256 s8 =
        _mm256_max_ps(_mm512_extractf32x8_ps(x.v[0], 1), _mm512_castps512_ps256(x.v[0]));
    const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
    const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}
/* Two of them: their lower halves side by side + their upper ones.  Then four, in quarters. */
static inline VP vp_join_halves(VP x, VP y) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
}
static inline void v16_join_4(float *y, VP x0, VP x1, VP x2, VP x3) {
    const VP a = vp_join_halves(x0, x1), b = vp_join_halves(x2, x3);
    const VP s4 = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
    const VP s2 = _mm512_add_ps(s4, _mm512_permute_ps(s4, 0xee));
    const VP s1 = _mm512_add_ps(s2, _mm512_permute_ps(s2, 0x55));
    const __m512i firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm_storeu_ps(y, _mm512_castps512_ps128(_mm512_permutexvar_ps(firsts, s1)));
}
static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    v16_join_4(y, x[0].v[0], x[1].v[0], x[2].v[0], x[3].v[0]);
}
static inline void vp_join_4(float *y, const VP x[4]) { v16_join_4(y, x[0], x[1], x[2], x[3]); }
/* Eight, to four each at y0 and y1.  Of each two a half stays where it is and the other one comes to it: one
 * operation for the pipe that moves, one for either of the multiply-adds', where two moves would bind. */
static inline VP vp_join_far(VP a, VP b) {
    return vp_add(_mm512_mask_blend_ps(0xff00, a, b), _mm512_shuffle_f32x4(a, b, 0x4e));
}
static inline VP vp_join_near(VP a, VP b) { /* ... of quarters */
    const __m512i other = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
    return vp_add(_mm512_mask_blend_ps(0xf0f0, a, b), _mm512_permutex2var_ps(a, other, b));
}
static inline void vp_join_2_by_4(float *y0, float *y1, const VP x[8]) {
    const VP a = vp_join_near(vp_join_far(x[0], x[2]), vp_join_far(x[1], x[3])); /* by quarters: 0, 1, 2, 3 */
    const VP b = vp_join_near(vp_join_far(x[4], x[6]), vp_join_far(x[5], x[7]));
    const VP s2 = vp_add(_mm512_mask_blend_ps(0xcccc, a, b), _mm512_shuffle_ps(a, b, 0x4e));
    const VP s1 = vp_add(s2, _mm512_permute_ps(s2, 0xb1)); /* a a b b in each */
    const __m512i in_order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    const __m256 sums = _mm512_castps512_ps256(_mm512_permutexvar_ps(in_order, s1));
    _mm_storeu_ps(y0, _mm256_castps256_ps128(sums));
    _mm_storeu_ps(y1, _mm256_extractf128_ps(sums, 1));
}

static inline void vf_store_f16(void *p, VF x, size_t n) {
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtps_ph(x.v[0], _MM_FROUND_TO_NEAREST_INT));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    const __m512i bits = _mm512_castps_si512(x.v[0]), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_epi32(high, _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    const __m512i quiet = _mm512_or_epi32(high, _mm512_set1_epi32(0x40));
    const __mmask16 nan = _mm512_cmp_ps_mask(x.v[0], x.v[0], _CMP_UNORD_Q);
    const __m512i h = _mm512_mask_mov_epi32(_mm512_srli_epi32(sum, 16), nan, quiet);
    _mm256_mask_storeu_epi16(p, vf_first(n), _mm512_cvtepi32_epi16(h));
}

#define vf_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define vf_prefetch_rows(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define VF_AHEAD 4096
