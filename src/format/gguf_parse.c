/* One GGUF header, checked from end to end.  See gguf.h for the layout. */
#include "format/gguf_parts.h"

#include "base/alloc.h"
#include "base/cursor.h"
#include "base/error.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

struct parser {
    struct lode_cursor cur;
    struct lode_gguf_part *part;
    const char *where;
    uint64_t file_size; /* UINT64_MAX: unknown */
    struct lode_error *err;
};

#define FAIL(p, ...) lode_fail((p)->err, LODE_ERR_FORMAT, (p)->where, __VA_ARGS__)

static int fail_nomem(struct parser *p) {
    return lode_fail_nomem(p->err, "GGUF header");
}

/* The header wants more bytes than there are. */
static int fail_short(struct parser *p, const char *what) {
    if (p->file_size != UINT64_MAX && p->cur.len < p->file_size)
        return FAIL(p, "the header does not end within the %zu bytes that lode reads of it (in %s)",
                    p->cur.len, what);
    return FAIL(p, "the file is truncated: it ends at byte %zu, in %s", p->cur.len, what);
}

/* Bytes of the file from here on, loaded or not: what a count is held against, so that the message
 * is the same whether the loader went on or gave up. */
static uint64_t file_left(const struct parser *p) {
    return p->file_size == UINT64_MAX ? lode_cursor_left(&p->cur) : p->file_size - p->cur.pos;
}

/* ---- the first bytes ---- */

static bool starts_with(const struct parser *p, const char *text) {
    return p->cur.len >= strlen(text) && memcmp(p->cur.data, text, strlen(text)) == 0;
}

static bool looks_like_html(const struct parser *p) {
    size_t i = 0;
    while (i < p->cur.len && memchr(" \t\r\n", p->cur.data[i], 4))
        i++;
    const char *s = (const char *)p->cur.data + i;
    return p->cur.len - i >= 5 && (!strncasecmp(s, "<html", 5) || !strncasecmp(s, "<!doc", 5) ||
                                   !strncasecmp(s, "<?xml", 5));
}

static int fail_magic(struct parser *p) {
    static const struct {
        const char *magic, *text;
    } known[] = {
        {"version https://git-lfs",
         "this is a Git LFS pointer, not the model: run git lfs pull, or download the file itself"},
        {"PK\003\004", "this is a zip archive (PyTorch checkpoints are), not a GGUF file"},
        {"\200\002", "this is a Python pickle (an old PyTorch checkpoint), not a GGUF file"},
        {"FUGG", "this is a big-endian GGUF file, lode reads little-endian ones"},
        {"lmgg", "this is a GGML file from before GGUF (2023): convert it with llama.cpp"},
        {"tjgg", "this is a GGJT file from before GGUF (2023): convert it with llama.cpp"},
        {"fmgg", "this is a GGMF file from before GGUF (2023): convert it with llama.cpp"},
        {"\037\213", "this is a gzip archive: unpack it first"},
        {"\050\265\057\375", "this is a zstd archive: unpack it first"},
        {"{", "this is JSON text, not a model: name a GGUF file, or the directory of the "
              "safetensors files"},
        {"\0\0\0\0", "the file begins with zeros: the download is probably incomplete"},
    };
    /* safetensors: u64 length of a JSON object, then the object.  Before the table: its length may
     * begin with any byte. */
    if (p->cur.len >= 9 && p->cur.data[8] == '{' && p->cur.data[7] == 0 && p->cur.data[6] == 0)
        return FAIL(p, "this is a safetensors file, not a GGUF file");
    if (looks_like_html(p))
        return FAIL(p, "this is a web page, not a model: the download went wrong");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t n = i + 1 < sizeof known / sizeof *known ? strlen(known[i].magic) : 4;
        if (p->cur.len >= n && memcmp(p->cur.data, known[i].magic, n) == 0)
            return FAIL(p, "%s", known[i].text);
    }
    if (p->cur.len < 4)
        return FAIL(p, "the file has %zu bytes, too few for a GGUF file", p->cur.len);
    return FAIL(p, "not a GGUF file: it begins with bytes %02x %02x %02x %02x, not \"GGUF\"",
                p->cur.data[0], p->cur.data[1], p->cur.data[2], p->cur.data[3]);
}

static int read_preamble(struct parser *p, uint64_t *n_tensors, uint64_t *n_kv) {
    if (!starts_with(p, "GGUF"))
        return fail_magic(p);
    lode_cursor_u32(&p->cur);
    const uint32_t version = lode_cursor_u32(&p->cur);
    if (!p->cur.failed && version != 0 && (version & 0xffff) == 0)
        return FAIL(p,
                    "this is a big-endian GGUF file (version %" PRIu32
                    "), lode reads little-endian ones",
                    __builtin_bswap32(version));
    if (!p->cur.failed && version < 2)
        return FAIL(p,
                    "GGUF version %" PRIu32 " is too old, versions 2 and 3 are read: "
                    "convert the file with a recent llama.cpp",
                    version);
    if (version > 3)
        return FAIL(p,
                    "GGUF version %" PRIu32 " is unknown, versions 2 and 3 are read: "
                    "a newer lode may read it",
                    version);
    p->part->version = version;
    *n_tensors = lode_cursor_u64(&p->cur);
    *n_kv = lode_cursor_u64(&p->cur);
    return p->cur.failed ? fail_short(p, "the first 24 bytes") : 0;
}

/* A count that the rest of the bytes could hold, before anything is made for it. */
static int check_count(struct parser *p, const char *what, uint64_t n, uint64_t most,
                       uint64_t least_bytes) {
    if (n > most)
        return FAIL(p, "it claims %" PRIu64 " %s, at most %" PRIu64 " are accepted", n, what, most);
    if (n * least_bytes > file_left(p))
        return FAIL(p,
                    "it claims %" PRIu64 " %s, which need at least %" PRIu64
                    " bytes, but only %" PRIu64 " follow: the file is truncated or damaged",
                    n, what, n * least_bytes, file_left(p));
    return n * least_bytes > lode_cursor_left(&p->cur) ? fail_short(p, what) : 0;
}

/* A key or a tensor's name: copied, NUL-terminated, and fit to be printed in a message. */
static int read_name(struct parser *p, const char *what, uint32_t index, uint64_t most,
                     const char **out) {
    const uint64_t n = lode_cursor_u64(&p->cur);
    if (!p->cur.failed && (n == 0 || n > most))
        return FAIL(p, "%s %" PRIu32 " has a name of %" PRIu64 " bytes, 1 to %" PRIu64 " expected",
                    what, index, n, most);
    const struct lode_str s = lode_cursor_str(&p->cur, n);
    if (p->cur.failed) {
        char text[48];
        snprintf(text, sizeof text, "the name of %s %" PRIu32, what, index);
        return fail_short(p, text);
    }
    size_t bytes;
    for (size_t i = 0; i < s.len; i += bytes) {
        uint32_t cp;
        bytes = lode_utf8_decode(s.data + i, s.len - i, &cp);
        if (bytes == 0)
            return FAIL(p, "%s %" PRIu32 " has a name that is not valid UTF-8", what, index);
        if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
            return FAIL(p, "%s %" PRIu32 " has a control character (U+%04" PRIX32 ") in its name",
                        what, index, cp);
    }
    *out = lode_arena_strndup(&p->part->arena, s.data, s.len);
    return *out ? 0 : fail_nomem(p);
}

/* ---- values ---- */

size_t lode_gguf_type_size(uint32_t id) {
    static const unsigned char sizes[] = {
#define SIZE(name, id, bytes, text) [id] = bytes,
        LODE_GGUF_TYPE_LIST(SIZE)
#undef SIZE
    };
    return id < sizeof sizes ? sizes[id] : 0;
}

const char *lode_gguf_type_name(enum lode_gguf_type t) {
    static const char *const names[] = {
#define NAME(name, id, bytes, text) [id] = text,
        LODE_GGUF_TYPE_LIST(NAME)
#undef NAME
    };
    return (unsigned)t < LODE_GGUF_TYPE_COUNT ? names[t] : "unknown";
}

static int fail_bool(struct parser *p, const char *key, unsigned value) {
    return FAIL(p, "%s has a bool of %u, 0 or 1 expected", key, value);
}

static int read_str(struct parser *p, const char *key, struct lode_str *out) {
    const uint64_t n = lode_cursor_u64(&p->cur);
    if (!p->cur.failed && n > file_left(p))
        return FAIL(p,
                    "%s has a string of %" PRIu64 " bytes, but only %" PRIu64
                    " follow: the file is truncated or damaged",
                    key, n, file_left(p));
    *out = lode_cursor_str(&p->cur, n);
    return p->cur.failed ? fail_short(p, key) : 0;
}

static int read_array(struct parser *p, const char *key, int depth, struct lode_gguf_array *a) {
    const uint32_t type = lode_cursor_u32(&p->cur);
    const uint64_t n = lode_cursor_u64(&p->cur);
    if (p->cur.failed)
        return fail_short(p, key);
    if (type >= LODE_GGUF_TYPE_COUNT)
        return FAIL(p, "%s is an array of unknown type %" PRIu32, key, type);
    const size_t size = lode_gguf_type_size(type);
    /* the least that an element takes: a string its length, an array its type and count */
    const size_t least = size ? size : type == LODE_GGUF_STR ? 8 : 12;
    if (n > file_left(p) / least)
        return FAIL(p,
                    "%s is an array of %" PRIu64 " %s, but only %" PRIu64
                    " bytes follow: the file is truncated or damaged",
                    key, n, lode_gguf_type_name(type), file_left(p));
    if (n > lode_cursor_left(&p->cur) / least)
        return fail_short(p, key);
    *a = (struct lode_gguf_array){.type = type, .n = (size_t)n};
    if (size) {
        const unsigned char *raw = lode_cursor_take(&p->cur, n * size);
        for (size_t i = 0; type == LODE_GGUF_BOOL && i < n; i++)
            if (raw[i] > 1)
                return fail_bool(p, key, raw[i]);
        a->raw = raw;
    } else if (type == LODE_GGUF_STR) {
        struct lode_str *strs = lode_arena_alloc(&p->part->arena, a->n, sizeof *strs);
        if (!strs)
            return fail_nomem(p);
        a->strs = strs;
        for (size_t i = 0; i < a->n; i++)
            LODE_TRY(read_str(p, key, &strs[i]));
    } else {
        if (depth >= LODE_GGUF_MAX_DEPTH)
            return FAIL(p, "%s has arrays nested deeper than %d", key, LODE_GGUF_MAX_DEPTH);
        struct lode_gguf_array *arrays = lode_arena_alloc(&p->part->arena, a->n, sizeof *arrays);
        if (!arrays)
            return fail_nomem(p);
        a->arrays = arrays;
        for (size_t i = 0; i < a->n; i++)
            LODE_TRY(read_array(p, key, depth + 1, &arrays[i]));
    }
    return 0;
}

static int read_value(struct parser *p, const char *key, struct lode_gguf_value *v) {
    const uint32_t type = lode_cursor_u32(&p->cur);
    if (!p->cur.failed && type >= LODE_GGUF_TYPE_COUNT)
        return FAIL(p, "%s has unknown type %" PRIu32, key, type);
    *v = (struct lode_gguf_value){.type = type};
    switch (v->type) {
    case LODE_GGUF_U8:
        v->u = lode_cursor_u8(&p->cur);
        break;
    case LODE_GGUF_I8:
        v->i = (int8_t)lode_cursor_u8(&p->cur);
        break;
    case LODE_GGUF_U16:
        v->u = lode_cursor_u16(&p->cur);
        break;
    case LODE_GGUF_I16:
        v->i = (int16_t)lode_cursor_u16(&p->cur);
        break;
    case LODE_GGUF_U32:
        v->u = lode_cursor_u32(&p->cur);
        break;
    case LODE_GGUF_I32:
        v->i = (int32_t)lode_cursor_u32(&p->cur);
        break;
    case LODE_GGUF_U64:
        v->u = lode_cursor_u64(&p->cur);
        break;
    case LODE_GGUF_I64:
        v->i = (int64_t)lode_cursor_u64(&p->cur);
        break;
    case LODE_GGUF_F32:
        v->f = lode_cursor_f32(&p->cur);
        break;
    case LODE_GGUF_F64:
        v->f = lode_cursor_f64(&p->cur);
        break;
    case LODE_GGUF_BOOL:
        v->u = lode_cursor_u8(&p->cur);
        if (v->u > 1)
            return fail_bool(p, key, (unsigned)v->u);
        break;
    case LODE_GGUF_STR:
        return read_str(p, key, &v->s);
    case LODE_GGUF_ARRAY:
        return read_array(p, key, 1, &v->a);
    case LODE_GGUF_TYPE_COUNT:
        break;
    }
    return p->cur.failed ? fail_short(p, key) : 0;
}

static int read_keys(struct parser *p, uint64_t n) {
    struct lode_gguf_part *part = p->part;
    LODE_TRY(check_count(p, "keys", n, LODE_GGUF_MAX_KEYS, 8 + 1 + 4 + 1));
    part->kv = LODE_ARENA_ARRAY(&part->arena, struct lode_gguf_kv, n);
    if (!part->kv || !lode_map_reserve(&part->keys, (uint32_t)n))
        return fail_nomem(p);
    for (uint32_t i = 0; i < n; i++) {
        struct lode_gguf_kv *kv = &part->kv[i];
        LODE_TRY(read_name(p, "key", i, LODE_GGUF_MAX_KEY, &kv->key));
        LODE_TRY(read_value(p, kv->key, &kv->value));
        const int put = lode_map_put(&part->keys, lode_str(kv->key), i, NULL);
        if (put < 0)
            return fail_nomem(p);
        if (put == 0)
            return FAIL(p, "key %s occurs twice", kv->key);
        part->n_kv = i + 1;
    }
    return 0;
}

static int read_alignment(struct parser *p, uint64_t *align) {
    const struct lode_gguf_value *v = lode_gguf_part_find(p->part, "general.alignment");
    *align = 32;
    if (!v)
        return 0;
    if (!lode_gguf_value_u64(v, align))
        return FAIL(p, "general.alignment is no count (type %s)", lode_gguf_type_name(v->type));
    if (*align < 8 || *align > LODE_GGUF_MAX_ALIGN || (*align & (*align - 1)) != 0)
        return FAIL(p, "general.alignment is %" PRIu64 ", a power of two from 8 to %d expected",
                    *align, LODE_GGUF_MAX_ALIGN);
    return 0;
}

/* ---- tensors ---- */

static int fail_dtype(struct parser *p, const char *name, uint32_t id) {
    static const struct {
        uint32_t id;
        const char *name;
    } dropped[] = {{4, "Q4_2"},      {5, "Q4_3"},        {31, "Q4_0_4_4"},   {32, "Q4_0_4_8"},
                   {33, "Q4_0_8_8"}, {36, "IQ4_NL_4_4"}, {37, "IQ4_NL_4_8"}, {38, "IQ4_NL_8_8"}};
    for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
        if (dropped[i].id == id)
            return lode_fail(p->err, LODE_ERR_UNSUPPORTED, p->where,
                             "tensor %s has type %" PRIu32 " (%s), which GGUF no longer has: "
                             "take a file made by a current llama.cpp",
                             name, id, dropped[i].name);
    return lode_fail(p->err, LODE_ERR_UNSUPPORTED, p->where,
                     "tensor %s has unknown type %" PRIu32 ": a newer lode may read it", name, id);
}

/* Sizes t->size from its type and dims. */
static int size_tensor(struct parser *p, struct lode_gguf_tensor *t) {
    uint64_t numbers = 1;
    for (uint32_t d = 0; d < t->n_dims; d++) {
        if (t->dims[d] == 0)
            return FAIL(p, "tensor %s has dimension %" PRIu32 " of size 0", t->name, d);
        if (__builtin_mul_overflow(numbers, t->dims[d], &numbers) || numbers > INT64_MAX)
            return FAIL(
                p, "tensor %s has more than 2^63 numbers (dimension %" PRIu32 " is %" PRIu64 ")",
                t->name, d, t->dims[d]);
    }
    size_t row;
    if (t->dims[0] % lode_dtypes[t->type].block != 0)
        return FAIL(p, "tensor %s has rows of %" PRIu64 " numbers, %s needs a multiple of %" PRIu32,
                    t->name, t->dims[0], lode_dtypes[t->type].name, lode_dtypes[t->type].block);
    if (!lode_dtype_row_size(t->type, t->dims[0], &row) ||
        !lode_mul_size(row, (size_t)(numbers / t->dims[0]), &t->size))
        return FAIL(p, "tensor %s has more bytes than an address can hold", t->name);
    return 0;
}

/* One record; t->offset is still from the start of the data. */
static int read_tensor(struct parser *p, uint32_t index, uint64_t align,
                       struct lode_gguf_tensor *t) {
    LODE_TRY(read_name(p, "tensor", index, LODE_GGUF_MAX_NAME, &t->name));
    t->n_dims = lode_cursor_u32(&p->cur);
    if (t->n_dims > LODE_GGUF_MAX_DIMS)
        return FAIL(p, "tensor %s has %" PRIu32 " dimensions, at most %d expected", t->name,
                    t->n_dims, LODE_GGUF_MAX_DIMS);
    for (uint32_t d = 0; d < LODE_GGUF_MAX_DIMS; d++)
        t->dims[d] = d < t->n_dims ? lode_cursor_u64(&p->cur) : 1;
    const uint32_t id = lode_cursor_u32(&p->cur);
    t->offset = lode_cursor_u64(&p->cur);
    if (p->cur.failed)
        return fail_short(p, t->name);
    t->type = lode_dtype_from_gguf(id);
    if (t->type == LODE_NONE)
        return fail_dtype(p, t->name, id);
    LODE_TRY(size_tensor(p, t));
    if (t->offset % align != 0)
        return FAIL(p,
                    "tensor %s is at offset %" PRIu64 ", not a multiple of the alignment %" PRIu64,
                    t->name, t->offset, align);
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const struct lode_gguf_tensor *const *x = a, *const *y = b;
    return ((*x)->offset > (*y)->offset) - ((*x)->offset < (*y)->offset);
}

/* Offsets become absolute; every tensor within the file, none over another. */
static int place_tensors(struct parser *p, uint64_t align) {
    struct lode_gguf_part *part = p->part;
    const uint64_t start = ((uint64_t)p->cur.pos + align - 1) & ~(align - 1);
    bool ascending = true;
    uint64_t need = 0;
    const struct lode_gguf_tensor *last = NULL, *beyond = NULL;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        struct lode_gguf_tensor *t = &part->tensors[i];
        uint64_t end;
        if (__builtin_add_overflow(t->offset, start, &t->offset) ||
            __builtin_add_overflow(t->offset, (uint64_t)t->size, &end) || end > INT64_MAX)
            return FAIL(p, "tensor %s ends beyond 2^63 bytes (%zu bytes at offset %" PRIu64 ")",
                        t->name, t->size, t->offset - start);
        if (end > need) {
            need = end;
            if (end > p->file_size && !beyond)
                beyond = t;
        }
        if (last && t->offset < last->offset + last->size)
            ascending = false;
        last = t;
    }
    if (beyond)
        return FAIL(p,
                    "the file is truncated: %" PRIu64 " bytes expected, %" PRIu64
                    " present (the first tensor cut off is %s, %zu bytes at %" PRIu64 ")",
                    need, p->file_size, beyond->name, beyond->size, beyond->offset);
    if (ascending)
        return 0; /* each begins at or after the end of the one before: no overlap */

    struct lode_gguf_tensor **sorted = LODE_NEW_ARRAY(struct lode_gguf_tensor *, part->n_tensors);
    if (!sorted)
        return fail_nomem(p);
    for (uint32_t i = 0; i < part->n_tensors; i++)
        sorted[i] = &part->tensors[i];
    qsort(sorted, part->n_tensors, sizeof *sorted, by_offset);
    int rc = 0;
    for (uint32_t i = 1; i < part->n_tensors && rc == 0; i++) {
        const struct lode_gguf_tensor *a = sorted[i - 1], *b = sorted[i];
        if (a->offset + a->size > b->offset)
            rc = FAIL(p, "tensors %s (%zu bytes at %" PRIu64 ") and %s (at %" PRIu64 ") overlap",
                      a->name, a->size, a->offset, b->name, b->offset);
    }
    lode_free(sorted);
    return rc;
}

int lode_gguf_part_parse(struct lode_gguf_part *part, const unsigned char *data, size_t len,
                         uint64_t file_size, struct lode_error *err) {
    struct parser p = {.cur = {.data = data, .len = len},
                       .part = part,
                       .where = lode_gguf_part_where(part),
                       .file_size = file_size,
                       .err = err};
    uint64_t n_tensors = 0, n_kv = 0, align = 0;
    LODE_TRY(read_preamble(&p, &n_tensors, &n_kv));
    LODE_TRY(read_keys(&p, n_kv));
    LODE_TRY(read_alignment(&p, &align));
    LODE_TRY(check_count(&p, "tensors", n_tensors, LODE_GGUF_MAX_TENSORS, 8 + 1 + 4 + 4 + 8));
    part->tensors = LODE_ARENA_ARRAY(&part->arena, struct lode_gguf_tensor, n_tensors);
    if (!part->tensors)
        return fail_nomem(&p);
    for (; part->n_tensors < n_tensors; part->n_tensors++)
        LODE_TRY(read_tensor(&p, part->n_tensors, align, &part->tensors[part->n_tensors]));
    return place_tensors(&p, align);
}

void lode_gguf_part_free(struct lode_gguf_part *p) {
    lode_map_free(&p->keys);
    lode_arena_free(&p->arena);
    lode_free(p->header);
    lode_in_close(&p->file);
}
