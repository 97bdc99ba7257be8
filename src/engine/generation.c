/* generation.c - a request, as its owner sees it. */
#include "engine/sched.h"

#include "base/alloc.h"
#include "model/model.h"

#include <errno.h>
#include <string.h>

#define NEVER 1e9 /* seconds that are no deadline, nor a time_t's trouble */

/* ---- its end; with the lock ---- */

static void free_guide(const struct lode_generation_guide *guide) {
    if (guide->free)
        guide->free(guide->user);
}

void lode_sched_destroy(struct lode_generation *g) {
    free_guide(&g->guide);
    lode_sampler_free(g->sampler);
    lode_free(g->given);
    pthread_cond_destroy(&g->moved);
    lode_free(g->tokens);
    lode_free(g);
}

void lode_sched_finish(struct lode_generation *g, int result) {
    g->state = LODE_SCHED_DONE;
    g->result = result;
    g->ended = lode_clock();
    lode_queue_forget(g->s, g);
    if (g->abandoned) {
        g->s->stats.cancelled++;
        lode_sched_destroy(g);
        return;
    }
    if (result < 0)
        g->s->stats.failed++;
    else
        g->s->stats.finished++;
    pthread_cond_signal(&g->moved);
}

/* ---- its beginning ---- */

static int check(const struct lode_scheduler *s, const struct lode_generation_opts *o,
                 struct lode_error *err) {
    const uint32_t n_vocab = s->model->info.n_vocab;
    if (o->n_prompt == 0)
        return lode_fail(err, LODE_ERR_ARG, "prompt", "is empty: there is nothing to continue");
    if (o->n_prompt > s->ctx)
        return lode_fail(err, LODE_ERR_LIMIT, "context",
                         "the prompt has %zu tokens, the context holds %u: shorten it, or start with "
                         "a larger context (-c; the model was trained for %u)",
                         o->n_prompt, s->ctx, s->model->info.ctx_train);
    for (size_t i = 0; i < o->n_prompt; i++)
        if (o->prompt[i] < 0 || (uint32_t)o->prompt[i] >= n_vocab)
            return lode_fail(err, LODE_ERR_ARG, "prompt",
                             "token %zu is %d; the vocabulary has 0 to %u", i, o->prompt[i],
                             n_vocab - 1);
    if (o->n_top > LODE_GENERATION_TOP)
        return lode_fail(err, LODE_ERR_ARG, "top_logprobs", "%u; at most %d", o->n_top,
                         LODE_GENERATION_TOP);
    if (!(o->deadline >= 0))
        return lode_fail(err, LODE_ERR_ARG, "deadline", "%g s; a positive number, or 0 for none",
                         o->deadline);
    if (o->like && (o->like->s != s || o->like->n_prompt != o->n_prompt ||
                    memcmp(o->like->tokens, o->prompt, o->n_prompt * sizeof *o->prompt) != 0))
        return lode_fail(err, LODE_ERR_ARG, "like", "the other request has another prompt");
    return 0;
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

/* Room for the prompt, what may follow (no answer is longer than its context allows), and the token
 * that ends it. */
static size_t room_for(const struct lode_scheduler *s, const struct lode_generation_opts *o) {
    const size_t most = s->ctx + 1 - o->n_prompt;
    return o->n_prompt + 1 +
           (o->max_tokens < 0 || (uint64_t)o->max_tokens > most ? most : (size_t)o->max_tokens);
}

static int fill(struct lode_generation *g, const struct lode_generation_opts *o,
                struct lode_error *err) {
    g->n_prompt = g->n_tokens = o->n_prompt;
    g->max_tokens = o->max_tokens;
    g->ignore_end = o->ignore_end;
    g->logprobs = o->logprobs;
    g->n_top = o->n_top;
    g->priority = o->priority;
    g->client = o->client;
    g->no_cache = o->no_cache;
    g->deadline = o->deadline > 0 && o->deadline < NEVER ? lode_clock() + o->deadline : 0;
    g->room = room_for(g->s, o);
    g->tokens = LODE_NEW_ARRAY(int32_t, g->room);
    g->given_from = g->given_next = g->given_shown = o->prompt_logprobs;
    if (o->prompt_logprobs && o->prompt_logprobs < o->n_prompt)
        g->given = LODE_NEW_ARRAY(struct lode_generation_token, o->n_prompt - o->prompt_logprobs);
    if (!g->tokens || (!g->given && o->prompt_logprobs && o->prompt_logprobs < o->n_prompt))
        return lode_fail_nomem(err, "request");
    memcpy(g->tokens, o->prompt, o->n_prompt * sizeof *g->tokens);
    LODE_TRY(lode_sampler_create(&g->sampler, g->s->model->info.n_vocab, &o->sampler, err));
    for (size_t i = 0; i < o->n_prompt; i++)
        lode_sampler_accept(g->sampler, o->prompt[i]);
    return 0;
}

static int enqueue(struct lode_scheduler *s, struct lode_generation *g,
                   struct lode_generation *like, struct lode_error *err) {
    pthread_mutex_lock(&s->lock);
    if (like && !g->given && like->state != LODE_SCHED_DONE && like->n_tokens == like->n_prompt)
        g->like = like;
    const int rc = lode_queue_add(s, g, err);
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
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
    rc = fill(g, o, err);
    if (rc == 0)
        rc = enqueue(s, g, o->like, err);
    if (rc < 0)
        lode_sched_destroy(g);
    else
        *out = g;
    return rc;
}

/* ---- its tokens ---- */

int lode_generation_next(struct lode_generation *g, struct lode_generation_token *out, int wait_ms,
                         struct lode_error *err) {
    struct lode_scheduler *s = g->s;
    const struct timespec until = lode_clock_after(wait_ms < 0 ? 0 : wait_ms);
    int rc = LODE_GENERATION_WAIT, waited = 0;
    pthread_mutex_lock(&s->lock);
    while (!g->n_ring && g->state != LODE_SCHED_DONE && waited != ETIMEDOUT)
        waited = wait_ms < 0 ? pthread_cond_wait(&g->moved, &s->lock)
                             : pthread_cond_timedwait(&g->moved, &s->lock, &until);
    if (g->n_ring) {
        *out = g->ring[g->first];
        g->first = (g->first + 1) % LODE_SCHED_RING;
        if (g->n_ring-- == LODE_SCHED_RING)
            pthread_cond_signal(&s->work);
        rc = LODE_GENERATION_TOKEN;
    } else if (g->state == LODE_SCHED_DONE) {
        rc = g->result;
        if (rc < 0 && err)
            *err = g->err;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

size_t lode_generation_prompt(struct lode_generation *g, struct lode_generation_token *out, size_t cap) {
    pthread_mutex_lock(&g->s->lock);
    const size_t n = g->given ? g->given_shown - g->given_from : 0;
    pthread_mutex_unlock(&g->s->lock);
    if (n && cap) /* what has been shown never changes */
        memcpy(out, g->given, (n < cap ? n : cap) * sizeof *out);
    return n < cap ? n : cap;
}

void lode_generation_stats(struct lode_generation *g, struct lode_generation_stats *out) {
    struct lode_scheduler *s = g->s;
    pthread_mutex_lock(&s->lock);
    const double t = g->state == LODE_SCHED_DONE ? g->ended : lode_clock();
    const double started = g->started > 0 ? g->started : t;
    const double answered = g->answered > 0 ? g->answered : t;
    *out = (struct lode_generation_stats){
        .n_prompt = g->n_prompt,
        .n_read = g->n_read,
        .n_reused = g->n_reused,
        .n_generated = g->n_generated,
        .n_preempted = g->n_preempted,
        .place = g->state == LODE_SCHED_QUEUED ? lode_queue_place(s, g) : 0,
        .queue_seconds = started - g->queued,
        .prompt_seconds = answered - started,
        .answer_seconds = t - answered,
    };
    pthread_mutex_unlock(&s->lock);
}

int lode_generation_remember(struct lode_generation *g, const uint64_t key[2],
                             struct lode_error *err) {
    struct lode_scheduler *s = g->s;
    pthread_mutex_lock(&s->lock);
    const bool ended = g->state == LODE_SCHED_DONE && g->has_end;
    if (ended && s->keeper)
        lode_keeper_put_words(s->keeper, key, g->tokens, g->n_tokens + 1);
    pthread_mutex_unlock(&s->lock);
    if (!ended)
        return lode_fail(err, LODE_ERR_ARG, "remember", "the model has not ended this answer");
    return lode_recall_put(s->recall, key, g->tokens, g->n_tokens + 1, err);
}

size_t lode_scheduler_recall(struct lode_scheduler *s, const uint64_t key[2], int32_t *out, size_t cap) {
    size_t n = lode_recall_get(s->recall, key, out, cap);
    if (n || !s->keeper)
        return n;
    pthread_mutex_lock(&s->lock);
    int32_t *words = lode_keeper_get_words(s->keeper, key, &n);
    pthread_mutex_unlock(&s->lock);
    if (!words)
        return 0;
    if (cap)
        memcpy(out, words, (n < cap ? n : cap) * sizeof *out);
    lode_recall_put(s->recall, key, words, n, NULL); /* for the next time; it may be too long */
    lode_free(words);
    return n;
}

void lode_generation_free(struct lode_generation *g) {
    if (!g)
        return;
    struct lode_scheduler *s = g->s;
    pthread_mutex_lock(&s->lock);
    if (g->state == LODE_SCHED_QUEUED) {
        lode_queue_remove(s, g);
        lode_queue_forget(s, g);
        s->stats.cancelled++;
        lode_sched_destroy(g);
        pthread_cond_signal(&s->work); /* who waited for it, or behind it, may go on */
    } else if (g->state == LODE_SCHED_DONE) {
        lode_sched_destroy(g);
    } else {
        g->abandoned = true;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
}
