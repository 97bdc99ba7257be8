/* completion.c - see completion.h.
 *
 * A token's text goes through the parser of tool calls and thinking, the answer's part of it through
 * the search for stop texts, and what is settled becomes deltas: sent at once to a stream, collected
 * for a reply.  Calls are handed out whole, once complete: one that turns out malformed is text.
 */
#include "serve/completion.h"

#include "serve/fields.h"
#include "serve/flow.h"
#include "serve/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

enum { MAX_STOPS = 16, MAX_CHOICES = 8 };

struct choice {
    struct completion *c;
    int index;
    struct lode_generation *generation;
    struct lode_detok *detok;
    struct lode_toolcall *parser;
    struct flow flow;
    struct lode_buf content, reasoning, arguments; /* of the whole answer; of the call being read */
    json_t *calls;    /* complete ones */
    json_t *logprobs; /* of all tokens; a stream's: those that are not sent yet */
    const char *finish; /* NULL: it goes on */
    size_t n_tokens;
};

struct completion {
    struct server *s;
    bool chat, stream, include_usage, logprobs;
    uint32_t n_top;
    const char *stops[MAX_STOPS]; /* borrowed from body */
    size_t n_stops;
    json_t *body; /* owned */
    struct prompt prompt;
    struct choice choices[MAX_CHOICES];
    int n, at; /* choices, and the one that is being read */
    struct lode_buf out;
    char id[40];
    int64_t created;
    double last_sent; /* clock of the last bytes, for comments that keep a connection alive */
};

static int no_memory(struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_NOMEM, .text = "no memory for this request"};
    return LODE_ERR_NOMEM;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- what goes out ---- */

static void send_event(struct completion *c, json_t *event) {
    char *text = event ? json_dumps(event, JSON_COMPACT) : NULL;
    json_decref(event);
    if (text)
        lode_buf_addf(&c->out, "data: %s\n\n", text);
    else
        c->out.failed = true;
    free(text);
    c->last_sent = now();
}

static json_t *envelope(const struct completion *c, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", c->id, "object", object, "created",
                     (json_int_t)c->created, "model", c->s->o.name, "system_fingerprint",
                     "lode-" LODE_VERSION, "choices", choices);
}

static const char *chunk_name(const struct completion *c) {
    return c->chat ? "chat.completion.chunk" : "text_completion";
}

/* Log-probabilities in the shape of the API; takes the list. */
static json_t *wrap_logprobs(const struct completion *c, json_t *list) {
    return !c->logprobs ? json_null() : json_pack("{s:o}", "content", list ? list : json_array());
}

/* delta: taken.  With it go the log-probabilities that have come since the last. */
static void send_delta(struct choice *h, json_t *delta) {
    struct completion *c = h->c;
    json_t *list = h->logprobs;
    h->logprobs = c->logprobs ? json_array() : NULL;
    json_t *choice = json_pack("{s:i, s:o, s:o?, s:o}", "index", h->index,
                               c->chat ? "delta" : "text", delta, "finish_reason",
                               h->finish ? json_string(h->finish) : json_null(), "logprobs",
                               wrap_logprobs(c, list));
    send_event(c, envelope(c, chunk_name(c), json_pack("[o]", choice)));
}

static int put_text(struct choice *h, bool thinking, const char *text, size_t len) {
    struct completion *c = h->c;
    if (len == 0)
        return 0;
    if (!c->stream)
        return lode_buf_add(thinking ? &h->reasoning : &h->content, text, len) ? 0 : LODE_ERR_NOMEM;
    json_t *s = json_stringn(text, len);
    send_delta(h, c->chat ? json_pack("{s:o}", thinking ? "reasoning_content" : "content", s) : s);
    return 0;
}

static int put_content(void *user, const char *text, size_t len) {
    return put_text(user, false, text, len);
}

static int put_call(struct choice *h, const struct lode_toolcall_event *e) {
    const size_t index = json_array_size(h->calls);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", e->id, "type", "function",
                             "function", "name", e->name, "arguments",
                             json_stringn(lode_buf_str(&h->arguments).data, h->arguments.len));
    if (json_array_append(h->calls, call)) {
        json_decref(call);
        return LODE_ERR_NOMEM;
    }
    if (h->c->stream) {
        json_t *sent = json_copy(call);
        json_object_set_new(sent, "index", json_integer((json_int_t)index));
        send_delta(h, json_pack("{s:[o]}", "tool_calls", sent));
    }
    json_decref(call);
    return 0;
}

static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct choice *h = user;
    if (h->flow.stopped)
        return 0;
    switch (e->kind) {
    case LODE_TOOLCALL_CONTENT:
    case LODE_TOOLCALL_MALFORMED:
        return flow_push(&h->flow, e->text, e->len) ? LODE_ERR_NOMEM : 0;
    case LODE_TOOLCALL_REASONING:
        return put_text(h, true, e->text, e->len);
    case LODE_TOOLCALL_BEGIN: /* no stop text reaches over a call */
        lode_buf_clear(&h->arguments);
        return flow_finish(&h->flow) ? LODE_ERR_NOMEM : 0;
    case LODE_TOOLCALL_ARGUMENTS:
        return lode_buf_add(&h->arguments, e->text, e->len) ? 0 : LODE_ERR_NOMEM;
    case LODE_TOOLCALL_END:
        return put_call(h, e);
    case LODE_TOOLCALL_MARKUP:
        return 0;
    }
    return 0;
}

static json_t *token_json(const struct completion *c, int32_t id, float logprob) {
    char text[256];
    struct lode_error err;
    int64_t n = lode_detokenize(c->s->tokenizer, &id, 1, false, text, sizeof text, &err);
    n = n < 0 || n > (int64_t)sizeof text ? 0 : n;
    json_t *bytes = json_array();
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(bytes, json_integer((unsigned char)text[i]));
    return json_pack("{s:o, s:i, s:f, s:o}", "token", json_stringn(text, (size_t)n), "id", (int)id,
                     "logprob", (double)(logprob > -9999 ? logprob : -9999), "bytes", bytes);
}

static void add_logprob(struct choice *h, const struct lode_generation_token *t) {
    json_t *entry = token_json(h->c, t->id, t->logprob), *top = json_array();
    for (uint32_t i = 0; i < t->n_top; i++)
        json_array_append_new(top, token_json(h->c, t->top[i].id, t->top[i].logprob));
    json_object_set_new(entry, "top_logprobs", top);
    json_array_append_new(h->logprobs, entry);
}

/* ---- the reply's numbers ---- */

static json_t *usage(const struct completion *c) {
    struct lode_generation_stats st;
    size_t n = 0;
    lode_generation_stats(c->choices[0].generation, &st);
    for (int i = 0; i < c->n; i++)
        n += c->choices[i].n_tokens;
    return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens", (json_int_t)st.n_prompt,
                     "completion_tokens", (json_int_t)n, "total_tokens",
                     (json_int_t)(st.n_prompt + n), "prompt_tokens_details", "cached_tokens",
                     (json_int_t)st.n_reused);
}

/* As llama.cpp gives them. */
static json_t *timings(const struct completion *c) {
    struct lode_generation_stats st;
    lode_generation_stats(c->choices[0].generation, &st);
    const size_t n_read = st.n_prompt - st.n_reused;
    const double p = st.prompt_seconds, a = st.answer_seconds;
    return json_pack("{s:I, s:I, s:f, s:f, s:I, s:f, s:f}", "cache_n", (json_int_t)st.n_reused,
                     "prompt_n", (json_int_t)n_read, "prompt_ms", p * 1e3, "prompt_per_second",
                     p > 0 ? (double)n_read / p : 0.0, "predicted_n", (json_int_t)st.n_generated,
                     "predicted_ms", a * 1e3, "predicted_per_second",
                     a > 0 ? (double)st.n_generated / a : 0.0);
}

/* ---- a choice's end ---- */

static int end_choice(struct choice *h, int why, struct lode_error *err) {
    struct completion *c = h->c;
    const char *text;
    size_t len;
    int rc = 0;
    if (!h->flow.stopped) {
        rc = lode_detok_finish(h->detok, &text, &len, err);
        if (rc == 0)
            rc = lode_toolcall_push(h->parser, text, len, err);
        if (rc == 0)
            rc = lode_toolcall_finish(h->parser, err);
        if (rc == 0 && !h->flow.stopped && flow_finish(&h->flow))
            rc = no_memory(err);
    }
    if (rc < 0)
        return rc;
    const bool whole = h->flow.stopped || why == LODE_GENERATION_ENDED;
    h->finish = !whole ? "length" : json_array_size(h->calls) ? "tool_calls" : "stop";
    if (c->stream)
        send_delta(h, c->chat ? json_object() : json_string(""));
    if (++c->at < c->n)
        return COMPLETION_MOVED;
    if (c->stream && c->include_usage) {
        json_t *last = envelope(c, chunk_name(c), json_array());
        json_object_set_new(last, "usage", usage(c));
        json_object_set_new(last, "timings", timings(c));
        send_event(c, last);
    }
    if (c->stream)
        lode_buf_addz(&c->out, "data: [DONE]\n\n");
    return COMPLETION_DONE;
}

/* Special tokens are no text, but for those that the parser looks for. */
static bool is_left_out(const struct choice *h, int32_t id) {
    struct lode_token_info info;
    return lode_token_info(h->c->s->tokenizer, id, &info) == 0 && info.special &&
           !lode_toolcall_wants(h->parser, info.piece, info.piece_len);
}

static int take_token(struct choice *h, const struct lode_generation_token *t,
                      struct lode_error *err) {
    const char *text = "";
    size_t len = 0;
    int rc = 0;
    h->n_tokens++;
    if (h->c->logprobs)
        add_logprob(h, t);
    if (!is_left_out(h, t->id))
        rc = lode_detok_push(h->detok, t->id, &text, &len, err);
    if (rc == 0)
        rc = lode_toolcall_push(h->parser, text, len, err);
    if (rc < 0)
        return rc;
    return h->flow.stopped ? end_choice(h, LODE_GENERATION_ENDED, err) : COMPLETION_MOVED;
}

/* A line that clients skip, where nothing else is sent for long. */
static void keep_alive(struct completion *c) {
    struct lode_generation_stats st;
    if (!c->stream || now() - c->last_sent < 5)
        return;
    lode_generation_stats(c->choices[c->at].generation, &st);
    if (st.place)
        lode_buf_addf(&c->out, ": place %zu in the queue\n\n", st.place);
    else
        lode_buf_addf(&c->out, ": %zu of %zu prompt tokens read\n\n", st.n_read, st.n_prompt);
    c->last_sent = now();
}

int completion_step(struct completion *c, int wait_ms, struct lode_error *err) {
    struct lode_generation_token t;
    if (c->at == c->n)
        return COMPLETION_DONE;
    struct choice *h = &c->choices[c->at];
    int rc = lode_generation_next(h->generation, &t, wait_ms, err);
    if (rc == LODE_GENERATION_WAIT) {
        keep_alive(c);
        return COMPLETION_WAITS;
    }
    if (rc == LODE_GENERATION_TOKEN)
        rc = take_token(h, &t, err);
    else if (rc > 0)
        rc = end_choice(h, rc, err);
    return rc >= 0 && c->out.failed ? no_memory(err) : rc;
}

/* ---- the body ---- */

static int read_stops(struct completion *c, struct lode_error *err) {
    const json_t *v = json_object_get(c->body, "stop");
    const size_t n = json_is_string(v) ? 1 : json_array_size(v);
    if (!v || json_is_null(v))
        return 0;
    if ((!json_is_string(v) && !json_is_array(v)) || n > MAX_STOPS)
        return field_fail(err, "stop", "a string or a list of at most %d expected", MAX_STOPS);
    for (size_t i = 0; i < n; i++) {
        const char *s = json_string_value(json_is_string(v) ? v : json_array_get(v, i));
        if (!s || !*s)
            return field_fail(err, "stop", "element %zu is no text, or empty", i);
        c->stops[c->n_stops++] = s;
    }
    return 0;
}

static int read_bias(const struct completion *c, struct lode_sampler_opts *o,
                     struct lode_logit_bias **out, struct lode_error *err) {
    json_t *object = NULL, *v;
    const char *key;
    int rc = field_object(c->body, "logit_bias", &object, err);
    if (rc < 0 || !json_object_size(object))
        return rc;
    struct lode_logit_bias *b = malloc(json_object_size(object) * sizeof *b);
    if (!b)
        return no_memory(err);
    *out = b;
    o->bias = b;
    o->n_bias = 0;
    json_object_foreach(object, key, v) {
        char *end;
        const long id = strtol(key, &end, 10);
        if (end == key || *end || id < 0 || id >= lode_model_info(c->s->o.model)->n_vocab ||
            !json_is_number(v))
            return field_fail(err, "logit_bias", "\"%.40s\" is no token id with a number", key);
        b[o->n_bias++] = (struct lode_logit_bias){(int32_t)id, (float)json_number_value(v)};
    }
    return 0;
}

static int read_sampling(const json_t *body, struct lode_sampler_opts *o, struct lode_error *err) {
    const struct {
        const char *name;
        double low, high;
        float *out;
    } reals[] = {
        {"temperature", 0, 100, &o->temp},
        {"top_p", 0, 1, &o->top_p},
        {"min_p", 0, 1, &o->min_p},
        {"typical_p", 0, 1, &o->typical_p},
        {"repeat_penalty", 0.01, 100, &o->repeat_penalty},
        {"presence_penalty", -100, 100, &o->presence_penalty},
        {"frequency_penalty", -100, 100, &o->frequency_penalty},
    };
    int64_t top_k = o->top_k, seed = -1, last_n = o->repeat_last_n;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof reals / sizeof *reals; i++)
        rc = field_real(body, reals[i].name, reals[i].low, reals[i].high, reals[i].out, err);
    if (rc == 0)
        rc = field_int(body, "top_k", -1, INT32_MAX, &top_k, err);
    if (rc == 0)
        rc = field_int(body, "repeat_last_n", -1, INT32_MAX, &last_n, err);
    if (rc == 0)
        rc = field_int(body, "seed", INT64_MIN, INT64_MAX, &seed, err);
    o->top_k = (int32_t)top_k;
    o->repeat_last_n = (int32_t)last_n;
    o->seed = (uint64_t)seed;
    if (seed == -1 && getrandom(&o->seed, sizeof o->seed, 0) != sizeof o->seed)
        o->seed = (uint64_t)time(NULL);
    return rc;
}

/* What would be ignored in silence otherwise. */
static int refuse_unsupported(const json_t *body, struct lode_error *err) {
    static const char *const grammars[] = {"json_schema", "grammar", "suffix"};
    const json_t *format = json_object_get(body, "response_format");
    const char *type = json_string_value(json_object_get(format, "type"));
    int64_t best_of = 1;
    bool echo = false;
    if (format && !json_is_null(format) && (!type || strcmp(type, "text")))
        return field_fail(err, "response_format", "only {\"type\": \"text\"}: this version does not "
                                                  "constrain its output");
    for (size_t i = 0; i < sizeof grammars / sizeof *grammars; i++) {
        const json_t *v = json_object_get(body, grammars[i]);
        if (v && !json_is_null(v))
            return field_fail(err, grammars[i], "this version does not support it");
    }
    int rc = field_bool(body, "echo", &echo, err);
    if (rc == 0)
        rc = field_int(body, "best_of", 1, 1, &best_of, err);
    return rc == 0 && echo ? field_fail(err, "echo", "this version does not support it") : rc;
}

static int read_logprobs(struct completion *c, struct lode_error *err) {
    int64_t top = 0;
    int rc;
    if (c->chat) {
        rc = field_bool(c->body, "logprobs", &c->logprobs, err);
        if (rc == 0)
            rc = field_int(c->body, "top_logprobs", 0, LODE_GENERATION_TOP, &top, err);
        if (rc == 0 && top && !c->logprobs)
            rc = field_fail(err, "top_logprobs", "needs \"logprobs\": true");
    } else {
        top = -1;
        rc = field_int(c->body, "logprobs", 0, LODE_GENERATION_TOP, &top, err);
        c->logprobs = top >= 0;
        top = top < 0 ? 0 : top;
    }
    c->n_top = (uint32_t)top;
    return rc;
}

static int read_body(struct completion *c, struct lode_generation_opts *g,
                     struct lode_logit_bias **bias, struct lode_error *err) {
    json_t *stream_options = NULL;
    const char *model = NULL;
    int64_t n = 1;
    g->max_tokens = -1;
    g->sampler = c->s->o.sampling;
    int rc = field_string(c->body, "model", &model, err);
    if (rc == 0)
        rc = field_bool(c->body, "stream", &c->stream, err);
    if (rc == 0)
        rc = field_object(c->body, "stream_options", &stream_options, err);
    if (rc == 0 && stream_options)
        rc = field_bool(stream_options, "include_usage", &c->include_usage, err);
    if (rc == 0)
        rc = field_int(c->body, "max_tokens", -1, INT32_MAX, &g->max_tokens, err);
    if (rc == 0)
        rc = field_int(c->body, "max_completion_tokens", -1, INT32_MAX, &g->max_tokens, err);
    if (rc == 0)
        rc = field_int(c->body, "n", 1, MAX_CHOICES, &n, err);
    if (rc == 0)
        rc = field_bool(c->body, "ignore_eos", &g->ignore_end, err);
    if (rc == 0)
        rc = read_logprobs(c, err);
    if (rc == 0)
        rc = read_stops(c, err);
    if (rc == 0)
        rc = refuse_unsupported(c->body, err);
    if (rc == 0)
        rc = read_sampling(c->body, &g->sampler, err);
    if (rc == 0)
        rc = read_bias(c, &g->sampler, bias, err);
    c->n = (int)n;
    g->logprobs = c->logprobs;
    g->n_top = c->n_top;
    return rc;
}

static int start_choice(struct completion *c, int i, struct lode_generation_opts g,
                        const char *tools, struct lode_error *err) {
    struct choice *h = &c->choices[i];
    *h = (struct choice){.c = c, .index = i, .calls = json_array()};
    flow_init(&h->flow, c->stops, c->n_stops, put_content, h);
    if (c->logprobs)
        h->logprobs = json_array();
    if (!h->calls || (c->logprobs && !h->logprobs))
        return no_memory(err);
    g.sampler.seed += (uint64_t)i;
    const struct lode_toolcall_opts parse = {
        .style = c->chat ? c->s->style : (struct lode_toolcall_style){NULL, NULL},
        .thinking = c->prompt.thinking,
        .tools = tools,
        .tools_len = tools ? strlen(tools) : 0,
        .seed = g.sampler.seed,
        .put = on_event,
        .user = h};
    int rc = lode_toolcall_create(&h->parser, &parse, err);
    if (rc == 0)
        rc = lode_detok_create(&h->detok, c->s->tokenizer, false, err);
    if (rc == 0)
        rc = lode_generation_start(&h->generation, c->s->o.scheduler, &g, err);
    if (rc == 0 && c->stream && c->chat)
        send_delta(h, json_pack("{s:s, s:n}", "role", "assistant", "content"));
    return rc;
}

static int start(struct completion *c, struct lode_error *err) {
    struct lode_generation_opts g = {0};
    struct lode_logit_bias *bias = NULL;
    char *tools = NULL;
    int rc = read_body(c, &g, &bias, err);
    if (rc == 0)
        rc = c->chat ? prompt_chat(&c->prompt, c->s, c->body, NULL, err)
                     : prompt_plain(&c->prompt, c->s, c->body, err);
    if (rc == 0 && c->prompt.tools && !(tools = json_dumps(c->prompt.tools, JSON_COMPACT)))
        rc = no_memory(err);
    g.prompt = c->prompt.ids;
    g.n_prompt = c->prompt.n;
    for (int i = 0; rc == 0 && i < c->n; i++)
        rc = start_choice(c, i, g, tools, err);
    free(tools);
    free(bias);
    return rc;
}

int completion_create(struct completion **out, struct server *s, const json_t *body, bool chat,
                      struct lode_error *err) {
    struct completion *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return no_memory(err);
    c->s = s;
    c->chat = chat;
    c->body = json_incref((json_t *)body);
    c->created = time(NULL);
    c->last_sent = now();
    snprintf(c->id, sizeof c->id, "%s-%llx-%llu", chat ? "chatcmpl" : "cmpl",
             (unsigned long long)s->started, (unsigned long long)atomic_fetch_add(&s->ids, 1));
    const int rc = start(c, err);
    if (rc < 0)
        completion_free(c);
    else
        *out = c;
    return rc;
}

void completion_free(struct completion *c) {
    if (!c)
        return;
    for (int i = 0; i < MAX_CHOICES; i++) {
        struct choice *h = &c->choices[i];
        lode_generation_free(h->generation);
        lode_detok_free(h->detok);
        lode_toolcall_free(h->parser);
        flow_deinit(&h->flow);
        lode_buf_free(&h->content);
        lode_buf_free(&h->reasoning);
        lode_buf_free(&h->arguments);
        json_decref(h->calls);
        json_decref(h->logprobs);
    }
    prompt_free(&c->prompt);
    lode_buf_free(&c->out);
    json_decref(c->body);
    free(c);
}

bool completion_streams(const struct completion *c) { return c->stream; }
struct lode_buf *completion_out(struct completion *c) { return &c->out; }

static json_t *text_of(const struct lode_buf *b) {
    return json_stringn(lode_buf_str(b).data, b->len);
}

static json_t *choice_json(struct choice *h) {
    struct completion *c = h->c;
    json_t *logprobs = h->logprobs, *choice;
    h->logprobs = NULL;
    if (c->chat) {
        const bool calls = json_array_size(h->calls) > 0;
        json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content",
                              calls && !h->content.len ? json_null() : text_of(&h->content));
        if (h->reasoning.len)
            json_object_set_new(m, "reasoning_content", text_of(&h->reasoning));
        if (calls)
            json_object_set(m, "tool_calls", h->calls);
        choice = json_pack("{s:i, s:o}", "index", h->index, "message", m);
    } else {
        choice = json_pack("{s:i, s:o}", "index", h->index, "text", text_of(&h->content));
    }
    json_object_set_new(choice, "finish_reason", json_string(h->finish));
    json_object_set_new(choice, "logprobs", wrap_logprobs(c, logprobs));
    return choice;
}

json_t *completion_reply(struct completion *c) {
    json_t *choices = json_array();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(choices, choice_json(&c->choices[i]));
    json_t *reply = envelope(c, c->chat ? "chat.completion" : "text_completion", choices);
    json_object_set_new(reply, "usage", usage(c));
    json_object_set_new(reply, "timings", timings(c));
    return reply;
}
