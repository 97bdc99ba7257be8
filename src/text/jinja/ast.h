/* ast.h - tokens, and the syntax tree of a template. */
#ifndef LODE_TEXT_JINJA_AST_H
#define LODE_TEXT_JINJA_AST_H

#include "text/jinja/value.h"

enum jinja_token_kind {
    JT_EOF,
    JT_DATA,
    JT_VAR_BEGIN,
    JT_VAR_END,
    JT_BLOCK_BEGIN,
    JT_BLOCK_END,
    JT_NAME,
    JT_STRING,
    JT_INT,
    JT_FLOAT,
    JT_OP,
};

#define JINJA_OP2(a, b) ((uint32_t)(a) << 8 | (uint32_t)(b)) /* a token of two characters */

struct jinja_token {
    uint8_t kind;
    uint32_t line;
    uint32_t op;          /* JT_OP: the character, or JINJA_OP2 */
    struct lode_str text; /* JT_NAME, JT_DATA, JT_STRING (unescaped) */
    struct jv value;      /* JT_INT, JT_FLOAT */
};

/* a, b, c, d, e: children; lists are linked by next */
enum jinja_node_kind {
    JN_CONST,    /* value */
    JN_NAME,     /* sym */
    JN_TUPLE,    /* a: list */
    JN_LIST,     /* a: list */
    JN_DICT,     /* a: list of JN_PAIR */
    JN_PAIR,     /* a: key, b: value */
    JN_ATTR,     /* a.value */
    JN_ITEM,     /* a[b] */
    JN_SLICE,    /* a[b:c:d], each of b, c, d may be NULL */
    JN_CALL,     /* a(b: arguments) */
    JN_KWARG,    /* value = a, among arguments */
    JN_STAR,     /* *a */
    JN_STARSTAR, /* **a */
    JN_FILTER,   /* a | value(b); a is NULL in filter blocks: the text */
    JN_TEST,     /* a is value(b) */
    JN_NOT,
    JN_NEG,
    JN_POS,
    JN_AND,     /* a, b */
    JN_OR,      /* a, b */
    JN_BIN,     /* a op b */
    JN_COMPARE, /* a, then list b of JN_OPERAND */
    JN_OPERAND, /* op a */
    JN_CONCAT,  /* a: list */
    JN_COND,    /* b if a else c; c may be NULL */
    JN_NSREF,   /* sym.value, a target */

    JN_DATA,         /* value */
    JN_OUTPUT,       /* a */
    JN_IF,           /* a: test, b: body, c: the JN_IF of elif; flag: c is the body of else */
    JN_FOR,          /* a: target, b: iterable, c: body, d: else, e: test; flag: recursive */
    JN_SET,          /* a: target, b: value */
    JN_SET_BLOCK,    /* a: target, b: filters or NULL, c: body */
    JN_MACRO,        /* sym, a: list of JN_PARAM, c: body; op: JINJA_USES_* */
    JN_PARAM,        /* sym, a: default or NULL */
    JN_CALL_BLOCK,   /* a: JN_CALL, b: JN_MACRO for caller */
    JN_FILTER_BLOCK, /* a: filters, c: body */
    JN_WITH,         /* a: list of JN_SET, c: body */
    JN_SCOPE,        /* c: body; flag: sees only the outermost scope */
    JN_BREAK,
    JN_CONTINUE,
    JN_FAIL, /* value: why this tag cannot be run */
};

enum { JINJA_USES_CALLER = 1, JINJA_USES_VARARGS = 2, JINJA_USES_KWARGS = 4 };

enum jinja_compare {
    JINJA_IN = 1, /* besides the characters of the operators */
    JINJA_NOT_IN,
};

struct jinja_node {
    uint8_t kind;
    bool flag;
    uint16_t height; /* of the tree below, which bounds the recursion of its evaluation */
    uint32_t line;
    uint32_t op;                         /* as in tokens, or JINJA_IN, or JINJA_USES_* */
    uint32_t sym;                        /* a variable: index of lode_template's syms */
    struct jv value;                     /* a constant, or a name as text */
    const struct jinja_builtin *builtin; /* JN_FILTER, JN_TEST; NULL: there is none */
    struct jinja_node *next, *a, *b, *c, *d, *e;
};

#endif
