/* lanes.h - the sixteen lanes of kern.h, for the scalar kernels. */
#ifndef LODE_KERN_LANES_H
#define LODE_KERN_LANES_H

#include <stddef.h>

#define LODE_LANES 16

static inline float lode_lanes_join(float lane[LODE_LANES]) {
    for (size_t w = LODE_LANES / 2; w; w /= 2)
        for (size_t l = 0; l < w; l++)
            lane[l] += lane[l + w];
    return lane[0];
}

#endif
