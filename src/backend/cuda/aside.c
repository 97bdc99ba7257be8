/* aside.c - a few rows' experts on the device, from its cache and as they arrive; and what the host has computed, for
 * later. */
#include "backend/cuda/aside.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

enum {
    LATER = 4,      /* one expert in so many is brought for later where somebody has to leave for it */
    TRY_AGAIN = 16, /* one take in so many is made though none was worth it */
};
#define TRY_FASTER 0.99 /* what bringing is thought to take, each time that it was not worth it: so it is tried again */
#define BYTE_AT_FIRST 0.02 /* ns, until one that was brought has been timed */
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

/* ---- for later ---- */

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

/* One of a->job's shares sets out for a slot, if there is one for it; w: its matrices.  Nobody waits for it. */
static void bring_for_later(struct aside *a, uint32_t share, const char *const w[3], const struct lode_aside_host *host) {
    const bool evict = ++a->n_offers % LATER == 0;
    const uint32_t expert = a->job.shares[share].expert;
    const uint32_t slot = lode_cuda_cache_make_room(a->c->cache, a->kept, expert, evict);
    if (slot == LODE_CUDA_NO_SLOT)
        return;
    const struct wanted one = {share, expert, {w[0], w[1], w[2]}};
    struct lode_error err;
    a->offered.kept = a->kept;
    a->offered.slot = slot;
    int rc = aside_send(a, &a->half[1], &one, 1, host, &err);
    if (rc == 0)
        rc = aside_lay_in_slot(a, a->copies, &a->half[1], 0, 1, slot, &err);
    if (rc == 0)
        rc = lode_cuda_half_done(a->c, &a->half[1], a->copies, &err);
    if (rc < 0) { /* the steps that compute will say what is wrong with the device */
        a->c->cu.stream_wait(a->copies);
        lode_cuda_cache_let_go(a->c->cache, a->kept, slot, false);
        a->offered.kept = NULL;
    }
}

static void offer(struct lode_aside *base, const struct lode_aside_job *job, uint32_t share, const char *const w[3],
                  const struct lode_aside_host *host) {
    struct aside *a = aside_of(base);
    struct lode_cuda_kept *kept = lode_cuda_cache_find(a->c->cache, job->in);
    if (!kept || kept->host[0] || lode_cuda_enter(a->c, NULL) < 0 || !aside_settle_offer(a, false))
        return;
    a->job = *job;
    a->kept = kept;
    bring_for_later(a, share, w, host);
}

/* ---- a few rows ---- */

static void hold(struct aside *a, uint32_t share, uint32_t slot, uint32_t *place) {
    a->held[a->n_held++] = (struct held){share, slot, a->n_rows};
    place[share] = a->n_rows;
    a->n_rows += a->job.shares[share].n;
}

/* How many of those that are not here it is better to wait for than to let the host compute. */
static uint32_t worth_bringing(struct aside *a, uint32_t n_missing) {
    const double each = a->byte_ns * (double)lode_cuda_raw_size(a->kept->kind);
    uint32_t n = 0;
    while (n < n_missing && a->took + (n + 1) * each < a->job.share_ns * (n_missing - n - 1))
        n++;
    if (n == 0)
        a->byte_ns *= TRY_FASTER;
    return n;
}

/* Some of those that are not here, in another order each time; else one of them is for later. */
static void bring_some(struct aside *a, uint32_t n_missing, uint32_t *place) {
    const struct lode_aside_job *job = &a->job;
    const uint32_t room = aside_half_room(a, a->kept->kind), worth = worth_bringing(a, n_missing);
    const uint32_t from = a->n_takes++ % job->n_shares;
    uint32_t n = worth < room ? worth : room;
    for (uint32_t j = 0; j < job->n_shares; j++) {
        const uint32_t i = (from + j) % job->n_shares;
        if (place[i] != LODE_NO_PLACE || a->n_rows + job->shares[i].n > ASIDE_PAIRS)
            continue;
        if (worth == 0) {
            a->later = i;
            return;
        }
        const uint32_t slot = lode_cuda_cache_make_room(a->c->cache, a->kept, job->shares[i].expert, true);
        if (slot == LODE_CUDA_NO_SLOT)
            return;
        hold(a, i, slot, place);
        if (--n == 0)
            return;
    }
}

static void bring_the_later(struct aside *a) {
    const char *w[3];
    if (a->later == LODE_NO_PLACE || a->offered.kept)
        return;
    lode_cuda_find_raw(a->kept, a->job.shares[a->later].expert, w);
    bring_for_later(a, a->later, w, NULL);
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
    a->later = LODE_NO_PLACE;
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
    if (a->n_held == 0)
        bring_the_later(a);
    return a->n_held;
}

static void start(struct lode_aside *base) {
    struct aside *a = aside_of(base);
    a->begun = lode_clock_ns();
    a->rc = aside_begin_few(a);
    if (a->rc == 0)
        bring_the_later(a);
    /* while others multiply, as it takes some microseconds; of a step in waves, and where experts are offered, the next
     * layer's first use ends this one's */
    if (a->kept->host[0] && a->job.n_pairs == a->job.n_rows * (a->job.in->in[1].width / 2))
        lode_cuda_cache_end_uses(a->c->cache, a->kept);
}

/* What it took, with what was brought and without; waited: until now. */
static void note_time(struct aside *a, bool waited) {
    const uint64_t now = lode_clock_ns();
    const double bytes = (double)((a->n_held - a->n_hits) * lode_cuda_raw_size(a->kept->kind)), all = (double)(now - a->begun);
    /* a hiccup says nothing, and what comes after a pause, all */
    const double most = 2 * a->job.share_ns * a->job.n_shares, took = all < most ? all : most, part = a->n_left ? 1 : 0.1;
    if (!waited) { /* it took no longer than that */
        a->took = a->took < all ? a->took : all;
        a->byte_ns = bytes <= 0 || a->byte_ns < all / bytes ? a->byte_ns : all / bytes;
    } else if (bytes <= 0) {
        a->took += part * (took - a->took);
    } else {
        a->byte_ns += part * ((took > a->took ? took - a->took : 0) / bytes - a->byte_ns);
    }
    a->n_left = 0;
}

static const char *finish(struct lode_aside *base, size_t *stride, struct lode_error *err) {
    struct aside *a = aside_of(base);
    const struct lode_cu *cu = &a->c->cu;
    bool waited = false;
    *stride = a->run.out_stride;
    if (a->rc == 0)
        a->rc = lode_cuda_enter(a->c, &a->error);
    if (a->rc == 0) {
        waited = cu->event_ask(a->done) == LODE_CU_NOT_READY;
        a->rc = lode_cu_check(cu, cu->event_wait(a->done), "experts", &a->error);
    } else { /* whatever was begun must not write to slots that others get */
        cu->stream_wait(a->run.stream);
    }
    for (uint32_t i = 0; i < a->n_held; i++)
        lode_cuda_cache_let_go(a->c->cache, a->kept, a->held[i].slot, i < a->n_hits || a->rc == 0);
    if (a->rc < 0) {
        if (err)
            *err = a->error;
        return NULL;
    }
    lode_cuda_cache_brought(a->c->cache, a->kept, a->n_held - a->n_hits);
    note_time(a, waited);
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
        aside_drop_graphs(a);
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
    *a = (struct aside){.base = {.ops = &ops}, .c = c, .o = *o, .byte_ns = BYTE_AT_FIRST, .bus = BUS_AT_FIRST};
    const int rc = create(a, err);
    if (rc < 0)
        aside_free(&a->base);
    else
        *out = &a->base;
    return rc;
}
