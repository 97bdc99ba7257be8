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

void softcap_scalar(float *y, const float *x, float cap, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] = cap * lode_tanhf(x[i] / cap);
}
