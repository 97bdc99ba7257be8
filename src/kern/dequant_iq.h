/* dequant_iq.h - blocks to float32: the codebook types IQ1, IQ2, IQ3, and TQ1_0 (kern/codebook.h).
 *
 * An including file defines KERN and
 *
 *   put_codes(y, scale, c, bias)   32 numbers, the first 16 times scale[0], the others times scale[1] */
#include "base/half.h"
#include "kern/codebook.h"
#include "kern/isa.h"

/* d times a scale is exact, and so is the product with a number: of bits there are 11, 5 and 6. */
#define DEQUANT(name, type, groups, most, per, bias)                                               \
    void KERN(dequant_##name)(float *y, const void *x, size_t n) {                                 \
        const struct lode_block_##name *b = x;                                                     \
        for (; n; n -= 256, b++) {                                                                 \
            const float d = lode_f16_f32(half_##name(b)) * (1.0f / (per));                         \
            for (int g = 0; g < 8; g++, y += 32) {                                                 \
                struct codes32 c;                                                                  \
                read_##name(&c, b, g);                                                             \
                put_codes(y, (const float[2]){d * (float)c.scale[0], d * (float)c.scale[1]}, &c,   \
                          bias);                                                                   \
            }                                                                                      \
        }                                                                                          \
    }
LODE_CODEBOOK_LIST(DEQUANT)
