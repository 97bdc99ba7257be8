/* Blocks to float32: plain loops as the compiler turns them into AVX2, and halves by F16C. */
#define KERN(name) name##_avx2
#include "kern/dequant.h"

#include <immintrin.h>

void dequant_f16_avx2(float *y, const void *x, size_t n) {
    const uint16_t *h = x;
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
    for (; i < n; i++)
        y[i] = _cvtsh_ss(h[i]);
}
