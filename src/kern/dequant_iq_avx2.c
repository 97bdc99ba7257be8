/* Codebook types to float32, 32 numbers at once: signed bytes, then floats. */
#define LANES 8
#include "kern/codebook_vec.h"

#include <immintrin.h>

#define KERN(name) name##_avx2

INLINE void put_half(float *y, __m128i half, float scale) {
    const __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(half));
    const __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(half, 8)));
    _mm256_storeu_ps(y, _mm256_mul_ps(_mm256_set1_ps(scale), low));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(_mm256_set1_ps(scale), high));
}

INLINE void put_codes(float *y, const float scale[2], const struct codes32 *c, int bias) {
    const __m256i v = (__m256i)(bias ? codes_bytes(c) - (uint8_t)bias : codes_signed(c));
    put_half(y, _mm256_castsi256_si128(v), scale[0]);
    put_half(y + 16, _mm256_extracti128_si256(v, 1), scale[1]);
}

#include "kern/dequant_iq.h"
