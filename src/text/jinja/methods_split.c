/* methods_split.c - texts into lists of texts. */
#include "text/jinja/methods.h"

#include <string.h>

/* ---- growing lists ---- */

struct list {
    struct jv *items;
    size_t n, cap;
};

static bool push(struct jinja_run *r, struct list *l, struct jv v) {
    if (l->n == l->cap) {
        const size_t cap = l->cap ? l->cap * 2 : 4;
        struct jv *items = jinja_alloc(r, cap, sizeof *items);
        if (!items)
            return false;
        if (l->n)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = v;
    return true;
}

static bool push_piece(struct jinja_run *r, struct list *l, struct jv s, size_t from, size_t to) {
    struct jv v;
    return jinja_piece(r, s, from, to, &v) && push(r, l, v);
}

static void reverse(struct list *l) {
    for (size_t i = 0; i < l->n / 2; i++) {
        const struct jv v = l->items[i];
        l->items[i] = l->items[l->n - 1 - i];
        l->items[l->n - 1 - i] = v;
    }
}

/* ---- split ---- */

static bool split_space(struct jinja_run *r, struct jv s, int64_t most, struct list *l) {
    size_t at = 0, len;
    const size_t n = s.s->len;
    for (;;) {
        while (at < n && jinja_is_space(jinja_char(s.s->data + at, n - at, &len)))
            at += len;
        if (at == n)
            return true;
        size_t end = at;
        if (most >= 0 && (int64_t)l->n >= most) {
            end = n; /* the rest, without the white space at its end */
            struct jv rest;
            return jinja_piece(r, s, at, end, &rest) && push(r, l, rest);
        }
        while (end < n && !jinja_is_space(jinja_char(s.s->data + end, n - end, &len)))
            end += len;
        if (!push_piece(r, l, s, at, end))
            return false;
        at = end;
    }
}

static bool rsplit_space(struct jinja_run *r, struct jv s, int64_t most, struct list *l) {
    size_t end = s.s->len, len;
    for (;;) {
        size_t at = end;
        while (end > 0) {
            at = jinja_char_before(s.s, end);
            if (!jinja_is_space(jinja_char(s.s->data + at, end - at, &len)))
                break;
            end = at;
        }
        if (end == 0)
            break;
        if (most >= 0 && (int64_t)l->n >= most) {
            if (!push_piece(r, l, s, 0, end))
                return false;
            break;
        }
        size_t from = end;
        while (from > 0) {
            at = jinja_char_before(s.s, from);
            if (jinja_is_space(jinja_char(s.s->data + at, from - at, &len)))
                break;
            from = at;
        }
        if (!push_piece(r, l, s, from, end))
            return false;
        end = from;
    }
    reverse(l);
    return true;
}

static bool split_by(struct jinja_run *r, struct jv s, struct lode_str by, int64_t most,
                     struct list *l) {
    size_t at = 0;
    while (most < 0 || (int64_t)l->n < most) {
        const char *found = memmem(s.s->data + at, s.s->len - at, by.data, by.len);
        if (!found)
            break;
        const size_t to = (size_t)(found - s.s->data);
        if (!push_piece(r, l, s, at, to))
            return false;
        at = to + by.len;
    }
    return push_piece(r, l, s, at, s.s->len);
}

static bool rsplit_by(struct jinja_run *r, struct jv s, struct lode_str by, int64_t most,
                      struct list *l) {
    size_t end = s.s->len;
    while (most < 0 || (int64_t)l->n < most) {
        const size_t at = jinja_find_last(r, (struct lode_str){s.s->data, end}, by);
        if (at == SIZE_MAX)
            break;
        if (!push_piece(r, l, s, at + by.len, end))
            return false;
        end = at;
    }
    if (!push_piece(r, l, s, 0, end))
        return false;
    reverse(l);
    return true;
}

bool jinja_split(struct jinja_run *r, struct jv self, const struct jv *a, bool from_right,
                 struct jv *out) {
    int64_t most;
    struct list l = {0};
    bool ok;
    if (!jinja_need_int(r, a[1], -1, &most) || !jinja_spend(r, JINJA_COST_WALK(self.s->len)))
        return false;
    if (!jv_given(a[0]) || a[0].kind == JV_NONE) {
        ok = from_right ? rsplit_space(r, self, most, &l) : split_space(r, self, most, &l);
    } else {
        if (!jinja_need_text(r, a[0], "the separator"))
            return false;
        if (a[0].s->len == 0)
            return jinja_type_error(r, "the separator is empty");
        ok = from_right ? rsplit_by(r, self, jv_text(a[0]), most, &l)
                        : split_by(r, self, jv_text(a[0]), most, &l);
    }
    return ok && jinja_list(r, l.items, l.n, out);
}

static bool is_line_break(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 28 && cp <= 30) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

bool jinja_split_lines(struct jinja_run *r, struct jv self, bool keep_ends, struct jv *out) {
    struct list l = {0};
    const struct jinja_text *s = self.s;
    size_t start = 0;
    if (!jinja_spend(r, JINJA_COST_WALK(s->len)))
        return false;
    for (size_t i = 0, len; i < s->len; i += len) {
        const uint32_t cp = jinja_char(s->data + i, s->len - i, &len);
        if (!is_line_break(cp))
            continue;
        size_t next = i + len;
        if (cp == '\r' && next < s->len && s->data[next] == '\n')
            next++;
        if (!push_piece(r, &l, self, start, keep_ends ? next : i))
            return false;
        start = next;
        len = next - i;
    }
    return (start == s->len || push_piece(r, &l, self, start, s->len)) &&
           jinja_list(r, l.items, l.n, out);
}

bool jinja_partition(struct jinja_run *r, struct jv self, struct jv by, bool last, struct jv *out) {
    if (!jinja_need_text(r, by, "the separator"))
        return false;
    if (by.s->len == 0)
        return jinja_type_error(r, "the separator is empty");
    size_t at;
    if (last) {
        at = jinja_find_last(r, jv_text(self), jv_text(by));
    } else {
        const char *found = memmem(self.s->data, self.s->len, by.s->data, by.s->len);
        at = found ? (size_t)(found - self.s->data) : SIZE_MAX;
    }
    struct list l = {0};
    const size_t n = self.s->len;
    const bool none = at == SIZE_MAX;
    const size_t cut1 = none ? (last ? 0 : n) : at, cut2 = none ? cut1 : at + by.s->len;
    if (!push_piece(r, &l, self, 0, cut1) || !push_piece(r, &l, self, cut1, cut2) ||
        !push_piece(r, &l, self, cut2, n) || !jinja_list(r, l.items, 3, out))
        return false;
    out->kind = JV_TUPLE;
    return true;
}
