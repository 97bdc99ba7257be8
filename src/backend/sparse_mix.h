/* sparse_mix.h - PhiMoE's weights of experts, for every backend: included as C and as device code.
 */
#ifndef LODE_BACKEND_SPARSE_MIX_H
#define LODE_BACKEND_SPARSE_MIX_H

#include "kern/expf.h"

#include <math.h>
#include <stdint.h>

/* PhiMoE at inference (arXiv:2409.12136): the best expert weighs what a softmax gives it among
 * those close to it, the second best the same without the first.  s is close to the largest, m,
 * unless (m - s) / max(|s|, m) > 2 jitter.  choice: the logits; changed. */
static inline void lode_mix_sparsely(float *choice, const float *logits, uint32_t n,
                                     uint32_t n_used, const uint32_t *ids, float *w) {
    const float far = 2 * 0.01f; /* no file has another jitter */
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            best = choice[i] > choice[best] ? i : best;
        const float m = choice[best];
        float sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            const float size = fabsf(logits[i]) > m ? fabsf(logits[i]) : m;
            if (choice[i] > -INFINITY && !((m - choice[i]) / size > far))
                sum += lode_expf(choice[i] - m);
        }
        for (uint32_t j = 0; j < n_used; j++)
            if (ids[j] == best)
                w[j] = 1 / sum;
        choice[best] = -INFINITY;
    }
}

#endif
