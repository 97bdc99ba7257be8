#include "base/alloc.h"
#include "engine/memory.h"
#include "engine/rows.h"
#include "engine/sampler_impl.h"
#include "engine/session_impl.h"
#include "engine/timeline.h"

static int create_kv(struct lode_session *s, struct lode_kv_pool *pool, struct lode_error *err) {
    struct lode_kv_layer *layers;
    if (pool)
        return lode_kv_open(&s->kv, pool, err);
    int rc = lode_session_layers(s->model, &s->opts, &layers, err);
    if (rc == 0)
        rc = lode_kv_create(&s->kv, layers, s->model->n_kept, s->ctx, s->workers->batch,
                            s->workers->memory, err);
    lode_free(layers);
    return rc;
}

static int create_state(struct lode_session *s, struct lode_error *err) {
    const uint32_t n = s->model->n_kept;
    return lode_state_block(s->model->state, n)
               ? lode_state_create(&s->state, s->model->state, n, s->workers->memory, err)
               : 0;
}

static int create_ropes(struct lode_session *s, struct lode_error *err) {
    const struct lode_hparams *hp = &s->model->hp;
    for (uint32_t i = 0; i < hp->n_ropes; i++) {
        s->ropes[i].freq = LODE_NEW_ARRAY(double, hp->ropes[i].n_pairs);
        if (!s->ropes[i].freq)
            return lode_fail_nomem(err, "rotary table");
        lode_rope_fill(&s->ropes[i], &hp->ropes[i], s->ctx);
    }
    return 0;
}

static int get_workers(struct lode_session *s, struct lode_error *err) {
    LODE_TRY(lode_session_admit(s->model, &s->opts, &s->memory, err));
    s->ctx = s->memory.ctx;
    if (!s->opts.with)
        return lode_workers_create(&s->workers, s->model, lode_session_batch(&s->opts, s->ctx),
                                   s->opts.threads, err);
    if (s->opts.with->model != s->model)
        return lode_fail(err, LODE_ERR_ARG, "with", "the session is of another model");
    s->workers = lode_workers_share(s->opts.with->workers);
    return 0;
}

static int create_rest(struct lode_session *s, struct lode_kv_pool *pool, struct lode_error *err) {
    s->tokens = LODE_NEW_ARRAY(int32_t, s->ctx);
    if (!s->model->arch->encoder)
        s->logits = LODE_NEW_ARRAY(float, s->model->hp.n_vocab);
    if (!s->tokens || (!s->logits && !s->model->arch->encoder))
        return lode_fail_nomem(err, "session");
    LODE_TRY(create_ropes(s, err));
    LODE_TRY(create_state(s, err));
    return create_kv(s, pool, err);
}

int lode_session_open(struct lode_session **out, struct lode_model *m,
                      const struct lode_session_opts *opts, struct lode_error *err) {
    *out = NULL;
    if (!m->store)
        return lode_fail(err, LODE_ERR_ARG, m->info.path, "only the vocabulary was loaded");
    if (opts && opts->batch > LODE_MAX_BATCH)
        return lode_fail(err, LODE_ERR_ARG, "-b", "%u; 1 to %d expected", opts->batch, LODE_MAX_BATCH);
    struct lode_session *s = LODE_NEW(struct lode_session);
    if (!s)
        return lode_fail_nomem(err, "session");
    if (opts)
        s->opts = *opts;
    s->model = m;
    int rc = get_workers(s, err);
    if (rc == 0)
        rc = create_rest(s, NULL, err);
    if (rc < 0)
        lode_session_free(s);
    else
        *out = s;
    return rc;
}

int lode_session_open_in(struct lode_session **out, struct lode_workers *w,
                         struct lode_kv_pool *pool, const struct lode_session_opts *opts,
                         struct lode_error *err) {
    *out = NULL;
    struct lode_session *s = LODE_NEW(struct lode_session);
    if (!s)
        return lode_fail_nomem(err, "session");
    s->opts = *opts;
    s->model = w->model;
    s->workers = lode_workers_share(w);
    s->ctx = s->memory.ctx = opts->ctx;
    const int rc = create_rest(s, pool, err);
    if (rc < 0)
        lode_session_free(s);
    else
        *out = s;
    return rc;
}

int lode_session_create(struct lode_session **out, struct lode_model *m,
                        const struct lode_session_opts *opts, struct lode_error *err) {
    *out = NULL;
    if (m->store && (m->arch->encoder || m->hp.both_ways))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->info.path,
                         "%s models give vectors, not next tokens: use lode embed", m->info.arch);
    return lode_session_open(out, m, opts, err);
}

void lode_session_free(struct lode_session *s) {
    if (!s)
        return;
    lode_flight_leave(s);
    lode_kv_free(s->kv); /* before the workers, whose memory they have */
    lode_state_free(s->state);
    lode_workers_release(s->workers);
    for (uint32_t i = 0; i < LODE_MAX_ROPES; i++)
        lode_free(s->ropes[i].freq);
    lode_free(s->tokens);
    lode_free(s->logits);
    lode_free(s);
}

/* ---- steps ---- */

/* What a step is for: logits (fn may be NULL), or rows of a stage. */
struct purpose {
    enum lode_want want;
    lode_logits_fn *fn;
    const uint32_t *from;      /* of each feed, the first row of each_fn; NULL: want */
    lode_feed_logits_fn *each;
    enum lode_stage stage; /* 0: logits */
    lode_rows_fn *rows;
    const uint32_t *second; /* of each feed, see lode_segment; NULL: no pairs */
    void *user;
};

struct running { /* one step, as its callbacks see it */
    const struct lode_feed *feeds;
    const struct lode_step *step;
    const struct purpose *purpose;
};

static size_t feed_of(const struct running *r, uint32_t row, uint32_t *pos) {
    size_t i = 0;
    const struct lode_segment *s = r->step->segments;
    while (row >= s[i].first_row + s[i].n_rows)
        i++;
    *pos = s[i].pos + (row - s[i].first_row);
    return i;
}

static int deliver(void *user, uint32_t i, const float *logits, const struct lode_best *best, uint32_t n_best) {
    const struct running *r = user;
    uint32_t pos;
    const size_t k = feed_of(r, r->step->out_rows[i], &pos);
    if (r->purpose->stage)
        return r->purpose->rows(r->purpose->user, k, logits);
    const struct lode_feed *feed = &r->feeds[k];
    struct lode_session *s = feed->session;
    if (pos == s->length + feed->n - 1) { /* the last row */
        if (logits)
            memcpy(s->logits, logits, s->model->hp.n_vocab * sizeof *logits);
        else
            memcpy(s->best, best, n_best * sizeof *best);
        s->n_best = logits ? 0 : n_best;
        s->has_logits = true;
    }
    if (r->purpose->each)
        return pos >= s->length + r->purpose->from[k] ? r->purpose->each(r->purpose->user, k, pos, logits) : 0;
    return r->purpose->fn ? r->purpose->fn(r->purpose->user, pos, logits) : 0;
}

static void trace(void *user, uint32_t layer, const struct lode_step *step, const float *x,
                  size_t stride, bool out_rows_only) {
    const struct running *r = user;
    const uint32_t n = out_rows_only ? step->n_out : step->n_rows;
    lode_alloc_forbid(false); /* the caller's function may do as it likes */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos;
        const size_t k = feed_of(r, out_rows_only ? step->out_rows[i] : i, &pos);
        const struct lode_session *s = r->feeds[k].session;
        if (s->opts.trace)
            s->opts.trace(s->opts.trace_user, layer, pos,
                          (const float *)((const char *)x + i * stride), s->model->hp.d_model);
    }
    lode_alloc_forbid(true);
}

int lode_feeds_extend(const struct lode_feed *feeds, size_t n_feeds, uint32_t past, struct lode_error *err) {
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < n_feeds; i++)
        rc = lode_kv_extend(feeds[i].session->kv, feeds[i].session->length + past, (uint32_t)feeds[i].n, err);
    for (size_t i = 0; rc < 0 && i < n_feeds; i++)
        lode_kv_truncate(feeds[i].session->kv, feeds[i].session->length + past);
    return rc;
}

void lode_feed_add(struct lode_workers *w, struct lode_step *step, const struct lode_feed *f, uint32_t past,
                   uint32_t second) {
    const struct lode_session *s = f->session;
    const uint32_t n = (uint32_t)f->n;
    w->segments[step->n_segments++] = (struct lode_segment){.kv = s->kv,
                                                            .state = s->state,
                                                            .ropes = s->ropes,
                                                            .first_row = step->n_rows,
                                                            .n_rows = n,
                                                            .pos = s->length + past,
                                                            .second = second};
    if (s->state)
        lode_state_begin(s->state, s->length + past, n);
    memcpy(w->tokens + step->n_rows, f->tokens, n * sizeof *w->tokens);
    step->n_rows += n;
}

void lode_feeds_commit(const struct lode_feed *feeds, size_t n_feeds) {
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        if (s->tokens + s->length != feeds[i].tokens)
            memcpy(s->tokens + s->length, feeds[i].tokens, feeds[i].n * sizeof *s->tokens);
        s->length += (uint32_t)feeds[i].n;
        if (s->state)
            lode_state_commit(s->state);
    }
}

static void routes(void *user, uint32_t layer, const struct lode_step *step, const float *pairs,
                   size_t stride, uint32_t n_used, bool out_rows_only) {
    const struct running *r = user;
    const uint32_t n = out_rows_only ? step->n_out : step->n_rows;
    uint32_t experts[LODE_MAX_USED];
    float weights[LODE_MAX_USED];
    lode_alloc_forbid(false); /* the caller's function may do as it likes */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos;
        const struct lode_session *s =
            r->feeds[feed_of(r, out_rows_only ? step->out_rows[i] : i, &pos)].session;
        const float *row = (const float *)((const char *)pairs + i * stride);
        for (uint32_t k = 0; k < n_used; k++) {
            memcpy(&experts[k], &row[2 * k], sizeof experts[k]);
            weights[k] = row[2 * k + 1];
        }
        if (s->opts.routes)
            s->opts.routes(s->opts.routes_user, layer, pos, experts, weights, n_used);
    }
    lode_alloc_forbid(true);
}

static void guesses(void *user, uint32_t layer, bool late, const struct lode_step *step, uint32_t row,
                    const uint32_t *experts, uint32_t n) {
    const struct running *r = user;
    uint32_t pos;
    const struct lode_session *s = r->feeds[feed_of(r, row, &pos)].session;
    (void)step;
    lode_alloc_forbid(false); /* the caller's function may do as it likes */
    if (s->opts.guesses)
        s->opts.guesses(s->opts.routes_user, layer, pos, late, experts, n);
    lode_alloc_forbid(true);
}

/* A step whose rows the host reads. */
static int run_read(const struct lode_feed *feeds, size_t n_feeds, const struct purpose *purpose,
                    struct lode_error *err) {
    struct lode_workers *w = feeds[0].session->workers;
    struct lode_step step = {.segments = w->segments, .tokens = w->tokens, .out_rows = w->out_rows};
    lode_flight_drop(w);
    LODE_TRY(lode_feeds_extend(feeds, n_feeds, 0, err));
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        const uint32_t n = (uint32_t)feeds[i].n;
        uint32_t first = purpose->want == LODE_WANT_LAST ? n - 1 : 0;
        uint32_t n_out = purpose->want == LODE_WANT_ALL ? n : purpose->want != LODE_WANT_NONE;
        if (purpose->from) {
            first = purpose->from[i] < n ? purpose->from[i] : n - 1;
            n_out = n - first;
        }
        for (uint32_t k = 0; k < n_out; k++) {
            w->wants[step.n_out] = purpose->want == LODE_WANT_LAST && !purpose->from && !purpose->fn ? s->want : 0;
            w->out_rows[step.n_out++] = step.n_rows + first + k;
        }
        lode_feed_add(w, &step, &feeds[i], 0, purpose->second ? purpose->second[i] : n);
        s->has_logits = s->has_drawn = false;
        if (s->opts.trace)
            step.trace = trace;
        if (s->opts.routes)
            step.routes = routes;
        if (s->opts.guesses)
            step.guesses = guesses;
    }
    struct running r = {feeds, &step, purpose};
    step.trace_user = &r;
    const struct lode_session_opts *o = &feeds[0].session->opts;
    const int rc = lode_workers_run(w, purpose->stage ? purpose->stage : LODE_HEAD, &step, deliver,
                                    &r, o->cancel, o->cancel_user, err);
    for (size_t i = 0; rc < 0 && i < n_feeds; i++) {
        lode_kv_truncate(feeds[i].session->kv, feeds[i].session->length);
        feeds[i].session->has_logits = false;
    }
    return rc;
}

/* All feeds share their workers and fit its batch; their sessions can resume where they are. */
static int run_step(const struct lode_feed *feeds, size_t n_feeds, const struct purpose *purpose,
                    struct lode_error *err) {
    const struct lode_session_opts *o = &feeds[0].session->opts;
    const uint32_t pos = feeds[0].session->length;
    const bool last = purpose->want == LODE_WANT_LAST && !purpose->from && !purpose->fn && !purpose->stage;
    uint32_t n = 0;
    LODE_TRY(last && lode_flight_can(feeds, n_feeds) ? lode_flight_step(feeds, n_feeds, err)
                                                     : run_read(feeds, n_feeds, purpose, err));
    lode_feeds_commit(feeds, n_feeds);
    for (size_t i = 0; i < n_feeds; i++)
        n += (uint32_t)feeds[i].n;
    if (o->stepped)
        o->stepped(o->stepped_user, n, (uint32_t)n_feeds, pos);
    return 0;
}

uint32_t lode_session_rewind(struct lode_session *s, uint32_t n) {
    uint32_t from = n;
    lode_session_truncate(s, n, NULL);
    if (!lode_kv_can_resume(s->kv, n) || (s->state && !lode_state_at(s->state, n))) {
        from = s->state ? lode_state_rewind(s->state, n) : 0;
        if (!lode_kv_can_resume(s->kv, from))
            from = s->state ? lode_state_rewind(s->state, 0) : 0;
        lode_kv_truncate(s->kv, from);
    }
    s->length = from;
    return from;
}

/* Where sliding windows have forgotten what is needed to go on from here, or a recurrent state has
 * gone past (after a rewind or a failed step), tokens are evaluated again: from the state's last
 * checkpoint on, or all. */
static int make_resumable(struct lode_session *s, struct lode_error *err) {
    const uint32_t n = s->length;
    if (lode_kv_can_resume(s->kv, n) && (!s->state || lode_state_at(s->state, n)))
        return 0;
    lode_session_rewind(s, n);
    int rc = 0;
    while (rc == 0 && s->length < n) {
        const uint32_t left = n - s->length;
        const struct lode_feed f = {s, s->tokens + s->length,
                                    left < s->workers->batch ? left : s->workers->batch};
        rc = run_step(&f, 1, &(struct purpose){.want = LODE_WANT_NONE}, err);
    }
    s->length = n; /* after a failure: still the timeline, to be tried again */
    return rc;
}

static int check_feed(const struct lode_session *s, const int32_t *tokens, size_t n,
                      struct lode_error *err) {
    if (n == 0)
        return lode_fail(err, LODE_ERR_ARG, "tokens", "none given");
    if (n > s->ctx - s->length)
        return lode_fail(err, LODE_ERR_LIMIT, "context",
                         "%zu tokens do not fit: the context is %u and %u are used; give a larger "
                         "one with -c (the model was trained for %u) or a shorter prompt",
                         n, s->ctx, s->length, s->model->hp.ctx_train);
    for (size_t i = 0; i < n; i++)
        if (tokens[i] < 0 || (uint32_t)tokens[i] >= s->model->hp.n_vocab)
            return lode_fail(err, LODE_ERR_ARG, "tokens",
                             "number %zu is %d; the vocabulary has 0 to %u", i, tokens[i],
                             s->model->hp.n_vocab - 1);
    return 0;
}

static int eval(struct lode_session *s, const int32_t *tokens, size_t n, lode_logits_fn *fn,
                void *user, struct lode_error *err) {
    LODE_TRY(check_feed(s, tokens, n, err));
    LODE_TRY(make_resumable(s, err));
    const uint32_t start = s->length;
    for (size_t i = 0; i < n;) {
        const size_t part = n - i < s->workers->batch ? n - i : s->workers->batch;
        const struct lode_feed f = {s, tokens + i, part};
        const enum lode_want want = fn              ? LODE_WANT_ALL
                                    : i + part == n ? LODE_WANT_LAST
                                                    : LODE_WANT_NONE;
        const int rc = run_step(&f, 1, &(struct purpose){.want = want, .fn = fn, .user = user}, err);
        if (rc < 0) {
            lode_session_truncate(s, start, NULL);
            return rc;
        }
        i += part;
    }
    return 0;
}

int lode_session_eval(struct lode_session *s, const int32_t *tokens, size_t n,
                      struct lode_error *err) {
    return eval(s, tokens, n, NULL, NULL, err);
}

int lode_session_eval_each(struct lode_session *s, const int32_t *tokens, size_t n,
                           lode_logits_fn *fn, void *user, struct lode_error *err) {
    return eval(s, tokens, n, fn, user, err);
}

/* One step over all feeds. */
static int step(const struct lode_feed *feeds, size_t n_feeds, const struct purpose *purpose,
                struct lode_error *err) {
    size_t total = 0;
    for (size_t i = 0; i < n_feeds; i++) {
        struct lode_session *s = feeds[i].session;
        LODE_TRY(check_feed(s, feeds[i].tokens, feeds[i].n, err));
        if (s->workers != feeds[0].session->workers)
            return lode_fail(err, LODE_ERR_ARG, "feeds",
                             "sessions of one step must share workers (lode_session_opts.with)");
        for (size_t j = 0; j < i; j++)
            if (feeds[j].session == s)
                return lode_fail(err, LODE_ERR_ARG, "feeds", "a session is fed twice");
        total += feeds[i].n;
    }
    if (total == 0)
        return 0;
    if (total > feeds[0].session->workers->batch)
        return lode_fail(err, LODE_ERR_LIMIT, "-b", "%zu tokens in one step; at most %u", total,
                         feeds[0].session->workers->batch);
    for (size_t i = 0; i < n_feeds; i++)
        LODE_TRY(make_resumable(feeds[i].session, err));
    return run_step(feeds, n_feeds, purpose, err);
}

int lode_session_step(const struct lode_feed *feeds, size_t n_feeds, struct lode_error *err) {
    return step(feeds, n_feeds, &(struct purpose){.want = LODE_WANT_LAST}, err);
}

int lode_session_step_from(const struct lode_feed *feeds, const uint32_t *from, size_t n_feeds,
                           lode_feed_logits_fn *fn, void *user, struct lode_error *err) {
    return step(feeds, n_feeds, &(struct purpose){.from = from, .each = fn, .user = user}, err);
}

int lode_session_rows(const struct lode_feed *feeds, const uint32_t *second, size_t n_feeds,
                      enum lode_stage stage, enum lode_want want, lode_rows_fn *fn, void *user,
                      struct lode_error *err) {
    return step(feeds, n_feeds,
                &(struct purpose){.want = want, .stage = stage, .rows = fn, .second = second, .user = user},
                err);
}

int lode_session_truncate(struct lode_session *s, size_t n, struct lode_error *err) {
    if (n > s->length)
        return lode_fail(err, LODE_ERR_ARG, "truncate", "to %zu tokens; there are %u", n,
                         s->length);
    lode_flight_leave(s);
    lode_kv_truncate(s->kv, (uint32_t)n);
    if (s->state)
        lode_state_truncate(s->state, (uint32_t)n);
    s->length = (uint32_t)n;
    s->has_logits = s->has_drawn = false;
    return 0;
}

int lode_session_sync(struct lode_session *s, const int32_t *tokens, size_t n, size_t *reused,
                      struct lode_error *err) {
    size_t same = 0;
    while (same < n && same < s->length && s->tokens[same] == tokens[same])
        same++;
    if (n > 0 && same == n)
        same--; /* logits exist after an evaluated token only */
    if (reused)
        *reused = same;
    if (n > s->ctx) /* before anything is forgotten */
        return lode_fail(err, LODE_ERR_LIMIT, "context",
                         "%zu tokens do not fit the context of %u; give a larger one with -c (the "
                         "model was trained for %u) or a shorter prompt",
                         n, s->ctx, s->model->hp.ctx_train);
    LODE_TRY(lode_session_truncate(s, same, err));
    return n ? lode_session_eval(s, tokens + same, n - same, err) : 0;
}

/* ---- timelines that move (timeline.h) ---- */

struct lode_kv *lode_session_kv(struct lode_session *s) { return s->kv; }
struct lode_state *lode_session_state(struct lode_session *s) { return s->state; }
const struct lode_rope *lode_session_ropes(const struct lode_session *s) { return s->ropes; }

void lode_session_place(struct lode_session *s, const int32_t *tokens, uint32_t n) {
    memcpy(s->tokens, tokens, n * sizeof *tokens);
    s->length = n;
    s->has_logits = s->has_drawn = false;
}

void lode_session_fork(struct lode_session *s, struct lode_session *src) {
    lode_flight_leave(src);
    lode_kv_fork(s->kv, src->kv);
    if (s->state)
        lode_state_fork(s->state, src->state);
    lode_session_place(s, src->tokens, src->length);
    memcpy(s->logits, src->logits, s->model->hp.n_vocab * sizeof *s->logits);
    memcpy(s->best, src->best, sizeof s->best);
    s->n_best = src->n_best;
    s->has_logits = src->has_logits;
    s->drawn = src->drawn;
    s->has_drawn = src->has_drawn;
}

/* ---- looking ---- */

const float *lode_session_logits(const struct lode_session *s) {
    return s->has_logits && !s->n_best ? s->logits : NULL;
}
void lode_session_want(struct lode_session *s, uint32_t n) {
    s->want = n < LODE_BEST_MAX ? n : LODE_BEST_MAX;
    s->draws = false;
}
void lode_session_draw(struct lode_session *s, const struct lode_sampler *sampler, bool ahead) {
    struct lode_draw d;
    lode_session_want(s, lode_sampler_wants(sampler));
    s->draws = lode_sampler_draw(sampler, &d);
    s->ahead = ahead;
    if (!s->draws || memcmp(&d, &s->draw, sizeof d) != 0 || s->seed != sampler->o.seed)
        lode_flight_leave(s); /* what is under way was for another */
    s->draw = d;
    s->seed = sampler->o.seed;
}
bool lode_session_drawn(const struct lode_session *s, int32_t *id) {
    *id = s->has_drawn ? s->drawn : -1;
    return s->has_drawn;
}
int32_t lode_session_sample(const struct lode_session *s, struct lode_sampler *sampler) {
    if (s->has_drawn)
        return s->drawn;
    return s->n_best ? lode_sampler_next_best(sampler, s->best, s->n_best, s->length)
                     : lode_sampler_next(sampler, s->logits, s->length);
}
const struct lode_best *lode_session_best(const struct lode_session *s, size_t *n) {
    *n = s->has_logits ? s->n_best : 0;
    return *n ? s->best : NULL;
}
size_t lode_session_length(const struct lode_session *s) { return s->length; }
const int32_t *lode_session_tokens(const struct lode_session *s) { return s->tokens; }
uint32_t lode_session_ctx(const struct lode_session *s) { return s->ctx; }
uint32_t lode_session_most(const struct lode_session *s) { return s->workers->batch; }
uint32_t lode_session_threads(const struct lode_session *s) {
    return s->workers->threads;
}

const struct lode_memory_plan *lode_session_memory(const struct lode_session *s) {
    return &s->memory;
}
