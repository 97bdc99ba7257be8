/* input.c - see input.h. */
#include "input.h"

#include "npy.h"
#include "out.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

uint64_t input_size(const char *path) {
    struct stat st;
    return strcmp(path, "-") && stat(path, &st) == 0 && S_ISREG(st.st_mode) ? 2 * (uint64_t)st.st_size : 0;
}

int input_read(const char *path, size_t most, char **data, size_t *size, struct lode_error *err) {
    const bool standard = !strcmp(path, "-");
    const char *where = standard ? "standard input" : path;
    FILE *f = standard ? stdin : fopen(path, "rb");
    struct stat st;
    char *text = NULL;
    size_t n = 0, cap = 0;
    *data = NULL;
    *size = 0;
    if (!most)
        most = (size_t)1 << 30;
    if (!f)
        return tool_fail(err, LODE_ERR_IO, where, "cannot be opened: %s", strerror(errno));
    int rc = 0;
    if (!fstat(fileno(f), &st) && S_ISDIR(st.st_mode))
        rc = tool_fail(err, LODE_ERR_IO, where, "is a directory, not a file");
    while (rc == 0) {
        if (n + 1 >= cap) {
            cap = cap ? cap * 2 : 1 << 16;
            char *more = realloc(text, cap);
            if (!more) {
                rc = tool_fail(err, LODE_ERR_NOMEM, where, "no memory for %zu bytes", cap);
                break;
            }
            text = more;
        }
        const size_t got = fread(text + n, 1, cap - 1 - n, f);
        n += got;
        if (n > most)
            rc = tool_fail(err, LODE_ERR_LIMIT, where, "is longer than %zu bytes", most);
        else if (got == 0 && ferror(f))
            rc = tool_fail(err, LODE_ERR_IO, where, "cannot be read: %s", strerror(errno));
        else if (got == 0)
            break;
    }
    if (!standard)
        fclose(f);
    if (rc < 0) {
        free(text);
        return rc;
    }
    text[n] = 0;
    *data = text;
    *size = n;
    return 0;
}

static int append(struct ids *ids, size_t *cap, int32_t id) {
    if (ids->n == *cap) {
        const size_t more = *cap ? *cap * 2 : 256;
        int32_t *v = realloc(ids->v, more * sizeof *v);
        if (!v)
            return LODE_ERR_NOMEM;
        ids->v = v;
        *cap = more;
    }
    ids->v[ids->n++] = id;
    return 0;
}

static int parse_text(struct ids *out, const char *text, const char *where,
                      struct lode_error *err) {
    size_t cap = 0;
    for (const char *at = text;;) {
        at += strspn(at, " \t\r\n,[]");
        if (!*at)
            break;
        char *end;
        errno = 0;
        const long long v = strtoll(at, &end, 10);
        if (end == at || errno || v < 0 || v > INT32_MAX || (*end && !strchr(" \t\r\n,]", *end)))
            return tool_fail(err, LODE_ERR_FORMAT, where,
                             "'%.*s' is not a token id (a whole number from 0 to %d)",
                             (int)strcspn(at, " \t\r\n,]") % 40, at, INT32_MAX);
        if (append(out, &cap, (int32_t)v) < 0)
            return tool_fail(err, LODE_ERR_NOMEM, where, "no memory for the ids");
        at = end;
    }
    return 0;
}

static int parse_npy(struct ids *out, const char *data, size_t size, const char *where,
                     struct lode_error *err) {
    struct npy a;
    int rc = npy_parse(&a, data, size, where, err);
    if (rc < 0)
        return rc;
    if (a.kind == 'f' || a.kind == 'b')
        return tool_fail(err, LODE_ERR_FORMAT, where, "holds %s, token ids are integers",
                         a.kind == 'f' ? "floats" : "booleans");
    out->v = malloc(a.count * sizeof *out->v + 1); /* count * item bytes were there */
    if (!out->v)
        return tool_fail(err, LODE_ERR_NOMEM, where, "no memory for %llu ids",
                         (unsigned long long)a.count);
    for (out->n = 0; out->n < a.count; out->n++) {
        const int64_t v = npy_int(&a, out->n);
        if (v < 0 || v > INT32_MAX)
            return tool_fail(err, LODE_ERR_FORMAT, where, "number %zu is %lld, not a token id",
                             out->n, (long long)v);
        out->v[out->n] = (int32_t)v;
    }
    return 0;
}

int ids_parse(struct ids *out, const char *spec, struct lode_error *err) {
    int rc;
    *out = (struct ids){0};
    if (*spec == '@') {
        char *data;
        size_t size;
        rc = input_read(spec + 1, 0, &data, &size, err);
        if (rc < 0)
            return rc;
        rc = size && data[0] == '\x93' ? parse_npy(out, data, size, spec + 1, err)
                                       : parse_text(out, data, spec + 1, err);
        free(data);
    } else {
        rc = parse_text(out, spec, "--ids", err);
    }
    if (rc == 0 && out->n == 0)
        rc = tool_fail(err, LODE_ERR_FORMAT, *spec == '@' ? spec + 1 : "--ids", "no ids in it");
    if (rc < 0)
        ids_free(out);
    return rc;
}

int ids_tokenize(struct ids *out, const struct lode_tokenizer *t, const char *text, size_t len,
                 int flags, struct lode_error *err) {
    /* most texts have fewer tokens than a third of their bytes; where one has more, once again */
    size_t cap = len / 3 + 64;
    *out = (struct ids){0};
    for (;;) {
        int32_t *v = realloc(out->v, cap * sizeof *v);
        if (!v) {
            ids_free(out);
            return tool_fail(err, LODE_ERR_NOMEM, "text", "no memory for %zu ids", cap);
        }
        out->v = v;
        const int64_t n = lode_tokenize(t, text, len, flags, v, cap, err);
        if (n < 0) {
            ids_free(out);
            return (int)n;
        }
        out->n = (size_t)n;
        if (out->n <= cap)
            return 0;
        cap = out->n;
    }
}

void ids_free(struct ids *ids) {
    free(ids->v);
    *ids = (struct ids){0};
}
