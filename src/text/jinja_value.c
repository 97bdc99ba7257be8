/* jinja_value.c - values and what they cost: every allocation and every step is counted here. */
#include "text/jinja.h"

#include "base/error.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

bool jinja_fail(struct jinja_run *r, int code, const char *fmt, ...) {
    if (r->rc < 0)
        return false; /* the first failure is the cause */
    char text[sizeof r->err->text], where[32];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(where, sizeof where, "chat template line %u", r->line);
    r->rc = lode_fail(r->err, code, where, "%s", text);
    return false;
}

bool jinja_type_error(struct jinja_run *r, const char *fmt, ...) {
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return jinja_fail(r, LODE_ERR_FORMAT, "%s", text);
}

bool jinja_spend(struct jinja_run *r, size_t steps) {
    r->steps += steps;
    return r->steps <= JINJA_MAX_STEPS ||
           jinja_fail(r, LODE_ERR_LIMIT, "the chat template takes more than %d steps",
                      JINJA_MAX_STEPS);
}

void *jinja_alloc(struct jinja_run *r, size_t n, size_t size) {
    if (n > JINJA_MAX_MEMORY / size || r->memory + n * size > JINJA_MAX_MEMORY) {
        jinja_fail(r, LODE_ERR_LIMIT, "the chat template needs more than %d MB of memory",
                   JINJA_MAX_MEMORY >> 20);
        return NULL;
    }
    r->memory += n * size + 16;
    if (!jinja_spend(r, 1 + JINJA_COST_COPY(n * size)))
        return NULL;
    void *p = lode_arena_alloc_zero(&r->arena, n, size);
    if (!p)
        jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the chat template");
    return p;
}

/* ---- strings ---- */

struct jinja_tail { /* a buffer that strings grow into: x = x + y in a loop stays linear */
    char *data;
    size_t used, cap;
};

static bool new_text(struct jinja_run *r, const char *data, size_t len, size_t n_chars,
                     struct jinja_tail *tail, struct jv *out) {
    struct jinja_text *s = jinja_alloc(r, 1, sizeof *s);
    if (!s)
        return false;
    *s = (struct jinja_text){data, len, n_chars, tail};
    *out = (struct jv){.kind = JV_STR, .s = s};
    return true;
}

bool jinja_str_borrow(struct jinja_run *r, const char *data, size_t len, struct jv *out) {
    return jinja_spend(r, JINJA_COST_COPY(len)) &&
           new_text(r, data, len, jinja_count_chars(data, len), NULL, out);
}

bool jinja_str(struct jinja_run *r, const char *data, size_t len, struct jv *out) {
    char *copy = jinja_alloc(r, len + 1, 1);
    if (!copy)
        return false;
    if (len)
        memcpy(copy, data, len);
    return jinja_str_borrow(r, copy, len, out);
}

bool jinja_concat(struct jinja_run *r, struct jv a, struct jv b, struct jv *out) {
    const struct jinja_text *x = a.s, *y = b.s;
    const size_t len = x->len + y->len;
    struct jinja_tail *tail = x->tail;
    char *data;
    if (tail && x->data + x->len == tail->data + tail->used && tail->cap - tail->used >= y->len) {
        data = tail->data + (x->data - tail->data); /* x is what was written last: go on there */
    } else {
        const size_t cap = len < 256 ? len : 2 * len;
        if (!(data = jinja_alloc(r, cap + 1, 1)))
            return false;
        memcpy(data, x->data, x->len);
        tail = NULL;
        if (cap > len) {
            if (!(tail = jinja_alloc(r, 1, sizeof *tail)))
                return false;
            *tail = (struct jinja_tail){data, 0, cap};
        }
    }
    memcpy(data + x->len, y->data, y->len);
    if (tail)
        tail->used = (size_t)(data - tail->data) + len;
    return jinja_spend(r, JINJA_COST_COPY(y->len)) &&
           new_text(r, data, len, x->n_chars + y->n_chars, tail, out);
}

/* ---- sequences ---- */

bool jinja_list(struct jinja_run *r, const struct jv *items, size_t n, struct jv *out) {
    struct jinja_list *l = jinja_alloc(r, 1, sizeof *l);
    if (!l)
        return false;
    l->items = items;
    l->n = n;
    *out = (struct jv){.kind = JV_LIST, .l = l};
    return true;
}

bool jinja_tuple2(struct jinja_run *r, struct jv a, struct jv b, struct jv *out) {
    struct jv *items = jinja_alloc(r, 2, sizeof *items);
    if (!items)
        return false;
    items[0] = a;
    items[1] = b;
    if (!jinja_list(r, items, 2, out))
        return false;
    out->kind = JV_TUPLE;
    return true;
}

bool jinja_gen(struct jinja_run *r, const struct jv *items, size_t n, struct jv *out) {
    struct jinja_gen *g = jinja_alloc(r, 1, sizeof *g);
    if (!g)
        return false;
    *g = (struct jinja_gen){items, n, 0};
    *out = (struct jv){.kind = JV_GEN, .g = g};
    return true;
}

static bool chars_of(struct jinja_run *r, const struct jinja_text *s, const struct jv **items) {
    struct jv *chars = jinja_alloc(r, s->n_chars, sizeof *chars);
    if (!chars)
        return false;
    size_t at = 0;
    for (size_t i = 0; i < s->n_chars; i++) {
        const size_t len = jinja_char_len(s->data + at, s->len - at);
        if (!new_text(r, s->data + at, len, 1, NULL, &chars[i]))
            return false;
        at += len;
    }
    *items = chars;
    return true;
}

bool jinja_items(struct jinja_run *r, struct jv v, const struct jv **items, size_t *n) {
    *items = NULL;
    *n = 0;
    switch (v.kind) {
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        *items = v.l->items;
        *n = v.l->n;
        return jinja_spend(r, *n);
    case JV_DICT:
        *items = v.d->keys;
        *n = v.d->n;
        return jinja_spend(r, *n);
    case JV_GEN:
        *items = v.g->n ? v.g->items + v.g->at : NULL;
        *n = v.g->n - v.g->at;
        v.g->at = v.g->n;
        return jinja_spend(r, *n);
    case JV_STR:
        *n = v.s->n_chars;
        return chars_of(r, v.s, items);
    case JV_UNDEF:
        return true;
    default:
        return jinja_type_error(r, "a %s cannot be iterated over", jinja_type(v));
    }
}

bool jinja_len(struct jinja_run *r, struct jv v, size_t *n) {
    switch (v.kind) {
    case JV_STR:
        *n = v.s->n_chars;
        return true;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        *n = v.l->n;
        return true;
    case JV_DICT:
        *n = v.d->n;
        return true;
    case JV_UNDEF:
        *n = 0;
        return true;
    case JV_LOOP: {
        struct jv length;
        if (!jinja_loop_attr(r, v.loop, LODE_STR("length"), &length))
            return false;
        *n = (size_t)length.i;
        return true;
    }
    default:
        return jinja_type_error(r, "a %s has no length", jinja_type(v));
    }
}

/* ---- undefined ---- */

bool jinja_undef(struct jinja_run *r, struct jv *out, const char *fmt, ...) {
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const size_t len = strlen(text);
    struct jinja_undef *u = jinja_alloc(r, 1, sizeof *u);
    char *why = u ? jinja_alloc(r, len + 1, 1) : NULL;
    if (!why)
        return false;
    memcpy(why, text, len);
    u->why = why;
    *out = (struct jv){.kind = JV_UNDEF, .u = u};
    return true;
}

bool jinja_undef_error(struct jinja_run *r, struct jv u) {
    return jinja_fail(r, LODE_ERR_FORMAT, "%s", u.u->why);
}

/* ---- dicts ---- */

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
    return v.kind != JV_LIST && v.kind != JV_DICT && v.kind != JV_VIEW;
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

/* ---- properties ---- */

const char *jinja_type(struct jv v) {
    static const char *const names[] = {
        [JV_MISSING] = "missing argument", [JV_UNDEF] = "undefined value", [JV_NONE] = "NoneType",
        [JV_BOOL] = "bool",  [JV_INT] = "int",     [JV_BIG] = "int",     [JV_FLOAT] = "float",
        [JV_STR] = "str",    [JV_LIST] = "list",   [JV_TUPLE] = "tuple", [JV_RANGE] = "range",
        [JV_VIEW] = "view",  [JV_DICT] = "dict",   [JV_GEN] = "generator",
        [JV_NS] = "namespace", [JV_FUNC] = "function", [JV_MACRO] = "macro", [JV_LOOP] = "loop",
        [JV_CYCLER] = "cycler", [JV_JOINER] = "joiner"};
    return names[v.kind];
}

bool jinja_truth(struct jv v) {
    switch (v.kind) {
    case JV_MISSING:
    case JV_UNDEF:
    case JV_NONE:
        return false;
    case JV_BOOL:
        return v.b;
    case JV_INT:
        return v.i != 0;
    case JV_FLOAT:
        return v.f != 0; /* NaN is true */
    case JV_STR:
        return v.s->len > 0;
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
        return v.l->n > 0;
    case JV_DICT:
        return v.d->n > 0;
    default:
        return true;
    }
}

double jv_as_double(struct jv v) {
    switch (v.kind) {
    case JV_FLOAT:
        return v.f;
    case JV_BIG:
        return strtod(v.s->data, NULL); /* the digits end the buffer, which has a NUL */
    default:
        return (double)jv_as_int(v);
    }
}

/* ---- calling built-ins ---- */

const struct jinja_builtin *jinja_find(const struct jinja_builtin *table, struct lode_str name) {
    for (; table->name; table++)
        if (name.len && *table->name == *name.data && lode_str_eqz(name, table->name))
            return table;
    return NULL;
}

/* The position of a name in a list separated by spaces, or -1. */
static int param_index(const char *params, struct lode_str name) {
    for (int i = 0; *params; i++) {
        const size_t len = strcspn(params, " ");
        if (len == name.len && memcmp(params, name.data, len) == 0)
            return i;
        params += len + (params[len] != '\0');
    }
    return -1;
}

static unsigned n_params(const char *params) {
    unsigned n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

bool jinja_builtin_call(struct jinja_run *r, const struct jinja_builtin *b, struct jv self,
                        const struct jinja_args *args, struct jv *out) {
    struct jv bound[JINJA_MAX_ARGS] = {{0}};
    if (!b->params)
        return b->fn(r, self, bound, args, out);
    const unsigned most = n_params(b->params);
    if (args->n > most)
        return jinja_type_error(r, "%s takes at most %u arguments, %zu given", b->name, most,
                                args->n);
    for (size_t i = 0; i < args->n; i++)
        bound[i] = args->pos[i];
    for (size_t i = 0; i < args->n_named; i++) {
        const struct lode_str name = jv_text(args->names[i]);
        const int at = param_index(b->params, name);
        if (at < 0)
            return jinja_type_error(r, "%s has no argument named %.*s", b->name, (int)name.len,
                                    name.data);
        if (jv_given(bound[at]))
            return jinja_type_error(r, "%s got two values for its argument %.*s", b->name,
                                    (int)name.len, name.data);
        bound[at] = args->values[i];
    }
    for (unsigned i = 0; i < b->required; i++)
        if (!jv_given(bound[i]))
            return jinja_type_error(r, "%s needs at least %u argument%s", b->name, b->required,
                                    b->required == 1 ? "" : "s");
    return b->fn(r, self, bound, args, out);
}
