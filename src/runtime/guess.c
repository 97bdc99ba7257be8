#include "runtime/guess.h"

#include "base/alloc.h"

/* A router, and what is asked of the next one behind it. */
struct ask {
    uint32_t at, route, experts; /* instructions: the product, ROUTE, EXPERTS */
    uint32_t part;               /* of the product */
    bool next;                   /* the next layer's router can be asked */
};

struct lode_guess {
    const struct lode_plan *plan;
    struct lode_instr *instrs;
    struct lode_backend *backend;
    struct lode_store *store;
    struct ask *asks; /* owned; (n_asks), in the order of layers */
    uint32_t n_asks;
    float *logits, *pairs; /* owned; (LODE_GUESS_ROWS, width of each) */
    uint32_t n_experts, n_pairs;
    uint32_t *ahead; /* owned; (LODE_GUESS_ROWS * n_used) */
};

static bool find_ask(const struct lode_plan *p, uint32_t experts, struct ask *a) {
    const uint32_t pairs = p->instrs[experts].in[1];
    bool found = false;
    for (uint32_t i = 0; i < experts; i++)
        if (p->instrs[i].op == LODE_OP_ROUTE && p->parts[p->instrs[i].first_part].out == pairs) {
            a->route = i;
            found = true;
        }
    for (uint32_t i = 0; found && i < a->route; i++)
        for (uint32_t k = 0; p->instrs[i].op == LODE_OP_LINEAR && k < p->instrs[i].n_parts; k++)
            if (p->parts[p->instrs[i].first_part + k].out == p->instrs[a->route].in[0]) {
                a->at = i;
                a->part = k;
                a->experts = experts;
                /* who asks is the host */
                return p->instrs[i].place == LODE_HOST && p->instrs[a->route].place == LODE_HOST &&
                       p->instrs[experts].place == LODE_HOST;
            }
    return false;
}

/* Whether b's router takes what a's does. */
static bool alike(const struct lode_plan *p, const struct ask *a, const struct ask *b) {
    const struct lode_plan_value *x = &p->values[p->instrs[a->at].in[0]];
    const struct lode_plan_value *y = &p->values[p->instrs[b->at].in[0]];
    return x->type == y->type && x->width == y->width && x->rows == LODE_ROWS_ALL &&
           y->rows == LODE_ROWS_ALL;
}

int lode_guess_create(struct lode_guess **out, const struct lode_plan *plan,
                      struct lode_instr *instrs, struct lode_backend *backend,
                      struct lode_store *store, struct lode_error *err) {
    *out = NULL;
    if (!store->guesses || plan->experts.n == 0)
        return 0;
    struct lode_guess *g = LODE_NEW(struct lode_guess);
    if (!g)
        return lode_fail_nomem(err, "guesses");
    *g = (struct lode_guess){plan,
                             instrs,
                             backend,
                             store,
                             .n_experts = plan->experts.n,
                             .n_pairs = 2 * plan->experts.n_used};
    g->asks = LODE_NEW_ARRAY(struct ask, plan->n_instrs);
    g->logits = LODE_NEW_ARRAY(float, LODE_GUESS_ROWS *(size_t)g->n_experts);
    g->pairs = LODE_NEW_ARRAY(float, LODE_GUESS_ROWS *(size_t)g->n_pairs);
    g->ahead = LODE_NEW_ARRAY(uint32_t, LODE_GUESS_ROWS * (size_t)plan->experts.n_used);
    if (!g->asks || !g->logits || !g->pairs || !g->ahead) {
        lode_guess_free(g);
        return lode_fail_nomem(err, "guesses");
    }
    for (uint32_t i = 0; i < plan->n_instrs; i++)
        if (plan->instrs[i].op == LODE_OP_EXPERTS && find_ask(plan, i, &g->asks[g->n_asks]))
            g->n_asks++;
    for (uint32_t i = 0; i + 1 < g->n_asks; i++)
        g->asks[i].next = alike(plan, &g->asks[i], &g->asks[i + 1]);
    *out = g;
    return 0;
}

void lode_guess_free(struct lode_guess *g) {
    if (!g)
        return;
    lode_free(g->asks);
    lode_free(g->logits);
    lode_free(g->pairs);
    lode_free(g->ahead);
    lode_free(g);
}

/* Pins a weight (NULL: none) if it is here; for one that is not, a guess does not wait. */
static int hold(struct lode_store *s, const struct lode_operand *w, const void **data,
                struct lode_error *err) {
    if (!w)
        return LODE_READY;
    const int rc = s->ops->pin(s, w->id, data, err);
    if (rc == LODE_PENDING)
        s->ops->unpin(s, w->id);
    return rc;
}

/* The next layer's product and choice, over this layer's input, into the guess's own buffers.
 * PENDING or FULL: a weight of its router is not here yet. */
static int choose(struct lode_guess *g, const struct ask *now, const struct ask *next,
                  const struct lode_step *step, struct lode_error *err) {
    const struct lode_instr *in = &g->instrs[now->at], *there = &g->instrs[next->at];
    struct lode_instr route = g->instrs[next->route];
    struct lode_part product = there->parts[next->part], pairs = route.parts[0];
    const uint32_t n = product.w->rows;
    product.out =
        (struct lode_value){(char *)g->logits, n * sizeof(float), n, LODE_F32, LODE_ROWS_ALL};
    pairs.out = (struct lode_value){(char *)g->pairs, g->n_pairs * sizeof(float),
                                    2 * route.p.route.n_used, LODE_F32, LODE_ROWS_ALL};
    struct lode_instr linear = {
        .op = LODE_OP_LINEAR, .p = there->p, .in = {in->in[0]}, .parts = &product, .n_parts = 1};
    route.in[0] = product.out;
    route.parts = &pairs;
    int rc = hold(g->store, product.w, &product.w_data, err);
    if (rc == LODE_READY)
        rc = hold(g->store, product.bias, &product.bias_data, err);
    if (rc == LODE_READY)
        rc = hold(g->store, pairs.w, &pairs.w_data, err);
    const struct lode_step quiet = {.n_rows = step->n_rows}; /* nobody is told of it */
    if (rc == LODE_READY) {
        g->backend->ops->run[LODE_OP_LINEAR](g->backend, &linear, &quiet);
        g->backend->ops->run[LODE_OP_ROUTE](g->backend, &route, &quiet);
    }
    if (product.w_data)
        g->store->ops->unpin(g->store, product.w->id);
    if (product.bias_data)
        g->store->ops->unpin(g->store, product.bias->id);
    if (pairs.w_data)
        g->store->ops->unpin(g->store, pairs.w->id);
    return rc;
}

/* The expert whose weight has `rank` heavier ones before it. */
static uint32_t ranked(const float *pairs, uint32_t n_used, uint32_t rank) {
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t heavier = 0;
        int32_t id;
        for (uint32_t j = 0; j < n_used; j++)
            heavier += pairs[2 * j + 1] > pairs[2 * k + 1] ||
                       (j < k && !(pairs[2 * j + 1] < pairs[2 * k + 1]));
        memcpy(&id, &pairs[2 * k], sizeof id);
        if (heavier == rank)
            return (uint32_t)id;
    }
    return 0; /* weights that are no numbers */
}

/* What `next` would choose now is read ahead, the surest of each row first. */
static int guess_layer(struct lode_guess *g, const struct ask *now, const struct ask *next,
                       struct lode_instr *experts, const struct lode_step *step,
                       struct lode_error *err) {
    const int rc = choose(g, now, next, step, err);
    if (rc != LODE_READY)
        return rc < 0 ? rc : 0;
    const uint32_t n_used = g->instrs[next->route].p.route.n_used;
    const uint32_t first = g->instrs[next->experts].parts[0].w->id;
    for (uint32_t rank = 0; rank < n_used; rank++)
        for (uint32_t r = 0; r < step->n_rows; r++)
            g->ahead[experts->n_ahead++] = first + ranked(&g->pairs[r * g->n_pairs], n_used, rank);
    return 0;
}

int lode_guess_run(struct lode_guess *g, uint32_t i, const struct lode_step *step,
                   struct lode_error *err) {
    for (uint32_t a = 0; a < g->n_asks; a++) {
        const struct ask *now = &g->asks[a];
        if (now->at != i)
            continue;
        struct lode_instr *experts = &g->instrs[now->experts];
        experts->n_ahead = 0;
        experts->ahead = g->ahead;
        if (step->n_rows > LODE_GUESS_ROWS)
            return 0;
        return now->next ? guess_layer(g, now, now + 1, experts, step, err) : 0;
    }
    return 0;
}
