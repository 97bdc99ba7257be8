/* draw.c - what is wanted of logits: the largest ones, ids that are drawn among them; and steps that end in draws, as one
 * graph.
 *
 * Between the graph of a body, that of a head, draws and the next step some 20 us of a token passed; of one graph of all that
 * each launch's blocks come while the one before still runs. */
#include "backend/cuda/run.h"

#include <string.h>

_Static_assert((int)LODE_BEST_MOST == (int)LODE_BEST_MAX && (int)LODE_DRAW_MOST <= (int)LODE_BEST_MOST &&
                   LODE_DRAW_ROWS * sizeof(int32_t) <= LODE_DRAW_BEFORE_STEP,
               "room");

/* The largest numbers of slices of n rows of v, as few as there may be; what is then done with a's. */
static int launch_best(struct run *r, const struct lode_value *v, uint32_t n, uint32_t k, struct lode_cuda_best_args *a,
                       struct lode_error *err) {
    enum { WARPS = LODE_BEST_SLICE_THREADS / 32 };
    uint32_t log_slice = 5; /* of 32 numbers */
    while ((v->width - 1) >> log_slice >= LODE_BEST_SLICES)
        log_slice++;
    const uint32_t n_slices = ((v->width - 1) >> log_slice) + 1;
    if (n > r->o.max_read || k > LODE_BEST_MAX || (uint64_t)n * n_slices * sizeof(uint32_t) > LODE_CUDA_SCRATCH)
        return lode_fail(err, LODE_ERR_INTERNAL, "cuda", "the %u largest of %u rows of %u numbers", k, n, v->width);
    *a = (struct lode_cuda_best_args){.x = lode_cuda_mat(v), .tops = r->scratch, .y = (lode_dev)(uintptr_t)r->best,
                                      .width = v->width, .log_slice = log_slice, .n_slices = n_slices, .k = k};
    return lode_cuda_launch(r->c, r->stream, r->c->kernels.best_of_slices, (n_slices + WARPS - 1) / WARPS, n, 1,
                            LODE_BEST_SLICE_THREADS, 0, a, err);
}

const struct lode_best *lode_cuda_best(struct lode_backend *b, const struct lode_value *v, uint32_t n, uint32_t k,
                                       struct lode_error *err) {
    struct run *r = (struct run *)b;
    struct lode_cuda_best_args a;
    if (lode_cuda_enter(r->c, err) < 0 || launch_best(r, v, n, k, &a, err) < 0 ||
        lode_cuda_launch(r->c, r->stream, r->c->kernels.best_of_rows, n, 1, 1, LODE_BEST_THREADS, 0, &a, err) < 0 ||
        lode_cuda_wait_for_step(r, err) < 0)
        return NULL;
    return r->best;
}

/* ---- draws ---- */

/* What the next draw is told, in the host's memory. */
static int next_draws(struct run *r, const struct lode_draw *draws, uint32_t n, const struct lode_cuda_draws **out,
                      struct lode_error *err) {
    const unsigned i = r->next_draw % LODE_CUDA_DRAWS;
    struct lode_cuda_draws *to = r->draw[i].draws;
    if (n > LODE_DRAW_ROWS)
        return lode_fail(err, LODE_ERR_INTERNAL, "cuda", "draws for %u rows, at most %d expected", n, LODE_DRAW_ROWS);
    LODE_TRY(lode_cuda_enter(r->c, err));
    /* nobody may have asked for the one that was there */
    LODE_TRY(lode_cu_check(&r->c->cu, r->c->cu.event_wait(r->draw[i].sent), "draw", err));
    to->ids = (lode_dev)(uintptr_t)(r->draw[i].ids + LODE_DRAW_ROWS); /* row i's goes to ids[-1 - i] */
    memcpy(to->draws, draws, n * sizeof *draws);
    *out = to;
    return 0;
}
/* Told to whoever asks by an event; the draw's number. */
static int sent(struct run *r, struct lode_error *err) {
    const int i = (int)(r->next_draw++ % LODE_CUDA_DRAWS);
    LODE_TRY(lode_cu_check(&r->c->cu, r->c->cu.event_record(r->draw[i].sent, r->stream), "draw", err));
    return i;
}

static int launch_draw(struct run *r, const struct lode_value *v, uint32_t n, lode_dev draws, struct lode_error *err) {
    struct lode_cuda_draw_args a = {.step = r->step, .draws = draws};
    LODE_TRY(launch_best(r, v, n, LODE_DRAW_MOST, &a.best, err));
    return lode_cuda_launch(r->c, r->stream, r->c->kernels.draw_of_rows, n, 1, 1, LODE_BEST_THREADS, 0, &a, err);
}

int lode_cuda_draw(struct lode_backend *b, const struct lode_value *v, uint32_t n, const struct lode_draw *draws,
                   struct lode_error *err) {
    struct run *r = (struct run *)b;
    const struct lode_cuda_draws *told;
    LODE_TRY(next_draws(r, draws, n, &told, err));
    LODE_TRY(launch_draw(r, v, n, (lode_dev)(uintptr_t)told, err));
    return sent(r, err);
}

int lode_cuda_drawn(struct lode_backend *b, int draw, uint32_t n, int32_t *ids, struct lode_error *err) {
    struct run *r = (struct run *)b;
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cu_check(&r->c->cu, r->c->cu.event_wait(r->draw[draw].sent), "the step", err));
    for (uint32_t i = 0; i < n; i++)
        ids[i] = r->draw[draw].ids[LODE_DRAW_ROWS - 1 - i];
    return 0;
}

/* ---- steps that end in draws ---- */

struct whole {
    const struct lode_drawn_step *d;
    const struct lode_step *step;
};

/* All of it but the step's way to the device. */
static int run_whole(struct run *r, const void *arg, struct lode_error *err) {
    const struct whole *w = arg;
    const struct lode_drawn_step *d = w->d;
    const struct lode_step head = {.n_out = w->step->n_out};
    const struct op o = {.r = r, .step = w->step, .err = err, .n = head.n_out};
    const struct lode_cuda_unite_args rows = {.x = lode_cuda_mat(d->made), .y = lode_cuda_mat(d->taken),
                                              .width = d->made->width, .n_heads = 1};
    LODE_TRY(lode_cuda_run_all(r, d->body, d->n_body, d->n_body, w->step, err));
    LODE_TRY(lode_cuda_unite(&o, &rows, head.n_out, 1));
    const uint32_t pages = r->pages;
    r->pages = 0; /* nothing in a head looks at pages */
    const int rc = lode_cuda_run_all(r, d->head, d->n_head, d->n_head, &head, err);
    r->pages = pages; /* a graph that could not be is followed by plain launches */
    LODE_TRY(rc);
    return launch_draw(r, d->logits, head.n_out, lode_cuda_step_draws(r, w->step), err);
}

int lode_cuda_draw_step(struct lode_backend *b, const struct lode_drawn_step *d, const struct lode_step *step,
                        bool (*cancel)(void *user), void *cancel_user, struct lode_error *err) {
    struct run *r = (struct run *)b;
    const struct lode_cuda_draws *draws;
    struct graph_key key;
    if (r->bring || d->made->type != LODE_F32 || !lode_cuda_is_captured(step))
        return LODE_DRAW_APART;
    LODE_TRY(next_draws(r, d->draws, step->n_out, &draws, err));
    LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
    LODE_TRY(lode_cuda_write_step(r, step, draws, err));
    lode_cuda_graph_key(r, d->body, step, step->n_out, &key);
    const struct whole whole = {d, step};
    void *graph = lode_cuda_captured(r, &key, run_whole, &whole);
    LODE_TRY(lode_cuda_send_step(r, graph, err));
    LODE_TRY(graph ? lode_cu_check(&r->c->cu, r->c->cu.graph_launch(graph, r->stream), "graph", err)
                   : run_whole(r, &whole, err));
    return sent(r, err);
}
