/* Codebook types to float32, 8 numbers at once: one variable shift and one table look-up. */
#include "kern/iq_grids.h"

#include <immintrin.h>
#include <stdint.h>

#define KERN(name) name##_avx2

/* Code j of `bits` bits to the low end of lane j; the look-ups ignore what is above. */
static inline __m256i spread(uint32_t word, int bits) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_srlv_epi32(_mm256_set1_epi32((int)word),
                             _mm256_mullo_epi32(lane, _mm256_set1_epi32(bits)));
}

static inline __m256 flip(__m256 v, uint32_t signs) {
    const __m256i left = _mm256_sllv_epi32(_mm256_set1_epi32((int)signs),
                                           _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24));
    return _mm256_xor_ps(v,
                         _mm256_castsi256_ps(_mm256_and_si256(left, _mm256_set1_epi32(INT32_MIN))));
}

static inline __m256 level4(const float levels[4], uint32_t word) {
    return _mm256_permutevar_ps(_mm256_broadcast_ps((const __m128 *)levels), spread(word, 2));
}

static inline void put_iq2(float *y, float scale, uint32_t word, uint32_t signs) {
    static const float levels[4] = LODE_IQ2_LEVELS;
    const __m256 v = _mm256_mul_ps(_mm256_set1_ps(scale), level4(levels, word));
    _mm256_storeu_ps(y, flip(v, signs));
}

static inline void put_iq3(float *y, float scale, const float levels[8], uint32_t words,
                           uint32_t signs) {
    const __m256 level = _mm256_permutevar8x32_ps(_mm256_loadu_ps(levels), spread(words, 4));
    _mm256_storeu_ps(y, flip(_mm256_mul_ps(_mm256_set1_ps(scale), level), signs));
}

static inline void put_iq1(float *y, float scale, uint32_t word, float delta) {
    static const float levels[4] = LODE_IQ1_LEVELS;
    const __m256 sum = _mm256_add_ps(level4(levels, word), _mm256_set1_ps(delta));
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_set1_ps(scale), sum));
}

#include "kern/dequant_iq.h"
