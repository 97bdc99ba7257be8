/* seq.c - filters over sequences.
 *
 * Those that jinja2 writes as generators give JV_GEN: always true, without length, read once. */
#include "text/jinja/jinja.h"

#include <string.h>

/* Not static: the table of filters names them. */
#define FILTER(name)                                                                               \
    bool jinja_filter_##name(struct jinja_run *r, struct jv self, const struct jv *a,              \
                             const struct jinja_args *args, struct jv *out)
#define FILTER_IS(name, result)                                                                    \
    FILTER(name) {                                                                                 \
        JINJA_UNUSED;                                                                              \
        return result;                                                                             \
    }

static struct jv *copy_items(struct jinja_run *r, const struct jv *items, size_t n) {
    struct jv *copy = jinja_alloc(r, n, sizeof *copy);
    if (copy && n)
        memcpy(copy, items, n * sizeof *copy);
    return copy;
}

/* ---- keys: what sort, unique, min, max, map and groupby look at ---- */

struct key {
    struct jv path; /* JV_MISSING, an int, or "a.b.0" */
    struct jv absent;
    bool fold_case;
    bool many; /* a list of keys, by "a,b": as lists compare, equal items are passed over */
};

/* One step along a path: a run of digits is an index. */
static bool step(struct jinja_run *r, struct jv v, struct lode_str part, struct jv *out) {
    int64_t index = 0;
    size_t n = 0;
    while (n < part.len && part.data[n] >= '0' && part.data[n] <= '9' && index < 1000000000)
        index = index * 10 + (part.data[n++] - '0');
    struct jv key = jv_int(index);
    if ((n == 0 || n < part.len) && !jinja_str_borrow(r, part.data, part.len, &key))
        return false;
    return jinja_item(r, v, key, out);
}

static bool fold(struct jinja_run *r, const struct key *k, struct jv *v) {
    return !k->fold_case || v->kind != JV_STR || jinja_change_case(r, *v, 'l', v);
}

static bool walk(struct jinja_run *r, const struct key *k, struct lode_str path, struct jv v,
                 struct jv *out) {
    while (path.len) {
        const char *dot = memchr(path.data, '.', path.len);
        const size_t n = dot ? (size_t)(dot - path.data) : path.len;
        if (!step(r, v, (struct lode_str){path.data, n}, &v))
            return false;
        if (v.kind == JV_UNDEF && jv_given(k->absent))
            v = k->absent;
        path.data += n + (dot != NULL);
        path.len -= n + (dot != NULL);
    }
    *out = v;
    return fold(r, k, out);
}

static bool one_key(struct jinja_run *r, const struct key *k, struct jv v, struct jv *out) {
    if (!jv_given(k->path) || k->path.kind == JV_NONE) {
        *out = v;
        return fold(r, k, out);
    }
    if (k->path.kind != JV_STR) {
        if (!jinja_item(r, v, k->path, out))
            return false;
        if (out->kind == JV_UNDEF && jv_given(k->absent))
            *out = k->absent;
        return fold(r, k, out);
    }
    return walk(r, k, jv_text(k->path), v, out);
}

static bool key_of(struct jinja_run *r, const struct key *k, struct jv v, struct jv *out) {
    if (!k->many)
        return one_key(r, k, v, out);
    struct jv parts[8];
    size_t n = 0;
    if (k->path.kind != JV_STR && !one_key(r, k, v, &parts[n++]))
        return false;
    for (size_t at = 0; k->path.kind == JV_STR && at <= k->path.s->len; n++) {
        const char *start = k->path.s->data + at;
        const char *comma = memchr(start, ',', k->path.s->len - at);
        const size_t len = comma ? (size_t)(comma - start) : k->path.s->len - at;
        if (n == sizeof parts / sizeof *parts)
            return jinja_type_error(r, "more than %zu attributes to sort by", n);
        if (!walk(r, k, (struct lode_str){start, len}, v, &parts[n]))
            return false;
        at += len + 1;
    }
    struct jv *items = copy_items(r, parts, n);
    return items && jinja_list(r, items, n, out);
}

/* ---- sorting ---- */

struct sortable {
    struct jv key, value;
};

/* Stable, by merging; reverse keeps the order of equals, as Python's sorted does. */
static bool sort_items(struct jinja_run *r, struct sortable *items, size_t n, bool reverse) {
    struct sortable *from = items, *to = jinja_alloc(r, n, sizeof *to);
    if (!to)
        return false;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t at = 0; at < n; at += 2 * width) {
            const size_t mid = at + width < n ? at + width : n;
            const size_t end = at + 2 * width < n ? at + 2 * width : n;
            size_t i = at, j = mid;
            for (size_t k = at; k < end; k++) {
                bool take_right = i == mid;
                if (i < mid && j < end &&
                    !(reverse ? jinja_less(r, from[i].key, from[j].key, '<', &take_right)
                              : jinja_less(r, from[j].key, from[i].key, '<', &take_right)))
                    return false;
                to[k] = take_right ? from[j++] : from[i++];
            }
        }
        struct sortable *const swap = from;
        from = to;
        to = swap;
    }
    if (from != items && n)
        memcpy(items, from, n * sizeof *items);
    return true;
}

static struct sortable *sortables(struct jinja_run *r, struct jv self, const struct key *k,
                                  size_t *n) {
    const struct jv *items;
    if (self.kind == JV_UNDEF)
        *n = 0;
    if (!jinja_items(r, self, &items, n))
        return NULL;
    struct sortable *s = jinja_alloc(r, *n, sizeof *s);
    for (size_t i = 0; s && i < *n; i++) {
        s[i].value = items[i];
        if (!key_of(r, k, items[i], &s[i].key))
            return NULL;
    }
    return s;
}

static bool values_of(struct jinja_run *r, const struct sortable *s, size_t n, struct jv *out) {
    struct jv *items = jinja_alloc(r, n, sizeof *items);
    for (size_t i = 0; items && i < n; i++)
        items[i] = s[i].value;
    return items && jinja_list(r, items, n, out);
}

FILTER(sort) {
    JINJA_UNUSED;
    const struct key k = {.path = a[2], .fold_case = !jinja_truth(a[1]), .many = true};
    size_t n;
    struct sortable *s = sortables(r, self, &k, &n);
    return s && sort_items(r, s, n, jinja_truth(a[0])) && values_of(r, s, n, out);
}

FILTER(dictsort) {
    JINJA_UNUSED;
    const bool by_value = jv_is_text(a[1], "value");
    const struct key k = {.fold_case = !jinja_truth(a[0])};
    if (self.kind == JV_UNDEF)
        return jinja_undef_error(r, self);
    if (self.kind != JV_DICT)
        return jinja_type_error(r, "dictsort of a %s", jinja_type(self));
    if (jv_given(a[1]) && !by_value && !jv_is_text(a[1], "key"))
        return jinja_type_error(r, "dictsort sorts by key or by value");
    const size_t n = self.d->n;
    struct sortable *s = jinja_alloc(r, n, sizeof *s);
    for (size_t i = 0; s && i < n; i++)
        if (!jinja_tuple2(r, self.d->keys[i], self.d->values[i], &s[i].value) ||
            !key_of(r, &k, by_value ? self.d->values[i] : self.d->keys[i], &s[i].key))
            return false;
    return s && sort_items(r, s, n, jinja_truth(a[2])) && values_of(r, s, n, out);
}

FILTER(groupby) {
    JINJA_UNUSED;
    const bool fold_case = !jinja_truth(a[2]);
    const struct key k = {.path = a[0], .absent = a[1], .fold_case = fold_case};
    const struct key own = {.path = a[0], .absent = a[1]};
    size_t n, groups = 0;
    struct sortable *s = sortables(r, self, &k, &n);
    struct jv *items = s ? jinja_alloc(r, n, sizeof *items) : NULL;
    if (!items || !sort_items(r, s, n, false))
        return false;
    for (size_t at = 0, end; at < n; at = end) {
        bool same = true;
        for (end = at + 1; end < n; end++) {
            if (!jinja_equal(r, s[at].key, s[end].key, &same))
                return false;
            if (!same)
                break;
        }
        struct jv name = s[at].key, members;
        if ((fold_case && !key_of(r, &own, s[at].value, &name)) ||
            !values_of(r, s + at, end - at, &members) ||
            !jinja_tuple2(r, name, members, &items[groups]))
            return false;
        items[groups++].mark = true; /* has the attributes grouper and list */
    }
    return jinja_list(r, items, groups, out);
}

static bool extreme(struct jinja_run *r, struct jv self, const struct jv *a, uint32_t op,
                    struct jv *out) {
    const struct key k = {.path = a[1], .fold_case = !jinja_truth(a[0])};
    size_t n, best = 0;
    const struct sortable *s = sortables(r, self, &k, &n);
    if (!s)
        return false;
    if (n == 0)
        return jinja_undef(r, out, "No aggregated item, sequence was empty.");
    for (size_t i = 1; i < n; i++) {
        bool better;
        if (!jinja_less(r, s[i].key, s[best].key, op, &better))
            return false;
        best = better ? i : best;
    }
    *out = s[best].value;
    return true;
}

FILTER_IS(min, extreme(r, self, a, '<', out))
FILTER_IS(max, extreme(r, self, a, '>', out))

FILTER(unique) {
    JINJA_UNUSED;
    const struct key k = {.path = a[1], .fold_case = !jinja_truth(a[0])};
    size_t n, kept = 0;
    const struct sortable *s = sortables(r, self, &k, &n);
    struct jinja_dict *seen = s ? jinja_dict_new(r) : NULL;
    struct jv *items = seen ? jinja_alloc(r, n, sizeof *items) : NULL;
    for (size_t i = 0; items && i < n; i++) {
        const uint32_t before = seen->n;
        if (!jinja_dict_put(r, seen, s[i].key, jv_none()))
            return false;
        if (seen->n > before)
            items[kept++] = s[i].value;
    }
    return items && jinja_gen(r, items, kept, out);
}

/* ---- map, select, reject ---- */

/* Of nothing they give nothing, whatever their arguments. */
static bool of_nothing(struct jinja_run *r, struct jv *out) {
    struct jv *none = jinja_alloc(r, 0, sizeof *none);
    return none && jinja_gen(r, none, 0, out);
}

FILTER(map) {
    JINJA_UNUSED;
    const struct jv *items;
    struct key k = {.fold_case = false};
    const struct jinja_builtin *filter = NULL;
    size_t n;
    if (!jinja_truth(self))
        return of_nothing(r, out);
    for (size_t i = 0; args->n == 0 && i < args->n_named; i++) {
        if (jv_is_text(args->names[i], "attribute"))
            k.path = args->values[i];
        else if (jv_is_text(args->names[i], "default"))
            k.absent = args->values[i];
        else
            return jinja_type_error(r, "map takes a filter, or attribute and default");
    }
    if (!jv_given(k.path)) {
        if (args->n == 0 || args->pos[0].kind != JV_STR)
            return jinja_type_error(r, "map needs the name of a filter");
        if (!(filter = jinja_find(jinja_filters, jv_text(args->pos[0]))))
            return jinja_type_error(r, "there is no filter named %.*s", (int)args->pos[0].s->len,
                                    args->pos[0].s->data);
    }
    if (!jinja_items(r, self, &items, &n))
        return false;
    struct jv *mapped = jinja_alloc(r, n, sizeof *mapped);
    const struct jinja_args rest = {filter ? args->pos + 1 : NULL, filter ? args->n - 1 : 0,
                                    args->names, args->values, filter ? args->n_named : 0};
    for (size_t i = 0; mapped && i < n; i++)
        if (!(filter ? jinja_builtin_call(r, filter, items[i], &rest, &mapped[i])
                     : key_of(r, &k, items[i], &mapped[i])))
            return false;
    return mapped && jinja_gen(r, mapped, n, out);
}

static bool pick(struct jinja_run *r, struct jv self, const struct jinja_args *args, bool by_attr,
                 bool wanted, struct jv *out) {
    const struct jv *items;
    struct key k = {.fold_case = false};
    const struct jinja_builtin *test = NULL;
    size_t n, kept = 0;
    if (!jinja_truth(self))
        return of_nothing(r, out);
    if (by_attr && args->n == 0)
        return jinja_type_error(r, "selectattr and rejectattr need the name of an attribute");
    if (by_attr)
        k.path = args->pos[0];
    if (args->n > by_attr) {
        const struct jv name = args->pos[by_attr];
        if (name.kind != JV_STR || !(test = jinja_find(jinja_tests, jv_text(name))))
            return jinja_type_error(r, "there is no test named %.*s",
                                    name.kind == JV_STR ? (int)name.s->len : 4,
                                    name.kind == JV_STR ? name.s->data : "that");
    }
    if (!jinja_items(r, self, &items, &n))
        return false;
    struct jv *picked = jinja_alloc(r, n, sizeof *picked);
    const size_t used = by_attr + (test != NULL);
    const struct jinja_args rest = {args->pos + used, args->n - used, args->names, args->values,
                                    args->n_named};
    for (size_t i = 0; picked && i < n; i++) {
        struct jv v;
        if (!key_of(r, &k, items[i], &v) || (test && !jinja_builtin_call(r, test, v, &rest, &v)))
            return false;
        if (jinja_truth(v) == wanted)
            picked[kept++] = items[i];
    }
    return picked && jinja_gen(r, picked, kept, out);
}

FILTER_IS(select, pick(r, self, args, false, true, out))
FILTER_IS(selectattr, pick(r, self, args, true, true, out))
FILTER_IS(reject, pick(r, self, args, false, false, out))
FILTER_IS(rejectattr, pick(r, self, args, true, false, out))

/* ---- the rest ---- */

FILTER(length) {
    JINJA_UNUSED;
    size_t n;
    if (!jinja_len(r, self, &n))
        return false;
    *out = jv_int((int64_t)n);
    return true;
}

FILTER(list) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n;
    return jinja_items(r, self, &items, &n) && jinja_list(r, items, n, out);
}

FILTER(items) {
    JINJA_UNUSED;
    if (self.kind == JV_UNDEF)
        return jinja_gen(r, NULL, 0, out);
    if (self.kind != JV_DICT)
        return jinja_type_error(r, "only a dict has items, not a %s", jinja_type(self));
    struct jv *pairs = jinja_alloc(r, self.d->n, sizeof *pairs);
    for (uint32_t i = 0; pairs && i < self.d->n; i++)
        if (!jinja_tuple2(r, self.d->keys[i], self.d->values[i], &pairs[i]))
            return false;
    return pairs && jinja_gen(r, pairs, self.d->n, out);
}

FILTER(first) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n;
    if (self.kind == JV_GEN) { /* takes one, and leaves the rest */
        if (self.g->at < self.g->n) {
            *out = self.g->items[self.g->at++];
            return true;
        }
        return jinja_undef(r, out, "No first item, sequence was empty.");
    }
    if (self.kind == JV_STR && self.s->len)
        return jinja_item(r, self, jv_int(0), out);
    if (!jinja_items(r, self, &items, &n))
        return false;
    if (n == 0)
        return jinja_undef(r, out, "No first item, sequence was empty.");
    *out = items[0];
    return true;
}

FILTER(last) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n;
    if (self.kind == JV_GEN)
        return jinja_type_error(r, "a generator has no last item: make a list of it first");
    if (self.kind == JV_STR && self.s->len)
        return jinja_item(r, self, jv_int(-1), out);
    if (!jinja_items(r, self, &items, &n))
        return false;
    if (n == 0)
        return jinja_undef(r, out, "No last item, sequence was empty.");
    *out = items[n - 1];
    return true;
}

FILTER(reverse) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n;
    if (self.kind == JV_STR)
        return jinja_slice(r, self, (struct jv){0}, (struct jv){0}, jv_int(-1), out);
    if (!jinja_items(r, self, &items, &n))
        return false;
    struct jv *reversed = jinja_alloc(r, n, sizeof *reversed);
    for (size_t i = 0; reversed && i < n; i++)
        reversed[i] = items[n - 1 - i];
    return reversed &&
           (self.kind == JV_GEN ? jinja_list(r, reversed, n, out) : jinja_gen(r, reversed, n, out));
}

FILTER(join) {
    JINJA_UNUSED;
    const struct key k = {.path = a[1]};
    const struct jv *items;
    struct jv by, text, item;
    size_t n;
    if (!jinja_str_borrow(r, "", 0, &text) || !jinja_items(r, self, &items, &n))
        return false;
    by = text;
    if (jv_given(a[0]) && !jinja_to_str(r, a[0], &by))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!key_of(r, &k, items[i], &item) || !jinja_to_str(r, item, &item) ||
            (i && !jinja_concat(r, text, by, &text)) || !jinja_concat(r, text, item, &text))
            return false;
    }
    *out = text;
    return true;
}

FILTER(sum) {
    JINJA_UNUSED;
    const struct key k = {.path = a[0]};
    const struct jv *items;
    size_t n;
    *out = jv_given(a[1]) ? a[1] : jv_int(0);
    if (!jinja_items(r, self, &items, &n))
        return false;
    if (out->kind == JV_STR)
        return jinja_type_error(r, "sum of strings: use join");
    for (size_t i = 0; i < n; i++) {
        struct jv v;
        if (!key_of(r, &k, items[i], &v) || !jinja_binary(r, '+', *out, v, out))
            return false;
    }
    return true;
}

FILTER(batch) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n, groups = 0;
    if (!jinja_items(r, self, &items, &n))
        return false;
    if (!jv_is_int(a[0]) || jv_as_int(a[0]) < 1) /* Python's makes one line of all, which helps none */
        return jinja_type_error(r, "batch needs how many items a line has");
    const size_t line =
        jv_as_int(a[0]) > JINJA_MAX_RANGE ? JINJA_MAX_RANGE : (size_t)jv_as_int(a[0]);
    const bool fill = jv_given(a[1]) && a[1].kind != JV_NONE;
    struct jv *lists = jinja_alloc(r, n / line + 1, sizeof *lists);
    for (size_t at = 0; lists && at < n; at += line) {
        const size_t have = n - at < line ? n - at : line, len = fill ? line : have;
        struct jv *group = jinja_alloc(r, len, sizeof *group);
        if (!group)
            return false;
        for (size_t i = 0; i < len; i++)
            group[i] = i < have ? items[at + i] : a[1];
        if (!jinja_list(r, group, len, &lists[groups++]))
            return false;
    }
    return lists && jinja_gen(r, lists, groups, out);
}

FILTER(slice) {
    JINJA_UNUSED;
    const struct jv *items;
    size_t n, at = 0;
    if (!jinja_items(r, self, &items, &n))
        return false;
    if (!jv_is_int(a[0]) || jv_as_int(a[0]) < 1 || jv_as_int(a[0]) > JINJA_MAX_RANGE)
        return jinja_type_error(r, "slice needs how many lists to make");
    const size_t slices = (size_t)jv_as_int(a[0]), each = n / slices, more = n % slices;
    const bool fill = jv_given(a[1]) && a[1].kind != JV_NONE;
    struct jv *lists = jinja_alloc(r, slices, sizeof *lists);
    for (size_t s = 0; lists && s < slices; s++) {
        const size_t have = each + (s < more), len = have + (fill && s >= more);
        struct jv *group = jinja_alloc(r, len, sizeof *group);
        if (!group)
            return false;
        for (size_t i = 0; i < len; i++)
            group[i] = i < have ? items[at + i] : a[1];
        at += have;
        if (!jinja_list(r, group, len, &lists[s]))
            return false;
    }
    return lists && jinja_gen(r, lists, slices, out);
}
