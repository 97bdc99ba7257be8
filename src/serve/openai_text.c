/* openai_text.c - POST /v1/completions: text that goes on, without a template. */
#include "serve/exchange.h"
#include "serve/fields.h"

#include <stdlib.h>
#include <string.h>

/* A text, a list of texts, token ids, or a list of lists of them. */
static int read_prompts(struct request *r, struct lode_error *err) {
    const json_t *v = json_object_get(r->body, "prompt"), *first = json_array_get(v, 0);
    const bool many = json_is_string(first) || json_is_array(first);
    const size_t n = many ? json_array_size(v) : 1;
    if (!json_is_string(v) && !first)
        return field_fail(err, "prompt", "a string, token ids, or a list of them expected");
    if (n * (size_t)r->best_of > MAX_CHOICES)
        return field_fail(err, "prompt", "%zu prompts of %d answers each; at most %d answers", n,
                          r->best_of, MAX_CHOICES);
    const char *suffix = json_string_value(json_object_get(r->body, "suffix"));
    const bool gap = suffix && *suffix; /* the texts around it are what they are: code, often */
    int rc = request_prompts(r, n, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const json_t *one = many ? json_array_get(v, i) : v;
        if (json_is_string(one))
            rc = prompt_tokenize(&r->prompts[i], r->m, json_string_value(one), json_string_length(one),
                                 gap ? 0 : LODE_TOK_SPECIAL | LODE_TOK_PARSE, err);
        else if (json_is_array(one))
            rc = prompt_ids(&r->prompts[i], one, "prompt", err);
        else
            rc = field_fail(err, "prompt", "element %zu is neither text nor token ids", i);
        if (rc == 0 && gap)
            rc = prompt_around(&r->prompts[i], r->m, suffix, strlen(suffix), err);
    }
    return rc;
}

static int read_choices(struct request *r, struct lode_error *err) {
    int64_t n = 1, best_of = 0, top = -1;
    const char *suffix = NULL;
    int rc = field_int(r->body, "n", 1, MAX_CHOICES, &n, err);
    if (rc == 0)
        rc = field_int(r->body, "best_of", 1, MAX_CHOICES, &best_of, err);
    if (rc == 0)
        rc = field_bool(r->body, "echo", &r->echo, err);
    if (rc == 0)
        rc = field_int(r->body, "logprobs", 0, LODE_GENERATION_TOP, &top, err);
    if (rc == 0)
        rc = field_string(r->body, "suffix", &suffix, err);
    if (rc < 0)
        return rc;
    if (best_of && best_of < n)
        return field_fail(err, "best_of", "%d of them cannot give \"n\": %d", (int)best_of, (int)n);
    if (best_of > n && r->stream)
        return field_fail(err, "best_of", "the best of several is known at the end: not with "
                                          "\"stream\"");
    if (r->echo && top >= 0 && suffix && *suffix)
        return field_fail(err, "echo", "with log-probabilities what is echoed is the prompt; there are two "
                                       "texts, with a \"suffix\"");
    r->n = (int)n;
    r->best_of = best_of ? (int)best_of : r->n;
    r->logprobs = top >= 0;
    r->g.logprobs = r->logprobs || r->best_of > r->n;
    r->g.n_top = top > 0 ? (uint32_t)top : 0;
    r->g.prompt_logprobs = r->echo && top >= 0;
    return 0;
}

static int read_body(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    int rc = request_common(r, err);
    if (rc == 0)
        rc = read_choices(r, err);
    if (rc == 0)
        rc = request_stops(r, r->body, "stop", err);
    if (rc == 0)
        rc = request_sampling(r, r->body, err);
    if (rc == 0)
        rc = request_form(r, err);
    return rc < 0 ? rc : read_prompts(r, err);
}

/* ---- what goes out ---- */

static json_t *envelope(const struct exchange *x, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", x->id, "object", "text_completion",
                     "created", (json_int_t)x->created, "model", x->r.m->name,
                     "system_fingerprint", "lode-" LODE_VERSION, "choices", choices);
}

static json_t *reason(const struct choice *c) {
    return c->finish == FINISH_NONE ? json_null()
                                    : json_string(c->finish == FINISH_LENGTH ? "length" : "stop");
}

struct lists { /* of this API: an element each for every token */
    json_t *tokens, *probs, *tops, *offsets;
};

/* first: nothing comes before it, so that it weighs nothing. */
static void add_token(struct exchange *x, struct choice *c, const struct lists *l,
                      const struct lode_generation_token *t, bool first) {
    json_t *text = answers_token_json(x->a, t->id), *top = first ? json_null() : json_object();
    for (uint32_t k = 0; k < t->n_top; k++) {
        json_t *other = answers_token_json(x->a, t->top[k].id);
        if (other)
            json_object_set_new(top, json_string_value(other), json_real((double)t->top[k].logprob));
        json_decref(other);
    }
    json_array_append_new(l->offsets, json_integer((json_int_t)c->sent_bytes));
    c->sent_bytes += json_string_length(text);
    json_array_append_new(l->tokens, text);
    json_array_append_new(l->probs, first ? json_null() : json_real((double)t->logprob));
    json_array_append_new(l->tops, top);
}

static void add_prompt(struct exchange *x, struct choice *c, const struct lists *l) {
    const struct prompt *p = &x->r.prompts[c->index / (size_t)x->r.best_of];
    size_t n = 0;
    struct lode_generation_token *given = answers_given(x->a, c, &n);
    if (!given)
        x->out.failed = true;
    if (given && p->n)
        add_token(x, c, l, &(struct lode_generation_token){.id = p->ids[0]}, true);
    if (p->n && p->ids[0] == lode_tokenizer_bos(x->r.m->tokenizer))
        c->sent_bytes = 0; /* the text that is echoed does not have it */
    for (size_t i = 0; i < n; i++)
        add_token(x, c, l, &given[i], false);
    free(given);
}

/* The lists, and beside them "content" as chats have it: of the tokens that have come since the last call,
 * and before them the prompt's where it is echoed. */
static json_t *logprobs(struct exchange *x, struct choice *c) {
    if (!x->r.logprobs)
        return json_null();
    const struct lists l = {json_array(), json_array(), json_array(), json_array()};
    json_t *content = answers_logprobs_json(x->a, c, c->n_sent, c->n_kept);
    if (x->r.echo && !c->echoed)
        add_prompt(x, c, &l);
    c->echoed = true;
    for (; c->n_sent < c->n_kept; c->n_sent++)
        add_token(x, c, &l, &c->tokens[c->n_sent], false);
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "tokens", l.tokens, "token_logprobs", l.probs,
                     "top_logprobs", l.tops, "text_offset", l.offsets, "content", content);
}

static void send_text(struct exchange *x, struct choice *c, json_t *text) {
    json_t *probs = logprobs(x, c);
    json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)c->index, "text", text,
                               "finish_reason", reason(c), "logprobs", probs);
    json_t *chunk = envelope(x, json_pack("[o]", choice));
    if (x->r.timings_per_token && x->a)
        json_object_set_new(chunk, "timings", answers_timings_json(x->a));
    sse_data(x, NULL, chunk);
}

/* The prompt's own text, as "echo" wants it. */
static json_t *prompt_text(const struct exchange *x, size_t i_choice) {
    const struct request *r = &x->r;
    const size_t i = i_choice / (size_t)r->best_of;
    const json_t *v = json_object_get(r->body, "prompt");
    const json_t *one = json_is_array(v) && !json_is_integer(json_array_get(v, 0))
                            ? json_array_get(v, i)
                            : v;
    if (json_is_string(one))
        return json_incref((json_t *)one);
    const struct prompt *p = &r->prompts[i];
    const int64_t n = lode_detokenize(r->m->tokenizer, p->ids, p->n, false, NULL, 0, NULL);
    char *text = n >= 0 ? malloc((size_t)n + 1) : NULL;
    if (text)
        lode_detokenize(r->m->tokenizer, p->ids, p->n, false, text, (size_t)n, NULL);
    json_t *out = text ? json_stringn(text, (size_t)n) : NULL;
    free(text);
    return out;
}

/* With what its tokens weigh it has to be read first. */
static void echo(struct exchange *x, struct choice *c) {
    if (!x->r.echo || !x->r.logprobs || c->echoed)
        return;
    struct choice before = *c; /* as it was before its first token */
    before.n_kept = 0;
    before.finish = FINISH_NONE;
    send_text(x, &before, prompt_text(x, c->index));
    c->sent_bytes = before.sent_bytes;
    c->echoed = true;
}

static void put(struct exchange *x, const struct answer_event *e) {
    switch (e->kind) {
    case ANSWER_BEGIN:
        if (x->r.echo && !x->r.logprobs)
            send_text(x, e->choice, prompt_text(x, e->choice->index));
        break;
    case ANSWER_PART:
    case ANSWER_PART_END:
        break;
    case ANSWER_DELTA:
        echo(x, e->choice);
        send_text(x, e->choice, json_stringn(e->text, e->len));
        break;
    case ANSWER_END:
        echo(x, e->choice);
        send_text(x, e->choice, json_string(""));
        break;
    case ANSWER_ALL:
        if (x->r.include_usage) {
            json_t *last = envelope(x, json_array());
            json_object_set_new(last, "usage", answers_usage_json(x->a));
            json_object_set_new(last, "timings", answers_timings_json(x->a));
            sse_data(x, NULL, last);
        }
        lode_buf_addz(&x->out, "data: [DONE]\n\n");
        break;
    }
}

/* ---- the whole reply ---- */

/* Mean log-probability of the tokens. */
static double merit(const struct choice *c) {
    double sum = 0;
    for (size_t i = 0; i < c->n_kept; i++)
        sum += (double)c->tokens[i].logprob;
    return c->n_kept ? sum / (double)c->n_kept : 0;
}

/* The best choice of a prompt that is not marked; of equals the first. */
static size_t next_best(struct exchange *x, size_t first, const bool *taken) {
    size_t best = SIZE_MAX;
    for (size_t i = first; i < first + (size_t)x->r.best_of; i++)
        if (!taken[i] && (best == SIZE_MAX || merit(answers_choice(x->a, i)) >
                                                  merit(answers_choice(x->a, best))))
            best = i;
    return best;
}

static json_t *choice_json(struct exchange *x, struct choice *c, size_t index) {
    json_t *text = choice_text(c, PART_TEXT);
    if (x->r.echo) {
        json_t *before = prompt_text(x, c->index);
        json_t *both = before && text ? json_sprintf("%s%s", json_string_value(before),
                                                     json_string_value(text))
                                      : NULL;
        json_decref(before);
        json_decref(text);
        text = both;
    }
    return json_pack("{s:I, s:o, s:o, s:o}", "index", (json_int_t)index, "text", text,
                     "finish_reason", reason(c), "logprobs", logprobs(x, c));
}

static json_t *reply(struct exchange *x) {
    bool taken[MAX_CHOICES] = {false};
    json_t *choices = json_array();
    for (size_t p = 0; p < x->r.n_prompts; p++)
        for (int k = 0; k < x->r.n; k++) {
            const size_t first = p * (size_t)x->r.best_of;
            const size_t i = x->r.n == x->r.best_of ? first + (size_t)k : next_best(x, first, taken);
            taken[i] = true;
            json_array_append_new(choices, choice_json(x, answers_choice(x->a, i),
                                                       json_array_size(choices)));
        }
    json_t *r = envelope(x, choices);
    json_object_set_new(r, "usage", answers_usage_json(x->a));
    json_object_set_new(r, "timings", answers_timings_json(x->a));
    return r;
}

const struct api openai_text = {
    .prefix = "cmpl-", .read = read_body, .put = put, .reply = reply, .error = openai_error};
