/* v16_avx2.h - the sixteen lanes of kern.h in two registers.  v16.h describes the functions. */
#include <immintrin.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ISA(name) name##_avx2
#define VP __m256
#define VP_LANES 8
/* 12 accumulators, 2 rows of weights and a column: 15 of the 16 registers */
#define VF_TILE_ROWS 2
#define VF_TILE_COLUMNS 3
#define VF_ROWS_1 4
#define VF_COPY_NUMBERS (48 << 10)
#define VF_TILE_LOOP _Pragma("GCC unroll 16")
#define VF_STEP_LOOP _Pragma("GCC unroll 4")
#define VF_MIX_TILE 4
#define VF_MIX_VECTORS 1
#define VF_ATT_KEYS 3
#define VF_FEW_MIX 12
#define VF_FEW_QUERIES 2
#define vf_few_rows vf_prefetch
#define vf_few_takes(f, n_q) true
#define vf_few_near(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)

static inline VP vp_set(float x) { return _mm256_set1_ps(x); }
static inline VP vp_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void vp_store(float *p, VP x) { _mm256_storeu_ps(p, x); }
static inline VP vp_add(VP a, VP b) { return _mm256_add_ps(a, b); }
static inline VP vp_sub(VP a, VP b) { return _mm256_sub_ps(a, b); }
static inline VP vp_mul(VP a, VP b) { return _mm256_mul_ps(a, b); }
static inline VP vp_div(VP a, VP b) { return _mm256_div_ps(a, b); }
static inline VP vp_fma(VP a, VP b, VP c) { return _mm256_fmadd_ps(a, b, c); }
/* MINPS and MAXPS give their second operand when the comparison fails, as ours do. */
static inline VP vp_lesser(VP a, VP b) { return _mm256_min_ps(a, b); }
static inline VP vp_greater(VP a, VP b) { return _mm256_max_ps(a, b); }
static inline VP vp_abs(VP x) { return _mm256_andnot_ps(vp_set(-0.0f), x); }
static inline VP vp_sign(VP x, VP s) {
    return _mm256_or_ps(vp_abs(x), _mm256_and_ps(s, vp_set(-0.0f)));
}

/* 2^n from the low bits of t: MAGIC's own end in 22 zeros, which are shifted out, and still do after
 * a shift to the right. */
static inline VP vp_exponent(__m256i t) {
    return _mm256_castsi256_ps(
        _mm256_add_epi32(_mm256_slli_epi32(t, 23), _mm256_set1_epi32(0x3f800000)));
}
static inline VP vp_pow2(VP t) { return vp_exponent(_mm256_castps_si256(t)); }
static inline VP vp_times_pow2(VP x, VP t) {
    const __m256i n = _mm256_castps_si256(t), half = _mm256_srai_epi32(n, 1);
    return vp_mul(vp_mul(x, vp_exponent(half)), vp_exponent(_mm256_sub_epi32(n, half)));
}

static inline VP vp_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128(p)); }
static inline VP vp_load_bf16(const void *p) {
    const __m256i h = _mm256_cvtepu16_epi32(_mm_loadu_si128(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(h, 16));
}
static inline VP vp_load_i8(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)));
}
/* The even ones of sixteen, and the odd ones.  Their pointer is hidden, or gcc would keep what both read in a register
 * that an accumulator needs. */
static inline VP vp_load_bf16_even(const char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)p), 16));
}
static inline VP vp_load_bf16_odd(const char *p) {
    __asm__("" : "+r"(p));
    const __m256i high = _mm256_set1_epi32((int)0xffff0000);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256((const __m256i *)p), high));
}
static inline VP vp_load_e4m3(const void *p) {
    const __m128i b = _mm_cvtepu8_epi16(_mm_loadl_epi64(p)), size = _mm_set1_epi16(0x7f);
    const __m128i low = _mm_and_si128(b, size);
    const __m128i half = _mm_or_si128(_mm_slli_epi16(low, 7),
                                      _mm_slli_epi16(_mm_andnot_si128(size, b), 8));
    const __m128i nan = _mm_cmpeq_epi16(low, size);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, nan)), _mm256_set1_ps(0x1p8f));
}
static inline VP vp_load_e5m2(const void *p) {
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(_mm_loadl_epi64(p)), 8));
}
static inline VP vp_set_f16(const void *p) {
    int16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16(h));
}

static inline VP vp_held(VP x) {
    __asm__("" : "+x"(x));
    return x;
}

#include "kern/v16.h"

/* Masks of the first n lanes are cut from this, n before the middle. */
static const int32_t v16_masks[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1,
                                      -1, -1, -1, -1, -1, -1, -1, 0};
static inline __m256i vp_first(size_t n, int part) {
    return _mm256_loadu_si256((const __m256i *)(v16_masks + 16 - n + part * VP_LANES));
}
static inline VF vf_keep(VF x, size_t n, float fill) {
    VF_PART x.v[i] = _mm256_blendv_ps(vp_set(fill), x.v[i], _mm256_castsi256_ps(vp_first(n, i)));
    return x;
}
static inline VF vf_load_n(const float *p, size_t n, float fill) {
    VF x;
    VF_PART x.v[i] = _mm256_maskload_ps(p + i * VP_LANES, vp_first(n, i));
    return vf_keep(x, n, fill);
}
static inline VF vf_hide(VF x, const uint32_t *seen, uint32_t j) {
    const __m256i at = _mm256_set1_epi32((int)j);
    VF_PART {
        const __m256i end = _mm256_loadu_si256((const __m256i *)(seen + i * VP_LANES));
        x.v[i] = _mm256_blendv_ps(vp_set(-INFINITY), x.v[i], _mm256_castsi256_ps(_mm256_cmpgt_epi32(end, at)));
    }
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
static inline void vf_store_n(float *p, VF x, size_t n) {
    VF_PART _mm256_maskstore_ps(p + i * VP_LANES, vp_first(n, i), x.v[i]);
}

/* The even numbers first. */
VF_FN VF vf_apart(VF x) {
    const VP lo = _mm256_permute2f128_ps(x.v[0], x.v[1], 0x20), hi = _mm256_permute2f128_ps(x.v[0], x.v[1], 0x31);
    x.v[0] = _mm256_shuffle_ps(lo, hi, 0x88);
    x.v[1] = _mm256_shuffle_ps(lo, hi, 0xdd);
    return x;
}
static inline void vf_load2(const float *p, VF *even, VF *odd) {
    VF_PART {
        const VF x = vf_apart(vf_load(p + 16 * i));
        even->v[i] = x.v[0];
        odd->v[i] = x.v[1];
    }
}

/* Back from that. */
VF_FN VF vf_together(VF x) {
    const VP lo = _mm256_unpacklo_ps(x.v[0], x.v[1]), hi = _mm256_unpackhi_ps(x.v[0], x.v[1]);
    x.v[0] = _mm256_permute2f128_ps(lo, hi, 0x20);
    x.v[1] = _mm256_permute2f128_ps(lo, hi, 0x31);
    return x;
}

static inline float vf_join(VF x) {
    const __m256 s8 = _mm256_add_ps(x.v[0], x.v[1]);
    const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
    const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
    return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}
static inline float vf_join_max(VF x) {
    const __m256 s8 = _mm256_max_ps(x.v[1], x.v[0]);
    const __m128 s4 = _mm_max_ps(_mm256_extractf128_ps(s8, 1), _mm256_castps256_ps128(s8));
    const __m128 s2 = _mm_max_ps(_mm_movehl_ps(s4, s4), s4);
    return _mm_cvtss_f32(_mm_max_ss(_mm_movehdup_ps(s2), s2));
}
static inline void vf_join_rows(float *y, const VF x[VF_TILE_ROWS]) {
    const VP a = vp_add(x[0].v[0], x[0].v[1]), b = vp_add(x[1].v[0], x[1].v[1]);
    const VP s4 = vp_add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
    const VP s2 = vp_add(s4, _mm256_permute_ps(s4, 0xee));
    const VP s1 = vp_add(s2, _mm256_permute_ps(s2, 0x55));
    _mm_store_ss(y, _mm256_castps256_ps128(s1));
    _mm_store_ss(y + 1, _mm256_extractf128_ps(s1, 1));
}

/* Two vectors' lanes l + 4 to their lanes l: half of the result each. */
static inline VP vp_join_halves(VP a, VP b) {
    return vp_add(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
/* The sums of a, b, c, d but for the last addition: of a and b in the low half, c and d in the high one. */
static inline VP vp_join_pairs(VP a, VP b, VP c, VP d) {
    const __m256d ac = _mm256_castps_pd(vp_join_halves(a, c)), bd = _mm256_castps_pd(vp_join_halves(b, d));
    return vp_add(_mm256_castpd_ps(_mm256_unpacklo_pd(ac, bd)), _mm256_castpd_ps(_mm256_unpackhi_pd(ac, bd)));
}
static inline VP vp_join_last(VP a, VP b) {
    return vp_add(_mm256_shuffle_ps(a, b, 0x88), _mm256_shuffle_ps(a, b, 0xdd));
}
static inline void vp_join_4(float *y, const VP x[4]) {
    const VP pairs = vp_join_pairs(x[0], x[1], x[2], x[3]), sums = vp_join_last(pairs, pairs);
    const __m128 low = _mm256_castps256_ps128(sums), high = _mm256_extractf128_ps(sums, 1);
    _mm_storeu_ps(y, _mm_movelh_ps(low, high));
}
static inline void vp_join_2_by_4(float *y0, float *y1, const VP x[8]) {
    const VP sums = vp_join_last(vp_join_pairs(x[0], x[1], x[4], x[5]), vp_join_pairs(x[2], x[3], x[6], x[7]));
    _mm_storeu_ps(y0, _mm256_castps256_ps128(sums));
    _mm_storeu_ps(y1, _mm256_extractf128_ps(sums, 1));
}

static inline void v16_store_halves(void *p, const __m128i h[2], size_t n) {
    if (n == 16)
        memcpy(p, h, 32);
    else
        memcpy(p, h, n * sizeof(uint16_t));
}
static inline void vf_store_f16(void *p, VF x, size_t n) {
    __m128i h[2];
    VF_PART h[i] = _mm256_cvtps_ph(x.v[i], _MM_FROUND_TO_NEAREST_INT);
    v16_store_halves(p, h, n);
}
static inline __m128i vp_to_bf16(VP x) {
    const __m256i bits = _mm256_castps_si256(x), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i h = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
static inline void vf_store_bf16(void *p, VF x, size_t n) {
    __m128i h[2];
    VF_PART h[i] = vp_to_bf16(x.v[i]);
    v16_store_halves(p, h, n);
}

/* Into the second level: the first, 32 KB on these processors, is as large as the next four rows of a product or as
 * a head's keys of a page, and would lose them before they are read. */
#define vf_prefetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define vf_prefetch_rows vf_prefetch
#define VF_AHEAD 16384 /* a head's keys of a page */
