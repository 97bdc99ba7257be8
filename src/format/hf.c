#include "format/hf.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "format/hf_parts.h"

#include <stdio.h>
#include <sys/stat.h>

enum { MAX_JSON = 64 << 20 };

static const struct lode_hf *hf_of(const struct lode_source *s) {
    return (const struct lode_hf *)s;
}

static const struct lode_gguf_value *hf_find(const struct lode_source *s, const char *key) {
    const uint32_t i = lode_map_get(&hf_of(s)->keys, lode_str(key));
    return i == LODE_MAP_NONE ? NULL : &hf_of(s)->kv[i].value;
}

static const struct lode_gguf_tensor *hf_tensor(const struct lode_source *s, const char *name) {
    const uint32_t i = lode_map_get(&hf_of(s)->names, lode_str(name));
    return i == LODE_MAP_NONE ? NULL : &hf_of(s)->tensors[i];
}

static const void *hf_data(const struct lode_source *s, const struct lode_gguf_tensor *t,
                           size_t offset) {
    const struct lode_hf_home *home = &hf_of(s)->homes[t - s->tensors];
    if (home->made)
        return (const char *)home->made + offset;
    const size_t piece_size = t->size / home->n_pieces;
    const struct lode_st_tensor *piece =
        home->pieces[home->n_pieces > 1 && piece_size ? offset / piece_size : 0];
    const char *data =
        home->plus_one || lode_hf_linear(piece) ? NULL : lode_st_data(hf_of(s)->st, piece);
    /* Headers may have any length; kernels want numbers where numbers belong. */
    if (!data || (uintptr_t)data % (t->type == LODE_F32 ? 4 : 2) != 0)
        return NULL;
    return data + (home->n_pieces > 1 ? offset % piece_size : offset);
}

/* A norm's weights, widened and with the one added. */
static int read_plus_one(const struct lode_hf *h, const struct lode_st_tensor *piece, size_t offset,
                         void *out, size_t n, struct lode_error *err) {
    const size_t count = (size_t)piece->dims[0];
    float *wide = lode_alloc(count, sizeof *wide);
    char *raw = lode_alloc(piece->size, 1);
    int rc = wide && raw ? lode_st_read(h->st, piece, 0, raw, piece->size, err)
                         : lode_fail_nomem(err, piece->name);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        uint16_t half;
        if (piece->type == LODE_ST_F32)
            memcpy(&wide[i], raw + 4 * i, 4);
        else {
            memcpy(&half, raw + 2 * i, 2);
            wide[i] = piece->type == LODE_ST_F16 ? lode_f16_f32(half) : lode_bf16_f32(half);
        }
        wide[i] += 1;
    }
    if (rc == 0)
        memcpy(out, (const char *)wide + offset, n);
    lode_free(wide);
    lode_free(raw);
    return rc;
}

static int hf_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                   void *out, size_t n, struct lode_error *err) {
    const struct lode_hf *h = hf_of(s);
    const struct lode_hf_home *home = &h->homes[t - s->tensors];
    if (offset > t->size || n > t->size - offset)
        return lode_fail(err, LODE_ERR_ARG, t->name, "%zu bytes at %zu of a tensor of %zu bytes", n,
                         offset, t->size);
    if (home->made) {
        memcpy(out, (const char *)home->made + offset, n);
        return 0;
    }
    if (home->plus_one)
        return read_plus_one(h, home->pieces[0], offset, out, n, err);
    const size_t piece_size = t->size / home->n_pieces;
    for (size_t done = 0; done < n;) { /* a range may cover several experts */
        const size_t at = (offset + done) % piece_size, rest = piece_size - at;
        const size_t some = n - done < rest ? n - done : rest;
        const struct lode_st_tensor *piece = home->pieces[(offset + done) / piece_size];
        const struct lode_hf_linear *l = lode_hf_linear(piece);
        char *to = (char *)out + done;
        LODE_TRY(l ? lode_hf_linear_read(h->st, l, at, to, some, err)
                   : lode_st_read(h->st, piece, at, to, some, err));
        done += some;
    }
    return 0;
}

static int hf_check(const struct lode_source *s, struct lode_error *err) {
    return lode_st_check(hf_of(s)->st, err);
}

static void hf_close(struct lode_source *s) {
    struct lode_hf *h = (struct lode_hf *)s;
    lode_st_close(h->st);
    lode_map_free(&h->keys);
    lode_map_free(&h->names);
    lode_arena_free(&h->arena);
    lode_free(h);
}

static const struct lode_source_ops hf_ops = {hf_find, hf_tensor, hf_data,
                                              hf_read, hf_check,  hf_close};

/* ---- the files beside the weights ---- */

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

/* A JSON object of the directory; without nodes where there is no such file. */
static int read_json(struct lode_hf *h, const char *dir, const char *name,
                     struct lode_json_doc *out, struct lode_error *err) {
    struct lode_str text;
    *out = (struct lode_json_doc){0};
    const char *path = lode_arena_printf(&h->arena, "%s/%s", dir, name);
    if (!path)
        return lode_fail_nomem(err, name);
    if (!exists(path))
        return 0;
    LODE_TRY(read_text(h, path, &text, err));
    LODE_TRY(lode_json_parse(out, text, path, err));
    if (!lode_json_is(out->nodes, LODE_JSON_OBJECT)) {
        lode_json_free(out);
        return lode_fail(err, LODE_ERR_FORMAT, path, "a JSON object expected");
    }
    return 0;
}

static int put_str(struct lode_hf *h, const char *key, struct lode_str s, struct lode_error *err) {
    const char *copy = lode_arena_strndup(&h->arena, s.data, s.len);
    if (!copy)
        return lode_fail_nomem(err, key);
    return lode_hf_put(h, key, (struct lode_gguf_value){.type = LODE_GGUF_STR, .s = {copy, s.len}},
                       err);
}

/* A template is a string, or a list of named ones, of which "default" is the one. */
static const struct lode_json *pick_template(const struct lode_json *t) {
    if (!lode_json_is(t, LODE_JSON_ARRAY))
        return t;
    for (const struct lode_json *c = lode_json_first(t); c; c = lode_json_next(t, c))
        if (lode_str_eqz(lode_json_str(lode_json_get(c, "name")), "default"))
            return lode_json_get(c, "template");
    return lode_json_get(lode_json_first(t), "template");
}

static int template_from(struct lode_hf *h, const char *dir, const char *name,
                         struct lode_error *err) {
    struct lode_json_doc doc;
    LODE_TRY(read_json(h, dir, name, &doc, err));
    const struct lode_json *t = pick_template(lode_json_get(doc.nodes, "chat_template"));
    int rc = 0;
    if (lode_json_is(t, LODE_JSON_STRING))
        rc = put_str(h, "tokenizer.chat_template", lode_json_str(t), err);
    lode_json_free(&doc);
    return rc;
}

/* The first that there is: chat_template.jinja, tokenizer_config.json, chat_template.json. */
static int read_template(struct lode_hf *h, const char *dir, struct lode_error *err) {
    const char *jinja = lode_arena_printf(&h->arena, "%s/chat_template.jinja", dir);
    struct lode_str text;
    if (!jinja)
        return lode_fail_nomem(err, dir);
    if (exists(jinja)) {
        LODE_TRY(read_text(h, jinja, &text, err));
        LODE_TRY(put_str(h, "tokenizer.chat_template", text, err));
    }
    LODE_TRY(template_from(h, dir, "tokenizer_config.json", err));
    return template_from(h, dir, "chat_template.json", err);
}

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
    LODE_TRY(read_json(h, dir, "generation_config.json", &doc, err));
    if (lode_json_is(lode_json_get(doc.nodes, "do_sample"),
                     LODE_JSON_FALSE)) /* greedy, whatever else it says */
        rc = lode_hf_put(h, "general.sampling.temp",
                         (struct lode_gguf_value){.type = LODE_GGUF_F64, .f = 0}, err);
    for (size_t i = 0; rc == 0 && i < sizeof fields / sizeof *fields; i++) {
        const struct lode_json *v = lode_json_get(doc.nodes, fields[i].field);
        double number;
        if (lode_json_real(v, &number))
            rc = lode_hf_put(h, fields[i].key,
                             (struct lode_gguf_value){.type = LODE_GGUF_F64, .f = number}, err);
    }
    lode_json_free(&doc);
    return rc;
}

/* ---- opening ---- */

static int name_model(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *type = lode_json_get(h->text, "model_type");
    char text[LODE_HF_WORD];
    const char *const word = text;
    const char *path = h->base.path, *slash = strrchr(path, '/');
    if (!lode_json_is(type, LODE_JSON_STRING))
        type = lode_json_get(h->config, "model_type");
    if (!lode_hf_word(type, text))
        return lode_fail(err, LODE_ERR_FORMAT, h->config_path,
                         "model_type is missing: this is no model that transformers would load");
    h->family = lode_hf_family(word);
    h->base.arch =
        h->family ? h->family->arch : lode_arena_printf(&h->arena, "%s (Hugging Face)", word);
    if (!h->base.arch)
        return lode_fail_nomem(err, "model_type");
    LODE_TRY(put_str(h, "general.architecture", lode_str(h->base.arch), err));
    return put_str(h, "general.name", lode_str(slash && slash[1] ? slash + 1 : path), err);
}

static int translate(struct lode_hf *h, const char *dir, struct lode_error *err) {
    LODE_TRY(name_model(h, err));
    LODE_TRY(read_template(h, dir, err));
    LODE_TRY(read_sampling(h, dir, err));
    if (!h->family) /* no architecture is called like that, and the caller says so */
        return 0;
    LODE_TRY(lode_hf_read_config(h, err));
    LODE_TRY(lode_hf_read_tensors(h, err));
    char label[LODE_HF_LABEL];
    lode_hf_label_linears(&h->linears, label);
    if (*label)
        LODE_TRY(put_str(h, "lode.quantization", lode_str(label), err));
    return lode_hf_read_rope(h, err);
}

static int open_dir(struct lode_hf *h, const char *dir, bool map, struct lode_error *err) {
    struct lode_json_doc config;
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/')
        len--;
    dir = h->base.path = lode_arena_strndup(&h->arena, dir, len);
    h->kv = LODE_ARENA_ARRAY(&h->arena, struct lode_gguf_kv, LODE_HF_MAX_KEYS);
    if (!dir || !h->kv)
        return lode_fail_nomem(err, "directory");
    h->config_path = lode_arena_printf(&h->arena, "%s/config.json", dir);
    if (!h->config_path)
        return lode_fail_nomem(err, dir);
    LODE_TRY(read_json(h, dir, "config.json", &config, err));
    if (!config.nodes)
        return lode_fail(err, LODE_ERR_MISSING, dir,
                         "the directory has no config.json: name a GGUF file, or a directory as "
                         "Hugging Face has them");
    int rc = lode_st_open(&h->st, dir, map, err);
    if (rc == 0) {
        const struct lode_json *text = lode_json_get(config.nodes, "text_config");
        h->config = config.nodes;
        h->text = lode_json_is(text, LODE_JSON_OBJECT) ? text : config.nodes;
        rc = translate(h, dir, err);
        h->config = h->text = NULL;
    }
    lode_json_free(&config);
    return rc;
}

int lode_hf_open(struct lode_source **out, const char *dir, bool map, struct lode_error *err) {
    *out = NULL;
    struct lode_hf *h = LODE_NEW(struct lode_hf);
    if (!h)
        return lode_fail_nomem(err, dir);
    h->base.ops = &hf_ops;
    h->base.arch = "";
    const int rc = open_dir(h, dir, map, err);
    if (rc < 0) {
        hf_close(&h->base);
        return rc;
    }
    snprintf(h->base.format, sizeof h->base.format, "Hugging Face");
    h->base.keys = h->kv;
    h->base.n_files = lode_st_n_shards(h->st);
    h->base.size = lode_st_file_size(h->st);
    *out = &h->base;
    return 0;
}
