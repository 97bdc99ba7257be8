#include "runtime/guess.h"

#include "base/alloc.h"
#include "store/foresight.h"

#define NONE UINT32_MAX

enum {
    CHAIN = 6 /* instructions from the residual stream to a choice, at most */
};

struct link {
    uint32_t instr, part; /* of the instruction, the one whose output the next link reads */
};

/* A router: the instructions that make its choice of one value, the residual stream where the layer
 * takes its norm of it first. */
struct router {
    struct link chain[CHAIN]; /* the last is ROUTE */
    uint32_t n_chain;
    uint32_t source;  /* the value that the first link reads */
    uint32_t experts; /* the instruction that runs what is chosen */
};

/* The next router is asked early, about what this one saw, and late, about what the layer made of it. */
enum when { EARLY, LATE, WHENS };

/* How often a guess was right of late, by its place in the order of weights. */
struct record {
    struct lode_foresight of[LODE_MAX_USED];
    uint32_t n_open; /* of the guesses in ahead, those that are not compared yet */
};

/* What is guessed behind an instruction: what a router would choose of another value. */
struct hunch {
    uint32_t router;  /* NONE: nothing */
    uint32_t reader;  /* the instruction whose input that value is */
    uint32_t experts; /* read once this has asked for what it needs; NONE: at once */
    enum when when;
};

struct lode_guess {
    const struct lode_plan *plan;
    struct lode_instr *instrs;
    struct lode_backend *backend;
    struct lode_store *store;
    struct router *routers; /* owned; (n_routers), in the order of layers */
    uint32_t n_routers;
    struct record *records; /* owned; (n_routers, WHENS) */
    struct hunch *hunches; /* owned; (n_instrs) */
    uint32_t *routed;      /* owned; (n_instrs): the router whose choice it makes, or NONE */
    char *rows[2];         /* owned; (LODE_GUESS_ROWS, stride): what links make, in turn */
    size_t stride;
    struct lode_wanted *ahead[WHENS]; /* owned; (LODE_GUESS_ROWS * n_used) guessed last */
    struct lode_guesses mine;
};

/* ---- who makes what ---- */

/* The part that made a value before instruction `before`. */
static bool made_by(const struct lode_plan *p, uint32_t value, uint32_t before, struct link *out) {
    for (uint32_t i = before; i-- > 0;)
        for (uint32_t k = 0; k < p->instrs[i].n_parts; k++)
            if (p->parts[p->instrs[i].first_part + k].out == value) {
                *out = (struct link){i, k};
                return true;
            }
    return false;
}

static bool is_link(enum lode_op op) {
    return op == LODE_OP_LINEAR || op == LODE_OP_QUANT || op == LODE_OP_RMS_NORM ||
           op == LODE_OP_LAYER_NORM || op == LODE_OP_SCALE || op == LODE_OP_ROUTE;
}

static bool find_router(const struct lode_plan *p, uint32_t experts, struct router *out) {
    struct link links[CHAIN];
    uint32_t n = 0;
    *out = (struct router){.experts = experts, .source = p->instrs[experts].in[1]};
    if (p->instrs[experts].place != LODE_HOST) /* who asks is the host */
        return false;
    for (uint32_t before = experts; n < CHAIN && made_by(p, out->source, before, &links[n]); n++) {
        const struct lode_plan_instr *in = &p->instrs[links[n].instr];
        if (!is_link(in->op) || in->place != LODE_HOST)
            break;
        out->source = in->in[0];
        before = links[n].instr;
    }
    for (out->n_chain = 0; out->n_chain < n; out->n_chain++)
        out->chain[out->n_chain] = links[n - 1 - out->n_chain];
    return n > 1 && p->instrs[links[0].instr].op == LODE_OP_ROUTE;
}

static bool alike(const struct lode_plan *p, uint32_t a, uint32_t b) {
    return p->values[a].type == p->values[b].type && p->values[a].width == p->values[b].width;
}

static void find_hunches(struct lode_guess *g, uint32_t i_router) {
    const struct lode_plan *p = g->plan;
    const struct router *to = &g->routers[i_router], *from = i_router ? to - 1 : NULL;
    if (from && alike(p, from->source, to->source))
        g->hunches[from->chain[from->n_chain - 1].instr] =
            (struct hunch){i_router, from->chain[0].instr, from->experts, EARLY};
    for (uint32_t i = to->chain[0].instr; i-- > (from ? from->experts : 0);) {
        const struct lode_plan_instr *in = &p->instrs[i];
        if (in->op == LODE_OP_TRACE && in->place == LODE_HOST && alike(p, in->in[0], to->source)) {
            g->hunches[i] = (struct hunch){i_router, i, NONE, LATE};
            return;
        }
    }
}

static size_t widest_link(const struct lode_guess *g) {
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_routers; i++)
        for (uint32_t k = 0; k < g->routers[i].n_chain; k++) {
            const struct link *l = &g->routers[i].chain[k];
            const struct lode_plan *p = g->plan;
            const struct lode_plan_value *v =
                &p->values[p->parts[p->instrs[l->instr].first_part + l->part].out];
            size_t size = 0;
            lode_dtype_row_size(v->type, v->width, &size);
            most = size > most ? size : most;
        }
    return (most + 63) & ~(size_t)63;
}

int lode_guess_create(struct lode_guess **out, const struct lode_plan *plan,
                      struct lode_instr *instrs, struct lode_backend *backend,
                      struct lode_store *store, struct lode_error *err) {
    *out = NULL;
    if (plan->experts.n == 0)
        return 0;
    struct lode_guess *g = LODE_NEW(struct lode_guess);
    if (!g)
        return lode_fail_nomem(err, "guesses");
    *g = (struct lode_guess){plan, instrs, backend, store, .stride = 0};
    g->routers = LODE_NEW_ARRAY(struct router, plan->n_instrs);
    g->hunches = LODE_NEW_ARRAY(struct hunch, plan->n_instrs);
    g->routed = LODE_NEW_ARRAY(uint32_t, plan->n_instrs);
    for (uint32_t i = 0; g->routers && i < plan->n_instrs; i++)
        if (plan->instrs[i].op == LODE_OP_EXPERTS && find_router(plan, i, &g->routers[g->n_routers]))
            g->n_routers++;
    if (g->n_routers == 0 && g->routers) { /* all are elsewhere */
        lode_guess_free(g);
        return 0;
    }
    g->stride = g->routers ? widest_link(g) : 0;
    for (int i = 0; i < 2; i++)
        g->rows[i] = lode_alloc_aligned(64, LODE_GUESS_ROWS, g->stride ? g->stride : 64);
    for (int i = 0; i < WHENS; i++)
        g->ahead[i] = LODE_NEW_ARRAY(struct lode_wanted, LODE_GUESS_ROWS * (size_t)plan->experts.n_used);
    g->records = LODE_NEW_ARRAY(struct record, WHENS * (size_t)g->n_routers);
    if (!g->routers || !g->hunches || !g->routed || !g->records || !g->rows[0] || !g->rows[1] || !g->ahead[EARLY] ||
        !g->ahead[LATE]) {
        lode_guess_free(g);
        return lode_fail_nomem(err, "guesses");
    }
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        g->hunches[i].router = g->routed[i] = NONE;
        instrs[i].guesses = store->guesses && instrs[i].op == LODE_OP_EXPERTS ? &g->mine : NULL;
    }
    for (uint32_t i = 0; i < WHENS * g->n_routers; i++)
        for (uint32_t k = 0; k < LODE_MAX_USED; k++)
            g->records[i].of[k] = (struct lode_foresight)LODE_FORESIGHT;
    for (uint32_t i = 0; i < g->n_routers; i++) {
        g->routed[g->routers[i].chain[g->routers[i].n_chain - 1].instr] = i;
        find_hunches(g, i);
    }
    *out = g;
    return 0;
}

void lode_guess_free(struct lode_guess *g) {
    if (!g)
        return;
    if (g->store->guesses)
        g->store->ops->settle(g->store, &g->mine);
    lode_free(g->routers);
    lode_free(g->hunches);
    lode_free(g->routed);
    lode_free(g->records);
    lode_free_aligned(g->rows[0]);
    lode_free_aligned(g->rows[1]);
    lode_free(g->ahead[EARLY]);
    lode_free(g->ahead[LATE]);
    lode_free(g);
}

/* ---- asking ---- */

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

/* One link's instruction over x, in its own place.  PENDING or FULL: its weight is not here yet. */
static int run_link(struct lode_guess *g, const struct link *l, struct lode_value *x, char *to,
                    uint32_t n_rows, struct lode_error *err) {
    struct lode_instr in = g->instrs[l->instr];
    struct lode_part part = in.parts[l->part];
    const struct lode_step quiet = {.n_rows = n_rows}; /* nobody is told of it */
    in.in[0] = *x;
    in.parts = &part;
    in.n_parts = 1;
    part.out.data = to;
    part.out.stride = g->stride;
    part.out.rows = LODE_ROWS_ALL;
    *x = part.out;
    int rc = hold(g->store, part.w, &part.w_data, err);
    if (rc == LODE_READY)
        rc = hold(g->store, part.bias, &part.bias_data, err);
    if (rc == LODE_READY)
        g->backend->ops->run[in.op](g->backend, &in, &quiet);
    if (part.w_data)
        g->store->ops->unpin(g->store, part.w->id);
    if (part.bias_data)
        g->store->ops->unpin(g->store, part.bias->id);
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

/* What the router would choose now of some rows goes to `ahead`, the surest first; returns how many. */
static int choose(struct lode_guess *g, const struct hunch *h, uint32_t first_row, uint32_t n_rows,
                  struct lode_wanted *ahead, struct lode_error *err) {
    const struct router *r = &g->routers[h->router];
    const struct record *record = &g->records[WHENS * h->router + h->when];
    struct lode_value x = g->instrs[h->reader].in[0];
    x.data += first_row * x.stride;
    x.rows = LODE_ROWS_ALL;
    for (uint32_t k = 0; k < r->n_chain; k++) {
        const int rc = run_link(g, &r->chain[k], &x, g->rows[k & 1], n_rows, err);
        if (rc != LODE_READY)
            return rc < 0 ? rc : 0;
    }
    const uint32_t n_used = g->instrs[r->chain[r->n_chain - 1].instr].p.route.n_used;
    const uint32_t first = g->instrs[r->experts].parts[0].w->id;
    int n = 0;
    for (uint32_t rank = 0; rank < n_used; rank++)
        for (uint32_t row = 0; row < n_rows; row++)
            ahead[n++] = (struct lode_wanted){
                .id = first + ranked((const float *)(x.data + row * x.stride), n_used, rank),
                .chance = record->of[rank].chance};
    return n;
}

/* ---- how good guesses are ---- */

static bool was_chosen(const struct lode_guess *g, uint32_t i_route, uint32_t id) {
    const struct lode_instr *in = &g->instrs[i_route];
    const float *pairs = (const float *)in->parts[0].out.data;
    const uint32_t first = g->instrs[g->routers[g->routed[i_route]].experts].parts[0].w->id;
    for (uint32_t k = 0; k < in->p.route.n_used; k++) {
        int32_t expert;
        memcpy(&expert, &pairs[2 * k], sizeof expert);
        if (first + (uint32_t)expert == id)
            return true;
    }
    return false;
}

static void compare(struct lode_guess *g, uint32_t i_route) {
    for (int when = 0; when < WHENS; when++) {
        struct record *r = &g->records[WHENS * g->routed[i_route] + (uint32_t)when];
        const struct lode_wanted *w = g->ahead[when];
        for (uint32_t k = 0; k < r->n_open; k++)
            if (w[k].away)
                lode_foresight_add(&r->of[k], was_chosen(g, i_route, w[k].id));
        r->n_open = 0;
    }
}

/* Whoever records guesses is told of all rows, whether anything is read ahead or not. */
static int tell(struct lode_guess *g, const struct hunch *h, const struct lode_step *step, struct lode_error *err) {
    const struct router *r = &g->routers[h->router];
    const struct lode_value *x = &g->instrs[h->reader].in[0];
    const uint32_t layer = g->instrs[r->chain[r->n_chain - 1].instr].p.route.layer;
    const uint32_t first = g->instrs[r->experts].parts[0].w->id, n_rows = lode_value_rows(x, step);
    uint32_t experts[LODE_MAX_USED];
    struct lode_wanted guess[LODE_MAX_USED];
    for (uint32_t row = 0; row < n_rows; row++) {
        const int n = choose(g, h, row, 1, guess, err);
        if (n < 0)
            return n;
        for (int k = 0; k < n; k++)
            experts[k] = guess[k].id - first;
        if (n > 0)
            step->guesses(step->trace_user, layer, h->when == LATE, step,
                          x->rows == LODE_ROWS_ALL ? row : step->out_rows[row], experts, (uint32_t)n);
    }
    return 0;
}

int lode_guess_run(struct lode_guess *g, uint32_t i, const struct lode_step *step,
                   struct lode_error *err) {
    const struct hunch *h = &g->hunches[i];
    if (h->router != NONE && step->guesses)
        LODE_TRY(tell(g, h, step, err));
    if (!g->store->guesses)
        return 0;
    if (g->routed[i] != NONE && step->n_rows == 1)
        compare(g, i);
    if (h->router == NONE)
        return 0;
    struct lode_instr *experts = h->experts != NONE ? &g->instrs[h->experts] : NULL;
    const uint32_t n_rows = lode_value_rows(&g->instrs[h->reader].in[0], step);
    if (experts)
        experts->n_ahead = 0;
    if (n_rows > LODE_GUESS_ROWS)
        return 0;
    struct lode_wanted *ahead = g->ahead[h->when];
    const int n = choose(g, h, 0, n_rows, ahead, err);
    if (n <= 0)
        return n;
    g->records[WHENS * h->router + h->when].n_open = n_rows == 1 ? (uint32_t)n : 0;
    if (experts) {
        experts->ahead = ahead;
        experts->n_ahead = (uint32_t)n;
    } else {
        g->store->ops->want(g->store, &g->mine, ahead, (uint32_t)n);
    }
    return 0;
}
