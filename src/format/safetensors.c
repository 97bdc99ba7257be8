#include "format/safetensors.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/error.h"
#include "base/map.h"
#include "base/utf8.h"
#include "format/scan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

struct lode_st {
    struct lode_in_file *files; /* owned; (n_files): none when parsed from memory */
    uint32_t n_files, cap_files;
    struct lode_st_tensor *tensors; /* owned; (n of cap) */
    uint32_t n, cap;
    struct lode_arena arena; /* names */
    struct lode_map names;   /* name -> index in tensors, once all are there */
};

static const struct {
    const char *name;
    uint32_t bits;
} types[] = {
#define ROW(name, bits) {#name, bits},
    LODE_ST_TYPE_LIST(ROW)
#undef ROW
};

const char *lode_st_type_name(enum lode_st_type t) {
    return types[t].name;
}

/* ---- one header ---- */

struct parser {
    struct lode_st *st;
    struct lode_scan scan;
    const char *where;  /* the file */
    uint64_t data_size; /* of the file behind its header */
    uint64_t data_at;   /* where that begins */
    struct lode_error *err;
};

static bool is_name(struct lode_str s) {
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.data[i] < 0x20 || s.data[i] == 0x7f)
            return false;
    return s.len > 0 && s.len <= LODE_ST_MAX_NAME;
}

static int fail_tensor(struct parser *p, const struct lode_st_tensor *t, const char *why) {
    return lode_fail(p->err, LODE_ERR_FORMAT, p->where, "tensor %.100s: %s", t->name, why);
}

static int fail_scan(struct parser *p) {
    if (strcmp(p->scan.why, "out of memory") == 0)
        return lode_fail_nomem(p->err, "safetensors header");
    return lode_fail(p->err, LODE_ERR_FORMAT, p->where,
                     "the header is no safetensors JSON: %s (byte %zu)", p->scan.why, p->scan.at);
}

enum { HAS_TYPE = 1, HAS_SHAPE = 2, HAS_PLACE = 4, HAS_ALL = 7 };

/* One field of a tensor's description; 0 with the scanner's complaint where it is malformed. */
static int read_field(struct parser *p, struct lode_st_tensor *t, uint64_t *end) {
    struct lode_scan *s = &p->scan;
    struct lode_str key, name;
    uint64_t begin;
    if (!lode_scan_key(s, &key))
        return 0;
    if (lode_str_eqz(key, "dtype")) {
        if (!lode_scan_str(s, &name))
            return 0;
        for (int i = 0; i < LODE_ST_TYPE_COUNT; i++)
            if (lode_str_eqz(name, types[i].name)) {
                t->type = (enum lode_st_type)i;
                return HAS_TYPE;
            }
        return lode_scan_fail(s, "unknown dtype");
    }
    if (lode_str_eqz(key, "shape")) {
        lode_scan_open(s, '[');
        while (lode_scan_next(s, ']'))
            if (t->n_dims == LODE_ST_MAX_DIMS || !lode_scan_u64(s, &t->dims[t->n_dims++]))
                return lode_scan_fail(s, "more than 8 dimensions");
        return HAS_SHAPE;
    }
    if (lode_str_eqz(key, "data_offsets")) {
        lode_scan_open(s, '[');
        if (!lode_scan_next(s, ']') || !lode_scan_u64(s, &begin) || !lode_scan_next(s, ']') ||
            !lode_scan_u64(s, end) || lode_scan_next(s, ']'))
            return lode_scan_fail(s, "data_offsets must be two numbers");
        t->offset = begin;
        return HAS_PLACE;
    }
    return lode_scan_fail(s, "a tensor has dtype, shape and data_offsets and nothing else");
}

/* The description of a tensor whose name was just read. */
static int read_tensor(struct parser *p, struct lode_st_tensor *t) {
    uint64_t end = 0, bits = 1;
    int has = 0;
    for (uint32_t i = 0; i < LODE_ST_MAX_DIMS; i++)
        t->dims[i] = 1;
    lode_scan_open(&p->scan, '{');
    while (lode_scan_next(&p->scan, '}')) {
        const int field = read_field(p, t, &end);
        if (p->scan.why)
            return fail_scan(p);
        if (has & field)
            return fail_tensor(p, t, "a field comes twice");
        has |= field;
    }
    if (p->scan.why)
        return fail_scan(p);
    if (has != HAS_ALL)
        return fail_tensor(p, t, "dtype, shape and data_offsets must all be there");
    for (uint32_t i = 0; i < t->n_dims; i++)
        if (__builtin_mul_overflow(bits, t->dims[i], &bits))
            return fail_tensor(p, t, "the shape is too large");
    if (__builtin_mul_overflow(bits, (uint64_t)types[t->type].bits, &bits) || bits % 8)
        return fail_tensor(p, t, "the shape is too large, or no whole number of bytes");
    if (t->offset > end || end > p->data_size)
        return fail_tensor(p, t, "data_offsets lie outside of the file");
    if (end - t->offset != bits / 8)
        return lode_fail(p->err, LODE_ERR_FORMAT, p->where,
                         "tensor %.100s: dtype and shape make %" PRIu64
                         " bytes, data_offsets %" PRIu64,
                         t->name, bits / 8, end - t->offset);
    t->size = (size_t)(bits / 8);
    t->offset += p->data_at;
    return 0;
}

static int add_tensor(struct parser *p, struct lode_str name) {
    struct lode_st *st = p->st;
    if (!is_name(name))
        return lode_fail(p->err, LODE_ERR_FORMAT, p->where,
                         "a tensor's name is empty, longer than %d bytes or has control characters",
                         LODE_ST_MAX_NAME);
    if (st->n == LODE_ST_MAX_TENSORS)
        return lode_fail(p->err, LODE_ERR_LIMIT, p->where, "more than %d tensors",
                         LODE_ST_MAX_TENSORS);
    if (st->n == st->cap) {
        const uint32_t cap = st->cap ? 2 * st->cap : 256;
        struct lode_st_tensor *more = lode_realloc(st->tensors, cap, sizeof *more);
        if (!more)
            return lode_fail_nomem(p->err, "list of tensors");
        st->tensors = more;
        st->cap = cap;
    }
    struct lode_st_tensor *t = &st->tensors[st->n++];
    *t = (struct lode_st_tensor){.name = lode_arena_strndup(&st->arena, name.data, name.len),
                                 .shard = st->n_files ? st->n_files - 1 : 0};
    return t->name ? read_tensor(p, t) : lode_fail_nomem(p->err, "name of a tensor");
}

static int read_metadata(struct parser *p) {
    struct lode_str text;
    lode_scan_open(&p->scan, '{');
    while (lode_scan_next(&p->scan, '}'))
        if (!lode_scan_key(&p->scan, &text) || !lode_scan_str(&p->scan, &text))
            break;
    return p->scan.why ? fail_scan(p) : 0;
}

static int by_place(const void *a, const void *b) {
    const struct lode_st_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->size != y->size) /* empty ones before the one that begins where they are */
        return x->size < y->size ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* The arrays must lie one behind the other and fill the file. */
static int check_places(struct parser *p, uint32_t first) {
    struct lode_st *st = p->st;
    uint64_t at = p->data_at;
    if (st->n > first)
        qsort(st->tensors + first, st->n - first, sizeof *st->tensors, by_place);
    for (uint32_t i = first; i < st->n; i++) {
        const struct lode_st_tensor *t = &st->tensors[i];
        if (t->offset != at)
            return fail_tensor(p, t,
                               t->offset < at ? "overlaps with another tensor"
                                              : "there are unused bytes before it");
        at += t->size;
    }
    if (at != p->data_at + p->data_size)
        return lode_fail(p->err, LODE_ERR_FORMAT, p->where,
                         "%" PRIu64 " bytes at the end belong to no tensor",
                         p->data_at + p->data_size - at);
    return 0;
}

static int read_header(struct parser *p) {
    const uint32_t first = p->st->n;
    struct lode_str key;
    bool metadata = false;
    if (!p->scan.len || p->scan.text[0] != '{') /* blanks may follow, not lead */
        lode_scan_fail(&p->scan, "it must begin with {");
    lode_scan_open(&p->scan, '{');
    while (lode_scan_next(&p->scan, '}')) {
        if (!lode_scan_key(&p->scan, &key))
            return fail_scan(p);
        if (!lode_str_eqz(key, "__metadata__")) {
            LODE_TRY(add_tensor(p, key));
            continue;
        }
        if (metadata)
            return lode_fail(p->err, LODE_ERR_FORMAT, p->where, "__metadata__ comes twice");
        metadata = true;
        LODE_TRY(read_metadata(p));
    }
    if (!lode_scan_end(&p->scan))
        return fail_scan(p);
    return check_places(p, first);
}

/* The length of the JSON behind the first 8 bytes; there are file_size of them in all. */
static int header_size(const unsigned char head[8], uint64_t file_size, const char *where,
                       size_t *size, struct lode_error *err) {
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | head[i];
    if (n > LODE_ST_MAX_HEADER)
        return lode_fail(err, LODE_ERR_FORMAT, where,
                         "the header is said to have %" PRIu64
                         " bytes; at most %d expected (is this a "
                         "safetensors file?)",
                         n, LODE_ST_MAX_HEADER);
    if (n > file_size - 8)
        return lode_fail(err, LODE_ERR_FORMAT, where,
                         "the file ends within its header (%" PRIu64 " of %" PRIu64
                         " bytes): an incomplete download?",
                         file_size - 8, n);
    *size = (size_t)n;
    return 0;
}

static int parse(struct lode_st *st, const char *where, const char *text, size_t len,
                 uint64_t file_size, struct lode_error *err) {
    struct parser p = {.st = st,
                       .scan = {.text = text, .len = len},
                       .where = where,
                       .data_size = file_size - 8 - len,
                       .data_at = 8 + (uint64_t)len,
                       .err = err};
    const int rc = read_header(&p);
    lode_buf_free(&p.scan.scratch);
    return rc;
}

/* Names by place, once the list no longer moves; one that comes twice is refused here. */
static int index_names(struct lode_st *st, const char *where, struct lode_error *err) {
    if (!lode_map_reserve(&st->names, st->n))
        return lode_fail_nomem(err, "names of tensors");
    for (uint32_t i = 0; i < st->n; i++) {
        const char *name = st->tensors[i].name;
        const int rc = lode_map_put(&st->names, lode_str(name), i, NULL);
        if (rc < 0)
            return lode_fail_nomem(err, "names of tensors");
        if (rc == 0)
            return lode_fail(err, LODE_ERR_FORMAT, where, "tensor %.100s is there twice", name);
    }
    return 0;
}

static int fail_open(struct lode_st **out, struct lode_st *st, int rc) {
    if (rc < 0)
        lode_st_close(st);
    else
        *out = st;
    return rc;
}

int lode_st_parse(struct lode_st **out, const void *data, size_t len, uint64_t file_size,
                  struct lode_error *err) {
    *out = NULL;
    size_t n;
    if (len < 8 || file_size < len)
        return lode_fail(err, LODE_ERR_FORMAT, "", "a safetensors file has at least 8 bytes");
    LODE_TRY(header_size(data, len, "", &n, err)); /* len: the whole header must be in memory */
    struct lode_st *st = LODE_NEW(struct lode_st);
    if (!st)
        return lode_fail_nomem(err, "safetensors file");
    int rc = parse(st, "", (const char *)data + 8, n, file_size, err);
    if (rc == 0)
        rc = index_names(st, "", err);
    return fail_open(out, st, rc);
}

/* ---- files ---- */

static int open_file(struct lode_st *st, const char *path, bool map, struct lode_error *err) {
    unsigned char head[8];
    size_t n;
    if (st->n_files == st->cap_files) {
        const uint32_t cap = st->cap_files ? 2 * st->cap_files : 4;
        struct lode_in_file *more = lode_realloc(st->files, cap, sizeof *more);
        if (!more)
            return lode_fail_nomem(err, "list of files");
        st->files = more;
        st->cap_files = cap;
    }
    struct lode_in_file *f = &st->files[st->n_files];
    const int opened = lode_in_open(f, path, err);
    if (opened < 0) {
        lode_in_close(f);
        return opened;
    }
    st->n_files++;
    if (f->size < 8)
        return lode_fail(err, LODE_ERR_FORMAT, path, "a safetensors file has at least 8 bytes");
    LODE_TRY(lode_in_read(f, 0, head, sizeof head, err));
    LODE_TRY(header_size(head, f->size, path, &n, err));
    char *text = lode_alloc(n ? n : 1, 1);
    if (!text)
        return lode_fail_nomem(err, "safetensors header");
    int rc = lode_in_read(f, 8, text, n, err);
    if (rc == 0)
        rc = parse(st, path, text, n, f->size, err);
    lode_free(text);
    if (rc == 0 && map) {
        struct lode_error unmapped; /* no error: such files are read instead */
        rc = lode_in_map(f, &unmapped) == LODE_ERR_NOMEM ? lode_fail_nomem(err, path) : 0;
    }
    return rc;
}

/* An index may only name files beside it: no folders, no way out. */
static bool is_plain_file(struct lode_str name) {
    return name.len > 0 && name.len <= 255 && name.data[0] != '.' &&
           !memchr(name.data, '/', name.len) && !memchr(name.data, '\\', name.len) && is_name(name);
}

struct index {
    struct lode_st *st;
    const char *dir, *path;
    struct lode_scan scan;
    bool map;
    struct lode_map files; /* name of a file -> its shard */
    struct lode_map seen;  /* name of a tensor -> its shard */
    struct lode_arena arena;
    struct lode_error *err;
};

static int open_shard(struct index *x, struct lode_str name, uint32_t *shard) {
    *shard = lode_map_get(&x->files, name);
    if (*shard != LODE_MAP_NONE)
        return 0;
    if (!is_plain_file(name))
        return lode_fail(x->err, LODE_ERR_FORMAT, x->path,
                         "the file '%.*s' does not lie beside the index",
                         (int)(name.len > 100 ? 100 : name.len), name.data);
    if (x->st->n_files == LODE_ST_MAX_SHARDS)
        return lode_fail(x->err, LODE_ERR_LIMIT, x->path, "more than %d files", LODE_ST_MAX_SHARDS);
    const char *copy = lode_arena_strndup(&x->arena, name.data, name.len);
    const char *path = copy ? lode_arena_printf(&x->arena, "%s/%s", x->dir, copy) : NULL;
    *shard = x->st->n_files;
    if (!path || lode_map_put(&x->files, lode_str(copy), *shard, NULL) < 0)
        return lode_fail_nomem(x->err, "list of files");
    return open_file(x->st, path, x->map, x->err);
}

static int read_entry(struct index *x) {
    struct lode_str name, file;
    uint32_t shard;
    if (!lode_scan_key(&x->scan, &name))
        return 0;
    const char *copy = lode_arena_strndup(&x->arena, name.data, name.len);
    if (!copy)
        return lode_fail_nomem(x->err, "index");
    if (!lode_scan_str(&x->scan, &file))
        return 0;
    LODE_TRY(open_shard(x, file, &shard));
    const int rc = lode_map_put(&x->seen, lode_str(copy), shard, NULL);
    if (rc < 0)
        return lode_fail_nomem(x->err, "index");
    return rc ? 0
              : lode_fail(x->err, LODE_ERR_FORMAT, x->path, "tensor %.100s is there twice", copy);
}

static int read_index(struct index *x) {
    struct lode_scan *s = &x->scan;
    struct lode_str key;
    bool found = false;
    int rc = 0;
    lode_scan_open(s, '{');
    while (rc == 0 && lode_scan_next(s, '}')) {
        if (!lode_scan_key(s, &key))
            break;
        if (!lode_str_eqz(key, "weight_map")) {
            lode_scan_skip(s);
            continue;
        }
        if (found)
            return lode_fail(x->err, LODE_ERR_FORMAT, x->path, "weight_map comes twice");
        found = true;
        lode_scan_open(s, '{');
        while (rc == 0 && lode_scan_next(s, '}'))
            rc = read_entry(x);
    }
    LODE_TRY(rc);
    if (!lode_scan_end(s))
        return strcmp(s->why, "out of memory") == 0
                   ? lode_fail_nomem(x->err, "index")
                   : lode_fail(x->err, LODE_ERR_FORMAT, x->path, "%s (byte %zu)", s->why, s->at);
    if (!found || !x->st->n_files)
        return lode_fail(x->err, LODE_ERR_FORMAT, x->path, "weight_map is missing or empty");
    return 0;
}

/* What the index says of a tensor must be so. */
static int check_index(struct index *x) {
    uint32_t found = 0;
    for (uint32_t i = 0; i < x->st->n; i++) {
        const struct lode_st_tensor *t = &x->st->tensors[i];
        const uint32_t shard = lode_map_get(&x->seen, lode_str(t->name));
        if (shard != LODE_MAP_NONE && shard != t->shard)
            return lode_fail(x->err, LODE_ERR_FORMAT, x->path,
                             "tensor %.100s is in another file than it says", t->name);
        found += shard != LODE_MAP_NONE;
    }
    if (found < x->seen.len)
        return lode_fail(x->err, LODE_ERR_MISSING, x->path,
                         "%u of the %u tensors that it lists are in none of its files: an "
                         "incomplete download?",
                         x->seen.len - found, x->seen.len);
    return 0;
}

static int open_set(struct lode_st *st, const char *dir, const char *path, bool map,
                    struct lode_error *err) {
    struct lode_in_file f;
    struct index x = {.st = st, .dir = dir, .path = path, .map = map, .err = err};
    char *text = NULL;
    int rc = lode_in_open(&f, path, err);
    if (rc == 0 && f.size > LODE_ST_MAX_HEADER)
        rc = lode_fail(err, LODE_ERR_LIMIT, path, "an index has at most %d bytes",
                       LODE_ST_MAX_HEADER);
    if (rc == 0 && !(text = lode_alloc((size_t)f.size, 1)))
        rc = lode_fail_nomem(err, path);
    if (rc == 0)
        rc = lode_in_read(&f, 0, text, (size_t)f.size, err);
    if (rc == 0) {
        x.scan = (struct lode_scan){.text = text, .len = (size_t)f.size};
        rc = read_index(&x);
    }
    if (rc == 0)
        rc = index_names(st, path, err);
    if (rc == 0)
        rc = check_index(&x);
    lode_in_close(&f);
    lode_free(text);
    lode_buf_free(&x.scan.scratch);
    lode_map_free(&x.files);
    lode_map_free(&x.seen);
    lode_arena_free(&x.arena);
    return rc;
}

static bool exists(const char *path) {
    struct stat s;
    return stat(path, &s) == 0;
}

int lode_st_open(struct lode_st **out, const char *dir, bool map, struct lode_error *err) {
    *out = NULL;
    struct lode_arena paths = {0};
    struct lode_st *st = LODE_NEW(struct lode_st);
    const char *index = lode_arena_printf(&paths, "%s/model.safetensors.index.json", dir);
    const char *single = lode_arena_printf(&paths, "%s/model.safetensors", dir);
    const char *pickle = lode_arena_printf(&paths, "%s/pytorch_model.bin", dir);
    const char *pickles = lode_arena_printf(&paths, "%s/pytorch_model.bin.index.json", dir);
    int rc;
    if (!st || !index || !single || !pickle || !pickles)
        rc = lode_fail_nomem(err, "safetensors files");
    else if (exists(index))
        rc = open_set(st, dir, index, map, err);
    else if (!exists(single) && (exists(pickle) || exists(pickles)))
        rc = lode_fail(err, LODE_ERR_UNSUPPORTED, dir,
                       "the weights are PyTorch's pickles (pytorch_model.bin), which are programs to "
                       "run, not data to read: take the model's safetensors");
    else if (!exists(single))
        rc =
            lode_fail(err, LODE_ERR_MISSING, dir,
                      "there is neither model.safetensors nor model.safetensors.index.json in this "
                      "directory");
    else {
        rc = open_file(st, single, map, err);
        if (rc == 0)
            rc = index_names(st, single, err);
    }
    lode_arena_free(&paths);
    return fail_open(out, st, rc);
}

void lode_st_close(struct lode_st *st) {
    if (!st)
        return;
    for (uint32_t i = 0; i < st->n_files; i++)
        lode_in_close(&st->files[i]);
    lode_free(st->files);
    lode_free(st->tensors);
    lode_map_free(&st->names);
    lode_arena_free(&st->arena);
    lode_free(st);
}

/* ---- accessors ---- */

size_t lode_st_n_tensors(const struct lode_st *st) {
    return st->n;
}

const struct lode_st_tensor *lode_st_tensor(const struct lode_st *st, size_t i) {
    return i < st->n ? &st->tensors[i] : NULL;
}

const struct lode_st_tensor *lode_st_find(const struct lode_st *st, const char *name) {
    const uint32_t i = lode_map_get(&st->names, lode_str(name));
    return i == LODE_MAP_NONE ? NULL : &st->tensors[i];
}

const void *lode_st_data(const struct lode_st *st, const struct lode_st_tensor *t) {
    const unsigned char *data = t->shard < st->n_files ? st->files[t->shard].data : NULL;
    return data ? data + t->offset : NULL;
}

int lode_st_read(const struct lode_st *st, const struct lode_st_tensor *t, size_t offset, void *out,
                 size_t n, struct lode_error *err) {
    if (offset > t->size || n > t->size - offset)
        return lode_fail(err, LODE_ERR_ARG, t->name, "%zu bytes at %zu of a tensor of %zu bytes", n,
                         offset, t->size);
    if (t->shard >= st->n_files)
        return lode_fail(err, LODE_ERR_IO, t->name, "only the header of this file was parsed");
    return lode_in_read(&st->files[t->shard], t->offset + offset, out, n, err);
}

int lode_st_read_from(const struct lode_st_from *from, const struct lode_st_tensor *t, size_t offset,
                      void *out, size_t n, struct lode_error *err) {
    const struct lode_held *h = from->held;
    const struct lode_in_file *file = h ? lode_st_file(from->st, t->shard) : NULL;
    const uint64_t begin = t->offset + offset;
    for (uint32_t i = 0; file && offset <= t->size && n <= t->size - offset && i < h->n; i++) {
        const struct lode_stretch *s = &h->stretches[i];
        if (s->file != file || begin < s->offset || begin - s->offset > s->size ||
            n > s->size - (begin - s->offset))
            continue;
        memcpy(out, h->data[i] + (begin - s->offset), n);
        return 0;
    }
    return lode_st_read(from->st, t, offset, out, n, err);
}

size_t lode_st_n_shards(const struct lode_st *st) {
    return st->n_files;
}

const struct lode_in_file *lode_st_file(const struct lode_st *st, size_t shard) {
    return shard < st->n_files ? &st->files[shard] : NULL;
}

uint64_t lode_st_file_size(const struct lode_st *st) {
    uint64_t size = 0;
    for (uint32_t i = 0; i < st->n_files; i++)
        size += st->files[i].size;
    return size;
}

int lode_st_check(const struct lode_st *st, struct lode_error *err) {
    for (uint32_t i = 0; i < st->n_files; i++)
        LODE_TRY(lode_in_check_unwritten(&st->files[i], err));
    return 0;
}

void lode_st_forget(const struct lode_st *st) {
    for (uint32_t i = 0; i < st->n_files; i++)
        lode_in_forget(&st->files[i]);
}
