/* Activations and KV entries to 8 bits, 16 numbers at a time. */
#define LANES 16
#include "kern/vec.h"

#include <immintrin.h>

INLINE void store_bytes(int8_t *p, V v) {
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8((__m512i)v));
}

#define KERN(name) name##_avx512
#include "kern/quant_vec.h"
