/* item.c - x.name, x[key] and x[a:b:c], as the sandbox of jinja2 lets them be seen. */
#include "text/jinja/jinja.h"

#include <stdio.h>
#include <string.h>

static bool no_attribute(struct jinja_run *r, struct jv v, struct jv name, struct jv *out) {
    if (name.kind != JV_STR) {
        char text[40] = "that";
        if (name.kind == JV_INT)
            snprintf(text, sizeof text, "%lld", (long long)name.i);
        return jinja_undef(r, out, "%s%s has no element %s", jinja_type(v),
                           v.kind == JV_NONE ? "" : " object", text);
    }
    const size_t len = name.s->len;
    return jinja_undef(
        r, out, "'%s%s' has no attribute '%.*s'", v.kind == JV_NONE ? "None" : jinja_type(v),
        v.kind == JV_NONE ? "" : " object", len > 150 ? 150 : (int)len, name.s->data);
}

static bool bind(struct jinja_run *r, const struct jinja_builtin *b, struct jv self,
                 struct jv *out) {
    struct jinja_func *f = jinja_alloc(r, 1, sizeof *f);
    if (!f)
        return false;
    *f = (struct jinja_func){b, self};
    *out = (struct jv){.kind = JV_FUNC, .fn = f};
    return true;
}

/* What the sandbox hides: methods that modify, and Python's own attributes. */
static bool is_unsafe(struct jv v, struct lode_str name) {
    static const char *const list[] = {"append", "clear", "pop",    "reverse",
                                       "insert", "sort",  "extend", "remove"};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (name.len > 4 && memcmp(name.data, "__", 2) == 0 &&
        memcmp(name.data + name.len - 2, "__", 2) == 0)
        return true;
    const char *const *const names = v.kind == JV_LIST ? list : dict;
    const size_t n = v.kind == JV_LIST   ? sizeof list / sizeof *list
                     : v.kind == JV_DICT ? sizeof dict / sizeof *dict
                                         : 0;
    for (size_t i = 0; i < n; i++)
        if (lode_str_eqz(name, names[i]))
            return true;
    return false;
}

/* macro.arguments: the names of its parameters. */
static bool macro_arguments(struct jinja_run *r, const struct jinja_node *macro, struct jv *out) {
    size_t n = 0;
    for (const struct jinja_node *p = macro->a; p; p = p->next)
        n++;
    struct jv *names = jinja_alloc(r, n, sizeof *names);
    if (!names)
        return false;
    n = 0;
    for (const struct jinja_node *p = macro->a; p; p = p->next) {
        const struct lode_str name = r->t->syms[p->sym];
        if (!jinja_str_borrow(r, name.data, name.len, &names[n++]))
            return false;
    }
    if (!jinja_list(r, names, n, out))
        return false;
    out->kind = JV_TUPLE;
    return true;
}

/* The attribute of the Python object, *out JV_MISSING where it has none. */
static bool own_attribute(struct jinja_run *r, struct jv v, struct lode_str name, struct jv *out) {
    static const struct {
        const char *name;
        uint32_t bit;
    } uses[] = {{"caller", JINJA_USES_CALLER},
                {"catch_varargs", JINJA_USES_VARARGS},
                {"catch_kwargs", JINJA_USES_KWARGS}};
    const struct jinja_builtin *methods = NULL, *b;
    *out = (struct jv){0};
    if (is_unsafe(v, name))
        return jinja_undef(r, out, "'%.*s' of a %s is not allowed in a chat template",
                           name.len > 150 ? 150 : (int)name.len, name.data, jinja_type(v));
    switch (v.kind) {
    case JV_STR:
        methods = jinja_str_methods;
        break;
    case JV_TUPLE:
        if (v.mark && lode_str_eqz(name, "grouper")) {
            *out = v.l->items[0];
            return true;
        }
        if (v.mark && lode_str_eqz(name, "list")) {
            *out = v.l->items[1];
            return true;
        }
        methods = jinja_tuple_methods;
        break;
    case JV_LIST:
        methods = jinja_list_methods;
        break;
    case JV_RANGE:
        methods = jinja_tuple_methods;
        break;
    case JV_INT:
    case JV_BOOL:
        methods = jinja_int_methods;
        if (lode_str_eqz(name, "real") || lode_str_eqz(name, "numerator"))
            *out = jv_int(jv_as_int(v));
        else if (lode_str_eqz(name, "imag") || lode_str_eqz(name, "denominator"))
            *out = jv_int(name.data[0] == 'd');
        break;
    case JV_FLOAT:
        methods = jinja_float_methods;
        if (lode_str_eqz(name, "real") || lode_str_eqz(name, "imag"))
            *out = jv_float(name.data[0] == 'r' ? v.f : 0);
        break;
    case JV_DICT:
        methods = jinja_dict_methods;
        break;
    case JV_NS: {
        const struct jv *value = jinja_dict_getz(v.d, name);
        if (value)
            *out = *value;
        return true;
    }
    case JV_MACRO:
        if (lode_str_eqz(name, "name")) {
            const struct lode_str own = r->t->syms[v.m->node->sym];
            return jinja_str_borrow(r, own.data, own.len, out);
        }
        if (lode_str_eqz(name, "arguments"))
            return macro_arguments(r, v.m->node, out);
        for (size_t i = 0; i < sizeof uses / sizeof *uses; i++)
            if (lode_str_eqz(name, uses[i].name))
                *out = jv_bool(v.m->node->op & uses[i].bit);
        return true;
    case JV_LOOP:
        if (!jinja_loop_attr(r, v.loop, name, out) || jv_given(*out))
            return r->rc == 0;
        methods = jinja_loop_methods;
        break;
    case JV_CYCLER:
        if (lode_str_eqz(name, "current")) {
            *out = v.g->items[v.g->at];
            return true;
        }
        methods = jinja_cycler_methods;
        break;
    default:
        return true;
    }
    return jv_given(*out) || !(b = jinja_find(methods, name)) || bind(r, b, v, out);
}

/* x[key], *out JV_MISSING where there is no such item. */
static bool own_item(struct jv v, struct jv key, struct jv *out) {
    *out = (struct jv){0};
    if (v.kind == JV_DICT) {
        const struct jv *value = jinja_hashable(key) ? jinja_dict_get(v.d, key) : NULL;
        if (value)
            *out = *value;
        return true;
    }
    if (!jv_is_int(key))
        return true;
    int64_t i = jv_as_int(key);
    if (v.kind == JV_LIST || v.kind == JV_TUPLE || v.kind == JV_RANGE) {
        i += i < 0 ? (int64_t)v.l->n : 0;
        if (i >= 0 && (uint64_t)i < v.l->n)
            *out = v.l->items[i];
    }
    return true;
}

static bool char_item(struct jinja_run *r, struct jv v, int64_t i, struct jv *out) {
    *out = (struct jv){0};
    i += i < 0 ? (int64_t)v.s->n_chars : 0;
    if (i < 0 || (uint64_t)i >= v.s->n_chars)
        return true;
    const size_t at = jinja_offset(v.s, (size_t)i);
    if (!jinja_spend(r, at / 16) ||
        !jinja_str_borrow(r, v.s->data + at, jinja_char_len(v.s->data + at, v.s->len - at), out))
        return false;
    out->mark = v.mark;
    return true;
}

/* x.name: the attribute, else the item. */
bool jinja_attr(struct jinja_run *r, struct jv v, struct jv name, struct jv *out) {
    if (v.kind == JV_UNDEF)
        return jinja_undef_error(r, v);
    if (!own_attribute(r, v, jv_text(name), out))
        return false;
    if (jv_given(*out))
        return true;
    return own_item(v, name, out) && (jv_given(*out) || no_attribute(r, v, name, out));
}

/* x[key]: the item, else the attribute. */
bool jinja_item(struct jinja_run *r, struct jv v, struct jv key, struct jv *out) {
    if (v.kind == JV_UNDEF)
        return jinja_undef_error(r, v);
    if (v.kind == JV_STR && jv_is_int(key) ? !char_item(r, v, jv_as_int(key), out)
                                           : !own_item(v, key, out))
        return false;
    if (jv_given(*out))
        return true;
    if (key.kind == JV_STR && !own_attribute(r, v, jv_text(key), out))
        return false;
    return jv_given(*out) || no_attribute(r, v, key, out);
}

/* ---- slices ---- */

static bool bound(struct jinja_run *r, struct jv v, int64_t n, int64_t step, int64_t absent,
                  int64_t *out) {
    *out = absent;
    if (!jv_given(v) || v.kind == JV_NONE)
        return true;
    if (!jv_is_int(v))
        return v.kind == JV_UNDEF
                   ? jinja_type_error(r, "a slice needs integers, not undefined")
                   : jinja_type_error(r, "a slice needs integers, not a %s", jinja_type(v));
    int64_t i = jv_as_int(v);
    if (i < 0)
        i = i < -n ? -1 : i + n;
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
    *out = i < low ? low : i > high ? high : i;
    return true;
}

static bool slice_text(struct jinja_run *r, struct jv v, int64_t start, int64_t step, size_t count,
                       struct jv *out) {
    const struct jinja_text *s = v.s;
    if (step == 1) {
        const size_t from = jinja_offset(s, (size_t)start);
        const size_t to = jinja_offset(s, (size_t)start + count);
        if (!jinja_spend(r, to / 16) || !jinja_str_borrow(r, s->data + from, to - from, out))
            return false;
        out->mark = v.mark;
        return true;
    }
    const struct jv *chars;
    size_t n;
    struct lode_buf b = {0};
    if (!jinja_items(r, v, &chars, &n))
        return false;
    for (size_t i = 0; i < count; i++) {
        const struct jv c = chars[start + (int64_t)i * step];
        lode_buf_add(&b, c.s->data, c.s->len);
    }
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

bool jinja_slice(struct jinja_run *r, struct jv v, struct jv start, struct jv stop, struct jv step,
                 struct jv *out) {
    int64_t by = 1, from, to;
    if (v.kind == JV_UNDEF)
        return jinja_undef_error(r, v);
    if (v.kind != JV_STR && v.kind != JV_LIST && v.kind != JV_TUPLE && v.kind != JV_RANGE)
        return jinja_type_error(r, "a %s cannot be sliced", jinja_type(v));
    if (jv_given(step) && step.kind != JV_NONE) {
        if (!jv_is_int(step) || (by = jv_as_int(step)) == 0)
            return jinja_type_error(r, "the step of a slice must be an integer other than 0");
    }
    const int64_t n = (int64_t)(v.kind == JV_STR ? v.s->n_chars : v.l->n);
    if (!bound(r, start, n, by, by < 0 ? n - 1 : 0, &from) ||
        !bound(r, stop, n, by, by < 0 ? -1 : n, &to))
        return false;
    size_t count = 0; /* steps beyond the length are one step */
    if (by > 0 && from < to)
        count = (size_t)((to - from - 1) / by) + 1;
    else if (by < 0 && from > to)
        count = (size_t)((from - to - 1) / (by < -n ? n + 1 : -by)) + 1;
    const int64_t step_of = by;
    if (count <= 1)
        by = 1;
    if (v.kind == JV_STR)
        return slice_text(r, v, count ? from : 0, by, count, out);
    const struct jv *items = v.l->items + (count ? from : 0);
    if (by != 1) {
        struct jv *picked = jinja_alloc(r, count, sizeof *picked);
        if (!picked)
            return false;
        for (size_t i = 0; i < count; i++)
            picked[i] = items[(int64_t)i * by];
        items = picked;
    }
    struct jinja_list *l = jinja_alloc(r, 1, sizeof *l);
    if (!l)
        return false;
    *l = (struct jinja_list){.items = items, .n = count};
    if (v.kind == JV_RANGE) { /* a range too, which is seen where it is printed */
        l->start = v.l->start + from * v.l->step;
        l->stop = v.l->start + to * v.l->step;
        l->step = v.l->step * step_of;
    }
    *out = (struct jv){.kind = v.kind, .l = l};
    return true;
}
