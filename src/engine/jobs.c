#include "lode/jobs.h"

#include "base/alloc.h"
#include "base/dmath.h"
#include "engine/sched.h"
#include "lode/tokenizer.h"
#include "model/model.h"

#include <string.h>

/* ---- many requests ---- */

struct many {
    struct lode_scheduler *s;
    const struct lode_generation_opts *requests;
    struct lode_generation **running; /* owned; (n); NULL: not begun, or over */
    size_t n, begun, over;
    lode_many_fn *fn;
    void *user;
};

static int tell(struct many *m, size_t i, const struct lode_generation_token *t, int result,
                const struct lode_error *why, struct lode_error *err) {
    if (m->fn(m->user, i, t, result, why))
        return lode_fail(err, LODE_ERR_CANCELLED, "", "stopped by the caller");
    return 0;
}

/* Keeps as many running as there are slots, and one that waits. */
static int begin_some(struct many *m, struct lode_error *err) {
    while (m->begun < m->n && m->begun - m->over <= m->s->n_seats) {
        struct lode_error why;
        const int rc = lode_generation_start(&m->running[m->begun], m->s, &m->requests[m->begun], &why);
        if (rc == LODE_ERR_LIMIT && strcmp(why.where, "queue") == 0 && m->begun > m->over)
            return 0; /* full of others' */
        m->begun++;
        if (rc < 0) {
            m->over++;
            LODE_TRY(tell(m, m->begun - 1, NULL, rc, &why, err));
        }
    }
    return 0;
}

/* What has come of request i, waiting up to wait_ms for the first of it. */
static int take_some(struct many *m, size_t i, int wait_ms, struct lode_error *err) {
    struct lode_generation_token t;
    struct lode_error why;
    int rc;
    while ((rc = lode_generation_next(m->running[i], &t, wait_ms, &why)) == LODE_GENERATION_TOKEN) {
        wait_ms = 0;
        LODE_TRY(tell(m, i, &t, rc, NULL, err));
    }
    if (rc == LODE_GENERATION_WAIT)
        return 0;
    lode_generation_free(m->running[i]);
    m->running[i] = NULL;
    m->over++;
    return tell(m, i, NULL, rc, rc < 0 ? &why : NULL, err);
}

static int run_many(struct many *m, struct lode_error *err) {
    size_t first = 0;
    while (m->over < m->n) {
        LODE_TRY(begin_some(m, err));
        while (first < m->begun && !m->running[first])
            first++;
        bool waited = false; /* for the oldest; of the others what is there */
        for (size_t i = first; i < m->begun; i++) {
            if (!m->running[i])
                continue;
            LODE_TRY(take_some(m, i, waited ? 0 : 20, err));
            waited = true;
        }
    }
    return 0;
}

int lode_generate_many(struct lode_scheduler *s, const struct lode_generation_opts *requests, size_t n,
                       lode_many_fn *fn, void *user, struct lode_error *err) {
    struct many m = {.s = s, .requests = requests, .n = n, .fn = fn, .user = user};
    m.running = LODE_NEW_ARRAY(struct lode_generation *, n);
    if (!m.running && n)
        return lode_fail_nomem(err, "requests");
    const int rc = run_many(&m, err);
    for (size_t i = 0; i < n; i++)
        lode_generation_free(m.running[i]);
    lode_free(m.running);
    return rc;
}

/* ---- given continuations ---- */

/* A guide that lets through one text only. */
struct forced {
    struct lode_ids text;
    size_t at;
    uint64_t *mask; /* owned; (n_vocab / 64, rounded up) */
};

static int force_next(void *user, struct lode_generation_hint *out, struct lode_error *err) {
    struct forced *f = user;
    (void)err;
    *out = (struct lode_generation_hint){.mask = f->mask, .greedy = true, .over = f->at == f->text.n};
    if (!out->over)
        f->mask[f->text.ids[f->at] / 64] = UINT64_C(1) << f->text.ids[f->at] % 64;
    return 0;
}

static int force_accept(void *user, int32_t id, struct lode_error *err) {
    struct forced *f = user;
    (void)err;
    f->mask[id / 64] = 0;
    f->at++;
    return 0;
}

struct scores {
    double *logprobs;
    int rc; /* of a request that failed; why says it */
    struct lode_error why;
};

static int add_score(void *user, size_t i, const struct lode_generation_token *t, int result,
                     const struct lode_error *why) {
    struct scores *c = user;
    if (t)
        c->logprobs[i] += (double)t->logprob;
    if (result >= 0)
        return 0;
    c->rc = result;
    c->why = *why;
    return 1;
}

/* What stopped a job: its own failure, or a request's. */
static int outcome(int rc, int failed, const struct lode_error *why, struct lode_error *err) {
    if (rc < 0 && failed < 0 && err)
        *err = *why;
    return rc < 0 && failed < 0 ? failed : rc;
}

static int check_texts(const struct lode_scheduler *s, struct lode_ids prompt,
                       const struct lode_ids *texts, size_t n, struct lode_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (prompt.n + texts[i].n > s->ctx)
            return lode_fail(err, LODE_ERR_LIMIT, "context",
                             "a prompt of %zu tokens and a continuation of %zu do not fit the context "
                             "of %u",
                             prompt.n, texts[i].n, s->ctx);
        for (size_t k = 0; k < texts[i].n; k++)
            if (texts[i].ids[k] < 0 || (uint32_t)texts[i].ids[k] >= s->model->info.n_vocab)
                return lode_fail(err, LODE_ERR_ARG, "continuations",
                                 "token %zu of number %zu is %d; the vocabulary has 0 to %u", k, i,
                                 texts[i].ids[k], s->model->info.n_vocab - 1);
    }
    return 0;
}

int lode_score(struct lode_scheduler *s, struct lode_ids prompt, const struct lode_ids *texts, size_t n,
               double *logprobs, struct lode_error *err) {
    const size_t words = (s->model->info.n_vocab + 63) / 64;
    LODE_TRY(check_texts(s, prompt, texts, n, err));
    struct forced *forced = LODE_NEW_ARRAY(struct forced, n);
    uint64_t *masks = LODE_NEW_ARRAY(uint64_t, n * words);
    struct lode_generation_opts *requests = LODE_NEW_ARRAY(struct lode_generation_opts, n);
    struct scores scores = {.logprobs = logprobs};
    int rc = n == 0 || (forced && masks && requests) ? 0 : lode_fail_nomem(err, "continuations");
    for (size_t i = 0; rc == 0 && i < n; i++) {
        logprobs[i] = 0;
        forced[i] = (struct forced){.text = texts[i], .mask = masks + i * words};
        requests[i] = (struct lode_generation_opts){
            .prompt = prompt.ids, .n_prompt = prompt.n, .max_tokens = (int64_t)texts[i].n,
            .ignore_end = true, .logprobs = true,
            .guide = {.next = force_next, .accept = force_accept, .user = &forced[i]}};
        lode_sampler_defaults(&requests[i].sampler);
    }
    if (rc == 0)
        rc = lode_generate_many(s, requests, n, add_score, &scores, err);
    rc = outcome(rc, scores.rc, &scores.why, err);
    lode_free(forced);
    lode_free(masks);
    lode_free(requests);
    return rc;
}

/* ---- beams ----
 *
 * A step of all beams is a request of one token for each: what it begins with is in the tree of
 * prefixes but for its last token, so that one position a beam is evaluated. */

struct search {
    struct lode_scheduler *s;
    uint32_t width, max_tokens;
    double penalty;
    size_t n_prompt;
    struct lode_beam *beams, *next, *done; /* owned; (width): ids have the prompt in front */
    size_t n_beams, n_next, n_done;
    struct lode_generation_token *tokens; /* owned; (width) */
    struct lode_generation_opts *requests; /* owned; (width) */
    int rc; /* of a request that failed; why says it */
    struct lode_error why, *err;
};

static double score_of(const struct search *x, double logprob, size_t n) {
    return logprob / lode_pow((double)n, x->penalty);
}

static int take_token(void *user, size_t i, const struct lode_generation_token *t, int result,
                      const struct lode_error *why) {
    struct search *x = user;
    if (t)
        x->tokens[i] = *t;
    if (result >= 0)
        return 0;
    x->rc = result;
    x->why = *why;
    return 1;
}

/* Puts a beam into a list by its score; false: it is worse than all of a full one. */
static bool place(const struct search *x, struct lode_beam *list, size_t *n, struct lode_beam *beam) {
    size_t at = *n;
    while (at > 0 && list[at - 1].score < beam->score)
        at--;
    if (at == x->width)
        return false;
    if (*n == x->width)
        lode_free(list[--*n].ids);
    memmove(list + at + 1, list + at, (*n - at) * sizeof *list);
    list[at] = *beam;
    ++*n;
    return true;
}

static int extend_beam(struct search *x, const struct lode_beam *from, int32_t id, double logprob) {
    struct lode_beam b = {.n = from->n + 1, .logprob = from->logprob + logprob};
    b.ended = lode_tokenizer_is_end(x->s->tokenizer, id);
    b.score = score_of(x, b.logprob, b.n - x->n_prompt);
    struct lode_beam *list = b.ended ? x->done : x->next;
    size_t *n = b.ended ? &x->n_done : &x->n_next;
    if (*n == x->width && list[*n - 1].score >= b.score)
        return 0;
    b.ids = LODE_NEW_ARRAY(int32_t, b.n);
    if (!b.ids)
        return lode_fail_nomem(x->err, "beams");
    memcpy(b.ids, from->ids, from->n * sizeof *b.ids);
    b.ids[from->n] = id;
    if (!place(x, list, n, &b))
        lode_free(b.ids);
    return 0;
}

static int grow(struct search *x) {
    for (size_t i = 0; i < x->n_beams; i++) {
        x->requests[i] = (struct lode_generation_opts){.prompt = x->beams[i].ids,
                                                       .n_prompt = x->beams[i].n,
                                                       .max_tokens = 1,
                                                       .ignore_end = true,
                                                       .n_top = 2 * x->width};
        lode_sampler_defaults(&x->requests[i].sampler);
        x->requests[i].sampler.temp = 0;
    }
    const int rc = lode_generate_many(x->s, x->requests, x->n_beams, take_token, x, x->err);
    LODE_TRY(outcome(rc, x->rc, &x->why, x->err));
    x->n_next = 0;
    for (size_t i = 0; i < x->n_beams; i++)
        for (uint32_t k = 0; k < x->tokens[i].n_top; k++)
            LODE_TRY(extend_beam(x, &x->beams[i], x->tokens[i].top[k].id,
                                 (double)x->tokens[i].top[k].logprob));
    for (size_t i = 0; i < x->n_beams; i++)
        lode_free(x->beams[i].ids);
    struct lode_beam *old = x->beams;
    x->beams = x->next;
    x->n_beams = x->n_next;
    x->next = old;
    x->n_next = 0;
    return 0;
}

/* No beam can become better than the worst that has ended: log-probabilities only fall, and the length
 * counts for as much as it ever may. */
static bool is_settled(const struct search *x) {
    if (x->n_done < x->width)
        return false;
    for (size_t i = 0; i < x->n_beams; i++)
        if (score_of(x, x->beams[i].logprob, x->penalty > 0 ? x->max_tokens
                                                            : x->beams[i].n - x->n_prompt) >
            x->done[x->n_done - 1].score)
            return false;
    return true;
}

static int search(struct search *x, struct lode_ids prompt) {
    int32_t *ids = LODE_NEW_ARRAY(int32_t, prompt.n);
    if (!ids)
        return lode_fail_nomem(x->err, "beams");
    memcpy(ids, prompt.ids, prompt.n * sizeof *ids);
    x->beams[x->n_beams++] = (struct lode_beam){.ids = ids, .n = prompt.n};
    for (uint32_t i = 0; i < x->max_tokens && x->n_beams && !is_settled(x); i++) {
        if (x->beams[0].n > x->s->ctx)
            break;
        LODE_TRY(grow(x));
    }
    for (size_t i = 0; i < x->n_beams; i++) { /* those that have not ended count too */
        if (x->beams[i].n > prompt.n && place(x, x->done, &x->n_done, &x->beams[i]))
            x->beams[i].ids = NULL;
    }
    return 0;
}

int lode_beam_search(struct lode_scheduler *s, struct lode_ids prompt, const struct lode_beam_opts *opts,
                     struct lode_beam **out, size_t *n, struct lode_error *err) {
    const struct lode_beam_opts o = opts ? *opts : (struct lode_beam_opts){0};
    *out = NULL;
    *n = 0;
    if (o.width > LODE_GENERATION_TOP / 2)
        return lode_fail(err, LODE_ERR_ARG, "width", "%u beams; at most %d", o.width,
                         LODE_GENERATION_TOP / 2);
    if (prompt.n == 0)
        return lode_fail(err, LODE_ERR_ARG, "prompt", "is empty: there is nothing to continue");
    struct search x = {.s = s, .width = o.width ? o.width : 4, .n_prompt = prompt.n, .err = err,
                       .max_tokens = o.max_tokens ? o.max_tokens : 64,
                       .penalty = o.length_penalty < 0    ? 0
                                  : o.length_penalty == 0 ? 1
                                                          : (double)o.length_penalty};
    x.beams = LODE_NEW_ARRAY(struct lode_beam, x.width);
    x.next = LODE_NEW_ARRAY(struct lode_beam, x.width);
    x.done = LODE_NEW_ARRAY(struct lode_beam, x.width);
    x.tokens = LODE_NEW_ARRAY(struct lode_generation_token, x.width);
    x.requests = LODE_NEW_ARRAY(struct lode_generation_opts, x.width);
    int rc = x.beams && x.next && x.done && x.tokens && x.requests ? search(&x, prompt)
                                                                   : lode_fail_nomem(err, "beams");
    for (size_t i = 0; x.done && i < x.n_done; i++) {
        x.done[i].n -= prompt.n;
        memmove(x.done[i].ids, x.done[i].ids + prompt.n, x.done[i].n * sizeof *x.done[i].ids);
    }
    for (size_t i = 0; i < x.n_beams; i++)
        lode_free(x.beams[i].ids);
    for (size_t i = 0; i < x.n_next; i++)
        lode_free(x.next[i].ids);
    lode_free(x.beams);
    lode_free(x.next);
    lode_free(x.tokens);
    lode_free(x.requests);
    if (rc < 0) {
        lode_beams_free(x.done, x.n_done);
    } else {
        *out = x.done;
        *n = x.n_done;
    }
    return rc;
}

void lode_beams_free(struct lode_beam *beams, size_t n) {
    for (size_t i = 0; i < n; i++)
        lode_free(beams[i].ids);
    lode_free(beams);
}
