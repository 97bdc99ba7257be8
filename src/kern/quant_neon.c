/* Activations and KV entries to 8 bits, 4 numbers at a time. */
#define LANES 4
#include "kern/vec.h"

#include <arm_neon.h>

INLINE void store_bytes(int8_t *p, V v) {
    const uint16x4_t narrow = vmovn_u32((uint32x4_t)v);
    const uint8x8_t bytes = vmovn_u16(vcombine_u16(narrow, narrow));
    memcpy(p, &bytes, 4);
}

#define KERN(name) name##_neon
#include "kern/quant_vec.h"
