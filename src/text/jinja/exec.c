/* exec.c - runs statements: scopes, loops, macros. */
#include "text/jinja/jinja.h"

#include <string.h>

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE, FLOW_FAILED };

static enum flow exec_body(struct jinja_run *r, const struct jinja_node *first);

/* ---- scopes ---- */

static struct jinja_scope *new_scope(struct jinja_run *r, struct jinja_scope *parent) {
    struct jinja_scope *s = jinja_alloc(r, 1, sizeof *s);
    if (s)
        s->parent = parent;
    return s;
}

static bool set_var(struct jinja_run *r, uint32_t sym, struct jv value) {
    struct jinja_scope *s = r->scope;
    if (!s) {
        r->globals[sym] = value;
        return true;
    }
    if (!jinja_spend(r, s->n / 16))
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        if (s->syms[i] == sym) {
            s->values[i] = value;
            return true;
        }
    }
    if (s->n == s->cap) {
        const uint32_t cap = s->cap ? s->cap * 2 : 4;
        uint32_t *syms = jinja_alloc(r, cap, sizeof *syms);
        struct jv *values = syms ? jinja_alloc(r, cap, sizeof *values) : NULL;
        if (!values)
            return false;
        if (s->n) {
            memcpy(syms, s->syms, s->n * sizeof *syms);
            memcpy(values, s->values, s->n * sizeof *values);
        }
        s->syms = syms;
        s->values = values;
        s->cap = cap;
    }
    s->syms[s->n] = sym;
    s->values[s->n++] = value;
    return true;
}

static bool set_attr(struct jinja_run *r, const struct jinja_node *target, struct jv value) {
    const struct jinja_node name = {.kind = JN_NAME, .sym = target->sym, .line = target->line};
    struct jv ns;
    if (!jinja_eval(r, &name, &ns))
        return false;
    if (ns.kind != JV_NS)
        return jinja_fail(r, LODE_ERR_FORMAT, "only a namespace() has attributes that can be set");
    return jinja_dict_put(r, ns.d, target->value, value);
}

static bool assign(struct jinja_run *r, const struct jinja_node *target, struct jv value) {
    if (target->kind == JN_NAME)
        return set_var(r, target->sym, value);
    if (target->kind == JN_NSREF)
        return set_attr(r, target, value);
    const struct jv *items;
    size_t n, at = 0;
    if (!jinja_items(r, value, &items, &n))
        return false;
    for (const struct jinja_node *t = target->a; t; t = t->next, at++)
        if (at < n && !assign(r, t, items[at]))
            return false;
    return at == n || jinja_type_error(r, "%zu values for %zu names", n, at);
}

/* ---- output ---- */

static bool emit(struct jinja_run *r, struct jv v) {
    if (!jinja_print(r, &r->out, v))
        return false;
    if (r->out.failed)
        return jinja_fail(r, LODE_ERR_NOMEM, "out of memory for the output of the chat template");
    return r->out.len <= JINJA_MAX_OUTPUT ||
           jinja_fail(r, LODE_ERR_LIMIT, "the chat template writes more than %d MB",
                      JINJA_MAX_OUTPUT >> 20);
}

/* What was written since mark becomes a string. */
static bool take_output(struct jinja_run *r, size_t mark, struct jv *out) {
    const size_t len = r->out.len - mark;
    if (!jinja_str(r, r->out.data ? r->out.data + mark : "", len, out))
        return false;
    r->out.len = mark;
    if (r->out.data)
        r->out.data[mark] = '\0';
    return true;
}

/* Runs body in a scope of its own within parent and gives its output. */
static bool capture(struct jinja_run *r, const struct jinja_node *body, struct jinja_scope *scope,
                    struct jv *out) {
    struct jinja_scope *const saved = r->scope;
    const size_t mark = r->out.len;
    r->scope = scope;
    const enum flow flow = exec_body(r, body);
    r->scope = saved;
    return flow != FLOW_FAILED && take_output(r, mark, out);
}

static bool capture_in_new_scope(struct jinja_run *r, const struct jinja_node *body,
                                 struct jv *out) {
    struct jinja_scope *s = new_scope(r, r->scope);
    return s && capture(r, body, s, out);
}

/* ---- macros ---- */

static bool bind_params(struct jinja_run *r, const struct jinja_node *macro,
                        const struct jinja_args *args, bool *used) {
    size_t at = 0;
    for (const struct jinja_node *p = macro->a; p; p = p->next, at++) {
        struct jv v = {0};
        const struct lode_str name = r->t->syms[p->sym];
        if (!jinja_spend(r, args->n_named))
            return false;
        if (at < args->n)
            v = args->pos[at];
        for (size_t i = 0; at >= args->n && i < args->n_named; i++) {
            if (lode_str_eq(jv_text(args->names[i]), name)) {
                v = args->values[i];
                used[i] = true;
            }
        }
        if (!jv_given(v) && p->a && !jinja_eval(r, p->a, &v))
            return false;
        if (!jv_given(v) && !jinja_undef(r, &v, "parameter '%.*s' was not provided",
                                         name.len > 200 ? 200 : (int)name.len, name.data))
            return false;
        if (!set_var(r, p->sym, v))
            return false;
    }
    if (macro->op & JINJA_USES_VARARGS) {
        struct jv rest;
        const size_t n = args->n > at ? args->n - at : 0;
        struct jv *items = jinja_alloc(r, n, sizeof *items);
        if (!items)
            return false;
        if (n)
            memcpy(items, args->pos + at, n * sizeof *items);
        if (!jinja_list(r, items, n, &rest))
            return false;
        rest.kind = JV_TUPLE;
        return set_var(r, r->t->sym_varargs, rest);
    }
    return args->n <= at ||
           jinja_type_error(r, "a macro of %zu parameters got %zu arguments", at, args->n);
}

/* caller and kwargs: what is left of the named arguments. */
static bool bind_rest(struct jinja_run *r, const struct jinja_node *macro,
                      const struct jinja_args *args, bool *used) {
    if (macro->op & JINJA_USES_CALLER) {
        struct jv caller = {0};
        for (size_t i = 0; i < args->n_named; i++) {
            if (!used[i] && jv_is_text(args->names[i], "caller")) {
                caller = args->values[i];
                used[i] = true;
            }
        }
        if (jv_given(caller) && !set_var(r, r->t->sym_caller, caller))
            return false;
        if (!jv_given(caller) && (!jinja_undef(r, &caller, "No caller defined") ||
                                  !set_var(r, r->t->sym_caller, caller)))
            return false;
    }
    struct jinja_dict *kwargs = jinja_dict_new(r);
    if (!kwargs)
        return false;
    for (size_t i = 0; i < args->n_named; i++) {
        if (used[i])
            continue;
        if (!(macro->op & JINJA_USES_KWARGS))
            return jinja_type_error(r, "the macro has no parameter %.*s",
                                    (int)args->names[i].s->len, args->names[i].s->data);
        if (!jinja_dict_put(r, kwargs, args->names[i], args->values[i]))
            return false;
    }
    return !(macro->op & JINJA_USES_KWARGS) ||
           set_var(r, r->t->sym_kwargs, (struct jv){.kind = JV_DICT, .d = kwargs});
}

bool jinja_macro_call(struct jinja_run *r, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jv *out) {
    struct jinja_scope *const saved = r->scope;
    struct jinja_scope *s = new_scope(r, m->scope);
    bool *used = s ? jinja_alloc(r, args->n_named, sizeof *used) : NULL;
    if (!used)
        return false;
    r->scope = s;
    const bool ok = bind_params(r, m->node, args, used) && bind_rest(r, m->node, args, used) &&
                    capture(r, m->node->c, s, out);
    r->scope = saved;
    return ok;
}

static bool make_macro(struct jinja_run *r, const struct jinja_node *n, struct jv *out) {
    struct jinja_macro *m = jinja_alloc(r, 1, sizeof *m);
    if (!m)
        return false;
    *m = (struct jinja_macro){n, r->scope};
    for (struct jinja_scope *s = r->scope; s; s = s->parent)
        s->captured = true;
    *out = (struct jv){.kind = JV_MACRO, .m = m};
    return true;
}

/* {% call(x) macro(args) %} body {% endcall %}: the body travels as the argument caller. */
static bool exec_call_block(struct jinja_run *r, const struct jinja_node *n) {
    struct jv caller, text;
    if (!make_macro(r, n->b, &caller))
        return false;
    struct jinja_node value = {.kind = JN_CONST, .line = n->line, .value = caller};
    struct jinja_node kwarg = {.kind = JN_KWARG, .line = n->line, .a = &value};
    struct jinja_node call = *n->a;
    if (!jinja_str_borrow(r, "caller", 6, &kwarg.value))
        return false;
    kwarg.next = call.b; /* named arguments may be evaluated in any order */
    call.b = &kwarg;
    return jinja_eval(r, &call, &text) && emit(r, text);
}

/* ---- loops ---- */

/* Tests items until one passes or none is left: lazily, as jinja2's generators do. */
static bool loop_take(struct jinja_run *r, struct jinja_loop *loop) {
    while (loop->at < loop->n) {
        const struct jv item = loop->items[loop->at++];
        if (loop->node->e) {
            struct jinja_scope *const saved = r->scope;
            struct jinja_scope *s = new_scope(r, loop->scope);
            struct jv passed;
            r->scope = s;
            const bool ok =
                s && assign(r, loop->node->a, item) && jinja_eval(r, loop->node->e, &passed);
            r->scope = saved;
            if (!ok)
                return false;
            if (!jinja_truth(passed))
                continue;
        }
        loop->taken[loop->n_taken++] = item;
        break;
    }
    return true;
}

static bool loop_length(struct jinja_run *r, struct jinja_loop *loop, size_t *n) {
    while (loop->at < loop->n)
        if (!loop_take(r, loop))
            return false;
    *n = loop->n_taken;
    return true;
}

/* *have: is there an item after the current one? */
static bool loop_peek(struct jinja_run *r, struct jinja_loop *loop, bool *have) {
    while (loop->n_taken <= loop->index0 + 1 && loop->at < loop->n)
        if (!loop_take(r, loop))
            return false;
    *have = loop->n_taken > loop->index0 + 1;
    return true;
}

bool jinja_loop_attr(struct jinja_run *r, struct jinja_loop *loop, struct lode_str name,
                     struct jv *out) {
    const int64_t i = (int64_t)loop->index0;
    bool have;
    size_t n;
    *out = (struct jv){0};
    if (lode_str_eqz(name, "index0")) {
        *out = jv_int(i);
    } else if (lode_str_eqz(name, "index")) {
        *out = jv_int(i + 1);
    } else if (lode_str_eqz(name, "first")) {
        *out = jv_bool(i == 0);
    } else if (lode_str_eqz(name, "depth0")) {
        *out = jv_int((int64_t)loop->depth0);
    } else if (lode_str_eqz(name, "depth")) {
        *out = jv_int((int64_t)loop->depth0 + 1);
    } else if (lode_str_eqz(name, "last") || lode_str_eqz(name, "nextitem")) {
        if (!loop_peek(r, loop, &have))
            return false;
        if (lode_str_eqz(name, "last"))
            *out = jv_bool(!have);
        else if (have)
            *out = loop->taken[i + 1];
        else
            return jinja_undef(r, out, "there is no next item");
    } else if (lode_str_eqz(name, "previtem")) {
        if (i == 0)
            return jinja_undef(r, out, "there is no previous item");
        *out = loop->taken[i - 1];
    } else if (lode_str_eqz(name, "length") || lode_str_eqz(name, "revindex") ||
               lode_str_eqz(name, "revindex0")) {
        if (!loop_length(r, loop, &n))
            return false;
        *out = jv_int(lode_str_eqz(name, "length")     ? (int64_t)n
                      : lode_str_eqz(name, "revindex") ? (int64_t)n - i
                                                       : (int64_t)n - i - 1);
    }
    return true;
}

static bool exec_iterations(struct jinja_run *r, const struct jinja_node *n,
                            struct jinja_loop *loop) {
    struct jinja_scope *s = NULL;
    for (loop->index0 = 0;; loop->index0++) {
        if (loop->n_taken <= loop->index0 && !loop_take(r, loop))
            return false;
        if (loop->n_taken <= loop->index0)
            return true;
        if (!s || s->captured) {
            if (!(s = new_scope(r, loop->scope)))
                return false;
        }
        s->n = 0; /* each iteration starts afresh */
        r->scope = s;
        if (!jinja_spend(r, 1) || !assign(r, n->a, loop->taken[loop->index0]) ||
            !set_var(r, r->t->sym_loop, (struct jv){.kind = JV_LOOP, .loop = loop}))
            return false;
        const enum flow flow = exec_body(r, n->c);
        if (flow == FLOW_FAILED)
            return false;
        if (flow == FLOW_BREAK)
            return true;
        loop->completed = loop->completed || flow == FLOW_ON;
    }
}

static bool exec_loop(struct jinja_run *r, const struct jinja_node *n, struct jv iterable,
                      struct jinja_scope *scope, size_t depth0) {
    struct jinja_loop *loop = jinja_alloc(r, 1, sizeof *loop);
    if (!loop || !jinja_items(r, iterable, &loop->items, &loop->n) ||
        !(loop->taken = jinja_alloc(r, loop->n, sizeof *loop->taken)))
        return false;
    loop->node = n;
    loop->scope = scope;
    loop->depth0 = depth0;
    struct jinja_scope *const saved = r->scope;
    bool ok = exec_iterations(r, n, loop);
    if (ok && !loop->completed && n->d) { /* as jinja2: else, unless a body ran to its end */
        struct jinja_scope *s = r->scope = new_scope(r, scope);
        ok = s && exec_body(r, n->d) != FLOW_FAILED;
    }
    r->scope = saved;
    return ok;
}

bool jinja_loop_call(struct jinja_run *r, struct jinja_loop *loop, struct jv items,
                     struct jv *out) {
    const size_t mark = r->out.len;
    if (!loop->node->flag)
        return jinja_type_error(r, "only a loop marked recursive can be called");
    if (!jinja_enter_call(r))
        return false;
    const bool ok = exec_loop(r, loop->node, items, loop->scope, loop->depth0 + 1);
    r->depth--;
    return ok && take_output(r, mark, out);
}

/* ---- statements ---- */

/* The branch that is taken, NULL: none. */
static bool choose_branch(struct jinja_run *r, const struct jinja_node *n,
                          const struct jinja_node **body) {
    for (;;) {
        struct jv test;
        if (!jinja_eval(r, n->a, &test))
            return false;
        if (jinja_truth(test)) {
            *body = n->b;
            return true;
        }
        if (n->flag || !n->c) {
            *body = n->c;
            return true;
        }
        n = n->c;
    }
}

static bool exec_set_block(struct jinja_run *r, const struct jinja_node *n) {
    struct jv v;
    return capture_in_new_scope(r, n->c, &v) && (!n->b || jinja_filter(r, n->b, v, &v)) &&
           assign(r, n->a, v);
}

static enum flow exec_with(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_scope *const outer = r->scope, *s = new_scope(r, outer);
    if (!s)
        return FLOW_FAILED;
    for (const struct jinja_node *set = n->a; set; set = set->next) {
        struct jv v; /* values see the outer scope only */
        if (!jinja_eval(r, set->b, &v))
            return FLOW_FAILED;
        r->scope = s;
        const bool ok = assign(r, set->a, v);
        r->scope = outer;
        if (!ok)
            return FLOW_FAILED;
    }
    r->scope = s;
    const enum flow flow = exec_body(r, n->c);
    r->scope = outer;
    return flow;
}

static enum flow exec_scope(struct jinja_run *r, const struct jinja_node *n) {
    struct jinja_scope *const outer = r->scope, *s = new_scope(r, n->flag ? NULL : outer);
    if (!s)
        return FLOW_FAILED;
    r->scope = s;
    const enum flow flow = exec_body(r, n->c);
    r->scope = outer;
    return flow;
}

static enum flow exec(struct jinja_run *r, const struct jinja_node *n) {
    const struct jinja_node *body;
    struct jv v;
    bool ok = true;
    switch (n->kind) {
    case JN_DATA:
        ok = emit(r, n->value);
        break;
    case JN_OUTPUT:
        ok = jinja_eval(r, n->a, &v) && emit(r, v);
        break;
    case JN_IF:
        if (!choose_branch(r, n, &body))
            return FLOW_FAILED;
        return exec_body(r, body);
    case JN_FOR:
        ok = jinja_eval(r, n->b, &v) && exec_loop(r, n, v, r->scope, 0);
        break;
    case JN_SET:
        ok = jinja_eval(r, n->b, &v) && assign(r, n->a, v);
        break;
    case JN_SET_BLOCK:
        ok = exec_set_block(r, n);
        break;
    case JN_MACRO:
        ok = make_macro(r, n, &v) && set_var(r, n->sym, v);
        break;
    case JN_CALL_BLOCK:
        ok = exec_call_block(r, n);
        break;
    case JN_FILTER_BLOCK:
        ok = capture_in_new_scope(r, n->c, &v) && jinja_filter(r, n->a, v, &v) &&
             (v.kind == JV_STR ||
              jinja_type_error(r, "a filter block made a %s of its text", jinja_type(v))) &&
             emit(r, v);
        break;
    case JN_WITH:
        return exec_with(r, n);
    case JN_SCOPE:
        return exec_scope(r, n);
    case JN_BREAK:
        return FLOW_BREAK;
    case JN_CONTINUE:
        return FLOW_CONTINUE;
    default: /* JN_FAIL */
        ok = jinja_fail(r, LODE_ERR_UNSUPPORTED, "%s", n->value.s->data);
    }
    return ok ? FLOW_ON : FLOW_FAILED;
}

static enum flow exec_body(struct jinja_run *r, const struct jinja_node *first) {
    if (!jinja_enter_call(r))
        return FLOW_FAILED;
    enum flow flow = FLOW_ON;
    for (const struct jinja_node *n = first; n && flow == FLOW_ON; n = n->next) {
        r->line = n->line;
        flow = jinja_spend(r, 1) ? exec(r, n) : FLOW_FAILED;
    }
    r->depth--;
    return flow;
}

bool jinja_run_template(struct jinja_run *r) {
    r->scope = NULL;
    return exec_body(r, r->t->body->c) != FLOW_FAILED;
}
