/* Codebook types to float32, the definition. */
#include "kern/codebook.h"

#include <stdbool.h>

#define KERN(name) name##_scalar

static void put_codes(float *y, const float scale[2], const struct codes32 *c, bool has_signs) {
    for (int j = 0; j < 32; j++) {
        const int v = (int)(c->byte[j / 8] >> (8 * (j % 8)) & 255);
        y[j] = scale[j / 16] * (float)(!has_signs ? v - LODE_IQ1_BIAS : c->signs >> j & 1 ? -v : v);
    }
}

#include "kern/dequant_iq.h"
