/* From paths to headers: loading one, and finding the other shards of a set. */
#include "format/gguf_parts.h"

#include "base/alloc.h"
#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- how many bytes is the header? ----
 *
 * Its length is written nowhere, so it is walked while it is read.  The walk checks no more than it
 * needs to stay in bounds; gguf_parse.c does the judging afterwards, over the same bytes. */

struct loader {
    struct lode_gguf_part *part;
    size_t pos, len; /* walked, loaded */
    int rc;          /* negative: reading failed, or no memory */
    struct lode_error *err;
};

enum { LOAD_STEP = 64 * 1024 };

/* Loads n more bytes from pos; false: the file or our patience ends before. */
static bool need(struct loader *l, uint64_t n) {
    if (l->rc < 0)
        return false;
    if (n <= l->len - l->pos)
        return true;
    const uint64_t size = l->part->file.size;
    const size_t most = size < LODE_GGUF_MAX_HEADER ? (size_t)size : LODE_GGUF_MAX_HEADER;
    const bool enough = n <= most - l->pos;
    size_t want;
    if (enough) {
        want = l->pos + (size_t)n;
        const size_t ahead = l->len + (l->len / 2 > LOAD_STEP ? l->len / 2 : LOAD_STEP);
        want = want > ahead ? want : ahead < most ? ahead : most;
    } else {
        /* The few bytes before an early end, so that the parser sees it where it is. */
        want = most - l->len < LOAD_STEP ? most : l->len;
    }
    if (want > l->len) {
        unsigned char *header = lode_realloc(l->part->header, want, 1);
        if (!header) {
            l->rc = lode_fail_nomem(l->err, "GGUF header");
            return false;
        }
        l->part->header = header;
        l->rc = lode_in_read(&l->part->file, l->len, header + l->len, want - l->len, l->err);
        l->len = want;
    }
    return enough && l->rc == 0;
}

static bool skip(struct loader *l, uint64_t n) {
    if (!need(l, n))
        return false;
    l->pos += (size_t)n;
    return true;
}

static bool next(struct loader *l, void *out, size_t n) {
    if (!need(l, n))
        return false;
    memcpy(out, l->part->header + l->pos, n);
    l->pos += n;
    return true;
}

static bool skip_str(struct loader *l) {
    uint64_t n;
    return next(l, &n, sizeof n) && skip(l, n);
}

static bool skip_value(struct loader *l, uint32_t type, int depth) {
    if (type == LODE_GGUF_STR)
        return skip_str(l);
    if (type != LODE_GGUF_ARRAY) {
        const size_t size = lode_gguf_type_size(type);
        return size > 0 && skip(l, size);
    }
    uint64_t n, bytes;
    if (depth > LODE_GGUF_MAX_DEPTH || !next(l, &type, sizeof type) || !next(l, &n, sizeof n))
        return false;
    const size_t size = lode_gguf_type_size(type);
    if (size > 0)
        return !__builtin_mul_overflow(n, (uint64_t)size, &bytes) && skip(l, bytes);
    /* each turn takes at least eight bytes of the file, so this ends with it */
    for (uint64_t i = 0; i < n; i++)
        if (!skip_value(l, type, depth + 1))
            return false;
    return true;
}

static bool walk(struct loader *l) {
    uint32_t magic, version, type, n_dims;
    uint64_t n_tensors, n_kv;
    if (!next(l, &magic, 4) || memcmp(&magic, "GGUF", 4) != 0 || !next(l, &version, 4) ||
        version < 2 || version > 3 || !next(l, &n_tensors, 8) || !next(l, &n_kv, 8))
        return false;
    for (uint64_t i = 0; i < n_kv; i++)
        if (!skip_str(l) || !next(l, &type, 4) || !skip_value(l, type, 1))
            return false;
    for (uint64_t i = 0; i < n_tensors; i++)
        if (!skip_str(l) || !next(l, &n_dims, 4) || n_dims > LODE_GGUF_MAX_DIMS ||
            !skip(l, n_dims * 8 + 4 + 8))
            return false;
    return true;
}

int lode_gguf_part_load(struct lode_gguf_part *p, size_t *len, struct lode_error *err) {
    struct loader l = {.part = p, .err = err};
    const bool whole = walk(&l);
    if (l.rc < 0)
        return l.rc;
    *len = whole ? l.pos : l.len;
    if (*len < l.len) { /* give back what was read ahead; failing to is no harm */
        unsigned char *header = lode_realloc(p->header, *len, 1);
        p->header = header ? header : p->header;
    }
    return 0;
}

/* ---- sets of shards ---- */

/* "DIR/NAME-00002-of-00005.gguf": the length of "DIR/NAME", and 2 and 5; false: no such name. */
static bool split_name(const char *path, size_t *prefix, unsigned *no, unsigned *count) {
    static const char shape[] = "-00000-of-00000.gguf";
    const size_t n = strlen(path), tail = sizeof shape - 1;
    if (n < tail)
        return false;
    const char *s = path + n - tail;
    for (size_t i = 0; i < tail; i++)
        if (shape[i] == '0' ? s[i] < '0' || s[i] > '9' : s[i] != shape[i])
            return false;
    *prefix = n - tail;
    return sscanf(s, "-%5u-of-%5u", no, count) == 2;
}

/* What a shard says of itself; count 0: it is no shard. */
struct split {
    uint64_t no, count, tensors;
    bool counted; /* tensors is there */
};

static int read_split(const struct lode_gguf_part *p, struct split *s, struct lode_error *err) {
    static const char *const keys[] = {"split.count", "split.no", "split.tensors.count"};
    uint64_t *const out[] = {&s->count, &s->no, &s->tensors};
    *s = (struct split){0};
    for (int i = 0; i < 3; i++) {
        const struct lode_gguf_value *v = lode_gguf_part_find(p, keys[i]);
        if (v && !lode_gguf_value_u64(v, out[i]))
            return lode_fail(err, LODE_ERR_FORMAT, p->file.path, "%s is no count (type %s)",
                             keys[i], lode_gguf_type_name(v->type));
        if (!v && i == 1 && s->count > 1)
            return lode_fail(err, LODE_ERR_FORMAT, p->file.path,
                             "split.count is %" PRIu64 " but split.no is missing", s->count);
        s->counted = v != NULL;
    }
    if (s->count > LODE_GGUF_MAX_SHARDS)
        return lode_fail(err, LODE_ERR_LIMIT, p->file.path,
                         "split.count is %" PRIu64 ", at most %d shards are accepted", s->count,
                         LODE_GGUF_MAX_SHARDS);
    if (s->count > 1 && s->no >= s->count)
        return lode_fail(err, LODE_ERR_FORMAT, p->file.path,
                         "split.no is %" PRIu64 ", but split.count only %" PRIu64, s->no, s->count);
    return 0;
}

static int load_part(struct lode_gguf_part *p, const char *path, struct lode_error *err) {
    size_t len;
    LODE_TRY(lode_in_open(&p->file, path, err));
    LODE_TRY(lode_gguf_part_load(p, &len, err));
    return lode_gguf_part_parse(p, p->header, len, p->file.size, err);
}

static struct lode_gguf_part *new_parts(struct lode_gguf *g, size_t n) {
    g->parts = LODE_NEW_ARRAY(struct lode_gguf_part, n);
    g->n_parts = g->parts ? n : 0;
    for (size_t i = 0; i < g->n_parts; i++)
        g->parts[i].file.fd = g->parts[i].file.slot = -1;
    return g->parts;
}

/* Puts the opened shard `first` in its place and opens the others beside it. */
static int open_set(struct lode_gguf *g, struct lode_gguf_part *first, const struct split *s,
                    struct lode_error *err) {
    size_t prefix;
    unsigned no, count;
    const char *path = first->file.path;
    if (!split_name(path, &prefix, &no, &count) || no != s->no + 1 || count != s->count)
        return lode_fail(err, LODE_ERR_FORMAT, path,
                         "it is shard %" PRIu64 " of %" PRIu64 ", so its name must end in "
                         "-%05" PRIu64 "-of-%05" PRIu64 ".gguf for the others to be found",
                         s->no + 1, s->count, s->no + 1, s->count);
    if (!new_parts(g, s->count))
        return lode_fail_nomem(err, "GGUF shards");
    struct lode_gguf_part *given = &g->parts[s->no];
    *given = *first;
    *first = (struct lode_gguf_part){.file = {.fd = -1, .slot = -1}};

    uint64_t n_tensors = 0;
    for (unsigned i = 0; i < s->count; i++) {
        struct lode_gguf_part *p = &g->parts[i];
        if (p != given) {
            char *name = lode_arena_printf(&p->arena, "%.*s-%05u-of-%05u.gguf", (int)prefix,
                                           given->file.path, i + 1, count);
            if (!name)
                return lode_fail_nomem(err, "a path");
            const int rc = load_part(p, name, err);
            if (rc == LODE_ERR_MISSING)
                return lode_fail(err, rc, name,
                                 "shard %u of %u is missing: all shards must lie in "
                                 "the same folder",
                                 i + 1, count);
            LODE_TRY(rc);
            struct split other;
            LODE_TRY(read_split(p, &other, err));
            if (other.no != i || other.count != s->count)
                return lode_fail(err, LODE_ERR_FORMAT, name,
                                 "it says it is shard %" PRIu64 " of %" PRIu64
                                 ", shard %u of %u expected: the files are of different sets",
                                 other.no + 1, other.count, i + 1, count);
        }
        n_tensors += p->n_tensors;
    }
    struct split main;
    LODE_TRY(read_split(&g->parts[0], &main, err));
    if (main.counted && main.tensors != n_tensors)
        return lode_fail(err, LODE_ERR_FORMAT, g->parts[0].file.path,
                         "split.tensors.count is %" PRIu64 ", but the %u shards hold %" PRIu64
                         " tensors",
                         main.tensors, count, n_tensors);
    return 0;
}

/* ---- the object ---- */

/* One table of tensors and one map of names over all parts. */
static int gather(struct lode_gguf *g, struct lode_error *err) {
    uint64_t n = 0;
    for (size_t i = 0; i < g->n_parts; i++)
        n += g->parts[i].n_tensors;
    if (n > LODE_GGUF_MAX_TENSORS)
        return lode_fail(err, LODE_ERR_LIMIT, lode_gguf_path(g),
                         "the shards hold %" PRIu64 " tensors, at most %d are accepted", n,
                         LODE_GGUF_MAX_TENSORS);
    g->tensors = g->parts[0].tensors;
    if (g->n_parts > 1) {
        g->all_tensors = g->tensors = LODE_NEW_ARRAY(struct lode_gguf_tensor, n);
        if (!g->all_tensors)
            return lode_fail_nomem(err, "GGUF tensors");
    }
    if (!lode_map_reserve(&g->names, (uint32_t)n))
        return lode_fail_nomem(err, "GGUF tensors");
    for (uint32_t shard = 0; shard < g->n_parts; shard++) {
        for (uint32_t i = 0; i < g->parts[shard].n_tensors; i++) {
            struct lode_gguf_tensor *t = &g->tensors[g->n_tensors];
            if (g->all_tensors)
                *t = g->parts[shard].tensors[i];
            t->shard = shard;
            const int put = lode_map_put(&g->names, lode_str(t->name), g->n_tensors++, NULL);
            if (put < 0)
                return lode_fail_nomem(err, "GGUF tensors");
            if (put == 0)
                return lode_fail(err, LODE_ERR_FORMAT, lode_gguf_part_where(&g->parts[shard]),
                                 "tensor %s occurs twice", t->name);
        }
    }
    const struct lode_gguf_value *arch = lode_gguf_find(g, "general.architecture");
    if (arch && arch->type != LODE_GGUF_STR)
        return lode_fail(err, LODE_ERR_FORMAT, lode_gguf_path(g),
                         "general.architecture has type %s, str expected",
                         lode_gguf_type_name(arch->type));
    g->arch = arch ? lode_strndup(arch->s.data, arch->s.len) : lode_strndup("", 0);
    return g->arch ? 0 : lode_fail_nomem(err, "GGUF architecture");
}

static int open_into(struct lode_gguf *g, const char *path, struct lode_error *err) {
    struct lode_gguf_part first = {.file = {.fd = -1, .slot = -1}};
    struct split split;
    int rc = load_part(&first, path, err);
    if (rc == 0)
        rc = read_split(&first, &split, err);
    if (rc == 0 && split.count > 1) {
        rc = open_set(g, &first, &split, err);
    } else if (rc == 0 && new_parts(g, 1)) {
        g->parts[0] = first;
        first = (struct lode_gguf_part){.file = {.fd = -1, .slot = -1}};
    } else if (rc == 0) {
        rc = lode_fail_nomem(err, "GGUF file");
    }
    lode_gguf_part_free(&first);
    return rc < 0 ? rc : gather(g, err);
}

int lode_gguf_open_unmapped(struct lode_gguf **out, const char *path, struct lode_error *err) {
    *out = NULL;
    struct lode_gguf *g = LODE_NEW(struct lode_gguf);
    if (!g)
        return lode_fail_nomem(err, "GGUF file");
    const int rc = open_into(g, path, err);
    if (rc < 0) {
        lode_gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

int lode_gguf_open(struct lode_gguf **out, const char *path, struct lode_error *err) {
    LODE_TRY(lode_gguf_open_unmapped(out, path, err));
    /* all or none: a caller looks at one tensor to know */
    for (size_t i = 0; i < (*out)->n_parts; i++)
        if (lode_in_map(&(*out)->parts[i].file, NULL) < 0) {
            while (i-- > 0)
                lode_in_unmap(&(*out)->parts[i].file);
            break;
        }
    return 0;
}

int lode_gguf_parse(struct lode_gguf **out, const void *data, size_t len, struct lode_error *err) {
    *out = NULL;
    struct lode_gguf *g = LODE_NEW(struct lode_gguf);
    int rc = g && new_parts(g, 1) ? 0 : lode_fail_nomem(err, "GGUF file");
    if (rc == 0)
        rc = lode_gguf_part_parse(&g->parts[0], data, len, UINT64_MAX, err);
    if (rc == 0)
        rc = gather(g, err);
    if (rc < 0) {
        lode_gguf_close(g);
        return rc;
    }
    *out = g;
    return 0;
}

void lode_gguf_close(struct lode_gguf *g) {
    if (!g)
        return;
    for (size_t i = 0; i < g->n_parts; i++)
        lode_gguf_part_free(&g->parts[i]);
    lode_free(g->parts);
    lode_free(g->all_tensors);
    lode_map_free(&g->names);
    lode_free(g->arch);
    lode_free(g);
}
