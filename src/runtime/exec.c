#include "runtime/exec.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "runtime/guess.h"

struct copy { /* of a value to another place */
    struct lode_value to, from;
    struct lode_backend *from_at;
};

struct lode_exec {
    const struct lode_plan *plan;
    struct lode_backend *backends[LODE_PLACES];
    struct lode_store *store;
    char *memory[LODE_PLACES]; /* owned unless it is `first`'s: all slots of a place, in its memory */
    const struct lode_exec *first; /* NULL: none */
    bool runs_at[LODE_PLACES];
    uint32_t max_rows, max_out;
    uint32_t n_ranks;          /* 1 where the plan has none */
    struct lode_instr *instrs; /* owned; (n_ranks, plan->n_instrs), operands resolved */
    struct lode_part *parts;   /* owned; (n_ranks, plan->n_parts) */
    struct copy *copies;       /* owned; (plan->n_copies) */
    struct lode_value inputs[LODE_PLACES], results[LODE_PLACES]; /* (n_ranks) */
    struct lode_backend *input_at, *result_at; /* of the first rank */
    struct lode_guess *guess; /* owned; NULL: nothing is read ahead */
};

static struct lode_value resolve(const struct lode_plan *p, char *const *slots, uint32_t id) {
    if (id == LODE_NO_VALUE)
        return (struct lode_value){0};
    const struct lode_plan_value *v = &p->values[id];
    return (struct lode_value){slots[v->slot] + v->offset, p->slots[v->slot].row_size, v->width,
                               v->type, v->rows};
}

/* Memory for the slots, and for those of a plan that uses it in turn. */
static int take_memory(struct lode_exec *e, const struct lode_plan *other, struct lode_error *err) {
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const uint64_t own = lode_plan_buffer_size(e->plan, p, e->max_rows, e->max_out);
        const uint64_t others = other ? lode_plan_buffer_size(other, p, e->max_rows, e->max_out) : 0;
        const uint64_t size = own > others ? own : others;
        const struct lode_memory *m = e->backends[p] ? e->backends[p]->memory : NULL;
        e->runs_at[p] = own > 0;
        if (e->first)
            e->memory[p] = e->first->memory[p];
        else
            e->memory[p] = size ? m->alloc(m, 64, size, 1) : NULL;
        if (size && !e->memory[p])
            return lode_fail(err, LODE_ERR_NOMEM, "-b",
                             "work buffers for steps of %u tokens need %.1f MiB: use a smaller batch",
                             e->max_rows, (double)size / 0x1p20);
    }
    return 0;
}

/* Where each slot is; slots: (n_ranks, n_slots). */
static void lay_out(const struct lode_exec *e, char **slots) {
    const struct lode_plan *plan = e->plan;
    char *at[LODE_PLACES];
    memcpy(at, e->memory, sizeof at);
    for (uint32_t i = 0; i < plan->n_slots; i++) {
        const struct lode_plan_slot *s = &plan->slots[i];
        for (uint32_t r = 0; r < e->n_ranks; r++) {
            slots[r * plan->n_slots + i] = at[s->place + r];
            at[s->place + r] += s->row_size * (s->rows == LODE_ROWS_ALL ? e->max_rows : e->max_out);
        }
    }
}

static struct lode_backend *backend_of(const struct lode_exec *e, uint32_t value) {
    const struct lode_plan *p = e->plan;
    return value == LODE_NO_VALUE ? NULL : e->backends[p->slots[p->values[value].slot].place];
}

/* Caches have a rank's layers behind those of the ranks before, weights of its own are its part. */
static void suit_rank(struct lode_instr *in, const struct lode_plan *plan, uint32_t rank) {
    const uint32_t before = rank * plan->n_layers;
    switch (in->op) {
    case LODE_OP_KV_PUT: in->p.kv_put.layer += before; break;
    case LODE_OP_ATTENTION: in->p.attention.layer += before; break;
    case LODE_OP_CONV: in->p.conv.layer += before; break;
    case LODE_OP_DELTA: in->p.delta.layer += before; break;
    case LODE_OP_GATHER: in->p.gather.of = lode_operand_of(in->p.gather.of, rank); break;
    default: break;
    }
}

static void resolve_rank(struct lode_exec *e, char *const *slots, uint32_t rank) {
    const struct lode_plan *plan = e->plan;
    struct lode_part *parts = e->parts + (size_t)rank * plan->n_parts;
    struct lode_instr *instrs = e->instrs + (size_t)rank * plan->n_instrs;
    for (uint32_t i = 0; i < plan->n_parts; i++)
        parts[i] = (struct lode_part){.w = lode_operand_of(plan->parts[i].w, rank),
                                      .bias = lode_operand_of(plan->parts[i].bias, rank),
                                      .brought = plan->parts[i].brought,
                                      .out = resolve(plan, slots, plan->parts[i].out)};
    for (uint32_t i = 0; i < plan->n_instrs; i++) {
        const struct lode_plan_instr *in = &plan->instrs[i];
        instrs[i] = (struct lode_instr){
            .op = in->op,
            .p = in->p,
            .in = {resolve(plan, slots, in->in[0]), resolve(plan, slots, in->in[1])},
            .parts = parts + in->first_part,
            .n_parts = in->n_parts};
        suit_rank(&instrs[i], plan, rank);
    }
    const struct lode_instr *next[LODE_PLACES] = {NULL};
    for (uint32_t i = plan->n_instrs; i-- > 0;) {
        const uint8_t place = plan->instrs[i].place;
        bool brought = false;
        for (uint32_t k = 0; k < instrs[i].n_parts; k++)
            brought |= instrs[i].parts[k].brought;
        instrs[i].next_brought = next[place];
        next[place] = brought ? &instrs[i] : next[place];
    }
    e->inputs[rank] = resolve(plan, slots, plan->input);
    e->results[rank] = resolve(plan, slots, plan->result);
}

static void resolve_all(struct lode_exec *e, char *const *slots) {
    const struct lode_plan *plan = e->plan;
    for (uint32_t r = 0; r < e->n_ranks; r++)
        resolve_rank(e, slots + (size_t)r * plan->n_slots, r);
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        e->copies[i].to = resolve(plan, slots, plan->copies[i].to);
        e->copies[i].from = resolve(plan, slots, plan->copies[i].from);
        e->copies[i].from_at = backend_of(e, plan->copies[i].from);
    }
    e->input_at = backend_of(e, plan->input);
    e->result_at = backend_of(e, plan->result);
}

/* first, other: as in exec.h, of one of which each is NULL. */
static int create(struct lode_exec **out, const struct lode_plan *plan, const struct lode_exec *first,
                  const struct lode_plan *other, struct lode_backend *const backends[LODE_PLACES],
                  struct lode_store *store, uint32_t max_rows, uint32_t max_out, struct lode_error *err) {
    const uint32_t n_ranks = plan->n_ranks ? plan->n_ranks : 1;
    struct lode_exec *e = *out = LODE_NEW(struct lode_exec);
    char **slots = LODE_NEW_ARRAY(char *, (size_t)n_ranks * plan->n_slots);
    int rc = e && slots ? 0 : lode_fail_nomem(err, "plan");
    if (rc == 0) {
        *e = (struct lode_exec){.plan = plan, .store = store, .n_ranks = n_ranks, .first = first,
                                .max_rows = max_rows, .max_out = max_out};
        memcpy(e->backends, backends, sizeof e->backends);
        e->instrs = LODE_NEW_ARRAY(struct lode_instr, (size_t)n_ranks * plan->n_instrs);
        e->parts = LODE_NEW_ARRAY(struct lode_part, (size_t)n_ranks * plan->n_parts);
        e->copies = LODE_NEW_ARRAY(struct copy, plan->n_copies);
        rc = e->instrs && e->parts && e->copies ? take_memory(e, other, err)
                                                : lode_fail_nomem(err, "plan");
    }
    if (rc == 0) {
        lay_out(e, slots);
        resolve_all(e, slots);
        rc = plan->n_ranks ? 0 : lode_guess_create(&e->guess, plan, e->instrs, backends[LODE_HOST], store, err);
    }
    lode_free(slots);
    if (rc < 0) {
        lode_exec_free(e);
        *out = NULL;
    }
    return rc;
}

int lode_exec_create(struct lode_exec **out, const struct lode_plan *plan, const struct lode_plan *other,
                     struct lode_backend *const backends[LODE_PLACES], struct lode_store *store,
                     uint32_t max_rows, uint32_t max_out, struct lode_error *err) {
    return create(out, plan, NULL, other, backends, store, max_rows, max_out, err);
}

int lode_exec_create_other(struct lode_exec **out, const struct lode_plan *other, const struct lode_exec *first,
                           struct lode_error *err) {
    return create(out, other, first, NULL, first->backends, first->store, first->max_rows, first->max_out, err);
}

void lode_exec_free(struct lode_exec *e) {
    if (!e)
        return;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        if (e->memory[p] && !e->first)
            e->backends[p]->memory->free(e->backends[p]->memory, e->memory[p]);
    lode_guess_free(e->guess);
    lode_free(e->copies);
    lode_free(e->instrs);
    lode_free(e->parts);
    lode_free(e);
}

int lode_exec_take(struct lode_exec *e, const struct lode_exec *from, uint32_t first, uint32_t n,
                   struct lode_error *err) {
    if (e->n_ranks == 1)
        return e->input_at->ops->copy(e->input_at, &e->inputs[0], from->result_at, &from->results[0], first, n,
                                      err);
    for (uint32_t r = 0; r < e->n_ranks; r++) { /* each has all of it */
        struct lode_backend *b = e->backends[1 + r];
        LODE_TRY(b->ops->copy(b, &e->inputs[r], b, &from->results[r], first, n, err));
    }
    return 0;
}

const char *lode_exec_read(const struct lode_exec *e, uint32_t n, size_t *stride,
                           struct lode_error *err) {
    return e->result_at->ops->read(e->result_at, &e->results[0], n, stride, err);
}

const char *lode_exec_read_row(const struct lode_exec *e, uint32_t i, struct lode_error *err) {
    struct lode_value row = e->results[0];
    size_t stride;
    row.data += i * row.stride;
    return e->result_at->ops->read(e->result_at, &row, 1, &stride, err);
}

bool lode_exec_gives_best(const struct lode_exec *e) { return e->result_at->ops->best; }

const struct lode_best *lode_exec_best(const struct lode_exec *e, uint32_t n, uint32_t k, struct lode_error *err) {
    return e->result_at->ops->best(e->result_at, &e->results[0], n, k, err);
}

bool lode_exec_draws(const struct lode_exec *e) { /* one of several ranks could not tell the others */
    return !e->plan->n_ranks && e->result_at && e->result_at->ops->draw;
}

int lode_exec_drawn(const struct lode_exec *e, int draw, uint32_t n, int32_t *ids, struct lode_error *err) {
    return e->result_at->ops->drawn(e->result_at, draw, n, ids, err);
}

bool lode_exec_together(const struct lode_exec *a, const struct lode_exec *b) {
    return a->plan->n_cuts == 1 && b->plan->n_cuts == 1 && a->result_at == b->result_at &&
           a->plan->cuts[0].place == b->plan->cuts[0].place;
}

/* The parts of n instructions, which lie one after the other as these do. */
static uint32_t parts_of(const struct lode_instr *in, uint32_t n) {
    return (uint32_t)(in[n - 1].parts + in[n - 1].n_parts - in->parts);
}

static void unpin(struct lode_exec *e, struct lode_part *parts, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        struct lode_part *p = &parts[i];
        if (p->w_held)
            e->store->ops->unpin(e->store, p->w->id);
        if (p->bias_held)
            e->store->ops->unpin(e->store, p->bias->id);
        p->w_held = p->bias_held = false;
        p->w_data = p->bias_data = NULL;
    }
}

/* Asks for one weight unless it is here.  Experts are pinned by their op, which alone knows which of
 * them it needs. */
static int pin_one(struct lode_exec *e, const struct lode_operand *w, const void **data, bool *held,
                   struct lode_error *err) {
    if (!w || w->count > 1 || *data)
        return LODE_READY;
    const int rc = (*held ? e->store->ops->look : e->store->ops->pin)(e->store, w->id, data, err);
    *held |= rc == LODE_READY || rc == LODE_PENDING;
    return rc;
}

static int ask_cancel(const struct lode_backend *b, struct lode_error *err) {
    return b->cancel && b->cancel(b->cancel_user)
               ? lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled")
               : 0;
}

/* Every round asks for all that is missing, so that everything the n parts need is in
 * flight at once, whatever order it arrives in. */
static int pin(struct lode_exec *e, const struct lode_backend *asks, struct lode_part *parts, uint32_t n,
               struct lode_error *err) {
    uint32_t missing = n && parts[0].w ? parts[0].w->id : 0;
    for (;;) {
        const uint64_t seen = e->store->ops->news(e->store, missing);
        const uint32_t asked_about = missing;
        bool waiting = false, full = false;
        for (uint32_t i = 0; i < n; i++) {
            struct lode_part *p = &parts[i];
            const int w = pin_one(e, p->w, &p->w_data, &p->w_held, err);
            LODE_TRY(w);
            const int b = pin_one(e, p->bias, &p->bias_data, &p->bias_held, err);
            LODE_TRY(b);
            if (w != LODE_READY || b != LODE_READY)
                missing = w != LODE_READY ? p->w->id : p->bias->id;
            waiting |= w == LODE_PENDING || b == LODE_PENDING;
            full |= w == LODE_FULL || b == LODE_FULL;
        }
        if (!waiting && !full)
            return 0;
        if (full) /* others may be waiting for what is held here */
            unpin(e, parts, n);
        LODE_TRY(ask_cancel(asks, err));
        if (missing == asked_about) /* else the news that were seen are another weight's */
            e->store->ops->wait(e->store, seen, missing);
    }
}

static void note(atomic_uint_least64_t *count, uint64_t n) {
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

/* The time since the last layer's end belongs to this layer. */
static void note_layer(struct lode_exec *e, const struct lode_instr *in, uint64_t *last) {
    const uint64_t now = lode_clock_ns();
    if (in->p.trace.layer > 0 && in->p.trace.layer <= LODE_PROFILE_LAYERS)
        note(&e->store->times.layers[in->p.trace.layer - 1], now - *last);
    *last = now;
}

static void note_run(struct lode_exec *e, const struct lode_step *step, uint64_t start) {
    struct lode_times *t = &e->store->times;
    const uint64_t spent = lode_clock_ns() - start;
    const bool body = !e->inputs[0].data;
    note(&t->all, spent);
    note(&t->head, body ? 0 : spent);
    note(&t->steps, body);
    note(&t->rows, body ? step->n_rows : 0);
}

/* What a part reads of other places. */
static int run_copies(struct lode_exec *e, const struct lode_plan_cut *cut,
                      const struct lode_step *step, struct lode_error *err) {
    struct lode_backend *b = e->backends[cut->place];
    for (uint32_t i = 0; i < cut->n_copies; i++) {
        const struct copy *c = &e->copies[cut->first_copy + i];
        const uint32_t n = lode_value_rows(&c->from, step);
        if (n)
            LODE_TRY(b->ops->copy(b, &c->to, c->from_at, &c->from, 0, n, err));
    }
    return 0;
}

/* Instruction i and the n - 1 after it, several of them row by row. */
static int run_instrs(struct lode_exec *e, struct lode_backend *b, uint32_t i, uint32_t n,
                      const struct lode_step *step, struct lode_error *err) {
    struct lode_instr *in = &e->instrs[i];
    const uint32_t n_parts = parts_of(in, n);
    LODE_TRY(ask_cancel(b, err));
    int rc = pin(e, b, in->parts, n_parts, err);
    if (rc == 0) {
        b->error.code = 0;
        if (n > 1)
            b->ops->row_by_row(b, in, n, step);
        else
            b->ops->run[in->op](b, in, step);
        rc = b->error.code;
        if (rc < 0 && err)
            *err = b->error;
    }
    unpin(e, in->parts, n_parts);
    for (uint32_t k = i; rc == 0 && e->guess && k < i + n; k++)
        rc = lode_guess_run(e->guess, k, step, err);
    return rc;
}

/* How many of the `left` instructions from i on are run at once.  Guesses read what an instruction left, which the next
 * may overwrite. */
static uint32_t at_once(const struct lode_exec *e, const struct lode_backend *b, uint32_t i, uint32_t left,
                        const struct lode_step *step) {
    if (!b->ops->together || step->n_rows <= LODE_GUESS_ROWS || step->guesses)
        return 1;
    const uint32_t n = b->ops->together(&e->instrs[i], left, step);
    return n ? n : 1;
}

/* A part on the host: one instruction after the other, its weights pinned.  last: when a layer ended. */
static int run_each(struct lode_exec *e, const struct lode_plan_cut *cut, const struct lode_step *step,
                    uint64_t *last, struct lode_error *err) {
    struct lode_backend *b = e->backends[cut->place];
    const uint32_t end = cut->first + cut->n_instrs;
    for (uint32_t i = cut->first, n; i < end; i += n) {
        n = at_once(e, b, i, end - i, step);
        LODE_TRY(run_instrs(e, b, i, n, step, err));
        for (uint32_t k = i; k < i + n; k++)
            if (e->instrs[k].op == LODE_OP_TRACE)
                note_layer(e, &e->instrs[k], last);
    }
    return 0;
}

/* All ranks' instructions, which are e->plan's only part; the first alone tells what layers and routers give. */
static int run_ranks(struct lode_exec *e, const struct lode_step *step, uint64_t *last, struct lode_error *err) {
    struct lode_backend *const *all = &e->backends[1], *b = all[0];
    const uint32_t n = e->plan->n_instrs;
    const struct lode_instr *instrs[LODE_PLACES];
    for (uint32_t r = 0; r < e->n_ranks; r++)
        instrs[r] = e->instrs + (size_t)r * n;
    if (b->ops->run_ranks)
        return b->ops->run_ranks(all, instrs, e->n_ranks, n, step, b->cancel, b->cancel_user, err);
    struct lode_step untold = *step;
    untold.trace = NULL;
    untold.routes = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const bool gathers = e->instrs[i].op == LODE_OP_ALL_GATHER;
        if (gathers)
            b->ops->all_gather(all, instrs, e->n_ranks, step);
        for (uint32_t r = 0; r < e->n_ranks; r++) {
            if (!gathers)
                LODE_TRY(run_instrs(e, all[r], r * n + i, 1, r ? &untold : step, err));
            instrs[r]++;
        }
        if (e->instrs[i].op == LODE_OP_TRACE)
            note_layer(e, &e->instrs[i], last);
    }
    return 0;
}

int lode_exec_run(struct lode_exec *e, const struct lode_step *step, bool (*cancel)(void *user),
                  void *cancel_user, struct lode_error *err) {
    const uint64_t start = lode_clock_ns();
    uint64_t last = start;
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        struct lode_backend *b = e->runs_at[p] ? e->backends[p] : NULL;
        if (!b)
            continue;
        b->cancel = cancel;
        b->cancel_user = cancel_user;
        if (b->ops->begin)
            LODE_TRY(b->ops->begin(b, step, err));
    }
    if (e->plan->n_ranks)
        LODE_TRY(run_ranks(e, step, &last, err));
    for (uint32_t i = 0; !e->plan->n_ranks && i < e->plan->n_cuts; i++) {
        const struct lode_plan_cut *cut = &e->plan->cuts[i];
        struct lode_backend *b = e->backends[cut->place];
        LODE_TRY(run_copies(e, cut, step, err));
        LODE_TRY(b->ops->run_plan ? b->ops->run_plan(b, e->instrs + cut->first, cut->n_instrs, step,
                                                     cancel, cancel_user, err)
                                  : run_each(e, cut, step, &last, err));
    }
    note_run(e, step, start);
    return e->store->ops->verify(e->store, err);
}

/* All of a step whose body and head are a part each of the same place's, where that takes it as one. */
static int draw_step(struct lode_exec *body, struct lode_exec *head, const struct lode_step *step,
                     const struct lode_draw *draws, bool (*cancel)(void *user), void *cancel_user,
                     struct lode_error *err) {
    const uint64_t start = lode_clock_ns();
    const struct lode_plan_cut *of_body = &body->plan->cuts[0], *of_head = &head->plan->cuts[0];
    const struct lode_drawn_step d = {.body = body->instrs + of_body->first,
                                      .head = head->instrs + of_head->first,
                                      .n_body = of_body->n_instrs,
                                      .n_head = of_head->n_instrs,
                                      .made = &body->results[0],
                                      .taken = &head->inputs[0],
                                      .logits = &head->results[0],
                                      .draws = draws};
    struct lode_backend *b = head->result_at;
    b->cancel = cancel;
    b->cancel_user = cancel_user;
    const int draw = b->ops->draw_step(b, &d, step, cancel, cancel_user, err);
    LODE_TRY(draw);
    if (draw == LODE_DRAW_APART)
        return draw;
    note_run(body, step, start);
    LODE_TRY(body->store->ops->verify(body->store, err));
    return draw;
}

int lode_exec_draw_step(struct lode_exec *body, struct lode_exec *head, const struct lode_step *step,
                        const struct lode_draw *draws, bool (*cancel)(void *user), void *cancel_user,
                        struct lode_error *err) {
    const struct lode_step part = {.n_out = step->n_out};
    const int draw = head->result_at->ops->draw_step && lode_exec_together(body, head)
                         ? draw_step(body, head, step, draws, cancel, cancel_user, err)
                         : LODE_DRAW_APART;
    if (draw != LODE_DRAW_APART)
        return draw;
    LODE_TRY(lode_exec_run(body, step, cancel, cancel_user, err));
    LODE_TRY(lode_exec_take(head, body, 0, step->n_out, err));
    LODE_TRY(lode_exec_run(head, &part, cancel, cancel_user, err));
    return head->result_at->ops->draw(head->result_at, &head->results[0], step->n_out, draws, err);
}
