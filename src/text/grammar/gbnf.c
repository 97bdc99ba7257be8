/* gbnf.c - GBNF, the grammar notation of llama.cpp, to rules.
 *
 *     root  ::= item ("," item)*      # a comment
 *     item  ::= [a-z]+ | "x"{2,3} | . | [^\n] | "\x41\u00e9"
 *
 * A rule goes on over line ends where an operand must follow, and within parentheses.  Rules may
 * call one another in any order, but not themselves at their own beginning; all must be able to
 * end.
 */
#include "text/grammar/pattern.h"
#include "text/grammar/program.h"

#include "base/map.h"
#include "base/utf8.h"

enum { MAX_REPEAT = 100 * 1000 };

struct gbnf {
    struct gbuild *b;
    struct lode_str s;
    size_t at;
    struct expr *e;
    struct lode_map names; /* -> rule */
    GVEC(struct lode_str) rule_names;
    gvec_u32 bodies; /* node of each rule; G_NONE: not defined yet */
    struct span_list spans;
    uint32_t depth;
};

static int bad(struct gbnf *p, const char *what) {
    size_t line = 1, start = 0;
    for (size_t i = 0; i < p->at && i < p->s.len; i++)
        if (p->s.data[i] == '\n') {
            line++;
            start = i + 1;
        }
    return lode_fail(p->b->err, LODE_ERR_FORMAT, "grammar", "line %zu, column %zu: %s", line,
                     p->at - start + 1, what);
}

static char peek(const struct gbnf *p) { return p->at < p->s.len ? p->s.data[p->at] : 0; }
static bool eat(struct gbnf *p, char c) {
    if (p->at >= p->s.len || p->s.data[p->at] != c)
        return false;
    p->at++;
    return true;
}

/* Blanks and comments; line ends only where `lines`. */
static void skip(struct gbnf *p, bool lines) {
    for (; p->at < p->s.len; p->at++) {
        const char c = p->s.data[p->at];
        if (c == '#')
            while (p->at + 1 < p->s.len && p->s.data[p->at + 1] != '\n')
                p->at++;
        else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r')))
            return;
    }
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static struct lode_str read_name(struct gbnf *p) {
    const size_t start = p->at;
    while (is_name(peek(p)) && p->at < p->s.len)
        p->at++;
    return (struct lode_str){p->s.data + start, p->at - start};
}

static int rule_of(struct gbnf *p, struct lode_str name, uint32_t *rule) {
    uint32_t old = 0;
    const int rc = lode_map_put(&p->names, name, (uint32_t)p->bodies.n, &old);
    if (rc < 0)
        return gb_nomem(p->b);
    *rule = rc == 0 ? old : (uint32_t)p->bodies.n;
    if (rc == 1 && (!GVEC_PUSH(&p->bodies, G_NONE) || !GVEC_PUSH(&p->rule_names, name)))
        return gb_nomem(p->b);
    return 0;
}

/* A character of a literal or a class, with its escapes. */
static int read_char(struct gbnf *p, uint32_t *cp) {
    static const char from[] = "tnr\\\"[]-^", to[] = "\t\n\r\\\"[]-^";
    if (!eat(p, '\\')) {
        const size_t n = lode_utf8_decode(p->s.data + p->at, p->s.len - p->at, cp);
        if (!n)
            return bad(p, p->at < p->s.len ? "not UTF-8" : "the text ends within a literal");
        p->at += n;
        return 0;
    }
    const char c = peek(p);
    const char *known = c ? strchr(from, c) : NULL;
    unsigned n = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (p->at < p->s.len)
        p->at++;
    if (known) {
        *cp = (uint8_t)to[known - from];
        return 0;
    }
    if (!n)
        return bad(p, "an escape that is not one of \\t \\n \\r \\\\ \\\" \\[ \\] \\x41 \\u0041 "
                      "\\U00000041");
    uint64_t v = 0;
    for (; n > 0; n--) {
        const char h = peek(p), low = (char)(h | 32);
        if (!((h >= '0' && h <= '9') || (low >= 'a' && low <= 'f')))
            return bad(p, "a hex digit was expected");
        v = v << 4 | (uint64_t)(h <= '9' ? h - '0' : low - 'a' + 10);
        p->at++;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return bad(p, "the escape is no character");
    *cp = (uint32_t)v;
    return 0;
}

static int set_node(struct gbnf *p, bool negate, uint32_t *out) {
    *out = expr_set_node(p->e, p->spans.v, p->spans.n, negate);
    p->spans.n = 0;
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_literal(struct gbnf *p, uint32_t *out) {
    *out = expr_node(p->e, EXPR_EMPTY, 0, 0);
    while (!eat(p, '"')) {
        uint32_t cp, one;
        if (p->at >= p->s.len || peek(p) == '\n')
            return bad(p, "a literal \" has no end on its line");
        LODE_TRY(read_char(p, &cp));
        if (!span_add(&p->spans, cp, cp))
            return gb_nomem(p->b);
        LODE_TRY(set_node(p, false, &one));
        *out = expr_node(p->e, EXPR_CAT, *out, one);
        if (*out == UINT32_MAX)
            return gb_nomem(p->b);
        LODE_TRY(gb_work(p->b, 1));
    }
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_class(struct gbnf *p, uint32_t *out) {
    const bool negate = eat(p, '^');
    p->spans.n = 0;
    while (!eat(p, ']')) {
        uint32_t lo, hi;
        if (p->at >= p->s.len)
            return bad(p, "a class [ has no end");
        LODE_TRY(read_char(p, &lo));
        hi = lo;
        if (peek(p) == '-' && p->at + 1 < p->s.len && p->s.data[p->at + 1] != ']') {
            p->at++;
            LODE_TRY(read_char(p, &hi));
        }
        if (hi < lo)
            return bad(p, "a range ends before it begins");
        if (!span_add(&p->spans, lo, hi))
            return gb_nomem(p->b);
    }
    return set_node(p, negate, out);
}

static int read_either(struct gbnf *p, bool nested, uint32_t *out);

static bool read_count(struct gbnf *p, uint32_t *v) {
    const size_t start = p->at;
    uint64_t n = 0;
    for (; p->at < p->s.len && peek(p) >= '0' && peek(p) <= '9'; p->at++)
        n = n > MAX_REPEAT ? n : n * 10 + (uint64_t)(peek(p) - '0');
    *v = n > MAX_REPEAT ? MAX_REPEAT + 1 : (uint32_t)n;
    return p->at > start;
}

static int read_repeats(struct gbnf *p, uint32_t *node) {
    for (;;) {
        uint32_t min = 0, max = EXPR_MANY;
        if (eat(p, '+')) {
            min = 1;
        } else if (eat(p, '?')) {
            max = 1;
        } else if (eat(p, '{')) {
            skip(p, false);
            if (!read_count(p, &min))
                return bad(p, "a number was expected behind {");
            skip(p, false);
            max = min;
            if (eat(p, ',')) {
                skip(p, false);
                max = read_count(p, &max) ? max : EXPR_MANY;
                skip(p, false);
            }
            if (!eat(p, '}'))
                return bad(p, "} was expected");
            if (max < min || min > MAX_REPEAT || (max > MAX_REPEAT && max != EXPR_MANY))
                return bad(p, "a repetition must have {m,n} with m <= n <= 100000");
        } else if (!eat(p, '*')) {
            return 0;
        }
        *node = expr_rep(p->e, *node, min, max);
        if (*node == UINT32_MAX)
            return gb_nomem(p->b);
        skip(p, false);
    }
}

static int read_item(struct gbnf *p, uint32_t *out) {
    if (eat(p, '"'))
        return read_literal(p, out);
    if (eat(p, '['))
        return read_class(p, out);
    if (eat(p, '.'))
        return set_node(p, true, out);
    if (eat(p, '(')) {
        if (++p->depth > EXPR_DEPTH)
            return lode_fail(p->b->err, LODE_ERR_LIMIT, "grammar",
                             "parentheses are nested more than %d deep", EXPR_DEPTH);
        LODE_TRY(read_either(p, true, out));
        p->depth--;
        return eat(p, ')') ? 0 : bad(p, ") was expected");
    }
    const struct lode_str name = read_name(p);
    uint32_t rule;
    if (!name.len)
        return bad(p, "a literal, a class, a rule's name or ( was expected");
    LODE_TRY(rule_of(p, name, &rule));
    *out = expr_node(p->e, EXPR_CALL, rule, 0);
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

/* Whether what follows is "name ::=", which begins the next rule. */
static bool at_rule(struct gbnf *p) {
    const size_t back = p->at;
    const bool name = read_name(p).len > 0;
    skip(p, false);
    const bool is = name && p->s.len - p->at >= 3 && !memcmp(p->s.data + p->at, "::=", 3);
    p->at = back;
    return is;
}

static int read_sequence(struct gbnf *p, bool nested, uint32_t *out) {
    *out = expr_node(p->e, EXPR_EMPTY, 0, 0);
    skip(p, true);
    while (*out != UINT32_MAX && p->at < p->s.len && !strchr("|)\n\r", peek(p)) && !at_rule(p)) {
        uint32_t item;
        LODE_TRY(read_item(p, &item));
        skip(p, nested);
        LODE_TRY(read_repeats(p, &item));
        *out = expr_node(p->e, EXPR_CAT, *out, item);
        LODE_TRY(gb_work(p->b, 1));
        skip(p, nested);
    }
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_either(struct gbnf *p, bool nested, uint32_t *out) {
    LODE_TRY(read_sequence(p, nested, out));
    for (;;) {
        const size_t back = p->at;
        uint32_t next;
        skip(p, true); /* the next line may begin with | */
        if (!eat(p, '|')) {
            p->at = nested ? p->at : back;
            return 0;
        }
        LODE_TRY(read_sequence(p, nested, &next));
        *out = expr_node(p->e, EXPR_ALT, *out, next);
        if (*out == UINT32_MAX)
            return gb_nomem(p->b);
    }
}

static int read_rule(struct gbnf *p) {
    uint32_t rule, body;
    const struct lode_str name = read_name(p);
    if (!name.len)
        return bad(p, "a rule's name was expected");
    LODE_TRY(rule_of(p, name, &rule));
    skip(p, false);
    if (!(eat(p, ':') && eat(p, ':') && eat(p, '=')))
        return bad(p, "::= was expected");
    if (p->bodies.v[rule] != G_NONE)
        return bad(p, "this rule was defined before");
    LODE_TRY(read_either(p, false, &body));
    p->bodies.v[rule] = body;
    skip(p, false);
    if (p->at < p->s.len && peek(p) != '\n' && peek(p) != '\r' && !at_rule(p))
        return bad(p, "the rule should end here");
    skip(p, true);
    return 0;
}

/* ---- checks ---- */

static int rule_fail(struct gbnf *p, uint32_t rule, const char *what) {
    const struct lode_str n = p->rule_names.v[rule];
    return lode_fail(p->b->err, LODE_ERR_FORMAT, "grammar", "rule %.*s %s",
                     (int)(n.len < 100 ? n.len : 100), n.data, what);
}

/* For each state: can it come to the end of its rule at all, and without a character? */
struct facts {
    uint8_t *ends, *empty;
};

static bool state_fact(const struct lode_grammar *g, const uint8_t *f, uint32_t q, bool empty) {
    const struct nfa_state *s = &g->nfa.states.v[q];
    switch ((enum nfa_op)s->op) {
    case NFA_MATCH:
        return true;
    case NFA_SPLIT:
        return f[s->a] || f[s->b];
    case NFA_SET:
        return !empty && f[s->a] && g->expr.sets.v[s->b].n > 0;
    case NFA_CALL:
        return f[g->rules[s->b]] && f[s->a];
    default:
        return false;
    }
}

static int find_facts(struct gbnf *p, const struct lode_grammar *g, uint8_t *f, bool empty) {
    bool changed = true;
    while (changed) {
        changed = false;
        for (uint32_t q = 0; q < g->nfa.states.n; q++)
            if (!f[q] && state_fact(g, f, q, empty)) {
                f[q] = 1;
                changed = true;
            }
        LODE_TRY(gb_work(p->b, g->nfa.states.n));
    }
    return 0;
}

/* Takes out of the automaton what can never end, so that every thread of the machine can. */
static void prune(struct lode_grammar *g, const uint8_t *ends) {
    for (uint32_t q = 0; q < g->nfa.states.n; q++) {
        struct nfa_state *s = &g->nfa.states.v[q];
        if (s->op != NFA_SPLIT)
            continue;
        if (!ends[s->a])
            s->a = s->b;
        else if (!ends[s->b])
            s->b = s->a;
    }
}

/* Depth first along what needs no character; a rule met within itself is left-recursive.  color: 0
 * new, 1 on the way, 2 done; of states, by an own stack, for rules may be many. */
static int check_left(struct gbnf *p, const struct lode_grammar *g, const uint8_t *empty,
                      const uint8_t *ends) {
    struct visit {
        uint32_t q, step;
    };
    const uint32_t n = (uint32_t)g->nfa.states.n;
    uint8_t *color = lode_alloc_zero((size_t)n + g->n_rules, 1),
            *rule_color = color ? color + n : NULL;
    GVEC(struct visit) stack = {0};
    /* a rule is on the way while the call that entered it is on the stack */
    int rc = color ? 0 : gb_nomem(p->b);
    for (uint32_t r = 0; r < g->n_rules && rc == 0; r++) {
        if (rule_color[r] || !ends[g->rules[r]])
            continue;
        /* visit: q >= n stands for the end of rule q - n */
        rule_color[r] = 1;
        if (!GVEC_PUSH(&stack, ((struct visit){n + r, 0})) ||
            !GVEC_PUSH(&stack, ((struct visit){g->rules[r], 0})))
            rc = gb_nomem(p->b);
        while (stack.n && rc == 0) {
            struct visit *top = &stack.v[stack.n - 1];
            if (top->q >= n) {
                rule_color[top->q - n] = 2;
                stack.n--;
                continue;
            }
            const struct nfa_state *s = &g->nfa.states.v[top->q];
            const uint32_t step = top->step++;
            uint32_t next = G_NONE;
            if (s->op == NFA_SPLIT && step < 2)
                next = step ? s->b : s->a;
            else if (s->op == NFA_CALL && step == 0) {
                const uint8_t c = rule_color[s->b];
                if (c == 1)
                    rc = rule_fail(p, s->b,
                                   "calls itself at its own beginning (left recursion): "
                                   "write it with a repetition");
                else if (c == 0) {
                    rule_color[s->b] = 1;
                    next = g->rules[s->b];
                    if (!GVEC_PUSH(&stack, ((struct visit){n + s->b, 0})))
                        rc = gb_nomem(p->b);
                }
            } else if (s->op == NFA_CALL && step == 1 && empty[g->rules[s->b]])
                next = s->a;
            else if (s->op == NFA_CALL ? step >= 1 : true) {
                stack.n--;
                continue;
            }
            if (next == G_NONE || rc < 0 || color[next])
                continue;
            color[next] = 1;
            if (!GVEC_PUSH(&stack, ((struct visit){next, 0})))
                rc = gb_nomem(p->b);
        }
    }
    GVEC_FREE(&stack);
    lode_free(color);
    return rc;
}

static int check_rules(struct gbnf *p, struct lode_grammar *g) {
    const size_t n = g->nfa.states.n;
    uint8_t *ends = lode_alloc_zero(2 * n + 1, 1), *empty = ends ? ends + n : NULL;
    int rc = ends ? find_facts(p, g, ends, false) : gb_nomem(p->b);
    rc = rc == 0 ? find_facts(p, g, empty, true) : rc;
    if (rc == 0 && !ends[g->rules[g->start_rule]])
        rc = rule_fail(p, g->start_rule, "can never end: no text fits");
    if (rc == 0)
        prune(g, ends);
    rc = rc == 0 ? check_left(p, g, empty, ends) : rc;
    lode_free(ends);
    return rc;
}

static int build_rules(struct gbnf *p, struct lode_grammar *g) {
    g->n_rules = (uint32_t)p->bodies.n;
    g->start_rule = lode_map_get(&p->names, LODE_STR("root"));
    if (g->start_rule == LODE_MAP_NONE || p->bodies.v[g->start_rule] == G_NONE)
        return lode_fail(p->b->err, LODE_ERR_FORMAT, "grammar",
                         "there is no rule named root, with which a text begins");
    g->rules = LODE_ARENA_ARRAY(&g->arena, uint32_t, g->n_rules);
    if (!g->rules)
        return gb_nomem(p->b);
    for (uint32_t r = 0; r < g->n_rules; r++) {
        if (p->bodies.v[r] == G_NONE)
            return rule_fail(p, r, "is called but not defined");
        const uint32_t match = nfa_add(&g->nfa, NFA_MATCH, 0, 0);
        if (match == UINT32_MAX)
            return gb_nomem(p->b);
        LODE_TRY(nfa_emit(p->b, &g->nfa, &g->expr, p->bodies.v[r], match, &g->rules[r]));
    }
    return check_rules(p, g);
}

int gbnf_compile(struct gbuild *b, struct lode_grammar *g, struct lode_str text) {
    struct gbnf p = {.b = b, .s = text, .e = &g->expr};
    int rc = 0;
    g->root = G_ROOT_RULES;
    skip(&p, true);
    while (p.at < text.len && rc == 0)
        rc = read_rule(&p);
    rc = rc == 0 ? build_rules(&p, g) : rc;
    lode_map_free(&p.names);
    GVEC_FREE(&p.rule_names);
    GVEC_FREE(&p.bodies);
    lode_free(p.spans.v);
    return rc;
}
