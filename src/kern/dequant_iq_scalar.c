/* Codebook types to float32, the definition. */
#include "kern/codebook.h"

#include <stdbool.h>

#define KERN(name) name##_scalar

static void put_codes(float *y, const float scale[2], const struct codes32 *c, bool has_signs) {
    for (int j = 0; j < 32; j++)
        y[j] = scale[j / 16] * (float)codes_number(c, j, has_signs);
}

#include "kern/dequant_iq.h"
