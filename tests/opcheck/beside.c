#include "beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512, MOST_AT_ONCE = 3, ROWS = 40, MOST_EXPERTS = 256 };

struct beside {
    struct lode_aside base;
    struct lode_backend *host;
    struct lode_aside_job job;
    uint32_t row_of[MOST], n_rows; /* pairs that were taken */
    struct lode_value x, route, y; /* theirs; owned data */
    bool started;
    uint64_t random;
};


static uint32_t below(struct beside *b, uint32_t n) {
    b->random = b->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(b->random >> 33) % n;
}

static void wrong(const char *what) {
    fprintf(stderr, "opcheck: %s\n", what);
    exit(2);
}

static struct lode_value value(size_t stride, enum lode_dtype type, uint32_t width) {
    struct lode_value v = {.stride = stride, .type = type, .width = width, .rows = LODE_ROWS_ALL};
    v.data = aligned_alloc(64, (MOST * stride + 63) & ~(size_t)63);
    if (!v.data)
        wrong("out of memory");
    return v;
}

static uint32_t take(struct lode_aside *a, const struct lode_aside_job *job, uint32_t *place) {
    struct beside *b = (struct beside *)a;
    const uint32_t one_in = 1 + below(b, 4);
    uint32_t n = 0;
    b->job = *job;
    b->n_rows = 0;
    b->started = false;
    for (uint32_t i = 0; i < job->n_shares; i++) {
        const struct lode_expert_share *s = &job->shares[i];
        place[i] = LODE_NO_PLACE;
        if (below(b, one_in) || b->n_rows + s->n > MOST)
            continue;
        place[i] = b->n_rows;
        for (uint32_t p = 0; p < s->n; p++)
            b->row_of[b->n_rows++] = s->first + p;
        n++;
        /* the share's expert, which pairs do not name */
        for (uint32_t p = 0; p < s->n; p++)
            memcpy(b->route.data + (place[i] + p) * b->route.stride, &s->expert, sizeof s->expert);
    }
    return n;
}

/* Each pair as a row with one expert, whose weight is 1: what is added up is then the expert's own output. */
static void start(struct lode_aside *a) {
    struct beside *b = (struct beside *)a;
    const struct lode_instr *in = b->job.in;
    struct lode_instr mine = *in;
    struct lode_part parts[3] = {in->parts[0], in->parts[1], in->parts[2]};
    for (uint32_t i = 0; i < b->n_rows; i++) {
        const struct lode_expert_pair *p = &b->job.pairs[b->row_of[i]];
        const float weight = in->p.experts.weigh_input ? p->weight : 1.0f;
        memcpy(b->x.data + i * b->x.stride, in->in[0].data + p->row * in->in[0].stride, in->in[0].stride);
        memcpy(b->route.data + i * b->route.stride + 4, &weight, sizeof weight);
    }
    mine.in[0].data = b->x.data;
    mine.in[0].stride = b->x.stride;
    mine.in[0].rows = LODE_ROWS_ALL;
    mine.in[1] = b->route;
    mine.parts = parts;
    mine.guesses = NULL;
    parts[0].out = b->y;
    b->host->ops->run[LODE_OP_EXPERTS](b->host, &mine, &(struct lode_step){.n_rows = b->n_rows});
    b->started = true;
}

static const char *finish(struct lode_aside *a, size_t *stride, struct lode_error *err) {
    struct beside *b = (struct beside *)a;
    (void)err;
    if (!b->started)
        wrong("finish without start");
    *stride = b->y.stride;
    return b->y.data;
}

static void offer(struct lode_aside *a, const struct lode_aside_job *job, uint32_t share, const char *const w[3],
                  const struct lode_aside_host *host) {
    (void)a;
    (void)host;
    if (share >= job->n_shares || !w[0] || !w[1] || !w[2])
        wrong("an offer of nothing");
}

static uint32_t most_rows(struct lode_aside *a, const struct lode_instr *in) {
    (void)a;
    (void)in;
    return ROWS;
}

static bool wants_all(struct lode_aside *a, const struct lode_aside_job *job) {
    if (!(job->share_ns > 0))
        wrong("an estimate of no time");
    return below((struct beside *)a, 3) == 0;
}

static int run_all(struct lode_aside *a, const struct lode_aside_job *job, const struct lode_aside_host *host,
                   struct lode_error *err) {
    struct beside *b = (struct beside *)a;
    struct lode_instr mine = *job->in;
    bool have[MOST_EXPERTS] = {false}, given[MOST_EXPERTS] = {false};
    uint32_t shares[MOST_AT_ONCE], left = job->n_shares;
    const char *w[MOST_AT_ONCE][3];
    if (job->n_shares > MOST_EXPERTS)
        wrong("more experts than any case has");
    for (uint32_t i = 0; i < job->n_shares; i++)
        left -= have[i] = below(b, 2);
    for (int n; (n = host->get(host->user, have, shares, w, 1 + below(b, MOST_AT_ONCE), err)) != 0;)
        for (int i = 0; i < n; i++) {
            if (have[shares[i]] || given[shares[i]] || !w[i][0] || !w[i][1] || !w[i][2])
                wrong("a share that nobody asked for");
            given[shares[i]] = true;
            left--;
            host->drop(host->user, shares[i]);
        }
    if (left)
        wrong("shares that were not given");
    mine.guesses = NULL;
    mine.in[0].rows = LODE_ROWS_ALL;
    b->host->ops->run[LODE_OP_EXPERTS](b->host, &mine, &(struct lode_step){.n_rows = job->n_rows});
    return 0;
}

static void beside_free(struct lode_aside *a) {
    struct beside *b = (struct beside *)a;
    b->host->ops->free(b->host);
    free(b->x.data);
    free(b->route.data);
    free(b->y.data);
    free(b);
}

static const struct lode_aside_ops ops = {.take = take, .start = start, .finish = finish, .offer = offer,
                                          .most_rows = most_rows, .wants_all = wants_all, .run_all = run_all,
                                          .free = beside_free};

struct lode_aside *beside_create(const struct lode_cpu_opts *opts, uint64_t seed) {
    struct lode_cpu_opts own = *opts;
    struct lode_error err;
    struct beside *b = calloc(1, sizeof *b);
    if (!b)
        wrong("out of memory");
    own.threads = 1; /* it starts within the other's parallel work */
    own.max_rows = MOST;
    if (lode_cpu_create(&b->host, &own, &err) < 0)
        wrong(err.text);
    b->base.ops = &ops;
    b->random = seed;
    b->x = value(((size_t)opts->experts.d_in * 4 + 63) & ~(size_t)63, LODE_F32, opts->experts.d_in);
    b->route = value(64, LODE_F32, 2);
    b->y = value(((size_t)opts->experts.d_out * 4 + 63) & ~(size_t)63, LODE_F32, opts->experts.d_out);
    return &b->base;
}
