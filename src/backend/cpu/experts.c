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
#include "backend/cpu/experts.h"

#include "base/machine.h"

enum { GOOD_WAVE = 4096 }; /* pairs, of a prompt's 512 tokens all: threads wait for one another five times a wave */

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

/* ---- waves ---- */

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

/* The wave's shares that are the host's, as their weights arrive. */
static int run_shares(struct wave *w, uint32_t n_done, struct lode_error *err) {
    struct lode_store *store = w->cpu->store;
    while (n_done < w->end - w->first) {
        const uint32_t any = lode_experts_weight(w, &w->x->shares[w->first], has(w->in, GATE) ? GATE : DOWN);
        const uint64_t seen = store->ops->news(store, any);
        LODE_TRY(lode_experts_collect(w, err));
        if (w->end == w->n_shares)
            lode_experts_settle(w);
        if (w->n_ready == 0) {
            lode_experts_start_beside(w);
            LODE_TRY(lode_experts_wait(w, seen, any, err));
            continue;
        }
        lode_experts_compute(w);
        lode_experts_offer_beside(w);
        for (uint32_t i = 0; i < w->n_ready; i++) {
            struct share *s = &w->x->shares[w->x->ready[i]];
            lode_experts_let_go(w, s);
            s->state = DONE;
        }
        n_done += w->n_ready;
    }
    return 0;
}

static int run_wave(struct wave *w, struct lode_error *err) {
    const uint32_t n_beside = lode_experts_take_beside(w);
    w->starts = n_beside > 0;
    int rc = run_shares(w, n_beside, err);
    if (rc == 0)
        lode_experts_start_beside(w);
    if (n_beside) {
        const int other = lode_experts_finish_beside(w, rc < 0 ? NULL : err);
        rc = rc < 0 ? rc : other;
    }
    if (w->end == w->n_shares && rc == 0)
        lode_experts_settle(w);
    if (rc == 0)
        lode_experts_add_up(w);
    return rc;
}

/* The experts that have pairs, cut into waves as they are computed. */
static void list_shares(struct wave *w, uint32_t n_experts) {
    struct lode_experts *x = w->x;
    for (uint32_t e = 0, start = 0; e < n_experts; start = x->count[e++])
        if (x->count[e] > start) /* count[e]: where expert e's pairs end */
            x->shares[w->n_shares++] = (struct share){.expert = e, .n = x->count[e] - start};
}

/* Rows of an instruction, all of `in`. */
static int run_rows(struct lode_cpu *c, const struct lode_instr *in, uint32_t n_rows, bool whole, struct lode_error *err) {
    struct lode_experts *x = c->experts;
    const uint32_t n_experts = in->parts[0].w->count, capacity = c->aside ? x->beside : x->capacity;
    struct wave w = {.cpu = c, .x = x, .in = in, .n_rows = n_rows};
    const struct lode_value *out = &in->parts[0].out;
    w.pairs = pair_list(x, &in->in[1], n_rows, n_experts);
    list_shares(&w, n_experts);
    lode_experts_announce(&w);
    int rc = whole ? lode_experts_run_beside(&w, err) : 0;
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
        lode_experts_let_go(&w, &x->shares[i]);
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
