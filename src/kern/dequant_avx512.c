/* Halves to float32, a register at a time. */
#include "kern/isa.h"

#include <immintrin.h>

void dequant_f16_avx512(float *y, const void *x, size_t n) {
    const uint16_t *h = x;
    for (; n >= 16; n -= 16, y += 16, h += 16)
        _mm512_storeu_ps(y, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)h)));
    if (n) {
        const __mmask16 rest = (__mmask16)((1u << n) - 1);
        _mm512_mask_storeu_ps(y, rest, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(rest, h)));
    }
}
