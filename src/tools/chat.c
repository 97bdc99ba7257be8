/* chat.c - see chat.h. */
#include "chat.h"

#include "chat_source.h"
#include "out.h"

#include "lode/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static int no_memory(struct lode_error *err) {
    return tool_fail(err, LODE_ERR_NOMEM, "chat", "no memory for the conversation");
}

int chat_init(struct chat *c, const struct lode_model *model, const char *template,
              const char *extra, struct lode_error *err) {
    *c = (struct chat){.model = model, .messages = json_array()};
    int rc = c->messages ? 0 : no_memory(err);
    if (rc == 0 && extra)
        rc = chat_parse_kwargs(extra, &c->extra, err);
    char *given = NULL;
    if (rc == 0 && template)
        rc = chat_template_source(template, &given, err);
    const char *source = given ? given : lode_model_info(model)->chat_template;
    if (rc == 0 && source)
        rc = lode_template_compile(&c->tmpl, source, strlen(source), err);
    if (rc == 0)
        rc = lode_toolcall_detect(&c->style, c->tmpl, err);
    free(given);
    if (rc < 0)
        chat_deinit(c);
    return rc;
}

void chat_deinit(struct chat *c) {
    lode_template_free(c->tmpl);
    json_decref(c->messages);
    json_decref(c->extra);
    json_decref(c->tools);
    *c = (struct chat){0};
}

int chat_add(struct chat *c, const char *role, const char *content, const char *thinking,
             struct lode_error *err) {
    json_t *text = json_string(content);
    if (!text)
        return tool_fail(err, LODE_ERR_FORMAT, role, "the text is not valid UTF-8");
    json_t *m = json_pack("{s:s, s:o}", "role", role, "content", text);
    if (m && thinking && *thinking)
        json_object_set_new(m, "reasoning_content", json_string(thinking));
    return json_array_append_new(c->messages, m) ? no_memory(err) : 0;
}

int chat_add_answer(struct chat *c, const char *content, const char *thinking, json_t *calls,
                    struct lode_error *err) {
    const int rc = chat_add(c, "assistant", content, thinking, err);
    if (rc == 0 && json_array_size(calls))
        json_object_set(json_array_get(c->messages, json_array_size(c->messages) - 1), "tool_calls",
                        calls);
    return rc;
}

static const char *member(const json_t *message, const char *key) {
    const char *s = json_string_value(json_object_get(message, key));
    return s ? s : "";
}

static bool has_system(const struct chat *c) {
    return !strcmp(member(json_array_get(c->messages, 0), "role"), "system");
}

int chat_set_system(struct chat *c, const char *content, struct lode_error *err) {
    json_t *text = json_string(content);
    if (!text)
        return tool_fail(err, LODE_ERR_FORMAT, "system", "the text is not valid UTF-8");
    if (has_system(c))
        json_array_remove(c->messages, 0);
    if (!*content) {
        json_decref(text);
        return 0;
    }
    return json_array_insert_new(c->messages, 0,
                                 json_pack("{s:s, s:o}", "role", "system", "content", text))
               ? no_memory(err)
               : 0;
}

const char *chat_system(const struct chat *c) {
    return has_system(c) ? member(json_array_get(c->messages, 0), "content") : "";
}

void chat_drop_last(struct chat *c) {
    const size_t n = json_array_size(c->messages);
    if (n)
        json_array_remove(c->messages, n - 1);
}

void chat_clear(struct chat *c) {
    const size_t keep = has_system(c);
    for (size_t n = json_array_size(c->messages); n > keep; n--)
        json_array_remove(c->messages, n - 1);
}

size_t chat_length(const struct chat *c) { return json_array_size(c->messages); }

bool chat_awaits_answer(const struct chat *c) {
    const size_t n = json_array_size(c->messages);
    const char *role = n ? member(json_array_get(c->messages, n - 1), "role") : "system";
    return strcmp(role, "system") && strcmp(role, "assistant");
}

static char *variables(const struct chat *c, size_t *len) {
    const struct lode_tokenizer *t = lode_model_tokenizer(c->model);
    json_t *vars =
        json_pack("{s:O, s:b, s:o, s:o}", "messages", c->messages, "add_generation_prompt", 1,
                  "bos_token", chat_token_text(t, lode_tokenizer_bos(t)), "eos_token",
                  chat_token_text(t, lode_tokenizer_eos(t)));
    if (!vars)
        return NULL;
    if (c->think != CHAT_THINK_DEFAULT) {
        /* Qwen, GLM and others ask for the first name, DeepSeek and Granite for the second. */
        json_object_set_new(vars, "enable_thinking", json_boolean(c->think == CHAT_THINK_ON));
        json_object_set_new(vars, "thinking", json_boolean(c->think == CHAT_THINK_ON));
    }
    if (c->tools)
        json_object_set(vars, "tools", c->tools);
    if (c->extra)
        json_object_update(vars, c->extra);
    char *text = json_dumps(vars, JSON_COMPACT);
    json_decref(vars);
    *len = text ? strlen(text) : 0;
    return text;
}

int chat_prompt(const struct chat *c, struct ids *out, bool *thinking, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(c->model);
    size_t n_vars, len = 0;
    char *vars = variables(c, &n_vars), *text = NULL;
    *out = (struct ids){0};
    if (!vars)
        return no_memory(err);
    int rc = lode_template_render(c->tmpl, vars, n_vars, 0, &text, &len, err);
    free(vars);
    if (rc < 0)
        return rc;
    *thinking = lode_toolcall_thinks(&c->style, text, len);
    rc = ids_tokenize(out, t, text, len, LODE_TOK_PARSE, err);
    lode_chat_text_free(text);

    /* Most templates write the BOS token; where one does not, the model still wants it. */
    const int32_t bos = lode_tokenizer_bos(t);
    if (rc == 0 && lode_tokenizer_adds_bos(t) && bos >= 0 && (out->n == 0 || out->v[0] != bos)) {
        int32_t *v = realloc(out->v, (out->n + 1) * sizeof *v);
        if (!v) {
            ids_free(out);
            return no_memory(err);
        }
        memmove(v + 1, v, out->n * sizeof *v);
        v[0] = bos;
        out->v = v;
        out->n++;
    }
    return rc;
}

int chat_save(const struct chat *c, const char *path, struct lode_error *err) {
    struct outfile file;
    int rc = outfile_open(&file, path, err);
    if (rc < 0)
        return rc;
    if (json_dumpf(c->messages, file.f, JSON_INDENT(2)) == 0)
        fputc('\n', file.f);
    return outfile_commit(&file, err);
}

/* Where a list of messages is not one, says why. */
static int check_messages(const json_t *list, const char *path, struct lode_error *err) {
    size_t i;
    json_t *m;
    json_array_foreach(list, i, m) {
        const json_t *content = json_object_get(m, "content");
        if (!json_is_string(json_object_get(m, "role")))
            return tool_fail(err, LODE_ERR_FORMAT, path, "message %zu has no \"role\"", i);
        if (!json_is_string(content) && !json_is_null(content) && !json_is_array(content))
            return tool_fail(err, LODE_ERR_FORMAT, path, "message %zu has no \"content\"", i);
    }
    return 0;
}

int chat_load(struct chat *c, const char *path, struct lode_error *err) {
    char *text;
    size_t size;
    json_error_t why;
    int rc = input_read(path, 1 << 28, &text, &size, err);
    if (rc < 0)
        return rc;
    json_t *root = json_loadb(text, size, 0, &why);
    free(text);
    if (!root)
        return tool_fail(err, LODE_ERR_FORMAT, path, "is not JSON: line %d: %s", why.line,
                         why.text);
    /* a request body {"messages": [...]} does as well */
    json_t *list = json_is_object(root) ? json_object_get(root, "messages") : root;
    rc = json_is_array(list) ? check_messages(list, path, err)
                             : tool_fail(err, LODE_ERR_FORMAT, path,
                                         "is not a list of messages [{\"role\", \"content\"}]");
    if (rc == 0) {
        json_incref(list);
        json_decref(c->messages);
        c->messages = list;
        if (json_is_array(json_object_get(root, "tools"))) {
            json_decref(c->tools);
            c->tools = json_incref(json_object_get(root, "tools"));
        }
    }
    json_decref(root);
    return rc;
}
