/* The KV cache: storing rows, scoring queries against keys, mixing values.
 *
 * Every format is widened number by number to F32 - exactly, or for q8_0 (float)q * d with one
 * rounding - and then computed with as F32. */
#include "base/half.h"
#include "kern/isa.h"
#include "kern/lanes.h"

#include <math.h>
#include <string.h>

void kv_put_f32_scalar(void *y, const float *x, size_t n) {
    if (n)
        memcpy(y, x, n * sizeof *x);
}

void kv_put_f16_scalar(void *y, const float *x, size_t n) {
    uint16_t *out = y;
    for (size_t i = 0; i < n; i++)
        out[i] = lode_f32_f16(x[i]);
}

void kv_put_bf16_scalar(void *y, const float *x, size_t n) {
    uint16_t *out = y;
    for (size_t i = 0; i < n; i++)
        out[i] = lode_f32_bf16(x[i]);
}

/* Q8_0: blocks of { half d; int8_t q[32] } */
static inline float q8_0_at(const void *row, size_t i) {
    const char *block = (const char *)row + i / 32 * 34;
    uint16_t d;
    memcpy(&d, block, sizeof d);
    return (float)((const int8_t *)block)[2 + i % 32] * lode_f16_f32(d);
}

#define F32_AT(p, i) ((const float *)(p))[i]
#define F16_AT(p, i) lode_f16_f32(((const uint16_t *)(p))[i])
#define BF16_AT(p, i) lode_bf16_f32(((const uint16_t *)(p))[i])

#define KV(format, widen)                                                                          \
    void kv_score_##format##_scalar LODE_KV_SCORE_ARGS {                                           \
        (void)next;                                                                                \
        for (size_t i = 0; i < n_q; i++)                                                           \
            for (size_t j = 0; j < n_k; j++) {                                                     \
                const char *row = (const char *)k + j * k_stride;                                  \
                float lane[LODE_LANES] = {0};                                                      \
                for (size_t c = 0; c < dim; c++)                                                   \
                    lane[c % LODE_LANES] =                                                         \
                        fmaf(q[i * ldq + c], widen(row, c), lane[c % LODE_LANES]);                 \
                s[i * lds + j] = lode_lanes_join(lane);                                            \
            }                                                                                      \
    }                                                                                              \
    void kv_mix_##format##_scalar LODE_KV_MIX_ARGS {                                               \
        (void)next;                                                                                \
        for (size_t i = 0; i < n_q; i++)                                                           \
            for (size_t c = 0; c < dim; c++) {                                                     \
                float sum = 0;                                                                     \
                for (size_t j = lo[i]; j < hi[i]; j++)                                             \
                    sum = fmaf(p[i * ldp + j], widen((const char *)v + j * v_stride, c), sum);     \
                o[i * ldo + c] = sum;                                                              \
            }                                                                                      \
    }

KV(f32, F32_AT)
KV(f16, F16_AT)
KV(bf16, BF16_AT)
KV(q8_0, q8_0_at)
