/* eval.c - evaluates expressions. */
#include "text/jinja/jinja.h"

#include <string.h>

/* ---- variables ---- */

static bool lookup(struct jinja_run *r, uint32_t sym, struct jv *out) {
    for (const struct jinja_scope *s = r->scope; s; s = s->parent) {
        if (!jinja_spend(r, s->n / 16))
            return false;
        for (uint32_t i = 0; i < s->n; i++) {
            if (s->syms[i] == sym) {
                *out = s->values[i];
                return true;
            }
        }
    }
    *out = r->globals[sym];
    if (jv_given(*out))
        return true;
    const struct lode_str name = r->t->syms[sym];
    return jinja_undef(r, out, "'%.*s' is undefined", name.len > 200 ? 200 : (int)name.len,
                       name.data);
}

/* ---- arguments ---- */

struct arg_buffers { /* room for the usual few, on the stack */
    struct jv pos[4], names[4], values[4];
};

/* More arguments than lists hold: *args and **kwargs. */
static bool count_args(struct jinja_run *r, const struct jinja_node *list, size_t *n_pos,
                       size_t *n_named) {
    for (const struct jinja_node *a = list; a; a = a->next) {
        if (a->kind == JN_STAR || a->kind == JN_STARSTAR) {
            struct jv v;
            size_t n;
            if (!jinja_eval(r, a->a, &v) || !jinja_len(r, v, &n))
                return false;
            *(a->kind == JN_STAR ? n_pos : n_named) += n;
        } else {
            (*(a->kind == JN_KWARG ? n_named : n_pos))++;
        }
    }
    return true;
}

static bool eval_args(struct jinja_run *r, const struct jinja_node *list, struct arg_buffers *few,
                      struct jinja_args *args) {
    size_t n_pos = 0, n_named = 0;
    if (!count_args(r, list, &n_pos, &n_named))
        return false;
    struct jv *pos = few->pos, *names = few->names, *values = few->values;
    if (n_pos > 4 && !(pos = jinja_alloc(r, n_pos, sizeof *pos)))
        return false;
    if (n_named > 4 && (!(names = jinja_alloc(r, n_named, sizeof *names)) ||
                        !(values = jinja_alloc(r, n_named, sizeof *values))))
        return false;
    size_t p = 0, k = 0;
    for (const struct jinja_node *a = list; a; a = a->next) {
        struct jv v;
        if (!jinja_eval(
                r, a->kind == JN_STAR || a->kind == JN_STARSTAR || a->kind == JN_KWARG ? a->a : a,
                &v))
            return false;
        if (a->kind == JN_STAR) {
            const struct jv *items;
            size_t n;
            if (!jinja_items(r, v, &items, &n))
                return false;
            for (size_t i = 0; i < n && p < n_pos; i++)
                pos[p++] = items[i];
        } else if (a->kind == JN_STARSTAR) {
            if (v.kind != JV_DICT)
                return jinja_type_error(r, "a %s cannot be given as named arguments",
                                        jinja_type(v));
            for (size_t i = 0; i < v.d->n && k < n_named; i++) {
                if (v.d->keys[i].kind != JV_STR)
                    return jinja_type_error(r, "the names of arguments must be strings");
                names[k] = v.d->keys[i];
                values[k++] = v.d->values[i];
            }
        } else if (a->kind == JN_KWARG) {
            names[k] = a->value;
            values[k++] = v;
        } else {
            pos[p++] = v;
        }
    }
    *args = (struct jinja_args){pos, p, names, values, k};
    return true;
}

/* ---- calls ---- */

static bool call_joiner(struct jinja_run *r, struct jinja_joiner *j, struct jv *out) {
    if (j->used) {
        *out = j->sep;
        return true;
    }
    j->used = true;
    return jinja_str_borrow(r, "", 0, out);
}

bool jinja_call(struct jinja_run *r, struct jv fn, const struct jinja_args *args, struct jv *out) {
    switch (fn.kind) {
    case JV_FUNC:
        return jinja_builtin_call(r, fn.fn->b, fn.fn->self, args, out);
    case JV_MACRO:
        return jinja_macro_call(r, fn.m, args, out);
    case JV_LOOP:
        if (args->n != 1 || args->n_named)
            return jinja_type_error(r, "loop() takes what to loop over, and nothing else");
        return jinja_loop_call(r, fn.loop, args->pos[0], out);
    case JV_JOINER:
        return call_joiner(r, fn.j, out);
    case JV_UNDEF:
        return jinja_undef_error(r, fn);
    default:
        return jinja_type_error(r, "a %s cannot be called", jinja_type(fn));
    }
}

static __attribute__((noinline)) bool eval_call(struct jinja_run *r, const struct jinja_node *n,
                                                struct jv *out) {
    struct arg_buffers few;
    struct jinja_args args;
    struct jv fn;
    if (!jinja_eval(r, n->a, &fn) || !eval_args(r, n->b, &few, &args))
        return false;
    r->line = n->line;
    return jinja_call(r, fn, &args, out);
}

static __attribute__((noinline)) bool eval_builtin(struct jinja_run *r, const struct jinja_node *n,
                                                   struct jv operand, struct jv *out) {
    struct arg_buffers few;
    struct jinja_args args;
    if (!n->builtin)
        return jinja_fail(r, LODE_ERR_FORMAT, "there is no %s named %.*s",
                          n->kind == JN_FILTER ? "filter" : "test", (int)n->value.s->len,
                          n->value.s->data);
    if (!eval_args(r, n->b, &few, &args))
        return false;
    r->line = n->line;
    return jinja_builtin_call(r, n->builtin, operand, &args, out);
}

bool jinja_filter(struct jinja_run *r, const struct jinja_node *n, struct jv operand,
                  struct jv *out) {
    if (n->a && !jinja_filter(r, n->a, operand, &operand))
        return false;
    return eval_builtin(r, n, operand, out);
}

/* ---- composed values ---- */

static __attribute__((noinline)) bool eval_list(struct jinja_run *r, const struct jinja_node *n,
                                                struct jv *out) {
    size_t len = 0;
    for (const struct jinja_node *a = n->a; a; a = a->next)
        len++;
    struct jv *items = jinja_alloc(r, len, sizeof *items);
    if (!items)
        return false;
    len = 0;
    for (const struct jinja_node *a = n->a; a; a = a->next)
        if (!jinja_eval(r, a, &items[len++]))
            return false;
    if (!jinja_list(r, items, len, out))
        return false;
    out->kind = n->kind == JN_TUPLE ? JV_TUPLE : JV_LIST;
    return true;
}

static __attribute__((noinline)) bool eval_dict(struct jinja_run *r, const struct jinja_node *n,
                                                struct jv *out) {
    struct jinja_dict *d = jinja_dict_new(r);
    for (const struct jinja_node *pair = n->a; d && pair; pair = pair->next) {
        struct jv key, value;
        if (!jinja_eval(r, pair->a, &key) || !jinja_eval(r, pair->b, &value) ||
            !jinja_dict_put(r, d, key, value))
            return false;
    }
    *out = (struct jv){.kind = JV_DICT, .d = d};
    return d != NULL;
}

static __attribute__((noinline)) bool eval_slice(struct jinja_run *r, const struct jinja_node *n,
                                                 struct jv *out) {
    struct jv v, part[3] = {{0}};
    const struct jinja_node *const nodes[3] = {n->b, n->c, n->d};
    if (!jinja_eval(r, n->a, &v))
        return false;
    for (int i = 0; i < 3; i++)
        if (nodes[i] && !jinja_eval(r, nodes[i], &part[i]))
            return false;
    return jinja_slice(r, v, part[0], part[1], part[2], out);
}

/* ~ gives a plain string, even of Markup. */
static __attribute__((noinline)) bool eval_concat(struct jinja_run *r, const struct jinja_node *n,
                                                  struct jv *out) {
    struct jv v;
    if (!jinja_eval(r, n->a, out) || !jinja_to_str(r, *out, out))
        return false;
    out->mark = false;
    for (const struct jinja_node *a = n->a->next; a; a = a->next)
        if (!jinja_eval(r, a, &v) || !jinja_to_str(r, v, &v) || !jinja_concat(r, *out, v, out))
            return false;
    return true;
}

static bool compare(struct jinja_run *r, uint32_t op, struct jv a, struct jv b, bool *result) {
    switch (op) {
    case JINJA_OP2('=', '='):
        return jinja_equal(r, a, b, result);
    case JINJA_OP2('!', '='):
        if (!jinja_equal(r, a, b, result))
            return false;
        *result = !*result;
        return true;
    case JINJA_IN:
        return jinja_contains(r, b, a, result);
    case JINJA_NOT_IN:
        if (!jinja_contains(r, b, a, result))
            return false;
        *result = !*result;
        return true;
    default:
        return jinja_less(r, a, b, op, result);
    }
}

static __attribute__((noinline)) bool eval_compare(struct jinja_run *r, const struct jinja_node *n,
                                                   struct jv *out) {
    struct jv left, right;
    if (!jinja_eval(r, n->a, &left))
        return false;
    bool result = true;
    for (const struct jinja_node *o = n->b; o && result; o = o->next, left = right) {
        if (!jinja_eval(r, o->a, &right))
            return false;
        r->line = o->line;
        if (!compare(r, o->op, left, right, &result))
            return false;
    }
    *out = jv_bool(result);
    return true;
}

static __attribute__((noinline)) bool eval_binary(struct jinja_run *r, const struct jinja_node *n,
                                                  struct jv *out) {
    struct jv a, b;
    if (!jinja_eval(r, n->a, &a) || !jinja_eval(r, n->b, &b))
        return false;
    r->line = n->line;
    return jinja_binary(r, n->op, a, b, out);
}

static __attribute__((noinline)) bool eval_unary(struct jinja_run *r, const struct jinja_node *n,
                                                 struct jv *out) {
    struct jv v;
    if (!jinja_eval(r, n->a, &v))
        return false;
    if (n->kind == JN_NOT) {
        *out = jv_bool(!jinja_truth(v));
        return true;
    }
    if (n->kind == JN_NEG)
        return jinja_negate(r, v, out);
    if (v.kind == JV_UNDEF)
        return jinja_undef_error(r, v);
    if (!jv_is_number(v))
        return jinja_type_error(r, "+ of a %s", jinja_type(v));
    *out = v.kind == JV_BOOL ? jv_int(v.b) : v;
    return true;
}

static bool eval_node(struct jinja_run *r, const struct jinja_node *n, struct jv *out) {
    struct jv v, key;
    switch (n->kind) {
    case JN_CONST:
        *out = n->value;
        return true;
    case JN_NAME:
        return lookup(r, n->sym, out);
    case JN_TUPLE:
    case JN_LIST:
        return eval_list(r, n, out);
    case JN_DICT:
        return eval_dict(r, n, out);
    case JN_ATTR:
        if (!jinja_eval(r, n->a, &v))
            return false;
        r->line = n->line;
        return jinja_attr(r, v, n->value, out);
    case JN_ITEM:
        if (!jinja_eval(r, n->a, &v) || !jinja_eval(r, n->b, &key))
            return false;
        r->line = n->line;
        return jinja_item(r, v, key, out);
    case JN_SLICE:
        return eval_slice(r, n, out);
    case JN_CALL:
        return eval_call(r, n, out);
    case JN_FILTER:
        return jinja_eval(r, n->a, &v) && eval_builtin(r, n, v, out);
    case JN_TEST:
        return jinja_eval(r, n->a, &v) && eval_builtin(r, n, v, out);
    case JN_NOT:
    case JN_NEG:
    case JN_POS:
        return eval_unary(r, n, out);
    case JN_AND:
    case JN_OR:
        if (!jinja_eval(r, n->a, out))
            return false;
        return jinja_truth(*out) == (n->kind == JN_OR) || jinja_eval(r, n->b, out);
    case JN_BIN:
        return eval_binary(r, n, out);
    case JN_COMPARE:
        return eval_compare(r, n, out);
    case JN_CONCAT:
        return eval_concat(r, n, out);
    case JN_COND:
        if (!jinja_eval(r, n->b, &v))
            return false;
        if (jinja_truth(v))
            return jinja_eval(r, n->a, out);
        if (n->c)
            return jinja_eval(r, n->c, out);
        return jinja_undef(r, out, "the inline if was false and has no else");
    default:
        return jinja_fail(r, LODE_ERR_INTERNAL, "not an expression");
    }
}

bool jinja_eval(struct jinja_run *r, const struct jinja_node *n, struct jv *out) {
    r->line = n->line;
    if (!jinja_enter_call(r))
        return false;
    const bool ok = jinja_spend(r, 1) && eval_node(r, n, out);
    r->depth--;
    return ok;
}
