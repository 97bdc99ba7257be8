/* scheduler.c - see lode/scheduler.h; sched.h says who may touch what. */
#include "engine/sched.h"

#include "base/alloc.h"
#include "engine/memory.h"
#include "engine/rows.h"
#include "lode/tokenizer.h"
#include "model/model.h"

#include <string.h>
#include <time.h>

enum {
    DEFAULT_SLOTS = 4,
    MAX_SLOTS = 1024,
    DEFAULT_QUEUE = 64,
    DEFAULT_CHUNK = 64,
    MAX_STATES = 64, /* copies of recurrent states in the tree */
    RECALL_BYTES = 64 << 20,
    FLUSH_SECONDS = 30, /* for what is still to be written to the disk, at the end */
};
#define DEFAULT_DISK (UINT64_C(16) << 30) /* bytes */

/* ---- steps ---- */

/* With the lock: what a seat's step has brought. */
static void deliver(struct lode_scheduler *s, struct lode_seat *seat,
                    const struct lode_generation_token *t) {
    struct lode_generation *g = seat->g;
    if (!g->n_generated)
        g->answered = lode_clock();
    if (t->id == LODE_CHOOSE_OVER || (!g->ignore_end && lode_tokenizer_is_end(s->tokenizer, t->id))) {
        const int32_t end = t->id == LODE_CHOOSE_OVER ? lode_tokenizer_eos(s->tokenizer) : t->id;
        g->has_end = end >= 0;
        g->tokens[g->n_tokens] = end;
        lode_seat_leave(s, seat, LODE_GENERATION_ENDED);
        return;
    }
    g->ring[(g->first + g->n_ring++) % LODE_SCHED_RING] = *t;
    g->tokens[g->n_tokens++] = t->id;
    g->n_generated++;
    s->stats.generated_tokens++;
    if ((int64_t)g->n_generated == g->max_tokens)
        lode_seat_leave(s, seat, LODE_GENERATION_LIMIT);
    else if (lode_session_length(seat->session) == s->ctx)
        lode_seat_leave(s, seat, LODE_GENERATION_FULL);
    else
        pthread_cond_signal(&g->moved);
}

static bool has_read_all(const struct lode_seat *seat) {
    return lode_session_length(seat->session) == seat->g->n_tokens;
}

/* A seat that has read all it was given goes on by the token that was chosen. */
static void go_on(struct lode_scheduler *s, const struct lode_choice *c) {
    struct lode_seat *seat = c->seat;
    pthread_mutex_lock(&s->lock);
    if (c->rc < 0) {
        seat->g->err = c->err;
        lode_seat_leave(s, seat, c->rc);
    } else if (seat->g->max_tokens == 0) {
        lode_seat_leave(s, seat, LODE_GENERATION_LIMIT);
    } else {
        deliver(s, seat, &c->t);
    }
    pthread_mutex_unlock(&s->lock);
}

static void choose(void *arg, uint32_t i, uint32_t worker) {
    struct lode_scheduler *s = arg;
    struct lode_choice *c = &s->choices[i];
    (void)worker;
    c->rc = lode_choose(s, c->seat, &c->t, &c->err);
}

static bool is_asked_alone(const struct lode_generation *g) {
    return g->guide.next || g->max_tokens == 0;
}

/* After a good step.  Draws share the threads; whoever has a guide is asked in turn, by this thread, and
 * after the others, who need not wait for its mask. */
static void go_on_all(struct lode_scheduler *s, size_t n_fed) {
    uint32_t n = 0;
    for (size_t i = 0; i < n_fed; i++)
        if (has_read_all(s->fed[i]) && !is_asked_alone(s->fed[i]->g))
            s->choices[n++].seat = s->fed[i];
    lode_workers_each(s->workers, choose, s, n);
    for (uint32_t i = 0; i < n; i++)
        go_on(s, &s->choices[i]);
    for (size_t i = 0; i < n_fed; i++) { /* who has gone on has left, or one more to read */
        struct lode_seat *seat = s->fed[i];
        if (!seat->g || !has_read_all(seat) || !is_asked_alone(seat->g))
            continue;
        s->choices[0] = (struct lode_choice){.seat = seat};
        if (seat->g->max_tokens != 0)
            choose(s, 0, 0);
        go_on(s, &s->choices[0]);
    }
}

/* With the lock, after a step that failed (a file that cannot be read).  Where it was of many, each
 * is tried alone, so that only those fail that must; what cannot go on from where it stands is read
 * anew. */
static void take_failure(struct lode_scheduler *s, struct lode_seat *seat, bool alone, int rc,
                         const struct lode_error *err) {
    const uint32_t n = (uint32_t)lode_session_length(seat->session);
    const bool stands = lode_session_rewind(seat->session, n) == n;
    if (alone) {
        seat->g->err = *err;
        lode_seat_leave(s, seat, rc);
        return;
    }
    seat->g->suspect = true;
    if (!stands)
        lode_seat_preempt(s, seat);
}

/* With the lock: what a good step means for the prefixes, and for those who waited for this prompt. */
static size_t take_success(struct lode_scheduler *s, struct lode_seat *seat, size_t n_fed) {
    struct lode_generation *g = seat->g;
    const size_t n = lode_session_length(seat->session);
    g->suspect = false;
    g->n_read = n < g->n_prompt ? n : g->n_prompt;
    g->given_shown = g->given_next;
    lode_seat_publish(s, seat);
    if (n != g->n_prompt || g->n_tokens != n)
        return n_fed;
    lode_seat_save_state(s, seat);
    return lode_seat_fork(s, seat, n_fed);
}

static void count_step(struct lode_scheduler *s, size_t n_feeds, double seconds) {
    uint32_t bucket = 0;
    while ((UINT64_C(2) << bucket) <= n_feeds && bucket + 1 < LODE_SCHEDULER_BATCHES)
        bucket++;
    s->stats.steps++;
    s->stats.seconds += seconds;
    s->stats.batches[bucket]++;
    s->stats.last_batch = (uint32_t)n_feeds;
    for (size_t i = 0; i < n_feeds; i++)
        s->stats.fed_tokens += s->feeds[i].n;
}

/* Asked within a step: nobody wants any of it any more. */
static bool is_unwanted(void *user) {
    const struct lode_scheduler *s = user;
    for (size_t i = 0; i < s->n_fed; i++)
        if (!s->fed[i]->g->abandoned)
            return false;
    return true;
}

static int take_logits(void *user, size_t feed, uint32_t pos, const float *logits) {
    const struct lode_scheduler *s = user;
    if (s->fed[feed]->g->given)
        lode_choose_given(s, s->fed[feed]->g, pos, logits);
    return 0;
}

/* Of prompts whose own tokens are weighed, all logits that say something of one; else the last. */
static int step(struct lode_scheduler *s, size_t n_feeds, struct lode_error *err) {
    bool any = false;
    for (size_t i = 0; i < n_feeds; i++) {
        const struct lode_generation *g = s->fed[i]->g;
        const size_t at = lode_session_length(s->feeds[i].session), n = s->feeds[i].n;
        const bool wants = g->given && g->given_next < g->n_prompt && g->given_next <= at + n;
        s->from[i] = wants ? (uint32_t)(g->given_next - 1 - at) : (uint32_t)n;
        any = any || wants;
        lode_choose_want(s->fed[i]);
    }
    return any ? lode_session_step_from(s->feeds, s->from, n_feeds, take_logits, s, err)
               : lode_session_step(s->feeds, n_feeds, err);
}

static void run_feeds(struct lode_scheduler *s, size_t n_feeds) {
    struct lode_error err = {0};
    const double start = lode_clock();
    s->n_fed = n_feeds;
    const int rc = step(s, n_feeds, &err);
    size_t n = n_feeds;
    pthread_mutex_lock(&s->lock);
    count_step(s, n_feeds, lode_clock() - start);
    for (size_t i = 0; i < n_feeds; i++)
        if (rc < 0)
            take_failure(s, s->fed[i], n_feeds == 1, rc, &err);
        else
            n = take_success(s, s->fed[i], n);
    pthread_mutex_unlock(&s->lock);
    if (rc == 0)
        go_on_all(s, n);
}

static void count_use(struct lode_scheduler *s) {
    const struct lode_kv_group *pages = lode_kv_pool_group(s->pool, 0);
    s->stats.running = 0;
    s->stats.kv_used = 0;
    for (uint32_t i = 0; i < s->n_seats; i++) {
        s->stats.running += s->seats[i].g != NULL;
        s->stats.kv_used += lode_session_length(s->seats[i].session);
    }
    s->stats.pages = pages->n_pages;
    s->stats.free_pages = pages->n_free;
    s->stats.cached_bytes = lode_prefix_bytes(s->prefix);
    s->stats.evictions = lode_prefix_evicted(s->prefix);
    if (s->keeper) {
        struct lode_keeper_stats k;
        lode_keeper_stats(s->keeper, &k);
        s->stats.disk = (struct lode_disk_info){k.disk.bytes, k.disk.entries, k.disk.foreign,
                                                k.disk.corrupt, k.disk.evicted, k.written, k.read,
                                                k.errors};
    }
}

/* Until there is something to do, or somebody's time is over (0: nobody's). */
static void wait_for_work(struct lode_scheduler *s, double until) {
    if (until == 0) {
        pthread_cond_wait(&s->work, &s->lock);
        return;
    }
    const struct timespec t = {(time_t)until, (long)((until - (double)(time_t)until) * 1e9)};
    pthread_cond_timedwait(&s->work, &s->lock, &t);
}

static double next_deadline(struct lode_scheduler *s) {
    double next = lode_queue_expire(s, lode_clock());
    for (uint32_t i = 0; i < s->n_seats; i++) {
        const struct lode_generation *g = s->seats[i].g;
        if (g && g->deadline > 0 && (next == 0 || g->deadline < next))
            next = g->deadline;
    }
    return next;
}

static void *work(void *user) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        const double until = next_deadline(s);
        if (s->forget)
            lode_prefix_clear(s->prefix);
        s->forget = false;
        lode_sched_give(s);
        const size_t n_feeds = lode_batch_form(s);
        if (s->keeper)
            lode_keeper_turn(s->keeper);
        lode_prefix_settle(s->prefix);
        count_use(s);
        if (n_feeds == 0) {
            if (!s->fetching)
                wait_for_work(s, until);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        run_feeds(s, n_feeds);
        pthread_mutex_lock(&s->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- the scheduler ---- */

struct room {
    struct lode_kv_layer *layers; /* owned */
    struct lode_kv_room kv;
    uint64_t pool[LODE_PLACES], available[LODE_PLACES]; /* bytes; what is left for the pool */
    bool fits;                                          /* it is there */
};

static int measure(const struct lode_scheduler *s, struct room *r, struct lode_error *err) {
    LODE_TRY(lode_kv_pool_size(r->layers, s->model->n_kept, &r->kv, r->pool, err));
    r->fits = true;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        r->fits &= r->pool[p] <= r->available[p];
    return 0;
}

/* What is left for keys and values beside buffers and all requests' states. */
static int find_available(const struct lode_scheduler *s, const struct lode_session_opts *o,
                          struct room *r, struct lode_error *err) {
    struct lode_needs n;
    uint64_t left[LODE_PLACES];
    LODE_TRY(lode_session_needs(s->model, s->model->plans, r->layers, o, &r->kv, &n, err));
    lode_places_left(s->model, left);
    for (uint32_t p = 0; p < LODE_PLACES; p++) {
        const uint64_t rest = n.work[p] + s->n_seats * n.state[p];
        r->available[p] = left[p] > rest ? (left[p] - rest) / 16 * 15 : 0;
    }
    return 0;
}

/* A context where none was given: so much of the model's that two requests have it. */
static int choose_ctx(const struct lode_scheduler *s, struct lode_session_opts *o, struct room *r,
                      struct lode_error *err) {
    struct lode_memory_plan plan;
    const bool given = o->ctx != 0;
    LODE_TRY(lode_session_admit(s->model, o, &plan, err));
    for (;;) {
        r->kv.ctx = o->ctx = plan.ctx;
        r->kv.batch = lode_session_batch(o, plan.ctx);
        r->kv.tokens = (uint64_t)plan.ctx * (s->n_seats > 1 ? 2 : 1);
        LODE_TRY(find_available(s, o, r, err));
        LODE_TRY(measure(s, r, err));
        if (given || r->fits || plan.ctx <= 512)
            return 0;
        o->ctx = plan.ctx / 2;
        LODE_TRY(lode_plan_memory(s->model, o, &plan, err));
    }
}

/* How many tokens the pool holds: all contexts, or as much of that as fits. */
static int choose_tokens(const struct lode_scheduler *s, uint64_t wanted, struct room *r,
                         struct lode_error *err) {
    if (wanted && wanted < r->kv.ctx)
        return lode_fail(err, LODE_ERR_ARG, "kv_tokens",
                         "%llu tokens of keys and values for all requests, but one may have %u",
                         (unsigned long long)wanted, r->kv.ctx);
    r->kv.tokens = wanted ? wanted : (uint64_t)r->kv.ctx * s->n_seats;
    LODE_TRY(measure(s, r, err));
    while (!wanted && !r->fits && r->kv.tokens > r->kv.ctx) {
        r->kv.tokens = r->kv.tokens * 7 / 8 > r->kv.ctx ? r->kv.tokens * 7 / 8 : r->kv.ctx;
        LODE_TRY(measure(s, r, err));
    }
    return 0;
}

static uint32_t choose_states(const struct lode_scheduler *s, const struct room *r, uint64_t block) {
    const uint32_t least = LODE_STATES_KEPT(s->n_seats);
    uint64_t room = r->available[LODE_HOST] / 8;
    if (lode_alloc_limit()) { /* a budget was planned with the least, which leaves little else */
        const uint64_t held = lode_alloc_active() + lode_alloc_mapped();
        const uint64_t left = lode_alloc_limit() > held ? (lode_alloc_limit() - held) / 2 : 0;
        room = left < room ? left : room;
    }
    const uint64_t fits = block ? room / block : 0;
    return fits > MAX_STATES ? MAX_STATES : fits < least ? least : (uint32_t)fits;
}

static int create_cache(struct lode_scheduler *s, const struct lode_scheduler_opts *o,
                        struct lode_session_opts *so, struct room *r, struct lode_error *err) {
    const uint64_t block = lode_state_block(s->model->state, s->model->n_kept);
    r->kv.n_seqs = s->n_seats;
    LODE_TRY(lode_session_layers(s->model, so, &r->layers, err));
    LODE_TRY(choose_ctx(s, so, r, err));
    LODE_TRY(choose_tokens(s, o->kv_tokens, r, err));
    LODE_TRY(lode_workers_create(&s->workers, s->model, r->kv.batch, so->threads, err));
    LODE_TRY(lode_kv_pool_create(&s->pool, r->layers, s->model->n_kept, &r->kv,
                                 s->workers->memory, err));
    s->keep = !o->no_cache;
    const struct lode_prefix_opts po = {.pool = s->pool,
                                        .ctx = r->kv.ctx,
                                        .state_block = block,
                                        .max_states = choose_states(s, r, block),
                                        .max_bytes = o->no_cache      ? 0
                                                     : o->cache_bytes ? o->cache_bytes
                                                                      : UINT64_MAX};
    LODE_TRY(lode_prefix_create(&s->prefix, &po, err));
    s->ctx = r->kv.ctx;
    s->batch = s->workers->batch;
    s->stats.kv_size = (uint64_t)lode_kv_pool_group(s->pool, 0)->n_pages * LODE_KV_PAGE;
    s->stats.pages = s->stats.free_pages = lode_kv_pool_group(s->pool, 0)->n_pages;
    if (s->batch < s->n_seats)
        return lode_fail(err, LODE_ERR_ARG, "-b", "%u tokens a step for %u slots: each needs one",
                         s->batch, s->n_seats);
    return 0;
}

static int create_seats(struct lode_scheduler *s, const struct lode_session_opts *so,
                        struct lode_error *err) {
    s->seats = LODE_NEW_ARRAY(struct lode_seat, s->n_seats);
    s->feeds = LODE_NEW_ARRAY(struct lode_feed, s->n_seats);
    s->fed = LODE_NEW_ARRAY(struct lode_seat *, s->n_seats);
    s->order = LODE_NEW_ARRAY(struct lode_seat *, s->n_seats);
    s->choices = LODE_NEW_ARRAY(struct lode_choice, s->n_seats);
    s->from = LODE_NEW_ARRAY(uint32_t, s->n_seats);
    s->reserved = LODE_NEW_ARRAY(uint32_t, lode_kv_pool_groups(s->pool));
    if (!s->seats || !s->feeds || !s->fed || !s->order || !s->from || !s->reserved)
        return lode_fail_nomem(err, "scheduler");
    for (uint32_t i = 0; i < s->n_seats; i++) {
        LODE_TRY(lode_session_open_in(&s->seats[i].session, s->workers, s->pool, so, err));
        s->seats[i].at = lode_prefix_root(s->prefix);
    }
    return 0;
}

static void wake(void *user) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static int create_keeper(struct lode_scheduler *s, const struct lode_scheduler_opts *o,
                         struct lode_error *err) {
    struct lode_keeper_opts k = {.path = o->cache_dir,
                                 .max_bytes = o->cache_dir_bytes ? o->cache_dir_bytes : DEFAULT_DISK,
                                 .prefix = s->prefix,
                                 .pool = s->pool,
                                 .state_block = lode_state_block(s->model->state, s->model->n_kept),
                                 .wake = wake,
                                 .user = s};
    if (!o->cache_dir || o->no_cache)
        return 0;
    LODE_TRY(lode_disk_identity(s->model, s->pool, lode_session_ropes(s->seats[0].session),
                                &k.identity, err));
    return lode_keeper_create(&s->keeper, &k, err);
}

static int init_lock(struct lode_scheduler *s, struct lode_error *err) {
    pthread_condattr_t a;
    if (pthread_mutex_init(&s->lock, NULL))
        return lode_fail_nomem(err, "scheduler");
    s->has_lock = true;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&s->work, &a);
    pthread_condattr_destroy(&a);
    return 0;
}

static int start_thread(struct lode_scheduler *s, struct lode_error *err) {
    const int rc = pthread_create(&s->thread, NULL, work, s);
    if (rc)
        return lode_fail(err, LODE_ERR_LIMIT, "scheduler", "cannot start a thread: %s", strerror(rc));
    s->has_thread = true;
    return 0;
}

int lode_scheduler_create(struct lode_scheduler **out, struct lode_model *m,
                          const struct lode_scheduler_opts *opts, struct lode_error *err) {
    static const struct lode_scheduler_opts defaults;
    const struct lode_scheduler_opts *o = opts ? opts : &defaults;
    *out = NULL;
    if (o->slots > MAX_SLOTS)
        return lode_fail(err, LODE_ERR_ARG, "slots", "%u; 1 to %d expected", o->slots, MAX_SLOTS);
    if (!m->store)
        return lode_fail(err, LODE_ERR_ARG, m->info.path, "only the vocabulary was loaded");
    if (m->arch->encoder || m->hp.both_ways)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->info.path,
                         "%s models give vectors, not next tokens: use lode embed", m->info.arch);
    if (!m->tokenizer)
        return lode_fail(err, LODE_ERR_MISSING, m->info.path, "the model has no vocabulary");
    if (o->session.batch > LODE_MAX_BATCH)
        return lode_fail(err, LODE_ERR_ARG, "-b", "%u; 1 to %d expected", o->session.batch,
                         LODE_MAX_BATCH);
    struct lode_scheduler *s = LODE_NEW(struct lode_scheduler);
    if (!s)
        return lode_fail_nomem(err, "scheduler");
    s->model = m;
    s->tokenizer = m->tokenizer;
    s->n_seats = o->slots ? o->slots : DEFAULT_SLOTS;
    s->max_queue = o->queue ? o->queue : DEFAULT_QUEUE;
    s->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    struct lode_session_opts so = o->session;
    so.with = NULL;
    so.trace = NULL;
    so.routes = NULL;
    so.guesses = NULL;
    so.cancel = is_unwanted;
    so.cancel_user = s;
    struct room room = {0};
    int rc = lode_recall_create(&s->recall, o->no_cache ? 0 : RECALL_BYTES, err);
    if (rc == 0)
        rc = create_cache(s, o, &so, &room, err);
    lode_free(room.layers);
    if (rc == 0)
        rc = init_lock(s, err);
    if (rc == 0)
        rc = create_seats(s, &so, err);
    if (rc == 0)
        rc = create_keeper(s, o, err);
    if (rc == 0)
        rc = start_thread(s, err);
    if (rc == 0)
        lode_sched_list(s);
    if (rc < 0)
        lode_scheduler_free(s);
    else
        *out = s;
    return rc;
}

void lode_scheduler_free(struct lode_scheduler *s) {
    if (!s)
        return;
    lode_sched_unlist(s);
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    lode_keeper_free(s->keeper, FLUSH_SECONDS); /* while the tree is there */
    for (uint32_t i = 0; s->seats && i < s->n_seats; i++) {
        if (s->seats[i].g) /* abandoned: its owner has freed it */
            lode_sched_destroy(s->seats[i].g);
        lode_session_free(s->seats[i].session);
    }
    lode_recall_free(s->recall);
    lode_prefix_free(s->prefix);
    lode_kv_pool_release(s->pool); /* before the workers, whose memory it has */
    lode_workers_release(s->workers);
    if (s->has_lock) {
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->work);
    }
    lode_free(s->seats);
    lode_free(s->feeds);
    lode_free(s->fed);
    lode_free(s->order);
    lode_free(s->choices);
    lode_free(s->from);
    lode_free(s->reserved);
    lode_free(s);
}

uint32_t lode_scheduler_ctx(const struct lode_scheduler *s) { return s ? s->ctx : 0; }
uint32_t lode_scheduler_slots(const struct lode_scheduler *s) { return s ? s->n_seats : 0; }

void lode_scheduler_stats(struct lode_scheduler *s, struct lode_scheduler_stats *out) {
    *out = (struct lode_scheduler_stats){0};
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
    out->recall_bytes = lode_recall_bytes(s->recall);
    struct lode_profile *p = LODE_NEW(struct lode_profile); /* large; without it nothing is said of experts */
    if (!p)
        return;
    lode_model_profile(s->model, p);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const struct lode_profile_layer *layer = &p->layers[l];
        out->expert_uses += layer->uses;
        out->expert_hits += layer->hits;
        out->expert_bytes += layer->bytes;
        out->gpu_expert_uses += layer->gpu_uses;
        out->gpu_expert_hits += layer->gpu_hits;
        out->gpu_expert_bytes += layer->gpu_bytes;
    }
    lode_free(p);
}

void lode_scheduler_forget(struct lode_scheduler *s) {
    pthread_mutex_lock(&s->lock);
    s->forget = true;
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
}

bool lode_scheduler_slot(struct lode_scheduler *s, uint32_t slot, struct lode_slot_info *out) {
    *out = (struct lode_slot_info){0};
    if (slot >= s->n_seats)
        return false;
    pthread_mutex_lock(&s->lock);
    const struct lode_generation *g = s->seats[slot].g;
    if (g)
        *out = (struct lode_slot_info){.running = true,
                                       .number = g->number,
                                       .priority = g->priority,
                                       .n_prompt = g->n_prompt,
                                       .n_read = g->n_read,
                                       .n_reused = g->n_reused,
                                       .n_generated = g->n_generated,
                                       .n_preempted = g->n_preempted};
    pthread_mutex_unlock(&s->lock);
    return true;
}
