/* parse_expr.c - expressions, by recursive descent with jinja2's precedences:
 *
 *   a if b else c | or | and | not | == < in ... | + - | ~ | * / // % | ** | - + | x.y x[y] x(y)
 *   and, outside the unary signs, | filter and is test
 */
#include "text/jinja/parser.h"

#include <stdio.h>

static struct jinja_node *parse_or(struct jinja_parser *p);
static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filters);

bool jinja_parse_error(struct jinja_parser *p, const char *expected) {
    const struct jinja_token *t = p->token;
    char got[64];
    switch (t->kind) {
    case JT_EOF:
        snprintf(got, sizeof got, "the end of the template");
        break;
    case JT_NAME:
        snprintf(got, sizeof got, "%.*s", t->text.len > 50 ? 50 : (int)t->text.len, t->text.data);
        break;
    case JT_STRING:
        snprintf(got, sizeof got, "a string");
        break;
    case JT_INT:
    case JT_FLOAT:
        snprintf(got, sizeof got, "a number");
        break;
    case JT_OP:
        if (t->op < 256)
            snprintf(got, sizeof got, "%c", (char)t->op);
        else
            snprintf(got, sizeof got, "%c%c", (char)(t->op >> 8), (char)t->op);
        break;
    case JT_DATA:
        snprintf(got, sizeof got, "text");
        break;
    default:
        snprintf(got, sizeof got, "%s",
                 t->kind == JT_VAR_BEGIN     ? "{{"
                 : t->kind == JT_VAR_END     ? "}}"
                 : t->kind == JT_BLOCK_BEGIN ? "{%"
                                             : "%}");
    }
    p->r->line = t->line;
    return jinja_fail(p->r, LODE_ERR_FORMAT, "%s expected, found %s", expected, got);
}

bool jinja_expect_op(struct jinja_parser *p, uint32_t op, const char *what) {
    return jinja_skip_op(p, op) || jinja_parse_error(p, what);
}

bool jinja_enter(struct jinja_parser *p) {
    if (p->depth < JINJA_MAX_HEIGHT)
        return p->depth++, true;
    p->r->line = p->token->line;
    return jinja_fail(p->r, LODE_ERR_LIMIT, "the chat template is nested deeper than %d levels",
                      JINJA_MAX_HEIGHT);
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, int kind, uint32_t line) {
    struct jinja_node *n = jinja_alloc(p->r, 1, sizeof *n);
    if (!n)
        return NULL;
    n->kind = (uint8_t)kind;
    n->line = line;
    return n;
}

bool jinja_node_adopt(struct jinja_parser *p, struct jinja_node *parent,
                      const struct jinja_node *child) {
    if (child && child->height >= parent->height)
        parent->height = (uint16_t)(child->height + 1);
    p->r->line = parent->line;
    return parent->height <= JINJA_MAX_HEIGHT ||
           jinja_fail(p->r, LODE_ERR_LIMIT, "the chat template is nested deeper than %d levels",
                      JINJA_MAX_HEIGHT);
}

/* A node with up to two children, any of which failed if it is NULL and `have` says so. */
static struct jinja_node *node2(struct jinja_parser *p, int kind, uint32_t line,
                                struct jinja_node *a, struct jinja_node *b) {
    struct jinja_node *n = jinja_node_new(p, kind, line);
    if (!n || !jinja_node_adopt(p, n, a) || !jinja_node_adopt(p, n, b))
        return NULL;
    n->a = a;
    n->b = b;
    return n;
}

/* Adds item to the list that starts at *first and ends before *end. */
static bool push(struct jinja_parser *p, struct jinja_node *parent, struct jinja_node ***end,
                 struct jinja_node *item) {
    if (!item || !jinja_node_adopt(p, parent, item))
        return false;
    **end = item;
    *end = &item->next;
    return true;
}

static struct jinja_node *string_node(struct jinja_parser *p, int kind, struct lode_str s,
                                      uint32_t line) {
    struct jinja_node *n = jinja_node_new(p, kind, line);
    return n && jinja_str_borrow(p->r, s.data, s.len, &n->value) ? n : NULL;
}

static struct jinja_node *expect_name(struct jinja_parser *p, int kind, const char *what) {
    if (p->token->kind != JT_NAME)
        return jinja_parse_error(p, what), NULL;
    const struct jinja_token *t = p->token++;
    return string_node(p, kind, t->text, t->line);
}

/* A name that may have dots, as no filter and no test has: an error when it is reached. */
static struct jinja_node *expect_dotted(struct jinja_parser *p, int kind, const char *what) {
    struct jinja_node *n = expect_name(p, kind, what);
    while (n && jinja_skip_op(p, '.')) {
        const struct jinja_node *more = expect_name(p, kind, what);
        struct jv dot;
        if (!more || !jinja_str_borrow(p->r, ".", 1, &dot) ||
            !jinja_concat(p->r, n->value, dot, &n->value) ||
            !jinja_concat(p->r, n->value, more->value, &n->value))
            return NULL;
    }
    return n;
}

/* ---- primaries ---- */

static struct jinja_node *parse_name(struct jinja_parser *p) {
    static const struct {
        const char *name;
        struct jv value;
    } constants[] = {{"true", {.kind = JV_BOOL, .b = true}},
                     {"True", {.kind = JV_BOOL, .b = true}},
                     {"false", {.kind = JV_BOOL}},
                     {"False", {.kind = JV_BOOL}},
                     {"none", {.kind = JV_NONE}},
                     {"None", {.kind = JV_NONE}}};
    const struct jinja_token *t = p->token++;
    struct jinja_node *n = jinja_node_new(p, JN_CONST, t->line);
    if (!n)
        return NULL;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (lode_str_eqz(t->text, constants[i].name)) {
            n->value = constants[i].value;
            return n;
        }
    }
    n->kind = JN_NAME;
    n->sym = jinja_sym(p, t->text);
    p->uses |= n->sym == p->t->sym_caller    ? JINJA_USES_CALLER
               : n->sym == p->t->sym_varargs ? JINJA_USES_VARARGS
               : n->sym == p->t->sym_kwargs  ? JINJA_USES_KWARGS
                                             : 0;
    return n->sym == UINT32_MAX ? NULL : n;
}

static struct jinja_node *parse_strings(struct jinja_parser *p) { /* adjacent ones are one */
    struct jinja_node *n = jinja_node_new(p, JN_CONST, p->token->line);
    if (!n)
        return NULL;
    n->value = (p->token++)->value;
    for (; p->token->kind == JT_STRING; p->token++)
        if (!jinja_concat(p->r, n->value, p->token->value, &n->value))
            return NULL;
    return n;
}

static struct jinja_node *parse_list(struct jinja_parser *p) {
    struct jinja_node *n = jinja_node_new(p, JN_LIST, p->token++->line);
    struct jinja_node **end = n ? &n->a : NULL;
    while (n && !jinja_skip_op(p, ']')) {
        if (n->a && !jinja_expect_op(p, ',', "a comma or ]"))
            return NULL;
        if (jinja_skip_op(p, ']'))
            break;
        if (!push(p, n, &end, jinja_parse_expr(p)))
            return NULL;
    }
    return n;
}

static struct jinja_node *parse_dict(struct jinja_parser *p) {
    struct jinja_node *n = jinja_node_new(p, JN_DICT, p->token++->line);
    struct jinja_node **end = n ? &n->a : NULL;
    while (n && !jinja_skip_op(p, '}')) {
        if (n->a && !jinja_expect_op(p, ',', "a comma or }"))
            return NULL;
        if (jinja_skip_op(p, '}'))
            break;
        struct jinja_node *key = jinja_parse_expr(p), *value = NULL;
        if (!key || !jinja_expect_op(p, ':', "a colon") || !(value = jinja_parse_expr(p)) ||
            !push(p, n, &end, node2(p, JN_PAIR, key->line, key, value)))
            return NULL;
    }
    return n;
}

struct jinja_node *jinja_parse_primary(struct jinja_parser *p) {
    const struct jinja_token *t = p->token;
    struct jinja_node *n;
    switch (t->kind) {
    case JT_NAME:
        return parse_name(p);
    case JT_STRING:
        return parse_strings(p);
    case JT_INT:
    case JT_FLOAT:
        if ((n = jinja_node_new(p, JN_CONST, t->line)))
            n->value = t->value;
        p->token++;
        return n;
    case JT_OP:
        if (t->op == '(') {
            p->token++;
            n = jinja_parse_tuple(p, true, NULL, true);
            return n && jinja_expect_op(p, ')', "a closing parenthesis") ? n : NULL;
        }
        if (t->op == '[')
            return parse_list(p);
        if (t->op == '{')
            return parse_dict(p);
        break;
    default:
        break;
    }
    jinja_parse_error(p, "an expression");
    return NULL;
}

struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_cond, const char *end_name,
                                     bool in_parentheses) {
    struct jinja_node *tuple = jinja_node_new(p, JN_TUPLE, p->token->line);
    struct jinja_node **end = tuple ? &tuple->a : NULL;
    bool is_tuple = false;
    while (tuple) {
        if (tuple->a && !jinja_expect_op(p, ',', "a comma"))
            return NULL;
        const struct jinja_token *t = p->token;
        if (t->kind == JT_VAR_END || t->kind == JT_BLOCK_END || jinja_at_op(t, ')') ||
            (end_name && jinja_at_name(t, end_name)))
            break;
        if (!push(p, tuple, &end, with_cond ? jinja_parse_expr(p) : parse_or(p)))
            return NULL;
        if (!jinja_at_op(p->token, ','))
            break;
        is_tuple = true;
    }
    if (!tuple || is_tuple)
        return tuple;
    if (tuple->a)
        return tuple->a;
    if (in_parentheses)
        return tuple;
    jinja_parse_error(p, "an expression");
    return NULL;
}

/* ---- calls, subscripts, filters, tests ---- */

/* Arguments in parentheses, added to n->b. */
static bool parse_args(struct jinja_parser *p, struct jinja_node *n) {
    struct jinja_node **end = &n->b;
    int stage = 0; /* 0: positional, 1: named, 2: after *args, 3: after **kwargs */
    p->token++;    /* ( */
    while (!jinja_skip_op(p, ')')) {
        if (n->b && (!jinja_expect_op(p, ',', "a comma or a closing parenthesis")))
            return false;
        if (n->b && jinja_skip_op(p, ')'))
            break;
        const uint32_t line = p->token->line;
        struct jinja_node *item;
        int next = 0;
        if (jinja_skip_op(p, '*')) {
            next = 2;
            item = jinja_parse_expr(p);
            item = item ? node2(p, JN_STAR, line, item, NULL) : NULL;
        } else if (jinja_skip_op(p, JINJA_OP2('*', '*'))) {
            next = 3;
            item = jinja_parse_expr(p);
            item = item ? node2(p, JN_STARSTAR, line, item, NULL) : NULL;
        } else if (p->token->kind == JT_NAME && jinja_at_op(p->token + 1, '=')) {
            next = 1;
            item = expect_name(p, JN_KWARG, "a name");
            p->token++; /* = */
            if (item && (!(item->a = jinja_parse_expr(p)) || !jinja_node_adopt(p, item, item->a)))
                return false;
        } else {
            item = jinja_parse_expr(p);
        }
        if (item &&
            (stage == 3 || (stage >= 2 && next != 3 && next != 1) || (stage == 1 && next == 0)))
            return jinja_parse_error(p, "arguments in the order a, name=b, *c, **d");
        stage = next > stage ? next : stage;
        if (!push(p, n, &end, item))
            return false;
    }
    return true;
}

static struct jinja_node *parse_call(struct jinja_parser *p, struct jinja_node *fn) {
    struct jinja_node *n = node2(p, JN_CALL, p->token->line, fn, NULL);
    return n && parse_args(p, n) ? n : NULL;
}

static struct jinja_node *parse_subscript(struct jinja_parser *p, struct jinja_node *of) {
    const uint32_t line = p->token->line;
    if (jinja_skip_op(p, '.')) {
        if (p->token->kind == JT_INT) { /* a.0 */
            struct jinja_node *index = jinja_node_new(p, JN_CONST, line);
            if (!index)
                return NULL;
            index->value = p->token++->value;
            return node2(p, JN_ITEM, line, of, index);
        }
        struct jinja_node *n = expect_name(p, JN_ATTR, "a name or a number");
        if (!n || !jinja_node_adopt(p, n, of))
            return NULL;
        n->a = of;
        return n;
    }
    p->token++; /* [ */
    struct jinja_node *n = node2(p, JN_ITEM, line, of, NULL), *part[3] = {NULL, NULL, NULL};
    if (!n)
        return NULL;
    int colons = 0;
    for (;;) {
        if (!jinja_at_op(p->token, ':') && !jinja_at_op(p->token, ']')) {
            if (!(part[colons] = jinja_parse_expr(p)) || !jinja_node_adopt(p, n, part[colons]))
                return NULL;
        }
        if (colons == 2 || !jinja_skip_op(p, ':'))
            break;
        colons++;
    }
    if (colons == 0 && jinja_at_op(p->token, ',')) { /* x[1, 2]: a tuple as the key */
        struct jinja_node *tuple = node2(p, JN_TUPLE, line, part[0], NULL);
        struct jinja_node **end = &part[0]->next;
        while (tuple && jinja_skip_op(p, ','))
            if (!push(p, tuple, &end, jinja_parse_expr(p)))
                return NULL;
        part[0] = tuple;
        if (!tuple || !jinja_node_adopt(p, n, tuple))
            return NULL;
    }
    if (!jinja_expect_op(p, ']', "a closing bracket"))
        return NULL;
    if (colons == 0 && !part[0])
        return p->token--, jinja_parse_error(p, "an index"), NULL;
    n->kind = colons ? JN_SLICE : JN_ITEM;
    n->b = part[0];
    n->c = part[1];
    n->d = part[2];
    return n;
}

static struct jinja_node *parse_postfix(struct jinja_parser *p, struct jinja_node *n) {
    while (n) {
        if (jinja_at_op(p->token, '.') || jinja_at_op(p->token, '['))
            n = parse_subscript(p, n);
        else if (jinja_at_op(p->token, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

static void look_up(struct jinja_parser *p, struct jinja_node *n,
                    const struct jinja_builtin *table) {
    n->builtin = jinja_find(table, jv_text(n->value));
    if (!n->builtin && !p->unknown)
        p->unknown = n;
}

struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *operand,
                                       bool inline_first) {
    while (inline_first || jinja_skip_op(p, '|')) {
        inline_first = false;
        struct jinja_node *n = expect_dotted(p, JN_FILTER, "the name of a filter");
        if (!n || !jinja_node_adopt(p, n, operand))
            return NULL;
        look_up(p, n, jinja_filters);
        n->a = operand;
        if (jinja_at_op(p->token, '(') && !parse_args(p, n))
            return NULL;
        operand = n;
    }
    return operand;
}

static struct jinja_node *parse_test(struct jinja_parser *p, struct jinja_node *operand) {
    const uint32_t line = p->token++->line; /* is */
    const bool negated = jinja_skip_name(p, "not");
    struct jinja_node *n = expect_dotted(p, JN_TEST, "the name of a test");
    if (!n || !jinja_node_adopt(p, n, operand))
        return NULL;
    look_up(p, n, jinja_tests);
    n->a = operand;
    const struct jinja_token *t = p->token;
    if (jinja_at_op(t, '(')) {
        if (!parse_args(p, n))
            return NULL;
    } else if (t->kind == JT_STRING || t->kind == JT_INT || t->kind == JT_FLOAT ||
               jinja_at_op(t, '[') || jinja_at_op(t, '{') ||
               (t->kind == JT_NAME && !jinja_at_name(t, "else") && !jinja_at_name(t, "or") &&
                !jinja_at_name(t, "and"))) {
        if (jinja_at_name(t, "is"))
            return jinja_parse_error(p, "and or or between two tests"), NULL;
        n->b = parse_postfix(p, jinja_parse_primary(p));
        if (!n->b || !jinja_node_adopt(p, n, n->b))
            return NULL;
    }
    return negated ? node2(p, JN_NOT, line, n, NULL) : n;
}

static struct jinja_node *parse_filter_expr(struct jinja_parser *p, struct jinja_node *n) {
    while (n) {
        if (jinja_at_op(p->token, '|'))
            n = jinja_parse_filters(p, n, false);
        else if (jinja_at_name(p->token, "is"))
            n = parse_test(p, n);
        else if (jinja_at_op(p->token, '('))
            n = parse_call(p, n);
        else
            break;
    }
    return n;
}

/* ---- operators ---- */

static struct jinja_node *parse_unary(struct jinja_parser *p, bool with_filters) {
    const uint32_t line = p->token->line;
    struct jinja_node *n;
    if (!jinja_enter(p))
        return NULL;
    if (jinja_at_op(p->token, '-') || jinja_at_op(p->token, '+')) {
        const int kind = p->token++->op == '-' ? JN_NEG : JN_POS;
        n = parse_unary(p, false);
        n = n ? node2(p, kind, line, n, NULL) : NULL;
    } else {
        n = jinja_parse_primary(p);
    }
    n = parse_postfix(p, n);
    if (with_filters)
        n = parse_filter_expr(p, n);
    p->depth--;
    return n;
}

/* Binary operators of one precedence, from the left; ops ends with 0. */
static struct jinja_node *parse_left(struct jinja_parser *p, const uint32_t *ops,
                                     struct jinja_node *(*operand)(struct jinja_parser *)) {
    struct jinja_node *n = operand(p);
    while (n) {
        size_t i = 0;
        while (ops[i] && !jinja_at_op(p->token, ops[i]))
            i++;
        if (!ops[i])
            break;
        const uint32_t line = p->token++->line;
        struct jinja_node *right = operand(p);
        if (!right || !(n = node2(p, JN_BIN, line, n, right)))
            return NULL;
        n->op = ops[i];
    }
    return n;
}

static struct jinja_node *parse_signed(struct jinja_parser *p) {
    return parse_unary(p, true);
}

static struct jinja_node *parse_pow(struct jinja_parser *p) {
    static const uint32_t ops[] = {JINJA_OP2('*', '*'), 0};
    return parse_left(p, ops, parse_signed);
}

static struct jinja_node *parse_product(struct jinja_parser *p) {
    static const uint32_t ops[] = {'*', '/', JINJA_OP2('/', '/'), '%', 0};
    return parse_left(p, ops, parse_pow);
}

static struct jinja_node *parse_concat(struct jinja_parser *p) {
    struct jinja_node *first = parse_product(p);
    if (!first || !jinja_at_op(p->token, '~'))
        return first;
    struct jinja_node *n = node2(p, JN_CONCAT, p->token->line, first, NULL);
    struct jinja_node **end = &first->next;
    while (n && jinja_skip_op(p, '~'))
        if (!push(p, n, &end, parse_product(p)))
            return NULL;
    return n;
}

static struct jinja_node *parse_sum(struct jinja_parser *p) {
    static const uint32_t ops[] = {'+', '-', 0};
    return parse_left(p, ops, parse_concat);
}

/* The comparison at the current token, skipped; 0: none. */
static uint32_t comparison(struct jinja_parser *p) {
    static const uint32_t ops[] = {JINJA_OP2('=', '='),
                                   JINJA_OP2('!', '='),
                                   JINJA_OP2('<', '='),
                                   JINJA_OP2('>', '='),
                                   '<',
                                   '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_skip_op(p, ops[i]))
            return ops[i];
    if (jinja_skip_name(p, "in"))
        return JINJA_IN;
    if (jinja_at_name(p->token, "not") && jinja_at_name(p->token + 1, "in")) {
        p->token += 2;
        return JINJA_NOT_IN;
    }
    return 0;
}

static struct jinja_node *parse_compare(struct jinja_parser *p) {
    struct jinja_node *first = parse_sum(p), *n = NULL, **end = NULL;
    for (uint32_t op; first && (op = comparison(p));) {
        if (!n) {
            if (!(n = node2(p, JN_COMPARE, first->line, first, NULL)))
                return NULL;
            end = &n->b;
        }
        struct jinja_node *right = parse_sum(p);
        right = right ? node2(p, JN_OPERAND, right->line, right, NULL) : NULL;
        if (!push(p, n, &end, right))
            return NULL;
        right->op = op;
    }
    return n ? n : first;
}

static struct jinja_node *parse_not(struct jinja_parser *p) {
    if (!jinja_at_name(p->token, "not"))
        return parse_compare(p);
    const uint32_t line = p->token++->line;
    if (!jinja_enter(p))
        return NULL;
    struct jinja_node *n = parse_not(p);
    p->depth--;
    return n ? node2(p, JN_NOT, line, n, NULL) : NULL;
}

static struct jinja_node *parse_logic(struct jinja_parser *p, const char *word, int kind,
                                      struct jinja_node *(*operand)(struct jinja_parser *)) {
    struct jinja_node *n = operand(p);
    while (n && jinja_at_name(p->token, word)) {
        const uint32_t line = p->token++->line;
        struct jinja_node *right = operand(p);
        n = right ? node2(p, kind, line, n, right) : NULL;
    }
    return n;
}

static struct jinja_node *parse_and(struct jinja_parser *p) {
    return parse_logic(p, "and", JN_AND, parse_not);
}

static struct jinja_node *parse_or(struct jinja_parser *p) {
    return parse_logic(p, "or", JN_OR, parse_and);
}

struct jinja_node *jinja_parse_expr(struct jinja_parser *p) {
    if (!jinja_enter(p))
        return NULL;
    const struct jinja_node *const unknown = p->unknown;
    struct jinja_node *n = parse_or(p);
    while (n && jinja_at_name(p->token, "if")) {
        const uint32_t line = p->token++->line;
        struct jinja_node *test = parse_or(p), *other = NULL;
        if (!test || (jinja_skip_name(p, "else") && !(other = jinja_parse_expr(p))))
            return NULL;
        n = node2(p, JN_COND, line, n, test);
        if (!n || !jinja_node_adopt(p, n, other))
            return NULL;
        n->c = other;
        p->unknown = unknown; /* reached or not, that is the condition's to say */
    }
    p->depth--;
    return n;
}
