/* print.c - str() and repr() as Python writes them. */
#include "text/jinja/jinja.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* The shortest digits that read back as f, as Python chooses between 1e+16 and 0.0001. */
void jinja_float_repr(double f, char out[40]) {
    if (isnan(f) || isinf(f)) {
        snprintf(out, 40, isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
        return;
    }
    char text[40];
    /* 15 digits are the shortest whenever they suffice (once trailing zeros are gone), but for
     * subnormals, which have fewer. */
    for (int precision = fabs(f) < DBL_MIN ? 0 : 14; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, f);
        if (strtod(text, NULL) == f)
            break;
    }
    char digits[24];
    size_t n = 0;
    const char *p = text + (*text == '-');
    for (; *p && *p != 'e'; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    const int exponent = atoi(p + 1);
    char *o = out; /* at most 1 + 18 + 5 characters, or 1 + 5 + 17 */
    if (*text == '-')
        *o++ = '-';
    if (exponent < -4 || exponent >= 16) {
        o += snprintf(o, 38, n > 1 ? "%c.%.*s" : "%c", digits[0], (int)n - 1, digits + 1);
        snprintf(o, 16, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(o, 38, "0.%.*s%.*s", -exponent - 1, "000", (int)n, digits);
    } else {
        for (int i = 0; i <= exponent; i++)
            *o++ = (size_t)i < n ? digits[i] : '0';
        *o++ = '.';
        if ((size_t)exponent + 1 < n)
            snprintf(o, 20, "%.*s", (int)n - exponent - 1, digits + exponent + 1);
        else
            snprintf(o, 2, "0");
    }
}

bool jinja_is_printable(uint32_t cp) {
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return cp == ' ' ||
           !(c == UTF8PROC_CATEGORY_CN || c == UTF8PROC_CATEGORY_ZS || c == UTF8PROC_CATEGORY_ZL ||
             c == UTF8PROC_CATEGORY_ZP || c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF ||
             c == UTF8PROC_CATEGORY_CS || c == UTF8PROC_CATEGORY_CO);
}

static void repr_text(struct lode_buf *b, const struct jinja_text *s) {
    const bool has_single = s->len && memchr(s->data, '\'', s->len);
    const char quote = has_single && !memchr(s->data, '"', s->len) ? '"' : '\'';
    lode_buf_addc(b, quote);
    for (size_t i = 0, len; i < s->len; i += len) {
        const uint32_t cp = jinja_char(s->data + i, s->len - i, &len);
        const char *escape = cp == '\n' ? "\\n" : cp == '\r' ? "\\r" : cp == '\t' ? "\\t" : NULL;
        if (escape)
            lode_buf_addz(b, escape);
        else if (cp == '\\' || cp == (uint32_t)quote)
            lode_buf_addf(b, "\\%c", (char)cp);
        else if (cp < ' ' || cp == 127 || (cp > 127 && !jinja_is_printable(cp)))
            lode_buf_addf(b, cp < 256 ? "\\x%02x" : cp < 65536 ? "\\u%04x" : "\\U%08x", cp);
        else
            lode_buf_add(b, s->data + i, len);
    }
    lode_buf_addc(b, quote);
}

static bool repr(struct jinja_run *r, struct lode_buf *b, struct jv v, unsigned depth);

static bool repr_items(struct jinja_run *r, struct lode_buf *b, const struct jinja_list *l,
                       const char *open, const char *close, unsigned depth) {
    lode_buf_addz(b, open);
    for (size_t i = 0; i < l->n; i++) {
        if (i)
            lode_buf_addz(b, ", ");
        if (!repr(r, b, l->items[i], depth + 1))
            return false;
    }
    lode_buf_addz(b, close);
    return true;
}

static bool repr_dict(struct jinja_run *r, struct lode_buf *b, const struct jinja_dict *d,
                      const char *open, const char *close, unsigned depth) {
    lode_buf_addz(b, open);
    for (uint32_t i = 0; i < d->n; i++) {
        if (i)
            lode_buf_addz(b, ", ");
        if (!repr(r, b, d->keys[i], depth + 1))
            return false;
        lode_buf_addz(b, ": ");
        if (!repr(r, b, d->values[i], depth + 1))
            return false;
    }
    lode_buf_addz(b, close);
    return true;
}

static bool repr(struct jinja_run *r, struct lode_buf *b, struct jv v, unsigned depth) {
    char number[40];
    if (!jinja_spend(r, 1))
        return false;
    if (depth > JINJA_MAX_NESTING || b->len > JINJA_MAX_OUTPUT)
        return jinja_fail(r, LODE_ERR_LIMIT, "a value is too deep or too large to print");
    switch (v.kind) {
    case JV_UNDEF:
        lode_buf_addz(b, "Undefined");
        return true;
    case JV_NONE:
        lode_buf_addz(b, "None");
        return true;
    case JV_BOOL:
        lode_buf_addz(b, v.b ? "True" : "False");
        return true;
    case JV_INT:
        lode_buf_addf(b, "%lld", (long long)v.i);
        return true;
    case JV_FLOAT:
        jinja_float_repr(v.f, number);
        lode_buf_addz(b, number);
        return jinja_spend(r, 100);
    case JV_BIG:
        lode_buf_add(b, v.s->data, v.s->len);
        return true;
    case JV_STR:
        if (v.mark)
            lode_buf_addz(b, "Markup(");
        repr_text(b, v.s);
        if (v.mark)
            lode_buf_addc(b, ')');
        return jinja_spend(r, JINJA_COST_WALK(v.s->len));
    case JV_LIST:
        return repr_items(r, b, v.l, "[", "]", depth);
    case JV_TUPLE:
        return repr_items(r, b, v.l, "(", v.l->n == 1 ? ",)" : ")", depth);
    case JV_VIEW:
        lode_buf_addz(b, v.l->name);
        return repr_items(r, b, v.l, "([", "])", depth);
    case JV_RANGE:
        lode_buf_addf(b, "range(%lld, %lld", (long long)v.l->start, (long long)v.l->stop);
        if (v.l->step != 1)
            lode_buf_addf(b, ", %lld", (long long)v.l->step);
        lode_buf_addc(b, ')');
        return true;
    case JV_DICT:
        return repr_dict(r, b, v.d, "{", "}", depth);
    case JV_NS:
        return repr_dict(r, b, v.d, "<Namespace {", "}>", depth);
    case JV_MACRO: {
        const struct lode_str name = r->t->syms[v.m->node->sym];
        lode_buf_addf(b, "<Macro '%.*s'>", (int)name.len, name.data);
        return true;
    }
    case JV_LOOP: {
        size_t n;
        if (!jinja_len(r, v, &n))
            return false;
        lode_buf_addf(b, "<LoopContext %zu/%zu>", v.loop->index0 + 1, n);
        return true;
    }
    default: /* Python prints addresses here */
        lode_buf_addf(b, "<%s>", jinja_type(v));
        return true;
    }
}

bool jinja_repr(struct jinja_run *r, struct lode_buf *b, struct jv v) {
    return repr(r, b, v, 0);
}

bool jinja_print(struct jinja_run *r, struct lode_buf *b, struct jv v) {
    if (v.kind == JV_STR) {
        lode_buf_add(b, v.s->data, v.s->len);
        return jinja_spend(r, JINJA_COST_COPY(v.s->len));
    }
    return v.kind == JV_UNDEF || jinja_repr(r, b, v);
}

bool jinja_take(struct jinja_run *r, struct lode_buf *b, struct jv *out) {
    if (b->failed)
        return jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template");
    return jinja_str(r, b->data, b->len, out);
}

bool jinja_to_str(struct jinja_run *r, struct jv v, struct jv *out) {
    if (v.kind == JV_STR) {
        *out = v;
        return true;
    }
    struct lode_buf b = {0};
    const bool ok = jinja_print(r, &b, v) && jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}
