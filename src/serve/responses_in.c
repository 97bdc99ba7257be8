/* responses_in.c - see responses.h: a body of the Responses API as a request. */
#include "base/error.h"
#include "serve/custom.h"
#include "serve/fields.h"
#include "serve/responses.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *text_member(const json_t *v, const char *name) {
    const char *s = json_string_value(json_object_get(v, name));
    return s ? s : "";
}

/* ---- items to messages ---- */

struct reader {
    json_t *messages; /* borrowed */
    json_t *turn;     /* owned: the assistant's message that items add to; NULL: none */
    const char *where;
    struct lode_error *err;
};

static int flush(struct reader *r) {
    const int rc = r->turn ? json_array_append_new(r->messages, r->turn) : 0;
    r->turn = NULL;
    return rc ? request_no_memory(r->err) : 0;
}

static int turn(struct reader *r) {
    if (!r->turn)
        r->turn = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    return r->turn ? 0 : request_no_memory(r->err);
}

static int append(struct reader *r, const char *name, const char *text) {
    if (turn(r) < 0)
        return LODE_ERR_NOMEM;
    json_t *all = json_sprintf("%s%s", text_member(r->turn, name), text);
    return json_object_set_new(r->turn, name, all) ? request_no_memory(r->err) : 0;
}

/* A string, or parts of text, as a string of its own; NULL: *rc says why. */
static json_t *content_text(struct reader *r, const json_t *item, const char *name, int *rc) {
    const json_t *content = json_object_get(item, name);
    char where[100];
    struct lode_buf b = {0};
    json_t *part;
    size_t i;
    *rc = 0;
    if (json_is_string(content))
        return json_incref((json_t *)content);
    snprintf(where, sizeof where, "%.60s.%s", r->where, name);
    if (!json_is_array(content)) {
        *rc = field_fail(r->err, where, "a string or a list of parts expected");
        return NULL;
    }
    json_array_foreach((json_t *)content, i, part) {
        const char *type = text_member(part, "type");
        const bool refusal = !strcmp(type, "refusal");
        const json_t *text = json_object_get(part, refusal ? "refusal" : "text");
        if (!json_is_string(text) || (json_object_get(part, "type") && !strstr(type, "text") && !refusal)) {
            *rc = field_fail(r->err, where, "part %zu is of type \"%.40s\": this model reads text only", i, type);
            break;
        }
        lode_buf_add(&b, json_string_value(text), json_string_length(text));
    }
    json_t *out = *rc || b.failed ? NULL : json_stringn(lode_buf_str(&b).data, b.len);
    if (!out && *rc == 0)
        *rc = request_no_memory(r->err);
    lode_buf_free(&b);
    return out;
}

static int read_message(struct reader *r, const json_t *item) {
    const char *role;
    int rc = field_text(item, r->where, "role", &role, r->err);
    if (rc < 0)
        return rc;
    json_t *text = content_text(r, item, "content", &rc);
    if (!text)
        return rc;
    if (!strcmp(role, "assistant")) {
        rc = append(r, "content", json_string_value(text));
        json_decref(text);
        return rc;
    }
    rc = flush(r);
    if (rc == 0 && strcmp(role, "user") && strcmp(role, "system") && strcmp(role, "developer"))
        rc = field_fail(r->err, r->where, "there is no role \"%.40s\"", role);
    if (rc == 0 && json_array_append_new(r->messages, json_pack("{s:s, s:O}", "role", role,
                                                                "content", text)))
        rc = request_no_memory(r->err);
    json_decref(text);
    return rc;
}

static int read_reasoning(struct reader *r, const json_t *item) {
    static const char *const lists[] = {"content", "summary"};
    for (size_t k = 0; k < 2; k++) {
        const json_t *list = json_object_get(item, lists[k]);
        char where[100];
        snprintf(where, sizeof where, "%.60s.%s", r->where, lists[k]);
        if (list && !json_is_null(list) && !json_is_array(list))
            return field_fail(r->err, where, "an array expected");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *text;
            snprintf(where, sizeof where, "%.60s.%s[%zu]", r->where, lists[k], i);
            if (!json_is_object(json_array_get(list, i)))
                return field_fail(r->err, where, "an object expected");
            LODE_TRY(field_text(json_array_get(list, i), where, "text", &text, r->err));
            LODE_TRY(append(r, "reasoning_content", text));
        }
        if (json_array_size(list))
            break;
    }
    return 0;
}

/* The name that the model sees: a namespace's tools begin with it. */
static void full_name(char out[300], const char *space, const char *name) {
    snprintf(out, 300, "%.140s%s%.140s", space, *space ? "__" : "", name);
}

/* A function's call, or a custom tool's, whose text is the one argument. */
static int read_call(struct reader *r, const json_t *item, bool custom) {
    const char *name, *space, *id, *said;
    char full[300];
    LODE_TRY(field_text(item, r->where, "name", &name, r->err));
    LODE_TRY(field_text(item, r->where, "namespace", &space, r->err));
    LODE_TRY(field_text(item, r->where, "call_id", &id, r->err));
    LODE_TRY(field_text(item, r->where, custom ? "input" : "arguments", &said, r->err));
    LODE_TRY(turn(r));
    full_name(full, space, name);
    json_t *arguments = custom ? json_pack("{s:s}", "input", said) : json_string(said);
    json_t *call = json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", id, "type", "function", "function",
                             "name", full, "arguments", arguments);
    json_t *calls = json_object_get(r->turn, "tool_calls");
    if (!calls) {
        calls = json_array();
        if (json_object_set_new(r->turn, "tool_calls", calls)) {
            json_decref(call);
            return request_no_memory(r->err);
        }
    }
    return json_array_append_new(calls, call) ? request_no_memory(r->err) : 0;
}

static int read_output(struct reader *r, const json_t *item) {
    const char *id;
    int rc = field_text(item, r->where, "call_id", &id, r->err);
    if (rc == 0)
        rc = flush(r);
    json_t *text = rc == 0 ? content_text(r, item, "output", &rc) : NULL;
    if (!text)
        return rc;
    return json_array_append_new(r->messages, json_pack("{s:s, s:o, s:s}", "role", "tool", "content",
                                                        text, "tool_call_id", id))
               ? request_no_memory(r->err)
               : 0;
}

static int read_item(struct reader *r, const json_t *item) {
    const char *type;
    if (!json_is_object(item))
        return field_fail(r->err, r->where, "an object expected");
    LODE_TRY(field_text(item, r->where, "type", &type, r->err));
    if (!*type && !json_object_get(item, "role"))
        return field_fail(r->err, r->where, "a \"type\" or a \"role\" expected");
    if (!strcmp(type, "message") || (!*type && json_object_get(item, "role")))
        return read_message(r, item);
    if (!strcmp(type, "reasoning"))
        return read_reasoning(r, item);
    if (!strcmp(type, "function_call"))
        return read_call(r, item, false);
    if (!strcmp(type, "custom_tool_call"))
        return read_call(r, item, true);
    if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output"))
        return read_output(r, item);
    if (!strcmp(type, "item_reference"))
        return field_fail(r->err, r->where, "items are not kept one by one: send the item itself, or "
                                            "previous_response_id");
    return 0; /* what hosted tools did is nothing that this model has to know */
}

static int read_input(json_t *messages, const json_t *input, struct lode_error *err) {
    char where[64];
    struct reader r = {.messages = messages, .where = where, .err = err};
    int rc = 0;
    if (json_is_string(input))
        return json_array_append_new(messages, json_pack("{s:s, s:O}", "role", "user", "content", input))
                   ? request_no_memory(err)
                   : 0;
    if (!json_is_array(input))
        return field_fail(err, "input", "a string or a list of items expected");
    for (size_t i = 0; rc == 0 && i < json_array_size(input); i++) {
        snprintf(where, sizeof where, "input[%zu]", i);
        rc = read_item(&r, json_array_get(input, i));
    }
    if (rc == 0)
        rc = flush(&r);
    json_decref(r.turn);
    return rc;
}

/* ---- tools ---- */

struct tools {
    json_t *list, *names; /* owned elsewhere */
    struct lode_error *err;
};

/* Takes function, as chats have it; kind: what its calls are. */
static int add_tool(struct tools *t, const json_t *tool, const char *kind, const char *space, json_t *function) {
    char full[300];
    full_name(full, space, text_member(tool, "name"));
    if (!function ||
        json_array_append_new(t->list, json_pack("{s:s, s:o}", "type", "function", "function", function)))
        return request_no_memory(t->err);
    return json_object_set_new(t->names, full, json_pack("{s:s, s:s, s:s}", "kind", kind, "name",
                                                         text_member(tool, "name"), "namespace", space))
               ? request_no_memory(t->err)
               : 0;
}

static json_t *function_of(const json_t *tool, const char *name) {
    json_t *parameters = json_object_get(tool, "parameters"), *about = json_object_get(tool, "description");
    const bool none = !parameters || json_is_null(parameters);
    json_t *f = json_pack("{s:s, s:o, s:b}", "name", name, "parameters",
                          none ? json_pack("{s:s, s:{}}", "type", "object", "properties") : json_incref(parameters),
                          "strict", json_is_true(json_object_get(tool, "strict")));
    if (f && json_is_string(about) && json_object_set(f, "description", about)) {
        json_decref(f);
        return NULL;
    }
    return f;
}

/* Functions, texts for custom tools (Codex's apply_patch), and functions within a namespace (MCP).
 * Tools that OpenAI's servers would run are left out, as nobody here can. */
static int add_any(struct tools *t, const json_t *tool, const char *where, const char *space) {
    const char *type = text_member(tool, "type"), *name = text_member(tool, "name");
    char full[300], place[100];
    json_t *f;
    int rc = 0;
    full_name(full, space, name);
    if (!json_is_object(tool))
        return field_fail(t->err, where, "an object expected");
    if (!*type) {
        snprintf(place, sizeof place, "%.90s.type", where);
        return field_fail(t->err, place, "\"function\", \"custom\", \"namespace\" or another type expected");
    }
    if (!strcmp(type, "function") || !strcmp(type, "custom"))
        LODE_TRY(talk_function(tool, where, "parameters", t->err));
    if (!strcmp(type, "function"))
        return add_tool(t, tool, "function", space, function_of(tool, full));
    if (!strcmp(type, "custom")) {
        rc = custom_function(&f, tool, full, where, t->err);
        return rc < 0 ? rc : add_tool(t, tool, "custom", space, f);
    }
    if (!strcmp(type, "namespace") && !*space) {
        const json_t *list = json_object_get(tool, "tools");
        for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
            snprintf(place, sizeof place, "%.60s.tools[%zu]", where, i);
            rc = add_any(t, json_array_get(list, i), place, name);
        }
    }
    return rc;
}

static json_t *map_choice(const json_t *choice) {
    const char *type = text_member(choice, "type");
    if (!json_is_object(choice) || !*type)
        return json_incref((json_t *)choice);
    if (!strcmp(type, "function") || !strcmp(type, "custom"))
        return json_pack("{s:s}", "name", text_member(choice, "name"));
    if (!strcmp(type, "allowed_tools"))
        return json_incref((json_t *)choice);
    return json_string("auto");
}

static int read_tools(struct exchange *x, struct lode_error *err) {
    struct responses *st = x->state;
    struct request *r = &x->r;
    json_t *list = NULL, *mapped = json_array(), *choice = json_object_get(r->body, "tool_choice");
    bool parallel = true;
    st->names = json_object();
    int rc = mapped && st->names ? field_array(r->body, "tools", &list, err) : request_no_memory(err);
    struct tools t = {mapped, st->names, err};
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        char where[64];
        snprintf(where, sizeof where, "tools[%zu]", i);
        rc = add_any(&t, json_array_get(list, i), where, "");
    }
    if (rc == 0)
        rc = field_bool(r->body, "parallel_tool_calls", &parallel, err);
    r->talk.one_call = !parallel;
    if (rc == 0) {
        json_t *c = choice ? map_choice(choice) : NULL;
        rc = talk_tools(&r->talk, mapped, c, err);
        if (r->talk.only) /* borrowed from c, which goes */
            r->talk.only = text_member(choice, "name");
        json_decref(c);
    }
    json_decref(mapped);
    return rc;
}

/* ---- the rest ---- */

static int read_reasoning_effort(struct request *r, struct lode_error *err) {
    json_t *reasoning = NULL;
    const char *effort = NULL;
    int rc = field_object(r->body, "reasoning", &reasoning, err);
    if (rc == 0 && reasoning)
        rc = field_string(reasoning, "effort", &effort, err);
    if (rc == 0 && effort)
        rc = talk_default(&r->talk, "reasoning_effort", json_string(effort), err);
    if (rc == 0 && effort && !strcmp(effort, "none"))
        rc = talk_default(&r->talk, "enable_thinking", json_false(), err);
    return rc;
}

static int read_format(struct request *r, struct lode_error *err) {
    json_t *text = NULL, *format = NULL;
    int rc = field_object(r->body, "text", &text, err);
    if (rc == 0 && text)
        rc = field_object(text, "format", &format, err);
    const char *type = text_member(format, "type");
    if (rc < 0 || !format || !strcmp(type, "text"))
        return rc;
    if (!strcmp(type, "json_object"))
        return request_form_of(r, LODE_GRAMMAR_SCHEMA, "{\"type\": \"object\"}", "text.format", err);
    if (strcmp(type, "json_schema"))
        return field_fail(err, "text.format.type", "\"text\", \"json_object\" or \"json_schema\" expected");
    return request_schema(r, json_object_get(format, "schema"), "text.format.schema", err);
}

static int read_history(struct exchange *x, struct lode_error *err) {
    struct responses *st = x->state;
    int rc = field_string(x->r.body, "previous_response_id", &st->previous, err);
    if (rc == 0 && st->previous) {
        json_t *before = responses_get(x->s->responses, st->previous, &st->history);
        json_decref(before);
        if (!st->history)
            return field_fail(err, "previous_response_id",
                              "there is no response \"%.60s\": it was not stored (\"store\": false), or "
                              "others have taken its place; send the conversation itself",
                              st->previous);
    }
    if (rc == 0 && !st->history && !(st->history = json_array()))
        rc = request_no_memory(err);
    return rc < 0 ? rc : read_input(st->history, json_object_get(x->r.body, "input"), err);
}

int responses_read(struct exchange *x, struct lode_error *err) {
    /* without them the model would answer another question */
    static const char *const not_here[] = {"conversation", "prompt"};
    struct responses *st = x->state;
    struct request *r = &x->r;
    const char *instructions = NULL;
    json_t *kwargs = NULL;
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
        const json_t *v = json_object_get(r->body, not_here[i]);
        if (v && !json_is_null(v))
            return field_fail(err, not_here[i], "is kept by OpenAI's servers only: send what it holds as "
                                                "\"input\", or a previous_response_id");
    }
    st->store = true;
    st->output = json_array();
    int rc = st->output ? field_bool(r->body, "stream", &r->stream, err) : request_no_memory(err);
    if (rc == 0)
        rc = field_bool(r->body, "store", &st->store, err);
    if (rc == 0)
        rc = field_int(r->body, "max_output_tokens", -1, INT32_MAX, &r->g.max_tokens, err);
    if (rc == 0)
        rc = field_string(r->body, "instructions", &instructions, err);
    if (rc == 0)
        rc = field_object(r->body, "chat_template_kwargs", &kwargs, err);
    r->talk.kwargs = kwargs ? json_incref(kwargs) : NULL;
    if (rc == 0)
        rc = request_sampling(r, r->body, err);
    if (rc == 0)
        rc = read_history(x, err);
    if (rc == 0)
        rc = read_tools(x, err);
    if (rc == 0)
        rc = read_reasoning_effort(r, err);
    if (rc == 0)
        rc = read_format(r, err);
    if (rc < 0)
        return rc;
    r->talk.messages = json_deep_copy(st->history); /* what is done to them is not stored */
    if (!r->talk.messages ||
        (instructions && *instructions &&
         json_array_insert_new(r->talk.messages, 0, json_pack("{s:s, s:s}", "role", "system",
                                                              "content", instructions))))
        return request_no_memory(err);
    if (!json_array_size(r->talk.messages))
        return field_fail(err, "input", "at least one item expected");
    rc = talk_settle(&r->talk, err);
    return rc < 0 ? rc : request_talk(r, err);
}
