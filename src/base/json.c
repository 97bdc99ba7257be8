#include "base/json.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>

struct parser {
    struct lode_json_doc *doc;
    char *at, *end;
    const char *where;
    struct lode_error *err;
    uint32_t open[LODE_JSON_DEPTH]; /* the arrays and objects around `at` */
    uint32_t depth;
};

static int bad(const struct parser *p, const char *what) {
    size_t line = 1;
    for (const char *c = p->doc->text; c < p->at; c++)
        line += *c == '\n';
    return lode_fail(p->err, LODE_ERR_FORMAT, p->where, "line %zu: %s", line, what);
}

static void skip_blank(struct parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
        p->at++;
}

static bool eat(struct parser *p, char c) {
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

static int hex4(struct parser *p, uint32_t *v) {
    *v = 0;
    for (int i = 0; i < 4; i++, p->at++) {
        const char c = p->at < p->end ? *p->at : '\0';
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (digit < 0)
            return bad(p, "\\u needs four hexadecimal digits");
        *v = *v << 4 | (uint32_t)digit;
    }
    return 0;
}

/* An escape; at is behind the backslash.  What it stands for is never longer than it. */
static int escape(struct parser *p, char **out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char c = p->at < p->end ? *p->at++ : '\0';
    const char *simple = c ? strchr(from, c) : NULL;
    if (simple) {
        *(*out)++ = to[simple - from];
        return 0;
    }
    if (c != 'u')
        return bad(p, "an escape that JSON does not have");
    uint32_t cp, low;
    LODE_TRY(hex4(p, &cp));
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (!eat(p, '\\') || !eat(p, 'u'))
            return bad(p, "half of a surrogate pair");
        LODE_TRY(hex4(p, &low));
        if (low < 0xdc00 || low >= 0xe000)
            return bad(p, "half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    } else if (cp >= 0xdc00 && cp < 0xe000) {
        return bad(p, "half of a surrogate pair");
    }
    *out += lode_utf8_encode(cp, *out);
    return 0;
}

/* A string, decoded where it stands; at is behind the opening quote. */
static int string(struct parser *p, const char **text, uint32_t *len) {
    char *const start = p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (uint8_t)*p->at >= 0x20)
        p->at++;
    char *out = p->at;
    while (!eat(p, '"')) {
        if (p->at == p->end)
            return bad(p, "a string has no end");
        if (eat(p, '\\'))
            LODE_TRY(escape(p, &out));
        else if ((uint8_t)*p->at < 0x20)
            return bad(p, "a control character in a string");
        else
            *out++ = *p->at++;
    }
    *text = start;
    *len = (uint32_t)(out - start);
    return lode_utf8_valid(start, *len) ? 0 : bad(p, "a string is not UTF-8");
}

static bool digits(struct parser *p) {
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9')
        p->at++;
    return p->at > start;
}

static int number(struct parser *p, struct lode_json *v) {
    v->type = LODE_JSON_NUMBER;
    v->text = p->at;
    eat(p, '-');
    bool good = eat(p, '0') || digits(p);
    if (good && eat(p, '.'))
        good = digits(p);
    if (good && (eat(p, 'e') || eat(p, 'E'))) {
        if (!eat(p, '+'))
            eat(p, '-');
        good = digits(p);
    }
    v->n = (uint32_t)(p->at - v->text);
    return good ? 0 : bad(p, "a value was expected");
}

static int word(struct parser *p, const char *spelt, struct lode_json *v,
                enum lode_json_type type) {
    const size_t len = strlen(spelt);
    if ((size_t)(p->end - p->at) < len || memcmp(p->at, spelt, len) != 0)
        return bad(p, "a value was expected");
    p->at += len;
    v->type = (uint8_t)type;
    return 0;
}

/* A new node at the end; the array may move. */
static int add_node(struct parser *p, struct lode_json **out) {
    struct lode_json_doc *d = p->doc;
    if (d->n == d->cap) {
        if (d->cap >= LODE_JSON_MAX_NODES)
            return lode_fail(p->err, LODE_ERR_LIMIT, p->where, "more than %d values",
                             LODE_JSON_MAX_NODES);
        const uint32_t cap = d->cap ? d->cap * 2 : 64;
        struct lode_json *nodes = lode_realloc(d->nodes, cap, sizeof *nodes);
        if (!nodes)
            return lode_fail_nomem(p->err, p->where);
        d->nodes = nodes;
        d->cap = cap;
    }
    *out = &d->nodes[d->n++];
    **out = (struct lode_json){.skip = 1};
    return 0;
}

/* A value, without the members of an array or object: those are opened. */
static int value(struct parser *p, const char *key, uint32_t key_len) {
    struct lode_json *v = NULL;
    skip_blank(p);
    LODE_TRY(add_node(p, &v));
    v->key = key;
    v->key_len = key_len;
    const char c = p->at < p->end ? *p->at : '\0';
    switch (c) {
    case '{':
    case '[':
        if (p->depth == LODE_JSON_DEPTH)
            return bad(p, "nested too deeply");
        p->at++;
        v->type = c == '{' ? LODE_JSON_OBJECT : LODE_JSON_ARRAY;
        p->open[p->depth++] = p->doc->n - 1;
        return 0;
    case '"':
        p->at++;
        v->type = LODE_JSON_STRING;
        return string(p, &v->text, &v->n);
    case 't':
        return word(p, "true", v, LODE_JSON_TRUE);
    case 'f':
        return word(p, "false", v, LODE_JSON_FALSE);
    case 'n':
        return word(p, "null", v, LODE_JSON_NULL);
    default:
        return number(p, v);
    }
}

/* The next member of the innermost open value, or its end. */
static int member(struct parser *p) {
    struct lode_json *parent = &p->doc->nodes[p->open[p->depth - 1]];
    const bool object = parent->type == LODE_JSON_OBJECT;
    const char *key = NULL;
    uint32_t key_len = 0;
    skip_blank(p);
    if (eat(p, object ? '}' : ']')) {
        parent->skip = p->doc->n - p->open[--p->depth];
        return 0;
    }
    if (parent->n > 0 && !eat(p, ','))
        return bad(p, "a comma or the end of an array or object was expected");
    parent->n++;
    if (object) {
        skip_blank(p);
        if (!eat(p, '"'))
            return bad(p, "a key was expected");
        LODE_TRY(string(p, &key, &key_len));
        skip_blank(p);
        if (!eat(p, ':'))
            return bad(p, "a colon was expected");
    }
    return value(p, key, key_len);
}

static int parse(struct parser *p) {
    LODE_TRY(value(p, NULL, 0));
    while (p->depth > 0)
        LODE_TRY(member(p));
    skip_blank(p);
    return p->at == p->end ? 0 : bad(p, "something behind the end");
}

int lode_json_parse(struct lode_json_doc *doc, struct lode_str text, const char *where,
                    struct lode_error *err) {
    *doc = (struct lode_json_doc){0};
    if (text.len > UINT32_MAX / 2)
        return lode_fail(err, LODE_ERR_LIMIT, where, "%zu bytes of JSON are too many", text.len);
    doc->text = lode_strndup(text.len ? text.data : "", text.len);
    if (!doc->text)
        return lode_fail_nomem(err, where);
    struct parser p = {
        .doc = doc, .at = doc->text, .end = doc->text + text.len, .where = where, .err = err};
    const int rc = parse(&p);
    if (rc < 0)
        lode_json_free(doc);
    return rc;
}

void lode_json_free(struct lode_json_doc *doc) {
    lode_free(doc->text);
    lode_free(doc->nodes);
    *doc = (struct lode_json_doc){0};
}

const struct lode_json *lode_json_getn(const struct lode_json *object, struct lode_str key) {
    const struct lode_json *found = NULL;
    if (!lode_json_is(object, LODE_JSON_OBJECT))
        return NULL;
    for (const struct lode_json *c = lode_json_first(object); c; c = lode_json_next(object, c))
        if (lode_str_eq((struct lode_str){c->key, c->key_len}, key))
            found = c;
    return found;
}

const struct lode_json *lode_json_get(const struct lode_json *object, const char *key) {
    return lode_json_getn(object, lode_str(key));
}

const struct lode_json *lode_json_at(const struct lode_json *array, uint32_t i) {
    if (!lode_json_is(array, LODE_JSON_ARRAY) || i >= array->n)
        return NULL;
    const struct lode_json *c = array + 1;
    while (i-- > 0)
        c += c->skip;
    return c;
}

struct lode_str lode_json_str(const struct lode_json *v) {
    return lode_json_is(v, LODE_JSON_STRING) ? (struct lode_str){v->text, v->n}
                                             : (struct lode_str){0};
}

bool lode_json_bool(const struct lode_json *object, const char *key, bool otherwise) {
    const struct lode_json *v = lode_json_get(object, key);
    return lode_json_is(v, LODE_JSON_TRUE) || (!lode_json_is(v, LODE_JSON_FALSE) && otherwise);
}

bool lode_json_int(const struct lode_json *v, int64_t low, int64_t high, int64_t *out) {
    if (!lode_json_is(v, LODE_JSON_NUMBER) || v->n > 18)
        return false;
    int64_t n = 0;
    const bool negative = v->text[0] == '-';
    for (uint32_t i = negative; i < v->n; i++) {
        if (v->text[i] < '0' || v->text[i] > '9')
            return false;
        n = n * 10 + (v->text[i] - '0');
    }
    *out = negative ? -n : n;
    return *out >= low && *out <= high;
}

bool lode_json_real(const struct lode_json *v, double *out) {
    char digits_of[64];
    if (!lode_json_is(v, LODE_JSON_NUMBER) || v->n >= sizeof digits_of)
        return false;
    memcpy(digits_of, v->text, v->n);
    digits_of[v->n] = '\0';
    char *point = strchr(digits_of, '.');
    if (point) /* strtod wants the program's own */
        *point = localeconv()->decimal_point[0];
    *out = strtod(digits_of, NULL);
    return isfinite(*out);
}
