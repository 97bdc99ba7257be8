/* aside.c - a few rows' experts on the device, from its cache and as they arrive; and what the host has computed, for
 * later. */
#include "backend/cuda/aside.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

enum {
    LATER = 4,      /* one offer in so many is taken where somebody has to leave for it */
    TRY_AGAIN = 16, /* one take in so many is made though none was worth it */
};
#define LEAN_STEP 0.02f
#define BUS_AT_FIRST 16e9 /* bytes/s, until one job has been timed */

static struct aside *aside_of(struct lode_aside *a) { return (struct aside *)a; }

/* ---- sizes ---- */

static uint32_t most_pairs(const struct lode_cuda_aside_opts *o) {
    const struct lode_cuda_opts w = {.max_rows = o->max_rows, .experts = o->experts};
    const uint32_t all = lode_cuda_wave_pairs(&w);
    return all > ASIDE_PAIRS ? all : ASIDE_PAIRS;
}

static uint64_t in_size(const struct lode_cuda_aside_opts *o) {
    const uint64_t pairs = most_pairs(o), rows = o->max_rows > ASIDE_PAIRS ? o->max_rows : ASIDE_PAIRS;
    return aside_up(pairs * (2 * sizeof(float) + sizeof(uint32_t)), ASIDE_ALIGN) + 2 * ASIDE_ALIGN + rows * aside_row(o->experts.d_in);
}

static uint64_t out_size(const struct lode_cuda_aside_opts *o) {
    const uint64_t rows = o->max_rows > ASIDE_PAIRS ? o->max_rows : ASIDE_PAIRS;
    return rows * aside_row(o->experts.d_out);
}

static uint32_t most_tiles(const struct lode_cuda_aside_opts *o) {
    return most_pairs(o) / LODE_GEMM_TILE_X + 2 * o->experts.n + 16;
}

/* Of what wide.c spreads of a launch's tiles. */
static uint64_t scratch_size(const struct lode_cuda_aside_opts *o) {
    const uint64_t cols = o->experts.d_in > o->experts.d_ff ? o->experts.d_in : o->experts.d_ff;
    return ASIDE_TILES * aside_up(cols, 256) / 256 * 640 * LODE_GEMM_TILE_X;
}

void lode_cuda_aside_size(const struct lode_cuda_aside_opts *o, uint64_t *device, uint64_t *host) {
    const uint64_t pairs = most_pairs(o);
    *device = pairs * (3 * aside_row(o->experts.d_ff) + aside_row(o->experts.d_out)) + scratch_size(o) + 3 * aside_half_size(o) +
              in_size(o) + out_size(o) + most_tiles(o) * sizeof(struct lode_cuda_gemm_tile);
    *host = 2 * aside_half_size(o) + in_size(o) + out_size(o) + most_tiles(o) * sizeof(struct lode_cuda_gemm_tile) +
            o->experts.n * (sizeof(bool) + sizeof(uint32_t));
}

void aside_set_slots(const struct lode_cuda_kind *k, struct lode_cuda_expert_call *e) {
    for (int m = 0; m < 3; m++) {
        e->w[m] = k->at[m];
        e->bias[m] = k->bias_at[m];
        e->size[m] = k->size[m];
    }
}

/* ---- what the host computed, for later ---- */

bool aside_settle_offer(struct aside *a, bool wait) {
    const struct lode_cu *cu = &a->c->cu;
    if (!a->offered.kept)
        return true;
    const lode_cu_result rc = wait ? cu->stream_wait(a->copies) : cu->event_ask(a->half[1].used);
    if (rc == LODE_CU_NOT_READY)
        return false;
    lode_cuda_cache_let_go(a->c->cache, a->offered.kept, a->offered.slot, rc == 0);
    lode_cuda_cache_brought(a->c->cache, a->offered.kept, rc == 0);
    a->offered.kept = NULL;
    return true;
}

static void offer(struct lode_aside *base, const struct lode_aside_job *job, uint32_t share, const char *const w[3],
                  const struct lode_aside_host *host) {
    struct aside *a = aside_of(base);
    const struct lode_cu *cu = &a->c->cu;
    struct lode_cuda_kept *kept = lode_cuda_cache_find(a->c->cache, job->in);
    if (!kept || kept->host[0] || lode_cuda_enter(a->c, NULL) < 0 || !aside_settle_offer(a, false))
        return;
    const bool evict = ++a->n_offers % LATER == 0;
    const uint32_t expert = job->shares[share].expert;
    const uint32_t slot = lode_cuda_cache_make_room(a->c->cache, kept, expert, evict);
    if (slot == LODE_CUDA_NO_SLOT)
        return;
    const struct wanted one = {share, expert, {w[0], w[1], w[2]}};
    struct lode_error err;
    a->job = *job;
    a->kept = kept;
    a->offered.kept = kept;
    a->offered.slot = slot;
    int rc = aside_send(a, &a->half[1], &one, 1, host, &err);
    if (rc == 0)
        rc = aside_lay_in_slot(a, a->copies, &a->half[1], 0, 1, slot, &err);
    if (rc == 0)
        rc = lode_cuda_half_done(a->c, &a->half[1], a->copies, &err);
    if (rc < 0) { /* the steps that compute will say what is wrong with the device */
        cu->stream_wait(a->copies);
        lode_cuda_cache_let_go(a->c->cache, kept, slot, false);
        a->offered.kept = NULL;
    }
}

/* ---- a few rows ---- */

static void hold(struct aside *a, uint32_t share, uint32_t slot, uint32_t *place) {
    a->held[a->n_held++] = (struct held){share, slot, a->n_rows};
    place[share] = a->n_rows;
    a->n_rows += a->job.shares[share].n;
}

/* Some of those that are not here, in another order each time. */
static void bring_some(struct aside *a, uint32_t n_missing, uint32_t *place) {
    const struct lode_aside_job *job = &a->job;
    const uint32_t room = aside_half_room(a, a->kept->kind);
    a->left += a->lean * (float)n_missing;
    uint32_t n = (uint32_t)a->left;
    a->left -= (float)n;
    n = n < room ? n : room;
    const uint32_t from = a->n_offers++ % job->n_shares;
    for (uint32_t j = 0; n && j < job->n_shares; j++) {
        const uint32_t i = (from + j) % job->n_shares;
        if (place[i] != LODE_NO_PLACE || a->n_rows + job->shares[i].n > ASIDE_PAIRS)
            continue;
        const uint32_t slot = lode_cuda_cache_make_room(a->c->cache, a->kept, job->shares[i].expert, true);
        if (slot == LODE_CUDA_NO_SLOT)
            return;
        hold(a, i, slot, place);
        n--;
    }
}

/* Whether the device is done before the host would be with all; asked about now and then all the same. */
static bool is_worth_it(struct aside *a) {
    return a->took < a->job.share_ns * a->job.n_shares || ++a->n_left > TRY_AGAIN;
}

static uint32_t leave_all(struct aside *a, uint32_t *place) {
    for (uint32_t i = 0; i < a->n_held; i++) {
        lode_cuda_cache_let_go(a->c->cache, a->kept, a->held[i].slot, true);
        place[a->held[i].share] = LODE_NO_PLACE;
    }
    return a->n_held = 0;
}

static uint32_t take(struct lode_aside *base, const struct lode_aside_job *job, uint32_t *place) {
    struct aside *a = aside_of(base);
    uint32_t n_missing = 0;
    a->job = *job;
    a->kept = lode_cuda_cache_find(a->c->cache, job->in);
    a->n_held = a->n_rows = a->n_rows_hit = 0;
    a->rc = LODE_ERR_CANCELLED; /* until it starts */
    for (uint32_t i = 0; i < job->n_shares; i++)
        place[i] = LODE_NO_PLACE;
    if (!a->kept || lode_cuda_enter(a->c, NULL) < 0)
        return 0;
    aside_settle_offer(a, false);
    for (uint32_t i = 0; i < job->n_shares; i++) {
        if (a->n_rows + job->shares[i].n > ASIDE_PAIRS)
            continue;
        const uint32_t slot = lode_cuda_cache_use(a->c->cache, a->kept, job->shares[i].expert);
        if (slot != LODE_CUDA_NO_SLOT)
            hold(a, i, slot, place);
        else
            n_missing++;
    }
    a->n_hits = a->n_held;
    a->n_rows_hit = a->n_rows;
    if (!is_worth_it(a))
        return leave_all(a, place);
    if (n_missing && a->kept->host[0])
        bring_some(a, n_missing, place);
    return a->n_held;
}

/* Pairs first .. first + n - 1, whose experts are in slots. */
static int run_pairs(struct aside *a, lode_dev x, uint64_t x_stride, uint32_t first, uint32_t n) {
    struct run r = a->run;
    const struct op o = {.r = &r, .in = a->job.in, .err = &a->error};
    struct lode_cuda_expert_call e = {.x = {x + first * x_stride, x_stride},
                                      .route = {a->in_there + first * 2 * sizeof(float), 2 * sizeof(float)},
                                      .pairs = n,
                                      .n_used = 1,
                                      .x_div = 1};
    r.gate += first * r.ff_stride;
    r.up += first * r.ff_stride;
    r.h += first * r.ff_stride;
    r.down += first * r.out_stride;
    aside_set_slots(a->kept->kind, &e);
    return n ? lode_cuda_multiply_experts(&o, &e) : 0;
}

/* Those that are not here yet set out. */
static int send_held(struct aside *a) {
    const struct lode_cuda_kept *k = a->kept;
    struct wanted wanted[ASIDE_HALF_MOST];
    const uint32_t n = a->n_held - a->n_hits;
    for (uint32_t i = 0; i < n; i++) {
        const struct held *h = &a->held[a->n_hits + i];
        const uint32_t expert = a->job.shares[h->share].expert;
        wanted[i] = (struct wanted){.share = h->share, .expert = expert};
        for (int m = 0; m < 3; m++)
            wanted[i].w[m] = k->host[m] + expert * k->kind->raw[m];
    }
    return n ? aside_send(a, &a->half[0], wanted, n, NULL, &a->error) : 0;
}

/* They are laid in their slots when they are there. */
static int receive_held(struct aside *a) {
    const uint32_t n = a->n_held - a->n_hits;
    LODE_TRY(lode_cuda_half_wait(a->c, &a->half[0], a->run.stream, &a->error));
    for (uint32_t i = 0; i < n; i++)
        LODE_TRY(aside_lay_in_slot(a, a->run.stream, &a->half[0], i, n, a->held[a->n_hits + i].slot, &a->error));
    return lode_cuda_half_done(a->c, &a->half[0], a->run.stream, &a->error);
}

static int begin(struct aside *a) {
    const struct lode_cu *cu = &a->c->cu;
    const struct lode_value *x = &a->job.in->in[0];
    const uint64_t stride = aside_row(a->o.experts.d_in), x_at = aside_up(a->n_rows * 2 * sizeof(float), ASIDE_ALIGN);
    size_t bytes = 0;
    lode_dtype_row_size(x->type, x->width, &bytes);
    LODE_TRY(lode_cuda_enter(a->c, &a->error));
    LODE_TRY(send_held(a)); /* the longest way first */
    for (uint32_t i = 0; i < a->n_held; i++) {
        const struct lode_expert_share *s = &a->job.shares[a->held[i].share];
        for (uint32_t p = 0; p < s->n; p++) {
            const struct lode_expert_pair *pair = &a->job.pairs[s->first + p];
            const uint32_t at = a->held[i].first + p;
            memcpy(a->in + at * 2 * sizeof(float), &a->held[i].slot, sizeof(uint32_t));
            memcpy(a->in + at * 2 * sizeof(float) + sizeof(float), &pair->weight, sizeof(float));
            memcpy(a->in + x_at + at * stride, x->data + pair->row * x->stride, bytes);
        }
    }
    LODE_TRY(lode_cu_check(cu, cu->to_device(a->in_there, a->in, x_at + a->n_rows * stride, a->run.stream), "experts",
                           &a->error));
    LODE_TRY(run_pairs(a, a->in_there + x_at, stride, 0, a->n_rows_hit));
    if (a->n_held > a->n_hits) {
        LODE_TRY(receive_held(a));
        LODE_TRY(run_pairs(a, a->in_there + x_at, stride, a->n_rows_hit, a->n_rows - a->n_rows_hit));
    }
    LODE_TRY(lode_cu_check(cu, cu->to_host(a->out, a->run.down, a->n_rows * a->run.out_stride, a->run.stream),
                           "experts", &a->error));
    return lode_cu_check(cu, cu->event_record(a->done, a->run.stream), "experts", &a->error);
}

static void start(struct lode_aside *base) {
    struct aside *a = aside_of(base);
    a->begun = lode_clock_ns();
    a->rc = begin(a);
}

/* Who waited for whom: more or fewer are brought next time. */
static void balance(struct aside *a, uint64_t came) {
    const uint64_t now = lode_clock_ns(), waited = now - came, before = came - a->begun;
    /* who has not waited knows no more than that; a hiccup says nothing, and what comes after a pause, all */
    const double most = 2 * a->job.share_ns * a->job.n_shares, all = (double)(now - a->begun);
    const double took = all < most ? all : most;
    if (waited > 2000)
        a->took += (a->n_left ? 1 : 0.1) * (took - a->took);
    else if (a->took > (double)before)
        a->took = (double)before;
    a->n_left = 0;
    a->lean += waited > before / 16 + 4000 ? -LEAN_STEP : LEAN_STEP;
    a->lean = a->lean < 0 ? 0 : a->lean > 1 ? 1 : a->lean;
}

static const char *finish(struct lode_aside *base, size_t *stride, struct lode_error *err) {
    struct aside *a = aside_of(base);
    const struct lode_cu *cu = &a->c->cu;
    const uint64_t came = lode_clock_ns();
    *stride = a->run.out_stride;
    if (a->rc == 0)
        a->rc = lode_cuda_enter(a->c, &a->error);
    if (a->rc == 0)
        a->rc = lode_cu_check(cu, cu->event_wait(a->done), "experts", &a->error);
    else /* whatever was begun must not write to slots that others get */
        cu->stream_wait(a->run.stream);
    for (uint32_t i = 0; i < a->n_held; i++)
        lode_cuda_cache_let_go(a->c->cache, a->kept, a->held[i].slot, i < a->n_hits || a->rc == 0);
    if (a->rc < 0) {
        if (err)
            *err = a->error;
        return NULL;
    }
    lode_cuda_cache_brought(a->c->cache, a->kept, a->n_held - a->n_hits);
    balance(a, came);
    return a->out;
}

/* ---- making one ---- */

static void aside_free(struct lode_aside *base) {
    struct aside *a = aside_of(base);
    if (!a)
        return;
    const struct lode_cu *cu = &a->c->cu;
    if (lode_cuda_enter(a->c, NULL) == 0) {
        if (a->copies)
            aside_settle_offer(a, true);
        if (a->run.stream)
            cu->stream_wait(a->run.stream);
        const lode_dev there[] = {a->laid, a->in_there, a->tiles_there, a->sum,
                                  a->run.scratch, a->run.gate, a->run.up, a->run.h, a->run.down};
        void *const pinned[] = {a->in, a->tiles, a->out};
        for (int i = 0; i < 2; i++)
            lode_cuda_half_deinit(a->c, &a->half[i]);
        for (size_t i = 0; i < sizeof there / sizeof *there; i++)
            if (there[i])
                cu->free(there[i]);
        for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
            if (pinned[i])
                cu->host_free(pinned[i]);
        if (a->done)
            cu->event_destroy(a->done);
        if (a->copies)
            cu->stream_destroy(a->copies);
        if (a->run.stream)
            cu->stream_destroy(a->run.stream);
    }
    lode_free(a->have);
    lode_free(a->slots);
    lode_free(a);
}

static const struct lode_aside_ops ops = {.take = take, .start = start, .finish = finish, .offer = offer,
                                          .most_rows = aside_most_rows, .wants_all = aside_wants_all, .run_all = aside_run_all,
                                          .free = aside_free};

#define FOR_EXPERTS "buffers for experts (fewer for a smaller batch)"

static int take_there(const struct aside *a, lode_dev *p, uint64_t size, struct lode_error *err) {
    return lode_cuda_take(a->c, p, size, "-b", FOR_EXPERTS, err);
}

static int create(struct aside *a, struct lode_error *err) {
    const struct lode_cu *cu = &a->c->cu;
    const struct lode_cuda_aside_opts *o = &a->o;
    const uint64_t pairs = a->most_pairs = most_pairs(o);
    struct run *r = &a->run;
    *r = (struct run){.c = a->c, .ff_stride = aside_row(o->experts.d_ff), .out_stride = aside_row(o->experts.d_out),
                      .scratch_size = scratch_size(o)};
    a->half_size = aside_half_size(o);
    a->most_tiles = most_tiles(o);
    a->have = LODE_NEW_ARRAY(bool, o->experts.n);
    a->slots = LODE_NEW_ARRAY(uint32_t, o->experts.n);
    if (!a->have || !a->slots)
        return lode_fail_nomem(err, "buffers for experts");
    LODE_TRY(lode_cuda_enter(a->c, err));
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&r->stream, 1), "stream", err));
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&a->copies, 1), "stream", err));
    LODE_TRY(lode_cu_check(cu, cu->event_create(&a->done, 2), "event", err));
    for (int i = 0; i < 2; i++)
        LODE_TRY(lode_cuda_half_init(a->c, &a->half[i], a->half_size, FOR_EXPERTS, err));
    LODE_TRY(take_there(a, &a->laid, a->half_size, err));
    LODE_TRY(lode_cuda_take_pinned(a->c, &a->in, in_size(o), err));
    LODE_TRY(take_there(a, &a->in_there, in_size(o), err));
    LODE_TRY(lode_cuda_take_pinned(a->c, &a->tiles, a->most_tiles * sizeof(struct lode_cuda_gemm_tile), err));
    LODE_TRY(take_there(a, &a->tiles_there, a->most_tiles * sizeof(struct lode_cuda_gemm_tile), err));
    LODE_TRY(lode_cuda_take_pinned(a->c, &a->out, out_size(o), err));
    LODE_TRY(take_there(a, &a->sum, out_size(o), err));
    LODE_TRY(take_there(a, &r->scratch, r->scratch_size, err));
    LODE_TRY(take_there(a, &r->gate, pairs * r->ff_stride, err));
    LODE_TRY(take_there(a, &r->up, pairs * r->ff_stride, err));
    LODE_TRY(take_there(a, &r->h, pairs * r->ff_stride, err));
    return take_there(a, &r->down, pairs * r->out_stride, err);
}

int lode_cuda_aside_create(struct lode_aside **out, struct lode_cuda *c, const struct lode_cuda_aside_opts *o,
                           struct lode_error *err) {
    *out = NULL;
    if (!c->cache || !o->experts.n)
        return 0;
    struct aside *a = LODE_NEW(struct aside);
    if (!a)
        return lode_fail_nomem(err, "buffers for experts");
    *a = (struct aside){.base = {.ops = &ops}, .c = c, .o = *o, .lean = 0.25f, .bus = BUS_AT_FIRST};
    const int rc = create(a, err);
    if (rc < 0)
        aside_free(&a->base);
    else
        *out = &a->base;
    return rc;
}
