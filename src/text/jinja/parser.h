/* parser.h - what the two halves of the parser share. */
#ifndef LODE_TEXT_JINJA_PARSER_H
#define LODE_TEXT_JINJA_PARSER_H

#include "base/map.h"
#include "text/jinja/jinja.h"

struct jinja_parser {
    struct jinja_run *r;
    struct lode_template *t;
    const struct jinja_token *token; /* the current one; the last is JT_EOF */
    struct lode_map sym_of;
    uint32_t cap_syms;
    uint32_t depth; /* of the parser's recursion */
    uint32_t uses;  /* JINJA_USES_* within the macro being parsed */
    /* The first filter or test that does not exist.  Within an if it is an error only when it is
     * reached, but a loop or a macro within that if makes it one at once (hard), as in jinja2. */
    const struct jinja_node *unknown, *hard;
    uint32_t n_loops; /* open within the current macro or block: where break may stand */
};

struct jinja_node *jinja_node_new(struct jinja_parser *p, int kind, uint32_t line);
/* Makes child the child of parent as far as heights go; false: too high. */
bool jinja_node_adopt(struct jinja_parser *p, struct jinja_node *parent,
                      const struct jinja_node *child);
bool jinja_parse_error(struct jinja_parser *p, const char *expected);
uint32_t jinja_sym(struct jinja_parser *p, struct lode_str name); /* UINT32_MAX: failed */
bool jinja_enter(struct jinja_parser *p); /* one level of recursion; leave by depth-- */

static inline bool jinja_at_name(const struct jinja_token *t, const char *name) {
    return t->kind == JT_NAME && lode_str_eqz(t->text, name);
}
static inline bool jinja_at_op(const struct jinja_token *t, uint32_t op) {
    return t->kind == JT_OP && t->op == op;
}
static inline bool jinja_skip_name(struct jinja_parser *p, const char *name) {
    return jinja_at_name(p->token, name) ? p->token++, true : false;
}
static inline bool jinja_skip_op(struct jinja_parser *p, uint32_t op) {
    return jinja_at_op(p->token, op) ? p->token++, true : false;
}
bool jinja_expect_op(struct jinja_parser *p, uint32_t op, const char *what);

/* NULL: failed */
struct jinja_node *jinja_parse_expr(struct jinja_parser *p);
/* One or more expressions separated by commas; end: a name that ends them, or NULL. */
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_cond, const char *end,
                                     bool in_parentheses);
struct jinja_node *jinja_parse_primary(struct jinja_parser *p);
/* "| filter | filter" or, started inline, "filter | filter", applied to operand. */
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *operand,
                                       bool inline_first);

#endif
