/* filters.c - filters over single values, and the table of all filters. */
#include "text/jinja/jinja.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

JINJA_IS(string, jinja_to_str(r, self, out))

JINJA_IS(upper, jinja_to_str(r, self, &self) && jinja_change_case(r, self, 'u', out))
JINJA_IS(lower, jinja_to_str(r, self, &self) && jinja_change_case(r, self, 'l', out))
JINJA_IS(title, jinja_to_str(r, self, &self) && jinja_title(r, self, out))
JINJA_IS(capitalize, jinja_to_str(r, self, &self) && jinja_change_case(r, self, 'c', out))
JINJA_IS(trim, jinja_to_str(r, self, &self) && jinja_strip(r, self, a[0], true, true, out))

/* Calls a method of the text of self. */
static bool by_method(struct jinja_run *r, struct jv self, const char *name, const struct jv *pos,
                      size_t n, struct jv *out) {
    const struct jinja_args args = {.pos = pos, .n = n};
    return jinja_to_str(r, self, &self) &&
           jinja_builtin_call(r, jinja_find(jinja_str_methods, lode_str(name)), self, &args, out);
}

JINJA_FN(center) {
    JINJA_UNUSED;
    const struct jv width = jv_given(a[0]) ? a[0] : jv_int(80);
    return by_method(r, self, "center", &width, 1, out);
}

JINJA_FN(replace) {
    JINJA_UNUSED;
    struct jv from, to;
    if (!jinja_to_str(r, self, &self) || !jinja_to_str(r, a[0], &from) ||
        !jinja_to_str(r, a[1], &to))
        return false;
    if (jv_given(a[2]) && a[2].kind != JV_NONE && !jv_is_int(a[2]))
        return jinja_type_error(r, "replace counts with an int, not a %s", jinja_type(a[2]));
    self.mark = 0;
    return jinja_replace(r, self, jv_text(from), jv_text(to),
                         jv_given(a[2]) && jv_is_int(a[2]) ? jv_as_int(a[2]) : -1, out);
}

JINJA_FN(default_value) {
    JINJA_UNUSED;
    const bool replace = self.kind == JV_UNDEF || (jinja_truth(a[1]) && !jinja_truth(self));
    *out = replace ? a[0] : self;
    return !replace || jv_given(a[0]) || jinja_str_borrow(r, "", 0, out);
}

JINJA_FN(safe) {
    JINJA_UNUSED;
    if (!jinja_to_str(r, self, out))
        return false;
    out->mark = true;
    return true;
}

JINJA_IS(escape, jinja_escape(r, self, out))
JINJA_FN(force_escape) {
    JINJA_UNUSED;
    if (!jinja_to_str(r, self, &self))
        return false;
    self.mark = false;
    return jinja_escape(r, self, out);
}

JINJA_FN(attr) {
    JINJA_UNUSED;
    struct jv name;
    if (!jinja_to_str(r, a[0], &name))
        return false;
    if (self.kind == JV_DICT && jinja_dict_get(self.d, name)) /* items are no attributes */
        return jinja_undef(r, out, "a dict has no attribute '%.*s'",
                           name.s->len > 150 ? 150 : (int)name.s->len, name.s->data);
    return jinja_attr(r, self, name, out);
}

/* ---- numbers ---- */

JINJA_FN(absolute) {
    JINJA_UNUSED;
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (jv_is_int(self) && jv_as_int(self) < 0)
        return jinja_negate(r, self, out);
    if (!jv_is_number(self))
        return jinja_type_error(r, "abs of a %s", jinja_type(self));
    *out = self.kind == JV_FLOAT ? jv_float(fabs(self.f))
           : jv_is_int(self)     ? jv_int(jv_as_int(self))
                                 : self;
    return true;
}

/* Text as int() or float() read it: white space around, underscores between digits. */
static bool number_text(struct jinja_run *r, struct jv text, char **out) {
    struct jv s;
    if (!jinja_strip(r, text, (struct jv){0}, true, true, &s) ||
        !jinja_spend(r, JINJA_COST_WALK(s.s->len)))
        return false;
    char *copy = jinja_alloc(r, s.s->len + 1, 1);
    if (!copy)
        return false;
    size_t n = 0;
    for (size_t i = 0; i < s.s->len; i++) {
        const char c = s.s->data[i];
        const bool joins = c == '_' && i && i + 1 < s.s->len && s.s->data[i - 1] != '_';
        if (c == '\0') /* would end the text early */
            n = 0, copy[n++] = '?';
        if (!joins && c)
            copy[n++] = c;
    }
    copy[n] = '\0';
    *out = copy;
    return true;
}

static bool parse_int(const char *s, int base, int64_t *out) {
    char *end;
    errno = 0;
    const char *digits = s + (*s == '-' || *s == '+');
    if (!*digits || *digits == ' ' || *digits == '+' || *digits == '-')
        return false;
    const bool prefixed = digits[0] == '0' && digits[1];
    const char p = prefixed ? (char)(digits[1] | 32) : 0;
    char copy[80];
    if ((base == 2 && p == 'b') || (base == 8 && p == 'o')) { /* strtoll of C17 knows only 0x */
        if ((size_t)snprintf(copy, sizeof copy, "%s%s", *s == '-' ? "-" : "", digits + 2) >=
            sizeof copy)
            return false;
        s = copy;
    }
    if (base == 10 && p == 'x')
        return false;
    *out = strtoll(s, &end, base);
    return !*end && errno == 0;
}

static bool parse_float(const char *s, double *out) {
    char *end;
    if (!*s || strpbrk(s, "xXpP(")) /* C's hexadecimal floats and nan(...) are not Python's */
        return false;
    *out = strtod(s, &end);
    return !*end;
}

JINJA_FN(to_int) {
    JINJA_UNUSED;
    const struct jv absent = jv_given(a[0]) ? a[0] : jv_int(0);
    double f = 0;
    int64_t i;
    *out = absent;
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (jv_is_int(self) || self.kind == JV_BIG) {
        *out = self.kind == JV_BOOL ? jv_int(self.b) : self;
        return true;
    }
    if (self.kind == JV_STR) {
        char *text;
        const int64_t base = jv_given(a[1]) && jv_is_int(a[1]) ? jv_as_int(a[1]) : 10;
        if (base < 2 || base > 36)
            return jinja_type_error(r, "int reads numbers of base 2 to 36");
        if (!number_text(r, self, &text))
            return false;
        if (parse_int(text, (int)base, &i)) {
            *out = jv_int(i);
            return true;
        }
        if (!parse_float(text, &f))
            return true;
    } else if (self.kind == JV_FLOAT) {
        f = self.f;
    } else {
        return true;
    }
    if (fabs(f) < 0x1p63)
        *out = jv_int((int64_t)f);
    else if (!isnan(f) && !isinf(f))
        return jinja_fail(r, LODE_ERR_LIMIT, "an integer exceeds 64 bits");
    return true;
}

JINJA_FN(to_float) {
    JINJA_UNUSED;
    double f;
    char *text;
    *out = jv_given(a[0]) ? a[0] : jv_float(0);
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (jv_is_number(self)) {
        *out = jv_float(jv_as_double(self));
    } else if (self.kind == JV_STR) {
        if (!number_text(r, self, &text))
            return false;
        if (parse_float(text, &f))
            *out = jv_float(f);
    }
    return true;
}

/* round(i, -digits): exact, halves to even. */
static bool round_int(struct jinja_run *r, int64_t i, int digits, struct jv *out) {
    int64_t unit = 1;
    for (int k = 0; k < digits; k++)
        unit = unit > INT64_MAX / 10 ? 0 : unit * 10;
    if (unit == 0 || digits > 18) { /* 10^19 and more: half of it is beyond 64 bits at 10^20 */
        *out = jv_int(0);
        return digits > 19 || (i < 5000000000000000000 && i > -5000000000000000000) ||
               jinja_fail(r, LODE_ERR_LIMIT, "an integer exceeds 64 bits");
    }
    const int64_t rest = i % unit, down = i - rest, half = unit / 2;
    const bool odd = (i / unit) % 2 != 0;
    int64_t step = 0;
    if (rest > half || (rest == half && odd && rest))
        step = unit;
    else if (rest < -half || (rest == -half && odd && rest))
        step = -unit;
    if (__builtin_add_overflow(down, step, &i))
        return jinja_fail(r, LODE_ERR_LIMIT, "an integer exceeds 64 bits");
    *out = jv_int(i);
    return true;
}

/* The nearest decimal, halves to even, of the exact binary value: what printf rounds to. */
static double round_to(double f, int digits) {
    char text[400];
    if (digits >= 0) {
        snprintf(text, sizeof text, "%.*f", digits > 40 ? 40 : digits, f);
        return strtod(text, NULL);
    }
    const double unit = pow(10, digits < -308 ? 308 : -digits);
    return rint(f / unit) * unit;
}

JINJA_FN(round_number) {
    JINJA_UNUSED;
    const int64_t digits = jv_given(a[0]) && jv_is_int(a[0]) ? jv_as_int(a[0]) : 0;
    const int n = digits > 300 ? 300 : digits < -300 ? -300 : (int)digits;
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (!jv_is_number(self))
        return jinja_type_error(r, "round of a %s", jinja_type(self));
    if (!jv_given(a[1]) || jv_is_text(a[1], "common")) {
        if (self.kind == JV_BIG || (jv_is_int(self) && n >= 0)) {
            *out = self.kind == JV_BOOL ? jv_int(self.b) : self;
        } else if (jv_is_int(self)) {
            return round_int(r, jv_as_int(self), -n, out);
        } else {
            *out = jv_float(round_to(jv_as_double(self), n));
        }
        return true;
    }
    const bool up = jv_is_text(a[1], "ceil");
    if (!up && !jv_is_text(a[1], "floor"))
        return jinja_type_error(r, "round knows the methods common, ceil and floor");
    const double unit = pow(10, n), f = jv_as_double(self) * unit;
    *out = jv_float(((up ? ceil(f) : floor(f)) + 0.0) / unit); /* Python's floor is an int: no -0 */
    return true;
}

JINJA_FN(file_size) {
    JINJA_UNUSED;
    static const char prefixes[] = "kMGTPEZY";
    const bool binary = jinja_truth(a[0]);
    const double base = binary ? 1024 : 1000;
    const struct jinja_args none = {0};
    struct jv bytes, absent[JINJA_MAX_ARGS] = {jv_none()};
    if (!to_float(r, self, absent, &none, &bytes))
        return false;
    if (bytes.kind != JV_FLOAT)
        return jinja_type_error(r, "filesizeformat of what is no number");
    char text[DBL_MAX_10_EXP + 16];
    if (bytes.f == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (bytes.f < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes.f) + 0.0); /* no -0 */
    } else {
        int i = 0;
        double unit = base * base;
        for (; i < 7 && bytes.f >= unit; i++)
            unit *= base;
        const char p = binary && i == 0 ? 'K' : prefixes[i];
        snprintf(text, sizeof text, "%.1f %c%s", base * bytes.f / unit, p, binary ? "iB" : "B");
    }
    return jinja_str(r, text, strlen(text), out);
}

/* ---- longer texts ---- */

static bool spaces(struct jinja_run *r, struct jv width, struct jv *out) {
    if (width.kind == JV_STR) {
        *out = width;
        return true;
    }
    if (jv_given(width) && !jv_is_int(width))
        return jinja_type_error(r, "indent takes a number or a str, not a %s", jinja_type(width));
    struct jv one;
    return jinja_str_borrow(r, " ", 1, &one) &&
           jinja_repeat(r, one, jv_given(width) ? jv_as_int(width) : 4, out);
}

JINJA_FN(indent) {
    JINJA_UNUSED;
    struct jv indention, lines;
    const bool first = jinja_truth(a[1]), blank = jinja_truth(a[2]);
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (self.kind != JV_STR)
        return jinja_type_error(r, "indent of a %s", jinja_type(self));
    if (!spaces(r, a[0], &indention) || !by_method(r, self, "splitlines", NULL, 0, &lines))
        return false;
    const struct jinja_text *s = self.s, *in = indention.s;
    struct lode_buf b = {0};
    size_t n = lines.l->n; /* jinja2 adds a newline first: one more line if text ends with one */
    const bool extra = s->len == 0 || s->data[s->len - 1] == '\n' || s->data[s->len - 1] == '\r';
    if (first)
        lode_buf_add(&b, in->data, in->len);
    for (size_t i = 0; i < n + extra && b.len <= JINJA_MAX_OUTPUT; i++) {
        const struct lode_str line = i < n ? jv_text(lines.l->items[i]) : (struct lode_str){"", 0};
        if (i) {
            lode_buf_addc(&b, '\n');
            if (line.len || blank)
                lode_buf_add(&b, in->data, in->len);
        }
        lode_buf_add(&b, line.data, line.len);
    }
    const bool ok = b.len > JINJA_MAX_OUTPUT
                        ? jinja_fail(r, LODE_ERR_LIMIT, "indent makes too long a text")
                        : jinja_take(r, &b, out);
    lode_buf_free(&b);
    out->mark = self.mark;
    return ok;
}

JINJA_FN(truncate_text) {
    JINJA_UNUSED;
    struct jv end = a[2], rest, space[2];
    const int64_t length = jv_given(a[0]) && jv_is_int(a[0]) ? jv_as_int(a[0]) : 255;
    const int64_t leeway = jv_given(a[3]) && jv_is_int(a[3]) ? jv_as_int(a[3]) : 5;
    size_t n;
    if (!jinja_len(r, self, &n) || (!jv_given(end) && !jinja_str_borrow(r, "...", 3, &end)))
        return false;
    if (end.kind != JV_STR || length < (int64_t)end.s->n_chars || leeway < 0)
        return jinja_type_error(r, "truncate: the length must leave room for the end, and the "
                                   "leeway be 0 or more");
    *out = self;
    if ((int64_t)n <= length + leeway)
        return true;
    if (self.kind != JV_STR)
        return jinja_type_error(r, "truncate of a %s", jinja_type(self));
    if (!jinja_slice(r, self, (struct jv){0}, jv_int(length - (int64_t)end.s->n_chars),
                     (struct jv){0}, &rest))
        return false;
    if (!jinja_truth(a[1])) {
        struct jv parts;
        space[1] = jv_int(1);
        if (!jinja_str_borrow(r, " ", 1, &space[0]) ||
            !by_method(r, rest, "rsplit", space, 2, &parts))
            return false;
        rest = parts.l->items[0];
    }
    return jinja_concat(r, rest, end, out);
}

JINJA_FN(count_words) {
    JINJA_UNUSED;
    int64_t n = 0;
    bool in_word = false;
    if (!jinja_to_str(r, self, &self) || !jinja_spend(r, JINJA_COST_WALK(self.s->len)))
        return false;
    for (size_t i = 0, len; i < self.s->len; i += len) {
        const uint32_t cp = jinja_char(self.s->data + i, self.s->len - i, &len);
        const bool is_word = cp == '_' || jinja_is_alnum(cp);
        n += is_word && !in_word;
        in_word = is_word;
    }
    *out = jv_int(n);
    return true;
}

static void quote(struct lode_buf *b, struct lode_str s, bool for_query) {
    for (size_t i = 0; i < s.len; i++) {
        const unsigned char c = (unsigned char)s.data[i];
        const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                           (c >= 'A' && c <= 'Z') || (c && strchr("_.-~", c)) ||
                           (c == '/' && !for_query);
        if (plain)
            lode_buf_addc(b, (char)c);
        else if (c == ' ' && for_query)
            lode_buf_addc(b, '+');
        else
            lode_buf_addf(b, "%%%02X", c);
    }
}

static bool quote_pair(struct jinja_run *r, struct jv key, struct jv value, struct lode_buf *b) {
    if (!jinja_to_str(r, key, &key) || !jinja_to_str(r, value, &value))
        return false;
    if (b->len)
        lode_buf_addc(b, '&');
    quote(b, jv_text(key), true);
    lode_buf_addc(b, '=');
    quote(b, jv_text(value), true);
    return true;
}

JINJA_FN(url_encode) {
    JINJA_UNUSED;
    struct lode_buf b = {0};
    const struct jv *items, *pair;
    size_t n = 0, two = 2;
    bool ok = true;
    if (self.kind == JV_DICT) {
        for (uint32_t i = 0; ok && i < self.d->n; i++)
            ok = quote_pair(r, self.d->keys[i], self.d->values[i], &b);
    } else if (self.kind > JV_STR && self.kind <= JV_GEN) {
        ok = jinja_items(r, self, &items, &n);
        for (size_t i = 0; ok && i < n; i++)
            ok = jinja_items(r, items[i], &pair, &two) &&
                 (two == 2 || jinja_type_error(r, "urlencode takes pairs")) &&
                 quote_pair(r, pair[0], pair[1], &b);
    } else if ((ok = jinja_to_str(r, self, &self))) {
        quote(&b, jv_text(self), false);
    }
    ok = ok && jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

/* "%s" | format(x): values by position or by name */
JINJA_FN(format) {
    JINJA_UNUSED;
    struct jv values;
    if (args->n && args->n_named)
        return jinja_type_error(r, "format takes values by position or by name, not both");
    if (!jinja_to_str(r, self, &self))
        return false;
    if (args->n_named) {
        struct jinja_dict *d = jinja_dict_new(r);
        for (size_t i = 0; d && i < args->n_named; i++)
            if (!jinja_dict_put(r, d, args->names[i], args->values[i]))
                return false;
        values = (struct jv){.kind = JV_DICT, .d = d};
        return d && jinja_percent(r, self, values, out);
    }
    if (!jinja_list(r, args->pos, args->n, &values))
        return false;
    values.kind = JV_TUPLE;
    return jinja_percent(r, self, values, out);
}

const struct jinja_builtin jinja_filters[] = {
    {"abs", absolute, "", 0},
    {"attr", attr, "name", 1},
    {"capitalize", capitalize, "", 0},
    {"center", center, "width", 0},
    {"count", jinja_filter_length, "", 0},
    {"d", default_value, "default_value boolean", 0},
    {"default", default_value, "default_value boolean", 0},
    {"e", escape, "", 0},
    {"escape", escape, "", 0},
    {"filesizeformat", file_size, "binary", 0},
    {"float", to_float, "default", 0},
    {"forceescape", force_escape, "", 0},
    {"format", format, NULL, 0},
    {"indent", indent, "width first blank", 0},
    {"int", to_int, "default base", 0},
    {"lower", lower, "", 0},
    {"replace", replace, "old new count", 2},
    {"round", round_number, "precision method", 0},
    {"safe", safe, "", 0},
    {"string", string, "", 0},
    {"title", title, "", 0},
    {"tojson", jinja_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", trim, "chars", 0},
    {"truncate", truncate_text, "length killwords end leeway", 0},
    {"upper", upper, "", 0},
    {"urlencode", url_encode, "", 0},
    {"wordcount", count_words, "", 0},
#define ENTRY(name, params, required) {#name, jinja_filter_##name, params, required},
    JINJA_SEQ_FILTERS(ENTRY)
#undef ENTRY
        {0},
};
