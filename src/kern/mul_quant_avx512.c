/* Products of quantised weights: 16 rows at once, without VNNI. */
#include "kern/vec_avx512.h"

#define KERN(name) name##_avx512
#define V_COLUMNS 8
#define V_WIDE_BIAS 0

/* Pairs are summed in 16 bits with saturation, which 63 * 127 * 2 = 16002 does not reach. */
INLINE V v_dot4(V acc, V w, V x) {
    const __m512i pairs = _mm512_maddubs_epi16((__m512i)w, (__m512i)x);
    return acc + (V)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

/* |w| times x with w's sign: 128 * 127 * 2 = 32512 fits as well. */
INLINE V v_dot4_wide(V acc, V w, V x) {
    const __m512i signed_x = _mm512_mask_sub_epi8((__m512i)x, _mm512_movepi8_mask((__m512i)w),
                                                  _mm512_setzero_si512(), (__m512i)x);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8((__m512i)w), signed_x);
    return acc + (V)_mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}

#include "kern/mul_tile.h"
