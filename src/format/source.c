#include "format/source.h"

#include "base/alloc.h"
#include "base/error.h"
#include "format/hf.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

/* ---- a GGUF file as a source ---- */

struct gguf_source {
    struct lode_source base;
    struct lode_gguf *g; /* owned */
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

static int gguf_check(const struct lode_source *s, struct lode_error *err) {
    return lode_gguf_check(gguf_of(s), err);
}

static void gguf_close(struct lode_source *s) {
    lode_gguf_close(gguf_of(s));
    lode_free(s);
}

static const struct lode_source_ops gguf_ops = {gguf_find, gguf_tensor, gguf_data,
                                                gguf_read, gguf_check,  gguf_close};

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
                                   .gguf = s->g,
                                   .notes = ""};
    snprintf(s->base.format, sizeof s->base.format, "GGUF v%" PRIu32, lode_gguf_version(s->g));
    for (size_t i = 0; i < s->base.n_files; i++)
        s->base.size += lode_gguf_file(s->g, i)->size;
    *out = &s->base;
    return 0;
}

/* ---- any source ---- */

int lode_source_open(struct lode_source **out, const char *path, bool map, struct lode_error *err) {
    struct stat st;
    *out = NULL;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    return (folder ? lode_hf_open : open_gguf)(out, path, map, err);
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

int lode_source_check(const struct lode_source *s, struct lode_error *err) {
    return s->ops->check(s, err);
}
