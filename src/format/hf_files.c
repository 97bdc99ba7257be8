/* hf_files.c - the small files beside the weights: templates, sampling defaults. */
#include "format/hf_parts.h"

#include "base/error.h"

#include <stdio.h>
#include <sys/stat.h>

enum { MAX_JSON = 64 << 20 };

static bool exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The contents of a file, NUL-terminated, from the arena. */
static int read_text(struct lode_hf *h, const char *path, struct lode_str *out,
                     struct lode_error *err) {
    struct lode_in_file f;
    char *text = NULL;
    int rc = lode_in_open(&f, path, err);
    if (rc == 0 && f.size > MAX_JSON)
        rc = lode_fail(err, LODE_ERR_LIMIT, path, "it has more than %d bytes", MAX_JSON);
    if (rc == 0 && !(text = lode_arena_alloc_zero(&h->arena, (size_t)f.size + 1, 1)))
        rc = lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, text, (size_t)f.size, err);
    if (rc == 0)
        *out = (struct lode_str){text, (size_t)f.size};
    lode_in_close(&f);
    return rc;
}

static int read_json(struct lode_hf *h, const char *dir, const char *name,
                     enum lode_json_type type, struct lode_json_doc *out, struct lode_error *err) {
    struct lode_str text;
    *out = (struct lode_json_doc){0};
    const char *path = lode_arena_printf(&h->arena, "%s/%s", dir, name);
    if (!path)
        return lode_fail_nomem(err, name);
    if (!exists(path))
        return 0;
    LODE_TRY(read_text(h, path, &text, err));
    LODE_TRY(lode_json_parse(out, text, path, err));
    if (!lode_json_is(out->nodes, type)) {
        lode_json_free(out);
        return lode_fail(err, LODE_ERR_FORMAT, path, "a JSON %s expected",
                         type == LODE_JSON_OBJECT ? "object" : "array");
    }
    return 0;
}

int lode_hf_read_json(struct lode_hf *h, const char *dir, const char *name,
                      struct lode_json_doc *out, struct lode_error *err) {
    return read_json(h, dir, name, LODE_JSON_OBJECT, out, err);
}

int lode_hf_put_text(struct lode_hf *h, const char *key, struct lode_str s,
                     struct lode_error *err) {
    const char *copy = lode_arena_strndup(&h->arena, s.data, s.len);
    if (!copy)
        return lode_fail_nomem(err, key);
    return lode_hf_put_raw(
        h, key, (struct lode_gguf_value){.type = LODE_GGUF_STR, .s = {copy, s.len}}, err);
}

/* ---- templates ---- */

enum { MAX_TEMPLATES = 8 };

/* tokenizer.chat_template, or that with ".NAME": where several are told apart, people choose by
 * name, and "tool_use" is for requests with tools. */
static int put_template(struct lode_hf *h, struct lode_str name, struct lode_str text,
                        struct lode_error *err) {
    if (!name.len || lode_str_eqz(name, "default"))
        return lode_hf_put_text(h, "tokenizer.chat_template", text, err);
    const int len = name.len > 32 ? 32 : (int)name.len;
    const char *key = lode_arena_printf(&h->arena, "tokenizer.chat_template.%.*s", len, name.data);
    return key ? lode_hf_put_text(h, key, text, err) : lode_fail_nomem(err, "a template");
}

/* A template is a string, or a list of named ones, of which "default" (or the first) is the one. */
static int put_templates(struct lode_hf *h, const struct lode_json *t, struct lode_error *err) {
    if (lode_json_is(t, LODE_JSON_STRING))
        return put_template(h, LODE_STR(""), lode_json_str(t), err);
    if (!lode_json_is(t, LODE_JSON_ARRAY) || lode_source_find(&h->base, "tokenizer.chat_template"))
        return 0;
    const struct lode_json *c = lode_json_first(t);
    for (int i = 0; c && i < MAX_TEMPLATES; c = lode_json_next(t, c), i++) {
        const struct lode_str name = lode_json_str(lode_json_get(c, "name"));
        const struct lode_str text = lode_json_str(lode_json_get(c, "template"));
        if (text.data)
            LODE_TRY(put_template(h, name, text, err));
    }
    const struct lode_str first = lode_json_str(lode_json_get(lode_json_first(t), "template"));
    return first.data ? put_template(h, LODE_STR(""), first, err) : 0; /* a key stays as it is */
}

static int templates_from(struct lode_hf *h, const char *dir, const char *name,
                          struct lode_error *err) {
    struct lode_json_doc doc;
    LODE_TRY(lode_hf_read_json(h, dir, name, &doc, err));
    const int rc = put_templates(h, lode_json_get(doc.nodes, "chat_template"), err);
    lode_json_free(&doc);
    return rc;
}

/* The first that there is, in the order that transformers and its peers go by. */
static int read_template(struct lode_hf *h, const char *dir, struct lode_error *err) {
    const char *jinja = lode_arena_printf(&h->arena, "%s/chat_template.jinja", dir);
    struct lode_str text;
    if (!jinja)
        return lode_fail_nomem(err, dir);
    if (h->text != h->config) /* the text part of a multimodal model */
        LODE_TRY(templates_from(h, dir, "processor_config.json", err));
    if (exists(jinja)) {
        LODE_TRY(read_text(h, jinja, &text, err));
        LODE_TRY(lode_hf_put_text(h, "tokenizer.chat_template", text, err));
    }
    LODE_TRY(templates_from(h, dir, "tokenizer_config.json", err));
    return templates_from(h, dir, "chat_template.json", err);
}

/* ---- sampling ---- */

static int read_sampling(struct lode_hf *h, const char *dir, struct lode_error *err) {
    static const struct {
        const char *field, *key;
    } fields[] = {{"temperature", "general.sampling.temp"},
                  {"top_k", "general.sampling.top_k"},
                  {"top_p", "general.sampling.top_p"},
                  {"min_p", "general.sampling.min_p"},
                  {"repetition_penalty", "general.sampling.penalty_repeat"}};
    struct lode_json_doc doc;
    int rc = 0;
    LODE_TRY(lode_hf_read_json(h, dir, "generation_config.json", &doc, err));
    if (lode_json_is(lode_json_get(doc.nodes, "do_sample"),
                     LODE_JSON_FALSE)) /* greedy, whatever else it says */
        rc = lode_hf_put_raw(h, "general.sampling.temp",
                             (struct lode_gguf_value){.type = LODE_GGUF_F64, .f = 0}, err);
    for (size_t i = 0; rc == 0 && i < sizeof fields / sizeof *fields; i++) {
        const struct lode_json *v = lode_json_get(doc.nodes, fields[i].field);
        double number;
        if (lode_json_real(v, &number))
            rc = lode_hf_put_raw(h, fields[i].key,
                                 (struct lode_gguf_value){.type = LODE_GGUF_F64, .f = number}, err);
    }
    lode_json_free(&doc);
    return rc;
}

/* ---- pooling ---- */

/* folder: of the step, within dir. */
static int read_pooling(struct lode_hf *h, const char *dir, const char *folder,
                        struct lode_error *err) {
    static const struct {
        const char *field;
        uint32_t kind; /* GGUF's numbers */
    } modes[] = {{"pooling_mode_mean_tokens", 1},
                 {"pooling_mode_cls_token", 2},
                 {"pooling_mode_lasttoken", 3}};
    struct lode_json_doc doc;
    uint32_t kind = 0, n = 0;
    const char *name = lode_arena_printf(&h->arena, "%s/config.json", folder);
    if (!name)
        return lode_fail_nomem(err, folder);
    LODE_TRY(lode_hf_read_json(h, dir, name, &doc, err));
    for (const struct lode_json *v = lode_json_first(doc.nodes); v; v = lode_json_next(doc.nodes, v))
        n += lode_json_is(v, LODE_JSON_TRUE) && v->key_len > 13 &&
             memcmp(v->key, "pooling_mode_", 13) == 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (lode_json_is(lode_json_get(doc.nodes, modes[i].field), LODE_JSON_TRUE))
            kind = modes[i].kind;
    const bool known = !doc.nodes || (n == 1 && kind);
    lode_json_free(&doc);
    if (!known)
        return lode_hf_note(h, err, "%s: only one of mean, cls and last token is supported",
                            folder);
    return kind ? lode_hf_put_u32(h, "pooling_type", kind, err) : 0;
}

/* One step of sentence-transformers, by the last word of its type. */
static int read_step(struct lode_hf *h, const char *dir, const struct lode_json *step,
                     struct lode_error *err) {
    char type[LODE_HF_WORD * 2], folder[LODE_HF_WORD];
    const struct lode_str s = lode_json_str(lode_json_get(step, "type"));
    snprintf(type, sizeof type, "%.*s", s.len < sizeof type ? (int)s.len : 0, s.len ? s.data : "");
    const char *dot = strrchr(type, '.'), *word = dot ? dot + 1 : type;
    if (strcmp(word, "Transformer") == 0 || strcmp(word, "Normalize") == 0) /* embedders do both */
        return 0;
    if (strcmp(word, "Pooling") != 0)
        return lode_hf_note(h, err, "modules.json: the step %s is left out of embeddings", word);
    if (!lode_hf_word(lode_json_get(step, "path"), folder) || strchr(folder, '/') ||
        strstr(folder, ".."))
        return lode_hf_note(h, err, "modules.json: the pooling step names no folder beside it");
    return read_pooling(h, dir, folder, err);
}

static int read_steps(struct lode_hf *h, const char *dir, struct lode_error *err) {
    enum { MAX_STEPS = 16 };
    struct lode_json_doc doc;
    LODE_TRY(read_json(h, dir, "modules.json", LODE_JSON_ARRAY, &doc, err));
    const struct lode_json *step = lode_json_first(doc.nodes);
    int rc = 0;
    for (int i = 0; rc == 0 && step && i < MAX_STEPS; i++) {
        rc = read_step(h, dir, step, err);
        step = lode_json_next(doc.nodes, step);
    }
    lode_json_free(&doc);
    return rc;
}

int lode_hf_read_files(struct lode_hf *h, const char *dir, struct lode_error *err) {
    LODE_TRY(read_template(h, dir, err));
    LODE_TRY(read_steps(h, dir, err));
    return read_sampling(h, dir, err);
}
