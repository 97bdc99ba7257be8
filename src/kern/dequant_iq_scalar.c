/* Codebook types to float32, the definition. */
#define KERN(name) name##_scalar
#include "base/half.h"
#include "kern/iq_grids.h"

static float flip(float v, uint32_t sign) { return lode_bits_f32(lode_f32_bits(v) ^ sign << 31); }

static void put_iq2(float *y, float scale, uint32_t word, uint32_t signs) {
    static const float levels[4] = LODE_IQ2_LEVELS;
    for (int j = 0; j < 8; j++)
        y[j] = flip(scale * levels[word >> (2 * j) & 3], signs >> j & 1);
}

static void put_iq3(float *y, float scale, const float levels[8], uint32_t words, uint32_t signs) {
    for (int j = 0; j < 8; j++)
        y[j] = flip(scale * levels[words >> (4 * j) & 7], signs >> j & 1);
}

static void put_iq1(float *y, float scale, uint32_t word, float delta) {
    static const float levels[4] = LODE_IQ1_LEVELS;
    for (int j = 0; j < 8; j++)
        y[j] = scale * (levels[word >> (2 * j) & 3] + delta);
}

#include "kern/dequant_iq.h"
