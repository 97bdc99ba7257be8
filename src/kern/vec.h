/* vec.h - vectors of LANES 32-bit lanes by the compilers' vector extension (gcc, clang), for
 * kernels that are written once for every width.  Include with LANES defined.
 *
 * V is unsigned, so that + - * << >> wrap and shift logically; f_int reads the lanes as signed. */
#ifndef LODE_KERN_VEC_H
#define LODE_KERN_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

typedef uint32_t V __attribute__((vector_size(4 * LANES)));
typedef int32_t Vs32 __attribute__((vector_size(4 * LANES)));
typedef uint16_t V16 __attribute__((vector_size(4 * LANES)));
typedef int16_t Vs16 __attribute__((vector_size(4 * LANES)));
typedef uint8_t V8 __attribute__((vector_size(4 * LANES)));
typedef float F __attribute__((vector_size(4 * LANES)));

/* Where the LANES rows of a tile begin. */
struct rows {
    const uint8_t *p[LANES];
};

INLINE V v_zero(void) { return (V){0}; }
INLINE V v_set32(uint32_t c) { return (V){0} + c; }
INLINE V v_set8(uint8_t c) { return (V)((V8){0} + c); }
INLINE V v_bcast4(const void *p) { /* 4 bytes of memory to each lane */
    uint32_t x;
    memcpy(&x, p, 4);
    return (V){0} + x;
}
INLINE V v_sll16(V v, int n) { return (V)((V16)v << n); }
INLINE V v_srl16(V v, int n) { return (V)((V16)v >> n); }
INLINE V v_sra16(V v, int n) { return (V)((Vs16)v >> n); }
INLINE V v_sra32(V v, int n) { return (V)((Vs32)v >> n); }
INLINE V v_mul16(V a, V b) { return (V)((V16)a * (V16)b); }
/* The low halves of two vectors' lanes, in pairs. */
INLINE V v_pair(V low, V high) { return (low & v_set32(0xffff)) | high << 16; }
INLINE V v_eq8(V a, V b) { return (V)((V8)a == (V8)b); } /* all ones where equal */
INLINE V v_gt32(V a, V b) { return (V)((Vs32)a > (Vs32)b); }

INLINE F f_zero(void) { return (F){0}; }
INLINE F f_int(V v) { return __builtin_convertvector((Vs32)v, F); }

#endif
