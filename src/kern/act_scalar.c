/* Activation functions. */
#include "kern/expf.h"
#include "kern/isa.h"

void silu_mul_scalar(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_siluf(gate[i]) * up[i];
}

void gelu_mul_scalar(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_geluf(gate[i]) * up[i];
}

void clamped_mul_scalar(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_clampedf(gate[i], up[i]);
}

void gelu_scalar(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_geluf(x[i]);
}

void gelu_erf_scalar(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_gelu_erff(x[i]);
}

void relu2_scalar(float *y, const float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = lode_relu2f(x[i]);
}

void times_scalar(float *y, const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

void sigmoid_mul_scalar(float *y, const float *gate, const float *up, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = up[i] / (1.0f + lode_expf(-gate[i]));
}

void softcap_scalar(float *y, const float *x, float cap, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = cap * lode_tanhf(x[i] / cap);
}
