/* The public view of a model file: lode/file.h over format/source.h. */
#include "lode/file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/half.h"
#include "base/utf8.h"
#include "format/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct lode_file {
    struct lode_source *source; /* owned */
    uint64_t n_params;
};

int lode_file_open(struct lode_file **out, const char *path, struct lode_error *err) {
    *out = NULL;
    struct lode_file *f = LODE_NEW(struct lode_file);
    if (!f)
        return lode_fail_nomem(err, "file");
    const int rc = lode_source_open(&f->source, path, false, err);
    if (rc < 0) {
        lode_file_close(f);
        return rc;
    }
    for (size_t i = 0; i < f->source->n_tensors; i++) {
        const struct lode_gguf_tensor *t = &f->source->tensors[i];
        f->n_params += t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3];
    }
    *out = f;
    return 0;
}

void lode_file_close(struct lode_file *f) {
    if (!f)
        return;
    lode_source_close(f->source);
    lode_free(f);
}

const char *lode_file_path(const struct lode_file *f) {
    return f->source->path;
}
const char *lode_file_notes(const struct lode_file *f) {
    return f->source->notes;
}
const char *lode_file_format(const struct lode_file *f) {
    return f->source->format;
}
size_t lode_file_n_shards(const struct lode_file *f) {
    return f->source->n_files;
}
uint64_t lode_file_size(const struct lode_file *f) {
    return f->source->size;
}
const char *lode_file_arch(const struct lode_file *f) {
    return f->source->arch;
}
uint64_t lode_file_n_vocab(const struct lode_file *f) {
    return lode_source_n_vocab(f->source);
}
uint64_t lode_file_n_params(const struct lode_file *f) {
    return f->n_params;
}
size_t lode_file_n_tensors(const struct lode_file *f) {
    return f->source->n_tensors;
}
size_t lode_file_n_keys(const struct lode_file *f) {
    return f->source->n_keys;
}

static const struct lode_gguf_kv *key_at(const struct lode_file *f, size_t i) {
    return i < f->source->n_keys ? &f->source->keys[i] : NULL;
}

struct lode_file_tensor lode_file_tensor(const struct lode_file *f, size_t i) {
    struct lode_file_tensor out = {.name = "", .type = ""};
    if (i >= f->source->n_tensors)
        return out;
    const struct lode_gguf_tensor *t = &f->source->tensors[i];
    out = (struct lode_file_tensor){.name = t->name,
                                    .type = lode_dtypes[t->type].name,
                                    .n_dims = t->n_dims,
                                    .offset = t->offset,
                                    .size = t->size,
                                    .shard = t->shard};
    memcpy(out.dims, t->dims, sizeof out.dims);
    return out;
}

const char *lode_file_key(const struct lode_file *f, size_t i) {
    const struct lode_gguf_kv *kv = key_at(f, i);
    return kv ? kv->key : "";
}

const char *lode_file_key_type(const struct lode_file *f, size_t i) {
    static const char *const arrays[] = {
#define ARRAY_NAME(name, id, bytes, text) [id] = "[" text "]",
        LODE_GGUF_TYPE_LIST(ARRAY_NAME)
#undef ARRAY_NAME
    };
    const struct lode_gguf_kv *kv = key_at(f, i);
    if (!kv)
        return "";
    const bool array = kv->value.type == LODE_GGUF_ARRAY;
    return array ? arrays[kv->value.a.type] : lode_gguf_type_name(kv->value.type);
}

/* ---- values as text ---- */

struct sink { /* keeps what fits, counts everything */
    char *out;
    size_t cap, len;
};

static void put(struct sink *s, const char *text, size_t n) {
    if (s->len < s->cap)
        memcpy(s->out + s->len, text, n < s->cap - s->len ? n : s->cap - s->len);
    s->len += n;
}

/* One character of a JSON string: n bytes at text, or something that is not UTF-8 (cp ignored). */
static size_t put_char(struct sink *s, const char *text, size_t left) {
    static const char short_escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
    uint32_t cp;
    const size_t n = lode_utf8_decode(text, left, &cp);
    if (n == 0) {
        put(s, "\xef\xbf\xbd", 3);
        return 1;
    }
    if (cp >= 0x20 && cp != '"' && cp != '\\' && (cp < 0x7f || cp >= 0xa0)) {
        put(s, text, n);
        return n;
    }
    for (const char *e = short_escapes; *e; e += 2)
        if (cp == (unsigned char)*e) {
            put(s, (char[]){'\\', e[1]}, 2);
            return n;
        }
    char escape[8]; /* C1 controls too: JSON allows them raw, terminals obey some of them */
    snprintf(escape, sizeof escape, "\\u%04x", (unsigned)cp);
    put(s, escape, 6);
    return n;
}

static void put_str(struct sink *s, struct lode_str str, size_t most) {
    put(s, "\"", 1);
    for (size_t i = 0; i < str.len;) {
        const size_t before = s->len;
        i += put_char(s, str.data + i, str.len - i);
        if (s->len > most) {
            s->len = before;
            put(s, "...", 3);
            break;
        }
    }
    put(s, "\"", 1);
}

/* The shortest decimal that reads back as the same number; always with a point or exponent. */
static void put_float(struct sink *s, double v, bool single) {
    char text[40];
    if (!isfinite(v)) {
        put_str(s,
                isnan(v) ? LODE_STR("NaN")
                : v > 0  ? LODE_STR("Infinity")
                         : LODE_STR("-Infinity"),
                SIZE_MAX);
        return;
    }
    for (int digits = single ? 6 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (single ? strtof(text, NULL) == (float)v : strtod(text, NULL) == v)
            break;
    }
    char *comma = strchr(text, ','); /* a program that set a locale */
    if (comma)
        *comma = '.';
    if (!strpbrk(text, ".e"))
        strcat(text, ".0"); /* a reader sees that it is no integer, and -0.0 keeps its sign */
    put(s, text, strlen(text));
}

static void put_value(struct sink *s, const struct lode_gguf_value *v, size_t most) {
    char text[32];
    switch (v->type) {
    case LODE_GGUF_STR:
        put_str(s, v->s, most < SIZE_MAX ? most - 4 : most); /* room for ..." */
        return;
    case LODE_GGUF_F32:
    case LODE_GGUF_F64:
        put_float(s, v->f, v->type == LODE_GGUF_F32);
        return;
    case LODE_GGUF_BOOL:
        put(s, v->u ? "true" : "false", v->u ? 4 : 5);
        return;
    case LODE_GGUF_I8:
    case LODE_GGUF_I16:
    case LODE_GGUF_I32:
    case LODE_GGUF_I64:
        put(s, text, (size_t)snprintf(text, sizeof text, "%" PRId64, v->i));
        return;
    case LODE_GGUF_ARRAY:
        break;
    default:
        put(s, text, (size_t)snprintf(text, sizeof text, "%" PRIu64, v->u));
        return;
    }
    char tail[48];
    const size_t n_tail = (size_t)snprintf(tail, sizeof tail, "...] (%zu in all)", v->a.n);
    put(s, "[", 1);
    for (size_t i = 0; i < v->a.n; i++) {
        const size_t before = s->len;
        if (i > 0)
            put(s, ", ", 2);
        const struct lode_gguf_value e = lode_gguf_element(&v->a, i);
        put_value(s, &e, SIZE_MAX);
        if (s->len > most || (most - s->len < n_tail + 2 && i + 1 < v->a.n)) {
            s->len = before;
            put(s, ", ", i > 0 ? 2 : 0);
            put(s, tail, n_tail);
            return;
        }
    }
    put(s, "]", 1);
}

size_t lode_file_value(const struct lode_file *f, size_t i, char *out, size_t cap, bool full_json) {
    struct sink s = {out, cap > 0 ? cap - 1 : 0, 0};
    const struct lode_gguf_kv *kv = key_at(f, i);
    if (kv)
        put_value(&s, &kv->value, full_json ? SIZE_MAX : s.cap > 4 ? s.cap : 4);
    const size_t end = s.len < s.cap ? s.len : s.cap;
    if (cap > 0)
        out[end] = '\0';
    return full_json ? s.len : end;
}
