/* Rows of floats: dot products, norms, sums. */
#include "kern/isa.h"
#include "kern/lanes.h"

#include <math.h>

float dot_f32_scalar(const float *a, const float *b, size_t n) {
    float lane[LODE_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % LODE_LANES] = fmaf(a[i], b[i], lane[i % LODE_LANES]);
    return lode_lanes_join(lane);
}

void rms_norm_scalar(float *y, const float *x, const float *w, size_t n, float eps) {
    const float mean = dot_f32_scalar(x, x, n) / (float)n;
    const float root = sqrtf(mean + eps);
    for (size_t i = 0; i < n; i++)
        y[i] = w ? x[i] / root * w[i] : x[i] / root;
}

void layer_norm_scalar(float *y, const float *x, const float *w, const float *b, size_t n,
                       float eps) {
    float lane[LODE_LANES] = {0};
    for (size_t i = 0; i < n; i++)
        lane[i % LODE_LANES] += x[i];
    const float mean = lode_lanes_join(lane) / (float)n;

    float square[LODE_LANES] = {0};
    for (size_t i = 0; i < n; i++) {
        const float d = x[i] - mean;
        square[i % LODE_LANES] = fmaf(d, d, square[i % LODE_LANES]);
    }
    const float root = sqrtf(lode_lanes_join(square) / (float)n + eps);

    for (size_t i = 0; i < n; i++) {
        const float unit = (x[i] - mean) / root;
        /* -0 is the b that changes nothing, not even the sign of a zero */
        y[i] = fmaf(unit, w ? w[i] : 1.0f, b ? b[i] : -0.0f);
    }
}

void add_scalar(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

void scale_scalar(float *y, const float *x, float s, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s;
}

void axpy_scalar(float *y, const float *x, float s, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}
