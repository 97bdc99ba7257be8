/* Attention of many queries to a whole page: the same sums as kv_scalar.c, softmax_scalar.c and the
 * merging of pages, with queries side by side. */
#include "kern/expf.h"
#include "kern/isa.h"
#include "kern/lanes.h"

#include <math.h>

void att_score_scalar LODE_ATT_SCORE_ARGS {
    for (size_t j = 0; j < n_k; j++)
        for (size_t i = 0; i < n_q; i++) {
            float lane[LODE_LANES] = {0};
            for (size_t c = 0; c < dim; c++)
                lane[c % LODE_LANES] = fmaf(q[(c % 16 * (dim / 16) + c / 16) * n_q + i],
                                            k[j * dim + c], lane[c % LODE_LANES]);
            s[j * n_q + i] = lode_lanes_join(lane);
        }
}

/* softmax_part of a column. */
static void weigh_column(float *s, size_t n_q, size_t n_k, float scale, float cap, float *max,
                         float *sum) {
    float lane[LODE_LANES], total[LODE_LANES] = {0};
    for (size_t l = 0; l < LODE_LANES; l++)
        lane[l] = -INFINITY;
    for (size_t j = 0; j < n_k; j++) {
        float *v = s + j * n_q;
        *v *= scale;
        if (cap > 0)
            *v = cap * lode_tanhf(*v / cap);
        if (*v > lane[j % LODE_LANES])
            lane[j % LODE_LANES] = *v;
    }
    for (size_t w = LODE_LANES / 2; w; w /= 2)
        for (size_t l = 0; l < w; l++)
            if (lane[l + w] > lane[l])
                lane[l] = lane[l + w];
    for (size_t j = 0; j < n_k; j++) {
        s[j * n_q] = lode_expf(s[j * n_q] - lane[0]);
        total[j % LODE_LANES] += s[j * n_q];
    }
    *max = lane[0];
    *sum = lode_lanes_join(total);
}

void att_weigh_scalar LODE_ATT_WEIGH_ARGS {
    for (size_t i = 0; i < n_q; i++) {
        float m, l;
        weigh_column(s + i, n_q, seen ? seen[i] : n_k, scale, cap, &m, &l);
        if (first) {
            max[i] = m;
            total[i] = l;
            a[i] = 0.0f;
            b[i] = 1.0f;
            continue;
        }
        const float top = max[i] > m ? max[i] : m;
        a[i] = lode_expf(max[i] - top);
        b[i] = lode_expf(m - top);
        total[i] = fmaf(l, b[i], total[i] * a[i]);
        max[i] = top;
    }
}

void att_mix_scalar LODE_ATT_MIX_ARGS {
    for (size_t i = 0; i < n_q; i++)
        for (size_t c = 0; c < dim; c++) {
            float sum = 0, *y = o + i * dim + c;
            for (size_t j = 0; j < (seen ? seen[i] : n_k); j++)
                sum = fmaf(p[j * n_q + i], v[j * dim + c], sum);
            *y = first ? sum : fmaf(sum, b[i], *y * a[i]);
        }
}
