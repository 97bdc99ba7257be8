/* experts.c - runs the experts that rows were routed to.
 *
 * A step's (row, expert) pairs are ordered by expert, and worked off in waves of whole experts that
 * fit the buffers.  All experts of a wave, and some of the next, are asked for at once, and those
 * that have arrived are computed while the others are on their way: all products of one kind as one
 * parallel region, an expert's weights read once for all its rows.  When a wave is done a row's
 * results are added up, over its experts in ascending order, by fused multiply-adds from +0: the sum
 * depends neither on how waves fall nor on what arrived first.
 *
 * EXPERTS_IN stops before down, with what its experts have made side by side in a row; EXPERTS_OUT begins
 * with such rows.
 *
 * Where there is a device beside the host (backend.h), it computes some of a wave's experts meanwhile, or all of a
 * step's, and its results take their places among the others.
 */
#include "backend/cpu/cpu.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/machine.h"

enum {
    AHEAD = 16,       /* shares of the next waves that are asked for */
    GOOD_WAVE = 4096, /* pairs, of a prompt's 512 tokens all: threads wait for one another five times a wave */
    /* What a number is for lode_cpu_for: an eighth where it is copied, eight where there is an activation to it. */
    COPIED = 8,
    ACTIVATED = 8,
};

enum share_state { UNASKED, ASKED, DONE };

/* One expert's share of the step. */
struct share {
    uint32_t expert, first, n; /* pairs of its wave */
    enum share_state state;
    bool held[3];     /* gate, up, down where they are used: pinned, here or not */
    const char *w[3]; /* where they are, once they are here */
};

struct lode_experts { /* owned by the backend; sized by its options */
    uint32_t capacity;   /* pairs of a wave, */
    uint32_t beside;     /* and of one that a device takes its part of, as much of each as it has room for */
    uint32_t *count;     /* (n_experts + 1): pairs of each, then where they start */
    struct lode_expert_pair *pairs;  /* (max_rows * n_used): ordered by expert, then row */
    struct share *shares; /* (n_experts): those that have pairs, ascending */
    uint32_t *ready;      /* (n_experts): shares that are computed together */
    uint32_t *todo;       /* (capacity): their pairs */
    char *x;             /* (capacity, x_stride): gathered activations */
    float *gate, *up;    /* (capacity, d_ff) */
    char *h;             /* (capacity, h_stride): down's activations */
    float *down;         /* (capacity, d_out) */
    uint32_t *of_row;    /* (max_rows, n_used): a row's pairs of this wave, ascending */
    uint32_t *n_of_row;  /* (max_rows) */
    size_t x_stride, h_stride;
    uint32_t ff_stride, out_stride; /* floats */
    struct lode_expert_share *asked; /* (n_experts): what the device is asked about */
    uint32_t *place;                 /* (n_experts): of those, where their results begin */
    double share_ns, pair_ns;        /* that computing took of late, a share of few pairs, a pair of many */
    struct lode_arena arena;
};

static size_t widest(uint32_t n) { return ((size_t)n * sizeof(float) + 63) & ~(size_t)63; }

/* One expert's pairs may be all rows. */
static uint32_t least_capacity(const struct lode_cpu_opts *o) { return o->max_rows > 256 ? o->max_rows : 256; }

static uint32_t wave_capacity(const struct lode_cpu_opts *o) {
    const uint64_t all = (uint64_t)o->max_rows * o->experts.n_used, least = least_capacity(o);
    const uint64_t good = all < GOOD_WAVE ? all : GOOD_WAVE;
    return (uint32_t)(good > least ? good : least);
}

static uint32_t threads_of(const struct lode_cpu_opts *o) {
    return o->threads ? o->threads : lode_machine_default_threads();
}

uint64_t lode_cpu_experts_size(const struct lode_cpu_opts *o) {
    const struct lode_expert_sizes *e = &o->experts;
    if (!e->n)
        return 0;
    return wave_capacity(o) * (widest(e->d_in) + 3 * widest(e->d_ff) + widest(e->d_out)) +
           (o->fast ? LODE_FAST_ROWS * (widest(e->d_in) + widest(e->d_ff)) : 0) +
           (uint64_t)o->max_rows * e->n_used * (sizeof(struct lode_expert_pair) + sizeof(uint32_t)) +
           e->n * (sizeof(struct share) + sizeof(struct lode_expert_share) + 3 * sizeof(uint32_t)) + wave_capacity(o) * sizeof(uint32_t);
}

struct lode_experts *lode_cpu_experts_create(const struct lode_cpu_opts *o) {
    const struct lode_expert_sizes *e = &o->experts;
    struct lode_arena arena = {0};
    struct lode_experts *x = LODE_ARENA_NEW(&arena, struct lode_experts);
    if (!x)
        return NULL;
    x->capacity = wave_capacity(o);
    x->beside = least_capacity(o);
    x->x_stride = widest(e->d_in);
    x->h_stride = widest(e->d_ff);
    x->ff_stride = (uint32_t)(widest(e->d_ff) / sizeof(float));
    x->out_stride = (uint32_t)(widest(e->d_out) / sizeof(float));
    x->count = LODE_ARENA_ARRAY(&arena, uint32_t, e->n + 1);
    x->pairs = LODE_ARENA_ARRAY(&arena, struct lode_expert_pair, (size_t)o->max_rows * e->n_used);
    x->shares = LODE_ARENA_ARRAY(&arena, struct share, e->n);
    x->ready = LODE_ARENA_ARRAY(&arena, uint32_t, e->n);
    x->todo = LODE_ARENA_ARRAY(&arena, uint32_t, x->capacity);
    const uint32_t more = o->fast ? LODE_FAST_ROWS : 0; /* which fast products may read */
    x->x = lode_arena_alloc(&arena, x->capacity + more, x->x_stride);
    x->gate = lode_arena_alloc(&arena, x->capacity, widest(e->d_ff));
    x->up = lode_arena_alloc(&arena, x->capacity, widest(e->d_ff));
    x->h = lode_arena_alloc(&arena, x->capacity + more, x->h_stride);
    x->down = lode_arena_alloc(&arena, x->capacity, widest(e->d_out));
    x->of_row = LODE_ARENA_ARRAY(&arena, uint32_t, (size_t)o->max_rows * e->n_used);
    x->n_of_row = LODE_ARENA_ARRAY(&arena, uint32_t, o->max_rows);
    x->asked = LODE_ARENA_ARRAY(&arena, struct lode_expert_share, e->n);
    x->place = LODE_ARENA_ARRAY(&arena, uint32_t, e->n);
    /* until it is measured: 25 multiply-adds a nanosecond and 8 bytes of a weight for each thread */
    x->pair_ns = ((double)e->d_in * 2 + e->d_out) * e->d_ff / (25.0 * threads_of(o));
    x->share_ns = ((double)e->d_in * 2 + e->d_out) * e->d_ff * 0.6 / (8.0 * threads_of(o));
    x->arena = arena;
    if (!x->count || !x->pairs || !x->shares || !x->ready || !x->todo || !x->x || !x->gate || !x->up || !x->h || !x->down ||
        !x->of_row || !x->n_of_row || !x->asked || !x->place) {
        lode_arena_free(&arena);
        return NULL;
    }
    return x;
}

void lode_cpu_experts_free(struct lode_experts *x) {
    if (!x)
        return;
    struct lode_arena arena = x->arena;
    lode_arena_free(&arena);
}

/* What the tasks of a wave see. */
struct wave {
    struct lode_cpu *cpu;
    struct lode_experts *x;
    const struct lode_instr *in;
    const struct lode_expert_pair *pairs; /* of the wave */
    uint32_t n_pairs, panel;
    uint32_t first, end, n_shares; /* shares of the wave; of the step */
    uint32_t n_ready, n_todo;      /* what is computed now */
    uint32_t n_rows;
    bool down; /* which product */
    bool settled;
    bool starts; /* the device begins along with the next products */
};

enum { GATE, UP, DOWN, KINDS }; /* of an expert's matrices */

static bool has(const struct lode_instr *in, int kind) {
    return in->op == LODE_OP_EXPERTS || (in->op == LODE_OP_EXPERTS_OUT) == (kind == DOWN);
}
/* Of a kind that it has. */
static const struct lode_part *part_of(const struct lode_instr *in, int kind) {
    return &in->parts[in->op == LODE_OP_EXPERTS_OUT ? kind - DOWN : kind];
}

/* A pair's numbers in a row of what lies between the halves. */
static float *between(const struct lode_value *v, const struct lode_expert_pair *p, uint32_t n) {
    return (float *)(v->data + p->row * v->stride) + (size_t)p->place * n;
}

static const struct lode_expert_pair *pair_list(struct lode_experts *x, const struct lode_value *route,
                                    uint32_t n_rows, uint32_t n_experts) {
    const uint32_t n_used = route->width / 2;
    memset(x->count, 0, (n_experts + 1) * sizeof *x->count);
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t r = 0; r < n_rows; r++) {
            const float *chosen = (const float *)(route->data + r * route->stride);
            for (uint32_t k = 0; k < n_used; k++) {
                int32_t id;
                memcpy(&id, &chosen[2 * k], sizeof id);
                if (fill)
                    x->pairs[x->count[id]++] = (struct lode_expert_pair){r, k, chosen[2 * k + 1]};
                else
                    x->count[id + 1]++;
            }
        }
        for (uint32_t e = 0; !fill && e < n_experts; e++)
            x->count[e + 1] += x->count[e];
    }
    return x->pairs; /* count[e] is now where expert e's pairs end */
}

static void gather(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task];
    (void)worker;
    const struct lode_value *x = &w->in->in[0];
    size_t bytes = 0;
    lode_dtype_row_size(x->type, x->width, &bytes);
    char *to = w->x->x + i * w->x->x_stride;
    const char *from = x->data + w->pairs[i].row * x->stride;
    if (lode_cpu_fast(w->cpu, w->in->parts[0].w))
        lode_cpu_round(w->cpu, to, (const float *)from, x->width);
    else
        memcpy(to, from, bytes);
}

static uint32_t panels(const struct wave *w, const struct lode_operand *op) {
    return (op->rows + w->panel - 1) / w->panel;
}

static void multiply(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    if (w->starts && task-- == 0) {
        w->cpu->aside->ops->start(w->cpu->aside);
        return;
    }
    const int first_kind = w->down ? DOWN : GATE;
    const uint32_t n_kinds = w->down ? 1 : 2;
    const struct lode_operand *op = part_of(w->in, first_kind)->w;
    const uint32_t n_panels = panels(w, op);
    const struct share *s = &w->x->shares[w->x->ready[task / (n_panels * n_kinds)]];
    const uint32_t kind = task / n_panels % n_kinds, first = task % n_panels * w->panel;
    const uint32_t n = op->rows - first < w->panel ? op->rows - first : w->panel;
    const struct lode_part *p = part_of(w->in, first_kind + (int)kind);
    size_t row_size = 0;
    lode_dtype_row_size(p->w->type, p->w->cols, &row_size);
    float *out = w->down ? w->x->down : kind ? w->x->up : w->x->gate;
    const uint32_t ldy = w->down ? w->x->out_stride : w->x->ff_stride;
    const size_t x_stride = w->down ? w->x->h_stride : w->x->x_stride;
    const char *x = w->down ? w->x->h : w->x->x;
    float *y = out + (size_t)s->first * ldy + first;
    lode_cpu_mul(w->cpu, worker, y, ldy, p->w, s->w[first_kind + (int)kind] + first * row_size, n,
                 x + s->first * x_stride, x_stride, s->n, lode_cpu_fast(w->cpu, p->w));
    if (p->bias_data) {
        const float *bias = (const float *)p->bias_data + (size_t)s->expert * op->rows + first;
        for (uint32_t r = 0; r < s->n; r++)
            w->cpu->kern.add(y + r * ldy, y + r * ldy, bias, n);
    }
}

/* n numbers as down's product wants them. */
static void prepare_down(const struct wave *w, char *h, const float *x, uint32_t n) {
    const struct lode_kern *k = &w->cpu->kern;
    const struct lode_operand *down = part_of(w->in, DOWN)->w;
    const enum lode_dtype act = w->cpu->float_act ? LODE_F32 : lode_dtypes[down->type].act;
    if (lode_dtype_is_rounded(act))
        (act == LODE_A32 ? k->quant_a32 : k->quant_a256)(h, x, n);
    else if (lode_cpu_fast(w->cpu, down))
        lode_cpu_round(w->cpu, h, x, n);
    else
        memcpy(h, x, n * sizeof *x);
}

static void activate(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task];
    (void)worker;
    const struct lode_kern *k = &w->cpu->kern;
    const uint32_t n = part_of(w->in, GATE)->w->rows;
    float *gate = w->x->gate + (size_t)i * w->x->ff_stride;
    float *up = w->x->up + (size_t)i * w->x->ff_stride;
    float *y = has(w->in, DOWN) ? gate : between(&w->in->parts[0].out, &w->pairs[i], n);
    if (w->in->p.experts.weigh_input) { /* there: products are linear, their input may be rounded */
        k->scale(gate, gate, w->pairs[i].weight, n);
        k->scale(up, up, w->pairs[i].weight, n);
    }
    lode_cpu_glu_row(k, w->in->p.experts.act, y, gate, up, n);
    if (has(w->in, DOWN))
        prepare_down(w, w->x->h + i * w->x->h_stride, y, n);
}

static void receive(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t i = w->x->todo[task], n = part_of(w->in, DOWN)->w->cols;
    (void)worker;
    prepare_down(w, w->x->h + i * w->x->h_stride, between(&w->in->in[0], &w->pairs[i], n), n);
}

static void combine(void *arg, uint32_t row, uint32_t worker) {
    const struct wave *w = arg;
    (void)worker;
    const struct lode_value *out = &w->in->parts[0].out;
    const uint32_t n_used = w->in->in[1].width / 2;
    for (uint32_t k = 0; k < w->x->n_of_row[row]; k++) {
        const uint32_t i = w->x->of_row[row * n_used + k];
        w->cpu->kern.axpy((float *)(out->data + row * out->stride),
                          w->x->down + (size_t)i * w->x->out_stride,
                          w->in->p.experts.weigh_input ? 1.0f : w->pairs[i].weight, out->width);
    }
}

/* What computing takes, for the choice of who does it. */
static void note_time(struct lode_experts *x, double ns, uint32_t n_shares, uint32_t n_pairs) {
    if (n_pairs <= 2 * n_shares)
        x->share_ns += (ns / n_shares - x->share_ns) / 16;
    else if (n_pairs >= 8 * n_shares)
        x->pair_ns += (ns / n_pairs - x->pair_ns) / 16;
}

/* Rows of a task.  Of experts with few pairs as few as leave threads so many tasks that none waits for another's last one; of
 * those with many, larger panels prepare these less often. */
static uint32_t panel_of(const struct wave *w, size_t pairs) {
    enum { FEW = 16, TASKS = 4, EVEN = 8, LEAST = 16 };
    const size_t rows = (size_t)w->n_ready * w->in->parts[0].w->rows;
    if (pairs < FEW * (size_t)w->n_ready) {
        uint32_t panel = 64;
        while (panel > LEAST && rows < panel * (size_t)EVEN * w->cpu->threads)
            panel /= 2;
        return panel;
    }
    return rows >= 256 * (size_t)TASKS * w->cpu->threads ? 256 : 128;
}

/* The ready shares' outputs of the wave's pairs. */
static void compute(struct wave *w) {
    struct lode_cpu *c = w->cpu;
    const struct lode_instr *in = w->in;
    const uint64_t begun = lode_clock_ns();
    w->n_todo = 0;
    for (uint32_t i = 0; i < w->n_ready; i++) {
        const struct share *s = &w->x->shares[w->x->ready[i]];
        for (uint32_t k = 0; k < s->n; k++)
            w->x->todo[w->n_todo++] = s->first + k;
    }
    const size_t pairs = w->n_todo;
    w->panel = panel_of(w, pairs);
    if (has(in, GATE)) {
        const struct lode_operand *gate = part_of(in, GATE)->w;
        lode_cpu_for(c, gather, w, pairs, pairs * gate->cols / (lode_cpu_fast(c, gate) ? 1 : COPIED));
        w->down = false;
        lode_cpu_for(c, multiply, w, 2 * (size_t)w->n_ready * panels(w, gate) + w->starts, 2 * pairs * gate->rows * gate->cols);
        w->starts = false;
        lode_cpu_for(c, activate, w, pairs, pairs * gate->rows * ACTIVATED);
    }
    if (has(in, DOWN)) {
        const struct lode_operand *down = part_of(in, DOWN)->w;
        if (!has(in, GATE))
            lode_cpu_for(c, receive, w, pairs, pairs * down->cols);
        w->down = true;
        lode_cpu_for(c, multiply, w, (size_t)w->n_ready * panels(w, down), pairs * down->rows * down->cols);
    }
    note_time(w->x, (double)(lode_clock_ns() - begun), w->n_ready, w->n_todo);
}

static void add_up(struct wave *w) {
    if (!has(w->in, DOWN))
        return;
    const uint32_t n_used = w->in->in[1].width / 2;
    memset(w->x->n_of_row, 0, w->n_rows * sizeof *w->x->n_of_row);
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        const uint32_t r = w->pairs[i].row;
        w->x->of_row[r * n_used + w->x->n_of_row[r]++] = i;
    }
    lode_cpu_for(w->cpu, combine, w, w->n_rows, (size_t)w->n_pairs * part_of(w->in, DOWN)->w->rows);
}

static uint32_t weight_id(const struct wave *w, const struct share *s, int k) {
    return part_of(w->in, k)->w->id + s->expert;
}

static void let_go(struct wave *w, struct share *s) {
    struct lode_store *store = w->cpu->store;
    for (int k = 0; k < KINDS; k++)
        if (s->held[k])
            store->ops->unpin(store, weight_id(w, s, k));
    memset(s->held, 0, sizeof s->held);
    memset(s->w, 0, sizeof s->w);
}

/* LODE_READY: all of it is here.  LODE_FULL: it holds nothing. */
static int ask(struct wave *w, struct share *s, struct lode_error *err) {
    struct lode_store *store = w->cpu->store;
    int all = LODE_READY;
    for (int k = 0; k < KINDS; k++) {
        const void *data = NULL;
        if (s->w[k] || !has(w->in, k))
            continue;
        const int rc = (s->held[k] ? store->ops->look : store->ops->pin)(store, weight_id(w, s, k),
                                                                        &data, err);
        if (rc < 0)
            return rc;
        if (rc == LODE_FULL) {
            let_go(w, s);
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

/* Collects the wave's shares that are here; asks for what has not been asked for, in order, while
 * there is room. */
static int collect(struct wave *w, struct lode_error *err) {
    const uint32_t most = w->n_shares - w->end < AHEAD ? w->n_shares : w->end + AHEAD;
    bool full = false;
    w->n_ready = 0;
    for (uint32_t i = w->first; i < most; i++) {
        struct share *s = &w->x->shares[i];
        if (s->state == DONE || (s->state == UNASKED && full) || (s->state == ASKED && i >= w->end))
            continue;
        const int rc = ask(w, s, err);
        LODE_TRY(rc);
        full |= rc == LODE_FULL;
        if (rc == LODE_READY && i < w->end)
            w->x->ready[w->n_ready++] = i;
    }
    return 0;
}

/* All that this layer needs has been asked for: what follows is for the next. */
static void settle(struct wave *w) {
    struct lode_store *store = w->cpu->store;
    if (!w->in->guesses || w->settled)
        return;
    store->ops->settle(store, w->in->guesses);
    if (w->in->n_ahead)
        store->ops->want(store, w->in->guesses, w->in->ahead, w->in->n_ahead);
    w->settled = true;
}

/* For weights to arrive. */
static int wait_for_news(struct wave *w, uint64_t seen, uint32_t any, struct lode_error *err) {
    const struct lode_backend *b = &w->cpu->base;
    struct lode_store *store = w->cpu->store;
    if (b->cancel && b->cancel(b->cancel_user))
        return lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled");
    store->ops->wait(store, seen, any);
    return 0;
}

/* ---- the device beside ---- */

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
    const uint32_t any = weight_id(w, &w->x->shares[0], 0);
    for (;;) {
        const uint64_t seen = store->ops->news(store, any);
        uint32_t n = 0, n_asked = 0;
        bool full = false;
        for (uint32_t i = 0; i < w->n_shares && n < most && n_asked < most + AHEAD; i++) {
            struct share *s = &w->x->shares[i];
            if (have[i] || s->state == DONE)
                continue;
            n_asked++;
            if (full && s->state == UNASKED)
                continue;
            const int rc = ask(w, s, err);
            LODE_TRY(rc);
            full |= rc == LODE_FULL;
            if (rc != LODE_READY)
                continue;
            s->state = DONE;
            shares[n] = i;
            memcpy(at[n++], s->w, sizeof s->w);
        }
        if (n_asked == 0)
            settle(w);
        if (n || n_asked == 0)
            return (int)n;
        LODE_TRY(wait_for_news(w, seen, any, err));
    }
}

static void drop(void *user, uint32_t share) {
    struct wave *w = user;
    let_go(w, &w->x->shares[share]);
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

/* 1: the device has done all of it. */
static int run_beside(struct wave *w, struct lode_error *err) {
    struct lode_aside *a = w->cpu->aside;
    const struct lode_aside_job job = job_of(w, 0, w->n_shares);
    if (job.n_shares == 0 || !a->ops->wants_all(a, &job))
        return 0;
    const int rc = a->ops->run_all(a, &job, &(struct lode_aside_host){w, each, give, drop}, err);
    return rc < 0 ? rc : 1;
}

/* Shares of the wave that the device computes are not asked for here; returns their number. */
static uint32_t take_beside(struct wave *w) {
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

/* What the device has computed, among what the host has. */
static int finish_beside(struct wave *w, struct lode_error *err) {
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

/* One of those that were just computed may stay with the device. */
static void offer_beside(struct wave *w) {
    struct lode_aside *a = beside(w);
    if (!a)
        return;
    const struct lode_aside_job job = job_of(w, w->first, w->end);
    const struct share *s = &w->x->shares[w->x->ready[0]];
    const char *const at[3] = {s->w[0], s->w[1], s->w[2]};
    a->ops->offer(a, &job, w->x->ready[0] - w->first, at, &(struct lode_aside_host){w, each, give, drop});
}

/* ---- waves ---- */

/* The wave's shares that are the host's, as their weights arrive. */
static int run_shares(struct wave *w, uint32_t n_done, struct lode_error *err) {
    struct lode_store *store = w->cpu->store;
    while (n_done < w->end - w->first) {
        const uint32_t any = weight_id(w, &w->x->shares[w->first], has(w->in, GATE) ? GATE : DOWN);
        const uint64_t seen = store->ops->news(store, any);
        LODE_TRY(collect(w, err));
        if (w->end == w->n_shares)
            settle(w);
        if (w->n_ready == 0) {
            if (w->starts)
                w->cpu->aside->ops->start(w->cpu->aside);
            w->starts = false;
            LODE_TRY(wait_for_news(w, seen, any, err));
            continue;
        }
        compute(w);
        offer_beside(w);
        for (uint32_t i = 0; i < w->n_ready; i++) {
            struct share *s = &w->x->shares[w->x->ready[i]];
            let_go(w, s);
            s->state = DONE;
        }
        n_done += w->n_ready;
    }
    return 0;
}

static int run_wave(struct wave *w, struct lode_error *err) {
    const uint32_t n_beside = take_beside(w);
    w->starts = n_beside > 0;
    int rc = run_shares(w, n_beside, err);
    if (w->starts && rc == 0)
        w->cpu->aside->ops->start(w->cpu->aside);
    w->starts = false;
    if (n_beside) {
        const int other = finish_beside(w, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : other;
    }
    if (w->end == w->n_shares && rc == 0)
        settle(w);
    if (rc == 0)
        add_up(w);
    return rc;
}

/* The experts that have pairs, cut into waves as they are computed. */
static void list_shares(struct wave *w, uint32_t n_experts) {
    struct lode_experts *x = w->x;
    for (uint32_t e = 0, start = 0; e < n_experts; start = x->count[e++])
        if (x->count[e] > start) /* count[e]: where expert e's pairs end */
            x->shares[w->n_shares++] = (struct share){.expert = e, .n = x->count[e] - start};
}

/* So that none of them that is there makes room for another of them. */
static void announce(struct wave *w) {
    struct lode_store *store = w->cpu->store;
    for (uint32_t i = 0; store->ops->need && i < w->n_shares; i++)
        store->ops->need(store, weight_id(w, &w->x->shares[i], has(w->in, GATE) ? GATE : DOWN));
}

/* Rows of an instruction, all of `in`. */
static int run_rows(struct lode_cpu *c, const struct lode_instr *in, uint32_t n_rows, bool whole, struct lode_error *err) {
    struct lode_experts *x = c->experts;
    const uint32_t n_experts = in->parts[0].w->count, capacity = c->aside ? x->beside : x->capacity;
    struct wave w = {.cpu = c, .x = x, .in = in, .n_rows = n_rows};
    const struct lode_value *out = &in->parts[0].out;
    w.pairs = pair_list(x, &in->in[1], n_rows, n_experts);
    list_shares(&w, n_experts);
    announce(&w);
    int rc = whole ? run_beside(&w, err) : 0;
    if (rc == 0)
        for (uint32_t r = 0; has(in, DOWN) && r < n_rows; r++)
            memset(out->data + r * out->stride, 0, out->width * sizeof(float));
    while (rc == 0 && w.end < w.n_shares) {
        w.pairs += w.n_pairs;
        w.n_pairs = 0;
        for (w.first = w.end; w.end < w.n_shares; w.end++) {
            struct share *s = &x->shares[w.end];
            if (w.n_pairs + s->n > capacity)
                break;
            s->first = w.n_pairs;
            w.n_pairs += s->n;
        }
        rc = run_wave(&w, err);
    }
    for (uint32_t i = 0; i < w.n_shares; i++) /* after an error */
        let_go(&w, &x->shares[i]);
    return rc < 0 ? rc : 0;
}

void lode_cpu_experts(struct lode_backend *b, const struct lode_instr *in,
                      const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    const uint32_t n_rows = lode_value_rows(&in->in[0], step);
    /* that a device could take at once */
    const uint32_t most = c->aside && in->op == LODE_OP_EXPERTS ? c->aside->ops->most_rows(c->aside, in) : 0;
    int rc = 0;
    for (uint32_t first = 0, n; rc == 0 && first < n_rows; first += n) {
        struct lode_instr some = *in;
        struct lode_part parts[3] = {in->parts[0]};
        n = most && n_rows - first > most ? most : n_rows - first;
        for (uint32_t k = 1; k < in->n_parts; k++)
            parts[k] = in->parts[k];
        some.parts = parts;
        some.in[0].data += first * some.in[0].stride;
        some.in[1].data += first * some.in[1].stride;
        parts[0].out.data += first * parts[0].out.stride;
        rc = run_rows(c, &some, n, most > 0, &b->error);
    }
    b->error.code = rc;
}
