/* format.c - "%s: %d" % (a, b), and "{}: {x}".format(a, x=b). */
#include "text/jinja/jinja.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_WIDTH = 10000, MAX_PRECISION = 300 };

struct spec {             /* of one conversion */
    struct lode_str fill; /* one character */
    char align;           /* '<' '>' '^' '=' or 0 */
    char sign;            /* '+' ' ' or 0 */
    bool alternate;       /* # */
    char group;           /* ',' '_' or 0 */
    int width, precision; /* -1: not given */
    char type;            /* 0: the value's own */
};

static bool bad_format(struct jinja_run *r, const char *what) {
    return jinja_type_error(r, "a format string %s", what);
}

/* body, whose first sign_len characters are a sign or a prefix, padded to the width */
static void add_padded(struct lode_buf *b, const struct spec *s, struct lode_str body,
                       size_t sign_len, char default_align) {
    const size_t n = jinja_count_chars(body.data, body.len);
    const size_t width = s->width > 0 ? (size_t)s->width : 0;
    const size_t missing = width > n ? width - n : 0;
    const char align = s->align ? s->align : default_align;
    const size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
    if (align == '=')
        lode_buf_add(b, body.data, sign_len);
    for (size_t i = 0; i < left; i++)
        lode_buf_add(b, s->fill.data, s->fill.len);
    lode_buf_add(b, body.data + (align == '=' ? sign_len : 0),
                 body.len - (align == '=' ? sign_len : 0));
    for (size_t i = left; i < missing; i++)
        lode_buf_add(b, s->fill.data, s->fill.len);
}

static void add_grouped(struct lode_buf *b, const char *digits, char group) {
    const size_t whole = strspn(digits, "0123456789");
    for (size_t i = 0; digits[i]; i++) {
        if (group && i && i < whole && (whole - i) % 3 == 0)
            lode_buf_addc(b, group);
        lode_buf_addc(b, digits[i]);
    }
}

static void add_sign(struct lode_buf *b, bool negative, const struct spec *s) {
    if (negative)
        lode_buf_addc(b, '-');
    else if (s->sign)
        lode_buf_addc(b, s->sign);
}

static bool format_int(struct jinja_run *r, struct lode_buf *b, const struct spec *s, struct jv v) {
    struct lode_buf body = {0};
    size_t sign_len;
    char digits[80];
    if (v.kind == JV_BIG) {
        lode_buf_add(&body, v.s->data, v.s->len);
        sign_len = v.s->data[0] == '-';
    } else {
        const int64_t i = jv_as_int(v);
        const uint64_t size = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        const char *prefix = "";
        add_sign(&body, i < 0, s);
        if (s->type == 'x' || s->type == 'X') {
            snprintf(digits, sizeof digits, s->type == 'x' ? "%llx" : "%llX",
                     (unsigned long long)size);
            prefix = s->type == 'x' ? "0x" : "0X";
        } else if (s->type == 'o') {
            snprintf(digits, sizeof digits, "%llo", (unsigned long long)size);
            prefix = "0o";
        } else if (s->type == 'b') {
            char *d = digits + sizeof digits - 1;
            *d = '\0';
            for (uint64_t x = size; x || d == digits + sizeof digits - 1; x >>= 1)
                *--d = (char)('0' + (x & 1));
            memmove(digits, d, strlen(d) + 1);
            prefix = "0b";
        } else {
            snprintf(digits, sizeof digits, "%llu", (unsigned long long)size);
        }
        if (s->alternate)
            lode_buf_addz(&body, prefix);
        sign_len = body.len;
        for (int have = (int)strlen(digits); have < s->precision; have++)
            lode_buf_addc(&body, '0');
        add_grouped(&body, digits, s->group);
    }
    add_padded(b, s, lode_buf_str(&body), sign_len, '>');
    const bool ok = !body.failed;
    lode_buf_free(&body);
    return ok || jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template");
}

static bool format_float(struct jinja_run *r, struct lode_buf *b, const struct spec *s, double f) {
    struct lode_buf body = {0};
    char digits[700], pattern[16];
    const double size = fabs(f);
    add_sign(&body, signbit(f) && !isnan(f), s);
    const size_t sign_len = body.len;
    if (!s->type && s->precision < 0) {
        jinja_float_repr(size, digits);
    } else {
        const char type = s->type == '%' ? 'f' : s->type ? s->type : 'g';
        snprintf(pattern, sizeof pattern, "%%%s.*%c", s->alternate ? "#" : "", type);
        snprintf(digits, sizeof digits, pattern, s->precision < 0 ? 6 : s->precision,
                 s->type == '%' ? size * 100 : size);
    }
    add_grouped(&body, digits, s->group);
    if (s->type == '%')
        lode_buf_addc(&body, '%');
    add_padded(b, s, lode_buf_str(&body), sign_len, '>');
    const bool ok = !body.failed;
    lode_buf_free(&body);
    return ok || jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template");
}

static void format_text(struct lode_buf *b, const struct spec *s, struct jv v, char align) {
    const size_t n = s->precision >= 0 ? jinja_offset(v.s, (size_t)s->precision) : v.s->len;
    add_padded(b, s, (struct lode_str){v.s->data, n}, 0, align);
}

/* str() or repr() of v, so that it can be padded */
/* how: str(), repr() or ascii() */
static bool as_text(struct jinja_run *r, struct jv v, char how, struct jv *out) {
    struct lode_buf b = {0}, ascii = {0};
    if (how == 's')
        return jinja_to_str(r, v, out);
    bool ok = jinja_repr(r, &b, v);
    for (size_t i = 0, len; ok && how == 'a' && i < b.len; i += len) {
        const uint32_t cp = jinja_char(b.data + i, b.len - i, &len);
        if (cp < 128)
            lode_buf_addc(&ascii, (char)cp);
        else
            lode_buf_addf(&ascii, cp < 256 ? "\\x%02x" : cp < 65536 ? "\\u%04x" : "\\U%08x", cp);
    }
    ok = ok && jinja_take(r, how == 'a' ? &ascii : &b, out);
    lode_buf_free(&b);
    lode_buf_free(&ascii);
    return ok;
}

/* digits, or * taking the next value */
static bool read_count(struct jinja_run *r, struct lode_str f, size_t *at, int most, int *out) {
    int n = 0;
    for (; *at < f.len && f.data[*at] >= '0' && f.data[*at] <= '9'; (*at)++) {
        n = n * 10 + (f.data[*at] - '0');
        if (n > most)
            return bad_format(r, "asks for too wide a field");
    }
    *out = n;
    return true;
}

/* ---- printf style ---- */

struct percent {
    struct lode_str f;
    size_t at;
    struct jv values;
    const struct jv *items; /* (n) */
    size_t n, taken;
};

static bool next_value(struct jinja_run *r, struct percent *p, struct jv *out) {
    if (p->taken >= p->n)
        return bad_format(r, "has more conversions than values");
    *out = p->items[p->taken++];
    return true;
}

static bool percent_spec(struct jinja_run *r, struct percent *p, struct spec *s, struct jv *named) {
    const struct lode_str f = p->f;
    if (p->at < f.len && f.data[p->at] == '(') {
        const size_t start = ++p->at;
        while (p->at < f.len && f.data[p->at] != ')')
            p->at++;
        if (p->at >= f.len || p->values.kind != JV_DICT)
            return bad_format(r, "names values that are not given by name");
        const struct jv *v =
            jinja_dict_getz(p->values.d, (struct lode_str){f.data + start, p->at++ - start});
        if (!v)
            return bad_format(r, "names a value that is not given");
        *named = *v;
        p->taken = p->n;
    }
    for (; p->at < f.len && f.data[p->at] && strchr("-+ #0", f.data[p->at]); p->at++) {
        const char c = f.data[p->at];
        if (c == '-')
            s->align = '<';
        else if (c == '+' || c == ' ')
            s->sign = s->sign == '+' ? '+' : c;
        else if (c == '#')
            s->alternate = true;
        else if (!s->align) {
            s->align = '=';
            s->fill = LODE_STR("0");
        }
    }
    if (s->align == '<')
        s->fill = LODE_STR(" ");
    struct jv star;
    for (int part = 0; part < 2; part++) {
        int *const out = part ? &s->precision : &s->width;
        const int most = part ? MAX_PRECISION : MAX_WIDTH;
        if (part && (p->at >= f.len || f.data[p->at] != '.'))
            break;
        p->at += part;
        if (p->at < f.len && f.data[p->at] == '*') {
            p->at++;
            if (!next_value(r, p, &star))
                return false;
            if (!jv_is_int(star) || jv_as_int(star) < -most || jv_as_int(star) > most)
                return bad_format(r, "asks for too wide a field");
            *out = (int)jv_as_int(star);
            if (!part && *out < 0) {
                *out = -*out;
                s->align = '<';
            }
        } else if (!read_count(r, f, &p->at, most, out)) {
            return false;
        }
    }
    while (p->at < f.len && (f.data[p->at] == 'l' || f.data[p->at] == 'h' || f.data[p->at] == 'L'))
        p->at++;
    if (p->at >= f.len)
        return bad_format(r, "ends within a conversion");
    s->type = f.data[p->at++];
    return jinja_spend(r, (size_t)s->width / 2 + 100); /* numbers are slow to write */
}

/* chr() */
static bool code_point(struct jinja_run *r, struct jv v, struct jv *out) {
    char utf8[4];
    const int64_t i = jv_as_int(v);
    if (i < 0 || i > 0x10ffff)
        return false;
    const uint32_t cp = i >= 0xd800 && i < 0xe000 ? 0xfffd : (uint32_t)i; /* no halves of pairs */
    return jinja_str(r, utf8, lode_utf8_encode(cp, utf8), out);
}

static bool percent_one(struct jinja_run *r, struct percent *p, bool mark, struct lode_buf *b) {
    struct spec s = {.fill = LODE_STR(" "), .precision = -1};
    struct jv v = {0};
    if (p->at < p->f.len && p->f.data[p->at] == '%') { /* with anything between it is an error */
        p->at++;
        lode_buf_addc(b, '%');
        return true;
    }
    if (!percent_spec(r, p, &s, &v))
        return false;
    if (!jv_given(v) && !next_value(r, p, &v))
        return false;
    switch (s.type) {
    case 's':
    case 'r':
    case 'a':
        if (s.align == '=')
            s.align = 0, s.fill = LODE_STR(" ");
        if (!as_text(r, v, s.type, &v) || (mark && !jinja_escape(r, v, &v)))
            return false;
        format_text(b, &s, v, '>');
        return true;
    case 'c':
        if (jv_is_int(v) && !code_point(r, v, &v))
            return bad_format(r, "has %c with a number that is no character");
        if (v.kind != JV_STR || v.s->n_chars != 1)
            return bad_format(r, "has %c without a character");
        format_text(b, &s, v, '>');
        return true;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        if (v.kind == JV_FLOAT && fabs(v.f) < 9e18 && s.type != 'x' && s.type != 'X' &&
            s.type != 'o')
            v = jv_int((int64_t)v.f);
        if (v.kind == JV_FLOAT && isfinite(v.f) && strchr("diu", s.type))
            return jinja_fail(r, LODE_ERR_LIMIT, "an integer exceeds 64 bits");
        if (!jv_is_int(v) && v.kind != JV_BIG)
            return jinja_type_error(r, "%%%c needs a number, not a %s", s.type, jinja_type(v));
        return format_int(r, b, &s, v);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        if (!jv_is_number(v))
            return jinja_type_error(r, "%%%c needs a number, not a %s", s.type, jinja_type(v));
        return format_float(r, b, &s, jv_as_double(v));
    default:
        return bad_format(r, "has an unknown conversion");
    }
}

bool jinja_percent(struct jinja_run *r, struct jv format, struct jv values, struct jv *out) {
    struct percent p = {.f = jv_text(format), .values = values, .items = &values, .n = 1};
    struct lode_buf b = {0};
    bool ok = true;
    if (values.kind == JV_TUPLE) {
        p.items = values.l->items;
        p.n = values.l->n;
    }
    while (ok && p.at < p.f.len) {
        const char *next = memchr(p.f.data + p.at, '%', p.f.len - p.at);
        const size_t to = next ? (size_t)(next - p.f.data) : p.f.len;
        lode_buf_add(&b, p.f.data + p.at, to - p.at);
        p.at = to + 1;
        if (next)
            ok = jinja_spend(r, 1 + b.len / 4096) && percent_one(r, &p, format.mark, &b);
        if (b.len > JINJA_MAX_OUTPUT)
            ok = bad_format(r, "makes too long a text");
    }
    if (ok && p.taken < p.n && values.kind != JV_DICT && values.kind != JV_LIST &&
        values.kind != JV_RANGE && values.kind != JV_UNDEF) /* what has x[...] */
        ok = bad_format(r, "has fewer conversions than values");
    ok = ok && jinja_take(r, &b, out);
    lode_buf_free(&b);
    out->mark = format.mark;
    return ok;
}

/* ---- str.format ---- */

struct braces {
    const struct jinja_args *args;
    size_t next;
    bool numbered, counted; /* fields with a number and without: not both */
};

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_spec(struct jinja_run *r, struct lode_str f, struct spec *s) {
    size_t at = 0;
    const size_t first = f.len ? jinja_char_len(f.data, f.len) : 0;
    if (f.len > first && strchr("<>^=", f.data[first]) && f.data[first]) {
        s->fill = (struct lode_str){f.data, first};
        s->align = f.data[first];
        at = first + 1;
    } else if (f.len && f.data[0] && strchr("<>^=", f.data[0])) {
        s->align = f.data[at++];
    }
    if (at < f.len && f.data[at] && strchr("+- ", f.data[at])) {
        s->sign = f.data[at] == '-' ? 0 : f.data[at];
        at++;
    }
    if (at < f.len && f.data[at] == '#') {
        s->alternate = true;
        at++;
    }
    if (at < f.len && f.data[at] == '0') {
        at++;
        if (!s->align) {
            s->align = '=';
            s->fill = LODE_STR("0");
        }
    }
    if (!read_count(r, f, &at, MAX_WIDTH, &s->width))
        return false;
    if (at < f.len && (f.data[at] == ',' || f.data[at] == '_'))
        s->group = f.data[at++];
    if (at < f.len && f.data[at] == '.') {
        at++;
        if (!read_count(r, f, &at, MAX_PRECISION, &s->precision))
            return false;
    }
    if (at < f.len)
        s->type = f.data[at++];
    return at == f.len ? jinja_spend(r, (size_t)s->width / 2 + 100)
                       : bad_format(r, "has a malformed specification");
}

static bool format_value(struct jinja_run *r, struct lode_buf *b, struct lode_str spec,
                         struct jv v) {
    struct spec s = {.fill = LODE_STR(" "), .precision = -1};
    if (spec.len == 0)
        return jinja_print(r, b, v);
    if (!read_spec(r, spec, &s))
        return false;
    if (s.type == 'n' && v.kind == JV_FLOAT)
        s.type = 'g';
    if (s.type == 'c' && jv_is_int(v)) {
        if (s.sign || s.precision >= 0 || s.group || !code_point(r, v, &v))
            return bad_format(r, "has a conversion that the value does not have");
        s.type = 's';
        format_text(b, &s, v, '<');
        return true;
    }
    const bool is_float = s.type && strchr("eEfFgG%", s.type);
    if (jv_is_number(v) && (is_float || v.kind == JV_FLOAT)) {
        if (s.type && !is_float)
            return bad_format(r, "has a conversion that the value does not have");
        return format_float(r, b, &s, jv_as_double(v));
    }
    if (jv_is_number(v) && (v.kind != JV_BOOL || spec.len)) {
        if ((s.type && !strchr("dnxXob", s.type)) || s.precision >= 0)
            return bad_format(r, "has a conversion that the value does not have");
        return format_int(r, b, &s, v);
    }
    if (v.kind != JV_STR)
        return bad_format(r, "has a specification that the value does not have");
    if ((s.type && s.type != 's') || s.align == '=' || s.sign || s.group || s.alternate)
        return bad_format(r, "has a conversion that the value does not have");
    if (!jinja_to_str(r, v, &v))
        return false;
    format_text(b, &s, v, '<');
    return true;
}

/* "0", "name", "" and what follows: .attribute and [item] */
static bool find_field(struct jinja_run *r, struct braces *x, struct lode_str field,
                       struct jv *out) {
    size_t at = 0;
    while (at < field.len && field.data[at] != '.' && field.data[at] != '[')
        at++;
    size_t index = 0, digits = 0;
    while (digits < at && field.data[digits] >= '0' && field.data[digits] <= '9' && index < 100000)
        index = index * 10 + (size_t)(field.data[digits++] - '0');
    if (digits == at) {
        if (at == 0 && field.len) /* {.name} */
            return bad_format(r, "names an attribute of nothing");
        if (at == 0)
            index = x->next++;
        x->counted = x->counted || at == 0;
        x->numbered = x->numbered || (at > 0 && at == field.len); /* {0.name} counts for neither */
        if (x->counted && x->numbered)
            return bad_format(r, "has fields with numbers and without");
        if (index >= x->args->n)
            return bad_format(r, "has more fields than values");
        *out = x->args->pos[index];
    } else {
        size_t i = 0;
        while (i < x->args->n_named &&
               !lode_str_eq(jv_text(x->args->names[i]), (struct lode_str){field.data, at}))
            i++;
        if (i == x->args->n_named)
            return bad_format(r, "names a value that is not given");
        *out = x->args->values[i];
    }
    while (at < field.len) {
        const bool is_item = field.data[at++] == '[';
        const size_t start = at;
        while (at < field.len &&
               (is_item ? field.data[at] != ']' : field.data[at] != '.' && field.data[at] != '['))
            at++;
        struct jv key;
        if (!jinja_str_borrow(r, field.data + start, at - start, &key))
            return false;
        if (is_item) {
            if (at++ >= field.len)
                return bad_format(r, "lacks a ]");
            size_t n = 0;
            int64_t i = 0;
            while (n < key.s->len && key.s->data[n] >= '0' && key.s->data[n] <= '9' && i < 1000000)
                i = i * 10 + (key.s->data[n++] - '0');
            if (n && n == key.s->len)
                key = jv_int(i);
        }
        if (!(is_item ? jinja_item(r, *out, key, out) : jinja_attr(r, *out, key, out)))
            return false;
    }
    return true;
}

static bool format_into(struct jinja_run *r, struct braces *x, struct lode_str f, bool nested,
                        struct lode_buf *b);

static bool format_field(struct jinja_run *r, struct braces *x, struct lode_str field, bool nested,
                         struct lode_buf *b) {
    size_t name = 0;
    while (name < field.len && field.data[name] != ':' && field.data[name] != '!')
        name++;
    struct jv v;
    if (!find_field(r, x, (struct lode_str){field.data, name}, &v))
        return false;
    if (name < field.len && field.data[name] == '!') {
        const char how = name + 1 < field.len ? field.data[name + 1] : 0;
        if (how != 's' && how != 'r' && how != 'a')
            return bad_format(r, "has an unknown conversion");
        if (!as_text(r, v, how, &v))
            return false;
        name += 2;
    }
    struct lode_str spec = {field.data + field.len, 0};
    if (name < field.len) {
        if (field.data[name] != ':')
            return bad_format(r, "has a malformed field");
        spec = (struct lode_str){field.data + name + 1, field.len - name - 1};
    }
    if (!memchr(spec.data, '{', spec.len))
        return format_value(r, b, spec, v);
    if (nested)
        return bad_format(r, "nests fields too deeply");
    struct lode_buf inner = {0}; /* {:{width}} */
    const bool ok =
        format_into(r, x, spec, true, &inner) &&
        (!inner.failed || jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template")) &&
        format_value(r, b, lode_buf_str(&inner), v);
    lode_buf_free(&inner);
    return ok;
}

/* b += f with its fields filled in */
static bool format_into(struct jinja_run *r, struct braces *x, struct lode_str f, bool nested,
                        struct lode_buf *b) {
    for (size_t at = 0; at < f.len;) {
        const char c = f.data[at++];
        if (c != '{' && c != '}') {
            lode_buf_addc(b, c);
            continue;
        }
        if (at < f.len && f.data[at] == c) {
            lode_buf_addc(b, c);
            at++;
            continue;
        }
        if (c == '}')
            return bad_format(r, "has a single }");
        const size_t start = at;
        for (unsigned depth = 1; at < f.len; at++) {
            depth += f.data[at] == '{';
            depth -= f.data[at] == '}';
            if (!depth)
                break;
        }
        if (at == f.len)
            return bad_format(r, "has a single {");
        const struct lode_str field = {f.data + start, at++ - start};
        if (!jinja_spend(r, 1 + b->len / 4096) || !format_field(r, x, field, nested, b))
            return false;
        if (b->len > JINJA_MAX_OUTPUT)
            return bad_format(r, "makes too long a text");
    }
    return true;
}

bool jinja_str_format(struct jinja_run *r, struct jv self, const struct jv *a,
                      const struct jinja_args *args, struct jv *out) {
    (void)a;
    struct braces x = {.args = args};
    struct lode_buf b = {0};
    const bool ok = format_into(r, &x, jv_text(self), false, &b) && jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}
