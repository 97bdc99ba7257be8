/* openai_responses.c - POST /v1/responses and what was answered there: see responses.h. */
#include "serve/responses.h"

#include "serve/custom.h"
#include "serve/fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- items ---- */

static void item_id(const struct exchange *x, const char *prefix, size_t i, char out[96]) {
    snprintf(out, 96, "%s%s_%zu", prefix, x->id + strlen(x->api->prefix), i);
}

static const json_t *tool_of(const struct exchange *x, const struct part *p) {
    const struct responses *st = x->state;
    return json_object_get(st->names, p->name);
}

static const char *member(const json_t *v, const char *name) {
    const char *s = json_string_value(json_object_get(v, name));
    return s ? s : "";
}

static bool is_custom(const struct exchange *x, const struct part *p) {
    return p->kind == PART_CALL && !strcmp(member(tool_of(x, p), "kind"), "custom");
}

static json_t *text_json(const struct part *p) {
    return json_stringn(lode_buf_str(&p->text).data, p->text.len);
}

static json_t *input_of(const struct part *p) { return custom_input(lode_buf_str(&p->text).data, p->text.len); }

static json_t *text_part(json_t *text) {
    return json_pack("{s:s, s:o, s:[], s:[]}", "type", "output_text", "text", text, "annotations",
                     "logprobs");
}

/* A part as an item; whole: with what it says. */
static json_t *item_json(const struct exchange *x, const struct part *p, size_t i, bool whole) {
    const char *status = !whole ? "in_progress" : p->broken ? "incomplete" : "completed";
    char id[96];
    if (p->kind == PART_THINKING) {
        item_id(x, "rs_", i, id);
        return json_pack("{s:s, s:s, s:o}", "id", id, "type", "reasoning", "summary",
                         whole ? json_pack("[{s:s, s:o}]", "type", "summary_text", "text", text_json(p))
                               : json_array());
    }
    if (p->kind == PART_TEXT) {
        item_id(x, "msg_", i, id);
        return json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "message", "status", status,
                         "role", "assistant", "content",
                         whole ? json_pack("[o]", text_part(text_json(p))) : json_array());
    }
    const json_t *tool = tool_of(x, p);
    const char *name = tool ? member(tool, "name") : p->name, *space = member(tool, "namespace");
    json_t *item;
    if (is_custom(x, p)) {
        item_id(x, "ctc_", i, id);
        item = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "custom_tool_call",
                         "status", status, "call_id", p->id, "name", name, "input",
                         whole ? input_of(p) : json_string(""));
    } else {
        item_id(x, "fc_", i, id);
        item = json_pack("{s:s, s:s, s:s, s:s, s:s, s:o}", "id", id, "type", "function_call",
                         "status", status, "call_id", p->id, "name", name, "arguments",
                         whole ? text_json(p) : json_string(""));
    }
    if (item && *space)
        json_object_set_new(item, "namespace", json_string(space));
    return item;
}

/* ---- the response ---- */

static json_t *usage(struct exchange *x) {
    struct answer_usage u;
    answers_usage(x->a, &u);
    return json_pack("{s:I, s:{s:I}, s:I, s:{s:I}, s:I}", "input_tokens", (json_int_t)u.n_prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.n_cached, "output_tokens",
                     (json_int_t)u.n_answer, "output_tokens_details", "reasoning_tokens",
                     (json_int_t)u.n_thinking, "total_tokens", (json_int_t)(u.n_prompt + u.n_answer));
}

static json_t *given(const struct exchange *x, const char *name, json_t *otherwise) {
    json_t *v = json_object_get(x->r.body, name);
    if (!v)
        return otherwise;
    json_decref(otherwise);
    return json_incref(v);
}

/* status: "in_progress", "completed", "incomplete", "failed". */
static json_t *response_json(struct exchange *x, const char *status, const struct lode_error *err) {
    const struct responses *st = x->state;
    const bool incomplete = !strcmp(status, "incomplete");
    const bool done = incomplete || !strcmp(status, "completed");
    json_t *r = json_pack("{s:s, s:s, s:I, s:s, s:s, s:O, s:o}", "id", x->id, "object", "response",
                          "created_at", (json_int_t)x->created, "status", status, "model",
                          x->r.m->name, "output", st->output, "usage",
                          done ? usage(x) : json_null());
    const struct {
        const char *name;
        json_t *value;
    } rest[] = {
        {"error", err ? json_pack("{s:s, s:s}", "code", "server_error", "message", err->text)
                      : json_null()},
        {"incomplete_details",
         incomplete ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null()},
        {"instructions", given(x, "instructions", json_null())},
        {"max_output_tokens", given(x, "max_output_tokens", json_null())},
        {"metadata", given(x, "metadata", json_object())},
        {"parallel_tool_calls", json_boolean(!x->r.talk.one_call)},
        {"previous_response_id", st->previous ? json_string(st->previous) : json_null()},
        {"reasoning", given(x, "reasoning", json_pack("{s:n, s:n}", "effort", "summary"))},
        {"store", json_boolean(st->store)},
        {"temperature", json_real((double)x->r.g.sampler.temp)},
        {"text", given(x, "text", json_pack("{s:{s:s}}", "format", "type", "text"))},
        {"tool_choice", given(x, "tool_choice", json_string("auto"))},
        {"tools", given(x, "tools", json_array())},
        {"top_p", json_real((double)x->r.g.sampler.top_p)},
        {"truncation", json_string("disabled")},
    };
    bool failed = !r;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        failed = json_object_set_new(r, rest[i].name, rest[i].value) || failed;
    if (failed) {
        json_decref(r);
        return NULL;
    }
    return r;
}

/* What the next turn begins with: all that was said, and this answer. */
static void store(struct exchange *x, json_t *response) {
    struct responses *st = x->state;
    const struct choice *c = answers_choice(x->a, 0);
    if (!st->store || !response)
        return;
    json_t *m = json_pack("{s:s, s:o}", "role", "assistant", "content", choice_text(c, PART_TEXT));
    json_t *thinking = choice_text(c, PART_THINKING), *calls = json_array();
    for (size_t i = 0; i < c->n_parts; i++) {
        const struct part *p = &c->parts[i];
        if (p->kind == PART_CALL)
            json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", p->id, "type",
                                                   "function", "function", "name", p->name,
                                                   "arguments", text_json(p)));
    }
    if (json_string_length(thinking))
        json_object_set(m, "reasoning_content", thinking);
    if (json_array_size(calls))
        json_object_set(m, "tool_calls", calls);
    json_decref(thinking);
    json_decref(calls);
    if (json_array_append_new(st->history, m) ||
        responses_put(x->s->responses, x->id, response, st->history) < 0)
        x->out.failed = true;
}

static const char *end_status(const struct choice *c) {
    return c->finish == FINISH_LENGTH ? "incomplete" : "completed";
}

/* ---- events ---- */

static void send(struct exchange *x, const char *type, json_t *value) {
    struct responses *st = x->state;
    if (json_object_set_new(value, "type", json_string(type)) ||
        json_object_set_new(value, "sequence_number", json_integer((json_int_t)st->sequence++)))
        x->out.failed = true;
    sse_data(x, type, value);
}

static void send_response(struct exchange *x, const char *type, const char *status) {
    send(x, type, json_pack("{s:o}", "response", response_json(x, status, NULL)));
}

/* {item_id, output_index, and, in items that have parts, the part's index} */
static json_t *place(const struct exchange *x, const struct answer_event *e) {
    static const char *const prefixes[] = {
        [PART_THINKING] = "rs_", [PART_TEXT] = "msg_", [PART_CALL] = "fc_"};
    static const char *const index[] = {[PART_THINKING] = "summary_index",
                                        [PART_TEXT] = "content_index"};
    char id[96];
    item_id(x, is_custom(x, e->part) ? "ctc_" : prefixes[e->part->kind], e->i_part, id);
    json_t *v = json_pack("{s:s, s:I}", "item_id", id, "output_index", (json_int_t)e->i_part);
    if (e->part->kind != PART_CALL)
        json_object_set_new(v, index[e->part->kind], json_integer(0));
    return v;
}

static json_t *with(json_t *v, const char *name, json_t *value) {
    if (json_object_set_new(v, name, value)) {
        json_decref(v);
        return NULL;
    }
    return v;
}

static json_t *part_json(const struct part *p, bool whole) {
    json_t *text = whole ? text_json(p) : json_string("");
    return p->kind == PART_TEXT ? text_part(text)
                                : json_pack("{s:s, s:o}", "type", "summary_text", "text", text);
}

static void begin_part(struct exchange *x, const struct answer_event *e) {
    send(x, "response.output_item.added",
         json_pack("{s:I, s:o}", "output_index", (json_int_t)e->i_part, "item",
                   item_json(x, e->part, e->i_part, false)));
    if (e->part->kind != PART_CALL)
        send(x, e->part->kind == PART_TEXT ? "response.content_part.added"
                                           : "response.reasoning_summary_part.added",
             with(place(x, e), "part", part_json(e->part, false)));
}

static void add_delta(struct exchange *x, const struct answer_event *e) {
    static const char *const types[] = {[PART_THINKING] = "response.reasoning_summary_text.delta",
                                        [PART_TEXT] = "response.output_text.delta",
                                        [PART_CALL] = "response.function_call_arguments.delta"};
    if (is_custom(x, e->part)) /* its text is known once its JSON is complete */
        return;
    json_t *v = with(place(x, e), "delta", json_stringn(e->text, e->len));
    if (e->part->kind == PART_TEXT)
        v = with(v, "logprobs", json_array());
    send(x, types[e->part->kind], v);
}

static void end_part(struct exchange *x, const struct answer_event *e) {
    struct responses *st = x->state;
    const struct part *p = e->part;
    if (p->kind == PART_TEXT) {
        send(x, "response.output_text.done",
             with(with(place(x, e), "text", text_json(p)), "logprobs", json_array()));
        send(x, "response.content_part.done", with(place(x, e), "part", part_json(p, true)));
    } else if (p->kind == PART_THINKING) {
        send(x, "response.reasoning_summary_text.done", with(place(x, e), "text", text_json(p)));
        send(x, "response.reasoning_summary_part.done",
             with(place(x, e), "part", part_json(p, true)));
    } else if (is_custom(x, p)) {
        send(x, "response.custom_tool_call_input.delta", with(place(x, e), "delta", input_of(p)));
        send(x, "response.custom_tool_call_input.done", with(place(x, e), "input", input_of(p)));
    } else {
        send(x, "response.function_call_arguments.done",
             with(with(place(x, e), "name", json_string(p->name)), "arguments", text_json(p)));
    }
    json_t *item = item_json(x, p, e->i_part, true);
    if (!item || json_array_append(st->output, item))
        x->out.failed = true;
    send(x, "response.output_item.done",
         json_pack("{s:I, s:o}", "output_index", (json_int_t)e->i_part, "item", item));
}

static void put(struct exchange *x, const struct answer_event *e) {
    switch (e->kind) {
    case ANSWER_BEGIN:
        send_response(x, "response.created", "in_progress");
        send_response(x, "response.in_progress", "in_progress");
        break;
    case ANSWER_PART:
        begin_part(x, e);
        break;
    case ANSWER_DELTA:
        add_delta(x, e);
        break;
    case ANSWER_PART_END:
        end_part(x, e);
        break;
    case ANSWER_END: {
        const char *status = end_status(e->choice);
        json_t *response = response_json(x, status, NULL);
        char type[40];
        store(x, response);
        snprintf(type, sizeof type, "response.%s", status);
        send(x, type, json_pack("{s:o}", "response", response));
        break;
    }
    case ANSWER_ALL:
        break;
    }
}

static void put_error(struct exchange *x, int status, const struct lode_error *err) {
    (void)status;
    send(x, "response.failed", json_pack("{s:o}", "response", response_json(x, "failed", err)));
}

static json_t *reply(struct exchange *x) {
    struct responses *st = x->state;
    const struct choice *c = answers_choice(x->a, 0);
    for (size_t i = 0; i < c->n_parts; i++)
        json_array_append_new(st->output, item_json(x, &c->parts[i], i, true));
    json_t *response = response_json(x, end_status(c), NULL);
    store(x, response);
    return response;
}

static void close_state(struct exchange *x) {
    struct responses *st = x->state;
    json_decref(st->history);
    json_decref(st->names);
    json_decref(st->output);
}

const struct api openai_responses = {.prefix = "resp_",
                                     .state_size = sizeof(struct responses),
                                     .read = responses_read,
                                     .put = put,
                                     .reply = reply,
                                     .put_error = put_error,
                                     .close = close_state,
                                     .error = openai_error};

/* ---- routes beside ---- */

json_t *route_input_tokens(struct server *s, const struct asker *who, const json_t *body,
                           struct lode_error *err) {
    (void)who;
    struct responses st = {0};
    struct exchange x = {.s = s, .api = &openai_responses, .state = &st};
    int rc = request_init(&x.r, s, body, err);
    if (rc == 0)
        rc = responses_read(&x, err);
    json_t *reply = rc == 0 ? json_pack("{s:s, s:I}", "object", "response.input_tokens",
                                        "input_tokens", (json_int_t)x.r.prompts[0].n)
                            : NULL;
    close_state(&x);
    request_deinit(&x.r);
    return reply;
}

static json_t *missing(const char *id, struct lode_error *err) {
    *err = (struct lode_error){.code = LODE_ERR_MISSING};
    snprintf(err->where, sizeof err->where, "response_id");
    snprintf(err->text, sizeof err->text, "there is no response \"%.100s\"", id);
    return NULL;
}

json_t *item_responses(struct server *s, const char *method, const char *id,
                       struct lode_error *err) {
    static const char tail[] = "/input_items";
    const size_t n = strlen(id);
    if (!strcmp(method, "DELETE"))
        return responses_drop(s->responses, id)
                   ? json_pack("{s:s, s:s, s:b}", "id", id, "object", "response", "deleted", 1)
                   : missing(id, err);
    if (n > sizeof tail && !strcmp(id + n - (sizeof tail - 1), tail)) {
        char own[128];
        json_t *messages = NULL;
        snprintf(own, sizeof own, "%.*s", (int)(n - (sizeof tail - 1)), id);
        json_decref(responses_get(s->responses, own, &messages));
        if (!messages)
            return missing(own, err);
        json_array_remove(messages, json_array_size(messages) - 1); /* the answer is no input */
        return json_pack("{s:s, s:o, s:b}", "object", "list", "data", messages, "has_more", 0);
    }
    json_t *r = responses_get(s->responses, id, NULL);
    return r ? r : missing(id, err);
}
