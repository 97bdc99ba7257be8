/* half.h - IEEE binary16 and bfloat16, one number at a time, in integer arithmetic.
 *
 * Exact where the target can hold the value, else round to nearest even; NaN stays NaN.  The
 * kernels' wide conversions equal these bit for bit (kerncheck).
 */
#ifndef LODE_BASE_HALF_H
#define LODE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float lode_bits_f32(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static inline uint32_t lode_f32_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}
static inline float lode_bf16_f32(uint16_t h) { return lode_bits_f32((uint32_t)h << 16); }

float lode_f16_f32(uint16_t h);
uint16_t lode_f32_f16(float f);
uint16_t lode_f32_bf16(float f);

#endif
