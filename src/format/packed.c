#include "format/packed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { MAX_MANIFEST = 256 << 20 };

struct packed {
    struct lode_source base;
    struct lode_packed_index index;
    struct lode_gguf *keys;
    struct lode_in_file weights;
    struct lode_gguf_tensor *tensors; /* owned; (n_tensors): what base.tensors shows */
    struct lode_map names;
    char *dir; /* owned */
};

static const struct packed *packed(const struct lode_source *s) { return (const struct packed *)s; }

static const struct lode_packed_tensor *tensor_of(const struct packed *p,
                                                  const struct lode_gguf_tensor *t) {
    return &p->index.tensors[t - p->tensors];
}

/* Where byte `offset` lies, and how many follow it in one piece. */
static uint64_t locate(const struct packed *p, const struct lode_gguf_tensor *gguf, size_t offset,
                       size_t *n) {
    const struct lode_packed_tensor *t = tensor_of(p, gguf);
    if (!t->slice) {
        *n = t->t.size - offset;
        return t->at + offset;
    }
    *n = t->slice - offset % t->slice;
    return t->at + (uint64_t)(offset / t->slice) * p->index.records[t->records].step +
           offset % t->slice;
}

static const struct lode_gguf_value *find(const struct lode_source *s, const char *key) {
    return lode_gguf_find(packed(s)->keys, key);
}

static const struct lode_gguf_tensor *tensor(const struct lode_source *s, const char *name) {
    const uint32_t i = lode_map_get(&packed(s)->names, lode_str(name));
    return i == LODE_MAP_NONE ? NULL : &packed(s)->tensors[i];
}

static const void *data(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                        size_t n) {
    size_t whole;
    const uint64_t at = locate(packed(s), t, offset, &whole);
    return packed(s)->weights.data && n <= whole ? packed(s)->weights.data + at : NULL;
}

static int read(const struct lode_source *s, const struct lode_gguf_tensor *t, size_t offset,
                void *out, size_t n, struct lode_error *err) {
    for (char *to = out; n > 0;) {
        size_t some;
        const uint64_t at = locate(packed(s), t, offset, &some);
        some = some < n ? some : n;
        LODE_TRY(lode_in_read(&packed(s)->weights, at, to, some, err));
        to += some;
        offset += some;
        n -= some;
    }
    return 0;
}

static const uint32_t *order(const struct lode_source *s, const struct lode_gguf_tensor *t) {
    (void)s;
    (void)t;
    return NULL;
}

static bool place(const struct lode_source *s, const struct lode_gguf_tensor *gguf, size_t offset,
                  size_t n, struct lode_place *out) {
    const struct packed *p = packed(s);
    const struct lode_packed_tensor *t = tensor_of(p, gguf);
    size_t whole;
    *out = (struct lode_place){.file = &p->weights, .offset = locate(p, gguf, offset, &whole)};
    if (t->slice) {
        const struct lode_packed_records *r = &p->index.records[t->records];
        const size_t e = offset / t->slice;
        out->record = r->at + (uint64_t)e * r->step;
        out->record_size = r->size;
        out->sum = r->sums[e];
    } else {
        out->record = t->at;
        out->record_size = t->t.size;
        out->sum = t->sum;
    }
    return n <= whole;
}

static int check(const struct lode_source *s, struct lode_error *err) {
    return lode_in_check(&packed(s)->weights, err);
}

static void forget(const struct lode_source *s) {
    lode_in_forget(&packed(s)->weights);
    lode_gguf_forget(packed(s)->keys);
}

static void packed_close(struct lode_source *s) {
    struct packed *p = (struct packed *)s;
    lode_map_free(&p->names);
    lode_in_close(&p->weights);
    lode_gguf_close(p->keys);
    lode_packed_deinit(&p->index);
    lode_free(p->tensors);
    lode_free(p->dir);
    lode_free(p);
}

static const struct lode_source_ops ops = {find,  tensor, data,  read,
                                           order, place,  check, forget, packed_close, NULL, NULL, NULL};

/* DIR/NAME; NULL: no memory.  The caller frees it. */
static char *path_in(const char *dir, const char *name) {
    struct lode_buf b = {0};
    lode_buf_addf(&b, "%s/%s", dir, name);
    return b.data;
}

static int read_manifest(struct packed *p, struct lode_error *err) {
    struct lode_in_file f = {.fd = -1};
    char *path = path_in(p->dir, LODE_PACKED_MANIFEST), *text = NULL;
    int rc = path ? lode_in_open(&f, path, err) : lode_fail_nomem(err, p->dir);
    if (rc == 0 && f.size > MAX_MANIFEST)
        rc = lode_fail(err, LODE_ERR_LIMIT, path, "more than %d bytes", MAX_MANIFEST);
    if (rc == 0 && !(text = lode_alloc((size_t)f.size + 1, 1)))
        rc = lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, text, (size_t)f.size, err);
    if (rc == 0) {
        text[f.size] = '\0';
        rc = lode_packed_parse(&p->index, (struct lode_str){text, (size_t)f.size}, path, err);
    }
    lode_in_close(&f);
    lode_free(text);
    lode_free(path);
    return rc;
}

int lode_packed_sum(const struct lode_in_file *f, uint64_t *out, struct lode_error *err) {
    enum { PIECE = 1 << 20 };
    XXH3_state_t *sum = XXH3_createState();
    char *buffer = lode_alloc(PIECE, 1);
    int rc = sum && buffer ? 0 : lode_fail_nomem(err, f->path);
    if (sum)
        XXH3_64bits_reset(sum);
    for (uint64_t at = 0; rc == 0 && at < f->size; at += PIECE) {
        const size_t n = f->size - at < PIECE ? (size_t)(f->size - at) : PIECE;
        rc = lode_in_read(f, at, buffer, n, err);
        if (rc == 0)
            XXH3_64bits_update(sum, buffer, n);
    }
    *out = rc == 0 ? XXH3_64bits_digest(sum) : 0;
    XXH3_freeState(sum);
    lode_free(buffer);
    return rc;
}

/* Vocabulary and settings: few bytes, whose damage would be heard in every answer, if not as an error. */
static int check_keys(const struct packed *p, struct lode_error *err) {
    const struct lode_in_file *f = lode_gguf_file(p->keys, 0);
    uint64_t sum;
    if (!p->index.keys_sum)
        return 0;
    LODE_TRY(lode_packed_sum(f, &sum, err));
    return sum == p->index.keys_sum
               ? 0
               : lode_fail(err, LODE_ERR_IO, f->path,
                           "it is damaged: its checksum is not the one in the manifest; pack the model again");
}

static int list_tensors(struct packed *p, struct lode_error *err) {
    const uint32_t n = p->index.n_tensors;
    p->tensors = LODE_NEW_ARRAY(struct lode_gguf_tensor, n);
    if (!p->tensors || !lode_map_reserve(&p->names, n))
        return lode_fail_nomem(err, "table of tensors");
    for (uint32_t i = 0; i < n; i++) {
        p->tensors[i] = p->index.tensors[i].t;
        const int rc = lode_map_put(&p->names, lode_str(p->tensors[i].name), i, NULL);
        if (rc == 0)
            return lode_fail(err, LODE_ERR_FORMAT, p->dir, "tensor %s is listed twice",
                             p->tensors[i].name);
        LODE_TRY(rc);
    }
    return 0;
}

static int open_files(struct packed *p, const char *dir, bool map, struct lode_error *err) {
    p->dir = lode_strndup(dir, strlen(dir));
    if (!p->dir)
        return lode_fail_nomem(err, dir);
    LODE_TRY(read_manifest(p, err));
    LODE_TRY(list_tensors(p, err));
    char *keys = path_in(dir, LODE_PACKED_KEYS), *weights = path_in(dir, LODE_PACKED_WEIGHTS);
    int rc = keys && weights ? lode_gguf_open_unmapped(&p->keys, keys, err) : lode_fail_nomem(err, dir);
    if (rc == 0)
        rc = check_keys(p, err);
    if (rc == 0)
        rc = lode_in_open(&p->weights, weights, err);
    if (rc == 0 && p->weights.size < p->index.size)
        rc = lode_fail(err, LODE_ERR_FORMAT, weights,
                       "it has %" PRIu64 " bytes and its manifest says %" PRIu64
                       ": pack the model again",
                       p->weights.size, p->index.size);
    if (rc == 0 && map)
        (void)lode_in_map(&p->weights, NULL); /* what cannot be mapped is read */
    lode_free(keys);
    lode_free(weights);
    return rc;
}

/* Without memory of its own, whose lack would look like the file's. */
static bool has_file(const char *dir, const char *name) {
    struct stat st;
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool lode_packed_is(const char *dir) { return has_file(dir, LODE_PACKED_MANIFEST); }

bool lode_packed_begun(const char *dir) {
    return lode_packed_is(dir) || has_file(dir, LODE_PACKED_WEIGHTS);
}

int lode_packed_open(struct lode_source **out, const char *dir, bool map, struct lode_error *err) {
    *out = NULL;
    if (!lode_packed_is(dir))
        return lode_fail(err, LODE_ERR_MISSING, dir,
                         "it has " LODE_PACKED_WEIGHTS " and no " LODE_PACKED_MANIFEST
                         ", which is written last: packing was not finished; the same `lode pack` "
                         "again goes on where it stopped");
    struct packed *p = LODE_NEW(struct packed);
    if (!p)
        return lode_fail_nomem(err, dir);
    p->weights.fd = p->weights.slot = -1;
    const int rc = open_files(p, dir, map, err);
    if (rc < 0) {
        packed_close(&p->base);
        return rc;
    }
    p->base = (struct lode_source){.ops = &ops,
                                   .path = p->dir,
                                   .arch = lode_gguf_arch(p->keys),
                                   .keys = lode_gguf_key(p->keys, 0),
                                   .tensors = p->tensors,
                                   .n_keys = lode_gguf_n_keys(p->keys),
                                   .n_tensors = p->index.n_tensors,
                                   .n_files = 3,
                                   .size = p->weights.size + lode_gguf_file(p->keys, 0)->size,
                                   .half_order = p->index.half_order,
                                   .gguf = p->keys,
                                   .notes = ""};
    snprintf(p->base.format, sizeof p->base.format, "packed by lode");
    *out = &p->base;
    return 0;
}

const struct lode_packed_index *lode_packed_index_of(const struct lode_source *s) {
    return s->ops == &ops ? &packed(s)->index : NULL;
}
