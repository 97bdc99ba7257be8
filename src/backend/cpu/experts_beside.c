/* experts_beside.c - a step's experts that a device computes along with the host (backend.h's lode_aside). */
#include "backend/cpu/experts.h"

/* What computes whole experts along with the host; NULL: nobody. */
static struct lode_aside *beside(const struct wave *w) { return w->in->op == LODE_OP_EXPERTS ? w->cpu->aside : NULL; }

static void each(void *user, lode_pool_fn *fn, void *arg, uint32_t n) {
    const struct wave *w = user;
    lode_pool_run(w->cpu->pool, fn, arg, n);
}

/* lode_aside_host's get: of the step's shares. */
static int give(void *user, const bool *have, uint32_t *shares, const char *(*at)[3], uint32_t most,
                struct lode_error *err) {
    struct wave *w = user;
    struct lode_store *store = w->cpu->store;
    const uint32_t any = lode_experts_weight(w, &w->x->shares[0], 0);
    for (;;) {
        const uint64_t seen = store->ops->news(store, any);
        uint32_t n = 0, n_asked = 0;
        bool full = false;
        for (uint32_t i = 0; i < w->n_shares && n < most && n_asked < most + LODE_EXPERTS_AHEAD; i++) {
            struct share *s = &w->x->shares[i];
            if (have[i] || s->state == DONE)
                continue;
            n_asked++;
            if (full && s->state == UNASKED)
                continue;
            const int rc = lode_experts_ask(w, s, err);
            LODE_TRY(rc);
            full |= rc == LODE_FULL;
            if (rc != LODE_READY)
                continue;
            s->state = DONE;
            shares[n] = i;
            memcpy(at[n++], s->w, sizeof s->w);
        }
        if (n_asked == 0)
            lode_experts_settle(w);
        if (n || n_asked == 0)
            return (int)n;
        LODE_TRY(lode_experts_wait(w, seen, any, err));
    }
}

static void drop(void *user, uint32_t share) {
    struct wave *w = user;
    lode_experts_let_go(w, &w->x->shares[share]);
}

/* Shares first .. end as a device is told of them; their pairs follow one another from w->pairs on. */
static struct lode_aside_job job_of(struct wave *w, uint32_t first, uint32_t end) {
    uint32_t at = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct share *s = &w->x->shares[i];
        w->x->asked[i - first] = (struct lode_expert_share){s->expert, at, s->n};
        at += s->n;
    }
    const uint32_t n = end - first;
    const double shares = n * w->x->share_ns, pairs = at * w->x->pair_ns;
    return (struct lode_aside_job){w->in, w->x->asked, w->pairs, n, at, w->n_rows, (shares > pairs ? shares : pairs) / n};
}

int lode_experts_run_beside(struct wave *w, struct lode_error *err) {
    struct lode_aside *a = w->cpu->aside;
    const struct lode_aside_job job = job_of(w, 0, w->n_shares);
    if (job.n_shares == 0 || !a->ops->wants_all(a, &job))
        return 0;
    const int rc = a->ops->run_all(a, &job, &(struct lode_aside_host){w, each, give, drop}, err);
    return rc < 0 ? rc : 1;
}

uint32_t lode_experts_take_beside(struct wave *w) {
    struct lode_aside *a = beside(w);
    if (!a)
        return 0;
    const struct lode_aside_job job = job_of(w, w->first, w->end);
    const uint32_t n = a->ops->take(a, &job, w->x->place);
    for (uint32_t i = 0; n && i < job.n_shares; i++)
        if (w->x->place[i] != LODE_NO_PLACE)
            w->x->shares[w->first + i].state = DONE;
    return n;
}

void lode_experts_start_beside(struct wave *w) {
    if (w->starts)
        w->cpu->aside->ops->start(w->cpu->aside);
    w->starts = false;
}

int lode_experts_finish_beside(struct wave *w, struct lode_error *err) {
    struct lode_aside *a = w->cpu->aside;
    struct lode_experts *x = w->x;
    size_t stride = 0;
    const char *rows = a->ops->finish(a, &stride, err);
    if (!rows)
        return LODE_ERR_DEVICE;
    for (uint32_t i = 0; i < w->end - w->first; i++) {
        const struct share *s = &x->shares[w->first + i];
        for (uint32_t p = 0; x->place[i] != LODE_NO_PLACE && p < s->n; p++)
            memcpy(x->down + (size_t)(s->first + p) * x->out_stride, rows + (x->place[i] + p) * stride,
                   w->in->parts[2].w->rows * sizeof(float));
    }
    return 0;
}

void lode_experts_offer_beside(struct wave *w) {
    struct lode_aside *a = beside(w);
    if (!a)
        return;
    const struct lode_aside_job job = job_of(w, w->first, w->end);
    const struct share *s = &w->x->shares[w->x->ready[0]];
    const char *const at[3] = {s->w[0], s->w[1], s->w[2]};
    a->ops->offer(a, &job, w->x->ready[0] - w->first, at, &(struct lode_aside_host){w, each, give, drop});
}
