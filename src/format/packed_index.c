/* packed_index.c - the manifest of a packed model: laid out, written, read back. */
#include "format/packed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/map.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* The manifest ends with the checksum of all that is before this. */
#define TAIL ",\n \"manifest\": \""

static uint64_t round_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/* ---- layout ---- */

static bool layer_of_experts(const struct lode_gguf_tensor *t, uint32_t *layer) {
    static const char end[] = "_exps.weight";
    const size_t n = strlen(t->name);
    int at = 0;
    return n > sizeof end && strcmp(t->name + n - (sizeof end - 1), end) == 0 && t->n_dims == 3 &&
           t->dims[2] > 1 && t->dims[2] <= LODE_PACKED_MAX_TENSORS &&
           sscanf(t->name, "blk.%9" SCNu32 ".%n", layer, &at) == 1 && at > 0;
}

/* The layer's list, made when it is first asked for; NULL: another number of experts, so dense. */
static struct lode_packed_records *records_of(struct lode_packed_index *x, uint32_t layer, uint64_t n,
                                              uint32_t *by_layer, uint32_t most) {
    if (layer >= most)
        return NULL;
    if (by_layer[layer] == UINT32_MAX) {
        by_layer[layer] = x->n_records;
        x->records[x->n_records++] = (struct lode_packed_records){.layer = layer, .n = (uint32_t)n};
    }
    struct lode_packed_records *r = &x->records[by_layer[layer]];
    return r->n == n ? r : NULL;
}

int lode_packed_lay_out(struct lode_packed_index *x, struct lode_error *err) {
    enum { MOST_LAYERS = 4096 };
    uint64_t n_records = 0;
    x->n_records = 0;
    x->size = 0;
    x->records = LODE_ARENA_ARRAY(&x->arena, struct lode_packed_records, MOST_LAYERS);
    uint32_t *by_layer = LODE_ARENA_ARRAY(&x->arena, uint32_t, MOST_LAYERS);
    if (!x->records || !by_layer)
        return lode_fail_nomem(err, LODE_PACKED_MANIFEST);
    memset(by_layer, 0xff, MOST_LAYERS * sizeof *by_layer);
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        struct lode_packed_tensor *t = &x->tensors[i];
        uint32_t layer;
        struct lode_packed_records *r =
            layer_of_experts(&t->t, &layer)
                ? records_of(x, layer, t->t.dims[2], by_layer, MOST_LAYERS)
                : NULL;
        t->slice = 0;
        if (r) {
            t->slice = t->t.size / r->n;
            t->records = (uint32_t)(r - x->records);
            t->at = round_up(r->size, LODE_PACKED_SLICE); /* in the record, for now */
            r->size = (size_t)t->at + t->slice;
            if (r->size > (uint64_t)1 << 40)
                return lode_fail(err, LODE_ERR_LIMIT, t->t.name, "its experts are too large");
        } else {
            t->at = x->size;
            x->size = round_up(x->size + t->t.size, LODE_PACKED_ALIGN);
        }
        if (x->size > (uint64_t)1 << 60)
            return lode_fail(err, LODE_ERR_LIMIT, t->t.name, "the model is too large");
    }
    for (uint32_t i = 0; i < x->n_records; i++) {
        struct lode_packed_records *r = &x->records[i];
        n_records += r->n;
        if (n_records > LODE_PACKED_MAX_TENSORS)
            return lode_fail(err, LODE_ERR_LIMIT, LODE_PACKED_MANIFEST, "more than %d experts",
                             LODE_PACKED_MAX_TENSORS);
        r->sums = LODE_ARENA_ARRAY(&x->arena, uint64_t, r->n);
        if (!r->sums)
            return lode_fail_nomem(err, LODE_PACKED_MANIFEST);
        r->at = x->size;
        r->step = (size_t)round_up(r->size, LODE_PACKED_ALIGN);
        x->size += (uint64_t)r->step * r->n;
        if (x->size > (uint64_t)1 << 60)
            return lode_fail(err, LODE_ERR_LIMIT, LODE_PACKED_MANIFEST, "the model is too large");
    }
    for (uint32_t i = 0; i < x->n_tensors; i++)
        if (x->tensors[i].slice)
            x->tensors[i].at += x->records[x->tensors[i].records].at;
    return 0;
}

/* ---- writing ---- */

static bool put_text(struct lode_buf *b, const char *s) {
    lode_buf_addc(b, '"');
    for (; *s; s++)
        if (*s == '"' || *s == '\\')
            lode_buf_addf(b, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            lode_buf_addf(b, "\\u%04x", (unsigned)*s);
        else
            lode_buf_addc(b, *s);
    return lode_buf_addc(b, '"');
}

bool lode_packed_print(const struct lode_packed_index *x, struct lode_buf *b) {
    lode_buf_addf(b, "{\n \"format\": \"lode packed model\",\n \"version\": %d,\n \"source\": ",
                  LODE_PACKED_VERSION);
    put_text(b, x->source);
    lode_buf_addf(b, ",\n \"half_order\": %s,\n \"size\": %" PRIu64 ",\n \"tensors\": [",
                  x->half_order ? "true" : "false", x->size);
    for (uint32_t i = 0; i < x->n_tensors; i++) {
        const struct lode_packed_tensor *t = &x->tensors[i];
        lode_buf_addf(b, "%s\n  {\"name\": ", i ? "," : "");
        put_text(b, t->t.name);
        lode_buf_addf(b, ", \"type\": \"%s\", \"dims\": [", lode_dtypes[t->t.type].name);
        for (uint32_t d = 0; d < t->t.n_dims; d++)
            lode_buf_addf(b, "%s%" PRIu64, d ? ", " : "", t->t.dims[d]);
        lode_buf_addf(b, "], \"at\": %" PRIu64, t->at);
        if (!t->slice)
            lode_buf_addf(b, ", \"xxh3\": \"%016" PRIx64 "\"", t->sum);
        lode_buf_addc(b, '}');
    }
    lode_buf_addz(b, "\n ],\n \"experts\": [");
    for (uint32_t i = 0; i < x->n_records; i++) {
        const struct lode_packed_records *r = &x->records[i];
        lode_buf_addf(b,
                      "%s\n  {\"layer\": %" PRIu32 ", \"at\": %" PRIu64 ", \"size\": %zu, "
                      "\"step\": %zu, \"xxh3\": [",
                      i ? "," : "", r->layer, r->at, r->size, r->step);
        for (uint32_t e = 0; e < r->n; e++)
            lode_buf_addf(b, "%s\"%016" PRIx64 "\"", e ? ", " : "", r->sums[e]);
        lode_buf_addz(b, "]}");
    }
    lode_buf_addz(b, "\n ]");
    if (x->keys_sum)
        lode_buf_addf(b, ",\n \"keys\": \"%016" PRIx64 "\"", x->keys_sum);
    return !b->failed && lode_buf_addf(b, TAIL "%016" PRIx64 "\"\n}\n", (uint64_t)XXH3_64bits(b->data, b->len));
}

/* ---- reading ---- */

struct reader {
    struct lode_packed_index *x;
    const char *where;
    struct lode_error *err;
};

static bool read_sum(const struct lode_json *v, uint64_t *out) {
    const struct lode_str s = lode_json_str(v);
    *out = 0;
    for (size_t i = 0; i < s.len && s.len == 16; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *d = s.data[i] ? strchr(digits, s.data[i]) : NULL;
        if (!d)
            return false;
        *out = *out << 4 | (uint64_t)(d - digits);
    }
    return s.len == 16;
}

static bool read_count(const struct lode_json *v, uint64_t *out) {
    int64_t n;
    if (!lode_json_int(v, 0, INT64_MAX, &n))
        return false;
    *out = (uint64_t)n;
    return true;
}

/* Of weights: GGML's, and lode's own that quantised directories become; not those of activations. */
static enum lode_dtype type_named(struct lode_str name) {
    for (int t = 0; t < LODE_DTYPE_COUNT; t++)
        if (!lode_dtype_is_rounded((enum lode_dtype)t) && lode_str_eqz(name, lode_dtypes[t].name))
            return (enum lode_dtype)t;
    return LODE_NONE;
}

/* Name, type and dims; the bytes follow from them. */
static int read_tensor(struct reader *r, const struct lode_json *v, struct lode_packed_tensor *out) {
    const struct lode_str name = lode_json_str(lode_json_get(v, "name"));
    const struct lode_json *dims = lode_json_get(v, "dims");
    struct lode_gguf_tensor *t = &out->t;
    if (name.len == 0 || name.len > LODE_GGUF_MAX_NAME || memchr(name.data, 0, name.len))
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "a tensor has no name");
    t->name = lode_arena_strndup(&r->x->arena, name.data, name.len);
    if (!t->name)
        return lode_fail_nomem(r->err, r->where);
    t->type = type_named(lode_json_str(lode_json_get(v, "type")));
    t->n_dims = lode_json_is(dims, LODE_JSON_ARRAY) ? lode_json_count(dims) : 0;
    if (t->type == LODE_NONE || t->n_dims < 1 || t->n_dims > LODE_GGUF_MAX_DIMS)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "tensor %s: type and dims expected",
                         t->name);
    uint64_t rows = 1;
    size_t row = 0;
    for (uint32_t d = 0; d < LODE_GGUF_MAX_DIMS; d++) {
        t->dims[d] = 1;
        if (d < t->n_dims && (!read_count(lode_json_at(dims, d), &t->dims[d]) || t->dims[d] == 0))
            return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "tensor %s: dims[%u] is no count",
                             t->name, d);
        if (d > 0 && (__builtin_mul_overflow(rows, t->dims[d], &rows) || rows > INT64_MAX))
            rows = UINT64_MAX;
    }
    if (!lode_dtype_row_size(t->type, t->dims[0], &row) || rows == UINT64_MAX ||
        !lode_mul_size(row, (size_t)rows, &t->size) || t->size > INT64_MAX / 4)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where,
                         "tensor %s: its rows are no whole blocks, or it is too large", t->name);
    return 0;
}

/* Everything that the layout decides must be as the manifest says: there is one layout. */
static int compare(struct reader *r, const struct lode_json *tensors, const struct lode_json *experts) {
    struct lode_packed_index *x = r->x;
    uint32_t i = 0;
    for (const struct lode_json *v = lode_json_first(tensors); v; v = lode_json_next(tensors, v), i++) {
        struct lode_packed_tensor *t = &x->tensors[i];
        uint64_t at;
        if (!read_count(lode_json_get(v, "at"), &at) || at != t->at)
            return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "tensor %s lies at %" PRIu64
                             ", and the manifest says otherwise", t->t.name, t->at);
        if (!t->slice && !read_sum(lode_json_get(v, "xxh3"), &t->sum))
            return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "tensor %s has no checksum",
                             t->t.name);
    }
    if (lode_json_count(experts) != x->n_records)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "experts of %u layers expected, %u listed",
                         x->n_records, lode_json_count(experts));
    i = 0;
    for (const struct lode_json *v = lode_json_first(experts); v; v = lode_json_next(experts, v), i++) {
        struct lode_packed_records *p = &x->records[i];
        const struct lode_json *sums = lode_json_get(v, "xxh3");
        uint64_t layer, at, size, step;
        if (!read_count(lode_json_get(v, "layer"), &layer) || layer != p->layer ||
            !read_count(lode_json_get(v, "at"), &at) || at != p->at ||
            !read_count(lode_json_get(v, "size"), &size) || size != p->size ||
            !read_count(lode_json_get(v, "step"), &step) || step != p->step ||
            !lode_json_is(sums, LODE_JSON_ARRAY) || lode_json_count(sums) != p->n)
            return lode_fail(r->err, LODE_ERR_FORMAT, r->where,
                             "the experts of layer %u are not as their tensors say", p->layer);
        uint64_t *out = (uint64_t *)(uintptr_t)p->sums;
        uint32_t e = 0;
        for (const struct lode_json *s = lode_json_first(sums); s; s = lode_json_next(sums, s), e++)
            if (!read_sum(s, &out[e]))
                return lode_fail(r->err, LODE_ERR_FORMAT, r->where,
                                 "expert %u of layer %u has no checksum", e, p->layer);
    }
    return 0;
}

/* Of a manifest that has its own checksum, which older ones have not. */
static int check_text(struct reader *r, struct lode_str text, const struct lode_json *root) {
    static const size_t n = sizeof TAIL - 1 + sizeof "0123456789abcdef\"\n}";
    const struct lode_json *own = lode_json_get(root, "manifest");
    uint64_t sum;
    if (!own && !lode_json_get(root, "keys"))
        return 0;
    if (!read_sum(own, &sum) || text.len < n || memcmp(text.data + text.len - n, TAIL, sizeof TAIL - 1) != 0 ||
        XXH3_64bits(text.data, text.len - n) != sum)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where,
                         "it was changed or is damaged: its checksum is another; pack the model again");
    return 0;
}

static int read_index(struct reader *r, const struct lode_json *root) {
    struct lode_packed_index *x = r->x;
    const struct lode_json *tensors = lode_json_get(root, "tensors");
    const struct lode_json *experts = lode_json_get(root, "experts");
    const struct lode_str source = lode_json_str(lode_json_get(root, "source"));
    uint64_t version, size;
    if (!lode_str_eqz(lode_json_str(lode_json_get(root, "format")), "lode packed model"))
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "this is no manifest of a packed model");
    if (!read_count(lode_json_get(root, "version"), &version) || version != LODE_PACKED_VERSION)
        return lode_fail(r->err, LODE_ERR_UNSUPPORTED, r->where,
                         "packed by another version of lode: pack the model again");
    x->n_tensors = lode_json_is(tensors, LODE_JSON_ARRAY) ? lode_json_count(tensors) : 0;
    if (x->n_tensors == 0 || x->n_tensors > LODE_PACKED_MAX_TENSORS)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "1 to %d tensors expected, %u listed",
                         LODE_PACKED_MAX_TENSORS, x->n_tensors);
    const struct lode_json *half = lode_json_get(root, "half_order"), *keys = lode_json_get(root, "keys");
    if (!lode_json_is(half, LODE_JSON_TRUE) && !lode_json_is(half, LODE_JSON_FALSE))
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "half_order: true or false expected");
    x->half_order = lode_json_bool(root, "half_order", false);
    if (keys && !read_sum(keys, &x->keys_sum))
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "keys: a checksum of 16 hexadecimal digits expected");
    x->source = lode_arena_strndup(&x->arena, source.data ? source.data : "", source.len);
    x->tensors = LODE_ARENA_ARRAY(&x->arena, struct lode_packed_tensor, x->n_tensors);
    if (!x->source || !x->tensors)
        return lode_fail_nomem(r->err, r->where);
    uint32_t i = 0;
    for (const struct lode_json *v = lode_json_first(tensors); v; v = lode_json_next(tensors, v))
        LODE_TRY(read_tensor(r, v, &x->tensors[i++]));
    LODE_TRY(lode_packed_lay_out(x, r->err));
    if (!read_count(lode_json_get(root, "size"), &size) || size != x->size)
        return lode_fail(r->err, LODE_ERR_FORMAT, r->where, "its tensors take %" PRIu64
                         " bytes, and it says otherwise", x->size);
    return compare(r, tensors, lode_json_is(experts, LODE_JSON_ARRAY) ? experts : NULL);
}

int lode_packed_parse(struct lode_packed_index *x, struct lode_str text, const char *where,
                      struct lode_error *err) {
    struct lode_json_doc doc;
    *x = (struct lode_packed_index){0};
    LODE_TRY(lode_json_parse(&doc, text, where, err));
    struct reader r = {x, where, err};
    int rc = check_text(&r, text, doc.nodes);
    rc = rc < 0 ? rc : read_index(&r, doc.nodes);
    lode_json_free(&doc);
    if (rc < 0)
        lode_packed_deinit(x);
    return rc;
}

void lode_packed_deinit(struct lode_packed_index *x) {
    struct lode_arena arena = x->arena;
    *x = (struct lode_packed_index){0};
    lode_arena_free(&arena);
}
