/* dict.c - dicts that keep the order of insertion, keyed by what Python can hash. */
#include "text/jinja/jinja.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

/* parts: how many more tuples in tuples may hold, which bounds hash() and same_key() too */
static bool hashable(struct jv v, unsigned depth, unsigned *parts) {
    if (v.kind == JV_TUPLE) {
        if (depth > JINJA_MAX_NESTING || v.l->n > *parts)
            return false;
        *parts -= (unsigned)v.l->n;
        for (size_t i = 0; i < v.l->n; i++)
            if (!hashable(v.l->items[i], depth + 1, parts))
                return false;
        return true;
    }
    /* dict_values is an object like others, dict_keys and dict_items are sets */
    return v.kind != JV_LIST && v.kind != JV_DICT &&
           (v.kind != JV_VIEW || strcmp(v.l->name, "dict_values") == 0);
}

bool jinja_hashable(struct jv v) {
    unsigned parts = 4096;
    return hashable(v, 0, &parts);
}

static uint64_t hash(struct jv v) {
    switch (v.kind) {
    case JV_TUPLE: {
        uint64_t h = v.l->n;
        for (size_t i = 0; i < v.l->n; i++)
            h = (h ^ hash(v.l->items[i])) * 0x9e3779b97f4a7c15u;
        return XXH3_64bits(&h, sizeof h);
    }
    case JV_STR:
    case JV_BIG:
        return XXH3_64bits(v.s->data, v.s->len);
    case JV_BOOL:
    case JV_INT: {
        const int64_t i = jv_as_int(v);
        return XXH3_64bits(&i, sizeof i);
    }
    case JV_FLOAT: { /* 1.0 is the key 1 */
        const int64_t i = fabs(v.f) < 9e18 ? (int64_t)v.f : 0;
        return XXH3_64bits(&i, sizeof i);
    }
    case JV_NONE:
    case JV_UNDEF:
        return v.kind;
    default: { /* objects, told apart by where they lie */
        const uintptr_t where = (uintptr_t)v.s;
        return XXH3_64bits(&where, sizeof where);
    }
    }
}

/* Equality of keys: numbers by value, strings by content, tuples by items, others by identity. */
static bool same_key(struct jv a, struct jv b) {
    if (jv_is_number(a) && jv_is_number(b)) {
        if (jv_is_int(a) && jv_is_int(b))
            return jv_as_int(a) == jv_as_int(b);
        if (a.kind == JV_BIG && b.kind == JV_BIG)
            return lode_str_eq(jv_text(a), jv_text(b));
        return a.kind != JV_BIG && b.kind != JV_BIG && jv_as_double(a) == jv_as_double(b);
    }
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JV_STR:
        return lode_str_eq(jv_text(a), jv_text(b));
    case JV_NONE:
    case JV_UNDEF:
        return true;
    case JV_TUPLE:
        if (a.l->n != b.l->n)
            return false;
        for (size_t i = 0; i < a.l->n; i++)
            if (!same_key(a.l->items[i], b.l->items[i]))
                return false;
        return true;
    default:
        return a.s == b.s; /* any of the pointers */
    }
}

struct jinja_dict *jinja_dict_new(struct jinja_run *r) {
    return jinja_alloc(r, 1, sizeof(struct jinja_dict));
}

static uint32_t find_key(const struct jinja_dict *d, struct jv key) {
    if (!d->slots) {
        for (uint32_t i = 0; i < d->n; i++)
            if (same_key(d->keys[i], key))
                return i;
        return UINT32_MAX;
    }
    for (uint64_t h = hash(key);; h++) {
        const uint32_t slot = d->slots[h & (d->n_slots - 1)];
        if (slot == 0)
            return UINT32_MAX;
        if (same_key(d->keys[slot - 1], key))
            return slot - 1;
    }
}

static void add_slot(struct jinja_dict *d, uint32_t index) {
    uint64_t h = hash(d->keys[index]);
    while (d->slots[h & (d->n_slots - 1)])
        h++;
    d->slots[h & (d->n_slots - 1)] = index + 1;
}

static bool grow(struct jinja_run *r, struct jinja_dict *d) {
    const uint32_t cap = d->cap ? d->cap * 2 : 4;
    struct jv *keys = jinja_alloc(r, cap, sizeof *keys);
    struct jv *values = keys ? jinja_alloc(r, cap, sizeof *values) : NULL;
    if (!values)
        return false;
    if (d->n) {
        memcpy(keys, d->keys, d->n * sizeof *keys);
        memcpy(values, d->values, d->n * sizeof *values);
    }
    d->keys = keys;
    d->values = values;
    d->cap = cap;
    if (cap <= 8)
        return true;
    if (!(d->slots = jinja_alloc(r, (size_t)cap * 2, sizeof *d->slots)))
        return false;
    d->n_slots = cap * 2;
    for (uint32_t i = 0; i < d->n; i++)
        add_slot(d, i);
    return true;
}

bool jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jv key, struct jv value) {
    if (!jinja_hashable(key))
        return jinja_type_error(r, "a %s cannot be a key", jinja_type(key));
    const uint32_t at = find_key(d, key);
    if (at != UINT32_MAX) {
        d->values[at] = value;
        return true;
    }
    if (d->n == d->cap && !grow(r, d))
        return false;
    d->keys[d->n] = key;
    d->values[d->n++] = value;
    if (d->slots)
        add_slot(d, d->n - 1);
    return true;
}

const struct jv *jinja_dict_get(const struct jinja_dict *d, struct jv key) {
    const uint32_t at = find_key(d, key);
    return at == UINT32_MAX ? NULL : &d->values[at];
}

const struct jv *jinja_dict_getz(const struct jinja_dict *d, struct lode_str key) {
    const struct jinja_text s = {key.data, key.len, 0, NULL};
    return jinja_dict_get(d, (struct jv){.kind = JV_STR, .s = &s});
}
