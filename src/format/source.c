#include "format/source.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/hub.h"
#include "format/hf.h"
#include "format/packed.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- a GGUF file as a source ---- */

struct gguf_source {
    struct lode_source base;
    struct lode_gguf *g; /* owned */
    char note[128];
};

static struct lode_gguf *gguf_of(const struct lode_source *s) {
    return ((const struct gguf_source *)s)->g;
}

static const struct lode_gguf_value *gguf_find(const struct lode_source *s, const char *key) {
    return lode_gguf_find(gguf_of(s), key);
}

static const struct lode_gguf_tensor *gguf_tensor(const struct lode_source *s, const char *name) {
    return lode_gguf_find_tensor(gguf_of(s), name);
}

static const void *gguf_data(const struct lode_source *s, const struct lode_gguf_tensor *t,
                             size_t offset, size_t n) {
    (void)n;
    const char *data = lode_gguf_data(gguf_of(s), t);
    return data ? data + offset : NULL;
}

static int gguf_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                     void *out, size_t n, struct lode_error *err) {
    return lode_gguf_read(gguf_of(s), t, offset, out, n, err);
}

static const uint32_t *gguf_order(const struct lode_source *s, const struct lode_gguf_tensor *t) {
    (void)s;
    (void)t;
    return NULL;
}

static bool gguf_place(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                       size_t n, struct lode_place *out) {
    (void)n;
    *out = (struct lode_place){.file = lode_gguf_file(gguf_of(s), t->shard),
                               .offset = t->offset + offset};
    return true;
}

static int gguf_check(const struct lode_source *s, struct lode_error *err) {
    return lode_gguf_check(gguf_of(s), err);
}

static void gguf_forget(const struct lode_source *s) { lode_gguf_forget(gguf_of(s)); }

static const struct lode_in_file *gguf_file(const struct lode_source *s, size_t i) {
    return lode_gguf_file(gguf_of(s), i);
}

static void gguf_close(struct lode_source *s) {
    lode_gguf_close(gguf_of(s));
    lode_free(s);
}

static const struct lode_source_ops gguf_ops = {gguf_find,  gguf_tensor, gguf_data, gguf_read,
                                                gguf_order, gguf_place,  gguf_check,
                                                gguf_forget, gguf_close, NULL, NULL, gguf_file};

/* Layers that predict further tokens (MTP) come last and are not run. */
static void note_extra_layers(struct gguf_source *s) {
    uint32_t extra = 0, layers = 0, n = 0, layer;
    lode_source_arch_u32(&s->base, "nextn_predict_layers", &extra);
    lode_source_arch_u32(&s->base, "block_count", &layers);
    for (size_t i = 0; i < s->base.n_tensors && extra < layers; i++)
        n += sscanf(s->base.tensors[i].name, "blk.%9" SCNu32 ".", &layer) == 1 &&
             layer >= layers - extra && layer < layers;
    if (n)
        snprintf(s->note, sizeof s->note,
                 "%" PRIu32 " tensors of layers that only predict further tokens are left out", n);
    s->base.notes = s->note;
}

static int open_gguf(struct lode_source **out, const char *path, bool map, struct lode_error *err) {
    struct gguf_source *s = LODE_NEW(struct gguf_source);
    if (!s)
        return lode_fail_nomem(err, path);
    const int rc = (map ? lode_gguf_open : lode_gguf_open_unmapped)(&s->g, path, err);
    if (rc < 0) {
        lode_free(s);
        return rc;
    }
    s->base = (struct lode_source){.ops = &gguf_ops,
                                   .path = lode_gguf_path(s->g),
                                   .arch = lode_gguf_arch(s->g),
                                   .keys = lode_gguf_key(s->g, 0),
                                   .tensors = lode_gguf_tensor(s->g, 0),
                                   .n_keys = lode_gguf_n_keys(s->g),
                                   .n_tensors = lode_gguf_n_tensors(s->g),
                                   .n_files = lode_gguf_n_shards(s->g),
                                   .gguf = s->g};
    snprintf(s->base.format, sizeof s->base.format, "GGUF v%" PRIu32, lode_gguf_version(s->g));
    for (size_t i = 0; i < s->base.n_files; i++)
        s->base.size += lode_gguf_file(s->g, i)->size;
    note_extra_layers(s);
    *out = &s->base;
    return 0;
}

/* ---- any source ---- */

/* Whether a directory's entry is a GGUF file to choose: no projector, of a set the first. */
static bool is_choice(const char *name) {
    const size_t n = strlen(name);
    unsigned shard, of;
    if (n < 6 || strcmp(name + n - 5, ".gguf") != 0 || strstr(name, "mmproj"))
        return false;
    if (n < 20 || sscanf(name + n - 20, "-%5u-of-%5u", &shard, &of) != 2)
        return true;
    return shard == 1;
}

/* A directory without config.json, of GGUF files: the one that there is. */
static int open_folder(struct lode_source **out, const char *dir, bool map,
                       struct lode_error *err) {
    struct lode_buf path = {0}, names = {0};
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_choice(e->d_name) && n++ < 8) {
            lode_buf_addf(&names, "%s%s", n > 1 ? ", " : "", e->d_name);
            if (n == 1)
                lode_buf_addf(&path, "%s/%s", dir, e->d_name);
        }
    if (d)
        closedir(d);
    int rc;
    if (path.failed || names.failed)
        rc = lode_fail_nomem(err, dir);
    else if (n == 1)
        rc = open_gguf(out, path.data, map, err);
    else if (n > 1)
        rc = lode_fail(err, LODE_ERR_ARG, dir, "the directory has several models (%s%s): name one",
                       names.data, n > 8 ? ", ..." : "");
    else
        rc = lode_hf_open(out, dir, map, err); /* which says what is missing */
    lode_buf_free(&path);
    lode_buf_free(&names);
    return rc;
}

int lode_source_open(struct lode_source **out, const char *path, bool map, struct lode_error *err) {
    struct stat st;
    struct lode_buf config = {0};
    char *found;
    *out = NULL;
    LODE_TRY(lode_hub_find(&found, path, err));
    const bool folder = stat(found, &st) == 0 && S_ISDIR(st.st_mode);
    const bool hf =
        folder && lode_buf_addf(&config, "%s/config.json", found) && stat(config.data, &st) == 0;
    const int rc = config.failed ? lode_fail_nomem(err, path)
                   : hf          ? lode_hf_open(out, found, map, err) /* a manifest.json beside it is not ours */
                   : folder && lode_packed_begun(found) ? lode_packed_open(out, found, map, err)
                   : folder      ? open_folder(out, found, map, err)
                                 : open_gguf(out, found, map, err);
    lode_buf_free(&config);
    lode_free(found);
    return rc;
}

void lode_source_close(struct lode_source *s) {
    if (s)
        s->ops->close(s);
}

const struct lode_gguf_value *lode_source_find(const struct lode_source *s, const char *key) {
    return s->ops->find(s, key);
}

static const struct lode_gguf_value *find_arch(const struct lode_source *s, const char *key) {
    char full[256];
    const int n = snprintf(full, sizeof full, "%s.%s", s->arch, key);
    return n > 0 && (size_t)n < sizeof full ? lode_source_find(s, full) : NULL;
}

#define GETTER(name, ctype)                                                                        \
    bool lode_source_##name(const struct lode_source *s, const char *key, ctype *out) {            \
        const struct lode_gguf_value *v = lode_source_find(s, key);                                \
        return v && lode_gguf_value_##name(v, out);                                                \
    }                                                                                              \
    bool lode_source_arch_##name(const struct lode_source *s, const char *key, ctype *out) {       \
        const struct lode_gguf_value *v = find_arch(s, key);                                       \
        return v && lode_gguf_value_##name(v, out);                                                \
    }
LODE_GGUF_GETTER_LIST(GETTER)
#undef GETTER

uint64_t lode_source_n_vocab(const struct lode_source *s) {
    uint64_t n = 0;
    const struct lode_gguf_array *tokens;
    if (!lode_source_arch_u64(s, "vocab_size", &n) &&
        lode_source_array(s, "tokenizer.ggml.tokens", &tokens))
        n = tokens->n;
    return n;
}

int lode_source_arch_fail_key(const struct lode_source *s, const char *key, const char *expected,
                              struct lode_error *err) {
    char full[256];
    snprintf(full, sizeof full, "%s.%s", s->arch, key);
    return lode_gguf_fail_value(s->path, full, lode_source_find(s, full), expected, err);
}

const struct lode_gguf_tensor *lode_source_tensor(const struct lode_source *s, const char *name) {
    return s->ops->tensor(s, name);
}

const void *lode_source_data(const struct lode_source *s, const struct lode_gguf_tensor *t,
                             size_t offset, size_t n) {
    return s->ops->data(s, t, offset, n);
}

int lode_source_read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                     void *out, size_t n, struct lode_error *err) {
    return s->ops->read(s, t, offset, out, n, err);
}

const uint32_t *lode_source_order(const struct lode_source *s, const struct lode_gguf_tensor *t) {
    return s->ops->order(s, t);
}

bool lode_source_place(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                       size_t n, struct lode_place *out) {
    return s->ops->place && s->ops->place(s, t, offset, n, out);
}

uint32_t lode_source_stretches(const struct lode_source *s, const struct lode_gguf_tensor *t,
                               size_t offset, size_t n, struct lode_stretch *out, uint32_t most) {
    return s->ops->stretches ? s->ops->stretches(s, t, offset, n, out, most) : 0;
}

int lode_source_read_held(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                          void *out, size_t n, const struct lode_held *held, struct lode_error *err) {
    return s->ops->read_held ? s->ops->read_held(s, t, offset, out, n, held, err)
                             : lode_source_read(s, t, offset, out, n, err);
}

const struct lode_in_file *lode_source_file(const struct lode_source *s, size_t i) {
    return s->ops->file ? s->ops->file(s, i) : NULL;
}

int lode_source_check(const struct lode_source *s, struct lode_error *err) {
    return s->ops->check(s, err);
}

void lode_source_forget(const struct lode_source *s) { s->ops->forget(s); }
