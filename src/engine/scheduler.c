/* scheduler.c - see lode/scheduler.h.
 *
 * One mutex guards the queue, the slots' assignments and the rings of tokens; the thread holds it
 * between steps and not during them.  What a step reads of a request (prompt, sampler) belongs to
 * the thread from the moment it is given a slot.
 */
#include "lode/scheduler.h"

#include "base/alloc.h"
#include "engine/rows.h"
#include "lode/plan.h"
#include "lode/tokenizer.h"
#include "model/model.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

enum {
    DEFAULT_SLOTS = 4,
    MAX_SLOTS = 1024,
    DEFAULT_QUEUE = 64,
    DEFAULT_CHUNK = 64,
    RING = 64, /* tokens that wait for their reader before a request pauses */
};

enum state { QUEUED, RUNNING, DONE };

struct lode_generation {
    struct lode_scheduler *s;
    struct lode_generation *next; /* in the queue */
    struct lode_sampler *sampler; /* owned */
    int32_t *prompt;              /* owned; (n_prompt) */
    size_t n_prompt;
    int64_t max_tokens;
    bool ignore_end, logprobs;
    uint32_t n_top;
    struct lode_generation_guide guide; /* owned; next NULL: there is none */
    pthread_cond_t moved; /* a token came, or the end */

    enum state state;
    bool abandoned; /* its owner is gone: whoever finishes it frees it */
    int result;     /* once DONE: a lode_generation_result, or an error, and then err */
    struct lode_error err;
    struct lode_generation_token ring[RING];
    size_t first, n_ring;
    size_t n_read, n_reused, n_generated;
    double queued, started, answered, ended; /* clock */
};

struct slot {
    struct lode_session *session;
    struct lode_generation *g; /* NULL: free */
    int32_t pending;           /* the token to feed next, once the prompt is read */
    uint64_t used;             /* when, in steps */
};

struct lode_scheduler {
    struct lode_model *model;
    const struct lode_tokenizer *tokenizer;
    struct slot *slots; /* (n_slots) */
    struct lode_feed *feeds; /* (n_slots) */
    struct slot **fed;       /* (n_slots): the slot of each feed */
    uint32_t n_slots, chunk, max_queue, ctx, batch;
    pthread_t thread;
    bool has_thread, has_lock, stop;
    pthread_mutex_t lock;
    pthread_cond_t work; /* something to do for the thread */
    struct lode_generation *queue, **queue_end;
    struct lode_scheduler_stats stats;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- requests' lives; all with the lock held ---- */

static void free_guide(const struct lode_generation_guide *guide) {
    if (guide->free)
        guide->free(guide->user);
}

static void destroy(struct lode_generation *g) {
    free_guide(&g->guide);
    lode_sampler_free(g->sampler);
    pthread_cond_destroy(&g->moved);
    lode_free(g->prompt);
    lode_free(g);
}

static void finish(struct lode_generation *g, int result) {
    g->state = DONE;
    g->result = result;
    g->ended = now();
    if (g->abandoned) {
        g->s->stats.cancelled++;
        destroy(g);
        return;
    }
    if (result < 0)
        g->s->stats.failed++;
    else
        g->s->stats.finished++;
    pthread_cond_signal(&g->moved);
}

static void leave(struct slot *slot, int result) {
    struct lode_generation *g = slot->g;
    slot->g = NULL;
    finish(g, result);
}

static size_t common_prefix(const struct lode_session *s, const struct lode_generation *g) {
    const int32_t *have = lode_session_tokens(s);
    const size_t n_have = lode_session_length(s);
    const size_t most = n_have < g->n_prompt - 1 ? n_have : g->n_prompt - 1;
    size_t n = 0;
    while (n < most && have[n] == g->prompt[n])
        n++;
    return n;
}

/* The free slot that has most of the prompt; of equals the one unused for longest. */
static struct slot *choose(struct lode_scheduler *s, const struct lode_generation *g, size_t *common) {
    struct slot *best = NULL;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->g)
            continue;
        const size_t n = common_prefix(slot->session, g);
        if (!best || n > *common || (n == *common && slot->used < best->used)) {
            best = slot;
            *common = n;
        }
    }
    return best;
}

static void admit(struct lode_scheduler *s) {
    size_t common = 0;
    struct slot *slot;
    while (s->queue && (slot = choose(s, s->queue, &common))) {
        struct lode_generation *g = s->queue;
        s->queue = g->next;
        if (!s->queue)
            s->queue_end = &s->queue;
        s->stats.waiting--;
        g->state = RUNNING;
        g->started = now();
        g->n_reused = g->n_read = lode_session_rewind(slot->session, (uint32_t)common);
        s->stats.prompt_tokens += g->n_prompt;
        s->stats.reused_tokens += g->n_reused;
        slot->g = g;
    }
}

/* ---- steps ---- */

static bool reads_prompt(const struct slot *slot) {
    return slot->g && slot->g->n_read < slot->g->n_prompt;
}

static void add_feed(struct lode_scheduler *s, size_t *n_feeds, struct slot *slot,
                     const int32_t *tokens, size_t n) {
    slot->used = s->stats.steps;
    s->fed[*n_feeds] = slot;
    s->feeds[(*n_feeds)++] = (struct lode_feed){slot->session, tokens, n};
}

/* What the next step evaluates: every answer's last token, then prompts, which share what is left
 * evenly, so that a short one does not wait for a long one either. */
static size_t plan_step(struct lode_scheduler *s) {
    size_t n_feeds = 0, n_prompts = 0;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (slot->g && slot->g->abandoned)
            leave(slot, LODE_ERR_CANCELLED);
    }
    admit(s);
    for (uint32_t i = 0; i < s->n_slots; i++) {
        struct slot *slot = &s->slots[i];
        if (reads_prompt(slot))
            n_prompts++;
        else if (slot->g && slot->g->n_ring < RING)
            add_feed(s, &n_feeds, slot, &slot->pending, 1);
    }
    size_t room = s->batch - n_feeds;
    if (n_feeds && room > s->chunk)
        room = s->chunk;
    for (uint32_t i = 0; i < s->n_slots && n_prompts; i++) {
        struct slot *slot = &s->slots[i];
        if (!reads_prompt(slot))
            continue;
        const size_t left = slot->g->n_prompt - slot->g->n_read;
        const size_t share = (room + n_prompts - 1) / n_prompts;
        const size_t n = left < share ? left : share;
        if (n)
            add_feed(s, &n_feeds, slot, slot->g->prompt + slot->g->n_read, n);
        room -= n;
        n_prompts--;
    }
    return n_feeds;
}

struct outcome { /* of one feed */
    int rc;
    struct lode_error err;
};

static int32_t likeliest(const float *logits, uint32_t n, const uint64_t *mask) {
    int32_t best = -1;
    for (uint32_t i = 0; i < n; i++)
        if ((mask[i / 64] >> i % 64 & 1) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    return best;
}

enum { OVER = -1 }; /* no token: the guide says that the answer is complete */

/* A token that the guide takes, or OVER. */
static int choose_guided(const struct lode_generation *g, const float *logits, uint32_t n_vocab,
                         uint64_t position, int32_t *id, struct lode_error *err) {
    for (;;) {
        struct lode_generation_hint hint = {0};
        *id = OVER;
        LODE_TRY(g->guide.next(g->guide.user, &hint, err));
        if (hint.over)
            return 0;
        *id = hint.greedy && hint.mask
                  ? likeliest(logits, n_vocab, hint.mask)
                  : lode_sampler_next_masked(g->sampler, logits, hint.mask, position);
        if (*id < 0)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "grammar",
                             "no token of the model's vocabulary can go on from here (a logit bias "
                             "may ban those that could)");
        const int rc = g->guide.accept(g->guide.user, *id, err);
        if (rc <= 0)
            return rc;
    }
}

/* The token that follows, once the prompt is read; without the lock. */
static int sample(const struct lode_scheduler *s, const struct slot *slot,
                  struct lode_generation_token *t, struct lode_error *err) {
    struct lode_generation *g = slot->g;
    const float *logits = lode_session_logits(slot->session);
    const uint32_t n_vocab = lode_model_info(s->model)->n_vocab;
    const uint64_t position = lode_session_length(slot->session);
    *t = (struct lode_generation_token){0};
    if (g->guide.next)
        LODE_TRY(choose_guided(g, logits, n_vocab, position, &t->id, err));
    else
        t->id = lode_sampler_next(g->sampler, logits, position);
    if (t->id == OVER)
        return 0;
    lode_sampler_accept(g->sampler, t->id);
    if (g->logprobs)
        t->logprob = lode_logprob_of(logits, n_vocab, t->id);
    if (g->n_top)
        t->n_top = (uint32_t)lode_logprob_top(logits, n_vocab, t->top, g->n_top);
    return 0;
}

/* With the lock: what a slot's step has brought. */
static void deliver(struct lode_scheduler *s, struct slot *slot,
                    const struct lode_generation_token *t) {
    struct lode_generation *g = slot->g;
    if (!g->n_generated)
        g->answered = now();
    if (t->id == OVER || (!g->ignore_end && lode_tokenizer_is_end(s->tokenizer, t->id))) {
        leave(slot, LODE_GENERATION_ENDED);
        return;
    }
    g->ring[(g->first + g->n_ring++) % RING] = *t;
    g->n_generated++;
    s->stats.generated_tokens++;
    slot->pending = t->id;
    if ((int64_t)g->n_generated == g->max_tokens)
        leave(slot, LODE_GENERATION_LIMIT);
    else if (lode_session_length(slot->session) == s->ctx)
        leave(slot, LODE_GENERATION_FULL);
    else
        pthread_cond_signal(&g->moved);
}

/* Where a step of many fails (a file that cannot be read), each is tried alone, so that only those
 * fail that must. */
static void run_feeds(struct lode_scheduler *s, size_t n_feeds) {
    struct lode_error err = {0};
    const double start = now();
    const int all = lode_session_step(s->feeds, n_feeds, &err);
    double spent = now() - start;
    for (size_t i = 0; i < n_feeds; i++) {
        struct slot *slot = s->fed[i];
        struct lode_generation *g = slot->g;
        struct lode_generation_token t;
        const size_t n = s->feeds[i].n;
        int rc = all == 0 ? 0 : n_feeds == 1 ? all : lode_session_step(&s->feeds[i], 1, &err);
        const bool reading = g->n_read < g->n_prompt;
        const bool complete = rc == 0 && (!reading || g->n_read + n == g->n_prompt);
        if (complete && g->max_tokens != 0)
            rc = sample(s, slot, &t, &err);
        pthread_mutex_lock(&s->lock);
        s->stats.seconds += spent;
        s->stats.steps += i == 0;
        spent = 0;
        if (rc == 0) {
            s->stats.fed_tokens += n;
            if (reading)
                g->n_read += n;
        }
        if (rc < 0) {
            g->err = err;
            leave(slot, rc);
        } else if (complete && g->max_tokens == 0) {
            leave(slot, LODE_GENERATION_LIMIT);
        } else if (complete) {
            deliver(s, slot, &t);
        }
        pthread_mutex_unlock(&s->lock);
    }
}

static void count_use(struct lode_scheduler *s) {
    s->stats.running = 0;
    s->stats.kv_used = 0;
    for (uint32_t i = 0; i < s->n_slots; i++) {
        s->stats.running += s->slots[i].g != NULL;
        s->stats.kv_used += lode_session_length(s->slots[i].session);
    }
}

static void *work(void *user) {
    struct lode_scheduler *s = user;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        const size_t n_feeds = plan_step(s);
        count_use(s);
        if (n_feeds == 0) {
            pthread_cond_wait(&s->work, &s->lock);
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

/* Without a context given: the model's, as much of it as the slots together leave room for. */
static int choose_ctx(struct lode_scheduler *s, struct lode_session_opts *o, struct lode_error *err) {
    struct lode_memory_plan plan;
    if (o->ctx)
        return 0;
    LODE_TRY(lode_plan_memory(s->model, o, &plan, err));
    o->ctx = plan.ctx;
    while (o->ctx > 512) {
        LODE_TRY(lode_plan_memory(s->model, o, &plan, err));
        if (plan.work + s->n_slots * (plan.kv + plan.state) <= plan.available)
            break;
        o->ctx /= 2;
    }
    return 0;
}

static int create_slots(struct lode_scheduler *s, struct lode_session_opts o,
                        struct lode_error *err) {
    o.with = NULL;
    o.trace = NULL;
    o.cancel = NULL;
    LODE_TRY(choose_ctx(s, &o, err));
    s->slots = LODE_NEW_ARRAY(struct slot, s->n_slots);
    s->feeds = LODE_NEW_ARRAY(struct lode_feed, s->n_slots);
    s->fed = LODE_NEW_ARRAY(struct slot *, s->n_slots);
    if (!s->slots || !s->feeds || !s->fed)
        return lode_fail_nomem(err, "scheduler");
    for (uint32_t i = 0; i < s->n_slots; i++) {
        LODE_TRY(lode_session_create(&s->slots[i].session, s->model, &o, err));
        o.with = s->slots[0].session;
    }
    s->ctx = lode_session_ctx(o.with);
    s->batch = lode_session_most(o.with);
    s->stats.kv_size = (uint64_t)s->ctx * s->n_slots;
    if (s->batch < s->n_slots)
        return lode_fail(err, LODE_ERR_ARG, "-b", "%u tokens a step for %u slots: each needs one",
                         s->batch, s->n_slots);
    return 0;
}

static int start_thread(struct lode_scheduler *s, struct lode_error *err) {
    if (pthread_mutex_init(&s->lock, NULL))
        return lode_fail_nomem(err, "scheduler");
    s->has_lock = true;
    pthread_cond_init(&s->work, NULL);
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
    if (!lode_model_tokenizer(m))
        return lode_fail(err, LODE_ERR_MISSING, lode_model_info(m)->path,
                         "the model has no vocabulary");
    struct lode_scheduler *s = LODE_NEW(struct lode_scheduler);
    if (!s)
        return lode_fail_nomem(err, "scheduler");
    s->model = m;
    s->tokenizer = lode_model_tokenizer(m);
    s->n_slots = o->slots ? o->slots : DEFAULT_SLOTS;
    s->max_queue = o->queue ? o->queue : DEFAULT_QUEUE;
    s->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    s->queue_end = &s->queue;
    int rc = create_slots(s, o->session, err);
    if (rc == 0)
        rc = start_thread(s, err);
    if (rc < 0)
        lode_scheduler_free(s);
    else
        *out = s;
    return rc;
}

void lode_scheduler_free(struct lode_scheduler *s) {
    if (!s)
        return;
    if (s->has_thread) {
        pthread_mutex_lock(&s->lock);
        s->stop = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
    }
    for (uint32_t i = 0; s->slots && i < s->n_slots; i++)
        if (s->slots[i].g) /* abandoned: its owner has freed it */
            destroy(s->slots[i].g);
    for (uint32_t i = s->slots ? s->n_slots : 0; i-- > 0;)
        lode_session_free(s->slots[i].session);
    if (s->has_lock) {
        pthread_mutex_destroy(&s->lock);
        pthread_cond_destroy(&s->work);
    }
    lode_free(s->slots);
    lode_free(s->feeds);
    lode_free(s->fed);
    lode_free(s);
}

uint32_t lode_scheduler_ctx(const struct lode_scheduler *s) { return s->ctx; }
uint32_t lode_scheduler_slots(const struct lode_scheduler *s) { return s->n_slots; }

void lode_scheduler_stats(struct lode_scheduler *s, struct lode_scheduler_stats *out) {
    pthread_mutex_lock(&s->lock);
    *out = s->stats;
    pthread_mutex_unlock(&s->lock);
}

/* ---- one request ---- */

static int check(const struct lode_scheduler *s, const struct lode_generation_opts *o,
                 struct lode_error *err) {
    const uint32_t n_vocab = lode_model_info(s->model)->n_vocab;
    if (o->n_prompt == 0)
        return lode_fail(err, LODE_ERR_ARG, "prompt", "is empty: there is nothing to continue");
    if (o->n_prompt > s->ctx)
        return lode_fail(err, LODE_ERR_LIMIT, "context",
                         "the prompt has %zu tokens, the context holds %u: shorten it, or start with "
                         "a larger context (-c; the model was trained for %u)",
                         o->n_prompt, s->ctx, lode_model_info(s->model)->ctx_train);
    for (size_t i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || (uint32_t)o->prompt[i] >= n_vocab)
            return lode_fail(err, LODE_ERR_ARG, "prompt",
                             "token %zu is %d; the vocabulary has 0 to %u", i, o->prompt[i],
                             n_vocab - 1);
    if (o->n_top > LODE_GENERATION_TOP)
        return lode_fail(err, LODE_ERR_ARG, "top_logprobs", "%u; at most %d", o->n_top,
                         LODE_GENERATION_TOP);
    return 0;
}

static int enqueue(struct lode_scheduler *s, struct lode_generation *g, struct lode_error *err) {
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    /* free slots count: requests that the thread has not yet placed are no queue */
    if (s->stats.waiting >= s->max_queue + (s->n_slots - s->stats.running)) {
        s->stats.refused++;
        rc = lode_fail(err, LODE_ERR_LIMIT, "queue",
                       "%u requests run and %u wait, which is as many as may: try again later",
                       s->stats.running, s->stats.waiting);
    } else {
        g->queued = now();
        *s->queue_end = g;
        s->queue_end = &g->next;
        s->stats.waiting++;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int init_condition(pthread_cond_t *c) {
    pthread_condattr_t a;
    int rc = pthread_condattr_init(&a);
    if (rc)
        return rc;
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    rc = pthread_cond_init(c, &a);
    pthread_condattr_destroy(&a);
    return rc;
}

int lode_generation_start(struct lode_generation **out, struct lode_scheduler *s,
                          const struct lode_generation_opts *o, struct lode_error *err) {
    *out = NULL;
    int rc = check(s, o, err);
    struct lode_generation *g = rc == 0 ? LODE_NEW(struct lode_generation) : NULL;
    if (!g || init_condition(&g->moved)) {
        lode_free(g);
        free_guide(&o->guide);
        return rc < 0 ? rc : lode_fail_nomem(err, "request");
    }
    g->s = s;
    g->guide = o->guide;
    g->n_prompt = o->n_prompt;
    g->max_tokens = o->max_tokens;
    g->ignore_end = o->ignore_end;
    g->logprobs = o->logprobs;
    g->n_top = o->n_top;
    g->prompt = LODE_NEW_ARRAY(int32_t, o->n_prompt);
    rc = g->prompt ? 0 : lode_fail_nomem(err, "request");
    if (rc == 0) {
        memcpy(g->prompt, o->prompt, o->n_prompt * sizeof *g->prompt);
        rc = lode_sampler_create(&g->sampler, lode_model_info(s->model)->n_vocab, &o->sampler, err);
    }
    for (size_t i = 0; rc == 0 && i < o->n_prompt; i++)
        lode_sampler_accept(g->sampler, o->prompt[i]);
    if (rc == 0)
        rc = enqueue(s, g, err);
    if (rc < 0)
        destroy(g);
    else
        *out = g;
    return rc;
}

static struct timespec deadline(int wait_ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += wait_ms / 1000;
    t.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

int lode_generation_next(struct lode_generation *g, struct lode_generation_token *out, int wait_ms,
                         struct lode_error *err) {
    struct lode_scheduler *s = g->s;
    const struct timespec until = deadline(wait_ms < 0 ? 0 : wait_ms);
    int rc = LODE_GENERATION_WAIT, waited = 0;
    pthread_mutex_lock(&s->lock);
    while (!g->n_ring && g->state != DONE && waited != ETIMEDOUT)
        waited = wait_ms < 0 ? pthread_cond_wait(&g->moved, &s->lock)
                             : pthread_cond_timedwait(&g->moved, &s->lock, &until);
    if (g->n_ring) {
        *out = g->ring[g->first];
        g->first = (g->first + 1) % RING;
        if (g->n_ring-- == RING)
            pthread_cond_signal(&s->work);
        rc = LODE_GENERATION_TOKEN;
    } else if (g->state == DONE) {
        rc = g->result;
        if (rc < 0 && err)
            *err = g->err;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

void lode_generation_stats(struct lode_generation *g, struct lode_generation_stats *out) {
    struct lode_scheduler *s = g->s;
    pthread_mutex_lock(&s->lock);
    const double t = g->state == DONE ? g->ended : now();
    const double started = g->started > 0 ? g->started : t;
    const double answered = g->answered > 0 ? g->answered : t;
    *out = (struct lode_generation_stats){
        .n_prompt = g->n_prompt,
        .n_read = g->n_read,
        .n_reused = g->n_reused,
        .n_generated = g->n_generated,
        .queue_seconds = started - g->queued,
        .prompt_seconds = answered - started,
        .answer_seconds = t - answered,
    };
    if (g->state == QUEUED) {
        out->place = 1;
        for (const struct lode_generation *q = s->queue; q != g; q = q->next)
            out->place++;
    }
    pthread_mutex_unlock(&s->lock);
}

/* Takes it out of the queue. */
static void unqueue(struct lode_scheduler *s, struct lode_generation *g) {
    struct lode_generation **at = &s->queue;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    if (s->queue_end == &g->next)
        s->queue_end = at;
    s->stats.waiting--;
}

void lode_generation_free(struct lode_generation *g) {
    if (!g)
        return;
    struct lode_scheduler *s = g->s;
    pthread_mutex_lock(&s->lock);
    if (g->state == QUEUED) {
        unqueue(s, g);
        s->stats.cancelled++;
        destroy(g);
    } else if (g->state == DONE) {
        destroy(g);
    } else {
        g->abandoned = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}
