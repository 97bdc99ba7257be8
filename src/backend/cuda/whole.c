/* whole.c - all experts of a prompt's step, on the device. */
#include "backend/cuda/aside.h"

#include "base/clock.h"

#include <string.h>

static struct aside *aside_of(struct lode_aside *a) { return (struct aside *)a; }

uint32_t aside_most_rows(struct lode_aside *base, const struct lode_instr *in) {
    const struct aside *a = aside_of(base);
    const struct lode_cuda_kept *k = lode_cuda_cache_find(a->c->cache, in);
    const uint32_t rows = a->most_pairs / (in->in[1].width / 2);
    return !k || !k->kind->many ? 0 : rows < a->o.max_rows ? rows : a->o.max_rows;
}

bool aside_wants_all(struct lode_aside *base, const struct lode_aside_job *job) {
    struct aside *a = aside_of(base);
    const struct lode_cuda_kept *k = lode_cuda_cache_find(a->c->cache, job->in);
    uint64_t missing = 0;
    if (a->o.bring_rows)
        return job->n_rows >= a->o.bring_rows;
    for (uint32_t i = 0; i < job->n_shares; i++)
        missing += !lode_cuda_cache_has(a->c->cache, k, job->shares[i].expert);
    return (double)(missing * lode_cuda_raw_size(k->kind)) / a->bus + 100e-6 <
           1e-9 * job->share_ns * job->n_shares;
}

struct rows_in {
    const struct lode_value *x;
    char *to;
    uint64_t stride;
    size_t bytes;
};

static void copy_rows_in(void *arg, uint32_t task, uint32_t worker) {
    const struct rows_in *c = arg;
    (void)worker;
    memcpy(c->to + task * c->stride, c->x->data + task * c->x->stride, c->bytes);
}

struct rows_out {
    const struct lode_value *y;
    const char *from;
    uint64_t stride;
};

static void copy_rows_out(void *arg, uint32_t task, uint32_t worker) {
    const struct rows_out *c = arg;
    (void)worker;
    memcpy(c->y->data + task * c->y->stride, c->from + task * c->stride, c->y->width * sizeof(float));
}

/* A whole job as kernels see it. */
struct whole {
    struct aside *a;
    const struct lode_aside_host *host;
    struct lode_cuda_expert_call call;
    struct lode_error *err;
    uint32_t n_used;
};

/* Routes, the list of pairs and the rows, to the device. */
static int send_rows(struct whole *w) {
    struct aside *a = w->a;
    const struct lode_aside_job *job = &a->job;
    const struct lode_cu *cu = &a->c->cu;
    const uint32_t n_used = w->n_used;
    const uint64_t route = n_used * 2 * sizeof(float), list_at = job->n_rows * route;
    const uint64_t x_at = aside_up(list_at + job->n_pairs * sizeof(uint32_t), ASIDE_ALIGN);
    uint32_t *list = (uint32_t *)(void *)(a->in + list_at);
    struct rows_in c = {&job->in->in[0], a->in + x_at, aside_row(a->o.experts.d_in), 0};
    lode_dtype_row_size(c.x->type, c.x->width, &c.bytes);
    for (uint32_t r = 0; r < job->n_rows; r++)
        memcpy(a->in + r * route, job->in->in[1].data + r * job->in->in[1].stride, route);
    for (uint32_t i = 0; i < job->n_pairs; i++)
        list[i] = job->pairs[i].row * n_used + job->pairs[i].place;
    w->host->each(w->host->user, copy_rows_in, &c, job->n_rows);
    w->call = (struct lode_cuda_expert_call){.x = {a->in_there + x_at, c.stride},
                                             .route = {a->in_there, route},
                                             .pairs = job->n_pairs,
                                             .n_used = n_used,
                                             .x_div = n_used};
    a->run.list = a->in_there + list_at;
    a->n_tiles = 0;
    return lode_cu_check(cu, cu->to_device(a->in_there, a->in, x_at + job->n_rows * c.stride, a->run.stream), "experts",
                         w->err);
}

/* Tiles since `first`, the header of which is there; they are computed. */
static int run_tiles(struct whole *w, uint32_t first) {
    struct aside *a = w->a;
    const struct lode_cu *cu = &a->c->cu;
    const struct op o = {.r = &a->run, .in = a->job.in, .err = w->err};
    struct lode_cuda_gemm_tile *tiles = (struct lode_cuda_gemm_tile *)(void *)a->tiles + first;
    const uint32_t n = a->n_tiles - first - 1;
    const uint64_t at = first * sizeof *tiles;
    tiles[0] = (struct lode_cuda_gemm_tile){.expert = n}; /* their number comes first */
    w->call.n_tiles = n;
    a->run.tiles = a->tiles_there + at;
    LODE_TRY(lode_cu_check(cu, cu->to_device(a->tiles_there + at, tiles, (n + 1) * sizeof *tiles, a->run.stream),
                           "experts", w->err));
    return lode_cuda_multiply_experts(&o, &w->call);
}

/* One share's tiles; expert: as w->call counts. */
static void add_tiles(struct aside *a, const struct lode_expert_share *s, uint32_t expert) {
    struct lode_cuda_gemm_tile *tiles = (struct lode_cuda_gemm_tile *)(void *)a->tiles;
    for (uint32_t t = 0; t < s->n; t += LODE_GEMM_TILE_X)
        tiles[a->n_tiles++] = (struct lode_cuda_gemm_tile){
            .expert = expert,
            .first = s->first + t,
            .n = s->n - t < LODE_GEMM_TILE_X ? s->n - t : LODE_GEMM_TILE_X};
}

static uint32_t tiles_of(const struct lode_expert_share *s) {
    return (s->n + LODE_GEMM_TILE_X - 1) / LODE_GEMM_TILE_X;
}

/* Shares whose experts are in slots. */
static int run_hits(struct whole *w) {
    struct aside *a = w->a;
    const struct lode_aside_job *job = &a->job;
    uint32_t first = a->n_tiles++;
    aside_set_slots(a->kept->kind, &w->call);
    for (uint32_t i = 0; i < job->n_shares; i++) {
        if (!a->have[i])
            continue;
        if (a->n_tiles - first > 1 && a->n_tiles - first - 1 + tiles_of(&job->shares[i]) > ASIDE_TILES) {
            LODE_TRY(run_tiles(w, first));
            first = a->n_tiles++;
        }
        add_tiles(a, &job->shares[i], a->slots[i]);
    }
    if (a->n_tiles == first + 1)
        return a->n_tiles = first, 0;
    return run_tiles(w, first);
}

/* Whether an expert is one of the layer's most wanted, as many as its part of the cache has room for. */
static bool is_wanted(const struct aside *a, uint32_t share, uint32_t quota) {
    uint32_t more = 0;
    for (uint32_t i = 0; i < a->job.n_shares; i++)
        more += a->job.shares[i].n > a->job.shares[share].n;
    return more < quota;
}

/* A half's experts, computed and, as far as there is room, kept. */
static int run_half(struct whole *w, struct half *h, const struct wanted *experts, uint32_t n) {
    struct aside *a = w->a;
    const struct lode_cuda_kind *k = a->kept->kind;
    const struct places p = aside_places(k, n);
    const uint32_t quota = lode_cuda_cache_quota(a->kept);
    lode_dev to[3], at = a->laid;
    for (int m = 0; m < 3; m++) {
        w->call.w[m] = to[m] = at;
        w->call.size[m] = k->size[m];
        w->call.bias[m] = k->biased[m] ? h->raw + p.at[3 + m] : 0;
        at += n * k->size[m];
    }
    LODE_TRY(lode_cuda_half_wait(a->c, h, a->run.stream, w->err));
    LODE_TRY(aside_lay_out(a, a->run.stream, h, 0, n, n, to, w->err));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t share = experts[i].share;
        if (a->kept->n_held >= quota || !is_wanted(a, share, quota))
            continue;
        a->slots[share] = lode_cuda_cache_make_room(a->c->cache, a->kept, experts[i].expert, false);
        if (a->slots[share] != LODE_CUDA_NO_SLOT)
            LODE_TRY(aside_lay_in_slot(a, a->run.stream, h, i, n, a->slots[share], w->err));
    }
    for (uint32_t i = 0; i < n;) {
        const uint32_t first = a->n_tiles++;
        do
            add_tiles(a, &a->job.shares[experts[i].share], i);
        while (++i < n && a->n_tiles - first - 1 + tiles_of(&a->job.shares[experts[i].share]) <= ASIDE_TILES);
        LODE_TRY(run_tiles(w, first));
    }
    return lode_cuda_half_done(a->c, h, a->run.stream, w->err);
}

/* All others, a half after the other. */
static int run_others(struct whole *w) {
    struct aside *a = w->a;
    const struct lode_cuda_kept *k = a->kept;
    const uint32_t room = aside_half_room(a, k->kind);
    uint32_t shares[ASIDE_HALF_MOST];
    const char *at[ASIDE_HALF_MOST][3];
    struct wanted wanted[ASIDE_HALF_MOST];
    for (unsigned i = 0;; i++) {
        const int n = w->host->get(w->host->user, a->have, shares, at, room, w->err);
        if (n <= 0)
            return n;
        for (int j = 0; j < n; j++) {
            wanted[j] = (struct wanted){shares[j], a->job.shares[shares[j]].expert, {at[j][0], at[j][1], at[j][2]}};
            if (k->host[0])
                lode_cuda_find_raw(k, wanted[j].expert, wanted[j].w);
        }
        struct half *h = &a->half[i % 2];
        int rc = aside_send(a, h, wanted, (uint32_t)n, k->host[0] ? NULL : w->host, w->err);
        for (int j = 0; j < n; j++) /* copied, or pinned as long as the model lives */
            w->host->drop(w->host->user, shares[j]);
        if (rc == 0)
            rc = run_half(w, h, wanted, (uint32_t)n);
        LODE_TRY(rc);
    }
}

static int run_whole(struct whole *w) {
    struct aside *a = w->a;
    const struct lode_cu *cu = &a->c->cu;
    const struct op o = {.r = &a->run, .in = a->job.in, .err = w->err};
    const struct lode_cuda_mat y = {a->sum, a->run.out_stride};
    LODE_TRY(send_rows(w));
    LODE_TRY(run_hits(w));
    LODE_TRY(run_others(w));
    LODE_TRY(lode_cuda_sum_experts(&o, w->call.route, y, a->job.n_rows, w->n_used));
    LODE_TRY(lode_cu_check(cu, cu->to_host(a->out, a->sum, a->job.n_rows * a->run.out_stride, a->run.stream), "experts",
                           w->err));
    return lode_cu_check(cu, cu->stream_wait(a->run.stream), "experts", w->err);
}

int aside_run_all(struct lode_aside *base, const struct lode_aside_job *job, const struct lode_aside_host *host,
                   struct lode_error *err) {
    struct aside *a = aside_of(base);
    const struct lode_cu *cu = &a->c->cu;
    const uint64_t begun = lode_clock_ns();
    uint64_t missing = 0;
    LODE_TRY(lode_cuda_enter(a->c, err));
    aside_settle_offer(a, true);
    a->job = *job;
    a->kept = lode_cuda_cache_find(a->c->cache, job->in);
    for (uint32_t i = 0; i < job->n_shares; i++) {
        a->slots[i] = lode_cuda_cache_use(a->c->cache, a->kept, job->shares[i].expert);
        a->have[i] = a->slots[i] != LODE_CUDA_NO_SLOT;
        missing += !a->have[i];
    }
    struct whole w = {.a = a, .host = host, .err = err, .n_used = job->in->in[1].width / 2};
    const int rc = run_whole(&w);
    if (rc < 0) { /* whatever was begun must not write to slots that others get */
        cu->stream_wait(a->copies);
        cu->stream_wait(a->run.stream);
    }
    for (uint32_t i = 0; i < job->n_shares; i++)
        if (a->slots[i] != LODE_CUDA_NO_SLOT)
            lode_cuda_cache_let_go(a->c->cache, a->kept, a->slots[i], rc == 0);
    LODE_TRY(rc);
    const struct lode_cuda_kind *k = a->kept->kind;
    lode_cuda_cache_brought(a->c->cache, a->kept, missing);
    if (missing > job->n_shares / 2) {
        const double took = (double)(lode_clock_ns() - begun) * 1e-9, bytes = (double)(missing * lode_cuda_raw_size(k));
        a->bus += 0.2 * (bytes / took - a->bus);
    }
    struct rows_out c = {&job->in->parts[0].out, a->out, a->run.out_stride};
    host->each(host->user, copy_rows_out, &c, job->n_rows);
    return 0;
}
