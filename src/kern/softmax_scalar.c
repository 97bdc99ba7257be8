/* One chunk's part of a softmax; the caller merges chunks. */
#include "kern/expf.h"
#include "kern/isa.h"
#include "kern/lanes.h"

/* A score that is NaN never becomes the maximum, but its exponential is NaN and so is the sum: a
 * broken score breaks the row, and is not hidden.  The maximum is kept in sixteen lanes too: which
 * of +0 and -0 wins depends on the order. */
void softmax_part_scalar(float *s, size_t n, float scale, float cap, float *max, float *sum) {
    float lane[LODE_LANES];
    for (size_t l = 0; l < LODE_LANES; l++)
        lane[l] = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        s[i] *= scale;
        if (cap > 0)
            s[i] = cap * lode_tanhf(s[i] / cap);
        if (s[i] > lane[i % LODE_LANES])
            lane[i % LODE_LANES] = s[i];
    }
    for (size_t w = LODE_LANES / 2; w; w /= 2)
        for (size_t l = 0; l < w; l++)
            if (lane[l + w] > lane[l])
                lane[l] = lane[l + w];
    *max = lane[0];

    float total[LODE_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        s[i] = lode_expf(s[i] - *max);
        total[i % LODE_LANES] += s[i];
    }
    *sum = lode_lanes_join(total);
}
