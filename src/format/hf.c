#include "format/hf.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/hf_parts.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- the source ---- */

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
                           size_t offset, size_t n) {
    return lode_hf_home_data(hf_of(s), t, offset, n);
}

static int hf_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                   void *out, size_t n, struct lode_error *err) {
    return lode_hf_read_home(hf_of(s), t, offset, out, n, NULL, err);
}

static int hf_read_held(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                        void *out, size_t n, const struct lode_held *held, struct lode_error *err) {
    return lode_hf_read_home(hf_of(s), t, offset, out, n, held, err);
}

static uint32_t hf_stretches(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                             size_t n, struct lode_stretch *out, uint32_t most) {
    return lode_hf_home_stretches(hf_of(s), t, offset, n, out, most);
}

static const uint32_t *hf_order(const struct lode_source *s, const struct lode_gguf_tensor *t) {
    const struct lode_hf_home *home = &hf_of(s)->homes[t - s->tensors];
    const struct lode_hf_linear *l = home->n_runs ? lode_hf_linear(home->runs[0].from) : NULL;
    return l ? l->order : NULL;
}

static bool hf_place(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                     size_t n, struct lode_place *out) {
    return lode_hf_home_place(hf_of(s), t, offset, n, out);
}

static int hf_check(const struct lode_source *s, struct lode_error *err) {
    return lode_st_check(hf_of(s)->st, err);
}

static void hf_forget(const struct lode_source *s) { lode_st_forget(hf_of(s)->st); }

static const struct lode_in_file *hf_file(const struct lode_source *s, size_t i) {
    return lode_st_file(hf_of(s)->st, i);
}

static void hf_close(struct lode_source *s) {
    struct lode_hf *h = (struct lode_hf *)s;
    lode_st_close(h->st);
    lode_map_free(&h->keys);
    lode_map_free(&h->names);
    lode_buf_free(&h->notes);
    lode_arena_free(&h->arena);
    lode_free(h);
}

static const struct lode_source_ops hf_ops = {hf_find,  hf_tensor, hf_data, hf_read,
                                              hf_order, hf_place, hf_check, hf_forget, hf_close,
                                              hf_stretches, hf_read_held, hf_file};

int lode_hf_note(struct lode_hf *h, struct lode_error *err, const char *fmt, ...) {
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return lode_buf_addf(&h->notes, "%s%s", h->notes.len ? "\n" : "", line)
               ? 0
               : lode_fail_nomem(err, "a note");
}

/* ---- opening ---- */

/* The families of all groups. */
static const struct lode_hf_family *const groups[] = {
#define GROUP(name) lode_hf_##name##_families,
    LODE_HF_GROUP_LIST(GROUP)
#undef GROUP
};

const struct lode_hf_family *lode_hf_family(const char *model_type) {
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (const struct lode_hf_family *f = groups[g]; f->model_type; f++)
            if (strcmp(f->model_type, model_type) == 0)
                return f;
    return NULL;
}

/* ORG/NAME where the directory is a snapshot in Hugging Face's cache, else its own name. */
static const char *title_of(struct lode_hf *h) {
    static const char mark[] = "models--";
    const char *path = h->base.path, *slash = strrchr(path, '/');
    const char *snapshot = slash ? strstr(path, "/snapshots/") : NULL;
    const char *name = snapshot ? snapshot : path;
    while (name > path && name[-1] != '/')
        name--;
    if (!snapshot || snapshot + strlen("/snapshots") != slash ||
        strncmp(name, mark, sizeof mark - 1) != 0)
        return slash && slash[1] ? slash + 1 : path;
    name += sizeof mark - 1;
    char *title = lode_arena_strndup(&h->arena, name, (size_t)(snapshot - name));
    char *dashes = title ? strstr(title, "--") : NULL;
    if (dashes) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }
    return title;
}

static int name_model(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *type = lode_json_get(h->text, "model_type");
    char word[LODE_HF_WORD];
    const char *title = title_of(h);
    if (!title)
        return lode_fail_nomem(err, "name");
    if (!lode_json_is(type, LODE_JSON_STRING))
        type = lode_json_get(h->config, "model_type");
    if (!lode_hf_word(type, word))
        return lode_fail(err, LODE_ERR_FORMAT, h->config_path,
                         "model_type is missing: this is no model that transformers would load");
    h->family = lode_hf_family(word);
    h->base.arch =
        h->family ? h->family->arch : lode_arena_printf(&h->arena, "%s (Hugging Face)", word);
    if (!h->base.arch)
        return lode_fail_nomem(err, "model_type");
    if (!h->family)
        LODE_TRY(lode_hf_assume(h, err));
    LODE_TRY(lode_hf_put_text(h, "general.architecture", lode_str(h->base.arch), err));
    return lode_hf_put_text(h, "general.name", lode_str(title), err);
}

static int translate(struct lode_hf *h, const char *dir, struct lode_error *err) {
    LODE_TRY(name_model(h, err));
    LODE_TRY(lode_hf_read_files(h, dir, err));
    if (!h->family) /* no architecture is called like that, and the caller says so */
        return lode_hf_list_tensors(h, err);
    LODE_TRY(lode_hf_read_config(h, err));
    LODE_TRY(lode_hf_read_tensors(h, err));
    char label[LODE_HF_LABEL];
    lode_hf_label_linears(&h->linears, label);
    if (*label)
        LODE_TRY(lode_hf_put_text(h, "lode.quantization", lode_str(label), err));
    uint64_t wide, all;
    lode_hf_widened(&h->linears, &wide, &all);
    if (wide > all / 8) /* routers, which always are, are small */
        LODE_TRY(lode_hf_note(h, err,
                              "%.0f MiB of its weights are widened to F32: nothing smaller holds "
                              "such groups (%s) exactly",
                              (double)wide / 0x1p20, label));
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
    LODE_TRY(lode_hf_read_json(h, dir, "config.json", &config, err));
    LODE_TRY(config.nodes ? 0 : lode_hf_read_json(h, dir, "adapter_config.json", &config, err));
    if (config.nodes && lode_json_get(config.nodes, "peft_type")) {
        lode_json_free(&config);
        return lode_fail(err, LODE_ERR_UNSUPPORTED, dir,
                         "this is an adapter (LoRA), and no model: name the model; adapters cannot "
                         "be applied yet");
    }
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
    h->base.notes = h->notes.data ? h->notes.data : "";
    *out = &h->base;
    return 0;
}
