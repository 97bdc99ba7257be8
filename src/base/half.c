#include "base/half.h"

float lode_f16_f32(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exp = (h >> 10) & 31, man = h & 0x3ff;
    if (exp == 31)
        return lode_bits_f32(sign | 0x7f800000u | man << 13 | (man ? 0x400000u : 0));
    if (exp)
        return lode_bits_f32(sign | (exp + 112) << 23 | man << 13);
    /* subnormal: man * 2^-24 is exact in binary32 */
    const float f = (float)man * 0x1p-24f;
    return lode_bits_f32(sign | lode_f32_bits(f));
}

uint16_t lode_f32_f16(float f) {
    const uint32_t bits = lode_f32_bits(f), sign = bits >> 16 & 0x8000, abs = bits & 0x7fffffff;
    if (abs > 0x7f800000) /* keep the payload's top bits, made quiet, as the hardware does */
        return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x3ff));
    if (abs >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (abs < 0x38800000) { /* below 2^-14: adding 0.5 leaves the value in the low mantissa bits,
                               rounded to nearest even by the addition itself */
        const float sum = lode_bits_f32(abs) + 0.5f;
        return (uint16_t)(sign | (lode_f32_bits(sum) - lode_f32_bits(0.5f)));
    }
    const uint32_t rounded = abs + 0xfff + (abs >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112 << 10)));
}

uint16_t lode_f32_bf16(float f) {
    const uint32_t bits = lode_f32_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
