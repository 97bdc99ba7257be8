#include "model/devices.h"

#include "base/alloc.h"
#include "base/machine.h"
#include "model/groups.h"

#include <stdio.h>
#include <string.h>

/* The graphs lie as the split says from now on. */
static void adopt(struct lode_model *m, struct lode_split *s) {
    for (int i = 0; i < LODE_PLANS; i++) {
        lode_plan_deinit(&m->plans[i]);
        m->plans[i] = s->plans[i];
        s->plans[i] = (struct lode_plan){0};
    }
    unsigned from_store = 0; /* places that pin weights: the host, and what stands in for devices */
    for (uint32_t p = 0; p < m->n_places; p++)
        from_store |= m->devices[p].cuda ? 0 : 1u << p;
    for (uint32_t i = 0; i < m->n_weights; i++)
        m->weights[i].elsewhere = s->uses[i] && !(s->uses[i] & from_store);
    lode_groups_drop(m->weights, m->groups, &m->n_groups);
    m->n_expert_groups = m->n_groups;
    for (uint32_t l = 0; l < m->n_kept; l++)
        m->kv[l].place = m->state[l].place = s->layers[l];
    lode_free(m->uses);
    m->uses = s->uses;
    s->uses = NULL;
    m->info.gpu_layers = s->n_gpu_layers;
    if (*s->note)
        memcpy(m->device_note, s->note, sizeof m->device_note);
}

/* Whether the weights have room on their devices. */
static bool have_room(const struct lode_model *m, const struct lode_split *s, struct lode_error *why) {
    for (uint32_t p = 1; p < m->n_places; p++) {
        uint64_t need = 0;
        for (uint32_t i = 0; i < m->n_weights; i++)
            need += s->uses[i] & 1u << p ? lode_cuda_weight_size(&m->weights[i]) : 0;
        const uint64_t free = m->devices[p].cuda ? lode_cuda_available(m->devices[p].cuda) : UINT64_MAX;
        if (need > free) {
            lode_fail(why, LODE_ERR_LIMIT, "--device", "the weights take %.0f MiB, but %.0f MiB of the memory of "
                      "'%s' are free", (double)need / 0x1p20, (double)free / 0x1p20,
                      lode_cuda_name(m->devices[p].cuda));
            return false;
        }
    }
    return true;
}

int lode_model_choose_split(struct lode_model *m, struct lode_error *err) {
    struct lode_split s;
    struct lode_error why;
    const uint32_t all = m->hp.n_layers + 1;
    const uint32_t wanted = m->is_split ? m->gpu_layers : m->n_places == 1 ? 0 : all;
    /* what is read when it is used is computed on the host */
    const uint32_t cpu_experts = m->is_split ? m->cpu_experts : m->opts.expert_cache ? UINT32_MAX : 0;
    LODE_TRY(lode_split_make(&s, m, wanted, cpu_experts, m->has_beside, m->brings, err));
    int rc = 0;
    if (!have_room(m, &s, &why)) {
        lode_split_free(&s);
        if (!m->any_device || m->is_split || m->n_ranks) {
            *err = why;
            return LODE_ERR_LIMIT;
        }
        rc = lode_split_make(&s, m, 0, 0, false, false, err);
        snprintf(m->device_note, sizeof m->device_note, "the GPU is not used: %.200s", why.text);
    }
    if (rc == 0)
        adopt(m, &s);
    lode_split_free(&s);
    return rc;
}

static bool runs_at(const struct lode_model *m, uint32_t place) {
    for (int i = 0; i < LODE_PLANS; i++)
        for (uint32_t k = 0; k < m->plans[i].n_cuts; k++)
            if (lode_plan_at(&m->plans[i], m->plans[i].cuts[k].place, place))
                return true;
    return false;
}

/* The bus's speed, before the device is full; what cannot be measured is not used. */
static void measure_bus(struct lode_model *m) {
    const struct lode_plan *p = &m->plans[LODE_MANY];
    struct lode_error none;
    for (uint32_t i = 0; i < p->n_cuts && !m->opts.bring_rows && m->bus_speed <= 0; i++)
        if (m->devices[p->cuts[i].place].cuda)
            lode_cuda_bus_speed(m->devices[p->cuts[i].place].cuda, &m->bus_speed, &none);
}

int lode_model_fill_devices(struct lode_model *m, struct lode_error *err) {
    measure_bus(m);
    for (uint32_t p = 1; p < m->n_places; p++) {
        struct lode_device *d = &m->devices[p];
        if (!d->cuda)
            continue;
        if (!runs_at(m, p)) {
            lode_cuda_close(d->cuda);
            d->cuda = NULL;
            m->info.n_gpus--;
            continue;
        }
        LODE_TRY(lode_cuda_load(d->cuda, m->source, m->weights, m->n_weights, m->uses,
                                (uint16_t)(1u << p), m->opts.progress, m->opts.progress_user, err));
        double seconds;
        m->info.uploaded += lode_cuda_uploaded(d->cuda, &seconds);
        m->info.upload_seconds += seconds;
        if (!m->info.on_gpu)
            m->info.device = lode_cuda_name(d->cuda);
        m->info.on_gpu = true;
    }
    m->info.on_cpu = runs_at(m, LODE_HOST);
    return 0;
}

/* Of all its experts, wherever they run; uses and bytes are the caller's. */
static struct lode_cuda_experts_opts experts_opts(const struct lode_model *m) {
    return (struct lode_cuda_experts_opts){.graph = &m->graphs[LODE_BODY],
                                           .source = m->source,
                                           .weights = m->weights,
                                           .groups = m->groups,
                                           .float_act = m->opts.float_act,
                                           .fast = m->fast,
                                           .policy = m->opts.cache_policy};
}

int lode_model_size_experts(struct lode_model *m, struct lode_error *err) {
    const struct lode_cuda_experts_opts o = experts_opts(m);
    for (uint32_t p = 1; p < m->n_places; p++)
        if (m->devices[p].cuda)
            return lode_cuda_experts_sizes(m->devices[p].cuda, &o, &m->beside, err);
    return 0;
}

int lode_model_fetch_layers(struct lode_model *m, struct lode_error *err) {
    const struct lode_plan *p = &m->plans[LODE_MANY];
    struct lode_machine machine;
    uint32_t n = 0, at = LODE_HOST;
    uint64_t size = 0;
    uint32_t *ids = p->n_instrs ? LODE_NEW_ARRAY(uint32_t, p->n_parts) : NULL;
    if (p->n_instrs && !ids)
        return lode_fail_nomem(err, "layers that a GPU is brought");
    for (uint32_t i = 0; i < p->n_instrs; i++)
        for (uint32_t k = 0; k < p->instrs[i].n_parts; k++) {
            const struct lode_plan_part *part = &p->parts[p->instrs[i].first_part + k];
            if (!part->brought)
                continue;
            at = p->instrs[i].place;
            ids[n++] = part->w->id;
            size += m->weights[part->w->id].size;
        }
    lode_machine_probe(&machine);
    const bool may = n && m->devices[at].cuda && !lode_model_streams(m) && !m->opts.direct &&
                     (!machine.ram_left || size < machine.ram_left);
    const int rc = may ? lode_cuda_fetch_layers(m->devices[at].cuda, m->source, m->weights, ids, n, err) : 0;
    lode_free(ids);
    return rc;
}

int lode_model_keep_experts(struct lode_model *m, struct lode_error *err) {
    const uint8_t at = m->plans[LODE_BODY].beside;
    struct lode_cuda_experts_opts o = experts_opts(m);
    struct lode_machine machine;
    uint64_t size = 0;
    if (at == LODE_HOST)
        return 0;
    for (uint32_t g = 0; g < m->n_expert_groups; g++)
        for (uint32_t k = 0; k < m->groups[g].n_weights; k++)
            size += m->weights[m->groups[g].weights[k]].size;
    lode_machine_probe(&machine);
    o.uses = m->uses;
    o.bytes = m->gpu_cache;
    o.may_pin = !lode_model_streams(m) && !m->opts.direct && (!machine.ram_left || size < machine.ram_left);
    LODE_TRY(lode_cuda_keep_experts(m->devices[at].cuda, &o, err));
    const struct lode_weight *w = m->n_expert_groups ? &m->weights[m->groups[0].weights[0]] : NULL;
    const bool mapped = w && lode_source_data(m->source, w->home, w->offset, w->size);
    if (o.may_pin && mapped && !lode_cuda_fetches_experts(m->devices[at].cuda) && !*m->device_note)
        snprintf(m->device_note, sizeof m->device_note,
                 "the GPU cannot read experts where they are mapped: threads copy them for it");
    return 0;
}

void lode_model_choose_numerics(struct lode_model *m) {
    const bool on_host = runs_at(m, LODE_HOST), host = m->fast && on_host, fast = m->wanted == LODE_NUMERICS_fast;
    bool gpu = false;
    for (uint32_t p = 1; p < m->n_places; p++)
        gpu |= m->devices[p].cuda && lode_cuda_has_fast(m->devices[p].cuda);
    m->tensor = gpu && (fast || m->wanted == LODE_NUMERICS_tensor || (m->wanted == LODE_NUMERICS_auto && !on_host));
    if (host || m->tensor)
        snprintf(m->numerics, sizeof m->numerics, "%s (%s%s%s)", fast ? "fast" : "tensor", host ? lode_fast_name(m->fast) : "",
                 host && m->tensor ? ", " : "", m->tensor ? "CUDA tensor cores" : "");
    else
        snprintf(m->numerics, sizeof m->numerics, "exact");
}

bool lode_model_lost(const struct lode_model *m) {
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        if (m->devices[p].cuda && lode_cuda_lost(m->devices[p].cuda))
            return true;
    return false;
}

int lode_device_count(struct lode_error *why) { return lode_cuda_count(why); }

int lode_device_info(int index, char name[256], uint64_t *memory, struct lode_error *err) {
    return lode_cuda_info(index, name, memory, err);
}

int lode_device_speeds(int index, struct lode_device_speeds *out, struct lode_error *err) {
    struct lode_cuda *c;
    *out = (struct lode_device_speeds){0};
    LODE_TRY(lode_cuda_open(&c, index, err));
    const int rc = lode_cuda_speeds(c, out, err);
    out->fast = lode_cuda_has_fast(c);
    lode_cuda_close(c);
    return rc;
}
