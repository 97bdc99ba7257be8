/* Codebook types to float32, the definition. */
#include "kern/codebook.h"

#define KERN(name) name##_scalar

static void put_codes(float *y, const float scale[2], const struct codes32 *c, int bias) {
    for (int j = 0; j < 32; j++)
        y[j] = scale[j / 16] * (float)codes_number(c, j, bias);
}

#include "kern/dequant_iq.h"
