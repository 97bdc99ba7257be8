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

INLINE V v_mul_pairs(V a, V b) { return (V)_mm512_maddubs_epi16((__m512i)a, (__m512i)b); }

#endif
