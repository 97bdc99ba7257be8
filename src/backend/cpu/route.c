/* route.c - which experts a row goes to, and with what weight: router logits to pairs.
 *
 * Ties go to the smaller expert, and the pairs of a row are in ascending order of experts, so that
 * the sum over them has one order.
 */
#include "backend/cpu/cpu.h"
#include "backend/route_groups.h"
#include "backend/sparse_mix.h"

#include "kern/expf.h"

#include <math.h>

struct route_job {
    const struct lode_cpu *cpu;
    const struct lode_instr *in;
};

/* The n_used largest, ties to the smaller id, in ascending order of id. */
static void choose(const float *choice, uint32_t n, uint32_t n_used, uint32_t *ids) {
    uint64_t taken[LODE_MAX_EXPERTS / 64];
    memset(taken, 0, (n + 63) / 64 * sizeof *taken);
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = 0; i < n; i++)
            if (!(taken[i / 64] >> i % 64 & 1) && (best == UINT32_MAX || choice[i] > choice[best]))
                best = i;
        ids[k] = best;
        taken[best / 64] |= UINT64_C(1) << best % 64;
    }
    for (uint32_t k = 1; k < n_used; k++) /* insertion sort */
        for (uint32_t j = k; j > 0 && ids[j] < ids[j - 1]; j--) {
            const uint32_t t = ids[j];
            ids[j] = ids[j - 1];
            ids[j - 1] = t;
        }
}

static void route_row(const struct route_job *j, const float *logits, const float *bias, float *y,
                      float *scores, float *choice, uint32_t *ids) {
    const union lode_op_params *p = &j->in->p;
    const uint32_t n = j->in->in[0].width, n_used = p->route.n_used;
    memcpy(scores, logits, n * sizeof *scores);
    if (p->route.gating == LODE_GATE_SOFTMAX) {
        float max, sum;
        j->cpu->kern.softmax_part(scores, n, 1.0f, 0.0f, &max, &sum);
        for (uint32_t i = 0; i < n; i++)
            scores[i] /= sum;
    } else if (p->route.gating == LODE_GATE_SIGMOID) {
        for (uint32_t i = 0; i < n; i++)
            scores[i] = 1.0f / (1.0f + lode_expf(-scores[i]));
    }
    for (uint32_t i = 0; i < n; i++)
        choice[i] = bias ? scores[i] + bias[i] : scores[i];
    if (p->route.n_groups > 1)
        lode_drop_groups(choice, n, p->route.n_groups, p->route.n_groups_used, bias != NULL);
    choose(choice, n, n_used, ids);
    float w[LODE_MAX_USED], sum = 0;
    for (uint32_t k = 0; k < n_used; k++)
        w[k] = scores[ids[k]];
    if (p->route.gating == LODE_GATE_SPARSEMIXER) {
        lode_mix_sparsely(choice, logits, n, n_used, ids, w);
    } else if (p->route.gating == LODE_GATE_SOFTMAX_TOP) {
        float max;
        j->cpu->kern.softmax_part(w, n_used, 1.0f, 0.0f, &max, &sum);
        for (uint32_t k = 0; k < n_used; k++)
            w[k] /= sum;
    } else if (p->route.normalise) {
        for (uint32_t k = 0; k < n_used; k++)
            sum += w[k];
        for (uint32_t k = 0; k < n_used; k++)
            w[k] /= sum;
    }
    for (uint32_t k = 0; k < n_used; k++) {
        const int32_t id = (int32_t)ids[k];
        memcpy(&y[2 * k], &id, sizeof id);
        y[2 * k + 1] = w[k] * p->route.scale;
    }
}

/* A row of a prompt is enough work for a task. */
static void route_task(void *arg, uint32_t r, uint32_t worker) {
    const struct route_job *j = arg;
    const struct lode_instr *in = j->in;
    float *scores = (float *)lode_cpu_scratch(j->cpu, worker);
    uint32_t ids[LODE_MAX_USED];
    route_row(j, (const float *)(in->in[0].data + r * in->in[0].stride), in->parts[0].w_data,
              (float *)(in->parts[0].out.data + r * in->parts[0].out.stride), scores, scores + in->in[0].width, ids);
}

void lode_cpu_route(struct lode_backend *b, const struct lode_instr *in,
                    const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    struct route_job j = {c, in};
    const uint32_t n_rows = lode_value_rows(&in->in[0], step);
    /* each of n_used looks at all */
    lode_cpu_for(c, route_task, &j, n_rows, (size_t)n_rows * in->in[0].width * in->p.route.n_used);
    if (step->routes)
        step->routes(step->trace_user, in->p.route.layer, step,
                     (const float *)in->parts[0].out.data, in->parts[0].out.stride,
                     in->p.route.n_used, in->in[0].rows != LODE_ROWS_ALL);
}
