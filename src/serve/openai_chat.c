/* openai_chat.c - POST /v1/chat/completions: OpenAI's chats, with llama.cpp's fields beside. */
#include "serve/custom.h"
#include "serve/exchange.h"
#include "serve/fields.h"

#include <stdio.h>
#include <stdlib.h>

static int read_logprobs(struct request *r, struct lode_error *err) {
    int64_t top = 0;
    int rc = field_bool(r->body, "logprobs", &r->logprobs, err);
    if (rc == 0)
        rc = field_int(r->body, "top_logprobs", 0, LODE_GENERATION_TOP, &top, err);
    if (rc == 0 && top && !r->logprobs)
        rc = field_fail(err, "top_logprobs", "needs \"logprobs\": true");
    r->g.logprobs = r->logprobs;
    r->g.n_top = (uint32_t)top;
    return rc;
}

static int read_body(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    int64_t n = 1;
    int rc = request_common(r, err);
    if (rc == 0)
        rc = field_int(r->body, "n", 1, MAX_CHOICES, &n, err);
    r->n = r->best_of = (int)n;
    if (rc == 0)
        rc = read_logprobs(r, err);
    if (rc == 0)
        rc = request_stops(r, r->body, "stop", err);
    if (rc == 0)
        rc = request_sampling(r, r->body, err);
    if (rc == 0)
        rc = request_form(r, err);
    if (rc == 0)
        rc = talk_read(&r->talk, r->body, err);
    return rc < 0 ? rc : request_talk(r, err);
}

/* ---- what goes out ---- */

static const char *reason(const struct choice *c) {
    switch (c->finish) {
    case FINISH_LENGTH:
        return "length";
    case FINISH_CALLS:
        return "tool_calls";
    default:
        return "stop";
    }
}

static json_t *envelope(const struct exchange *x, const char *object, json_t *choices) {
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", x->id, "object", object, "created",
                     (json_int_t)x->created, "model", x->r.m->name, "system_fingerprint",
                     "lode-" LODE_VERSION, "choices", choices);
}

static json_t *logprobs(struct exchange *x, struct choice *c, size_t from) {
    return x->r.logprobs
               ? json_pack("{s:o}", "content", answers_logprobs_json(x->a, c, from, c->n_kept))
               : json_null();
}

/* Takes delta.  With it go the log-probabilities that have come since the last. */
static void send_delta(struct exchange *x, struct choice *c, json_t *delta) {
    json_t *probs = logprobs(x, c, c->n_sent);
    c->n_sent = c->n_kept;
    json_t *choice = json_pack("{s:i, s:o, s:o, s:o}", "index", (int)c->index, "delta", delta,
                               "finish_reason",
                               c->finish ? json_string(reason(c)) : json_null(), "logprobs", probs);
    json_t *chunk = envelope(x, "chat.completion.chunk", json_pack("[o]", choice));
    if (x->r.timings_per_token && x->a)
        json_object_set_new(chunk, "timings", answers_timings_json(x->a));
    sse_data(x, NULL, chunk);
}

static bool is_custom(const struct exchange *x, const struct part *p) {
    return p->kind == PART_CALL && talk_is_custom(&x->r.talk, p->name);
}

/* {id, type, and of that type its name and what it is called with}; takes said. */
static json_t *call_json(const struct exchange *x, const struct part *p, json_t *said) {
    const bool custom = is_custom(x, p);
    const char *type = custom ? "custom" : "function";
    return json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", p->id, "type", type, type, "name", p->name,
                     custom ? "input" : "arguments", said);
}

/* The id and the name once, then pieces of the arguments. */
static json_t *call_begin(const struct exchange *x, const struct part *p) {
    json_t *call = call_json(x, p, json_string(""));
    json_object_set_new(call, "index", json_integer((json_int_t)p->call));
    return json_pack("{s:[o]}", "tool_calls", call);
}

static json_t *call_more(const struct part *p, const char *type, const char *name, json_t *text) {
    return json_pack("{s:[{s:I, s:{s:o}}]}", "tool_calls", "index", (json_int_t)p->call, type, name, text);
}

static json_t *input_of(const struct part *p) { return custom_input(lode_buf_str(&p->text).data, p->text.len); }

static void put_delta(struct exchange *x, const struct answer_event *e) {
    if (is_custom(x, e->part)) /* its text is known once its JSON is complete */
        return;
    json_t *text = json_stringn(e->text, e->len), *delta = NULL;
    switch (e->part->kind) {
    case PART_THINKING:
        delta = json_pack("{s:o}", "reasoning_content", text);
        break;
    case PART_TEXT:
        delta = json_pack("{s:o}", "content", text);
        break;
    case PART_CALL:
        delta = call_more(e->part, "function", "arguments", text);
        break;
    }
    send_delta(x, e->choice, delta);
}

static void put(struct exchange *x, const struct answer_event *e) {
    switch (e->kind) {
    case ANSWER_BEGIN:
        send_delta(x, e->choice, json_pack("{s:s, s:n}", "role", "assistant", "content"));
        break;
    case ANSWER_PART:
        if (e->part->kind == PART_CALL)
            send_delta(x, e->choice, call_begin(x, e->part));
        break;
    case ANSWER_DELTA:
        put_delta(x, e);
        break;
    case ANSWER_PART_END:
        if (is_custom(x, e->part))
            send_delta(x, e->choice, call_more(e->part, "custom", "input", input_of(e->part)));
        break;
    case ANSWER_END:
        send_delta(x, e->choice, json_object());
        break;
    case ANSWER_ALL:
        if (x->r.include_usage) {
            json_t *last = envelope(x, "chat.completion.chunk", json_array());
            json_object_set_new(last, "usage", answers_usage_json(x->a));
            json_object_set_new(last, "timings", answers_timings_json(x->a));
            sse_data(x, NULL, last);
        }
        lode_buf_addz(&x->out, "data: [DONE]\n\n");
        break;
    }
}

/* ---- the whole reply ---- */

static json_t *calls_json(const struct exchange *x, const struct choice *c) {
    json_t *list = json_array();
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct part *p = &c->parts[i];
        if (p->kind == PART_CALL)
            json_array_append_new(list, call_json(x, p, is_custom(x, p)
                                                            ? input_of(p)
                                                            : json_stringn(lode_buf_str(&p->text).data, p->text.len)));
    }
    return list;
}

static json_t *message_json(const struct exchange *x, const struct choice *c) {
    json_t *text = choice_text(c, PART_TEXT), *thinking = choice_text(c, PART_THINKING);
    const bool no_text = c->n_calls && json_string_length(text) == 0;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", no_text ? json_null() : text);
    if (no_text)
        json_decref(text);
    if (json_string_length(thinking))
        json_object_set(m, "reasoning_content", thinking);
    json_decref(thinking);
    if (c->n_calls)
        json_object_set_new(m, "tool_calls", calls_json(x, c));
    return m;
}

static json_t *reply(struct exchange *x) {
    json_t *choices = json_array();
    for (size_t i = 0; i < answers_choices(x->a); i++) {
        struct choice *c = answers_choice(x->a, i);
        json_array_append_new(choices,
                              json_pack("{s:i, s:o, s:s, s:o}", "index", (int)i, "message",
                                        message_json(x, c), "finish_reason", reason(c), "logprobs",
                                        logprobs(x, c, 0)));
    }
    json_t *r = envelope(x, "chat.completion", choices);
    json_object_set_new(r, "usage", answers_usage_json(x->a));
    json_object_set_new(r, "timings", answers_timings_json(x->a));
    return r;
}

/* ---- errors ---- */

static const char *error_type(int status) {
    return status == 401 || status == 403   ? "authentication_error"
           : status == 404                  ? "not_found_error"
           : status == 503 || status == 429 ? "unavailable_error"
           : status >= 500                  ? "server_error"
                                            : "invalid_request_error";
}

json_t *openai_error(int status, const struct lode_error *err) {
    char message[1100];
    snprintf(message, sizeof message, "%s%s%s", err->where, *err->where ? ": " : "",
             *err->text ? err->text : lode_error_name(err->code));
    const bool overflow = err->code == LODE_ERR_LIMIT && !strcmp(err->where, "context");
    return json_pack("{s:{s:s, s:s, s:s?, s:o}}", "error", "message", message, "type",
                     error_type(status), "param", *err->where ? err->where : NULL, "code",
                     overflow ? json_string("context_length_exceeded") : json_integer(status));
}

const struct api openai_chat = {
    .prefix = "chatcmpl-", .read = read_body, .put = put, .reply = reply, .error = openai_error};
