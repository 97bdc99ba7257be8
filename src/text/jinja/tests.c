/* tests.c - x is ... */
#include "text/jinja/jinja.h"

#include <math.h>

/* A test that only looks at the value. */
#define SIMPLE(name, condition)                                                                    \
    JINJA_FN(name) {                                                                               \
        JINJA_UNUSED;                                                                              \
        *out = jv_bool(condition);                                                                 \
        return true;                                                                               \
    }

SIMPLE(is_boolean, self.kind == JV_BOOL)
SIMPLE(is_callable, self.kind == JV_FUNC || self.kind == JV_MACRO || self.kind == JV_LOOP ||
                        self.kind == JV_JOINER || self.kind == JV_UNDEF)
SIMPLE(is_defined, self.kind != JV_UNDEF)
SIMPLE(is_escaped, self.kind == JV_STR && self.mark)
SIMPLE(is_false, self.kind == JV_BOOL && !self.b)
SIMPLE(is_float, self.kind == JV_FLOAT)
SIMPLE(is_integer, self.kind == JV_INT || self.kind == JV_BIG)
SIMPLE(is_iterable, self.kind >= JV_STR
                        ? self.kind != JV_NS && self.kind != JV_FUNC && self.kind != JV_MACRO &&
                              self.kind != JV_CYCLER && self.kind != JV_JOINER
                        : self.kind == JV_UNDEF)
SIMPLE(is_mapping, self.kind == JV_DICT)
SIMPLE(is_none, self.kind == JV_NONE)
SIMPLE(is_number, jv_is_number(self))
SIMPLE(is_sequence, self.kind == JV_STR || self.kind == JV_LIST || self.kind == JV_TUPLE ||
                        self.kind == JV_RANGE || self.kind == JV_DICT || self.kind == JV_UNDEF)
SIMPLE(is_string, self.kind == JV_STR)
SIMPLE(is_true, self.kind == JV_BOOL && self.b)
SIMPLE(is_undefined, self.kind == JV_UNDEF)

static bool is_name_in(struct jinja_run *r, const struct jinja_builtin *table, struct jv name,
                       struct jv *out) {
    *out = jv_bool(name.kind == JV_STR && jinja_find(table, jv_text(name)));
    return jinja_hashable(name) ||
           jinja_type_error(r, "a %s is the name of nothing", jinja_type(name));
}

JINJA_IS(is_filter, is_name_in(r, jinja_filters, self, out))
JINJA_IS(is_test, is_name_in(r, jinja_tests, self, out))

static bool remainder_is(struct jinja_run *r, struct jv self, struct jv by, int64_t wanted,
                         struct jv *out) {
    struct jv rest;
    bool same;
    if (self.kind == JV_STR)
        return jinja_type_error(r, "a str is neither odd nor even");
    if (!jinja_binary(r, '%', self, by, &rest) || !jinja_equal(r, rest, jv_int(wanted), &same))
        return false;
    *out = jv_bool(same);
    return true;
}

JINJA_IS(is_odd, remainder_is(r, self, jv_int(2), 1, out))
JINJA_IS(is_even, remainder_is(r, self, jv_int(2), 0, out))
JINJA_IS(is_divisible, remainder_is(r, self, a[0], 0, out))

static bool case_test(struct jinja_run *r, struct jv self, const char *method, struct jv *out) {
    const struct jinja_args none = {0};
    return jinja_to_str(r, self, &self) &&
           jinja_builtin_call(r, jinja_find(jinja_str_methods, lode_str(method)), self, &none, out);
}

JINJA_IS(is_lower, case_test(r, self, "islower", out))
JINJA_IS(is_upper, case_test(r, self, "isupper", out))

JINJA_FN(is_equal) {
    JINJA_UNUSED;
    bool same;
    if (!jinja_equal(r, self, a[0], &same))
        return false;
    *out = jv_bool(same);
    return true;
}

JINJA_FN(is_unequal) {
    if (!is_equal(r, self, a, args, out))
        return false;
    out->b = !out->b;
    return true;
}

static bool order_test(struct jinja_run *r, struct jv self, struct jv other, uint32_t op,
                       struct jv *out) {
    bool result;
    if (!jinja_less(r, self, other, op, &result))
        return false;
    *out = jv_bool(result);
    return true;
}

JINJA_IS(is_less, order_test(r, self, a[0], '<', out))
JINJA_IS(is_greater, order_test(r, self, a[0], '>', out))
JINJA_IS(is_at_most, order_test(r, self, a[0], JINJA_OP2('<', '='), out))
JINJA_IS(is_at_least, order_test(r, self, a[0], JINJA_OP2('>', '='), out))

JINJA_FN(is_in) {
    JINJA_UNUSED;
    bool result;
    if (!jinja_contains(r, a[0], self, &result))
        return false;
    *out = jv_bool(result);
    return true;
}

/* The same object: constants by value, the rest by where it lies. */
JINJA_FN(is_same) {
    JINJA_UNUSED;
    const struct jv b = a[0];
    bool same = self.kind == b.kind;
    if (same && self.kind == JV_BOOL)
        same = self.b == b.b;
    else if (same && self.kind == JV_INT)
        same = self.i == b.i;
    else if (same && self.kind != JV_NONE)
        same = self.s == b.s;
    *out = jv_bool(same);
    return true;
}

const struct jinja_builtin jinja_tests[] = {
    {"boolean", is_boolean, "", 0},
    {"callable", is_callable, "", 0},
    {"defined", is_defined, "", 0},
    {"divisibleby", is_divisible, "num", 1},
    {"eq", is_equal, "other", 1},
    {"==", is_equal, "other", 1},
    {"equalto", is_equal, "other", 1},
    {"escaped", is_escaped, "", 0},
    {"even", is_even, "", 0},
    {"false", is_false, "", 0},
    {"filter", is_filter, "", 0},
    {"float", is_float, "", 0},
    {"ge", is_at_least, "other", 1},
    {">=", is_at_least, "other", 1},
    {"gt", is_greater, "other", 1},
    {">", is_greater, "other", 1},
    {"greaterthan", is_greater, "other", 1},
    {"in", is_in, "seq", 1},
    {"integer", is_integer, "", 0},
    {"iterable", is_iterable, "", 0},
    {"le", is_at_most, "other", 1},
    {"<=", is_at_most, "other", 1},
    {"lower", is_lower, "", 0},
    {"lt", is_less, "other", 1},
    {"<", is_less, "other", 1},
    {"lessthan", is_less, "other", 1},
    {"mapping", is_mapping, "", 0},
    {"ne", is_unequal, "other", 1},
    {"!=", is_unequal, "other", 1},
    {"none", is_none, "", 0},
    {"number", is_number, "", 0},
    {"odd", is_odd, "", 0},
    {"sameas", is_same, "other", 1},
    {"sequence", is_sequence, "", 0},
    {"string", is_string, "", 0},
    {"test", is_test, "", 0},
    {"true", is_true, "", 0},
    {"undefined", is_undefined, "", 0},
    {"upper", is_upper, "", 0},
    {0},
};
