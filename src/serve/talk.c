/* talk.c - see talk.h. */
#include "serve/talk.h"

#include "base/buf.h"
#include "base/error.h"
#include "serve/custom.h"
#include "serve/fields.h"
#include "serve/json_read.h"
#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void talk_deinit(struct talk *t) {
    json_decref(t->messages);
    json_decref(t->tools);
    json_decref(t->custom);
    json_decref(t->kwargs);
    *t = (struct talk){0};
}

/* ---- messages ---- */

/* Parts of text as one string; what is no text is refused. */
static int join_parts(json_t *message, const json_t *parts, size_t i, struct lode_error *err) {
    char where[64], *text = NULL;
    size_t len = 0, k;
    json_t *part;
    int rc = 0;
    snprintf(where, sizeof where, "messages[%zu].content", i);
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return request_no_memory(err);
    json_array_foreach(parts, k, part) {
        const char *type = json_string_value(json_object_get(part, "type"));
        const bool refusal = type && !strcmp(type, "refusal"); /* what an assistant said */
        const json_t *t = json_object_get(part, refusal ? "refusal" : "text");
        if (!json_is_string(t) || !type || (strcmp(type, "text") && !refusal)) {
            rc = field_fail(err, where, "part %zu is %.40s; this model reads text parts only", k,
                            type ? type : "of no type");
            break;
        }
        fwrite(json_string_value(t), 1, json_string_length(t), f);
    }
    if (fclose(f) && rc == 0)
        rc = request_no_memory(err);
    if (rc == 0 && json_object_set_new(message, "content", json_stringn(text, len)))
        rc = request_no_memory(err);
    free(text);
    return rc;
}

/* Templates take a call's arguments as an object, clients send them as text; a custom tool's text is its
 * function's one argument. */
static int settle_call(json_t *call, const char *where, struct lode_error *err) {
    json_t *function = json_object_get(call, "function"), *args = NULL;
    const json_t *custom = json_object_get(call, "custom");
    const char *id;
    char place[100];
    if (!json_is_object(call))
        return field_fail(err, where, "an object expected");
    if (!function && json_is_object(custom)) {
        json_t *input = json_object_get(custom, "input");
        function = json_pack("{s:O?, s:{s:O?}}", "name", json_object_get(custom, "name"), "arguments", "input",
                             json_is_string(input) ? input : NULL);
        json_object_del(call, "custom");
        if (json_object_set_new(call, "function", function) ||
            json_object_set_new(call, "type", json_string("function")))
            return request_no_memory(err);
    }
    LODE_TRY(field_text(call, where, "id", &id, err));
    snprintf(place, sizeof place, "%.80s.function", where);
    if (!json_is_object(function))
        return field_fail(err, place, "an object with \"name\" and \"arguments\" expected");
    const json_t *text = json_object_get(function, "arguments");
    if (!json_is_string(json_object_get(function, "name"))) {
        snprintf(place, sizeof place, "%.80s.function.name", where);
        return field_fail(err, place, "the name of a tool expected");
    }
    if (text && !json_is_string(text) && !json_is_object(text) && !json_is_null(text)) {
        snprintf(place, sizeof place, "%.80s.function.arguments", where);
        return field_fail(err, place, "an object, or its text, expected");
    }
    if (json_is_string(text))
        args = json_read(json_string_value(text), json_string_length(text), 0, NULL);
    const int rc = json_is_object(args) ? json_object_set(function, "arguments", args) : 0;
    json_decref(args);
    return rc ? request_no_memory(err) : 0;
}

static int settle_calls(const json_t *message, const char *where, struct lode_error *err) {
    const json_t *calls = json_object_get(message, "tool_calls");
    char place[80];
    int rc = 0;
    snprintf(place, sizeof place, "%.40s.tool_calls", where);
    if (calls && !json_is_array(calls) && !json_is_null(calls))
        return field_fail(err, place, "an array expected");
    for (size_t i = 0; rc == 0 && i < json_array_size(calls); i++) {
        snprintf(place, sizeof place, "%.40s.tool_calls[%zu]", where, i);
        rc = settle_call(json_array_get(calls, i), place, err);
    }
    return rc;
}

/* As templates know them.  The body is ours to change. */
int talk_settle(struct talk *t, struct lode_error *err) {
    static const char *const texts[] = {"name", "tool_call_id", "reasoning_content"};
    static const char *const ours[] = {"messages", "tools", "add_generation_prompt"};
    json_t *messages = t->messages;
    char where[40], place[80];
    size_t i;
    json_t *m;
    for (i = 0; i < sizeof ours / sizeof *ours; i++)
        if (json_object_get(t->kwargs, ours[i])) {
            snprintf(place, sizeof place, "chat_template_kwargs.%s", ours[i]);
            return field_fail(err, place, "is the request's own, not a variable to set");
        }
    json_array_foreach(messages, i, m) {
        snprintf(where, sizeof where, "messages[%zu]", i);
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m))
            return field_fail(err, where, "an object expected");
        if (!role || !*role) {
            snprintf(place, sizeof place, "%s.role", where);
            return field_fail(err, json_object_get(m, "role") ? place : where,
                              "a \"role\" is missing: \"system\", \"user\", \"assistant\" or \"tool\"");
        }
        for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
            const json_t *v = json_object_get(m, texts[k]);
            snprintf(place, sizeof place, "%s.%s", where, texts[k]);
            if (v && !json_is_null(v) && !json_is_string(v))
                return field_fail(err, place, "a string expected");
        }
        if (!strcmp(role, "developer")) /* templates know it as system */
            json_object_set_new(m, "role", json_string("system"));
        snprintf(place, sizeof place, "%s.content", where);
        if (json_is_array(content)) {
            const int rc = join_parts(m, content, i, err);
            if (rc < 0)
                return rc;
        } else if (content && !json_is_string(content) && !json_is_null(content)) {
            return field_fail(err, place, "text or a list of parts expected");
        } else if (!content && !json_object_get(m, "tool_calls")) {
            return field_fail(err, where, "has neither \"content\" nor \"tool_calls\"");
        }
        const int rc = settle_calls(m, where, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- tools ---- */

static bool good_name(const char *name) {
    const size_t n = name ? strlen(name) : 0;
    return n > 0 && n <= 128 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/") == n;
}

int talk_function(const json_t *f, const char *where, const char *parameters, struct lode_error *err) {
    const json_t *schema = json_object_get(f, parameters), *about = json_object_get(f, "description");
    const json_t *strict = json_object_get(f, "strict");
    char place[128];
    snprintf(place, sizeof place, "%.100s.name", where);
    if (!good_name(json_string_value(json_object_get(f, "name"))))
        return field_fail(err, place, "a name of letters, digits and _-.:/ expected");
    snprintf(place, sizeof place, "%.90s.%.30s", where, parameters);
    if (schema && !json_is_null(schema) && !json_is_object(schema))
        return field_fail(err, place, "a JSON Schema, an object, expected");
    snprintf(place, sizeof place, "%.100s.description", where);
    if (about && !json_is_null(about) && !json_is_string(about))
        return field_fail(err, place, "a string expected");
    snprintf(place, sizeof place, "%.100s.strict", where);
    if (strict && !json_is_null(strict) && !json_is_boolean(strict))
        return field_fail(err, place, "a boolean expected");
    return 0;
}

/* A function of a chat's list; *custom, and a new reference: it is a custom tool; NULL: one that OpenAI's
 * servers would run. */
static int chat_tool(const json_t *tool, const char *where, json_t **out, bool *custom, struct lode_error *err) {
    const json_t *f = json_object_get(tool, "function"), *v = json_object_get(tool, "type");
    const char *type = json_string_value(v), *own = "function";
    char place[100];
    int rc = 0;
    *out = NULL;
    *custom = type && !strcmp(type, "custom");
    if (!json_is_object(tool))
        return field_fail(err, where, "an object expected");
    snprintf(place, sizeof place, "%.80s.type", where);
    if (v && !json_is_null(v) && !type)
        return field_fail(err, place, "a string expected");
    if (type && strcmp(type, "function") && !*custom)
        return f ? field_fail(err, place, "\"function\" expected") : 0;
    if (*custom) /* Responses have its members beside the type */
        f = json_object_get(tool, own = "custom") ? json_object_get(tool, own) : tool;
    snprintf(place, sizeof place, "%.80s.%s", where, own);
    if (!json_is_object(f))
        return field_fail(err, f ? place : where, "\"type\": \"function\" with a \"function\" expected");
    LODE_TRY(talk_function(f, place, "parameters", err));
    if (!*custom) {
        *out = json_incref((json_t *)tool);
        return 0;
    }
    rc = custom_function(out, f, json_string_value(json_object_get(f, "name")), place, err);
    if (rc == 0 && !(*out = json_pack("{s:s, s:o}", "type", "function", "function", *out)))
        rc = request_no_memory(err);
    return rc;
}

/* A chat's list as one of functions. */
static int chat_tools(struct talk *t, const json_t *list, json_t *out, struct lode_error *err) {
    char where[64];
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        json_t *tool;
        bool custom;
        snprintf(where, sizeof where, "tools[%zu]", i);
        rc = chat_tool(json_array_get(list, i), where, &tool, &custom, err);
        if (rc == 0 && custom && !t->custom && !(t->custom = json_object()))
            rc = request_no_memory(err);
        if (rc == 0 && custom &&
            json_object_set_new(t->custom, json_string_value(json_object_get(json_object_get(tool, "function"),
                                                                             "name")), json_true()))
            rc = request_no_memory(err);
        if (rc == 0 && tool && json_array_append(out, tool))
            rc = request_no_memory(err);
        json_decref(tool);
    }
    return rc;
}

int talk_chat_tools(struct talk *t, const json_t *list, const json_t *choice, struct lode_error *err) {
    json_t *functions = json_array();
    int rc = functions ? chat_tools(t, list, functions, err) : request_no_memory(err);
    if (rc == 0)
        rc = talk_tools(t, functions, choice, err);
    json_decref(functions);
    return rc;
}

bool talk_is_custom(const struct talk *t, const char *name) { return json_object_get(t->custom, name) != NULL; }

static bool has_tool(const json_t *tools, const char *name) {
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function");
        if (!strcmp(json_string_value(json_object_get(f, "name")), name))
            return true;
    }
    return false;
}

/* Where a choice has its tool's name: in a member of the kind's name, or beside it. */
static const json_t *named(const json_t *choice) {
    const json_t *f = json_object_get(choice, "function"), *c = json_object_get(choice, "custom");
    return json_is_object(f) ? f : json_is_object(c) ? c : choice;
}

static int read_choice(struct talk *t, const json_t *choice, struct lode_error *err) {
    const char *word = json_string_value(choice);
    const json_t *f = named(choice);
    if (!choice || json_is_null(choice) || (word && !strcmp(word, "auto")))
        return 0;
    if (word && !strcmp(word, "none")) {
        t->choice = TOOLS_NONE;
        return 0;
    }
    if (word && strcmp(word, "required") && strcmp(word, "any"))
        return field_fail(err, "tool_choice", "\"auto\", \"none\", \"required\" or a function "
                                              "expected, not \"%.40s\"", word);
    t->choice = TOOLS_REQUIRED;
    if (!word) {
        const char *name = json_string_value(json_object_get(f, "name"));
        if (!name)
            return field_fail(err, "tool_choice", "\"auto\", \"none\", \"required\" or a function "
                                                  "with its name expected");
        t->only = name;
        if (!has_tool(t->tools, name))
            return field_fail(err, "tool_choice", "there is no tool \"%.100s\"", name);
    }
    return t->tools ? 0 : field_fail(err, "tool_choice", "a call is wanted, but there are no tools");
}

/* {"type": "allowed_tools"}: of the tools only these, by name; the mode then says what is chosen.  Chats
 * have its list and mode in a member of their own. */
static int allow_tools(struct talk *t, const json_t *choice, struct lode_error *err) {
    const json_t *inner = json_object_get(choice, "allowed_tools"), *from = inner ? inner : choice;
    json_t *list = NULL, *left = json_array(), *tool;
    size_t i;
    int rc = left ? field_array(from, "tools", &list, err) : request_no_memory(err);
    json_array_foreach(t->tools, i, tool) {
        const char *name = json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
        bool allowed = false;
        for (size_t k = 0; k < json_array_size(list); k++) {
            const char *other = json_string_value(json_object_get(named(json_array_get(list, k)), "name"));
            allowed = allowed || (other && !strcmp(name, other));
        }
        if (rc == 0 && allowed && json_array_append(left, tool))
            rc = request_no_memory(err);
    }
    json_decref(t->tools);
    t->tools = json_array_size(left) ? json_incref(left) : NULL;
    json_decref(left);
    return rc < 0 ? rc : read_choice(t, json_object_get(from, "mode"), err);
}

int talk_tools(struct talk *t, json_t *tools, const json_t *choice, struct lode_error *err) {
    const char *type = json_string_value(json_object_get(choice, "type"));
    t->tools = json_array_size(tools) ? json_incref(tools) : NULL;
    return type && !strcmp(type, "allowed_tools") ? allow_tools(t, choice, err) : read_choice(t, choice, err);
}

/* Where the template knows nothing of tools, they are described in words, and calls and results are
 * written as text; docs/server.md has the form. */
static const char how[] =
    "You can call tools. The tools, as JSON Schemas:\n<tools>\n%s\n</tools>\n"
    "To call one, answer with nothing but\n<tool_call>\n{\"name\": NAME, \"arguments\": OBJECT}\n"
    "</tool_call>\nonce for each call. Results come back in <tool_response> tags.";

static json_t *calls_as_text(const json_t *message) {
    const char *content = json_string_value(json_object_get(message, "content"));
    struct lode_buf b = {0};
    size_t i;
    json_t *call;
    lode_buf_addz(&b, content ? content : "");
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        char *text = json_text(json_object_get(call, "function"));
        if (text)
            lode_buf_addf(&b, "%s<tool_call>\n", b.len ? "\n" : "");
        lode_buf_addz(&b, text ? text : "");
        lode_buf_addz(&b, "\n</tool_call>");
        b.failed = b.failed || !text;
        free(text);
    }
    json_t *out = b.failed ? NULL : json_stringn(lode_buf_str(&b).data, b.len);
    lode_buf_free(&b);
    return out;
}

static int add_to_system(json_t *messages, const char *text) {
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    const char *content = json_string_value(json_object_get(first, "content"));
    if (role && content && !strcmp(role, "system"))
        return json_object_set_new(first, "content", json_sprintf("%s\n\n%s", content, text));
    return json_array_insert_new(messages, 0,
                                 json_pack("{s:s, s:s}", "role", "system", "content", text));
}

int talk_tools_as_text(struct talk *t, struct lode_error *err) {
    struct lode_buf lines = {0};
    bool failed = false;
    size_t i;
    json_t *m;
    for (i = 0; i < json_array_size(t->tools); i++) {
        char *one = json_text(json_object_get(json_array_get(t->tools, i), "function"));
        lode_buf_addz(&lines, i ? "\n" : "");
        lode_buf_addz(&lines, one ? one : "");
        failed = failed || !one;
        free(one);
    }
    json_array_foreach(t->messages, i, m) {
        const char *role = json_string_value(json_object_get(m, "role"));
        if (json_object_get(m, "tool_calls")) {
            failed = json_object_set_new(m, "content", calls_as_text(m)) || failed;
            json_object_del(m, "tool_calls");
        } else if (role && !strcmp(role, "tool")) {
            const char *content = json_string_value(json_object_get(m, "content"));
            failed = json_object_set_new(m, "content",
                                         json_sprintf("<tool_response>\n%s\n</tool_response>",
                                                      content ? content : "")) ||
                     json_object_set_new(m, "role", json_string("user")) || failed;
        }
    }
    if (!failed && !lines.failed && t->choice != TOOLS_NONE) {
        json_t *text = json_sprintf(how, lode_buf_str(&lines).data);
        failed = !text || add_to_system(t->messages, json_string_value(text));
        json_decref(text);
    }
    lode_buf_free(&lines);
    return failed || lines.failed ? request_no_memory(err) : 0;
}

/* ---- a body ---- */

int talk_read(struct talk *t, const json_t *body, struct lode_error *err) {
    json_t *messages = NULL, *tools = NULL, *kwargs = NULL;
    const char *effort = NULL;
    bool thinking = true, parallel = true;
    int rc = field_array(body, "messages", &messages, err);
    if (rc == 0 && !json_array_size(messages))
        rc = field_fail(err, "messages", "at least one message expected");
    if (rc == 0)
        rc = field_array(body, "tools", &tools, err);
    if (rc == 0)
        rc = field_object(body, "chat_template_kwargs", &kwargs, err);
    if (rc == 0)
        rc = field_string(body, "reasoning_effort", &effort, err);
    if (rc == 0)
        rc = field_bool(body, "enable_thinking", &thinking, err);
    if (rc == 0)
        rc = field_bool(body, "parallel_tool_calls", &parallel, err);
    if (rc == 0)
        rc = field_bool(body, "continue_final_message", &t->goes_on, err);
    if (rc < 0)
        return rc;
    t->one_call = !parallel;
    t->messages = json_incref(messages);
    t->kwargs = kwargs ? json_incref(kwargs) : NULL;
    rc = talk_chat_tools(t, tools, json_object_get(body, "tool_choice"), err);
    if (rc == 0 && effort)
        rc = talk_default(t, "reasoning_effort", json_string(effort), err);
    if (rc == 0 && effort && !strcmp(effort, "none"))
        thinking = false;
    if (rc == 0 && (!thinking || json_is_true(json_object_get(body, "enable_thinking"))))
        rc = talk_default(t, "enable_thinking", json_boolean(thinking), err);
    return rc < 0 ? rc : talk_settle(t, err);
}

int talk_default(struct talk *t, const char *name, json_t *value, struct lode_error *err) {
    int rc = 0;
    if (!t->kwargs)
        t->kwargs = json_object();
    if (!t->kwargs || !value)
        rc = request_no_memory(err);
    else if (!json_object_get(t->kwargs, name) && json_object_set(t->kwargs, name, value))
        rc = request_no_memory(err);
    json_decref(value);
    return rc;
}
