/* run.c - runs plans on the device; for steps of few rows the whole plan as one captured graph.
 *
 * What changes from step to step (tokens, positions, pages) is in device memory at a fixed address,
 * written by one copy before the plan runs; the arguments of launches depend on the plan and the
 * number of rows alone, and on how many pages attention may have to look at, rounded up.  So a graph
 * that was captured once runs every later step of its shape. */
#include "backend/cuda/run.h"

#include "backend/copy_rows.h"
#include "backend/cuda/brought.h"
#include "base/alloc.h"

enum {
    GRAPH_ROWS = 64, /* steps of up to so many rows are captured */
    WAVE = 32768,    /* (row, expert) pairs of one launch */
};

static struct run *run_of(struct lode_backend *b) { return (struct run *)b; }

/* ---- sizes ---- */

static uint64_t wide(uint64_t n) { return (n * sizeof(float) + 255) & ~(uint64_t)255; }

uint32_t lode_cuda_wave_pairs(const struct lode_cuda_opts *o) {
    const uint64_t all = (uint64_t)o->max_rows * o->experts.n_used;
    return all < WAVE ? (uint32_t)all : WAVE / o->experts.n_used * o->experts.n_used;
}

static uint64_t experts_size(const struct lode_cuda_opts *o) {
    const uint64_t pairs = o->experts.n ? lode_cuda_wave_pairs(o) : 0;
    return pairs * (3 * wide(o->experts.d_ff) + wide(o->experts.d_out) + sizeof(uint32_t)) +
           lode_cuda_most_tiles(pairs, o->experts.n) * sizeof(struct lode_cuda_gemm_tile);
}

uint64_t lode_cuda_work_size(const struct lode_cuda_opts *o) {
    return LODE_DRAW_BEFORE_STEP + lode_cuda_step_size(o) + LODE_CUDA_SCRATCH + experts_size(o) +
           lode_cuda_bring_size(&o->bring);
}

/* ---- plans ---- */

static struct op op_of(struct run *r, const struct lode_instr *in, const struct lode_step *step, struct lode_error *err) {
    const struct lode_value *out = in->n_parts ? &in->parts[0].out : NULL;
    return (struct op){r, in, step, err, lode_value_rows(out && out->data ? out : &in->in[0], step)};
}

int lode_cuda_ask_cancel(bool (*cancel)(void *user), void *cancel_user, struct lode_error *err) {
    return cancel && cancel(cancel_user) ? lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled") : 0;
}

static int run_some(struct run *r, const struct lode_instr *instrs, uint32_t n, uint32_t left,
                    const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                    struct lode_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const struct op o = op_of(r, &instrs[i], step, err);
        LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
        const int fused = lode_cuda_run_fused(&o, left - i);
        LODE_TRY(fused);
        if (fused == 0)
            LODE_TRY(lode_cuda_run_instr(&o));
        else
            i += (uint32_t)fused - 1;
    }
    return 0;
}

static bool brings(const struct run *r, const struct lode_instr *instrs, uint32_t n) {
    bool any = false;
    for (uint32_t i = 0; r->bring && i < n && !any; i++)
        any = lode_cuda_is_brought(&instrs[i]);
    return any;
}

/* A part some of whose weights are brought: one instruction after the other. */
static int run_bringing(struct run *r, const struct lode_instr *instrs, uint32_t n, const struct lode_step *step,
                        bool (*cancel)(void *user), void *cancel_user, struct lode_error *err) {
    for (uint32_t i = 0; i < n; i++) {
        const struct op o = op_of(r, &instrs[i], step, err);
        LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
        LODE_TRY(lode_cuda_is_brought(o.in) ? lode_cuda_run_brought(&o, cancel, cancel_user) : lode_cuda_run_instr(&o));
    }
    return lode_cuda_bring_ahead(r, instrs[n - 1].next_brought, err);
}

int lode_cuda_run_all(struct run *r, const struct lode_instr *instrs, uint32_t n, uint32_t left,
                      const struct lode_step *step, struct lode_error *err) {
    return run_some(r, instrs, n, left, step, NULL, NULL, err);
}

static size_t graphs_size(const struct run *r) { return (size_t)r->o.n_cuts * LODE_CUDA_GRAPHS; }

/* The graphs of one part: those that begin with it, or that nobody has. */
static struct graph *graphs_of(struct run *r, uint64_t part) {
    struct graph *g = r->graphs;
    while (g->key.v[0] && g->key.v[0] != part && g + LODE_CUDA_GRAPHS < r->graphs + graphs_size(r))
        g += LODE_CUDA_GRAPHS;
    return g;
}

struct graph *lode_cuda_graph_of(struct run *r, const struct graph_key *key) {
    return lode_cuda_find_graph(r->c, graphs_of(r, key->v[0]), LODE_CUDA_GRAPHS, key, &r->clock);
}

bool lode_cuda_is_captured(const struct lode_step *step) {
    return !step->trace && !step->routes && step->n_rows <= GRAPH_ROWS;
}

bool lode_cuda_graph_key(const struct run *r, const struct lode_instr *instrs, const struct lode_step *step, uint32_t draws,
                         struct graph_key *key) {
    if (!lode_cuda_is_captured(step))
        return false;
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < step->n_segments; i++) /* attention's grid depends on the split */
        tiles = tiles * 65599 + step->segments[i].n_rows;
    *key = (struct graph_key){{(uintptr_t)instrs, graph_two(step->n_rows, step->n_out), graph_two(r->pages, step->n_segments),
                               graph_two(tiles, draws)}};
    return true;
}

void *lode_cuda_captured(struct run *r, const struct graph_key *key, lode_cuda_launch_fn *launch, const void *arg) {
    struct graph *g = lode_cuda_graph_of(r, key);
    if (lode_cuda_begin_graph(r->c, g, r->stream))
        lode_cuda_end_graph(r->c, g, r->stream, launch(r, arg, NULL) == 0);
    return g->exec;
}

int lode_cuda_forget_graphs(struct run *r, struct lode_error *err) {
    return lode_cuda_drop_graphs(r->c, r->graphs, graphs_size(r), err);
}

static int run_begin(struct lode_backend *b, const struct lode_step *step, struct lode_error *err) {
    struct run *r = run_of(b);
    LODE_TRY(lode_cuda_enter(r->c, err));
    r->pages = 0; /* a head: nothing in it looks at pages */
    if (step->n_segments == 0)
        return 0;
    LODE_TRY(lode_cuda_write_step(r, step, NULL, err));
    return lode_cuda_send_step(r, false, err);
}

struct part {
    const struct lode_instr *instrs;
    const struct lode_step *step;
    uint32_t n;
};
static int launch_part(struct run *r, const void *arg, struct lode_error *err) {
    const struct part *p = arg;
    return lode_cuda_run_all(r, p->instrs, p->n, p->n, p->step, err);
}

static int run_plan(struct lode_backend *b, const struct lode_instr *instrs, uint32_t n,
                    const struct lode_step *step, bool (*cancel)(void *user), void *cancel_user,
                    struct lode_error *err) {
    struct run *r = run_of(b);
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cuda_ask_cancel(cancel, cancel_user, err));
    struct graph_key key;
    if (brings(r, instrs, n))
        return run_bringing(r, instrs, n, step, cancel, cancel_user, err);
    void *graph = lode_cuda_graph_key(r, instrs, step, 0, &key)
                      ? lode_cuda_captured(r, &key, launch_part, &(struct part){instrs, step, n})
                      : NULL;
    return graph ? lode_cu_check(&r->c->cu, r->c->cu.graph_launch(graph, r->stream), "graph", err)
                 : run_some(r, instrs, n, n, step, cancel, cancel_user, err);
}

int lode_cuda_wait_for_step(struct run *r, struct lode_error *err) {
    return r->ranks ? lode_cuda_wait_ranks(r->ranks, r, err)
                    : lode_cu_check(&r->c->cu, r->c->cu.stream_wait(r->stream), "the step", err);
}

/* Between n rows of the device's, which may be parts of longer ones, and of pinned memory. */
static int move_rows(struct run *r, bool up, char *host, size_t host_stride, lode_dev at, size_t stride, size_t row,
                     uint32_t n, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    if (n == 0)
        return 0;
    if (host_stride == stride) {
        const size_t size = (n - 1) * stride + row;
        return lode_cu_check(cu, up ? cu->to_device(at, host, size, r->stream) : cu->to_host(host, at, size, r->stream),
                             "copy", err);
    }
    struct lode_cu_rows rows = {.n = row, .rows = n};
    rows.src_kind = up ? LODE_CU_AT_HOST : LODE_CU_AT_DEVICE;
    rows.dst_kind = up ? LODE_CU_AT_DEVICE : LODE_CU_AT_HOST;
    rows.src_pitch = up ? host_stride : stride;
    rows.dst_pitch = up ? stride : host_stride;
    if (up) {
        rows.src_host = host;
        rows.dst = at;
    } else {
        rows.dst_host = host;
        rows.src = at;
    }
    return lode_cu_check(cu, cu->copy_rows(&rows, r->stream), "copy", err);
}

static const char *run_read(struct lode_backend *b, const struct lode_value *v, uint32_t n, size_t *stride,
                            struct lode_error *err) {
    struct run *r = run_of(b);
    size_t row = 0;
    lode_dtype_row_size(v->type, v->width, &row);
    *stride = lode_cuda_row_apart(row);
    const size_t size = n * *stride;
    if (size > r->read_size) {
        lode_fail(err, LODE_ERR_INTERNAL, "cuda", "%zu bytes to read, %zu expected at most", size,
                  r->read_size);
        return NULL;
    }
    if (lode_cuda_enter(r->c, err) < 0 ||
        move_rows(r, false, r->read, *stride, (lode_dev)(uintptr_t)v->data, v->stride, row, n, err) < 0 ||
        lode_cuda_wait_for_step(r, err) < 0)
        return NULL;
    return r->read;
}

static const struct lode_backend_ops ops;

/* From another device: it is done first, then this one's stream fetches. */
static int copy_peer(struct run *r, const struct lode_value *dst, struct run *from,
                     const struct lode_value *src, uint32_t first, uint32_t n, size_t row,
                     struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    LODE_TRY(lode_cuda_enter(from->c, err));
    LODE_TRY(lode_cu_check(cu, cu->event_record(from->done, from->stream), "peer", err));
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cu_check(cu, cu->stream_wait_event(r->stream, from->done, 0), "peer", err));
    const bool whole = dst->stride == src->stride;
    for (uint32_t i = 0; i < (whole ? 1 : n); i++)
        LODE_TRY(lode_cu_check(cu,
                               cu->copy_peer((lode_dev)(uintptr_t)dst->data + i * dst->stride,
                                             r->c->context,
                                             (lode_dev)(uintptr_t)src->data + (first + i) * src->stride,
                                             from->c->context, whole ? (n - 1) * src->stride + row : row,
                                             r->stream),
                               "peer", err));
    /* what it writes over next waits for that */
    LODE_TRY(lode_cu_check(cu, cu->event_record(r->done, r->stream), "peer", err));
    LODE_TRY(lode_cuda_enter(from->c, err));
    return lode_cu_check(cu, cu->stream_wait_event(from->stream, r->done, 0), "peer", err);
}

/* From the host, by way of a pinned buffer, so that nothing is waited for. */
static int copy_in(struct run *r, const struct lode_value *dst, struct lode_backend *from,
                   const struct lode_value *src, uint32_t first, uint32_t n, size_t row,
                   struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    struct lode_value rows = *src;
    size_t stride = 0;
    rows.data += first * src->stride;
    const char *at = from->ops->read(from, &rows, n, &stride, err);
    const size_t apart = lode_cuda_row_apart(row);
    const unsigned i = r->next_border++ % LODE_CUDA_BORDERS;
    if (!at)
        return LODE_ERR_DEVICE;
    if (n * apart > r->read_size)
        return lode_fail(err, LODE_ERR_INTERNAL, "cuda", "%zu bytes to copy, %zu expected at most",
                         n * apart, r->read_size);
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cu_check(cu, cu->event_wait(r->border[i].sent), "copy", err));
    struct lode_row_copy c = {r->border[i].host, at, apart, stride, row};
    if (n > LODE_COPY_ALONE && from->ops->share)
        from->ops->share(from, lode_copy_row, &c, n);
    for (uint32_t k = 0; k < n && (n <= LODE_COPY_ALONE || !from->ops->share); k++)
        lode_copy_row(&c, k, 0);
    LODE_TRY(move_rows(r, true, r->border[i].host, apart, (lode_dev)(uintptr_t)dst->data, dst->stride, row, n, err));
    return lode_cu_check(cu, cu->event_record(r->border[i].sent, r->stream), "copy", err);
}

static int run_copy(struct lode_backend *b, const struct lode_value *dst, struct lode_backend *from,
                    const struct lode_value *src, uint32_t first, uint32_t n,
                    struct lode_error *err) {
    struct run *r = run_of(b);
    size_t row = 0;
    lode_dtype_row_size(src->type, src->width, &row);
    if (n == 0)
        return 0;
    if (from != b)
        return from->ops == &ops ? copy_peer(r, dst, run_of(from), src, first, n, row, err)
                                 : copy_in(r, dst, from, src, first, n, row, err);
    LODE_TRY(lode_cuda_enter(r->c, err));
    for (uint32_t i = 0; i < n; i++)
        LODE_TRY(lode_cu_check(&r->c->cu,
                               r->c->cu.copy((lode_dev)(uintptr_t)dst->data + i * dst->stride,
                                             (lode_dev)(uintptr_t)src->data + (first + i) * src->stride,
                                             row, r->stream),
                               "copy", err));
    return 0;
}

static void run_free(struct lode_backend *b) {
    struct run *r = run_of(b);
    if (!r)
        return;
    const struct lode_cu *cu = &r->c->cu;
    if (r->ranks)
        lode_cuda_part_ranks(r->ranks);
    if (lode_cuda_enter(r->c, NULL) == 0) {
        if (r->stream)
            cu->stream_wait(r->stream);
        lode_cuda_bring_deinit(r->bring);
        lode_cuda_forget_graphs(r, NULL);
        for (int i = 0; i < LODE_CUDA_BORDERS; i++) {
            if (r->border[i].host)
                cu->host_free(r->border[i].host);
            if (r->border[i].sent)
                cu->event_destroy(r->border[i].sent);
        }
        if (r->done)
            cu->event_destroy(r->done);
        for (int i = 0; i < LODE_CUDA_SLOTS; i++) {
            if (r->slot[i].host)
                cu->host_free(r->slot[i].host);
            if (r->slot[i].sent)
                cu->event_destroy(r->slot[i].sent);
        }
        if (r->read)
            cu->host_free(r->read);
        if (r->best)
            cu->host_free(r->best);
        for (int i = 0; i < LODE_CUDA_DRAWS; i++) {
            if (r->draw[i].ids)
                cu->host_free(r->draw[i].ids);
            if (r->draw[i].draws)
                cu->host_free(r->draw[i].draws);
            if (r->draw[i].sent)
                cu->event_destroy(r->draw[i].sent);
        }
        const lode_dev all[] = {r->step ? r->step - LODE_DRAW_BEFORE_STEP : 0, r->scratch, r->gate, r->up, r->h, r->down, r->tiles, r->list};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            if (all[i])
                cu->free(all[i]);
        if (r->stream)
            cu->stream_destroy(r->stream);
    }
    lode_free(r->bring);
    lode_free(r->graphs);
    lode_free(r);
}

static const struct lode_backend_ops ops = {
    .name = "CUDA", .begin = run_begin, .run_plan = run_plan, .run_ranks = lode_cuda_run_ranks,
    .read = run_read, .best = lode_cuda_best, .draw = lode_cuda_draw, .drawn = lode_cuda_drawn,
    .draw_step = lode_cuda_draw_step, .copy = run_copy, .free = run_free};

static int take(struct run *r, lode_dev *p, uint64_t size, struct lode_error *err) {
    return lode_cuda_take(r->c, p, size, "-b", "work buffers (fewer for a smaller batch)", err);
}

static int create(struct run *r, struct lode_error *err) {
    const struct lode_cu *cu = &r->c->cu;
    const struct lode_cuda_opts *o = &r->o;
    r->graphs = LODE_NEW_ARRAY(struct graph, graphs_size(r));
    if (!r->graphs)
        return lode_fail_nomem(err, "CUDA backend");
    LODE_TRY(lode_cuda_enter(r->c, err));
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&r->stream, 1 /* non-blocking */), "stream", err));
    r->step_size = lode_cuda_step_size(o);
    for (int i = 0; i < LODE_CUDA_SLOTS; i++) {
        LODE_TRY(lode_cuda_take_pinned(r->c, &r->slot[i].host, r->step_size, err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&r->slot[i].sent, 2), "event", err));
    }
    r->read_size = o->max_read * lode_cuda_row_apart(o->out_row);
    const size_t traced = o->max_rows * wide(o->max_traced);
    const size_t copied = o->max_rows * lode_cuda_row_apart(o->longest_copy);
    r->read_size = r->read_size > traced ? r->read_size : traced;
    r->read_size = r->read_size > copied ? r->read_size : copied;
    for (int i = 0; i < LODE_CUDA_BORDERS && o->longest_copy; i++) {
        LODE_TRY(lode_cuda_take_pinned(r->c, &r->border[i].host, r->read_size, err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&r->border[i].sent, 2), "event", err));
    }
    LODE_TRY(lode_cu_check(cu, cu->event_create(&r->done, 2), "event", err));
    LODE_TRY(lode_cuda_take_pinned(r->c, &r->read, r->read_size, err));
    LODE_TRY(lode_cuda_take_pinned(r->c, &r->best, (uint64_t)o->max_read * LODE_BEST_MAX * sizeof *r->best, err));
    for (int i = 0; i < LODE_CUDA_DRAWS; i++) {
        LODE_TRY(lode_cuda_take_pinned(r->c, &r->draw[i].ids, LODE_DRAW_ROWS * sizeof(int32_t), err));
        LODE_TRY(lode_cuda_take_pinned(r->c, &r->draw[i].draws, sizeof *r->draw[i].draws, err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&r->draw[i].sent, 2), "event", err));
    }
    LODE_TRY(take(r, &r->step, LODE_DRAW_BEFORE_STEP + r->step_size, err));
    r->step += LODE_DRAW_BEFORE_STEP;
    r->scratch_size = LODE_CUDA_SCRATCH;
    LODE_TRY(take(r, &r->scratch, r->scratch_size, err));
    if (o->bring.row)
        LODE_TRY(lode_cuda_bring_create(&r->bring, r, err));
    if (!o->experts.n)
        return 0;
    const uint64_t pairs = lode_cuda_wave_pairs(o);
    r->ff_stride = wide(o->experts.d_ff);
    r->out_stride = wide(o->experts.d_out);
    LODE_TRY(take(r, &r->gate, pairs * r->ff_stride, err));
    LODE_TRY(take(r, &r->up, pairs * r->ff_stride, err));
    LODE_TRY(take(r, &r->h, pairs * r->ff_stride, err));
    LODE_TRY(take(r, &r->list, pairs * sizeof(uint32_t), err));
    LODE_TRY(take(r, &r->tiles,
                  lode_cuda_most_tiles(pairs, o->experts.n) * sizeof(struct lode_cuda_gemm_tile), err));
    return take(r, &r->down, pairs * r->out_stride, err);
}

int lode_cuda_create(struct lode_backend **out, struct lode_cuda *c,
                     const struct lode_cuda_opts *opts, struct lode_error *err) {
    *out = NULL;
    struct run *r = LODE_NEW(struct run);
    if (!r)
        return lode_fail_nomem(err, "CUDA backend");
    *r = (struct run){.base = {.ops = &ops, .memory = &c->memory, .threads = 1}, .c = c, .o = *opts};
    const int rc = create(r, err);
    if (rc < 0)
        run_free(&r->base);
    else
        *out = &r->base;
    return rc;
}
