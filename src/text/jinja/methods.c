/* methods.c - the methods of strings. */
#include "text/jinja/methods.h"

#include <string.h>
#include <utf8proc.h>

bool jinja_piece(struct jinja_run *r, struct jv s, size_t from, size_t to, struct jv *out) {
    if (!jinja_str_borrow(r, s.s->data + from, to - from, out))
        return false;
    out->mark = s.mark;
    return true;
}

bool jinja_need_text(struct jinja_run *r, struct jv v, const char *what) {
    return v.kind == JV_STR ||
           jinja_type_error(r, "%s is a %s, a str expected", what, jinja_type(v));
}

bool jinja_need_int(struct jinja_run *r, struct jv v, int64_t absent, int64_t *out) {
    *out = absent;
    if (!jv_given(v) || v.kind == JV_NONE)
        return true;
    if (!jv_is_int(v))
        return jinja_type_error(r, "an argument is a %s, an int expected", jinja_type(v));
    *out = jv_as_int(v);
    return true;
}

/* ---- strip ---- */

static bool in_set(uint32_t cp, struct jv chars) {
    if (chars.kind != JV_STR)
        return jinja_is_space(cp);
    for (size_t i = 0, len; i < chars.s->len; i += len)
        if (jinja_char(chars.s->data + i, chars.s->len - i, &len) == cp)
            return true;
    return false;
}

bool jinja_strip(struct jinja_run *r, struct jv s, struct jv chars, bool left, bool right,
                 struct jv *out) {
    size_t from = 0, to = s.s->len, len;
    if (jv_given(chars) && chars.kind != JV_NONE && chars.kind != JV_STR)
        return jinja_type_error(r, "the characters to strip are a %s, a str expected",
                                jinja_type(chars));
    const size_t cost = 1 + (chars.kind == JV_STR ? JINJA_COST_WALK(chars.s->len) : 0);
    while (left && from < to && in_set(jinja_char(s.s->data + from, to - from, &len), chars)) {
        from += len;
        if (!jinja_spend(r, cost))
            return false;
    }
    while (right && from < to) {
        const size_t at = jinja_char_before(s.s, to);
        if (!jinja_spend(r, cost))
            return false;
        if (!in_set(jinja_char(s.s->data + at, to - at, &len), chars))
            break;
        to = at;
    }
    return jinja_piece(r, s, from, to, out);
}

JINJA_IS(str_strip, jinja_strip(r, self, a[0], true, true, out))
JINJA_IS(str_lstrip, jinja_strip(r, self, a[0], true, false, out))
JINJA_IS(str_rstrip, jinja_strip(r, self, a[0], false, true, out))

/* ---- split ---- */

JINJA_IS(str_split, jinja_split(r, self, a, false, out))
JINJA_IS(str_rsplit, jinja_split(r, self, a, true, out))
JINJA_IS(str_partition, jinja_partition(r, self, a[0], false, out))
JINJA_IS(str_rpartition, jinja_partition(r, self, a[0], true, out))
JINJA_IS(str_splitlines, jinja_split_lines(r, self, jinja_truth(a[0]), out))

/* ---- search ---- */

/* The last occurrence of what, or SIZE_MAX (also when the steps run out: r->rc says so). */
size_t jinja_find_last(struct jinja_run *r, struct lode_str s, struct lode_str what) {
    if (s.len < what.len || !jinja_spend(r, JINJA_COST_COPY(s.len)))
        return SIZE_MAX;
    if (what.len == 0)
        return s.len;
    for (size_t at = s.len - what.len + 1; at-- > 0;) {
        if (s.data[at] != what.data[0] || s.data[at + what.len - 1] != what.data[what.len - 1])
            continue;
        if (!jinja_spend(r, JINJA_COST_COPY(what.len)))
            return SIZE_MAX;
        if (memcmp(s.data + at, what.data, what.len) == 0)
            return at;
    }
    return SIZE_MAX;
}

/* The range of bytes that the arguments start and end choose; false: none. */
static bool byte_range(struct jinja_run *r, const struct jinja_text *s, const struct jv *a,
                       size_t *from, size_t *to, bool *empty) {
    int64_t start, end;
    const int64_t n = (int64_t)s->n_chars;
    if (!jinja_need_int(r, a[0], 0, &start) || !jinja_need_int(r, a[1], n, &end))
        return false;
    start = start < -n ? 0 : start < 0 ? start + n : start;
    end = end < -n ? 0 : end < 0 ? end + n : end > n ? n : end;
    *empty = start > end;
    *from = jinja_offset(s, (size_t)start);
    *to = *empty ? *from : jinja_offset(s, (size_t)end);
    return true;
}

static bool matches_at_edge(struct jinja_run *r, struct jv self, const struct jv *a, bool at_end,
                            struct jv *out) {
    size_t from, to, n = 1;
    bool empty;
    const struct jv *wanted = &a[0];
    if (!byte_range(r, self.s, a + 1, &from, &to, &empty))
        return false;
    if (a[0].kind == JV_TUPLE) {
        wanted = a[0].l->items;
        n = a[0].l->n;
    }
    *out = jv_bool(false);
    for (size_t i = 0; i < n; i++) {
        if (!jinja_need_text(r, wanted[i], "what to look for"))
            return false;
        const size_t len = wanted[i].s->len;
        if (!empty && len <= to - from &&
            memcmp(self.s->data + (at_end ? to - len : from), wanted[i].s->data, len) == 0)
            *out = jv_bool(true);
    }
    return true;
}

JINJA_IS(str_startswith, matches_at_edge(r, self, a, false, out))
JINJA_IS(str_endswith, matches_at_edge(r, self, a, true, out))

static bool find(struct jinja_run *r, struct jv self, const struct jv *a, bool last, bool must,
                 struct jv *out) {
    size_t from, to, at = SIZE_MAX;
    bool empty;
    if (!jinja_need_text(r, a[0], "what to look for") ||
        !byte_range(r, self.s, a + 1, &from, &to, &empty) ||
        !jinja_spend(r, JINJA_COST_COPY((to - from))))
        return false;
    const struct lode_str in = {self.s->data + from, to - from}, what = jv_text(a[0]);
    if (!empty && last) {
        at = jinja_find_last(r, in, what);
    } else if (!empty) {
        const char *found = what.len ? memmem(in.data, in.len, what.data, what.len) : in.data;
        at = found ? (size_t)(found - in.data) : SIZE_MAX;
    }
    if (r->rc < 0)
        return false;
    if (at == SIZE_MAX && must)
        return jinja_type_error(r, "the substring was not found");
    *out = jv_int(at == SIZE_MAX ? -1 : (int64_t)jinja_count_chars(self.s->data, from + at));
    return true;
}

JINJA_IS(str_find, find(r, self, a, false, false, out))
JINJA_IS(str_rfind, find(r, self, a, true, false, out))
JINJA_IS(str_index, find(r, self, a, false, true, out))
JINJA_IS(str_rindex, find(r, self, a, true, true, out))

JINJA_FN(str_count) {
    JINJA_UNUSED;
    size_t from, to;
    bool empty;
    int64_t n = 0;
    if (!jinja_need_text(r, a[0], "what to count") ||
        !byte_range(r, self.s, a + 1, &from, &to, &empty) ||
        !jinja_spend(r, JINJA_COST_COPY((to - from))))
        return false;
    if (a[0].s->len == 0)
        n = empty ? 0 : (int64_t)jinja_count_chars(self.s->data + from, to - from) + 1;
    for (const char *p = self.s->data + from; a[0].s->len && !empty; n++) {
        const char *found = memmem(p, (size_t)(self.s->data + to - p), a[0].s->data, a[0].s->len);
        if (!found)
            break;
        p = found + a[0].s->len;
    }
    *out = jv_int(n);
    return true;
}

bool jinja_replace(struct jinja_run *r, struct jv s, struct lode_str from, struct lode_str to,
                   int64_t count, struct jv *out) {
    struct lode_buf b = {0};
    size_t at = 0;
    const size_t n = s.s->len;
    if (!jinja_spend(r, JINJA_COST_COPY(n)))
        return false;
    while (count != 0 && b.len <= JINJA_MAX_OUTPUT) {
        size_t hit;
        if (from.len == 0) { /* before every character, and at the end */
            hit = at;
        } else {
            const char *found = memmem(s.s->data + at, n - at, from.data, from.len);
            if (!found)
                break;
            hit = (size_t)(found - s.s->data);
        }
        lode_buf_add(&b, s.s->data + at, hit - at);
        lode_buf_add(&b, to.data, to.len);
        at = hit + from.len;
        count -= count > 0;
        if (from.len == 0) {
            if (at == n)
                break;
            const size_t len = jinja_char_len(s.s->data + at, n - at);
            lode_buf_add(&b, s.s->data + at, len);
            at += len;
        }
    }
    lode_buf_add(&b, s.s->data + at, n - at);
    const bool ok = b.len > JINJA_MAX_OUTPUT
                        ? jinja_fail(r, LODE_ERR_LIMIT, "replace makes too long a text")
                        : jinja_take(r, &b, out);
    lode_buf_free(&b);
    out->mark = s.mark;
    return ok;
}

JINJA_FN(str_replace) {
    JINJA_UNUSED;
    int64_t count;
    return jinja_need_text(r, a[0], "what to replace") &&
           jinja_need_text(r, a[1], "the replacement") && jinja_need_int(r, a[2], -1, &count) &&
           jinja_replace(r, self, jv_text(a[0]), jv_text(a[1]), count, out);
}

static bool remove_edge(struct jinja_run *r, struct jv self, struct jv edge, bool at_end,
                        struct jv *out) {
    const size_t n = self.s->len;
    if (!jinja_need_text(r, edge, "what to remove"))
        return false;
    const size_t len = edge.s->len;
    const bool hit =
        len <= n && memcmp(self.s->data + (at_end ? n - len : 0), edge.s->data, len) == 0;
    return jinja_piece(r, self, hit && !at_end ? len : 0, hit && at_end ? n - len : n, out);
}

JINJA_IS(str_removeprefix, remove_edge(r, self, a[0], false, out))
JINJA_IS(str_removesuffix, remove_edge(r, self, a[0], true, out))

/* ---- case and padding ---- */

JINJA_IS(str_upper, jinja_change_case(r, self, 'u', out))
JINJA_IS(str_lower, jinja_change_case(r, self, 'l', out))
JINJA_IS(str_title, jinja_change_case(r, self, 't', out))
JINJA_IS(str_capitalize, jinja_change_case(r, self, 'c', out))
JINJA_IS(str_swapcase, jinja_change_case(r, self, 's', out))

static bool pad(struct jinja_run *r, struct jv self, const struct jv *a, char how, struct jv *out) {
    int64_t width;
    struct lode_str fill = LODE_STR(" ");
    if (!jinja_need_int(r, a[0], 0, &width))
        return false;
    if (jv_given(a[1])) {
        if (a[1].kind != JV_STR || a[1].s->n_chars != 1)
            return jinja_type_error(r, "the fill must be one character");
        fill = jv_text(a[1]);
    }
    const int64_t missing = width - (int64_t)self.s->n_chars;
    if (missing <= 0)
        return jinja_piece(r, self, 0, self.s->len, out);
    if (missing > JINJA_MAX_OUTPUT / 4)
        return jinja_fail(r, LODE_ERR_LIMIT, "a text cannot be padded to %lld characters",
                          (long long)width);
    if (!jinja_spend(r, (size_t)missing / 2))
        return false;
    const int64_t left = how == 'l'   ? 0 /* CPython gives the odd one to the left of odd widths */
                         : how == 'r' ? missing
                                      : missing / 2 + (missing & width & 1);
    struct lode_buf b = {0};
    for (int64_t i = 0; i < left; i++)
        lode_buf_add(&b, fill.data, fill.len);
    lode_buf_add(&b, self.s->data, self.s->len);
    for (int64_t i = left; i < missing; i++)
        lode_buf_add(&b, fill.data, fill.len);
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

JINJA_IS(str_center, pad(r, self, a, 'c', out))
JINJA_IS(str_ljust, pad(r, self, a, 'l', out))
JINJA_IS(str_rjust, pad(r, self, a, 'r', out))

JINJA_FN(str_zfill) {
    JINJA_UNUSED;
    struct jv sign, digits, zero[2] = {a[0], {0}};
    const bool has_sign = self.s->len && (self.s->data[0] == '-' || self.s->data[0] == '+');
    if (!jv_is_int(a[0]))
        return jinja_type_error(r, "the width must be an int");
    if (!jinja_piece(r, self, 0, has_sign, &sign) ||
        !jinja_piece(r, self, has_sign, self.s->len, &digits) ||
        !jinja_str_borrow(r, "0", 1, &zero[1]))
        return false;
    if (has_sign && jv_as_int(zero[0]) > 0)
        zero[0] = jv_int(jv_as_int(zero[0]) - 1);
    return pad(r, digits, zero, 'r', &digits) && jinja_concat(r, sign, digits, out);
}

/* ---- classes: true where there is a character and all are of the class ---- */

static utf8proc_category_t category(uint32_t cp) { return utf8proc_category((utf8proc_int32_t)cp); }
static bool is_alpha(uint32_t cp) {
    return category(cp) >= UTF8PROC_CATEGORY_LU && category(cp) <= UTF8PROC_CATEGORY_LO;
}
static bool is_digit(uint32_t cp) { return category(cp) == UTF8PROC_CATEGORY_ND; }
static bool is_numeric(uint32_t cp) { return jinja_is_alnum(cp) && !is_alpha(cp); }
static bool is_ascii(uint32_t cp) { return cp < 128; }

static bool all_are(struct jinja_run *r, struct jv s, bool (*test)(uint32_t cp), struct jv *out) {
    bool all = s.s->len > 0;
    for (size_t i = 0, len; i < s.s->len && all; i += len)
        all = test(jinja_char(s.s->data + i, s.s->len - i, &len));
    *out = jv_bool(all);
    return jinja_spend(r, JINJA_COST_WALK(s.s->len));
}

JINJA_IS(str_isalpha, all_are(r, self, is_alpha, out))
JINJA_IS(str_isalnum, all_are(r, self, jinja_is_alnum, out))
JINJA_IS(str_isdigit, all_are(r, self, is_digit, out))
JINJA_IS(str_isnumeric, all_are(r, self, is_numeric, out))
JINJA_IS(str_isspace, all_are(r, self, jinja_is_space, out))
JINJA_FN(str_isascii) {
    if (!all_are(r, self, is_ascii, out))
        return false;
    JINJA_UNUSED;
    out->b = out->b || self.s->len == 0;
    return true;
}

static bool has_case(struct jinja_run *r, struct jv s, utf8proc_category_t wanted,
                     utf8proc_category_t other, struct jv *out) {
    bool found = false;
    *out = jv_bool(false);
    if (!jinja_spend(r, JINJA_COST_WALK(s.s->len)))
        return false;
    for (size_t i = 0, len; i < s.s->len; i += len) {
        const utf8proc_category_t c = category(jinja_char(s.s->data + i, s.s->len - i, &len));
        if (c == other || c == UTF8PROC_CATEGORY_LT)
            return true;
        found = found || c == wanted;
    }
    *out = jv_bool(found);
    return true;
}

JINJA_IS(str_islower, has_case(r, self, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU, out))
JINJA_IS(str_isupper, has_case(r, self, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL, out))

JINJA_FN(str_istitle) {
    JINJA_UNUSED;
    bool in_word = false, found = false;
    *out = jv_bool(false);
    if (!jinja_spend(r, JINJA_COST_WALK(self.s->len)))
        return false;
    for (size_t i = 0, len; i < self.s->len; i += len) {
        const utf8proc_category_t c = category(jinja_char(self.s->data + i, self.s->len - i, &len));
        const bool upper = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT;
        if ((upper && in_word) || (c == UTF8PROC_CATEGORY_LL && !in_word))
            return true;
        in_word = upper || c == UTF8PROC_CATEGORY_LL;
        found = found || in_word;
    }
    *out = jv_bool(found);
    return true;
}

static bool is_word_char(uint32_t cp, bool first) {
    return cp == '_' || is_alpha(cp) || category(cp) == UTF8PROC_CATEGORY_NL ||
           (!first &&
            (is_digit(cp) || category(cp) == UTF8PROC_CATEGORY_MN ||
             category(cp) == UTF8PROC_CATEGORY_MC || category(cp) == UTF8PROC_CATEGORY_PC));
}

JINJA_FN(str_isidentifier) {
    JINJA_UNUSED;
    bool all = self.s->len > 0;
    for (size_t i = 0, len; i < self.s->len && all; i += len)
        all = is_word_char(jinja_char(self.s->data + i, self.s->len - i, &len), i == 0);
    *out = jv_bool(all);
    return jinja_spend(r, JINJA_COST_WALK(self.s->len));
}

JINJA_FN(str_isprintable) {
    JINJA_UNUSED;
    if (!all_are(r, self, jinja_is_printable, out))
        return false;
    out->b = out->b || self.s->len == 0;
    return true;
}

/* ---- the rest ---- */

JINJA_FN(str_join) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n;
    struct jv v, part;
    if (!jinja_items(r, a[0], &items, &n) || !jinja_str_borrow(r, "", 0, &v))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!jinja_need_text(r, items[i], "an item to join"))
            return false;
        part = items[i];
        if (self.mark && !jinja_escape(r, part, &part))
            return false;
        if ((i && !jinja_concat(r, v, self, &v)) || !jinja_concat(r, v, part, &v))
            return false;
    }
    v.mark = self.mark;
    *out = v;
    return true;
}

JINJA_FN(str_expandtabs) {
    JINJA_UNUSED;
    int64_t size, column = 0;
    struct lode_buf b = {0};
    if (!jinja_need_int(r, a[0], 8, &size) || !jinja_spend(r, JINJA_COST_WALK(self.s->len)))
        return false;
    if (size > 1000)
        return jinja_fail(r, LODE_ERR_LIMIT, "expandtabs makes tabs of at most 1000 columns");
    for (size_t i = 0, len; i < self.s->len && b.len <= JINJA_MAX_OUTPUT; i += len) {
        const uint32_t cp = jinja_char(self.s->data + i, self.s->len - i, &len);
        if (cp == '\t') {
            const int64_t n = size > 0 ? size - column % size : 0;
            for (int64_t k = 0; k < n; k++)
                lode_buf_addc(&b, ' ');
            column += n;
            continue;
        }
        lode_buf_add(&b, self.s->data + i, len);
        column = cp == '\n' || cp == '\r' ? 0 : column + 1;
    }
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

#define TEXT_JINJA_FN(name, params, required)                                                      \
    { #name, str_##name, params, required }

const struct jinja_builtin jinja_str_methods[] = {
    TEXT_JINJA_FN(capitalize, "", 0),
    {"casefold", str_lower, "", 0}, /* but for a few letters of old scripts, and eszett */
    TEXT_JINJA_FN(center, "width fillchar", 1),
    TEXT_JINJA_FN(count, "sub start end", 1),
    TEXT_JINJA_FN(endswith, "suffix start end", 1),
    TEXT_JINJA_FN(expandtabs, "tabsize", 0),
    TEXT_JINJA_FN(find, "sub start end", 1),
    {"format", jinja_str_format, NULL, 0},
    TEXT_JINJA_FN(index, "sub start end", 1),
    TEXT_JINJA_FN(isalnum, "", 0),
    TEXT_JINJA_FN(isalpha, "", 0),
    TEXT_JINJA_FN(isascii, "", 0),
    {"isdecimal", str_isdigit, "", 0},
    TEXT_JINJA_FN(isdigit, "", 0),
    TEXT_JINJA_FN(isidentifier, "", 0),
    TEXT_JINJA_FN(islower, "", 0),
    TEXT_JINJA_FN(isnumeric, "", 0),
    TEXT_JINJA_FN(isprintable, "", 0),
    TEXT_JINJA_FN(isspace, "", 0),
    TEXT_JINJA_FN(istitle, "", 0),
    TEXT_JINJA_FN(isupper, "", 0),
    TEXT_JINJA_FN(join, "iterable", 1),
    TEXT_JINJA_FN(ljust, "width fillchar", 1),
    TEXT_JINJA_FN(lower, "", 0),
    TEXT_JINJA_FN(lstrip, "chars", 0),
    TEXT_JINJA_FN(partition, "sep", 1),
    TEXT_JINJA_FN(removeprefix, "prefix", 1),
    TEXT_JINJA_FN(removesuffix, "suffix", 1),
    TEXT_JINJA_FN(replace, "old new count", 2),
    TEXT_JINJA_FN(rfind, "sub start end", 1),
    TEXT_JINJA_FN(rindex, "sub start end", 1),
    TEXT_JINJA_FN(rjust, "width fillchar", 1),
    TEXT_JINJA_FN(rpartition, "sep", 1),
    TEXT_JINJA_FN(rsplit, "sep maxsplit", 0),
    TEXT_JINJA_FN(rstrip, "chars", 0),
    TEXT_JINJA_FN(split, "sep maxsplit", 0),
    TEXT_JINJA_FN(splitlines, "keepends", 0),
    TEXT_JINJA_FN(startswith, "prefix start end", 1),
    TEXT_JINJA_FN(strip, "chars", 0),
    TEXT_JINJA_FN(swapcase, "", 0),
    TEXT_JINJA_FN(title, "", 0),
    TEXT_JINJA_FN(upper, "", 0),
    TEXT_JINJA_FN(zfill, "width", 1),
    {0},
};
