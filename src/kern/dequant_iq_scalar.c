/* Codebook types to float32, the definition. */
#define KERN(name) name##_scalar
#include "base/half.h"
#include "kern/iq_grids.h"

static float flip(float v, uint32_t sign) { return lode_bits_f32(lode_f32_bits(v) ^ sign << 31); }

static void put_iq2(float *y, const float scale[2], uint64_t words, uint32_t signs) {
    static const int8_t levels[4] = LODE_IQ2_LEVELS;
    for (int j = 0; j < 32; j++)
        y[j] = flip(scale[j / 16] * (float)levels[words >> (2 * j) & 3], signs >> j & 1);
}

static void put_iq3(float *y, float scale, const int8_t levels[8], const uint64_t words[2], uint32_t signs) {
    for (int j = 0; j < 32; j++)
        y[j] = flip(scale * (float)levels[words[j / 16] >> (4 * (j % 16)) & 7], signs >> j & 1);
}

static void put_iq1(float *y, float scale, uint32_t word, float delta) {
    static const float levels[4] = LODE_IQ1_LEVELS;
    for (int j = 0; j < 8; j++)
        y[j] = scale * (levels[word >> (2 * j) & 3] + delta);
}

#include "kern/dequant_iq.h"
