/* npy.c - see npy.h. */
#include "npy.h"

#include "out.h"

#include <stdbool.h>
#include <string.h>

/* A cursor over the header's text. */
struct cursor {
    const char *at, *end;
};

static void skip_space(struct cursor *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t'))
        c->at++;
}

static bool take(struct cursor *c, char what) {
    skip_space(c);
    if (c->at == c->end || *c->at != what)
        return false;
    c->at++;
    return true;
}

/* 'text' or "text" */
static bool take_string(struct cursor *c, const char **s, size_t *n) {
    skip_space(c);
    if (c->at == c->end || (*c->at != '\'' && *c->at != '"'))
        return false;
    const char quote = *c->at++;
    *s = c->at;
    while (c->at < c->end && *c->at != quote)
        c->at++;
    *n = (size_t)(c->at - *s);
    return c->at < c->end && c->at++;
}

static bool take_word(struct cursor *c, const char *word) {
    skip_space(c);
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n))
        return false;
    c->at += n;
    return true;
}

/* (3, 4), (3,), () */
static bool take_shape(struct cursor *c, struct npy *out) {
    if (!take(c, '('))
        return false;
    for (out->n_dims = 0; !take(c, ')'); out->n_dims++) {
        uint64_t v = 0;
        const char *start = c->at;
        if (out->n_dims == NPY_MAX_DIMS)
            return false;
        for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
            if (__builtin_mul_overflow(v, 10u, &v) ||
                __builtin_add_overflow(v, (uint64_t)(*c->at - '0'), &v))
                return false;
        if (c->at == start)
            return false;
        out->dims[out->n_dims] = v;
        if (!take(c, ',')) {
            out->n_dims++;
            return take(c, ')');
        }
    }
    return true;
}

/* "<f4", "|u1" */
static bool parse_type(const char *s, size_t n, struct npy *out) {
    if (n != 3 || !strchr("<|=", s[0]) || !strchr("iufb", s[1]) || !strchr("1248", s[2]))
        return false;
    out->kind = s[1];
    out->item = (uint32_t)(s[2] - '0');
    return (s[0] != '|' || out->item == 1) && (out->kind != 'f' || out->item > 1) &&
           (out->kind != 'b' || out->item == 1);
}

int npy_parse(struct npy *out, const void *bytes, size_t size, const char *where,
              struct lode_error *err) {
    const unsigned char *b = bytes;
    memset(out, 0, sizeof *out);
    if (size < 10 || memcmp(b, "\x93NUMPY", 6))
        return tool_fail(err, LODE_ERR_FORMAT, where, "is not an .npy file");
    if (b[6] < 1 || b[6] > 3)
        return tool_fail(err, LODE_ERR_UNSUPPORTED, where,
                         ".npy version %u.%u; 1, 2 and 3 are read", b[6], b[7]);
    const size_t lead = b[6] == 1 ? 10 : 12;
    size_t length = (size_t)b[8] | (size_t)b[9] << 8;
    if (size < lead)
        return tool_fail(err, LODE_ERR_FORMAT, where, "the .npy header is cut short");
    if (lead == 12)
        length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    if (length > size - lead)
        return tool_fail(err, LODE_ERR_FORMAT, where, "the .npy header is cut short");

    struct cursor c = {(const char *)b + lead, (const char *)b + lead + length};
    bool has_type = false, has_order = false, has_shape = false, fortran = false;
    if (!take(&c, '{'))
        return tool_fail(err, LODE_ERR_FORMAT, where, "the .npy header is not a dictionary");
    while (!take(&c, '}')) {
        const char *key, *type;
        size_t n, n_type;
        bool ok = take_string(&c, &key, &n) && take(&c, ':');
        if (ok && n == 5 && !memcmp(key, "descr", 5)) {
            ok = has_type = take_string(&c, &type, &n_type);
            if (ok && !parse_type(type, n_type, out))
                return tool_fail(err, LODE_ERR_UNSUPPORTED, where,
                                 "numbers of type '%.*s'; little-endian i, u and f of 1 to 8 bytes "
                                 "are read",
                                 (int)(n_type < 40 ? n_type : 40), type);
        } else if (ok && n == 13 && !memcmp(key, "fortran_order", 13)) {
            fortran = take_word(&c, "True");
            ok = has_order = fortran || take_word(&c, "False");
        } else if (ok && n == 5 && !memcmp(key, "shape", 5)) {
            ok = has_shape = take_shape(&c, out);
        } else {
            ok = false;
        }
        if (!ok || (!take(&c, ',') && (skip_space(&c), c.at == c.end || *c.at != '}')))
            return tool_fail(err, LODE_ERR_FORMAT, where,
                             "the .npy header is not {descr, fortran_order, shape}");
    }
    if (!has_type || !has_order || !has_shape)
        return tool_fail(err, LODE_ERR_FORMAT, where,
                         "the .npy header lacks descr, fortran_order or shape");
    if (fortran && out->n_dims > 1)
        return tool_fail(err, LODE_ERR_UNSUPPORTED, where, "the array is in Fortran order");

    uint64_t need;
    out->count = 1;
    for (uint32_t i = 0; i < out->n_dims; i++)
        if (__builtin_mul_overflow(out->count, out->dims[i], &out->count))
            return tool_fail(err, LODE_ERR_FORMAT, where, "the array's size overflows");
    if (__builtin_mul_overflow(out->count, out->item, &need) || need > size - lead - length)
        return tool_fail(err, LODE_ERR_FORMAT, where,
                         "the array has %llu numbers of %u bytes, the file ends after %zu bytes of "
                         "them",
                         (unsigned long long)out->count, out->item, size - lead - length);
    out->data = b + lead + length;
    return 0;
}

int64_t npy_int(const struct npy *a, uint64_t i) {
    const unsigned char *p = a->data + i * a->item;
    uint64_t v = 0;
    for (uint32_t k = 0; k < a->item; k++)
        v |= (uint64_t)p[k] << (8 * k);
    if (a->kind == 'i' && a->item < 8 && v >> (8 * a->item - 1))
        v |= UINT64_MAX << (8 * a->item);
    if (a->kind != 'i' && v > INT64_MAX)
        return INT64_MAX;
    return (int64_t)v;
}

int npy_write_header(FILE *f, uint32_t n_dims, const uint64_t *dims) {
    char text[512];
    int n = snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (");
    for (uint32_t i = 0; i < n_dims; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%llu%s", (unsigned long long)dims[i],
                      i + 1 < n_dims ? ", "
                      : n_dims == 1  ? ","
                                     : "");
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    /* the numbers start at a multiple of 64 */
    const int total = (10 + n + 1 + 63) / 64 * 64;
    const int length = total - 10;
    const unsigned char lead[10] = {0x93,
                                    'N',
                                    'U',
                                    'M',
                                    'P',
                                    'Y',
                                    1,
                                    0,
                                    (unsigned char)(length & 255),
                                    (unsigned char)(length >> 8)};
    return fwrite(lead, 1, 10, f) == 10 && fprintf(f, "%-*s\n", length - 1, text) == length ? 0
                                                                                            : -1;
}
