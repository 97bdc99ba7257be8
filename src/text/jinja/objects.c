/* objects.c - the methods of lists, dicts, loop and cycler: those that modify nothing. */
#include "text/jinja/jinja.h"

#include <math.h>
#include <string.h>

/* ---- lists ---- */

JINJA_FN(list_count) {
    JINJA_UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < self.l->n; i++) {
        bool same;
        if (!jinja_equal(r, self.l->items[i], a[0], &same))
            return false;
        n += same;
    }
    *out = jv_int(n);
    return true;
}

JINJA_FN(list_index) {
    JINJA_UNUSED;
    for (size_t i = 0; i < self.l->n; i++) {
        bool same;
        if (!jinja_equal(r, self.l->items[i], a[0], &same))
            return false;
        if (same) {
            *out = jv_int((int64_t)i);
            return true;
        }
    }
    return jinja_type_error(r, "the item is not in the list");
}

JINJA_FN(copy) {
    JINJA_UNUSED;
    *out = self; /* nothing can be modified, so nothing need be copied */
    return true;
}

const struct jinja_builtin jinja_list_methods[] = {
    {"copy", copy, "", 0},
    {"count", list_count, "value", 1},
    {"index", list_index, "value", 1},
    {0},
};

/* of tuples and ranges */
const struct jinja_builtin jinja_tuple_methods[] = {
    {"count", list_count, "value", 1},
    {"index", list_index, "value", 1},
    {0},
};

/* ---- numbers ---- */

JINJA_FN(int_bit_length) {
    JINJA_UNUSED;
    const int64_t i = jv_as_int(self);
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    int64_t n = 0;
    for (; u; u >>= 1)
        n++;
    *out = jv_int(n);
    return true;
}

JINJA_FN(conjugate) {
    JINJA_UNUSED;
    *out = self.kind == JV_BOOL ? jv_int(self.b) : self;
    return true;
}

const struct jinja_builtin jinja_int_methods[] = {
    {"bit_length", int_bit_length, "", 0},
    {"conjugate", conjugate, "", 0},
    {0},
};

JINJA_FN(float_is_integer) {
    JINJA_UNUSED;
    *out = jv_bool(isfinite(self.f) && floor(self.f) == self.f);
    return true;
}

const struct jinja_builtin jinja_float_methods[] = {
    {"conjugate", conjugate, "", 0},
    {"is_integer", float_is_integer, "", 0},
    {0},
};

/* ---- dicts ---- */

JINJA_FN(dict_get) {
    JINJA_UNUSED;
    if (!jinja_hashable(a[0]))
        return jinja_type_error(r, "a %s cannot be a key", jinja_type(a[0]));
    const struct jv *value = jinja_dict_get(self.d, a[0]);
    *out = value ? *value : jv_given(a[1]) ? a[1] : jv_none();
    return true;
}

static bool view(struct jinja_run *r, const char *name, const struct jv *items, size_t n,
                 struct jv *out) {
    struct jinja_list *l = jinja_alloc(r, 1, sizeof *l);
    if (!l)
        return false;
    *l = (struct jinja_list){.items = items, .n = n, .name = name};
    *out = (struct jv){.kind = JV_VIEW, .l = l};
    return true;
}

JINJA_IS(dict_keys, view(r, "dict_keys", self.d->keys, self.d->n, out))
JINJA_IS(dict_values, view(r, "dict_values", self.d->values, self.d->n, out))
JINJA_FN(dict_items) {
    JINJA_UNUSED;
    struct jv *items = jinja_alloc(r, self.d->n, sizeof *items);
    for (uint32_t i = 0; items && i < self.d->n; i++)
        if (!jinja_tuple2(r, self.d->keys[i], self.d->values[i], &items[i]))
            return false;
    return items && view(r, "dict_items", items, self.d->n, out);
}

const struct jinja_builtin jinja_dict_methods[] = {
    {"copy", copy, "", 0},      {"get", dict_get, "key default", 1}, {"items", dict_items, "", 0},
    {"keys", dict_keys, "", 0}, {"values", dict_values, "", 0},      {0},
};

/* ---- loop and cycler ---- */

JINJA_FN(loop_cycle) {
    JINJA_UNUSED;
    if (args->n == 0)
        return jinja_type_error(r, "cycle() needs something to cycle through");
    *out = args->pos[self.loop->index0 % args->n];
    return true;
}

JINJA_FN(loop_changed) {
    JINJA_UNUSED;
    struct jv *items = jinja_alloc(r, args->n, sizeof *items), now;
    bool same = false;
    if (!items)
        return false;
    if (args->n)
        memcpy(items, args->pos, args->n * sizeof *items);
    if (!jinja_list(r, items, args->n, &now) ||
        (jv_given(self.loop->changed) && !jinja_equal(r, now, self.loop->changed, &same)))
        return false;
    self.loop->changed = now;
    *out = jv_bool(!same);
    return true;
}

const struct jinja_builtin jinja_loop_methods[] = {
    {"changed", loop_changed, NULL, 0},
    {"cycle", loop_cycle, NULL, 0},
    {0},
};

JINJA_FN(cycler_next) {
    JINJA_UNUSED;
    *out = self.g->items[self.g->at];
    self.g->at = (self.g->at + 1) % self.g->n;
    return true;
}

JINJA_FN(cycler_reset) {
    JINJA_UNUSED;
    self.g->at = 0;
    *out = jv_none();
    return true;
}

const struct jinja_builtin jinja_cycler_methods[] = {
    {"next", cycler_next, "", 0},
    {"reset", cycler_reset, "", 0},
    {0},
};
