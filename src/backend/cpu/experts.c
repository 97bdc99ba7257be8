/* experts.c - runs the experts that rows were routed to.
 *
 * A step's (row, expert) pairs are ordered by expert, and worked off in waves of whole experts that
 * fit the buffers.  In a wave, all products of one kind run as one parallel region, and an
 * expert's weights are read once for all its rows.  A row's result is the sum over its experts in
 * ascending order, by fused multiply-adds from +0, however the waves fall.
 */
#include "backend/cpu/cpu.h"

#include "base/arena.h"

/* One expert's share of a wave. */
struct share {
    uint32_t expert, first, n; /* pairs of the wave */
    const char *w[3];          /* gate, up, down, while pinned */
};

struct pair {
    uint32_t row;
    float weight;
};

struct lode_experts { /* owned by the backend; sized by its options */
    uint32_t capacity;   /* pairs of a wave */
    uint32_t *count;     /* (n_experts + 1): pairs of each, then where they start */
    struct pair *pairs;  /* (max_rows * n_used): ordered by expert, then row */
    struct share *shares; /* (n_experts) */
    char *x;             /* (capacity, x_stride): gathered activations */
    float *gate, *up;    /* (capacity, d_ff) */
    char *h;             /* (capacity, h_stride): down's activations */
    float *down;         /* (capacity, d_out) */
    uint32_t *of_row;    /* (max_rows, n_used): a row's pairs of this wave, ascending */
    uint32_t *n_of_row;  /* (max_rows) */
    size_t x_stride, h_stride;
    uint32_t ff_stride, out_stride; /* floats */
    struct lode_arena arena;
};

static size_t widest(uint32_t n) { return ((size_t)n * sizeof(float) + 63) & ~(size_t)63; }

static uint32_t wave_capacity(const struct lode_cpu_opts *o) {
    return o->max_rows > 256 ? o->max_rows : 256;
}

uint64_t lode_cpu_experts_size(const struct lode_cpu_opts *o) {
    const struct lode_expert_sizes *e = &o->experts;
    if (!e->n)
        return 0;
    return wave_capacity(o) * (widest(e->d_in) + 3 * widest(e->d_ff) + widest(e->d_out)) +
           (uint64_t)o->max_rows * e->n_used * (sizeof(struct pair) + sizeof(uint32_t)) +
           e->n * (sizeof(struct share) + sizeof(uint32_t));
}

struct lode_experts *lode_cpu_experts_create(const struct lode_cpu_opts *o) {
    const struct lode_expert_sizes *e = &o->experts;
    struct lode_arena arena = {0};
    struct lode_experts *x = LODE_ARENA_NEW(&arena, struct lode_experts);
    if (!x)
        return NULL;
    x->capacity = wave_capacity(o);
    x->x_stride = widest(e->d_in);
    x->h_stride = widest(e->d_ff);
    x->ff_stride = (uint32_t)(widest(e->d_ff) / sizeof(float));
    x->out_stride = (uint32_t)(widest(e->d_out) / sizeof(float));
    x->count = LODE_ARENA_ARRAY(&arena, uint32_t, e->n + 1);
    x->pairs = LODE_ARENA_ARRAY(&arena, struct pair, (size_t)o->max_rows * e->n_used);
    x->shares = LODE_ARENA_ARRAY(&arena, struct share, e->n);
    x->x = lode_arena_alloc(&arena, x->capacity, x->x_stride);
    x->gate = lode_arena_alloc(&arena, x->capacity, widest(e->d_ff));
    x->up = lode_arena_alloc(&arena, x->capacity, widest(e->d_ff));
    x->h = lode_arena_alloc(&arena, x->capacity, x->h_stride);
    x->down = lode_arena_alloc(&arena, x->capacity, widest(e->d_out));
    x->of_row = LODE_ARENA_ARRAY(&arena, uint32_t, (size_t)o->max_rows * e->n_used);
    x->n_of_row = LODE_ARENA_ARRAY(&arena, uint32_t, o->max_rows);
    x->arena = arena;
    if (!x->count || !x->pairs || !x->shares || !x->x || !x->gate || !x->up || !x->h || !x->down ||
        !x->of_row || !x->n_of_row) {
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
    const struct pair *pairs; /* of the wave */
    uint32_t n_pairs, n_shares, panel;
    uint32_t n_rows;
    bool down; /* which product */
};

static const struct pair *pair_list(struct lode_experts *x, const struct lode_value *route,
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
                    x->pairs[x->count[id]++] = (struct pair){r, chosen[2 * k + 1]};
                else
                    x->count[id + 1]++;
            }
        }
        for (uint32_t e = 0; !fill && e < n_experts; e++)
            x->count[e + 1] += x->count[e];
    }
    return x->pairs; /* count[e] is now where expert e's pairs end */
}

static void gather(void *arg, uint32_t i, uint32_t worker) {
    const struct wave *w = arg;
    (void)worker;
    const struct lode_value *x = &w->in->in[0];
    size_t bytes = 0;
    lode_dtype_row_size(x->type, x->width, &bytes);
    memcpy(w->x->x + i * w->x->x_stride, x->data + w->pairs[i].row * x->stride, bytes);
}

static void multiply(void *arg, uint32_t task, uint32_t worker) {
    const struct wave *w = arg;
    const uint32_t part = w->down ? 2 : 0, n_kinds = w->down ? 1 : 2;
    const struct lode_operand *op = w->in->parts[part].w;
    const uint32_t panels = (op->rows + w->panel - 1) / w->panel;
    const struct share *s = &w->x->shares[task / (panels * n_kinds)];
    const uint32_t kind = task / panels % n_kinds, first = task % panels * w->panel;
    const uint32_t n = op->rows - first < w->panel ? op->rows - first : w->panel;
    const struct lode_part *p = &w->in->parts[part + kind];
    size_t row_size = 0;
    lode_dtype_row_size(p->w->type, p->w->cols, &row_size);
    float *out = w->down ? w->x->down : kind ? w->x->up : w->x->gate;
    const uint32_t ldy = w->down ? w->x->out_stride : w->x->ff_stride;
    const size_t x_stride = w->down ? w->x->h_stride : w->x->x_stride;
    const char *x = w->down ? w->x->h : w->x->x;
    float *y = out + (size_t)s->first * ldy + first;
    lode_cpu_mul(w->cpu, worker, y, ldy, p->w, s->w[part + kind] + first * row_size, n,
                 x + s->first * x_stride, x_stride, s->n);
    if (p->bias_data) {
        const float *bias = (const float *)p->bias_data + (size_t)s->expert * op->rows + first;
        for (uint32_t r = 0; r < s->n; r++)
            w->cpu->kern.add(y + r * ldy, y + r * ldy, bias, n);
    }
}

static void activate(void *arg, uint32_t i, uint32_t worker) {
    const struct wave *w = arg;
    (void)worker;
    const struct lode_kern *k = &w->cpu->kern;
    const uint32_t n = w->in->parts[0].w->rows;
    float *gate = w->x->gate + (size_t)i * w->x->ff_stride;
    float *up = w->x->up + (size_t)i * w->x->ff_stride;
    char *h = w->x->h + i * w->x->h_stride;
    const enum lode_dtype act =
        w->cpu->float_act ? LODE_F32 : lode_dtypes[w->in->parts[2].w->type].act;
    const bool rounded = act == LODE_A32 || act == LODE_A256;
    float *y = rounded ? gate : (float *)h;
    if (w->in->p.experts.weigh_input) { /* there: products are linear, their input may be rounded */
        k->scale(gate, gate, w->pairs[i].weight, n);
        k->scale(up, up, w->pairs[i].weight, n);
    }
    lode_cpu_glu_row(k, w->in->p.experts.act, y, gate, up, n);
    if (rounded)
        (act == LODE_A32 ? k->quant_a32 : k->quant_a256)(h, y, n);
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

static void run_wave(struct wave *w) {
    struct lode_cpu *c = w->cpu;
    const struct lode_part *parts = w->in->parts;
    const size_t pairs = w->n_pairs;
    const uint32_t n_used = w->in->in[1].width / 2;
    memset(w->x->n_of_row, 0, w->n_rows * sizeof *w->x->n_of_row);
    for (uint32_t i = 0; i < w->n_pairs; i++) {
        const uint32_t r = w->pairs[i].row;
        w->x->of_row[r * n_used + w->x->n_of_row[r]++] = i;
    }
    lode_cpu_for(c, gather, w, pairs, pairs * parts[0].w->cols);
    w->panel = 64;
    w->down = false;
    lode_cpu_for(c, multiply, w, 2 * (size_t)w->n_shares * ((parts[0].w->rows + 63) / 64),
                 pairs * parts[0].w->rows * 16);
    lode_cpu_for(c, activate, w, pairs, pairs * parts[0].w->rows);
    w->down = true;
    lode_cpu_for(c, multiply, w, (size_t)w->n_shares * ((parts[2].w->rows + 63) / 64),
                 pairs * parts[2].w->rows * 16);
    lode_cpu_for(c, combine, w, w->n_rows, pairs * parts[2].w->rows);
}

/* Pins what the wave needs; all of it is asked for before any of it is waited for. */
static int pin_wave(struct lode_cpu *c, struct wave *w, struct lode_error *err) {
    for (;;) {
        bool waiting = false;
        for (uint32_t i = 0; i < w->n_shares; i++)
            for (int k = 0; k < 3; k++) {
                struct share *s = &w->x->shares[i];
                const void *data = s->w[k];
                const int rc = data ? LODE_READY
                                    : c->store->ops->pin(c->store, w->in->parts[k].w->id + s->expert,
                                                         &data, err);
                LODE_TRY(rc);
                s->w[k] = rc == LODE_READY ? data : NULL;
                waiting |= rc == LODE_PENDING;
            }
        if (!waiting)
            return 0;
        LODE_TRY(c->store->ops->wait(c->store, err));
    }
}

static void unpin_wave(struct lode_cpu *c, struct wave *w) {
    for (uint32_t i = 0; i < w->n_shares; i++)
        for (int k = 0; k < 3; k++)
            if (w->x->shares[i].w[k])
                c->store->ops->unpin(c->store, w->in->parts[k].w->id + w->x->shares[i].expert);
}

void lode_cpu_experts(struct lode_backend *b, const struct lode_instr *in,
                      const struct lode_step *step) {
    struct lode_cpu *c = lode_cpu(b);
    struct lode_experts *x = c->experts;
    const uint32_t n_experts = in->parts[0].w->count;
    struct wave w = {.cpu = c, .x = x, .in = in, .n_rows = lode_value_rows(&in->in[0], step)};
    const struct lode_value *out = &in->parts[0].out;
    for (uint32_t r = 0; r < w.n_rows; r++)
        memset(out->data + r * out->stride, 0, out->width * sizeof(float));
    const struct pair *pairs = pair_list(x, &in->in[1], w.n_rows, n_experts);
    int rc = 0;
    for (uint32_t e = 0, start = 0; rc == 0 && e < n_experts;) {
        w.pairs = pairs + start;
        w.n_pairs = w.n_shares = 0;
        for (; e < n_experts; e++) { /* count[e]: where expert e's pairs end */
            const uint32_t n = x->count[e] - start - w.n_pairs;
            if (w.n_pairs + n > x->capacity)
                break;
            if (n)
                x->shares[w.n_shares++] = (struct share){.expert = e, .first = w.n_pairs, .n = n};
            w.n_pairs += n;
        }
        start += w.n_pairs;
        rc = pin_wave(c, &w, &b->error);
        if (rc == 0 && w.n_pairs)
            run_wave(&w);
        unpin_wave(c, &w);
    }
    b->error.code = rc;
}
