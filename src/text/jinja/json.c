/* json.c - JSON text to values, and the filter tojson.
 *
 * Not jansson: values go straight into the rendering's own memory and count against its limits,
 * and integers beyond 64 bits keep their digits. */
#include "text/jinja/jinja.h"

#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

struct reader {
    struct jinja_run *r;
    const char *s;
    size_t n, at;
};

static bool read_value(struct reader *x, unsigned depth, struct jv *out);

static bool bad(struct reader *x, const char *what) {
    return jinja_fail(x->r, LODE_ERR_ARG, "the template's variables are not JSON: %s at byte %zu",
                      what, x->at);
}

static void skip_space(struct reader *x) {
    while (x->at < x->n && (x->s[x->at] == ' ' || x->s[x->at] == '\t' || x->s[x->at] == '\n' ||
                            x->s[x->at] == '\r'))
        x->at++;
}

static bool skip_char(struct reader *x, char c) {
    skip_space(x);
    if (x->at >= x->n || x->s[x->at] != c)
        return false;
    x->at++;
    return true;
}

static int32_t hex4(struct reader *x) {
    int32_t v = 0;
    if (x->n - x->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const char c = x->s[x->at++], low = (char)(c | 32);
        if (c >= '0' && c <= '9')
            v = v << 4 | (c - '0');
        else if (low >= 'a' && low <= 'f')
            v = v << 4 | (low - 'a' + 10);
        else
            return -1;
    }
    return v;
}

static bool read_escape(struct reader *x, struct lode_buf *b) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (x->at >= x->n)
        return bad(x, "a string that does not end");
    const char c = x->s[x->at++];
    const char *known = c ? strchr(from, c) : NULL;
    if (known)
        return lode_buf_addc(b, to[known - from]), true;
    int32_t cp = c == 'u' ? hex4(x) : -1;
    if (cp < 0)
        return bad(x, "an unknown escape");
    if (cp >= 0xd800 && cp < 0xdc00 && x->n - x->at >= 6 && x->s[x->at] == '\\' &&
        x->s[x->at + 1] == 'u') {
        const size_t back = x->at;
        x->at += 2;
        const int32_t low = hex4(x);
        if (low >= 0xdc00 && low < 0xe000)
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        else
            x->at = back;
    }
    if (cp >= 0xd800 && cp < 0xe000)
        cp = 0xfffd; /* half of a pair is no character */
    char utf8[4];
    return lode_buf_add(b, utf8, lode_utf8_encode((uint32_t)cp, utf8)), true;
}

static bool read_string(struct reader *x, struct jv *out) {
    const size_t start = ++x->at;
    while (x->at < x->n && x->s[x->at] != '"' && x->s[x->at] != '\\' &&
           (unsigned char)x->s[x->at] >= ' ')
        x->at++;
    if (x->at < x->n && x->s[x->at] == '"') /* the usual one, without escapes */
        return jinja_str(x->r, x->s + start, x->at++ - start, out);
    struct lode_buf b = {0};
    bool ok = true;
    lode_buf_add(&b, x->s + start, x->at - start);
    while (ok && x->at < x->n && x->s[x->at] != '"') {
        const char c = x->s[x->at++];
        if ((unsigned char)c < ' ')
            ok = bad(x, "a control character in a string");
        else if (c == '\\')
            ok = read_escape(x, &b);
        else
            lode_buf_addc(&b, c);
    }
    if (ok && x->at++ >= x->n)
        ok = bad(x, "a string that does not end");
    ok = ok && jinja_take(x->r, &b, out);
    lode_buf_free(&b);
    return ok;
}

static size_t skip_digits(struct reader *x) {
    const size_t start = x->at;
    while (x->at < x->n && x->s[x->at] >= '0' && x->s[x->at] <= '9')
        x->at++;
    return x->at - start;
}

static bool read_number(struct reader *x, struct jv *out) {
    const size_t start = x->at;
    bool whole = true;
    x->at += x->s[x->at] == '-';
    const bool zero = x->at < x->n && x->s[x->at] == '0';
    const size_t digits = skip_digits(x);
    if (digits == 0 || (zero && digits > 1))
        return bad(x, "a malformed value");
    if (x->at < x->n && x->s[x->at] == '.') {
        x->at++;
        whole = false;
        if (!skip_digits(x))
            return bad(x, "a malformed number");
    }
    if (x->at < x->n && (x->s[x->at] | 32) == 'e') {
        x->at++;
        whole = false;
        x->at += x->at < x->n && (x->s[x->at] == '-' || x->s[x->at] == '+');
        if (!skip_digits(x))
            return bad(x, "a malformed number");
    }
    struct jv text;
    if (!jinja_str(x->r, x->s + start, x->at - start, &text))
        return false;
    if (!whole) {
        *out = jv_float(strtod(text.s->data, NULL));
        return true;
    }
    errno = 0;
    *out = jv_int(strtoll(text.s->data, NULL, 10));
    if (errno == ERANGE) {
        if (text.s->len > JINJA_MAX_DIGITS)
            return bad(x, "an integer of too many digits");
        *out = text;
        out->kind = JV_BIG;
    }
    return true;
}

static bool read_list(struct reader *x, unsigned depth, struct jv *out) {
    struct jv *items = NULL;
    size_t n = 0, cap = 0;
    x->at++;
    if (skip_char(x, ']'))
        return jinja_list(x->r, NULL, 0, out);
    do {
        if (n == cap) {
            struct jv *more = jinja_alloc(x->r, cap = cap ? cap * 2 : 4, sizeof *more);
            if (!more)
                return false;
            if (n)
                memcpy(more, items, n * sizeof *items);
            items = more;
        }
        if (!read_value(x, depth + 1, &items[n++]))
            return false;
    } while (skip_char(x, ','));
    return skip_char(x, ']') ? jinja_list(x->r, items, n, out)
                             : bad(x, "no comma or ] after an item");
}

static bool read_dict(struct reader *x, unsigned depth, struct jv *out) {
    struct jinja_dict *d = jinja_dict_new(x->r);
    if (!d)
        return false;
    x->at++;
    *out = (struct jv){.kind = JV_DICT, .d = d};
    if (skip_char(x, '}'))
        return true;
    do {
        struct jv key, value;
        skip_space(x);
        if (x->at >= x->n || x->s[x->at] != '"')
            return bad(x, "a name that is not a string");
        if (!read_string(x, &key))
            return false;
        if (!skip_char(x, ':'))
            return bad(x, "no colon after a name");
        if (!read_value(x, depth + 1, &value) || !jinja_dict_put(x->r, d, key, value))
            return false;
    } while (skip_char(x, ','));
    return skip_char(x, '}') || bad(x, "no comma or } after a member");
}

static bool read_word(struct reader *x, struct jv *out) {
    static const struct {
        const char *word;
        struct jv value;
    } words[] = {{"null", {.kind = JV_NONE}},
                 {"true", {.kind = JV_BOOL, .b = true}},
                 {"false", {.kind = JV_BOOL}}};
    for (size_t i = 0; i < 3; i++) {
        const size_t len = strlen(words[i].word);
        if (x->n - x->at >= len && memcmp(x->s + x->at, words[i].word, len) == 0) {
            x->at += len;
            *out = words[i].value;
            return true;
        }
    }
    return bad(x, "a malformed value");
}

static bool read_value(struct reader *x, unsigned depth, struct jv *out) {
    skip_space(x);
    if (x->at >= x->n)
        return bad(x, "an unexpected end");
    if (depth > JINJA_MAX_NESTING)
        return bad(x, "values nested too deeply");
    switch (x->s[x->at]) {
    case '{':
        return read_dict(x, depth, out);
    case '[':
        return read_list(x, depth, out);
    case '"':
        return read_string(x, out);
    case 'n':
    case 't':
    case 'f':
        return read_word(x, out);
    default:
        return read_number(x, out);
    }
}

bool jinja_json_read(struct jinja_run *r, const char *text, size_t len, struct jv *out) {
    struct reader x = {r, text, len, 0};
    if (!lode_utf8_valid(text, len))
        return bad(&x, "invalid UTF-8");
    if (!read_value(&x, 0, out))
        return false;
    skip_space(&x);
    return x.at == len || bad(&x, "text behind the value");
}

/* ---- writing: json.dumps ---- */

struct writer {
    struct jinja_run *r;
    struct lode_buf b;
    bool ensure_ascii, sort_keys;
    struct lode_str item, key; /* separators */
    const char *indent;        /* repeated per level; NULL: on one line */
};

static bool write_value(struct writer *w, struct jv v, unsigned depth);

static void write_string(struct writer *w, const struct jinja_text *s) {
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    lode_buf_addc(&w->b, '"');
    for (size_t i = 0, len; i < s->len; i += len) {
        const uint32_t cp = jinja_char(s->data + i, s->len - i, &len);
        const char *c = cp && cp < 128 ? strchr(special, (int)cp) : NULL;
        if (c)
            lode_buf_addf(&w->b, "\\%c", letter[c - special]);
        else if (cp < ' ' || (w->ensure_ascii && cp > 126 && cp < 0x10000))
            lode_buf_addf(&w->b, "\\u%04x", cp);
        else if (w->ensure_ascii && cp >= 0x10000)
            lode_buf_addf(&w->b, "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                          0xdc00 + ((cp - 0x10000) & 0x3ff));
        else
            lode_buf_add(&w->b, s->data + i, len);
    }
    lode_buf_addc(&w->b, '"');
}

static void write_float(struct writer *w, double f) {
    char text[40];
    jinja_float_repr(f, text);
    lode_buf_addz(&w->b, isnan(f) ? "NaN" : isinf(f) ? (f > 0 ? "Infinity" : "-Infinity") : text);
}

static void new_line(struct writer *w, unsigned depth) {
    if (!w->indent)
        return;
    lode_buf_addc(&w->b, '\n');
    for (unsigned i = 0; i < depth; i++)
        lode_buf_addz(&w->b, w->indent);
}

static bool write_key(struct writer *w, struct jv key) {
    if (key.kind == JV_STR) {
        write_string(w, key.s);
        return true;
    }
    if (!jv_is_number(key) && key.kind != JV_NONE)
        return jinja_type_error(w->r, "a %s cannot be a key in JSON", jinja_type(key));
    lode_buf_addc(&w->b, '"');
    const bool ok = write_value(w, key, 0);
    lode_buf_addc(&w->b, '"');
    return ok;
}

static bool write_dict(struct writer *w, const struct jinja_dict *d, unsigned depth) {
    uint32_t *order = NULL;
    if (w->sort_keys && d->n) { /* insertion sort with gaps (Shell): keys are few, and never hang */
        if (!(order = jinja_alloc(w->r, d->n, sizeof *order)))
            return false;
        for (uint32_t i = 0; i < d->n; i++)
            order[i] = i;
        for (uint32_t gap = d->n / 2; gap > 0; gap /= 2) {
            for (uint32_t i = gap; i < d->n; i++) {
                const uint32_t x = order[i];
                uint32_t j = i;
                for (; j >= gap; j -= gap) {
                    bool less;
                    if (!jinja_less(w->r, d->keys[x], d->keys[order[j - gap]], '<', &less))
                        return false;
                    if (!less)
                        break;
                    order[j] = order[j - gap];
                }
                order[j] = x;
            }
        }
    }
    lode_buf_addc(&w->b, '{');
    for (uint32_t i = 0; i < d->n; i++) {
        const uint32_t at = order ? order[i] : i;
        if (i)
            lode_buf_add(&w->b, w->item.data, w->item.len);
        new_line(w, depth + 1);
        if (!write_key(w, d->keys[at]))
            return false;
        lode_buf_add(&w->b, w->key.data, w->key.len);
        if (!write_value(w, d->values[at], depth + 1))
            return false;
    }
    if (d->n)
        new_line(w, depth);
    lode_buf_addc(&w->b, '}');
    return true;
}

static bool write_list(struct writer *w, const struct jinja_list *l, unsigned depth) {
    lode_buf_addc(&w->b, '[');
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            lode_buf_add(&w->b, w->item.data, w->item.len);
        new_line(w, depth + 1);
        if (!write_value(w, l->items[i], depth + 1))
            return false;
    }
    if (l->n)
        new_line(w, depth);
    lode_buf_addc(&w->b, ']');
    return true;
}

static bool write_value(struct writer *w, struct jv v, unsigned depth) {
    if (!jinja_spend(w->r, 1))
        return false;
    if (depth > JINJA_MAX_NESTING || w->b.len > JINJA_MAX_OUTPUT)
        return jinja_fail(w->r, LODE_ERR_LIMIT, "a value is too deep or too large for tojson");
    switch (v.kind) {
    case JV_NONE:
        lode_buf_addz(&w->b, "null");
        return true;
    case JV_BOOL:
        lode_buf_addz(&w->b, v.b ? "true" : "false");
        return true;
    case JV_INT:
        lode_buf_addf(&w->b, "%lld", (long long)v.i);
        return true;
    case JV_BIG:
        lode_buf_add(&w->b, v.s->data, v.s->len);
        return true;
    case JV_FLOAT:
        write_float(w, v.f);
        return jinja_spend(w->r, 100);
    case JV_STR:
        write_string(w, v.s);
        return jinja_spend(w->r, JINJA_COST_WALK(v.s->len));
    case JV_LIST:
    case JV_TUPLE:
        return write_list(w, v.l, depth);
    case JV_DICT:
        return write_dict(w, v.d, depth);
    default:
        return jinja_type_error(w->r, "a %s cannot be written as JSON", jinja_type(v));
    }
}

/* The indent argument: a number of spaces or a string. */
static bool set_indent(struct writer *w, struct jv indent, char spaces[]) {
    enum { MOST = 64 };
    if (!jv_given(indent) || indent.kind == JV_NONE)
        return true;
    if (indent.kind == JV_STR) {
        struct jv copy; /* with a NUL, which part of another string lacks */
        if (!jinja_str(w->r, indent.s->data, indent.s->len, &copy))
            return false;
        w->indent = copy.s->data;
    } else if (jv_is_int(indent)) {
        const int64_t n = jv_as_int(indent);
        if (n > MOST)
            return jinja_fail(w->r, LODE_ERR_LIMIT, "tojson indents by at most %d", MOST);
        memset(spaces, ' ', MOST);
        spaces[n > 0 ? n : 0] = '\0';
        w->indent = spaces;
    } else {
        return jinja_type_error(w->r, "tojson cannot indent by a %s", jinja_type(indent));
    }
    w->item = LODE_STR(",");
    return true;
}

/* As transformers defines it: no HTML escapes, non-ASCII text as it is. */
bool jinja_tojson(struct jinja_run *r, struct jv self, const struct jv *a,
                  const struct jinja_args *args, struct jv *out) {
    (void)args;
    char spaces[65];
    struct writer w = {.r = r, .item = LODE_STR(", "), .key = LODE_STR(": ")};
    w.ensure_ascii = jinja_truth(a[0]);
    if (!set_indent(&w, a[1], spaces))
        return false;
    if (jv_given(a[2]) && a[2].kind != JV_NONE) {
        const struct jv *items;
        size_t n;
        if (!jinja_items(r, a[2], &items, &n))
            return false;
        if (n != 2 || items[0].kind != JV_STR || items[1].kind != JV_STR)
            return jinja_type_error(r, "the separators of tojson must be two strings");
        w.item = jv_text(items[0]);
        w.key = jv_text(items[1]);
    }
    w.sort_keys = jinja_truth(a[3]);
    const bool ok = write_value(&w, self, 0) && jinja_take(r, &w.b, out);
    lode_buf_free(&w.b);
    return ok;
}
