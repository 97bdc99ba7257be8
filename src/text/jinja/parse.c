/* parse.c - statements, and the names of variables. */
#include "text/jinja/parser.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

static bool parse_body(struct jinja_parser *p, struct jinja_node *parent, struct jinja_node **first,
                       const char *const *ends);

/* Around what has a scope of its own: in there a name that does not exist is an error at once. */
static const struct jinja_node *begin_scope(struct jinja_parser *p) {
    const struct jinja_node *const outside = p->unknown;
    p->unknown = NULL;
    return outside;
}
static void end_scope(struct jinja_parser *p, const struct jinja_node *outside) {
    if (!p->hard)
        p->hard = p->unknown;
    p->unknown = outside;
}

static bool parse_scope(struct jinja_parser *p, struct jinja_node *parent,
                        struct jinja_node **first, const char *const *ends) {
    const struct jinja_node *const outside = begin_scope(p);
    const bool ok = parse_body(p, parent, first, ends);
    end_scope(p, outside);
    return ok;
}

/* The filters that a block's text goes through belong to its scope. */
static struct jinja_node *parse_block_filters(struct jinja_parser *p, bool inline_first) {
    const struct jinja_node *const outside = begin_scope(p);
    struct jinja_node *n = jinja_parse_filters(p, NULL, inline_first);
    end_scope(p, outside);
    return n;
}

uint32_t jinja_sym(struct jinja_parser *p, struct lode_str name) {
    struct lode_template *t = p->t;
    const uint32_t known = lode_map_get(&p->sym_of, name);
    if (known != LODE_MAP_NONE)
        return known;
    if (t->n_syms == p->cap_syms) {
        const uint32_t cap = p->cap_syms ? p->cap_syms * 2 : 64;
        struct lode_str *syms = jinja_alloc(p->r, cap, sizeof *syms);
        if (!syms)
            return UINT32_MAX;
        if (t->n_syms)
            memcpy(syms, t->syms, t->n_syms * sizeof *syms);
        t->syms = syms;
        p->cap_syms = cap;
    }
    if (lode_map_put(&p->sym_of, name, t->n_syms, NULL) < 0)
        return jinja_fail(p->r, LODE_ERR_NOMEM, "out of memory for the chat template"), UINT32_MAX;
    t->syms[t->n_syms] = name;
    return t->n_syms++;
}

/* ---- targets of assignments ---- */

static struct jinja_node *parse_target_name(struct jinja_parser *p, int kind) {
    if (p->token->kind != JT_NAME)
        return jinja_parse_error(p, "the name of a variable"), NULL;
    static const char *const reserved[] = {"true", "True", "false", "False", "none", "None"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (jinja_at_name(p->token, reserved[i]))
            return jinja_parse_error(p, "the name of a variable"), NULL;
    struct jinja_node *n = jinja_node_new(p, kind, p->token->line);
    if (!n || (n->sym = jinja_sym(p, p->token++->text)) == UINT32_MAX)
        return NULL;
    return n;
}

static struct jinja_node *parse_target(struct jinja_parser *p, bool with_namespace);

static struct jinja_node *parse_one_target(struct jinja_parser *p, bool with_namespace) {
    if (jinja_skip_op(p, '(')) {
        struct jinja_node *n = NULL;
        if (jinja_enter(p)) {
            n = parse_target(p, with_namespace);
            p->depth--;
        }
        return n && jinja_expect_op(p, ')', "a closing parenthesis") ? n : NULL;
    }
    struct jinja_node *n = parse_target_name(p, JN_NAME);
    if (n && with_namespace && jinja_skip_op(p, '.')) {
        n->kind = JN_NSREF;
        if (p->token->kind != JT_NAME)
            return jinja_parse_error(p, "the name of an attribute"), NULL;
        const struct lode_str name = p->token++->text;
        if (!jinja_str_borrow(p->r, name.data, name.len, &n->value))
            return NULL;
    }
    return n;
}

static struct jinja_node *parse_target(struct jinja_parser *p, bool with_namespace) {
    struct jinja_node *n = parse_one_target(p, with_namespace);
    if (!n || !jinja_at_op(p->token, ','))
        return n;
    struct jinja_node *tuple = jinja_node_new(p, JN_TUPLE, n->line), **end = &n->next;
    if (!tuple || !jinja_node_adopt(p, tuple, n))
        return NULL;
    tuple->a = n;
    while (jinja_skip_op(p, ',')) {
        if (p->token->kind != JT_NAME && !jinja_at_op(p->token, '('))
            break; /* a, = ... */
        if (jinja_at_name(p->token, "in"))
            break;
        if (!(n = parse_one_target(p, with_namespace)) || !jinja_node_adopt(p, tuple, n))
            return NULL;
        *end = n;
        end = &n->next;
    }
    return tuple;
}

/* ---- statements: each is called behind its word, and leaves the closing %} ---- */

static const char *const
    end_for[] = {"endfor", NULL},
    *const else_for[] = {"endfor", "else", NULL}, *const end_if[] = {"endif", NULL},
    *const else_if[] = {"endif", "elif", "else", NULL}, *const end_set[] = {"endset", NULL},
    *const end_macro[] = {"endmacro", NULL}, *const end_call[] = {"endcall", NULL},
    *const end_with[] = {"endwith", NULL}, *const end_filter[] = {"endfilter", NULL},
    *const end_block[] = {"endblock", NULL}, *const end_generation[] = {"endgeneration", NULL},
    *const end_autoescape[] = {"endautoescape", NULL};

/* Parses one child and counts its height. */
#define CHILD(n, field, call) (((n)->field = (call)) && jinja_node_adopt(p, (n), (n)->field))

static bool parse_if(struct jinja_parser *p, struct jinja_node *n) {
    const struct jinja_node *const unknown = p->unknown;
    n->kind = JN_IF;
    for (struct jinja_node *first = n;;) { /* elif is a JN_IF in c, but does not nest */
        if (!CHILD(n, a, jinja_parse_tuple(p, false, NULL, false)) ||
            !parse_body(p, n, &n->b, else_if))
            return false;
        const struct jinja_token *t = p->token++;
        if (jinja_at_name(t, "elif")) {
            struct jinja_node *next = jinja_node_new(p, JN_IF, t->line);
            if (!next || (n != first && !jinja_node_adopt(p, first, n)))
                return false;
            n->c = next;
            n = next;
            continue;
        }
        if (jinja_at_name(t, "else")) {
            if (!parse_body(p, n, &n->c, end_if))
                return false;
            p->token++;
            n->flag = true; /* c is a body */
        }
        if (n != first && !jinja_node_adopt(p, first, n))
            return false;
        break;
    }
    p->unknown = unknown;
    return true;
}

static bool parse_for(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_FOR;
    if (!CHILD(n, a, parse_target(p, false)))
        return false;
    if (!jinja_skip_name(p, "in"))
        return jinja_parse_error(p, "in");
    if (!CHILD(n, b, jinja_parse_tuple(p, false, "recursive", false)) ||
        (jinja_skip_name(p, "if") && !CHILD(n, e, jinja_parse_expr(p))))
        return false;
    n->flag = jinja_skip_name(p, "recursive");
    p->n_loops++;
    const bool ok = parse_scope(p, n, &n->c, else_for);
    p->n_loops--;
    if (!ok)
        return false;
    if (jinja_at_name(p->token++, "else")) {
        if (!parse_scope(p, n, &n->d, end_for))
            return false;
        p->token++;
    }
    return true;
}

static bool parse_set(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_SET;
    if (!CHILD(n, a, parse_target(p, true)))
        return false;
    if (jinja_skip_op(p, '='))
        return CHILD(n, b, jinja_parse_tuple(p, true, NULL, false));
    n->kind = JN_SET_BLOCK;
    if (jinja_at_op(p->token, '|') && !CHILD(n, b, parse_block_filters(p, false)))
        return false;
    if (!parse_scope(p, n, &n->c, end_set))
        return false;
    p->token++;
    return true;
}

/* Parameters in parentheses, into n->a. */
static bool parse_signature(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node **end = &n->a;
    bool defaults = false;
    if (!jinja_expect_op(p, '(', "an opening parenthesis"))
        return false;
    while (!jinja_skip_op(p, ')')) {
        if (n->a && !jinja_expect_op(p, ',', "a comma or a closing parenthesis"))
            return false;
        struct jinja_node *param = parse_target_name(p, JN_PARAM);
        if (!param)
            return false;
        if (jinja_skip_op(p, '=')) {
            defaults = true;
            if (!CHILD(param, a, jinja_parse_expr(p)))
                return false;
        } else if (defaults) {
            return jinja_parse_error(p, "a default, as for the parameter before,");
        }
        if (!jinja_node_adopt(p, n, param))
            return false;
        *end = param;
        end = &param->next;
    }
    return true;
}

/* The body of a macro or of a call block, with what it uses of caller, varargs and kwargs. */
static bool parse_macro_body(struct jinja_parser *p, struct jinja_node *n,
                             const char *const *ends) {
    const uint32_t uses = p->uses, n_loops = p->n_loops;
    p->uses = 0;
    p->n_loops = 0;
    if (!parse_scope(p, n, &n->c, ends))
        return false;
    p->token++;
    n->op = p->uses;
    p->uses |= uses; /* as jinja2: what an inner macro uses, the outer one takes too */
    p->n_loops = n_loops;
    return true;
}

static bool parse_macro(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node *name = parse_target_name(p, JN_NAME);
    n->kind = JN_MACRO;
    if (!name)
        return false;
    n->sym = name->sym;
    return parse_signature(p, n) && parse_macro_body(p, n, end_macro);
}

static bool parse_call_block(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_CALL_BLOCK;
    struct jinja_node *caller = n->b = jinja_node_new(p, JN_MACRO, n->line);
    if (!caller)
        return false;
    caller->sym = p->t->sym_caller;
    if (jinja_at_op(p->token, '(') && !parse_signature(p, caller))
        return false;
    if (!CHILD(n, a, jinja_parse_expr(p)))
        return false;
    if (n->a->kind != JN_CALL)
        return jinja_parse_error(p, "a call of a macro");
    return parse_macro_body(p, caller, end_call) && jinja_node_adopt(p, n, caller);
}

static bool parse_filter_block(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_FILTER_BLOCK;
    if (!CHILD(n, a, parse_block_filters(p, true)) || !parse_scope(p, n, &n->c, end_filter))
        return false;
    p->token++;
    return true;
}

static bool parse_with(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node **end = &n->a;
    n->kind = JN_WITH;
    while (p->token->kind != JT_BLOCK_END) {
        if (n->a && !jinja_expect_op(p, ',', "a comma"))
            return false;
        struct jinja_node *set = jinja_node_new(p, JN_SET, p->token->line);
        if (!set || !CHILD(set, a, parse_target(p, false)) || !jinja_expect_op(p, '=', "=") ||
            !CHILD(set, b, jinja_parse_expr(p)) || !jinja_node_adopt(p, n, set))
            return false;
        *end = set;
        end = &set->next;
    }
    if (!parse_scope(p, n, &n->c, end_with))
        return false;
    p->token++;
    return true;
}

/* {% generation %} marks what the model wrote, for training; here it only makes a scope. */
static bool parse_generation(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_SCOPE;
    return parse_macro_body(p, n, end_generation);
}

static bool parse_block(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = JN_SCOPE;
    n->flag = true;
    if (p->token->kind != JT_NAME)
        return jinja_parse_error(p, "the name of a block");
    const struct lode_str name = p->token++->text;
    if (jinja_skip_name(p, "scoped"))
        n->flag = false;
    jinja_skip_name(p, "required");
    if (!parse_macro_body(p, n, end_block))
        return false;
    if (p->token->kind == JT_NAME && lode_str_eq(p->token->text, name))
        p->token++;
    return true;
}

static bool parse_print(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node **end = &n->c;
    n->kind = JN_SCOPE; /* of outputs */
    while (p->token->kind != JT_BLOCK_END) {
        if (n->c && !jinja_expect_op(p, ',', "a comma"))
            return false;
        struct jinja_node *output = jinja_node_new(p, JN_OUTPUT, p->token->line);
        if (!output || !CHILD(output, a, jinja_parse_expr(p)) || !jinja_node_adopt(p, n, output))
            return false;
        *end = output;
        end = &output->next;
    }
    return true;
}

static bool parse_loop_control(struct jinja_parser *p, struct jinja_node *n) {
    n->kind = jinja_at_name(p->token - 1, "break") ? JN_BREAK : JN_CONTINUE;
    if (p->n_loops)
        return true;
    p->token--;
    return jinja_parse_error(p, "a loop around break or continue");
}

/* {% autoescape false %}, which changes nothing; escaping is not offered. */
static bool parse_autoescape(struct jinja_parser *p, struct jinja_node *n) {
    static const char why[] = "a chat template cannot turn autoescape on";
    const bool off = jinja_at_name(p->token, "false") || jinja_at_name(p->token, "False");
    n->kind = JN_SCOPE;
    if (!off && p->token->kind != JT_BLOCK_END) {
        n->kind = JN_FAIL;
        while (p->token->kind != JT_BLOCK_END && p->token->kind != JT_EOF)
            p->token++;
    } else {
        p->token++;
    }
    if (!parse_scope(p, n, &n->c, end_autoescape))
        return false;
    p->token++;
    return n->kind == JN_SCOPE || jinja_str_borrow(p->r, why, sizeof why - 1, &n->value);
}

/* include, import, from, extends: there are no other templates to take. */
static bool parse_other_template(struct jinja_parser *p, struct jinja_node *n) {
    static const char why[] = "a chat template cannot include, import or extend another template";
    n->kind = JN_FAIL;
    while (p->token->kind != JT_BLOCK_END && p->token->kind != JT_EOF)
        p->token++;
    return jinja_str_borrow(p->r, why, sizeof why - 1, &n->value);
}

static const struct statement {
    const char *word;
    bool (*parse)(struct jinja_parser *p, struct jinja_node *n);
} statements[] = {
    {"if", parse_if},
    {"for", parse_for},
    {"set", parse_set},
    {"macro", parse_macro},
    {"call", parse_call_block},
    {"filter", parse_filter_block},
    {"with", parse_with},
    {"generation", parse_generation},
    {"block", parse_block},
    {"print", parse_print},
    {"autoescape", parse_autoescape},
    {"break", parse_loop_control},
    {"continue", parse_loop_control},
    {"include", parse_other_template},
    {"import", parse_other_template},
    {"from", parse_other_template},
    {"extends", parse_other_template},
};

static bool parse_statement(struct jinja_parser *p, struct jinja_node *n) {
    if (p->token->kind != JT_NAME)
        return jinja_parse_error(p, "the name of a tag");
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (jinja_at_name(p->token, statements[i].word)) {
            p->token++;
            return statements[i].parse(p, n);
        }
    }
    return jinja_parse_error(p, "a known tag");
}

static struct jinja_node *parse_piece(struct jinja_parser *p) {
    const struct jinja_token *t = p->token++;
    struct jinja_node *n = jinja_node_new(p, JN_DATA, t->line);
    if (!n)
        return NULL;
    switch (t->kind) {
    case JT_DATA:
        return jinja_str_borrow(p->r, t->text.data, t->text.len, &n->value) ? n : NULL;
    case JT_VAR_BEGIN:
        n->kind = JN_OUTPUT;
        if (!CHILD(n, a, jinja_parse_tuple(p, true, NULL, false)))
            return NULL;
        if (p->token->kind != JT_VAR_END)
            return jinja_parse_error(p, "}}"), NULL;
        p->token++;
        return n;
    default: /* JT_BLOCK_BEGIN */
        if (!parse_statement(p, n))
            return NULL;
        if (p->token->kind != JT_BLOCK_END)
            return jinja_parse_error(p, "%}"), NULL;
        p->token++;
        return n;
    }
}

/* From the %} that opens a body to the word that ends it, which stays the current token.
 * ends NULL: the whole template. */
static bool parse_body(struct jinja_parser *p, struct jinja_node *parent, struct jinja_node **first,
                       const char *const *ends) {
    struct jinja_node **end = first;
    if (ends) {
        jinja_skip_op(p, ':'); /* as in Python */
        if (p->token->kind != JT_BLOCK_END)
            return jinja_parse_error(p, "%}");
        p->token++;
    }
    if (!jinja_enter(p))
        return false;
    for (;;) {
        if (p->token->kind == JT_EOF) {
            if (!ends)
                break;
            char what[40];
            snprintf(what, sizeof what, "{%% %s %%}", ends[0]);
            return jinja_parse_error(p, what);
        }
        if (ends && p->token->kind == JT_BLOCK_BEGIN) {
            const char *const *e = ends;
            while (*e && !jinja_at_name(p->token + 1, *e))
                e++;
            if (*e) {
                p->token++;
                break;
            }
        }
        struct jinja_node *n = parse_piece(p);
        if (!n || !jinja_node_adopt(p, parent, n))
            return false;
        *end = n;
        end = &n->next;
    }
    p->depth--;
    return true;
}

bool jinja_compile(struct jinja_run *r, struct lode_template *t, const char *source, size_t len) {
    struct jinja_token *tokens;
    size_t n;
    if (!jinja_lex(r, source, len, &t->source, &tokens, &n))
        return false;
    struct jinja_parser p = {.r = r, .t = t, .token = tokens};
    t->sym_loop = jinja_sym(&p, LODE_STR("loop"));
    t->sym_caller = jinja_sym(&p, LODE_STR("caller"));
    t->sym_varargs = jinja_sym(&p, LODE_STR("varargs"));
    t->sym_kwargs = jinja_sym(&p, LODE_STR("kwargs"));
    t->body = jinja_node_new(&p, JN_SCOPE, 1);
    bool ok = r->rc == 0 && t->body && parse_scope(&p, t->body, &t->body->c, NULL);
    if (ok && p.hard) {
        r->line = p.hard->line;
        ok = jinja_fail(r, LODE_ERR_FORMAT, "there is no %s named %.*s",
                        p.hard->kind == JN_FILTER ? "filter" : "test", (int)p.hard->value.s->len,
                        p.hard->value.s->data);
    }
    lode_map_free(&p.sym_of);
    return ok;
}
