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
    /* Request i; what it points to is good until the next call. */
    const struct lode_generation_opts *(*request)(void *user, size_t i);
    void (*ended)(void *user, size_t i, struct lode_generation *g); /* well; NULL: fn is enough */
    struct lode_generation **running; /* owned; (n); NULL: not begun, or over */
    size_t n, begun, over;
    lode_many_fn *fn;
    void *user, *owner; /* of fn, of the other two */
    struct lode_job_opts o;
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
        const int rc = lode_generation_start(&m->running[m->begun], m->s, m->request(m->owner, m->begun),
                                             &why);
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
    if (rc >= 0 && m->ended)
        m->ended(m->owner, i, m->running[i]);
    lode_generation_free(m->running[i]);
    m->running[i] = NULL;
    m->over++;
    return tell(m, i, NULL, rc, rc < 0 ? &why : NULL, err);
}

static int run_begun(struct many *m, struct lode_error *err) {
    size_t first = 0;
    while (m->over < m->n) {
        if (m->o.cancel && m->o.cancel(m->o.cancel_user))
            return lode_fail(err, LODE_ERR_CANCELLED, "", "nobody wants it any more");
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

static int run_many(struct many *m, struct lode_error *err) {
    m->running = LODE_NEW_ARRAY(struct lode_generation *, m->n);
    if (!m->running && m->n)
        return lode_fail_nomem(err, "requests");
    const int rc = run_begun(m, err);
    for (size_t i = 0; i < m->n; i++)
        lode_generation_free(m->running[i]);
    lode_free(m->running);
    return rc;
}

static const struct lode_generation_opts *of_list(void *user, size_t i) {
    const struct lode_generation_opts *const *requests = user;
    return *requests + i;
}

int lode_generate_many(struct lode_scheduler *s, const struct lode_generation_opts *requests, size_t n,
                       lode_many_fn *fn, void *user, struct lode_error *err) {
    return run_many(&(struct many){.s = s, .request = of_list, .owner = &requests, .n = n, .fn = fn,
                                   .user = user},
                    err);
}

/* ---- given continuations ---- */

/* Prompt and continuation are one prompt, whose own log-probabilities are asked for. */
struct scores {
    struct lode_scored *pairs;
    size_t *which;                       /* owned: the pairs that run, in order */
    bool alone;                          /* their prompts, without the continuations */
    int32_t *ids;                        /* owned: the request that is being begun, */
    struct lode_generation_token *given; /* and what came of one that has ended; owned */
    struct lode_generation_opts request;
    int rc; /* of a request that failed; why says it */
    struct lode_error why;
};

static const struct lode_generation_opts *score_request(void *user, size_t i) {
    struct scores *c = user;
    const struct lode_scored *p = &c->pairs[c->which[i]];
    memcpy(c->ids, p->prompt.ids, p->prompt.n * sizeof *c->ids);
    memcpy(c->ids + p->prompt.n, p->text.ids, p->text.n * sizeof *c->ids);
    c->request.n_prompt = p->prompt.n + (c->alone ? 0 : p->text.n);
    c->request.prompt_logprobs = p->prompt.n;
    return &c->request;
}

static void add_score(void *user, size_t i, struct lode_generation *g) {
    struct scores *c = user;
    struct lode_scored *p = &c->pairs[c->which[i]];
    const size_t n = lode_generation_prompt(g, c->given, p->text.n);
    p->logprob = 0;
    for (size_t k = 0; k < n; k++)
        p->logprob += (double)c->given[k].logprob;
}

static int note_failure(void *user, size_t i, const struct lode_generation_token *t, int result,
                        const struct lode_error *why) {
    struct scores *c = user;
    (void)i;
    (void)t;
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

static int check_pair(const struct lode_scheduler *s, const struct lode_scored *p, struct lode_error *err) {
    if (p->prompt.n == 0)
        return lode_fail(err, LODE_ERR_ARG, "prompt", "is empty: there is nothing to continue");
    if (p->prompt.n + p->text.n > s->ctx)
        return lode_fail(err, LODE_ERR_LIMIT, "context",
                         "a prompt of %zu tokens and a continuation of %zu do not fit the context of %u",
                         p->prompt.n, p->text.n, s->ctx);
    for (size_t k = 0; k < p->text.n; k++)
        if (p->text.ids[k] < 0 || (uint32_t)p->text.ids[k] >= s->model->info.n_vocab)
            return lode_fail(err, LODE_ERR_ARG, "continuations", "token %zu is %d; the vocabulary has 0 to %u",
                             k, p->text.ids[k], s->model->info.n_vocab - 1);
    return 0;
}

static bool same_prompt(const struct lode_scored *a, const struct lode_scored *b) {
    return a->prompt.ids == b->prompt.ids && a->prompt.n == b->prompt.n;
}

static int score_these(struct lode_scheduler *s, struct scores *c, size_t n, bool alone,
                       const struct lode_job_opts *o, struct lode_error *err) {
    c->alone = alone;
    return run_many(&(struct many){.s = s, .request = score_request, .ended = alone ? NULL : add_score,
                                   .owner = c, .n = n, .fn = note_failure, .user = c, .o = *o},
                    err);
}

/* Prompts with several continuations are read first, so that all find them. */
static int score_some(struct lode_scheduler *s, struct scores *c, size_t first, size_t end,
                      const struct lode_job_opts *o, struct lode_error *err) {
    const struct lode_scored *p = c->pairs;
    size_t n = 0;
    for (size_t i = first; s->keep && i + 1 < end; i++)
        if (same_prompt(&p[i], &p[i + 1]) && (i == first || !same_prompt(&p[i - 1], &p[i])))
            c->which[n++] = i;
    if (n)
        LODE_TRY(score_these(s, c, n, true, o, err));
    for (n = 0; n < end - first; n++)
        c->which[n] = first + n;
    return score_these(s, c, n, false, o, err);
}

static int score(struct lode_scheduler *s, struct scores *c, size_t n, const struct lode_job_opts *o,
                 struct lode_error *err) {
    const struct lode_scored *p = c->pairs;
    size_t whole = 0, longest = 0;
    for (size_t i = 0; i < n; i++) {
        LODE_TRY(check_pair(s, &p[i], err));
        whole = p[i].prompt.n + p[i].text.n > whole ? p[i].prompt.n + p[i].text.n : whole;
        longest = p[i].text.n > longest ? p[i].text.n : longest;
    }
    c->which = LODE_NEW_ARRAY(size_t, n);
    c->ids = LODE_NEW_ARRAY(int32_t, whole);
    c->given = LODE_NEW_ARRAY(struct lode_generation_token, longest);
    if (n && (!c->which || !c->ids || (!c->given && longest)))
        return lode_fail_nomem(err, "continuations");
    c->request = (struct lode_generation_opts){.prompt = c->ids};
    lode_sampler_defaults(&c->request.sampler);
    for (size_t i = 0, end; i < n; i = end) {
        size_t tokens = 0; /* about a context at a time, so that none of it has to give way */
        for (end = i; end < n && (end == i || tokens <= s->ctx); end++)
            tokens += p[end].text.n + (end > i && same_prompt(&p[end - 1], &p[end]) ? 0 : p[end].prompt.n);
        LODE_TRY(score_some(s, c, i, end, o, err));
    }
    return 0;
}

int lode_score(struct lode_scheduler *s, struct lode_scored *pairs, size_t n, const struct lode_job_opts *o,
               struct lode_error *err) {
    struct scores c = {.pairs = pairs};
    int rc = score(s, &c, n, o ? o : &(struct lode_job_opts){0}, err);
    rc = outcome(rc, c.rc, &c.why, err);
    lode_free(c.which);
    lode_free(c.ids);
    lode_free(c.given);
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
    struct lode_job_opts job;
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
    const struct lode_generation_opts *requests = x->requests;
    const int rc = run_many(&(struct many){.s = x->s, .request = of_list, .owner = &requests,
                                           .n = x->n_beams, .fn = take_token, .user = x, .o = x->job},
                            x->err);
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
    struct search x = {.s = s, .job = o.job, .width = o.width ? o.width : 4, .n_prompt = prompt.n, .err = err,
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
