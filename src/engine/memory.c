#include "engine/memory.h"

#include "backend/cuda.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "engine/workers.h"
#include "kern/kern.h"

static int kv_format(const char *flag, const char *name, enum lode_dtype otherwise,
                     enum lode_dtype *out, struct lode_error *err) {
    *out = otherwise;
    if (!name)
        return 0;
#define MATCH(suffix, dtype, text)                                                                 \
    if (strcmp(name, text) == 0) {                                                                 \
        *out = LODE_##dtype;                                                                       \
        return 0;                                                                                  \
    }
    LODE_KV_LIST(MATCH)
#undef MATCH
#define TEXT(suffix, dtype, text) " " text
    return lode_fail(err, LODE_ERR_ARG, flag, "'%.40s' is no KV format:" LODE_KV_LIST(TEXT), name);
#undef TEXT
}

int lode_session_layers(const struct lode_model *m, const struct lode_session_opts *o,
                        struct lode_kv_layer **out, struct lode_error *err) {
    /* both ways, keys and values die with their layer: exact ones cost no memory to speak of */
    const enum lode_dtype otherwise = m->hp.both_ways ? LODE_F32 : LODE_F16;
    enum lode_dtype k, v;
    *out = NULL;
    LODE_TRY(kv_format("-ctk", o->ctk, otherwise, &k, err));
    LODE_TRY(kv_format("-ctv", o->ctv, otherwise, &v, err));
    const uint32_t n = m->n_kept;
    struct lode_kv_layer *layers = LODE_NEW_ARRAY(struct lode_kv_layer, n);
    *out = layers;
    if (!layers)
        return lode_fail_nomem(err, "KV cache");
    memcpy(layers, m->kv, n * sizeof *layers);
    for (uint32_t l = 0; l < n; l++) {
        layers[l].type_k = k;
        layers[l].type_v = v;
    }
    return 0;
}

uint32_t lode_session_batch(const struct lode_session_opts *o, uint32_t ctx) {
    const uint32_t batch = o->batch ? o->batch : LODE_DEFAULT_BATCH;
    return batch < ctx ? batch : ctx;
}

int lode_session_needs(const struct lode_model *m, const struct lode_plan *plans,
                       const struct lode_kv_layer *layers, const struct lode_session_opts *o,
                       const struct lode_kv_room *room, struct lode_needs *out, struct lode_error *err) {
    const uint32_t n = m->n_kept;
    *out = (struct lode_needs){0};
    LODE_TRY(lode_kv_pool_size(layers, n, room, out->kv, err));
    if (!o->with)
        lode_workers_size(m, plans, room->batch, o->threads, out->work);
    out->work[LODE_HOST] += room->ctx * sizeof(int32_t) + m->hp.n_vocab * sizeof(float);
    for (uint32_t l = 0; l < n; l++) /* a state lies where the layer's keys do */
        out->state[layers[l].place] += lode_state_block(&m->state[l], 1) * (1 + LODE_STATE_CHECKPOINTS);
    return 0;
}

void lode_places_left(const struct lode_model *m, uint64_t left[LODE_PLACES]) {
    struct lode_machine machine;
    lode_machine_probe(&machine);
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        left[p] = m->devices[p].cuda ? lode_cuda_available(m->devices[p].cuda) : machine.ram_left;
}

/* What does not fit: the place that lacks most, or -1. */
static int fullest(const struct lode_needs *n, const uint64_t left[LODE_PLACES]) {
    int worst = -1;
    uint64_t most = 0;
    for (int p = 0; p < LODE_PLACES; p++) {
        const uint64_t need = n->kv[p] + n->state[p] + n->work[p];
        if (need > left[p] && need - left[p] > most) {
            most = need - left[p];
            worst = p;
        }
    }
    return worst;
}

static int plan_for(const struct lode_model *m, const struct lode_session_opts *o,
                    const struct lode_kv_layer *layers, uint32_t ctx,
                    const uint64_t left[LODE_PLACES], struct lode_memory_plan *p,
                    struct lode_error *err) {
    const struct lode_kv_room room = {.ctx = ctx, .batch = lode_session_batch(o, ctx)};
    struct lode_needs n;
    LODE_TRY(lode_session_needs(m, m->plans, layers, o, &room, &n, err));
    const int full = fullest(&n, left);
    p->ctx = ctx;
    p->kv = p->state = p->work = p->available = 0;
    p->state_token = 2 * lode_state_block(m->state, m->n_kept);
    for (int i = 0; i < LODE_PLACES; i++) {
        /* of places that lack nothing, those that keep more than a session's tokens and logits */
        const bool counts = full < 0 ? n.kv[i] + n.state[i] || (i == LODE_HOST && !m->info.on_gpu) : i == full;
        p->kv += full < 0 || i == full ? n.kv[i] : 0;
        p->state += full < 0 || i == full ? n.state[i] : 0;
        p->work += full < 0 || i == full ? n.work[i] : 0;
        p->available += counts ? left[i] : 0;
    }
    p->short_of_gpu = full > LODE_HOST;
    p->fits = full < 0;
    return 0;
}

int lode_plan_memory(const struct lode_model *m, const struct lode_session_opts *opts,
                     struct lode_memory_plan *out, struct lode_error *err) {
    const struct lode_session_opts o = opts ? *opts : (struct lode_session_opts){0};
    uint64_t left[LODE_PLACES];
    lode_places_left(m, left);
    *out = (struct lode_memory_plan){.weights = m->info.size,
                                     .repacked = m->store ? m->store->resident : 0};
    struct lode_kv_layer *layers;
    int rc = lode_session_layers(m, &o, &layers, err);
    const uint32_t wanted = o.ctx ? o.ctx : m->hp.ctx_train;
    if (rc == 0)
        rc = plan_for(m, &o, layers, wanted, left, out, err);
    if (rc == 0 && !o.ctx && !out->fits) {
        /* Bytes grow with the context: the largest multiple of 256 tokens that fits. */
        uint32_t low = 0, high = wanted / 256;
        while (rc == 0 && low + 1 < high) {
            const uint32_t middle = low + (high - low) / 2;
            rc = plan_for(m, &o, layers, middle * 256, left, out, err);
            *(out->fits ? &low : &high) = middle;
        }
        if (rc == 0)
            rc = plan_for(m, &o, layers, low ? low * 256 : wanted < 256 ? wanted : 256, left,
                          out, err);
    }
    lode_free(layers);
    return rc;
}

int lode_session_admit(const struct lode_model *m, const struct lode_session_opts *o,
                       struct lode_memory_plan *p, struct lode_error *err) {
    if (!m->store)
        return lode_fail(err, LODE_ERR_ARG, m->info.path, "the model was opened without its weights");
    LODE_TRY(lode_plan_memory(m, o, p, err));
    if (p->fits)
        return 0;
    return lode_fail(err, LODE_ERR_LIMIT, "-c",
                     "a context of %u tokens needs %.0f MiB of KV cache%s and %.0f MiB of work "
                     "buffers, but %.0f MiB of %smemory are free: use a smaller -c, -ctk q8_0 -ctv "
                     "q8_0, or a smaller -b",
                     p->ctx, (double)(p->kv + p->state) / 0x1p20,
                     p->state ? " and recurrent state" : "", (double)p->work / 0x1p20,
                     (double)p->available / 0x1p20, p->short_of_gpu ? "GPU " : "");
}

static const struct lode_plan *plan_of(const struct lode_model *m, size_t *i) {
    if (*i < m->plans[LODE_BODY].n_instrs)
        return &m->plans[LODE_BODY];
    *i -= m->plans[LODE_BODY].n_instrs;
    return &m->plans[LODE_HEAD];
}

size_t lode_plan_n_steps(const struct lode_model *m) {
    return m->plans[LODE_BODY].n_instrs + m->plans[LODE_HEAD].n_instrs;
}

struct lode_plan_step lode_plan_step(const struct lode_model *m, size_t i) {
    const struct lode_plan *p = plan_of(m, &i);
    const struct lode_plan_instr *in = &p->instrs[i];
    struct lode_plan_step step = {
        .op = lode_ops[in->op].name, .gradient = lode_ops[in->op].gradient, in->n_parts};
    for (uint32_t k = 0; k < in->n_parts; k++) {
        const struct lode_cost c = lode_plan_part_cost(p, in, &p->parts[in->first_part + k]);
        step.weight_bytes += c.weight_bytes;
        step.row_bytes += c.row_bytes;
        step.row_flops += c.row_flops;
    }
    return step;
}
