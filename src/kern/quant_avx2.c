/* Activations and KV entries to 8 bits, 8 numbers at a time. */
#define LANES 8
#include "kern/vec.h"

#include <immintrin.h>

INLINE void store_bytes(int8_t *p, V v) {
    const __m128i pack = _mm_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const __m128i lo = _mm_shuffle_epi8(_mm256_castsi256_si128((__m256i)v), pack);
    const __m128i hi = _mm_shuffle_epi8(_mm256_extracti128_si256((__m256i)v, 1), pack);
    _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(lo, hi));
}

#define KERN(name) name##_avx2
#include "kern/quant_vec.h"
