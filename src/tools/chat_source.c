/* chat_source.c - see chat_source.h. */
#include "chat_source.h"

#include "input.h"
#include "out.h"

#include "lode/chat.h"
#include "lode/file.h"
#include "lode/toolcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int no_memory(struct lode_error *err) {
    return tool_fail(err, LODE_ERR_NOMEM, "chat template", "no memory for it");
}

bool chat_knows_format(const char *name) {
    const char *f = "";
    for (size_t i = 0; f && strcmp(f, name) != 0; i++)
        f = lode_toolcall_format(i, NULL);
    return f && *f;
}

int chat_parse_kwargs(const char *text, json_t **out, struct lode_error *err) {
    json_error_t why;
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    if (json_is_object(*out))
        return 0;
    const int rc = tool_fail(err, LODE_ERR_ARG, "--chat-template-kwargs",
                             "is not a JSON object%s%s", *out ? "" : ": ", *out ? "" : why.text);
    json_decref(*out);
    *out = NULL;
    return rc;
}

json_t *chat_token_text(const struct lode_tokenizer *t, int32_t id) {
    struct lode_token_info info;
    json_t *text = NULL;
    if (id >= 0 && lode_token_info(t, id, &info) == 0)
        text = json_stringn(info.piece, info.piece_len);
    return text ? text : json_string("");
}

int chat_template_source(const char *name, char **source, struct lode_error *err) {
    const char *builtin = lode_template_builtin(name);
    size_t size;
    *source = NULL;
    if (!builtin && !strstr(name, "{{") && !strstr(name, "{%")) {
        if (access(name, F_OK) < 0 && !strchr(name, '/') && !strchr(name, '.'))
            return tool_fail(err, LODE_ERR_ARG, name,
                             "is neither a file nor a built-in chat template (lode template --list "
                             "names those)");
        return input_read(name, 1 << 24, source, &size, err);
    }
    *source = strdup(builtin ? builtin : name);
    return *source ? 0 : no_memory(err);
}

/* The template as a JSON value -> its text; *source stays NULL when it is none. */
static int copy_source(const json_t *value, char **source, struct lode_error *err) {
    if (!json_is_string(value))
        return 0;
    *source = strdup(json_string_value(value));
    return *source ? 0 : no_memory(err);
}

/* ---- GGUF ---- */

/* The value of a key, as JSON; NULL where there is none. */
static json_t *key_value(const struct lode_file *f, const char *key) {
    size_t i = 0;
    while (i < lode_file_n_keys(f) && strcmp(lode_file_key(f, i), key) != 0)
        i++;
    if (i == lode_file_n_keys(f))
        return NULL;
    const size_t n = lode_file_value(f, i, NULL, 0, true);
    char *text = malloc(n + 1);
    if (text)
        lode_file_value(f, i, text, n + 1, true);
    json_t *value = text ? json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL) : NULL;
    free(text);
    return value;
}

static int file_tokens(const struct lode_file *f, const char *path, json_t *vars,
                       struct lode_error *err) {
    static const struct {
        const char *key, *name;
    } tokens[] = {{"tokenizer.ggml.unknown_token_id", "unk_token"},
                  {"tokenizer.ggml.seperator_token_id", "sep_token"},
                  {"tokenizer.ggml.padding_token_id", "pad_token"},
                  {"tokenizer.ggml.cls_token_id", "cls_token"},
                  {"tokenizer.ggml.mask_token_id", "mask_token"}};
    struct lode_tokenizer *t;
    const int rc = lode_tokenizer_load(&t, path, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        json_t *id = key_value(f, tokens[i].key);
        if (json_is_integer(id))
            json_object_set_new(vars, tokens[i].name,
                                chat_token_text(t, (int32_t)json_integer_value(id)));
        json_decref(id);
    }
    json_object_set_new(vars, "bos_token", chat_token_text(t, lode_tokenizer_bos(t)));
    json_object_set_new(vars, "eos_token", chat_token_text(t, lode_tokenizer_eos(t)));
    lode_tokenizer_free(t);
    return 0;
}

static int from_file(const char *path, char **source, json_t *vars, struct lode_error *err) {
    struct lode_file *f;
    int rc = lode_file_open(&f, path, err);
    if (rc < 0)
        return rc;
    if (source) {
        json_t *value = key_value(f, "tokenizer.chat_template");
        rc = copy_source(value, source, err);
        json_decref(value);
    }
    if (rc == 0)
        rc = file_tokens(f, path, vars, err);
    lode_file_close(f);
    return rc;
}

/* ---- directories, which need no weights for this ---- */

/* A JSON object in a directory; NULL where there is no such file. */
static int read_object(const char *dir, const char *name, json_t **out, struct lode_error *err) {
    char path[4096], *text;
    size_t size;
    json_error_t why;
    *out = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (access(path, F_OK) < 0)
        return 0;
    int rc = input_read(path, 1 << 26, &text, &size, err);
    if (rc < 0)
        return rc;
    /* model_max_length is often 10^30: no integer to jansson */
    *out = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    free(text);
    if (*out)
        return 0;
    return tool_fail(err, LODE_ERR_FORMAT, path, "is not JSON: line %d: %s", why.line, why.text);
}

/* The template in a file's "chat_template": a string, or of a list of named ones "default". */
static const json_t *named_template(const json_t *object) {
    const json_t *t = json_object_get(object, "chat_template");
    size_t i;
    json_t *one;
    if (!json_is_array(t))
        return t;
    json_array_foreach(t, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        if (name && !strcmp(name, "default"))
            return json_object_get(one, "template");
    }
    return json_object_get(json_array_get(t, 0), "template");
}

/* bos_token and so on: a string, or an object with "content". */
static void add_tokens(const json_t *object, json_t *vars) {
    static const char *const names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        json_t *t = json_object_get(object, names[i]);
        t = json_is_object(t) ? json_object_get(t, "content") : t;
        if (json_is_string(t) && !json_object_get(vars, names[i]))
            json_object_set(vars, names[i], t);
    }
}

static int from_directory(const char *dir, char **source, json_t *vars, struct lode_error *err) {
    static const char *const files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                        "chat_template.json"};
    char path[4096];
    size_t size;
    int rc = 0;
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    if (source && access(path, F_OK) == 0)
        rc = input_read(path, 1 << 24, source, &size, err);
    for (size_t i = 0; rc == 0 && i < sizeof files / sizeof *files; i++) {
        json_t *object;
        rc = read_object(dir, files[i], &object, err);
        add_tokens(object, vars);
        if (rc == 0 && source && !*source)
            rc = copy_source(named_template(object), source, err);
        json_decref(object);
    }
    return rc;
}

int chat_model_source(const char *path, char **source, json_t *vars, struct lode_error *err) {
    struct stat st;
    if (source)
        *source = NULL;
    const bool directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    int rc =
        directory ? from_directory(path, source, vars, err) : from_file(path, source, vars, err);
    if (rc == 0 && source && !*source)
        rc = tool_fail(err, LODE_ERR_UNSUPPORTED, path,
                       "has no chat template: give one with --chat-template");
    if (rc < 0 && source) {
        free(*source);
        *source = NULL;
    }
    return rc;
}
