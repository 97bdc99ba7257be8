/* Rotary position embedding (Su et al., RoFormer, arXiv 2104.09864). */
#include "kern/isa.h"

#include <math.h>

static inline void turn(float *a, float *b, float c, float s) {
    const float a0 = *a, b0 = *b;
    *a = fmaf(a0, c, -(b0 * s));
    *b = fmaf(a0, s, b0 * c);
}

void rope_half_scalar(float *x, size_t stride, size_t n_heads, const float *cs, size_t n_pairs) {
    for (size_t h = 0; h < n_heads; h++, x += stride)
        for (size_t i = 0; i < n_pairs; i++)
            turn(&x[i], &x[i + n_pairs], cs[2 * i], cs[2 * i + 1]);
}
