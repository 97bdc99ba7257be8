/* value.c - values and what they cost: every allocation and every step is counted here. */
#include "text/jinja/jinja.h"

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const struct jv nothing[1]; /* the items of what is empty: never NULL */

bool jinja_list(struct jinja_run *r, const struct jv *items, size_t n, struct jv *out) {
    struct jinja_list *l = jinja_alloc(r, 1, sizeof *l);
    if (!l)
        return false;
    l->items = items ? items : nothing;
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
    *g = (struct jinja_gen){items ? items : nothing, n, 0};
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
    *items = nothing;
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
        *items = v.d->n ? v.d->keys : nothing;
        *n = v.d->n;
        return jinja_spend(r, *n);
    case JV_GEN:
        *items = v.g->items + v.g->at;
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

/* ---- properties ---- */

const char *jinja_type(struct jv v) {
    static const char *const names[] = {[JV_MISSING] = "missing argument",
                                        [JV_UNDEF] = "undefined value",
                                        [JV_NONE] = "NoneType",
                                        [JV_BOOL] = "bool",
                                        [JV_INT] = "int",
                                        [JV_BIG] = "int",
                                        [JV_FLOAT] = "float",
                                        [JV_STR] = "str",
                                        [JV_LIST] = "list",
                                        [JV_TUPLE] = "tuple",
                                        [JV_RANGE] = "range",
                                        [JV_VIEW] = "view",
                                        [JV_DICT] = "dict",
                                        [JV_GEN] = "generator",
                                        [JV_NS] = "namespace",
                                        [JV_FUNC] = "function",
                                        [JV_MACRO] = "macro",
                                        [JV_LOOP] = "loop",
                                        [JV_CYCLER] = "cycler",
                                        [JV_JOINER] = "joiner"};
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

/* Puts the arguments where the parameters are. */
static bool bind_args(struct jinja_run *r, const struct jinja_builtin *b,
                      const struct jinja_args *args, struct jv bound[JINJA_MAX_ARGS]) {
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
    return true;
}

bool jinja_enter_call(struct jinja_run *r) {
    if (r->depth >= JINJA_MAX_DEPTH)
        return jinja_fail(r, LODE_ERR_LIMIT, "the chat template recurses deeper than %d levels",
                          JINJA_MAX_DEPTH);
    r->depth++;
    return true;
}

bool jinja_builtin_call(struct jinja_run *r, const struct jinja_builtin *b, struct jv self,
                        const struct jinja_args *args, struct jv *out) {
    struct jv bound[JINJA_MAX_ARGS] = {{0}};
    if (b->params && !bind_args(r, b, args, bound))
        return false;
    if (!jinja_enter_call(r)) /* map(map(map(... is a recursion too */
        return false;
    const bool ok = b->fn(r, self, bound, args, out);
    r->depth--;
    return ok;
}
