#include "quant/imatrix.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/cursor.h"
#include "base/file.h"
#include "base/map.h"
#include "format/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { MAX_ENTRIES = 1 << 20, MAX_SIZE = 1 << 30 };

struct entry {
    float *values; /* (n) in the arena */
    uint64_t n;
    uint64_t n_cols; /* 0: the file does not say */
};

struct lode_imatrix {
    struct lode_arena arena;
    struct lode_map names;
    struct entry *entries; /* (n) in the arena */
    uint32_t n;
    const char *path;
};

void lode_imatrix_close(struct lode_imatrix *im) {
    if (!im)
        return;
    lode_map_free(&im->names);
    lode_arena_free(&im->arena);
    lode_free(im);
}

size_t lode_imatrix_n(const struct lode_imatrix *im) { return im->n; }

/* Room for the next entry's n values, under a name of its own. */
static int add(struct lode_imatrix *im, struct lode_str name, uint64_t n, struct entry **out,
               struct lode_error *err) {
    const char *copy = lode_arena_strndup(&im->arena, name.data, name.len);
    struct entry *e = &im->entries[im->n];
    e->values = n ? LODE_ARENA_ARRAY(&im->arena, float, n) : NULL;
    e->n = n;
    const int rc = copy && e->values ? lode_map_put(&im->names, lode_str(copy), im->n, NULL) : -1;
    if (n == 0 || rc == 0)
        return lode_fail(err, LODE_ERR_FORMAT, im->path, "entry %" PRIu32 " is %s", im->n,
                         n ? "there twice" : "empty");
    if (rc < 0)
        return lode_fail_nomem(err, im->path);
    im->n++;
    *out = e;
    return 0;
}

/* Means out of sums.  Columns that were never, or hardly ever, met get a little: where nothing
 * counts there would be no best scale. */
static int finish(const struct lode_imatrix *im, float *v, uint64_t n, double count,
                  struct lode_error *err) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        if (!(v[i] >= 0) || !isfinite(v[i]))
            return lode_fail(err, LODE_ERR_FORMAT, im->path,
                             "entry %" PRIu32 " has %g where a sum of squares is expected",
                             im->n - 1, (double)v[i]);
        sum += (double)v[i];
    }
    const double mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++) /* as shares of the mean: small and large ones alike */
        v[i] = mean > 0 && count > 0 ? (float)fmax((double)v[i] / mean, 1e-4) : 1;
    return 0;
}

/* ---- .dat ---- */

static int cut_short(const struct lode_imatrix *im, struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, im->path,
                     "it is no importance matrix: entry %" PRIu32 " is cut short or damaged",
                     im->n);
}

static int read_dat(struct lode_imatrix *im, struct lode_cursor c, struct lode_error *err) {
    const uint32_t n = lode_cursor_u32(&c);
    /* an entry has 12 bytes at least, so a short file does not claim much memory */
    if (c.failed || n < 1 || n > MAX_ENTRIES || n > c.len / 12)
        return cut_short(im, err);
    if (!(im->entries = LODE_ARENA_ARRAY(&im->arena, struct entry, n)))
        return lode_fail_nomem(err, im->path);
    while (im->n < n) {
        const struct lode_str name = lode_cursor_str(&c, lode_cursor_u32(&c));
        const int32_t calls = (int32_t)lode_cursor_u32(&c);
        const uint32_t count = lode_cursor_u32(&c);
        const void *values = lode_cursor_take(&c, 4 * (uint64_t)count);
        struct entry *e;
        if (c.failed || calls < 0)
            return cut_short(im, err);
        LODE_TRY(add(im, name, count, &e, err));
        memcpy(e->values, values, 4 * (size_t)count);
        LODE_TRY(finish(im, e->values, count, calls, err));
    }
    return 0;
}

/* ---- GGUF ---- */

/* The floats of a tensor whose bytes must lie within the file. */
static const char *floats_of(const struct lode_gguf_tensor *t, const char *data, size_t len) {
    return t && t->type == LODE_F32 && t->offset <= len && t->size <= len - t->offset
               ? data + t->offset
               : NULL;
}

static int read_tensor(struct lode_imatrix *im, const struct lode_gguf *g,
                       const struct lode_gguf_tensor *t, size_t stem, const char *data, size_t len,
                       struct lode_error *err) {
    char other[LODE_GGUF_MAX_NAME + 1];
    struct entry *e;
    if (stem + sizeof ".counts" > sizeof other)
        return lode_fail(err, LODE_ERR_FORMAT, im->path, "the name %s is too long", t->name);
    memcpy(other, t->name, stem);
    memcpy(other + stem, ".counts", sizeof ".counts");
    const struct lode_gguf_tensor *counts = lode_gguf_find_tensor(g, other);
    const uint64_t n_cols = t->dims[0], n = t->size / sizeof(float);
    const char *sums = floats_of(t, data, len), *calls = floats_of(counts, data, len);
    if (!sums || !calls || n_cols == 0 || counts->size / sizeof(float) != n / n_cols)
        return lode_fail(err, LODE_ERR_FORMAT, im->path,
                         "%s and %s do not fit together or the file", t->name, other);
    LODE_TRY(add(im, (struct lode_str){t->name, stem}, n, &e, err));
    e->n_cols = n_cols;
    memcpy(e->values, sums, t->size);
    for (uint64_t m = 0; m < n / n_cols; m++) {
        float count;
        memcpy(&count, calls + m * sizeof count, sizeof count);
        LODE_TRY(finish(im, e->values + m * n_cols, n_cols, (double)count, err));
    }
    return 0;
}

static int read_gguf(struct lode_imatrix *im, const char *data, size_t len,
                     struct lode_error *err) {
    struct lode_gguf *g;
    struct lode_str type;
    LODE_TRY(lode_gguf_parse(&g, data, len, err));
    int rc = 0;
    if (!lode_gguf_str(g, "general.type", &type) || !lode_str_eqz(type, "imatrix"))
        rc = lode_fail(err, LODE_ERR_FORMAT, im->path,
                       "general.type does not say imatrix: this is another kind of file");
    const size_t n = lode_gguf_n_tensors(g);
    if (rc == 0 && !(im->entries = LODE_ARENA_ARRAY(&im->arena, struct entry, n + 1)))
        rc = lode_fail_nomem(err, im->path);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct lode_gguf_tensor *t = lode_gguf_tensor(g, i);
        const size_t name = strlen(t->name), tail = strlen(".in_sum2");
        if (name > tail && strcmp(t->name + name - tail, ".in_sum2") == 0)
            rc = read_tensor(im, g, t, name - tail, data, len, err);
    }
    lode_gguf_close(g);
    return rc;
}

/* ---- either ---- */

int lode_imatrix_parse(struct lode_imatrix **out, const void *data, size_t len, const char *path,
                       struct lode_error *err) {
    *out = NULL;
    struct lode_imatrix *im = LODE_NEW(struct lode_imatrix);
    if (!im)
        return lode_fail_nomem(err, path);
    im->path = lode_arena_strndup(&im->arena, path, strlen(path));
    int rc;
    if (!im->path)
        rc = lode_fail_nomem(err, path);
    else if (len >= 4 && memcmp(data, "GGUF", 4) == 0)
        rc = read_gguf(im, data, len, err);
    else
        rc = read_dat(im, (struct lode_cursor){.data = data, .len = len}, err);
    if (rc == 0 && im->n == 0)
        rc = lode_fail(err, LODE_ERR_FORMAT, path, "it has no entries");
    if (rc < 0 && err && !err->where[0]) /* the parser of GGUF knows bytes, no path */
        snprintf(err->where, sizeof err->where, "%s", path);
    if (rc < 0)
        lode_imatrix_close(im);
    else
        *out = im;
    return rc;
}

int lode_imatrix_open(struct lode_imatrix **out, const char *path, struct lode_error *err) {
    struct lode_in_file f;
    char *data = NULL;
    *out = NULL;
    int rc = lode_in_open(&f, path, err);
    if (rc == 0 && f.size > MAX_SIZE)
        rc = lode_fail(err, LODE_ERR_LIMIT, path, "an importance matrix has at most %d bytes",
                       MAX_SIZE);
    if (rc == 0 && !(data = lode_alloc((size_t)f.size, 1)))
        rc = lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, data, (size_t)f.size, err);
    if (rc == 0)
        rc = lode_imatrix_parse(out, data, (size_t)f.size, path, err);
    lode_in_close(&f);
    lode_free(data);
    return rc;
}

int lode_imatrix_get(const struct lode_imatrix *im, const char *name, uint64_t n_cols,
                     uint64_t n_matrices, const float **out, struct lode_error *err) {
    const uint32_t i = lode_map_get(&im->names, lode_str(name));
    *out = NULL;
    if (i == LODE_MAP_NONE)
        return 0;
    const struct entry *e = &im->entries[i];
    if (e->n % n_cols || e->n / n_cols != n_matrices || (e->n_cols && e->n_cols != n_cols))
        return lode_fail(err, LODE_ERR_FORMAT, im->path,
                         "%s has %" PRIu64 " numbers and the model's %" PRIu64 " x %" PRIu64
                         ": it was measured on another model",
                         name, e->n, n_matrices, n_cols);
    *out = e->values;
    return 0;
}
