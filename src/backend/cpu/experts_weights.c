/* experts_weights.c - the weights of a step's experts: asked for as long before as there is room, held until they are used. */
#include "backend/cpu/experts.h"

uint32_t lode_experts_weight(const struct wave *w, const struct share *s, int k) {
    return part_of(w->in, k)->w->id + s->expert;
}

void lode_experts_let_go(struct wave *w, struct share *s) {
    struct lode_store *store = w->cpu->store;
    for (int k = 0; k < KINDS; k++)
        if (s->held[k])
            store->ops->unpin(store, lode_experts_weight(w, s, k));
    memset(s->held, 0, sizeof s->held);
    memset(s->w, 0, sizeof s->w);
}

int lode_experts_ask(struct wave *w, struct share *s, struct lode_error *err) {
    struct lode_store *store = w->cpu->store;
    int all = LODE_READY;
    for (int k = 0; k < KINDS; k++) {
        const void *data = NULL;
        if (s->w[k] || !has(w->in, k))
            continue;
        const int rc = (s->held[k] ? store->ops->look : store->ops->pin)(store, lode_experts_weight(w, s, k),
                                                                        &data, err);
        if (rc < 0)
            return rc;
        if (rc == LODE_FULL) {
            lode_experts_let_go(w, s);
            s->state = UNASKED;
            return rc;
        }
        s->held[k] = true;
        s->w[k] = data;
        if (rc == LODE_PENDING)
            all = rc;
    }
    s->state = ASKED;
    return all;
}

int lode_experts_collect(struct wave *w, struct lode_error *err) {
    const uint32_t most = w->n_shares - w->end < LODE_EXPERTS_AHEAD ? w->n_shares : w->end + LODE_EXPERTS_AHEAD;
    bool full = false;
    w->n_ready = 0;
    for (uint32_t i = w->first; i < most; i++) {
        struct share *s = &w->x->shares[i];
        if (s->state == DONE || (s->state == UNASKED && full) || (s->state == ASKED && i >= w->end))
            continue;
        const int rc = lode_experts_ask(w, s, err);
        LODE_TRY(rc);
        full |= rc == LODE_FULL;
        if (rc == LODE_READY && i < w->end)
            w->x->ready[w->n_ready++] = i;
    }
    return 0;
}

void lode_experts_settle(struct wave *w) {
    struct lode_store *store = w->cpu->store;
    if (!w->in->guesses || w->settled)
        return;
    store->ops->settle(store, w->in->guesses);
    if (w->in->n_ahead)
        store->ops->want(store, w->in->guesses, w->in->ahead, w->in->n_ahead);
    w->settled = true;
}

int lode_experts_wait(struct wave *w, uint64_t seen, uint32_t any, struct lode_error *err) {
    const struct lode_backend *b = &w->cpu->base;
    struct lode_store *store = w->cpu->store;
    if (b->cancel && b->cancel(b->cancel_user))
        return lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled");
    store->ops->wait(store, seen, any);
    return 0;
}

void lode_experts_announce(struct wave *w) {
    struct lode_store *store = w->cpu->store;
    for (uint32_t i = 0; store->ops->need && i < w->n_shares; i++)
        store->ops->need(store, lode_experts_weight(w, &w->x->shares[i], has(w->in, GATE) ? GATE : DOWN));
}
