#include "engine/workers.h"

#include "backend/cuda.h"
#include "base/alloc.h"

static uint32_t head_rows(uint32_t batch) { return batch < LODE_HEAD_ROWS ? batch : LODE_HEAD_ROWS; }

static struct lode_cpu_opts cpu_opts(const struct lode_model *m, uint32_t batch, uint32_t threads) {
    const uint32_t a = m->plans[LODE_BODY].max_cols, b = m->plans[LODE_HEAD].max_cols;
    return (struct lode_cpu_opts){.isa = m->isa,
                                  .threads = threads,
                                  .float_act = m->opts.float_act,
                                  .fast = m->fast,
                                  .max_cols = a > b ? a : b,
                                  .max_rows = batch,
                                  .max_heads = m->plans[LODE_BODY].max_heads,
                                  .max_head_dim = m->plans[LODE_BODY].max_head_dim,
                                  .experts = m->plans[LODE_BODY].experts,
                                  .store = m->store};
}

static struct lode_cuda_opts cuda_opts(const struct lode_model *m, uint32_t batch) {
    struct lode_cuda_opts o = {.max_rows = batch, .n_layers = m->hp.n_layers,
                               .max_read = head_rows(batch), .max_traced = m->hp.d_model,
                               .n_ropes = m->hp.n_ropes, .experts = m->plans[LODE_BODY].experts};
    for (int i = 0; i < LODE_STAGES; i++) {
        const struct lode_plan *p = &m->plans[i];
        const uint32_t width = p->result == LODE_NO_VALUE ? 0 : p->values[p->result].width;
        o.max_out_width = width > o.max_out_width ? width : o.max_out_width;
    }
    return o;
}

uint64_t lode_workers_size(const struct lode_model *m, uint32_t batch, uint32_t threads) {
    const struct lode_cpu_opts o = cpu_opts(m, batch, threads);
    const struct lode_cuda_opts g = cuda_opts(m, batch);
    uint64_t size = m->cuda ? lode_cuda_work_size(&g) : lode_cpu_work_size(&o);
    size += lode_plan_buffer_size(&m->plans[LODE_BODY], batch, batch);
    for (int i = LODE_TAIL; i < LODE_STAGES; i++)
        size += lode_plan_buffer_size(&m->plans[i], 1, head_rows(batch));
    return size;
}

int lode_workers_create(struct lode_workers **out, struct lode_model *m, uint32_t batch,
                        uint32_t threads, struct lode_error *err) {
    *out = NULL;
    struct lode_workers *w = LODE_NEW(struct lode_workers);
    if (!w)
        return lode_fail_nomem(err, "workers");
    *w = (struct lode_workers){.refs = 1, .model = m, .batch = batch};
    w->work_size = lode_workers_size(m, batch, threads);
    w->tokens = LODE_NEW_ARRAY(int32_t, batch);
    w->out_rows = LODE_NEW_ARRAY(uint32_t, batch);
    w->segments = LODE_NEW_ARRAY(struct lode_segment, batch);
    const struct lode_cpu_opts o = cpu_opts(m, batch, threads);
    int rc = w->tokens && w->out_rows && w->segments ? 0 : lode_fail_nomem(err, "workers");
    const struct lode_cuda_opts g = cuda_opts(m, batch);
    if (rc == 0)
        rc = m->cuda ? lode_cuda_create(&w->backend, m->cuda, &g, err)
                     : lode_cpu_create(&w->backend, &o, err);
    for (int i = 0; rc == 0 && i < LODE_STAGES; i++)
        rc = lode_exec_create(&w->stages[i], &m->plans[i], w->backend, m->store,
                              i == LODE_BODY ? batch : 1, i == LODE_BODY ? batch : head_rows(batch),
                              err);
    if (rc < 0)
        lode_workers_release(w);
    else
        *out = w;
    return rc;
}

struct lode_workers *lode_workers_share(struct lode_workers *w) {
    w->refs++;
    return w;
}

void lode_workers_release(struct lode_workers *w) {
    if (!w || --w->refs > 0)
        return;
    for (int i = 0; i < LODE_STAGES; i++)
        lode_exec_free(w->stages[i]);
    if (w->backend)
        w->backend->ops->free(w->backend);
    lode_free(w->tokens);
    lode_free(w->out_rows);
    lode_free(w->segments);
    lode_free(w);
}

static int run(struct lode_exec *e, const struct lode_step *step, bool (*cancel)(void *user),
               void *cancel_user, struct lode_error *err) {
    lode_alloc_forbid(true);
    const int rc = lode_exec_run(e, step, cancel, cancel_user, err);
    lode_alloc_forbid(false);
    return rc;
}

int lode_workers_run(struct lode_workers *w, enum lode_stage stage, const struct lode_step *step,
                     lode_row_fn *row, void *user, bool (*cancel)(void *user), void *cancel_user,
                     struct lode_error *err) {
    struct lode_exec *body = w->stages[LODE_BODY], *head = w->stages[stage];
    LODE_TRY(run(body, step, cancel, cancel_user, err));
    const struct lode_value *final = lode_exec_result(body);
    const struct lode_value *in = lode_exec_input(head), *y = lode_exec_result(head);
    const uint32_t most = head_rows(w->batch);
    for (uint32_t i = 0; i < step->n_out; i += most) {
        const uint32_t n = step->n_out - i < most ? step->n_out - i : most;
        LODE_TRY(w->backend->ops->copy(w->backend, in, final, i, n, err));
        const struct lode_step part = {.n_out = n};
        LODE_TRY(run(head, &part, cancel, cancel_user, err));
        const char *rows = w->backend->ops->read(w->backend, y, n, err);
        if (!rows)
            return LODE_ERR_DEVICE;
        for (uint32_t r = 0; r < n; r++)
            if (row(user, i + r, (const float *)(rows + r * y->stride)))
                return lode_fail(err, LODE_ERR_CANCELLED, "", "stopped by the caller");
    }
    return 0;
}
