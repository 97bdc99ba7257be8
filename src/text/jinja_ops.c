/* jinja_ops.c - operators, comparisons and subscripts, with Python's rules. */
#include "text/jinja.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool op_error(struct jinja_run *r, uint32_t op, struct jv a, struct jv b) {
    char text[3] = {(char)(op < 256 ? op : op >> 8), op < 256 ? '\0' : (char)op, '\0'};
    if (a.kind == JV_UNDEF)
        return jinja_undef_error(r, a);
    if (b.kind == JV_UNDEF)
        return jinja_undef_error(r, b);
    return jinja_type_error(r, "%s between a %s and a %s", text, jinja_type(a), jinja_type(b));
}

static bool overflow(struct jinja_run *r) {
    return jinja_fail(r, LODE_ERR_LIMIT, "an integer exceeds 64 bits");
}

/* ---- comparison ---- */

static bool is_sequence(struct jv v) { return v.kind == JV_LIST || v.kind == JV_TUPLE; }

static bool equal(struct jinja_run *r, struct jv a, struct jv b, unsigned depth, bool *result);

static bool equal_items(struct jinja_run *r, struct jv a, struct jv b, unsigned depth,
                        bool *result) {
    *result = a.l->n == b.l->n;
    for (size_t i = 0; *result && i < a.l->n; i++)
        if (!equal(r, a.l->items[i], b.l->items[i], depth + 1, result))
            return false;
    return true;
}

static bool equal_dicts(struct jinja_run *r, const struct jinja_dict *a,
                        const struct jinja_dict *b, unsigned depth, bool *result) {
    *result = a->n == b->n;
    for (uint32_t i = 0; *result && i < a->n; i++) {
        const struct jv *other = jinja_dict_get(b, a->keys[i]);
        *result = other != NULL;
        if (other && !equal(r, a->values[i], *other, depth + 1, result))
            return false;
    }
    return true;
}

static bool equal(struct jinja_run *r, struct jv a, struct jv b, unsigned depth, bool *result) {
    if (!jinja_spend(r, 1))
        return false;
    if (depth > JINJA_MAX_NESTING)
        return jinja_fail(r, LODE_ERR_LIMIT, "values nested deeper than %d are not compared",
                          JINJA_MAX_NESTING);
    if (jv_is_number(a) && jv_is_number(b)) {
        *result = jv_is_int(a) && jv_is_int(b)             ? jv_as_int(a) == jv_as_int(b)
                  : a.kind == JV_BIG && b.kind == JV_BIG ? lode_str_eq(jv_text(a), jv_text(b))
                  : jv_is_int(a) || jv_is_int(b) || a.kind == b.kind
                      ? a.kind != JV_BIG && b.kind != JV_BIG && jv_as_double(a) == jv_as_double(b)
                      : jv_as_double(a) == jv_as_double(b);
        return true;
    }
    *result = false;
    if (a.kind != b.kind)
        return true;
    switch (a.kind) {
    case JV_NONE:
    case JV_UNDEF:
        *result = true;
        return true;
    case JV_STR:
        *result = lode_str_eq(jv_text(a), jv_text(b));
        return jinja_spend(r, *result ? a.s->len / 64 : 0);
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
        return equal_items(r, a, b, depth, result);
    case JV_DICT:
        return equal_dicts(r, a.d, b.d, depth, result);
    default:
        *result = a.s == b.s; /* the same object, whichever the pointer */
        return true;
    }
}

bool jinja_equal(struct jinja_run *r, struct jv a, struct jv b, bool *result) {
    return equal(r, a, b, 0, result);
}

static bool ordered(uint32_t op, int sign) {
    return op == '<'                     ? sign < 0
           : op == '>'                   ? sign > 0
           : op == JINJA_OP2('<', '=') ? sign <= 0
                                         : sign >= 0;
}

static bool less(struct jinja_run *r, struct jv a, struct jv b, uint32_t op, unsigned depth,
                 bool *result) {
    if (!jinja_spend(r, 1))
        return false;
    if (depth > JINJA_MAX_NESTING)
        return jinja_fail(r, LODE_ERR_LIMIT, "values nested deeper than %d are not compared",
                          JINJA_MAX_NESTING);
    if (jv_is_int(a) && jv_is_int(b)) {
        const int64_t x = jv_as_int(a), y = jv_as_int(b);
        *result = ordered(op, (x > y) - (x < y));
        return true;
    }
    if (jv_is_number(a) && jv_is_number(b)) {
        const double x = jv_as_double(a), y = jv_as_double(b);
        *result = !isnan(x) && !isnan(y) && ordered(op, (x > y) - (x < y));
        return true;
    }
    if (a.kind == JV_STR && b.kind == JV_STR) { /* bytes of UTF-8 order as code points do */
        const size_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        const int sign = n ? memcmp(a.s->data, b.s->data, n) : 0;
        *result = ordered(op, sign ? sign : (a.s->len > b.s->len) - (a.s->len < b.s->len));
        return jinja_spend(r, JINJA_COST_COPY(n));
    }
    if (is_sequence(a) && a.kind == b.kind) {
        size_t i = 0;
        for (; i < a.l->n && i < b.l->n; i++) {
            bool same;
            if (!equal(r, a.l->items[i], b.l->items[i], depth + 1, &same))
                return false;
            if (!same)
                return less(r, a.l->items[i], b.l->items[i], op, depth + 1, result);
        }
        *result = ordered(op, (i < a.l->n) - (i < b.l->n));
        return true;
    }
    return op_error(r, op, a, b);
}

bool jinja_less(struct jinja_run *r, struct jv a, struct jv b, uint32_t op, bool *result) {
    return less(r, a, b, op, 0, result);
}

bool jinja_contains(struct jinja_run *r, struct jv container, struct jv item, bool *result) {
    *result = false;
    if (container.kind == JV_STR) {
        if (item.kind != JV_STR)
            return jinja_type_error(r, "a %s cannot be looked for in a str", jinja_type(item));
        *result = item.s->len == 0 || memmem(container.s->data, container.s->len, item.s->data,
                                             item.s->len) != NULL;
        return jinja_spend(r, JINJA_COST_COPY(container.s->len));
    }
    if (container.kind == JV_DICT) {
        if (!jinja_hashable(item))
            return jinja_type_error(r, "a %s cannot be a key", jinja_type(item));
        *result = jinja_dict_get(container.d, item) != NULL;
        return true;
    }
    const struct jv *items;
    size_t n;
    if (!jinja_items(r, container, &items, &n))
        return false;
    for (size_t i = 0; i < n && !*result; i++)
        if (!jinja_equal(r, items[i], item, result))
            return false;
    return true;
}

/* ---- arithmetic ---- */

static bool int_pow(struct jinja_run *r, int64_t base, int64_t power, struct jv *out) {
    int64_t result = 1;
    if (power < 0) {
        if (base == 0)
            return jinja_type_error(r, "0 to a negative power");
        *out = jv_float(pow((double)base, (double)power));
        return true;
    }
    for (;;) {
        if (power & 1 && __builtin_mul_overflow(result, base, &result))
            return overflow(r);
        power >>= 1;
        if (!power)
            break;
        if (__builtin_mul_overflow(base, base, &base))
            return overflow(r);
    }
    *out = jv_int(result);
    return true;
}

static bool int_op(struct jinja_run *r, uint32_t op, int64_t a, int64_t b, struct jv *out) {
    int64_t x = 0;
    bool over = false;
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, &x);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, &x);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, &x);
        break;
    case '/':
    case '%':
    case JINJA_OP2('/', '/'):
        if (b == 0)
            return jinja_type_error(r, "division by zero");
        if (op == '/') {
            *out = jv_float((double)a / (double)b);
            return true;
        }
        if (b == -1) { /* INT64_MIN / -1 overflows */
            if (op != '%')
                over = __builtin_sub_overflow((int64_t)0, a, &x);
        } else if (op == '%') {
            x = a % b;
            x += x != 0 && (x < 0) != (b < 0) ? b : 0; /* the sign of the divisor */
        } else {
            x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        }
        break;
    default:
        return int_pow(r, a, b, out);
    }
    *out = jv_int(x);
    return !over || overflow(r);
}

static bool float_op(struct jinja_run *r, uint32_t op, double a, double b, struct jv *out) {
    double x;
    if (b == 0 && (op == '/' || op == '%' || op == JINJA_OP2('/', '/')))
        return jinja_type_error(r, "division by zero");
    switch (op) {
    case '+':
        x = a + b;
        break;
    case '-':
        x = a - b;
        break;
    case '*':
        x = a * b;
        break;
    case '/':
        x = a / b;
        break;
    case '%':
    case JINJA_OP2('/', '/'): {
        double mod = fmod(a, b);
        double div = (a - mod) / b;
        if (mod != 0 && (mod < 0) != (b < 0)) {
            mod += b;
            div -= 1;
        }
        mod = mod == 0 ? copysign(0.0, b) : mod;
        const double whole = floor(div);
        x = op == '%'            ? mod
            : div == 0           ? copysign(0.0, a / b)
            : div - whole > 0.5 ? whole + 1
                                 : whole;
        break;
    }
    default:
        if (a < 0 && b != floor(b))
            return jinja_type_error(r, "a negative number to a fractional power");
        if (a == 0 && b < 0)
            return jinja_type_error(r, "0 to a negative power");
        x = pow(a, b);
    }
    *out = jv_float(x);
    return true;
}

bool jinja_repeat(struct jinja_run *r, struct jv v, int64_t times, struct jv *out) {
    const bool is_text = v.kind == JV_STR;
    const size_t n = is_text ? v.s->len : v.l->n, size = is_text ? 1 : sizeof(struct jv);
    size_t total = 0;
    if (times > 0 && __builtin_mul_overflow(n, (size_t)times, &total))
        total = SIZE_MAX / size;
    char *data = jinja_alloc(r, total + is_text, size);
    if (!data)
        return false;
    for (size_t i = 0; n && i < total; i += n)
        memcpy(data + i * size, is_text ? (const void *)v.s->data : (const void *)v.l->items,
               n * size);
    if (is_text) {
        if (!jinja_str_borrow(r, data, total, out))
            return false;
        out->mark = v.mark;
        return true;
    }
    if (!jinja_list(r, (struct jv *)(void *)data, total, out))
        return false;
    out->kind = v.kind;
    return true;
}

static bool join_lists(struct jinja_run *r, struct jv a, struct jv b, struct jv *out) {
    struct jv *items = jinja_alloc(r, a.l->n + b.l->n, sizeof *items);
    if (!items)
        return false;
    if (a.l->n)
        memcpy(items, a.l->items, a.l->n * sizeof *items);
    if (b.l->n)
        memcpy(items + a.l->n, b.l->items, b.l->n * sizeof *items);
    if (!jinja_list(r, items, a.l->n + b.l->n, out))
        return false;
    out->kind = a.kind;
    return true;
}

/* Markup stays safe: what is joined to it is escaped. */
static bool join_texts(struct jinja_run *r, struct jv a, struct jv b, struct jv *out) {
    const bool mark = a.mark || b.mark;
    if (mark && (!jinja_escape(r, a, &a) || !jinja_escape(r, b, &b)))
        return false;
    if (!jinja_concat(r, a, b, out))
        return false;
    out->mark = mark;
    return true;
}

bool jinja_binary(struct jinja_run *r, uint32_t op, struct jv a, struct jv b, struct jv *out) {
    if (jv_is_int(a) && jv_is_int(b))
        return int_op(r, op, jv_as_int(a), jv_as_int(b), out);
    if (jv_is_number(a) && jv_is_number(b))
        return float_op(r, op, jv_as_double(a), jv_as_double(b), out);
    if (op == '%' && a.kind == JV_STR)
        return jinja_percent(r, a, b, out);
    if (op == '+' && a.kind == JV_STR && b.kind == JV_STR)
        return join_texts(r, a, b, out);
    if (op == '+' && is_sequence(a) && a.kind == b.kind)
        return join_lists(r, a, b, out);
    if (op == '*' && (a.kind == JV_STR || is_sequence(a)) && jv_is_int(b))
        return jinja_repeat(r, a, jv_as_int(b), out);
    if (op == '*' && (b.kind == JV_STR || is_sequence(b)) && jv_is_int(a))
        return jinja_repeat(r, b, jv_as_int(a), out);
    return op_error(r, op, a, b);
}

bool jinja_negate(struct jinja_run *r, struct jv v, struct jv *out) {
    if (jv_is_int(v))
        return int_op(r, '-', 0, jv_as_int(v), out);
    if (v.kind == JV_UNDEF)
        return jinja_undef_error(r, v);
    if (!jv_is_number(v))
        return jinja_type_error(r, "- of a %s", jinja_type(v));
    if (v.kind == JV_BIG) {
        struct jv minus;
        const bool negative = *v.s->data == '-';
        if (negative ? !jinja_str(r, v.s->data + 1, v.s->len - 1, out)
                     : !jinja_str_borrow(r, "-", 1, &minus) || !jinja_concat(r, minus, v, out))
            return false;
        out->kind = JV_BIG;
        return true;
    }
    *out = jv_float(-jv_as_double(v));
    return true;
}

/* ---- subscripts ---- */

static bool no_attribute(struct jinja_run *r, struct jv v, struct jv name, struct jv *out) {
    if (name.kind != JV_STR) {
        char text[40] = "that";
        if (name.kind == JV_INT)
            snprintf(text, sizeof text, "%lld", (long long)name.i);
        return jinja_undef(r, out, "%s%s has no element %s", jinja_type(v),
                           v.kind == JV_NONE ? "" : " object", text);
    }
    const size_t len = name.s->len;
    return jinja_undef(r, out, "'%s%s' has no attribute '%.*s'",
                       v.kind == JV_NONE ? "None" : jinja_type(v),
                       v.kind == JV_NONE ? "" : " object", len > 150 ? 150 : (int)len,
                       name.s->data);
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
    static const char *const list[] = {"append",  "clear",  "pop",    "reverse",
                                       "insert",  "sort",   "extend", "remove"};
    static const char *const dict[] = {"clear", "pop", "popitem", "setdefault", "update"};
    if (name.len > 4 && memcmp(name.data, "__", 2) == 0 &&
        memcmp(name.data + name.len - 2, "__", 2) == 0)
        return true;
    const char *const *const names = v.kind == JV_LIST ? list : dict;
    const size_t n = v.kind == JV_LIST ? sizeof list / sizeof *list
                     : v.kind == JV_DICT ? sizeof dict / sizeof *dict
                                         : 0;
    for (size_t i = 0; i < n; i++)
        if (lode_str_eqz(name, names[i]))
            return true;
    return false;
}

/* The attribute of the Python object, *out JV_MISSING where it has none. */
static bool own_attribute(struct jinja_run *r, struct jv v, struct lode_str name, struct jv *out) {
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
        methods = jinja_list_methods;
        break;
    case JV_LIST:
    case JV_RANGE:
        methods = jinja_list_methods;
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
    return !(b = jinja_find(methods, name)) || bind(r, b, v, out);
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
        return v.kind == JV_UNDEF ? jinja_type_error(r, "a slice needs integers, not undefined")
                                  : jinja_type_error(r, "a slice needs integers, not a %s",
                                                     jinja_type(v));
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
    if (!jinja_list(r, items, count, out))
        return false;
    out->kind = v.kind == JV_TUPLE ? JV_TUPLE : JV_LIST; /* a slice of a range reads as a list */
    return true;
}

bool jinja_escape(struct jinja_run *r, struct jv v, struct jv *out) {
    static const char special[] = "&<>\"'";
    static const char *const entity[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
    if (!jinja_to_str(r, v, &v) || !jinja_spend(r, JINJA_COST_WALK(v.s->len)))
        return false;
    *out = v;
    if (!v.mark) {
        struct lode_buf b = {0};
        for (size_t i = 0; i < v.s->len; i++) {
            const char *c = v.s->data[i] ? strchr(special, v.s->data[i]) : NULL;
            if (c)
                lode_buf_addz(&b, entity[c - special]);
            else
                lode_buf_addc(&b, v.s->data[i]);
        }
        const bool ok = jinja_take(r, &b, out);
        lode_buf_free(&b);
        if (!ok)
            return false;
    }
    out->mark = true;
    return true;
}
