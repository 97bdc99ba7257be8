/* Products of quantised weights: 8 rows at once, AVX2 with FMA and F16C. */
#include "kern/vec_avx2.h"

#define KERN(name) name##_avx2
#define V_COLUMNS 4
#define V_WIDE_COLUMNS 6
#define V_TILES 2
#define V_FEW_256 1
#define V_WIDE_BIAS 0
#define V_NEAR_TILE 12288
#define V_ONE

/* The instruction adds pairs of products in 16 bits, with saturation that top * 127 * 2 <= 31496
 * does not reach; where four such sums fit too (top <= 32: 32512), they are added before they are
 * widened, else two (top <= 63) or none. */
#define V_DOT16
INLINE V v_dot16(V acc, const V w[4], const V x[4], int top) {
    const __m256i one = _mm256_set1_epi16(1);
    V pairs[4];
    for (int i = 0; i < 4; i++)
        pairs[i] = (V)_mm256_maddubs_epi16((__m256i)w[i], (__m256i)x[i]);
    if (top > 63) {
        for (int i = 0; i < 4; i++)
            acc += (V)_mm256_madd_epi16((__m256i)pairs[i], one);
        return acc;
    }
    const __m256i a = _mm256_add_epi16((__m256i)pairs[0], (__m256i)pairs[1]);
    const __m256i b = _mm256_add_epi16((__m256i)pairs[2], (__m256i)pairs[3]);
    if (top <= 32)
        return acc + (V)_mm256_madd_epi16(_mm256_add_epi16(a, b), one);
    return acc + (V)_mm256_madd_epi16(a, one) + (V)_mm256_madd_epi16(b, one);
}

/* |w| times x with w's sign: 128 * 127 * 2 = 32512 fits as well. */
INLINE V v_dot4_wide(V acc, V w, V x) {
    const __m256i signed_x = _mm256_sign_epi8((__m256i)x, (__m256i)w);
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8((__m256i)w), signed_x);
    return acc + (V)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

INLINE V v_negative8(V v) { return (V)((Vs8)v < 0); }

/* The sums of the four lanes of each half of four vectors, as int16: first of their low halves. */
INLINE V v_add_quads(const V v[4]) {
    __m256i sum[2];
    for (int i = 0; i < 2; i++) {
        const __m256i a = (__m256i)v[2 * i], b = (__m256i)v[2 * i + 1];
        sum[i] = _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    }
    return (V)_mm256_add_epi16(_mm256_unpacklo_epi64(sum[0], sum[1]), _mm256_unpackhi_epi64(sum[0], sum[1]));
}

INLINE V v_add_twos16(V a, V b) {
    return (V)_mm256_add_epi16((__m256i)_mm256_shuffle_ps((__m256)a, (__m256)b, 0x88),
                                (__m256i)_mm256_shuffle_ps((__m256)a, (__m256)b, 0xdd));
}

#include "kern/mul_tile.h"
