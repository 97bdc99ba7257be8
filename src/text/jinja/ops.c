/* ops.c - operators and comparisons, with Python's rules. */
#include "text/jinja/jinja.h"

#include <math.h>
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

static bool is_sequence(struct jv v) {
    return v.kind == JV_LIST || v.kind == JV_TUPLE;
}

static bool equal(struct jinja_run *r, struct jv a, struct jv b, unsigned depth, bool *result);

static bool equal_items(struct jinja_run *r, struct jv a, struct jv b, unsigned depth,
                        bool *result) {
    *result = a.l->n == b.l->n;
    for (size_t i = 0; *result && i < a.l->n; i++)
        if (!equal(r, a.l->items[i], b.l->items[i], depth + 1, result))
            return false;
    return true;
}

static bool equal_dicts(struct jinja_run *r, const struct jinja_dict *a, const struct jinja_dict *b,
                        unsigned depth, bool *result) {
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
        *result = jv_is_int(a) && jv_is_int(b)           ? jv_as_int(a) == jv_as_int(b)
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
    return op == '<'                   ? sign < 0
           : op == '>'                 ? sign > 0
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
        if ((a.kind == JV_BIG || b.kind == JV_BIG) && !jinja_spend(r, 100))
            return false;
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
        *result = item.s->len == 0 ||
                  memmem(container.s->data, container.s->len, item.s->data, item.s->len) != NULL;
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
        x = op == '%'           ? mod
            : div == 0          ? copysign(0.0, a / b)
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
        if (isinf(x) && !isinf(a) && !isinf(b))
            return jinja_type_error(r, "a power is beyond floating point");
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
    if (jv_is_number(a) && jv_is_number(b)) /* beyond 64 bits: as floats */
        return jinja_spend(r, a.kind == JV_BIG || b.kind == JV_BIG ? 100 : 0) &&
               float_op(r, op, jv_as_double(a), jv_as_double(b), out);
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
