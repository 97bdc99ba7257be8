#include "engine/workers.h"

#include "backend/cuda.h"
#include "base/alloc.h"
#include "base/machine.h"
#include "engine/bring.h"

#include <string.h>

/* Rows of a stage after the body at once; a device has the room for more. */
static uint32_t head_rows(const struct lode_model *m, const struct lode_plan *plans, uint32_t batch) {
    uint32_t most = LODE_HEAD_ROWS;
    for (uint32_t i = 0; i < plans[LODE_HEAD].n_cuts; i++)
        most = m->devices[plans[LODE_HEAD].cuts[i].place].cuda ? LODE_HEAD_ROWS_CUDA : most;
    return batch < most ? batch : most;
}

static struct lode_cpu_opts cpu_opts(const struct lode_model *m, const struct lode_plan *plans,
                                     uint32_t batch, uint32_t threads) {
    const uint32_t a = plans[LODE_BODY].max_cols, b = plans[LODE_HEAD].max_cols;
    bool turns = false;
    for (uint32_t i = 0; i < plans[LODE_BODY].n_cuts; i++)
        turns |= m->devices[plans[LODE_BODY].cuts[i].place].cuda != NULL;
    const uint32_t by_default = turns ? lode_machine_default_threads_beside_gpu() : lode_machine_default_threads();
    return (struct lode_cpu_opts){.isa = m->isa,
                                  .threads = threads ? threads : by_default,
                                  .float_act = m->opts.float_act,
                                  .fast = m->fast,
                                  .max_cols = a > b ? a : b,
                                  .max_rows = batch,
                                  .max_heads = plans[LODE_BODY].max_heads,
                                  .max_head_dim = plans[LODE_BODY].max_head_dim,
                                  .experts = plans[LODE_BODY].experts,
                                  .store = m->store,
                                  .takes_turns = turns};
}

static uint32_t count_cuts(const struct lode_plan *plans, uint32_t place) {
    uint32_t n = 0;
    for (int i = 0; i < LODE_PLANS; i++)
        for (uint32_t k = 0; k < plans[i].n_cuts; k++)
            n += lode_plan_at(&plans[i], plans[i].cuts[k].place, place);
    return n;
}

/* Whether a place has experts to compute. */
static bool has_experts(const struct lode_plan *plan, uint32_t place) {
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        const enum lode_op op = plan->instrs[i].op;
        if ((op == LODE_OP_EXPERTS || op == LODE_OP_EXPERTS_IN) && lode_plan_at(plan, plan->instrs[i].place, place))
            return true;
    }
    return false;
}

static void grow(size_t *most, size_t n) { *most = n > *most ? n : *most; }

static uint8_t place_of(const struct lode_plan *p, uint32_t value) { return p->slots[p->values[value].slot].place; }

/* The largest matrix that is brought to a place. */
static struct lode_cuda_bring_sizes brought_to(const struct lode_plan *many, uint32_t place) {
    struct lode_cuda_bring_sizes s = {0};
    for (uint32_t i = 0; i < many->n_instrs; i++)
        for (uint32_t k = 0; k < many->instrs[i].n_parts && many->instrs[i].place == place; k++) {
            const struct lode_plan_part *p = &many->parts[many->instrs[i].first_part + k];
            if (p->brought)
                lode_cuda_bring_grow(&s, p->w);
        }
    return s;
}

static struct lode_cuda_opts cuda_opts(const struct lode_model *m, const struct lode_plan *plans,
                                       uint32_t place, uint32_t batch) {
    struct lode_cuda_opts o = {.tensor = m->tensor, .max_rows = batch, .n_layers = m->n_kept,
                               .max_read = head_rows(m, plans, batch), .max_traced = m->hp.d_model,
                               .n_ropes = m->hp.n_ropes, .n_cuts = count_cuts(plans, place),
                               .bring = brought_to(&plans[LODE_MANY], place)};
    if (has_experts(&plans[LODE_BODY], place))
        o.experts = plans[LODE_BODY].experts;
    for (int i = 0; i < LODE_PLANS; i++) {
        const struct lode_plan *p = &plans[i];
        if (p->n_instrs == 0)
            continue;
        grow(&o.out_row, lode_plan_row_size(p, p->result));
        grow(&o.longest_copy, lode_plan_longest_copy(p));
        if (i == LODE_BODY || i == LODE_MANY) /* what goes from the body to what follows */
            for (int k = LODE_TAIL; k < LODE_STAGES; k++)
                if (plans[k].input != LODE_NO_VALUE && place_of(&plans[k], plans[k].input) != place_of(p, p->result))
                    grow(&o.longest_copy, lode_plan_row_size(p, p->result));
    }
    return o;
}

static struct lode_cuda_aside_opts aside_opts(const struct lode_model *m, const struct lode_plan *plans,
                                              uint32_t batch) {
    return (struct lode_cuda_aside_opts){.max_rows = batch, .experts = plans[LODE_BODY].experts,
                                         .raw = m->beside.raw, .slot = m->beside.slot,
                                         .bring_rows = m->opts.bring_rows};
}

void lode_workers_size(const struct lode_model *m, const struct lode_plan *plans, uint32_t batch,
                       uint32_t threads, uint64_t bytes[LODE_PLACES]) {
    const struct lode_cpu_opts o = cpu_opts(m, plans, batch, threads);
    memset(bytes, 0, LODE_PLACES * sizeof *bytes);
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const struct lode_cuda_opts g = cuda_opts(m, plans, p, batch);
        bytes[p] += !count_cuts(plans, p)  ? 0
                   : m->devices[p].cuda ? lode_cuda_work_size(&g) + (m->n_ranks ? LODE_CUDA_JOIN_SIZE : 0)
                                        : lode_cpu_work_size(&o);
        const uint64_t body = lode_plan_buffer_size(&plans[LODE_BODY], p, batch, batch);
        const uint64_t many = lode_plan_buffer_size(&plans[LODE_MANY], p, batch, batch); /* in its turn */
        bytes[p] += body > many ? body : many;
        bytes[LODE_HOST] += m->devices[p].cuda ? lode_cuda_bring_pinned(&g.bring) : 0;
        for (int i = LODE_TAIL; i < LODE_STAGES; i++)
            bytes[p] += lode_plan_buffer_size(&plans[i], p, 1, head_rows(m, plans, batch));
    }
    if (plans[LODE_BODY].beside != LODE_HOST) {
        const struct lode_cuda_aside_opts a = aside_opts(m, plans, batch);
        uint64_t device, host;
        lode_cuda_aside_size(&a, &device, &host);
        bytes[plans[LODE_BODY].beside] += device;
        bytes[LODE_HOST] += host;
    }
}

static int create_backends(struct lode_workers *w, uint32_t threads, struct lode_error *err) {
    const struct lode_model *m = w->model;
    const uint8_t beside = m->plans[LODE_BODY].beside;
    struct lode_cpu_opts o = cpu_opts(m, m->plans, w->batch, threads);
    if (beside != LODE_HOST) {
        const struct lode_cuda_aside_opts a = aside_opts(m, m->plans, w->batch);
        LODE_TRY(lode_cuda_aside_create(&w->aside, m->devices[beside].cuda, &a, err));
    }
    w->memory[LODE_HOST] = &lode_host_memory;
    w->threads = 1;
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        struct lode_backend **b = &w->backends[p];
        struct lode_cuda_opts g = cuda_opts(m, m->plans, p, w->batch);
        if (!count_cuts(m->plans, p))
            continue;
        g.store = m->store;
        g.host = w->backends[LODE_HOST];
        o.aside = p == LODE_HOST ? w->aside : NULL;
        LODE_TRY(m->devices[p].cuda ? lode_cuda_create(b, m->devices[p].cuda, &g, err)
                                    : lode_cpu_create(b, &o, err));
        (*b)->place = p;
        w->memory[p] = (*b)->memory;
        w->threads = (*b)->threads > w->threads ? (*b)->threads : w->threads;
    }
    return m->n_ranks && m->devices[1].cuda ? lode_cuda_join(w->backends + 1, m->n_ranks, err) : 0;
}

static bool has_many(const struct lode_model *m) { return m->plans[LODE_MANY].n_instrs > 0; }

int lode_workers_create(struct lode_workers **out, struct lode_model *m, uint32_t batch,
                        uint32_t threads, struct lode_error *err) {
    *out = NULL;
    struct lode_workers *w = LODE_NEW(struct lode_workers);
    if (!w)
        return lode_fail_nomem(err, "workers");
    *w = (struct lode_workers){.refs = 1, .model = m, .batch = batch};
    w->tokens = LODE_NEW_ARRAY(int32_t, batch);
    w->out_rows = LODE_NEW_ARRAY(uint32_t, batch);
    w->wants = LODE_NEW_ARRAY(uint32_t, batch);
    w->segments = LODE_NEW_ARRAY(struct lode_segment, batch);
    int rc = w->tokens && w->out_rows && w->wants && w->segments ? create_backends(w, threads, err)
                                                     : lode_fail_nomem(err, "workers");
    for (int i = 0; rc == 0 && i < LODE_STAGES; i++)
        rc = lode_exec_create(&w->stages[i], &m->plans[i], i == LODE_BODY && has_many(m) ? &m->plans[LODE_MANY] : NULL,
                              w->backends, m->store,
                              i == LODE_BODY ? batch : 1,
                              i == LODE_BODY ? batch : head_rows(m, m->plans, batch), err);
    if (rc == 0 && has_many(m))
        rc = lode_exec_create_other(&w->many, &m->plans[LODE_MANY], w->stages[LODE_BODY], err);
    if (rc < 0) {
        lode_workers_release(w);
        return rc;
    }
    w->many_rows = m->opts.bring_rows ? m->opts.bring_rows : w->many ? lode_bring_least_rows(m, m->plans, threads) : 0;
    w->flies = lode_workers_draws(w) && lode_exec_together(w->stages[LODE_BODY], w->stages[LODE_HEAD]);
    *out = w;
    return 0;
}

struct lode_workers *lode_workers_share(struct lode_workers *w) {
    w->refs++;
    return w;
}

void lode_workers_release(struct lode_workers *w) {
    if (!w || --w->refs > 0)
        return;
    lode_exec_free(w->many);
    for (int i = 0; i < LODE_STAGES; i++)
        lode_exec_free(w->stages[i]);
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        if (w->backends[p])
            w->backends[p]->ops->free(w->backends[p]);
    if (w->aside)
        w->aside->ops->free(w->aside);
    lode_free(w->tokens);
    lode_free(w->out_rows);
    lode_free(w->wants);
    lode_free(w->segments);
    lode_free(w);
}

void lode_workers_each(struct lode_workers *w, lode_pool_fn *fn, void *arg, uint32_t n) {
    for (int p = 0; n > 1 && p < LODE_PLACES; p++)
        if (w->backends[p] && w->backends[p]->ops->share) {
            w->backends[p]->ops->share(w->backends[p], fn, arg, n);
            return;
        }
    for (uint32_t i = 0; i < n; i++)
        fn(arg, i, 0);
}

static int run(struct lode_exec *e, const struct lode_step *step, bool (*cancel)(void *user),
               void *cancel_user, struct lode_error *err) {
    lode_alloc_forbid(true);
    const int rc = lode_exec_run(e, step, cancel, cancel_user, err);
    lode_alloc_forbid(false);
    return rc;
}

/* Gives rows first .. first + n of the step's, which are the head's first n, by their largest numbers where
 * that is all that is wanted of one. */
static int give_best(struct lode_workers *w, const struct lode_exec *head, uint32_t first, uint32_t n,
                     uint32_t most, lode_row_fn *row, void *user, struct lode_error *err) {
    const struct lode_best *best = lode_exec_best(head, n, most, err);
    if (!best)
        return LODE_ERR_DEVICE;
    for (uint32_t r = 0; r < n; r++) {
        const bool some = w->wants[first + r];
        const char *y = some ? NULL : lode_exec_read_row(head, r, err);
        if (!some && !y)
            return LODE_ERR_DEVICE;
        if (row(user, first + r, (const float *)y, best + (size_t)r * most, some ? most : 0))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "stopped by the caller");
    }
    return 0;
}

static int give_rows(const struct lode_exec *head, uint32_t first, uint32_t n, lode_row_fn *row, void *user,
                     struct lode_error *err) {
    size_t stride;
    const char *rows = lode_exec_read(head, n, &stride, err);
    if (!rows)
        return LODE_ERR_DEVICE;
    for (uint32_t r = 0; r < n; r++)
        if (row(user, first + r, (const float *)(rows + r * stride), NULL, 0))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "stopped by the caller");
    return 0;
}

int lode_workers_run(struct lode_workers *w, enum lode_stage stage, const struct lode_step *step,
                     lode_row_fn *row, void *user, bool (*cancel)(void *user), void *cancel_user,
                     struct lode_error *err) {
    struct lode_exec *head = w->stages[stage];
    struct lode_exec *body = w->many && step->n_rows >= w->many_rows ? w->many : w->stages[LODE_BODY];
    LODE_TRY(run(body, step, cancel, cancel_user, err));
    const uint32_t most = head_rows(w->model, w->model->plans, w->batch);
    for (uint32_t i = 0; i < step->n_out; i += most) {
        const uint32_t n = step->n_out - i < most ? step->n_out - i : most;
        LODE_TRY(lode_exec_take(head, body, i, n, err));
        const struct lode_step part = {.n_out = n};
        LODE_TRY(run(head, &part, cancel, cancel_user, err));
        uint32_t best = 0;
        for (uint32_t r = 0; stage == LODE_HEAD && lode_exec_gives_best(head) && r < n; r++)
            best = w->wants[i + r] > best ? w->wants[i + r] : best;
        LODE_TRY(best ? give_best(w, head, i, n, best, row, user, err) : give_rows(head, i, n, row, user, err));
    }
    return 0;
}

uint32_t lode_workers_draws(const struct lode_workers *w) {
    return lode_exec_draws(w->stages[LODE_HEAD]) ? head_rows(w->model, w->model->plans, w->batch) : 0;
}

int lode_workers_begin(struct lode_workers *w, const struct lode_step *step, const struct lode_draw *draws,
                       bool (*cancel)(void *user), void *cancel_user, struct lode_error *err) {
    lode_alloc_forbid(true);
    const int draw = lode_exec_draw_step(w->stages[LODE_BODY], w->stages[LODE_HEAD], step, draws, cancel, cancel_user, err);
    lode_alloc_forbid(false);
    return draw;
}
