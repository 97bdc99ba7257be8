/* vec_avx512vnni.h - what mul_tile.h wants of AVX-512 with VNNI beside vec_avx512.h. */
#ifndef LODE_KERN_VEC_AVX512VNNI_H
#define LODE_KERN_VEC_AVX512VNNI_H

#include "kern/vec_avx512.h"

#define V_COLUMNS 4
#define V_TILES 2
#define V_FEW_256 8
#define V_WIDE_BIAS 128

INLINE V v_dot4_wide(V acc, V w, V x) {
    return (V)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, (__m512i)x);
}
/* The instruction broadcasts its operand from memory; gcc makes two of the intrinsics. */
#define V_DOT4_AT
INLINE V v_dot4_at(V acc, V w, const int8_t x[4]) {
    __asm__("vpdpbusd %1%{1to16%}, %2, %0" : "+v"(acc) : "m"(*(const int8_t(*)[4])x), "v"(w));
    return acc;
}

#define V_CHAINS
INLINE V v_mul_pairs(V a, V b) { return (V)_mm512_maddubs_epi16((__m512i)a, (__m512i)b); }

/* The low halves of two vectors' lanes, in pairs, in one instruction. */
INLINE V v_low_halves(V low, V high) {
    const __m512i upper = _mm512_set4_epi32(0x0d0c0d0c, 0x09080908, 0x05040504, 0x01000100);
    return (V)_mm512_mask_shuffle_epi8((__m512i)low, 0xcccccccccccccccc, (__m512i)high, upper);
}
/* The low halves of all lanes of two vectors, in an order. */
INLINE void v_store_low16(int16_t y[32], V a, V b, const uint16_t order[32]) {
    const __m512i at = _mm512_loadu_si512(order);
    const __m512i words = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16((__m512i)a)),
                                             _mm512_cvtepi32_epi16((__m512i)b), 1);
    _mm512_storeu_si512(y, _mm512_permutexvar_epi16(at, words));
}

/* Lane i of each 16 bytes: the sum of that of v[i] over its four lanes there. */
INLINE V v_add_fours(const V v[4]) {
    const V a = v_low32(v[0], v[1]) + v_high32(v[0], v[1]), b = v_low32(v[2], v[3]) + v_high32(v[2], v[3]);
    return v_low64(a, b) + v_high64(a, b);
}
/* In each 16 bytes: the sums of a's first and second two lanes there, of b's. */
INLINE V v_add_twos(V a, V b) {
    return (V)_mm512_shuffle_ps((__m512)a, (__m512)b, 0x88) + (V)_mm512_shuffle_ps((__m512)a, (__m512)b, 0xdd);
}
#define PICK(a, b, n) (V)_mm512_shuffle_i32x4((__m512i)(a), (__m512i)(b), n)
INLINE V v_swap_quarters(V v) { return PICK(v, v, 0xb1); }
INLINE V v_quarter(V v, int i) { /* its i-th 16 bytes, four times; i is a constant */
    return i == 0 ? PICK(v, v, 0x00) : i == 1 ? PICK(v, v, 0x55) : i == 2 ? PICK(v, v, 0xaa) : PICK(v, v, 0xff);
}
/* The i-th 16 bytes: the sum of two, i = 0, 1 of a's, i = 2, 3 of b's. */
INLINE V v_add_pairs(V a, V b) { return PICK(a, b, 0x88) + PICK(a, b, 0xdd); }
/* out[i], j-th 16 bytes: those of v[j] that are its i-th. */
INLINE void v_turn_quarters(V out[4], const V v[4]) {
    const V a = PICK(v[0], v[1], 0x44), b = PICK(v[2], v[3], 0x44);
    const V c = PICK(v[0], v[1], 0xee), d = PICK(v[2], v[3], 0xee);
    out[0] = PICK(a, b, 0x88);
    out[1] = PICK(a, b, 0xdd);
    out[2] = PICK(c, d, 0x88);
    out[3] = PICK(c, d, 0xdd);
}
#undef PICK

#endif
