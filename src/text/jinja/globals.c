/* globals.c - the functions every template can call. */
#include "text/jinja/jinja.h"

#include <limits.h>
#include <string.h>
#include <time.h>

JINJA_FN(raise_exception) {
    JINJA_UNUSED;
    struct jv text;
    return jinja_to_str(r, a[0], &text) &&
           jinja_fail(r, LODE_ERR_ARG, "%.*s", text.s->len > INT_MAX ? INT_MAX : (int)text.s->len,
                      text.s->data);
}

JINJA_FN(range) {
    JINJA_UNUSED;
    int64_t n[3] = {0, 0, 1};
    for (size_t i = 0; i < 3 && jv_given(a[i]); i++) {
        if (!jv_is_int(a[i]))
            return jinja_type_error(r, "range() takes integers, not a %s", jinja_type(a[i]));
        n[i] = jv_as_int(a[i]);
    }
    if (!jv_given(a[1])) {
        n[1] = n[0];
        n[0] = 0;
    }
    if (n[2] == 0)
        return jinja_type_error(r, "the step of range() must not be 0");
    const uint64_t span = n[2] > 0 ? (n[1] > n[0] ? (uint64_t)n[1] - (uint64_t)n[0] : 0)
                                   : (n[0] > n[1] ? (uint64_t)n[0] - (uint64_t)n[1] : 0);
    const uint64_t by = n[2] > 0 ? (uint64_t)n[2] : 0 - (uint64_t)n[2];
    const uint64_t count = span / by + (span % by != 0);
    if (count > JINJA_MAX_RANGE)
        return jinja_fail(r, LODE_ERR_LIMIT, "range() of more than %d numbers", JINJA_MAX_RANGE);
    struct jinja_list *l = jinja_alloc(r, 1, sizeof *l);
    struct jv *items = l ? jinja_alloc(r, count, sizeof *items) : NULL;
    if (!items)
        return false;
    for (uint64_t i = 0; i < count; i++)
        items[i] = jv_int((int64_t)((uint64_t)n[0] + i * (uint64_t)n[2]));
    *l = (struct jinja_list){items, count, n[0], n[1], n[2], NULL};
    *out = (struct jv){.kind = JV_RANGE, .l = l};
    return true;
}

/* dict() and namespace(): from a dict or pairs, then named values. */
static bool make_dict(struct jinja_run *r, const struct jinja_args *args, int kind,
                      struct jv *out) {
    struct jinja_dict *d = jinja_dict_new(r);
    if (!d)
        return false;
    if (args->n > 1)
        return jinja_type_error(r, "dict() takes at most one unnamed argument");
    if (args->n == 1 && args->pos[0].kind == JV_UNDEF)
        return jinja_undef_error(r, args->pos[0]);
    if (args->n == 1 && args->pos[0].kind == JV_DICT) {
        const struct jinja_dict *from = args->pos[0].d;
        for (uint32_t i = 0; i < from->n; i++)
            if (!jinja_dict_put(r, d, from->keys[i], from->values[i]))
                return false;
    } else if (args->n == 1) {
        const struct jv *items, *pair;
        size_t n, two;
        if (!jinja_items(r, args->pos[0], &items, &n))
            return false;
        for (size_t i = 0; i < n; i++) {
            if (!jinja_items(r, items[i], &pair, &two))
                return false;
            if (two != 2)
                return jinja_type_error(r, "dict() takes pairs");
            if (!jinja_dict_put(r, d, pair[0], pair[1]))
                return false;
        }
    }
    for (size_t i = 0; i < args->n_named; i++)
        if (!jinja_dict_put(r, d, args->names[i], args->values[i]))
            return false;
    *out = (struct jv){.kind = (uint8_t)kind, .d = d};
    return true;
}

JINJA_IS(dict, make_dict(r, args, JV_DICT, out))
JINJA_IS(name_space, make_dict(r, args, JV_NS, out))

JINJA_FN(cycler) {
    JINJA_UNUSED;
    struct jv *items = jinja_alloc(r, args->n, sizeof *items);
    if (!items)
        return false;
    if (args->n == 0)
        return jinja_type_error(r, "cycler() needs something to cycle through");
    memcpy(items, args->pos, args->n * sizeof *items);
    if (!jinja_gen(r, items, args->n, out))
        return false;
    out->kind = JV_CYCLER;
    return true;
}

JINJA_FN(joiner) {
    JINJA_UNUSED;
    struct jinja_joiner *j = jinja_alloc(r, 1, sizeof *j);
    if (!j)
        return false;
    j->sep = a[0];
    *out = (struct jv){.kind = JV_JOINER, .j = j};
    return jv_given(a[0]) || jinja_str_borrow(r, ", ", 2, &j->sep);
}

/* One conversion at a time, so that no width can make the result long. */
static void add_date(struct lode_buf *b, const struct tm *tm, char flag, char conversion) {
    const char format[] = {'%', flag ? flag : conversion, flag ? conversion : '\0', '\0'};
    char text[128];
    lode_buf_add(b, text, strftime(text, sizeof text, format, tm));
}

/* Local time, as Python's datetime.now().strftime(). */
JINJA_FN(strftime_now) {
    JINJA_UNUSED;
    static const char known[] = "aAbBcdfHIjmMpSUwWxXyYzZeDFhnrRstTuGgVkCP%";
    const time_t now = (time_t)r->now;
    struct tm tm;
    struct lode_buf b = {0};
    if (a[0].kind != JV_STR)
        return jinja_type_error(r, "strftime_now takes a str, not a %s", jinja_type(a[0]));
    if (!jinja_spend(r, a[0].s->len * 20))
        return false;
    if (!localtime_r(&now, &tm))
        return jinja_type_error(r, "the time is out of range");
    const struct lode_str f = jv_text(a[0]);
    for (size_t i = 0; i < f.len; i++) {
        size_t at = i + 1;
        const char flag =
            f.data[i] == '%' && at < f.len && strchr("-_0^#", f.data[at]) && f.data[at]
                ? f.data[at++]
                : 0;
        if (f.data[i] != '%' || at >= f.len || !f.data[at] || !strchr(known, f.data[at])) {
            lode_buf_addc(&b, f.data[i]);
            continue;
        }
        if (f.data[at] == 'f')
            lode_buf_addz(&b, "000000"); /* the clock is read in seconds */
        else
            add_date(&b, &tm, flag, f.data[at]);
        i = at;
    }
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

const struct jinja_builtin jinja_globals[] = {
    {"cycler", cycler, NULL, 0},
    {"dict", dict, NULL, 0},
    {"joiner", joiner, "sep", 0},
    {"namespace", name_space, NULL, 0},
    {"raise_exception", raise_exception, "message", 1},
    {"range", range, "start stop step", 1},
    {"strftime_now", strftime_now, "format", 1},
    {0},
};
