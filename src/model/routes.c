/* routes.c - which layers have routed experts, and how large they are. */
#include "base/alloc.h"
#include "lode/trace.h"
#include "model/model.h"

int lode_model_find_experts(struct lode_model *m, struct lode_error *err) {
    const struct lode_plan *p = &m->plans[LODE_BODY];
    if (p->experts.n == 0)
        return 0;
    m->expert_bytes = LODE_NEW_ARRAY(uint64_t, m->hp.n_layers);
    if (!m->expert_bytes)
        return lode_fail_nomem(err, "model description");
    uint32_t layer = 0;
    for (uint32_t i = 0; i < p->n_instrs; i++) {
        const struct lode_plan_instr *in = &p->instrs[i];
        if (in->op == LODE_OP_ROUTE)
            layer = in->p.route.layer;
        for (uint32_t k = 0; in->op == LODE_OP_EXPERTS && k < in->n_parts; k++)
            m->expert_bytes[layer] += m->weights[p->parts[in->first_part + k].w->id].size;
    }
    return 0;
}

struct lode_trace_shape lode_model_routes(const struct lode_model *m) {
    struct lode_trace_shape s = {.n_layers = m->hp.n_layers,
                                 .n_used = m->hp.n_experts_used,
                                 .other_bytes = m->info.token_size,
                                 .head_bytes = m->plans[LODE_HEAD].weight_bytes,
                                 .expert_bytes = m->expert_bytes,
                                 .name = m->info.name};
    if (!m->expert_bytes)
        return s;
    s.n_experts = m->hp.n_experts;
    for (uint32_t l = 0; l < s.n_layers; l++)
        s.other_bytes -= s.n_used * m->expert_bytes[l];
    return s;
}
