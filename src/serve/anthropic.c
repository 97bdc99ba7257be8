/* anthropic.c - POST /v1/messages and /v1/messages/count_tokens: Anthropic's API.
 *
 * Messages are made of blocks; they become OpenAI's messages, in the order in which the blocks stand:
 * a result of a tool is a message of its own.
 */
#include "base/error.h"
#include "serve/exchange.h"
#include "serve/fields.h"
#include "serve/json_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what comes in ---- */

/* Claude Code puts a line before its system prompt that differs from one request to the next: it
 * would make every prompt a new one to the prefix cache, and says nothing to a model. */
static const char *without_header(const char *text) {
    static const char header[] = "x-anthropic-billing-header";
    if (strncmp(text, header, sizeof header - 1))
        return text;
    const char *end = strchr(text, '\n');
    return end ? end + 1 + strspn(end, "\n") : "";
}

static const char *type_of(const json_t *block) {
    const char *type = json_string_value(json_object_get(block, "type"));
    return type ? type : "";
}

static int add_line(struct lode_buf *b, const char *text) {
    if (*text && b->len)
        lode_buf_addc(b, '\n');
    lode_buf_addz(b, text);
    return b->failed ? LODE_ERR_NOMEM : 0;
}

/* The text of a text block, or of a document that is plain text; NULL: it is neither. */
static const char *block_text(const json_t *block) {
    const json_t *source = json_object_get(block, "source");
    if (!strcmp(type_of(block), "text"))
        return json_string_value(json_object_get(block, "text"));
    if (!strcmp(type_of(block), "document") && !strcmp(type_of(source), "text"))
        return json_string_value(json_object_get(source, "data"));
    return NULL;
}

static int not_text(const char *where, size_t i, const json_t *block, struct lode_error *err) {
    return field_fail(err, where, "block %zu is of type \"%.40s\": this model reads text only", i,
                      type_of(block));
}

/* A string, or a list of text blocks, as one text. */
static int join(const json_t *content, const char *where, struct lode_buf *out, bool system,
                struct lode_error *err) {
    json_t *block;
    size_t i;
    const char *text = json_string_value(content);
    if (!content || json_is_null(content))
        return 0;
    if (text)
        return add_line(out, system ? without_header(text) : text) ? request_no_memory(err) : 0;
    if (!json_is_array(content))
        return field_fail(err, where, "a string or a list of blocks expected");
    json_array_foreach((json_t *)content, i, block) {
        if (!(text = block_text(block)))
            return not_text(where, i, block, err);
        if (add_line(out, system ? without_header(text) : text))
            return request_no_memory(err);
    }
    return 0;
}

/* Adds {role, content: what text holds}, which is then empty; more: members of the message too. */
static int add_message(json_t *messages, const char *role, struct lode_buf *text, json_t *more,
                       struct lode_error *err) {
    json_t *m = text->failed ? NULL
                             : json_pack("{s:s, s:o}", "role", role, "content",
                                         json_stringn(lode_buf_str(text).data, text->len));
    const bool failed = !m || (more && json_object_update(m, more)) ||
                        json_array_append(messages, m);
    lode_buf_clear(text);
    json_decref(m);
    json_decref(more);
    return failed ? request_no_memory(err) : 0;
}

static int add_result(json_t *messages, const json_t *block, const char *where,
                      struct lode_error *err) {
    const char *id;
    struct lode_buf text = {0};
    LODE_TRY(field_text(block, where, "tool_use_id", &id, err));
    int rc = join(json_object_get(block, "content"), where, &text, false, err);
    if (rc == 0)
        rc = add_message(messages, "tool", &text, json_pack("{s:s}", "tool_call_id", id),
                         err);
    lode_buf_free(&text);
    return rc;
}

static int user_blocks(json_t *messages, const json_t *content, const char *where,
                       struct lode_error *err) {
    struct lode_buf text = {0};
    json_t *block;
    size_t i;
    int rc = 0;
    json_array_foreach((json_t *)content, i, block) {
        const char *t = block_text(block);
        if (t) {
            rc = add_line(&text, t) ? request_no_memory(err) : 0;
        } else if (!strcmp(type_of(block), "tool_result")) {
            if (text.len)
                rc = add_message(messages, "user", &text, NULL, err);
            if (rc == 0)
                rc = add_result(messages, block, where, err);
        } else {
            rc = not_text(where, i, block, err);
        }
        if (rc < 0)
            break;
    }
    if (rc == 0 && (text.len || !json_array_size(content)))
        rc = add_message(messages, "user", &text, NULL, err);
    lode_buf_free(&text);
    return rc;
}

static int assistant_blocks(json_t *messages, const json_t *content, const char *where,
                            struct lode_error *err) {
    struct lode_buf text = {0}, thinking = {0};
    json_t *calls = json_array(), *more = json_object(), *block;
    size_t i;
    int rc = 0;
    json_array_foreach((json_t *)content, i, block) {
        const char *type = type_of(block), *t = block_text(block);
        if (t) {
            lode_buf_addz(&text, t);
        } else if (!strcmp(type, "thinking")) {
            const char *s;
            if ((rc = field_text(block, where, "thinking", &s, err)) < 0)
                break;
            lode_buf_addz(&thinking, s);
        } else if (!strcmp(type, "tool_use")) {
            const char *id;
            const char *name = json_string_value(json_object_get(block, "name"));
            json_t *input = json_object_get(block, "input");
            if ((rc = field_text(block, where, "id", &id, err)) < 0)
                break;
            if (!name || !json_is_object(input)) {
                rc = field_fail(err, where, "block %zu: a \"name\" and an object \"input\" expected", i);
                break;
            }
            json_array_append_new(calls, json_pack("{s:s, s:s, s:{s:s, s:O}}", "id", id,
                                                   "type", "function", "function", "name", name,
                                                   "arguments", input));
        } else if (strcmp(type, "redacted_thinking")) {
            rc = not_text(where, i, block, err);
            break;
        }
    }
    if (thinking.len)
        json_object_set_new(more, "reasoning_content",
                            json_stringn(lode_buf_str(&thinking).data, thinking.len));
    if (json_array_size(calls))
        json_object_set(more, "tool_calls", calls);
    if (rc == 0)
        rc = add_message(messages, "assistant", &text, json_incref(more), err);
    json_decref(more);
    json_decref(calls);
    lode_buf_free(&text);
    lode_buf_free(&thinking);
    return rc;
}

static int read_messages(json_t *out, const json_t *body, struct lode_error *err) {
    json_t *messages = NULL, *m;
    struct lode_buf text = {0};
    char where[64];
    size_t i;
    int rc = join(json_object_get(body, "system"), "system", &text, true, err);
    if (rc == 0 && text.len)
        rc = add_message(out, "system", &text, NULL, err);
    lode_buf_free(&text);
    if (rc == 0)
        rc = field_array(body, "messages", &messages, err);
    if (rc == 0 && !json_array_size(messages))
        rc = field_fail(err, "messages", "at least one message expected");
    json_array_foreach(messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        json_t *content = json_object_get(m, "content");
        if (rc < 0)
            break;
        snprintf(where, sizeof where, "messages.%zu.content", i);
        if (!role || (strcmp(role, "user") && strcmp(role, "assistant") && strcmp(role, "system"))) {
            snprintf(where, sizeof where, "messages.%zu.role", i);
            rc = field_fail(err, where, "\"user\" or \"assistant\" expected");
        } else if (json_is_string(content)) {
            rc = json_array_append_new(out, json_pack("{s:s, s:O}", "role", role, "content", content))
                     ? request_no_memory(err)
                     : 0;
        } else if (!json_is_array(content)) {
            rc = field_fail(err, where, "a string or a list of blocks expected");
        } else {
            rc = !strcmp(role, "assistant") ? assistant_blocks(out, content, where, err)
                                            : user_blocks(out, content, where, err);
        }
    }
    return rc;
}

/* Tools of the client; those that Anthropic's servers would run (web_search_...) are left out, as
 * nobody here can. */
static int read_tools(struct request *r, struct lode_error *err) {
    json_t *list = NULL, *tools = json_array(), *choice = NULL, *mapped = NULL, *tool;
    char where[64];
    size_t i;
    int rc = tools ? field_array(r->body, "tools", &list, err) : request_no_memory(err);
    json_array_foreach(list, i, tool) {
        json_t *schema = json_object_get(tool, "input_schema");
        const char *type = type_of(tool), *name = json_string_value(json_object_get(tool, "name"));
        if (rc < 0)
            break;
        if (*type && strcmp(type, "custom") && !schema)
            continue;
        snprintf(where, sizeof where, "tools.%zu", i);
        rc = name && schema ? talk_function(tool, where, "input_schema", err)
                            : field_fail(err, where, "a \"name\" and an \"input_schema\" expected");
        if (rc < 0)
            break;
        json_t *about = json_object_get(tool, "description");
        json_t *f = json_pack("{s:s, s:O, s:b}", "name", name, "parameters", schema, "strict",
                              json_is_true(json_object_get(tool, "strict")));
        if (json_is_string(about))
            json_object_set(f, "description", about);
        if (!f || json_array_append_new(tools, json_pack("{s:s, s:o}", "type", "function",
                                                         "function", f)))
            rc = request_no_memory(err);
    }
    if (rc == 0)
        rc = field_object(r->body, "tool_choice", &choice, err);
    if (rc == 0 && choice) {
        const char *type = type_of(choice);
        rc = field_bool(choice, "disable_parallel_tool_use", &r->talk.one_call, err);
        if (rc < 0)
            mapped = NULL;
        else if (!strcmp(type, "tool"))
            mapped = json_incref(choice); /* {name} */
        else if (!strcmp(type, "any") || !strcmp(type, "auto") || !strcmp(type, "none"))
            mapped = json_string(type);
        else
            rc = field_fail(err, "tool_choice.type", "\"auto\", \"any\", \"tool\" or \"none\" expected");
    }
    if (rc == 0)
        rc = talk_tools(&r->talk, tools, mapped, err);
    json_decref(mapped);
    json_decref(tools);
    return rc;
}

static int read_thinking(struct request *r, struct lode_error *err) {
    json_t *thinking = NULL, *config = NULL;
    const char *effort = NULL, *type = "";
    int rc = field_object(r->body, "thinking", &thinking, err);
    if (rc == 0 && thinking)
        rc = field_text(thinking, "thinking", "type", &type, err);
    if (rc == 0 && thinking)
        rc = talk_default(&r->talk, "enable_thinking",
                          json_boolean(strcmp(type, "disabled")), err);
    if (rc == 0)
        rc = field_object(r->body, "output_config", &config, err);
    if (rc == 0 && config)
        rc = field_string(config, "effort", &effort, err);
    if (rc == 0 && effort)
        rc = talk_default(&r->talk, "reasoning_effort", json_string(effort), err);
    return rc;
}

/* {"type": "json_schema", "schema": {...}}, at either of the places where it has stood. */
static int read_format(struct request *r, struct lode_error *err) {
    const json_t *format = json_object_get(json_object_get(r->body, "output_config"), "format");
    if (!format)
        format = json_object_get(r->body, "output_format");
    if (!format || json_is_null(format))
        return 0;
    if (strcmp(type_of(format), "json_schema"))
        return field_fail(err, "output_config.format", "\"type\": \"json_schema\" expected");
    return request_schema(r, json_object_get(format, "schema"), "output_config.format.schema", err);
}

/* An assistant's words at the end are the beginning of the answer. */
static bool ends_with_text(const json_t *messages) {
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    return role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls") &&
           json_string_length(json_object_get(last, "content"));
}

static int read_talk(struct request *r, struct lode_error *err) {
    json_t *kwargs = NULL;
    int rc = field_object(r->body, "chat_template_kwargs", &kwargs, err);
    r->talk.kwargs = kwargs ? json_incref(kwargs) : NULL;
    r->talk.messages = json_array();
    if (rc == 0)
        rc = r->talk.messages ? read_messages(r->talk.messages, r->body, err) : request_no_memory(err);
    if (rc == 0)
        rc = read_tools(r, err);
    if (rc == 0)
        rc = read_thinking(r, err);
    if (rc == 0)
        rc = talk_settle(&r->talk, err);
    r->talk.goes_on = ends_with_text(r->talk.messages);
    return rc < 0 ? rc : request_talk(r, err);
}

static int read_body(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    int64_t most = INT64_MIN;
    int rc = field_bool(r->body, "stream", &r->stream, err);
    if (rc == 0)
        rc = field_int(r->body, "max_tokens", -1, INT32_MAX, &most, err);
    if (rc == 0 && most == INT64_MIN)
        rc = field_fail(err, "max_tokens", "is missing: say how long the answer may be (-1: no limit)");
    if (rc == 0)
        rc = request_stops(r, r->body, "stop_sequences", err);
    if (rc == 0)
        rc = request_sampling(r, r->body, err);
    if (rc == 0)
        rc = read_format(r, err);
    r->g.max_tokens = most;
    return rc < 0 ? rc : read_talk(r, err);
}

/* ---- what goes out ---- */

static const char *stop_reason(const struct choice *c) {
    switch (c->finish) {
    case FINISH_STOP_TEXT:
        return "stop_sequence";
    case FINISH_LENGTH:
        return "max_tokens";
    case FINISH_CALLS:
        return "tool_use";
    default:
        return "end_turn";
    }
}

static json_t *usage_json(size_t n_prompt, size_t n_cached, size_t n_answer) {
    return json_pack("{s:I, s:i, s:I, s:I}", "input_tokens", (json_int_t)(n_prompt - n_cached),
                     "cache_creation_input_tokens", 0, "cache_read_input_tokens",
                     (json_int_t)n_cached, "output_tokens", (json_int_t)n_answer);
}

static json_t *usage(struct exchange *x) {
    struct answer_usage u;
    answers_usage(x->a, &u);
    return usage_json(u.n_prompt, u.n_cached, u.n_answer);
}

static json_t *message(const struct exchange *x, json_t *content, const struct choice *c,
                       json_t *numbers) {
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "id", x->id, "type", "message",
                     "role", "assistant", "model", x->r.m->name, "content", content, "stop_reason",
                     c ? json_string(stop_reason(c)) : json_null(), "stop_sequence",
                     c && c->stop ? json_string(c->stop) : json_null(), "usage", numbers);
}

/* A block as it begins; whole: as it is. */
static json_t *block_json(const struct part *p, bool whole) {
    json_t *text = whole ? json_stringn(lode_buf_str(&p->text).data, p->text.len) : json_string("");
    switch (p->kind) {
    case PART_THINKING:
        return json_pack("{s:s, s:o, s:s}", "type", "thinking", "thinking", text, "signature", "");
    case PART_TEXT:
        return json_pack("{s:s, s:o}", "type", "text", "text", text);
    case PART_CALL:
        break;
    }
    json_t *input = whole ? json_read(lode_buf_str(&p->text).data, p->text.len, 0, NULL) : NULL;
    json_decref(text);
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", p->id, "name", p->name,
                     "input", input ? input : json_object());
}

static void send(struct exchange *x, const char *type, json_t *value) {
    if (value && json_object_set_new(value, "type", json_string(type)))
        x->out.failed = true;
    sse_data(x, type, value);
}

static json_t *delta_json(const struct answer_event *e) {
    static const char *const kinds[][2] = {[PART_THINKING] = {"thinking_delta", "thinking"},
                                           [PART_TEXT] = {"text_delta", "text"},
                                           [PART_CALL] = {"input_json_delta", "partial_json"}};
    return json_pack("{s:I, s:{s:s, s:o}}", "index", (json_int_t)e->i_part, "delta", "type",
                     kinds[e->part->kind][0], kinds[e->part->kind][1],
                     json_stringn(e->text, e->len));
}

static void put(struct exchange *x, const struct answer_event *e) {
    switch (e->kind) {
    case ANSWER_BEGIN: /* what was cached is known once the prompt is read: message_delta has it */
        send(x, "message_start",
             json_pack("{s:o}", "message",
                       message(x, json_array(), NULL, usage_json(x->r.prompts[0].n, 0, 0))));
        send(x, "ping", json_object());
        break;
    case ANSWER_PART:
        send(x, "content_block_start",
             json_pack("{s:I, s:o}", "index", (json_int_t)e->i_part, "content_block",
                       block_json(e->part, false)));
        break;
    case ANSWER_DELTA:
        send(x, "content_block_delta", delta_json(e));
        break;
    case ANSWER_PART_END:
        if (e->part->kind == PART_THINKING)
            send(x, "content_block_delta",
                 json_pack("{s:I, s:{s:s, s:s}}", "index", (json_int_t)e->i_part, "delta", "type",
                           "signature_delta", "signature", ""));
        send(x, "content_block_stop", json_pack("{s:I}", "index", (json_int_t)e->i_part));
        break;
    case ANSWER_END:
        send(x, "message_delta",
             json_pack("{s:{s:s, s:o}, s:o}", "delta", "stop_reason", stop_reason(e->choice),
                       "stop_sequence",
                       e->choice->stop ? json_string(e->choice->stop) : json_null(), "usage",
                       usage(x)));
        break;
    case ANSWER_ALL:
        send(x, "message_stop", json_object());
        break;
    }
}

static json_t *reply(struct exchange *x) {
    const struct choice *c = answers_choice(x->a, 0);
    json_t *content = json_array();
    for (size_t i = 0; i < c->n_parts; i++)
        json_array_append_new(content, block_json(&c->parts[i], true));
    return message(x, content, c, usage(x));
}

/* ---- errors ---- */

json_t *anthropic_error(int status, const struct lode_error *err) {
    const char *type = status == 401                    ? "authentication_error"
                       : status == 403                  ? "permission_error"
                       : status == 404                  ? "not_found_error"
                       : status == 413                  ? "request_too_large"
                       : status == 429                  ? "rate_limit_error"
                       : status == 503 || status == 529 ? "overloaded_error"
                       : status >= 500                  ? "api_error"
                                                        : "invalid_request_error";
    char message[1100];
    snprintf(message, sizeof message, "%s%s%s", err->where, *err->where ? ": " : "",
             *err->text ? err->text : lode_error_name(err->code));
    return json_pack("{s:s, s:{s:s, s:s}, s:n}", "type", "error", "error", "type", type, "message",
                     message, "request_id");
}

static void put_error(struct exchange *x, int status, const struct lode_error *err) {
    sse_data(x, "error", anthropic_error(status, err));
}

static void alive(struct exchange *x, const struct lode_generation_stats *st) {
    (void)st;
    send(x, "ping", json_object());
}

json_t *route_count_tokens(struct server *s, const struct asker *who, const json_t *body,
                           struct lode_error *err) {
    (void)who;
    struct request r;
    int rc = request_init(&r, s, body, err);
    if (rc == 0)
        rc = read_talk(&r, err);
    json_t *reply = rc == 0 ? json_pack("{s:I}", "input_tokens", (json_int_t)r.prompts[0].n) : NULL;
    request_deinit(&r);
    return reply;
}

const struct api anthropic_messages = {.prefix = "msg_",
                                       .read = read_body,
                                       .put = put,
                                       .reply = reply,
                                       .put_error = put_error,
                                       .alive = alive,
                                       .error = anthropic_error};
