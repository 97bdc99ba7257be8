/* Layers that carry a state from token to token: short convolutions, and the gated delta rule (Yang
 * et al., Gated Delta Networks, arXiv 2412.06464). */
#include "kern/expf.h"
#include "kern/isa.h"

#include <math.h>

void conv_row_scalar(float *y, const float *const *x, const float *w, size_t taps, size_t n,
                     bool silu) {
    for (size_t c = 0; c < n; c++) {
        float sum = 0;
        for (size_t t = 0; t < taps; t++)
            sum = fmaf(w[c * taps + t], x[t][c], sum);
        y[c] = silu ? lode_siluf(sum) : sum;
    }
}

void delta_rule_scalar LODE_DELTA_ARGS {
    for (size_t t = 0; t < n_t; t++, o += ldo, q += ldx, k += ldx, v += ldx, gates += ldg) {
        const float decay = gates[0], beta = gates[1];
        for (size_t c = 0; c < n; c++) {
            float *column = s + c / 16 * dim_k * 16 + c % 16;
            float m = 0, sum = 0;
            for (size_t i = 0; i < dim_k; i++)
                m = fmaf(column[i * 16], k[i], m);
            const float d = fmaf(-decay, m, v[c]) * beta;
            for (size_t i = 0; i < dim_k; i++) {
                column[i * 16] = fmaf(k[i], d, column[i * 16] * decay);
                sum = fmaf(column[i * 16], q[i], sum);
            }
            o[c] = sum;
        }
    }
}
