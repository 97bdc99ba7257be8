/* answers.c - see answers.h. */
#include "serve/answers.h"

#include "serve/fields.h"

#include "serve/flow.h"
#include "serve/metrics.h"
#include "serve/guide.h"
#include "serve/recall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct run { /* what makes one choice */
    struct answers *a;
    struct choice choice;
    struct lode_generation *generation; /* NULL: not started yet */
    struct lode_detok *detok;
    struct lode_toolcall *parser;
    struct flow flow;
    size_t cap_parts, cap_tokens;
    double last; /* clock of the last token; 0: none yet */
    bool open; /* the last part is */
    bool cut;  /* what follows is dropped: one call was all that was wanted */
    bool counted; /* by the metrics */
};

struct answers {
    struct request *r;
    answer_put_fn *put;
    void *user;
    char *tools;     /* owned; for the parsers */
    struct run *runs; /* (n) */
    size_t n, at, started; /* choices, the one that is read, and those that have begun */
};

/* ---- parts ---- */

static void tell(struct run *h, struct answer_event e) {
    e.choice = &h->choice;
    if (h->a->put)
        h->a->put(h->a->user, &e);
}

static struct part *last_part(struct run *h) { return &h->choice.parts[h->choice.n_parts - 1]; }

static void tell_part(struct run *h, enum answer_event_kind kind, const char *text, size_t len) {
    tell(h, (struct answer_event){.kind = kind,
                                  .part = last_part(h),
                                  .i_part = h->choice.n_parts - 1,
                                  .text = text,
                                  .len = len});
}

static void close_part(struct run *h) {
    if (h->open)
        tell_part(h, ANSWER_PART_END, NULL, 0);
    h->open = false;
}

static int open_part(struct run *h, enum part_kind kind, const char *id, const char *name) {
    struct choice *c = &h->choice;
    close_part(h);
    if (c->n_parts == h->cap_parts) {
        const size_t cap = 2 * h->cap_parts + 4;
        struct part *parts = realloc(c->parts, cap * sizeof *parts);
        if (!parts)
            return LODE_ERR_NOMEM;
        c->parts = parts;
        h->cap_parts = cap;
    }
    struct part *p = &c->parts[c->n_parts++];
    *p = (struct part){.kind = kind, .call = c->n_calls};
    if (kind == PART_CALL && (!(p->id = strdup(id)) || !(p->name = strdup(name))))
        return LODE_ERR_NOMEM;
    c->n_calls += kind == PART_CALL;
    h->open = true;
    tell_part(h, ANSWER_PART, NULL, 0);
    return 0;
}

static void free_part(struct part *p) {
    lode_buf_free(&p->text);
    free(p->id);
    free(p->name);
}

static int add_text(struct run *h, enum part_kind kind, const char *text, size_t len) {
    if (len == 0)
        return 0;
    if (!h->open || last_part(h)->kind != kind) {
        const int rc = open_part(h, kind, NULL, NULL);
        if (rc < 0)
            return rc;
    }
    if (!lode_buf_add(&last_part(h)->text, text, len))
        return LODE_ERR_NOMEM;
    tell_part(h, ANSWER_DELTA, text, len);
    return 0;
}

static int put_content(void *user, const char *text, size_t len) {
    return add_text(user, PART_TEXT, text, len);
}

/* What set out to be a call.  Who reads along has seen its beginning, which stays; else it is text. */
static int take_malformed(struct run *h, const struct lode_toolcall_event *e) {
    const bool begun = e->index != LODE_TOOLCALL_NONE && h->open && last_part(h)->kind == PART_CALL;
    if (begun && h->a->put) {
        last_part(h)->broken = true;
        close_part(h);
        return 0;
    }
    if (begun) {
        free_part(last_part(h));
        h->choice.n_parts--;
        h->choice.n_calls--;
        h->open = false;
    }
    return flow_push(&h->flow, e->text, e->len) ? LODE_ERR_NOMEM : 0;
}

static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct run *h = user;
    if (h->flow.stopped || h->cut)
        return 0;
    switch (e->kind) {
    case LODE_TOOLCALL_CONTENT:
        return flow_push(&h->flow, e->text, e->len) ? LODE_ERR_NOMEM : 0;
    case LODE_TOOLCALL_REASONING:
        return add_text(h, PART_THINKING, e->text, e->len);
    case LODE_TOOLCALL_BEGIN: /* no stop text reaches over a call */
        if (flow_finish(&h->flow))
            return LODE_ERR_NOMEM;
        return h->flow.stopped ? 0 : open_part(h, PART_CALL, e->id, e->name);
    case LODE_TOOLCALL_ARGUMENTS:
        return add_text(h, PART_CALL, e->text, e->len);
    case LODE_TOOLCALL_END:
        close_part(h);
        h->cut = h->a->r->talk.one_call;
        return 0;
    case LODE_TOOLCALL_MALFORMED:
        return take_malformed(h, e);
    case LODE_TOOLCALL_MARKUP:
        return 0;
    }
    return 0;
}

/* ---- a choice ---- */

/* Once, and before its end is told: who has that finds it in the metrics. */
static void count_run(struct run *h) {
    struct lode_generation_stats st;
    if (!h->generation || h->counted)
        return;
    h->counted = true;
    lode_generation_stats(h->generation, &st);
    metrics_generation(h->a->r->m->metrics, &st);
}

static int end_choice(struct run *h, int why, struct lode_error *err) {
    struct answers *a = h->a;
    struct choice *c = &h->choice;
    const char *text;
    size_t len;
    int rc = 0;
    if (!h->flow.stopped && !h->cut) {
        rc = lode_detok_finish(h->detok, &text, &len, err);
        if (rc == 0)
            rc = lode_toolcall_push(h->parser, text, len, err);
        if (rc == 0)
            rc = lode_toolcall_finish(h->parser, err);
        if (rc == 0 && !h->flow.stopped && flow_finish(&h->flow))
            rc = request_no_memory(err);
    }
    if (rc < 0)
        return rc;
    close_part(h);
    c->finish = h->flow.stopped                 ? FINISH_STOP_TEXT
                : h->cut                        ? FINISH_CALLS
                : why != LODE_GENERATION_ENDED ? FINISH_LENGTH
                : c->n_calls                    ? FINISH_CALLS
                                                : FINISH_ENDED;
    if (a->r->chat && why == LODE_GENERATION_ENDED && !h->flow.stopped && !h->cut)
        recall_answer(&a->r->prompts[c->index / (size_t)a->r->best_of], c, h->generation);
    if (h->flow.stopped)
        c->stop = a->r->stops[h->flow.found];
    count_run(h);
    tell(h, (struct answer_event){.kind = ANSWER_END});
    if (++a->at < a->n) {
        if (a->runs[a->at].generation)
            tell(&a->runs[a->at], (struct answer_event){.kind = ANSWER_BEGIN});
        return ANSWER_MOVED;
    }
    if (a->put)
        a->put(a->user, &(struct answer_event){.kind = ANSWER_ALL});
    return ANSWER_DONE;
}

/* Special tokens are no text, but for those that the parser looks for. */
static bool is_left_out(const struct run *h, int32_t id) {
    struct lode_token_info info;
    return lode_token_info(h->a->r->m->tokenizer, id, &info) == 0 && info.special &&
           !lode_toolcall_wants(h->parser, info.piece, info.piece_len);
}

static int keep_token(struct run *h, const struct lode_generation_token *t) {
    struct choice *c = &h->choice;
    if (!h->a->r->g.logprobs)
        return 0;
    if (c->n_kept == h->cap_tokens) {
        const size_t cap = 2 * h->cap_tokens + 64;
        struct lode_generation_token *tokens = realloc(c->tokens, cap * sizeof *tokens);
        if (!tokens)
            return LODE_ERR_NOMEM;
        c->tokens = tokens;
        h->cap_tokens = cap;
    }
    c->tokens[c->n_kept++] = *t;
    return 0;
}

static int take_token(struct run *h, const struct lode_generation_token *t,
                      struct lode_error *err) {
    const char *text = "";
    size_t len = 0;
    int rc = keep_token(h, t);
    if (rc < 0)
        return request_no_memory(err);
    h->choice.n_tokens++;
    if (h->choice.index == 0) /* tokens of later choices wait while the first is read */
        metrics_token(h->a->r->m->metrics, &h->last);
    if (!is_left_out(h, t->id))
        rc = lode_detok_push(h->detok, t->id, &text, &len, err);
    if (rc == 0)
        rc = lode_toolcall_push(h->parser, text, len, err);
    if (rc < 0)
        return rc;
    h->choice.n_thinking += lode_toolcall_stage(h->parser) == LODE_TOOLCALL_AT_THINKING;
    return h->flow.stopped || h->cut ? end_choice(h, LODE_GENERATION_ENDED, err) : ANSWER_MOVED;
}

/* Of the same prompt. */
static struct run *first_run(const struct answers *a, const struct choice *c) {
    return &a->runs[c->index / (size_t)a->r->best_of * (size_t)a->r->best_of];
}

static int start_run(struct run *h, struct lode_error *err) {
    const struct answers *a = h->a;
    struct request *r = a->r;
    const struct prompt *p = &r->prompts[h->choice.index / (size_t)r->best_of];
    struct lode_generation_opts g = r->g;
    g.prompt = p->ids;
    g.n_prompt = p->n;
    /* the first of a prompt's choices reads it for all */
    g.like = first_run(a, &h->choice)->generation;
    g.prompt_logprobs = g.like ? 0 : g.prompt_logprobs;
    g.sampler.seed += h->choice.index;
    flow_init(&h->flow, r->stops, r->n_stops, put_content, h);
    const struct lode_toolcall_opts parse = {
        .style = r->style,
        .thinking = p->thinking,
        .tools = a->tools,
        .tools_len = a->tools ? strlen(a->tools) : 0,
        .seed = g.sampler.seed,
        .put = on_event,
        .user = h};
    int rc = h->parser ? 0 : lode_toolcall_create(&h->parser, &parse, err);
    if (rc == 0 && !h->detok)
        rc = lode_detok_create(&h->detok, r->m->tokenizer, false, err);
    const struct guide_opts guide = {.forms = r->m->forms,
                                     .tokenizer = r->m->tokenizer,
                                     .style = r->style,
                                     .thinking = p->thinking,
                                     .form = r->form,
                                     .calls = r->calls,
                                     .tools = a->tools};
    if (rc == 0)
        rc = guide_create(&g.guide, &guide, err);
    if (rc == 0)
        rc = lode_generation_start(&h->generation, r->m->scheduler, &g, err);
    return rc;
}

/* As many choices run as the scheduler has slots: the others would only fill its queue. */
static int start_more(struct answers *a, struct lode_error *err) {
    const size_t window = a->at + lode_scheduler_slots(a->r->m->scheduler);
    while (a->started < a->n && a->started < window) {
        struct run *h = &a->runs[a->started];
        const int rc = start_run(h, err);
        if (rc == LODE_ERR_LIMIT && a->started && !strcmp(err->where, "queue"))
            return 0; /* the first has its place: the others come when there is room */
        if (rc < 0)
            return rc;
        if (a->started++ == a->at)
            tell(h, (struct answer_event){.kind = ANSWER_BEGIN});
    }
    return 0;
}

/* ---- the answer ---- */

int answers_create(struct answers **out, struct request *r, answer_put_fn *put, void *user,
                  struct lode_error *err) {
    struct answers *a = calloc(1, sizeof *a);
    int rc = 0;
    *out = NULL;
    if (!a)
        return request_no_memory(err);
    *a = (struct answers){.r = r, .put = put, .user = user};
    a->n = r->n_prompts * (size_t)r->best_of;
    a->runs = calloc(a->n, sizeof *a->runs);
    if (!a->runs || (r->talk.tools && !(a->tools = json_text(r->talk.tools))))
        rc = request_no_memory(err);
    for (size_t i = 0; rc == 0 && i < a->n; i++)
        a->runs[i] = (struct run){.a = a, .choice.index = i};
    if (rc == 0)
        rc = start_more(a, err);
    if (rc < 0)
        answers_free(a);
    else
        *out = a;
    return rc;
}

void answers_free(struct answers *a) {
    if (!a)
        return;
    for (size_t i = 0; a->runs && i < a->n; i++) {
        struct run *h = &a->runs[i];
        count_run(h);
        lode_generation_free(h->generation);
        lode_detok_free(h->detok);
        lode_toolcall_free(h->parser);
        flow_deinit(&h->flow);
        for (size_t k = 0; k < h->choice.n_parts; k++)
            free_part(&h->choice.parts[k]);
        free(h->choice.parts);
        free(h->choice.tokens);
    }
    free(a->runs);
    free(a->tools);
    free(a);
}

int answers_step(struct answers *a, int wait_ms, struct lode_error *err) {
    struct lode_generation_token t;
    if (a->at == a->n)
        return ANSWER_DONE;
    int rc = start_more(a, err);
    if (rc < 0)
        return rc;
    struct run *h = &a->runs[a->at];
    if (!h->generation) { /* the queue is full of others */
        usleep((useconds_t)(wait_ms > 0 ? wait_ms : 1) * 1000);
        return ANSWER_WAITS;
    }
    rc = lode_generation_next(h->generation, &t, wait_ms, err);
    if (rc == LODE_GENERATION_WAIT)
        return ANSWER_WAITS;
    if (rc == LODE_GENERATION_TOKEN)
        return take_token(h, &t, err);
    return rc < 0 ? rc : end_choice(h, rc, err);
}

size_t answers_choices(const struct answers *a) { return a->n; }
struct choice *answers_choice(struct answers *a, size_t i) { return &a->runs[i].choice; }

json_t *choice_text(const struct choice *c, enum part_kind kind) {
    struct lode_buf all = {0};
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i].kind == kind)
            lode_buf_add(&all, lode_buf_str(&c->parts[i].text).data, c->parts[i].text.len);
    json_t *text = all.failed ? NULL : json_stringn(lode_buf_str(&all).data, all.len);
    lode_buf_free(&all);
    return text;
}

/* ---- numbers ---- */

struct lode_generation_token *answers_given(struct answers *a, const struct choice *c, size_t *n) {
    struct lode_generation *g = first_run(a, c)->generation;
    const size_t most = a->r->prompts[c->index / (size_t)a->r->best_of].n;
    struct lode_generation_token *given = malloc((most + 1) * sizeof *given);
    *n = given ? lode_generation_prompt(g, given, most) : 0;
    return given;
}

void answers_usage(struct answers *a, struct answer_usage *u) {
    *u = (struct answer_usage){0};
    const size_t at = a->at < a->n ? a->at : a->n - 1;
    for (size_t i = 0; i < a->n; i++) {
        struct lode_generation_stats st = {0};
        if (a->runs[i].generation)
            lode_generation_stats(a->runs[i].generation, &st);
        if (i % (size_t)a->r->best_of == 0) {
            u->n_prompt += st.n_prompt;
            u->n_cached += st.n_reused;
        }
        u->n_answer += a->runs[i].choice.n_tokens;
        u->n_thinking += a->runs[i].choice.n_thinking;
        if (i == at)
            u->stats = st;
    }
}

json_t *answers_usage_json(struct answers *a) {
    struct answer_usage u;
    answers_usage(a, &u);
    return json_pack("{s:I, s:I, s:I, s:{s:I}, s:{s:I}}", "prompt_tokens", (json_int_t)u.n_prompt,
                     "completion_tokens", (json_int_t)u.n_answer, "total_tokens",
                     (json_int_t)(u.n_prompt + u.n_answer), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u.n_cached, "completion_tokens_details",
                     "reasoning_tokens", (json_int_t)u.n_thinking);
}

json_t *answers_timings_json(struct answers *a) {
    struct answer_usage u;
    answers_usage(a, &u);
    const struct lode_generation_stats *st = &u.stats;
    const size_t n_read = st->n_prompt - st->n_reused;
    const double p = st->prompt_seconds, s = st->answer_seconds;
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "cache_n", (json_int_t)st->n_reused,
                     "prompt_n", (json_int_t)n_read, "prompt_ms", p * 1e3, "prompt_per_second",
                     p > 0 ? (double)n_read / p : 0.0, "predicted_n", (json_int_t)st->n_generated,
                     "predicted_ms", s * 1e3, "predicted_per_second",
                     s > 0 ? (double)st->n_generated / s : 0.0);
}

static int64_t token_text(const struct answers *a, int32_t id, char *text, size_t cap) {
    struct lode_error err;
    const int64_t n = lode_detokenize(a->r->m->tokenizer, &id, 1, false, text, cap, &err);
    return n < 0 || (size_t)n > cap ? 0 : n;
}

json_t *answers_token_json(struct answers *a, int32_t id) {
    char text[256];
    return json_stringn(text, (size_t)token_text(a, id, text, sizeof text));
}

static json_t *logprob_json(const struct answers *a, int32_t id, float logprob) {
    char text[256];
    const int64_t n = token_text(a, id, text, sizeof text);
    json_t *bytes = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text[i]));
    return json_pack("{s:o, s:i, s:f, s:o}", "token", json_stringn(text, (size_t)n), "id", (int)id,
                     "logprob", (double)(logprob > -9999 ? logprob : -9999), "bytes", bytes);
}

json_t *answers_logprobs_json(struct answers *a, const struct choice *c, size_t from, size_t to) {
    json_t *list = json_array();
    for (size_t i = from; i < to; i++) {
        const struct lode_generation_token *t = &c->tokens[i];
        json_t *entry = logprob_json(a, t->id, t->logprob), *top = json_array();
        for (uint32_t k = 0; k < t->n_top; k++)
            json_array_append_new(top, logprob_json(a, t->top[k].id, t->top[k].logprob));
        json_object_set_new(entry, "top_logprobs", top);
        json_array_append_new(list, entry);
    }
    return list;
}
