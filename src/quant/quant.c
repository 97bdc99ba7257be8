#include "quant/quant.h"

#include "base/half.h"

void lode_quant_f32(void *y, const float *x, const float *v, size_t n) {
    (void)v;
    memcpy(y, x, n * sizeof *x);
}

void lode_quant_f16(void *y, const float *x, const float *v, size_t n) {
    uint16_t *h = y;
    (void)v;
    for (size_t i = 0; i < n; i++)
        h[i] = lode_f32_f16(x[i]);
}

void lode_quant_bf16(void *y, const float *x, const float *v, size_t n) {
    uint16_t *h = y;
    (void)v;
    for (size_t i = 0; i < n; i++)
        h[i] = lode_f32_bf16(x[i]);
}

lode_quant_fn *lode_quantiser(enum lode_dtype t) {
    static lode_quant_fn *const functions[LODE_DTYPE_COUNT] = {
#define ROW(s, t) [LODE_##t] = lode_quant_##s,
        LODE_QUANT_LIST(ROW)
#undef ROW
    };
    return (unsigned)t < LODE_DTYPE_COUNT ? functions[t] : NULL;
}
