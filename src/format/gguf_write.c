#include "format/gguf_write.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/out_file.h"
#include "base/utf8.h"

#include <inttypes.h>

struct lode_gguf_writer {
    struct lode_buf keys, tensors; /* as they will lie in the file */
    struct lode_arena arena;       /* names */
    struct lode_map key_names, tensor_names;
    uint64_t n_keys, n_tensors;
    size_t *sizes; /* owned; (n_tensors of cap): bytes of each */
    size_t cap;
    uint64_t end; /* of the last tensor, from the start of the numbers */
    struct lode_out_file file;
    bool begun;
    uint64_t at; /* tensor whose numbers come next */
    size_t left; /* of its bytes */
};

static const char zeros[LODE_GGUF_ALIGN];

static uint64_t padded(uint64_t n) {
    return (n + LODE_GGUF_ALIGN - 1) / LODE_GGUF_ALIGN * LODE_GGUF_ALIGN;
}

int lode_gguf_writer_create(struct lode_gguf_writer **out, struct lode_error *err) {
    *out = LODE_NEW(struct lode_gguf_writer);
    if (!*out)
        return lode_fail_nomem(err, "a GGUF file's header");
    (*out)->file.fd = -1;
    return 0;
}

void lode_gguf_writer_free(struct lode_gguf_writer *w) {
    if (!w)
        return;
    lode_out_abandon(&w->file);
    lode_buf_free(&w->keys);
    lode_buf_free(&w->tensors);
    lode_map_free(&w->key_names);
    lode_map_free(&w->tensor_names);
    lode_arena_free(&w->arena);
    lode_free(w->sizes);
    lode_free(w);
}

/* ---- keys ---- */

static void put_u32(struct lode_buf *b, uint32_t v) { lode_buf_add(b, &v, sizeof v); }
static void put_u64(struct lode_buf *b, uint64_t v) { lode_buf_add(b, &v, sizeof v); }

static void put_str(struct lode_buf *b, struct lode_str s) {
    put_u64(b, s.len);
    lode_buf_add(b, s.len ? s.data : "", s.len);
}

static size_t bytes_of(enum lode_gguf_type t) {
    static const uint8_t bytes[LODE_GGUF_TYPE_COUNT] = {
#define BYTES(name, id, bytes, text) [LODE_GGUF_##name] = bytes,
        LODE_GGUF_TYPE_LIST(BYTES)
#undef BYTES
    };
    return (unsigned)t < LODE_GGUF_TYPE_COUNT ? bytes[t] : 0;
}

static bool put_array(struct lode_buf *b, const struct lode_gguf_array *a, int depth) {
    if ((unsigned)a->type >= LODE_GGUF_TYPE_COUNT || depth >= LODE_GGUF_MAX_DEPTH)
        return false;
    put_u32(b, a->type);
    put_u64(b, a->n);
    if (a->type == LODE_GGUF_STR)
        for (size_t i = 0; i < a->n; i++)
            put_str(b, a->strs[i]);
    else if (a->type == LODE_GGUF_ARRAY) {
        for (size_t i = 0; i < a->n; i++)
            if (!put_array(b, &a->arrays[i], depth + 1))
                return false;
    } else if (a->n)
        lode_buf_add(b, a->raw, a->n * bytes_of(a->type));
    return true;
}

/* The number's low bytes are its value in every width: little-endian (base/cursor.h). */
static bool put_number(struct lode_buf *b, const struct lode_gguf_value *v) {
    const size_t n = bytes_of(v->type);
    const unsigned bits = 8 * (unsigned)n;
    switch (v->type) {
    case LODE_GGUF_F32: {
        const float f = (float)v->f;
        return lode_buf_add(b, &f, sizeof f), true;
    }
    case LODE_GGUF_F64:
        return lode_buf_add(b, &v->f, sizeof v->f), true;
    case LODE_GGUF_BOOL:
        return v->u <= 1 && (lode_buf_add(b, &v->u, 1), true);
    case LODE_GGUF_I8:
    case LODE_GGUF_I16:
    case LODE_GGUF_I32:
    case LODE_GGUF_I64:
        return (n == 8 ||
                (v->i >= -(INT64_C(1) << (bits - 1)) && v->i < INT64_C(1) << (bits - 1))) &&
               (lode_buf_add(b, &v->i, n), true);
    default:
        return (n == 8 || v->u < UINT64_C(1) << bits) && (lode_buf_add(b, &v->u, n), true);
    }
}

static int name_once(struct lode_gguf_writer *w, struct lode_map *names, const char *name,
                     size_t most, struct lode_error *err) {
    const size_t n = strlen(name);
    const char *copy = lode_arena_strndup(&w->arena, name, n);
    if (n == 0 || n > most || !lode_utf8_valid(name, n))
        return lode_fail(err, LODE_ERR_ARG, name, "1 to %zu bytes of UTF-8 expected as a name",
                         most);
    const int rc = copy ? lode_map_put(names, lode_str(copy), 0, NULL) : LODE_ERR_NOMEM;
    return rc < 0 ? lode_fail_nomem(err, "a GGUF file's header") : rc;
}

int lode_gguf_writer_key(struct lode_gguf_writer *w, const char *key,
                         const struct lode_gguf_value *v, struct lode_error *err) {
    if (strcmp(key, "general.alignment") == 0)
        return lode_fail(err, LODE_ERR_ARG, key, "the alignment is always %d", LODE_GGUF_ALIGN);
    if (w->n_keys == LODE_GGUF_MAX_KEYS)
        return lode_fail(err, LODE_ERR_LIMIT, key, "more than %d keys", LODE_GGUF_MAX_KEYS);
    const int rc = name_once(w, &w->key_names, key, LODE_GGUF_MAX_KEY, err);
    if (rc <= 0)
        return rc;
    put_str(&w->keys, lode_str(key));
    put_u32(&w->keys, v->type);
    bool fits = (unsigned)v->type < LODE_GGUF_TYPE_COUNT;
    if (fits && v->type == LODE_GGUF_STR)
        put_str(&w->keys, v->s);
    else if (fits && v->type == LODE_GGUF_ARRAY)
        fits = put_array(&w->keys, &v->a, 0);
    else if (fits)
        fits = put_number(&w->keys, v);
    if (!fits)
        return lode_fail(err, LODE_ERR_ARG, key, "its value does not fit type %u", v->type);
    w->n_keys++;
    return w->keys.failed ? lode_fail_nomem(err, key) : 0;
}

bool lode_gguf_writer_has(const struct lode_gguf_writer *w, const char *key) {
    return lode_map_get(&w->key_names, lode_str(key)) != LODE_MAP_NONE;
}

int lode_gguf_writer_u32(struct lode_gguf_writer *w, const char *key, uint32_t v,
                         struct lode_error *err) {
    return lode_gguf_writer_key(w, key, &(struct lode_gguf_value){.type = LODE_GGUF_U32, .u = v},
                                err);
}

int lode_gguf_writer_str(struct lode_gguf_writer *w, const char *key, const char *v,
                         struct lode_error *err) {
    return lode_gguf_writer_key(
        w, key, &(struct lode_gguf_value){.type = LODE_GGUF_STR, .s = lode_str(v)}, err);
}

int lode_gguf_writer_bool(struct lode_gguf_writer *w, const char *key, bool v,
                          struct lode_error *err) {
    return lode_gguf_writer_key(w, key, &(struct lode_gguf_value){.type = LODE_GGUF_BOOL, .u = v},
                                err);
}

/* ---- tensors ---- */

static bool tensor_size(enum lode_dtype type, uint32_t n_dims, const uint64_t *dims, size_t *size) {
    if (n_dims < 1 || n_dims > LODE_GGUF_MAX_DIMS || (unsigned)type >= LODE_DTYPE_COUNT ||
        lode_dtypes[type].id >= 256 || !lode_dtype_row_size(type, dims[0], size))
        return false;
    for (uint32_t d = 1; d < n_dims; d++)
        if (__builtin_mul_overflow(*size, dims[d], size))
            return false;
    return *size <= INT64_MAX;
}

int lode_gguf_writer_tensor(struct lode_gguf_writer *w, const char *name, enum lode_dtype type,
                            uint32_t n_dims, const uint64_t *dims, struct lode_error *err) {
    size_t size;
    if (!tensor_size(type, n_dims, dims, &size))
        return lode_fail(err, LODE_ERR_ARG, name, "a file has no such type or shape");
    const int rc = name_once(w, &w->tensor_names, name, LODE_GGUF_MAX_NAME, err);
    if (rc == 0)
        return lode_fail(err, LODE_ERR_ARG, name, "two tensors have this name");
    LODE_TRY(rc);
    if (w->n_tensors == LODE_GGUF_MAX_TENSORS)
        return lode_fail(err, LODE_ERR_LIMIT, name, "more than %d tensors", LODE_GGUF_MAX_TENSORS);
    if (w->n_tensors == w->cap) {
        const size_t cap = w->cap ? 2 * w->cap : 64;
        size_t *more = lode_realloc(w->sizes, cap, sizeof *more);
        if (!more)
            return lode_fail_nomem(err, name);
        w->sizes = more;
        w->cap = cap;
    }
    const uint64_t offset = padded(w->end);
    if (__builtin_add_overflow(offset, size, &w->end) || w->end > INT64_MAX)
        return lode_fail(err, LODE_ERR_LIMIT, name, "the file would be too large");
    put_str(&w->tensors, lode_str(name));
    put_u32(&w->tensors, n_dims);
    for (uint32_t d = 0; d < n_dims; d++)
        put_u64(&w->tensors, dims[d]);
    put_u32(&w->tensors, lode_dtypes[type].id);
    put_u64(&w->tensors, offset);
    w->sizes[w->n_tensors++] = size;
    return w->tensors.failed ? lode_fail_nomem(err, name) : 0;
}

/* ---- the file ---- */

static uint64_t header_size(const struct lode_gguf_writer *w) {
    return padded(4 + 4 + 8 + 8 + w->keys.len + w->tensors.len);
}

uint64_t lode_gguf_writer_size(const struct lode_gguf_writer *w) {
    return header_size(w) + padded(w->end);
}

int lode_gguf_writer_header(const struct lode_gguf_writer *w, struct lode_buf *out,
                            struct lode_error *err) {
    const size_t start = out->len;
    lode_buf_add(out, "GGUF", 4);
    put_u32(out, 3);
    put_u64(out, w->n_tensors);
    put_u64(out, w->n_keys);
    lode_buf_add(out, w->keys.len ? w->keys.data : "", w->keys.len);
    lode_buf_add(out, w->tensors.len ? w->tensors.data : "", w->tensors.len);
    lode_buf_add(out, zeros, header_size(w) - (out->len - start));
    return out->failed ? lode_fail_nomem(err, "a GGUF file's header") : 0;
}

int lode_gguf_writer_begin(struct lode_gguf_writer *w, const char *path, struct lode_error *err) {
    struct lode_buf header = {0};
    int rc = lode_gguf_writer_header(w, &header, err);
    if (rc == 0)
        rc = lode_out_open(&w->file, path, lode_gguf_writer_size(w), err);
    if (rc == 0)
        rc = lode_out_write(&w->file, header.data, header.len, err);
    lode_buf_free(&header);
    w->begun = rc == 0;
    w->left = w->n_tensors ? w->sizes[0] : 0;
    return rc;
}

/* Behind the last byte of a tensor: on to the next, the gap filled. */
static int next_tensor(struct lode_gguf_writer *w, struct lode_error *err) {
    const uint64_t here = w->file.size;
    w->at++;
    w->left = w->at < w->n_tensors ? w->sizes[w->at] : 0;
    return lode_out_write(&w->file, zeros, (size_t)(padded(here) - here), err);
}

int lode_gguf_writer_data(struct lode_gguf_writer *w, const void *data, size_t n,
                          struct lode_error *err) {
    const char *from = data;
    while (n > 0) {
        const size_t some = n < w->left ? n : w->left;
        if (!w->begun || w->at == w->n_tensors)
            return lode_fail(err, LODE_ERR_INTERNAL, w->file.path, "more numbers than tensors");
        LODE_TRY(lode_out_write(&w->file, from, some, err));
        from += some;
        n -= some;
        w->left -= some;
        if (w->left == 0)
            LODE_TRY(next_tensor(w, err));
    }
    return 0;
}

int lode_gguf_writer_commit(struct lode_gguf_writer *w, struct lode_error *err) {
    while (w->begun && w->at < w->n_tensors && w->left == 0) /* tensors without numbers */
        LODE_TRY(next_tensor(w, err));
    if (!w->begun || w->at < w->n_tensors)
        return lode_fail(err, LODE_ERR_INTERNAL, w->file.path,
                         "the numbers of %" PRIu64 " tensors are missing", w->n_tensors - w->at);
    w->begun = false;
    return lode_out_commit(&w->file, err);
}
