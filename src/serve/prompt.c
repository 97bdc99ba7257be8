/* prompt.c - see prompt.h. */
#include "serve/prompt.h"

#include "serve/fields.h"
#include "serve/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void prompt_free(struct prompt *p) {
    free(p->ids);
    p->ids = NULL;
}

int prompt_tokenize(struct prompt *p, const struct served *m, const char *text, size_t len,
                    int flags, struct lode_error *err) {
    size_t cap = len / 2 + 16;
    for (;;) {
        int32_t *ids = realloc(p->ids, cap * sizeof *ids);
        if (!ids)
            return request_no_memory(err);
        p->ids = ids;
        const int64_t n = lode_tokenize(m->tokenizer, text, len, flags, ids, cap, err);
        if (n < 0)
            return (int)n;
        p->n = (size_t)n;
        if (p->n <= cap)
            return 0;
        cap = p->n;
    }
}

int prompt_ids(struct prompt *p, const json_t *list, const char *field, struct lode_error *err) {
    const size_t n = json_array_size(list);
    p->ids = malloc((n + 1) * sizeof *p->ids);
    if (!p->ids)
        return request_no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(list, i);
        const json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > INT32_MAX)
            return field_fail(err, field, "element %zu is no token id", i);
        p->ids[i] = (int32_t)id;
    }
    p->n = n;
    return 0;
}

/* ---- chats ---- */

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
        const json_t *t = json_object_get(part, "text");
        if (!json_is_string(t) || !type || strcmp(type, "text")) {
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

/* Templates take a call's arguments as an object, clients send them as text. */
static void open_arguments(json_t *message) {
    size_t i;
    json_t *call;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        json_t *function = json_object_get(call, "function");
        const json_t *text = json_object_get(function, "arguments");
        json_t *args = json_is_string(text) ? json_loads(json_string_value(text), 0, NULL) : NULL;
        if (json_is_object(args))
            json_object_set(function, "arguments", args);
        json_decref(args);
    }
}

/* As templates know them.  The body is ours to change. */
static int settle_messages(json_t *messages, struct lode_error *err) {
    char where[64];
    size_t i;
    json_t *m;
    json_array_foreach(messages, i, m) {
        snprintf(where, sizeof where, "messages[%zu]", i);
        const char *role = json_string_value(json_object_get(m, "role"));
        const json_t *content = json_object_get(m, "content");
        if (!json_is_object(m))
            return field_fail(err, where, "an object expected");
        if (!role)
            return field_fail(err, where, "a \"role\" is missing");
        if (!strcmp(role, "developer")) /* templates know it as system */
            json_object_set_new(m, "role", json_string("system"));
        if (json_is_array(content)) {
            const int rc = join_parts(m, content, i, err);
            if (rc < 0)
                return rc;
        } else if (content && !json_is_string(content) && !json_is_null(content)) {
            return field_fail(err, where, "its content is neither text nor a list of parts");
        } else if (!content && !json_object_get(m, "tool_calls")) {
            return field_fail(err, where, "has neither \"content\" nor \"tool_calls\"");
        }
        open_arguments(m);
    }
    return 0;
}

static json_t *token_text(const struct lode_tokenizer *t, int32_t id) {
    struct lode_token_info info;
    if (id < 0 || lode_token_info(t, id, &info) < 0)
        return json_string("");
    return json_stringn(info.piece, info.piece_len);
}

/* tool_choice: "none" takes the tools away; what would force a call cannot be promised. */
static int choose_tools(const json_t *body, json_t **tools, struct lode_error *err) {
    const json_t *choice = json_object_get(body, "tool_choice");
    const char *word = json_string_value(choice);
    *tools = NULL;
    int rc = field_array(body, "tools", tools, err);
    if (rc < 0)
        return rc;
    if (choice && !json_is_null(choice) && (!word || (strcmp(word, "none") && strcmp(word, "auto"))))
        return field_fail(err, "tool_choice", "\"auto\" or \"none\" expected: this version cannot "
                                              "force a call");
    if ((word && !strcmp(word, "none")) || json_array_size(*tools) == 0)
        *tools = NULL;
    return 0;
}

int talk_read(struct talk *t, const json_t *body, struct lode_error *err) {
    json_t *messages = NULL, *tools = NULL, *kwargs = NULL;
    const char *effort = NULL;
    int rc = field_array(body, "messages", &messages, err);
    if (rc == 0 && !json_array_size(messages))
        rc = field_fail(err, "messages", "at least one message expected");
    if (rc == 0)
        rc = choose_tools(body, &tools, err);
    if (rc == 0)
        rc = field_object(body, "chat_template_kwargs", &kwargs, err);
    if (rc == 0)
        rc = field_string(body, "reasoning_effort", &effort, err);
    if (rc < 0)
        return rc;
    t->messages = json_incref(messages);
    t->tools = json_incref(tools);
    t->kwargs = kwargs ? json_incref(kwargs) : json_object();
    if (!t->kwargs || (effort && !json_object_get(t->kwargs, "reasoning_effort") &&
                       json_object_set_new(t->kwargs, "reasoning_effort", json_string(effort))))
        return request_no_memory(err);
    return 0;
}

void talk_deinit(struct talk *t) {
    json_decref(t->messages);
    json_decref(t->tools);
    json_decref(t->kwargs);
    *t = (struct talk){0};
}

static int variables(const struct served *m, const struct talk *t, char **out,
                     struct lode_error *err) {
    const int rc = settle_messages(t->messages, err);
    if (rc < 0)
        return rc;
    json_t *vars = json_pack(
        "{s:O, s:b, s:o, s:o}", "messages", t->messages, "add_generation_prompt", 1, "bos_token",
        token_text(m->tokenizer, lode_tokenizer_bos(m->tokenizer)), "eos_token",
        token_text(m->tokenizer, lode_tokenizer_eos(m->tokenizer)));
    bool whole = vars != NULL;
    if (t->tools)
        whole = !json_object_set(vars, "tools", t->tools) && whole;
    if (t->kwargs)
        whole = !json_object_update(vars, t->kwargs) && whole;
    *out = whole ? json_dumps(vars, JSON_COMPACT) : NULL;
    json_decref(vars);
    return *out ? 0 : request_no_memory(err);
}

/* Most templates write the BOS token; where one does not, the model still wants it. */
static int begin_with_bos(struct prompt *p, const struct served *m, struct lode_error *err) {
    const int32_t bos = lode_tokenizer_bos(m->tokenizer);
    if (bos < 0 || !lode_tokenizer_adds_bos(m->tokenizer) || (p->n && p->ids[0] == bos))
        return 0;
    int32_t *ids = realloc(p->ids, (p->n + 1) * sizeof *ids);
    if (!ids)
        return request_no_memory(err);
    memmove(ids + 1, ids, p->n++ * sizeof *ids);
    ids[0] = bos;
    p->ids = ids;
    return 0;
}

int prompt_chat(struct prompt *p, const struct served *m, struct talk *t, char **text,
                struct lode_error *err) {
    char *vars = NULL, *rendered = NULL;
    size_t len = 0;
    if (!m->tmpl)
        return field_fail(err, "messages", "this model has no chat template: use /v1/completions, "
                                           "or start the server with --chat-template");
    int rc = variables(m, t, &vars, err);
    if (rc == 0)
        rc = lode_template_render(m->tmpl, vars, strlen(vars), 0, &rendered, &len, err);
    free(vars);
    if (rc < 0)
        return rc;
    if (text) {
        *text = rendered;
        return 0;
    }
    p->thinking = lode_toolcall_thinks(&m->style, rendered, len);
    rc = prompt_tokenize(p, m, rendered, len, LODE_TOK_PARSE, err);
    lode_chat_text_free(rendered);
    return rc < 0 ? rc : begin_with_bos(p, m, err);
}
