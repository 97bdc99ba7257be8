/* Looking things up in an opened GGUF file. */
#include "format/gguf.h"

#include "base/error.h"
#include "format/gguf_parts.h"

#include <inttypes.h>
#include <stdio.h>

uint32_t lode_gguf_version(const struct lode_gguf *g) {
    return g->parts[0].version;
}
const char *lode_gguf_path(const struct lode_gguf *g) {
    return lode_gguf_part_where(&g->parts[0]);
}
const char *lode_gguf_arch(const struct lode_gguf *g) {
    return g->arch;
}

/* ---- metadata ---- */

size_t lode_gguf_n_keys(const struct lode_gguf *g) {
    return g->parts[0].n_kv;
}

const struct lode_gguf_kv *lode_gguf_key(const struct lode_gguf *g, size_t i) {
    return i < g->parts[0].n_kv ? &g->parts[0].kv[i] : NULL;
}

const struct lode_gguf_value *lode_gguf_part_find(const struct lode_gguf_part *p, const char *key) {
    const uint32_t i = lode_map_get(&p->keys, lode_str(key));
    return i == LODE_MAP_NONE ? NULL : &p->kv[i].value;
}

const struct lode_gguf_value *lode_gguf_find(const struct lode_gguf *g, const char *key) {
    return lode_gguf_part_find(&g->parts[0], key);
}

static const struct lode_gguf_value *find_arch(const struct lode_gguf *g, const char *key) {
    char full[256];
    const int n = snprintf(full, sizeof full, "%s.%s", g->arch, key);
    return n > 0 && (size_t)n < sizeof full ? lode_gguf_find(g, full) : NULL;
}

uint64_t lode_gguf_n_vocab(const struct lode_gguf *g) {
    uint64_t n = 0;
    const struct lode_gguf_array *tokens;
    if (!lode_gguf_arch_u64(g, "vocab_size", &n) &&
        lode_gguf_array(g, "tokenizer.ggml.tokens", &tokens))
        n = tokens->n;
    return n;
}

static bool is_unsigned(const struct lode_gguf_value *v) {
    return v->type == LODE_GGUF_U8 || v->type == LODE_GGUF_U16 || v->type == LODE_GGUF_U32 ||
           v->type == LODE_GGUF_U64;
}
static bool is_signed(const struct lode_gguf_value *v) {
    return v->type == LODE_GGUF_I8 || v->type == LODE_GGUF_I16 || v->type == LODE_GGUF_I32 ||
           v->type == LODE_GGUF_I64;
}

bool lode_gguf_value_u64(const struct lode_gguf_value *v, uint64_t *out) {
    if (!is_unsigned(v) && !(is_signed(v) && v->i >= 0))
        return false;
    *out = is_unsigned(v) ? v->u : (uint64_t)v->i;
    return true;
}

bool lode_gguf_value_i64(const struct lode_gguf_value *v, int64_t *out) {
    if (!is_signed(v) && !(is_unsigned(v) && v->u <= INT64_MAX))
        return false;
    *out = is_signed(v) ? v->i : (int64_t)v->u;
    return true;
}

bool lode_gguf_value_u32(const struct lode_gguf_value *v, uint32_t *out) {
    uint64_t u;
    if (!lode_gguf_value_u64(v, &u) || u > UINT32_MAX)
        return false;
    *out = (uint32_t)u;
    return true;
}

bool lode_gguf_value_i32(const struct lode_gguf_value *v, int32_t *out) {
    int64_t i;
    if (!lode_gguf_value_i64(v, &i) || i < INT32_MIN || i > INT32_MAX)
        return false;
    *out = (int32_t)i;
    return true;
}

bool lode_gguf_value_f64(const struct lode_gguf_value *v, double *out) {
    if (v->type == LODE_GGUF_F32 || v->type == LODE_GGUF_F64)
        *out = v->f;
    else if (is_unsigned(v))
        *out = (double)v->u;
    else if (is_signed(v))
        *out = (double)v->i;
    else
        return false;
    return true;
}

bool lode_gguf_value_f32(const struct lode_gguf_value *v, float *out) {
    double d;
    if (!lode_gguf_value_f64(v, &d))
        return false;
    *out = (float)d; /* beyond the range: infinity, as IEEE says */
    return true;
}

bool lode_gguf_value_bool(const struct lode_gguf_value *v, bool *out) {
    if (v->type != LODE_GGUF_BOOL)
        return false;
    *out = v->u != 0;
    return true;
}

bool lode_gguf_value_str(const struct lode_gguf_value *v, struct lode_str *out) {
    if (v->type != LODE_GGUF_STR)
        return false;
    *out = v->s;
    return true;
}

bool lode_gguf_value_array(const struct lode_gguf_value *v, const struct lode_gguf_array **out) {
    if (v->type != LODE_GGUF_ARRAY)
        return false;
    *out = &v->a;
    return true;
}

#define GETTER(name, ctype)                                                                        \
    bool lode_gguf_##name(const struct lode_gguf *g, const char *key, ctype *out) {                \
        const struct lode_gguf_value *v = lode_gguf_find(g, key);                                  \
        return v && lode_gguf_value_##name(v, out);                                                          \
    }                                                                                              \
    bool lode_gguf_arch_##name(const struct lode_gguf *g, const char *key, ctype *out) {           \
        const struct lode_gguf_value *v = find_arch(g, key);                                       \
        return v && lode_gguf_value_##name(v, out);                                                          \
    }
LODE_GGUF_GETTER_LIST(GETTER)
#undef GETTER

struct lode_gguf_value lode_gguf_element(const struct lode_gguf_array *a, size_t i) {
    struct lode_gguf_value v = {.type = a->type};
    const size_t size = lode_gguf_type_size(a->type);
    const unsigned char *p = size ? (const unsigned char *)a->raw + i * size : NULL;
    float f;
    switch (a->type) {
    case LODE_GGUF_F32:
        memcpy(&f, p, sizeof f);
        v.f = f;
        break;
    case LODE_GGUF_F64:
        memcpy(&v.f, p, sizeof v.f);
        break;
    case LODE_GGUF_STR:
        v.s = a->strs[i];
        break;
    case LODE_GGUF_ARRAY:
        v.a = a->arrays[i];
        break;
    default:
        memcpy(&v.u, p, size);
        if (is_signed(&v)) { /* widen the sign */
            const int shift = 64 - 8 * (int)size;
            v.i = (int64_t)(v.u << shift) >> shift;
        }
    }
    return v;
}

int64_t lode_gguf_array_i64(const struct lode_gguf_array *a, size_t i) {
    const struct lode_gguf_value v = lode_gguf_element(a, i);
    if (v.type == LODE_GGUF_F32 || v.type == LODE_GGUF_F64)
        return v.f >= -0x1p63 && v.f < 0x1p63 ? (int64_t)v.f : 0;
    return v.type == LODE_GGUF_STR || v.type == LODE_GGUF_ARRAY ? 0 : v.i;
}

double lode_gguf_array_f64(const struct lode_gguf_array *a, size_t i) {
    const struct lode_gguf_value v = lode_gguf_element(a, i);
    double d;
    return v.type == LODE_GGUF_BOOL ? (double)v.u : lode_gguf_value_f64(&v, &d) ? d : 0;
}

int lode_gguf_fail_value(const char *path, const char *key, const struct lode_gguf_value *v,
                         const char *expected, struct lode_error *err) {
    char is[64] = "";
    if (!v)
        return lode_fail(err, LODE_ERR_MISSING, path,
                         "the key %s is missing, %s expected", key, expected);
    if (is_unsigned(v))
        snprintf(is, sizeof is, " %" PRIu64, v->u);
    else if (is_signed(v))
        snprintf(is, sizeof is, " %" PRId64, v->i);
    else if (v->type == LODE_GGUF_F32 || v->type == LODE_GGUF_F64)
        snprintf(is, sizeof is, " %g", v->f);
    return lode_fail(err, LODE_ERR_FORMAT, path,
                     "the key %s is%s of type %s, %s expected", key, is,
                     lode_gguf_type_name(v->type), expected);
}

int lode_gguf_fail_key(const struct lode_gguf *g, const char *key, const char *expected,
                       struct lode_error *err) {
    return lode_gguf_fail_value(lode_gguf_path(g), key, lode_gguf_find(g, key), expected, err);
}

int lode_gguf_arch_fail_key(const struct lode_gguf *g, const char *key, const char *expected,
                            struct lode_error *err) {
    char full[256];
    snprintf(full, sizeof full, "%s.%s", g->arch, key);
    return lode_gguf_fail_value(lode_gguf_path(g), full, find_arch(g, key), expected, err);
}

/* ---- tensors ---- */

size_t lode_gguf_n_tensors(const struct lode_gguf *g) {
    return g->n_tensors;
}

const struct lode_gguf_tensor *lode_gguf_tensor(const struct lode_gguf *g, size_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct lode_gguf_tensor *lode_gguf_find_tensor(const struct lode_gguf *g, const char *name) {
    const uint32_t i = lode_map_get(&g->names, lode_str(name));
    return i == LODE_MAP_NONE ? NULL : &g->tensors[i];
}

const void *lode_gguf_data(const struct lode_gguf *g, const struct lode_gguf_tensor *t) {
    const unsigned char *data = g->parts[t->shard].file.data;
    return data ? data + t->offset : NULL;
}

int lode_gguf_read(const struct lode_gguf *g, const struct lode_gguf_tensor *t, size_t offset,
                   void *out, size_t n, struct lode_error *err) {
    const struct lode_in_file *f = &g->parts[t->shard].file;
    if (offset > t->size || n > t->size - offset)
        return lode_fail(err, LODE_ERR_ARG, t->name, "%zu bytes at %zu of a tensor of %zu bytes", n,
                         offset, t->size);
    if (f->fd < 0)
        return lode_fail(err, LODE_ERR_IO, t->name, "only the header of this file was parsed");
    return lode_in_read(f, t->offset + offset, out, n, err);
}

size_t lode_gguf_n_shards(const struct lode_gguf *g) {
    return g->n_parts;
}

const struct lode_in_file *lode_gguf_file(const struct lode_gguf *g, size_t shard) {
    return shard < g->n_parts && g->parts[shard].file.fd >= 0 ? &g->parts[shard].file : NULL;
}

int lode_gguf_check(const struct lode_gguf *g, struct lode_error *err) {
    for (size_t i = 0; i < g->n_parts; i++)
        LODE_TRY(lode_in_check_unwritten(&g->parts[i].file, err));
    return 0;
}

void lode_gguf_forget(const struct lode_gguf *g) {
    for (size_t i = 0; i < g->n_parts; i++)
        lode_in_forget(&g->parts[i].file);
}
