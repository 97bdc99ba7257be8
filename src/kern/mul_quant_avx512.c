/* Products of quantised weights: 16 rows at once, without VNNI. */
#include "kern/vec_avx512.h"

#define KERN(name) name##_avx512
#define V_COLUMNS 8
#define V_TILES 1
#define V_FEW_256 1
#define V_WIDE_BIAS 0

/* The instruction adds pairs of products in 16 bits, with saturation that top * 127 * 2 <= 31496
 * does not reach; where four such sums fit too (top <= 32: 32512), they are added before they are
 * widened, else two (top <= 63) or none. */
#define V_DOT16
INLINE V v_dot16(V acc, const V w[4], const V x[4], int top) {
    const __m512i one = _mm512_set1_epi16(1);
    V pairs[4];
    for (int i = 0; i < 4; i++)
        pairs[i] = (V)_mm512_maddubs_epi16((__m512i)w[i], (__m512i)x[i]);
    if (top > 63) {
        for (int i = 0; i < 4; i++)
            acc += (V)_mm512_madd_epi16((__m512i)pairs[i], one);
        return acc;
    }
    const __m512i a = _mm512_add_epi16((__m512i)pairs[0], (__m512i)pairs[1]);
    const __m512i b = _mm512_add_epi16((__m512i)pairs[2], (__m512i)pairs[3]);
    if (top <= 32)
        return acc + (V)_mm512_madd_epi16(_mm512_add_epi16(a, b), one);
    return acc + (V)_mm512_madd_epi16(a, one) + (V)_mm512_madd_epi16(b, one);
}

/* |w| times x with w's sign: 128 * 127 * 2 = 32512 fits as well. */
INLINE V v_dot4_wide(V acc, V w, V x) {
    const __m512i signed_x = _mm512_mask_sub_epi8((__m512i)x, _mm512_movepi8_mask((__m512i)w),
                                                  _mm512_setzero_si512(), (__m512i)x);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)w), signed_x);
    return acc + (V)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

#include "kern/mul_tile.h"
