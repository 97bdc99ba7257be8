/* jinja.h - the template engine's own parts, shared by the jinja_*.c files.
 *
 * What is rendered is what the Python package jinja2 renders in the environment that
 * transformers makes for chat templates: trim_blocks and lstrip_blocks on, an immutable sandbox,
 * loop controls, {% generation %}, a tojson that does not escape, raise_exception and
 * strftime_now.  Values print as Python prints them.
 *
 *   jinja_lex.c      text -> tokens
 *   jinja_parse.c    tokens -> statements;  jinja_parse_expr.c: expressions
 *   jinja_exec.c     runs statements;       jinja_eval.c: expressions and calls
 *   jinja_ops.c      operators, comparison; jinja_item.c: attributes, items, slices
 *   jinja_value.c    values and limits;     jinja_dict.c: dicts
 *   jinja_print.c    str() and repr();      jinja_json.c: JSON in and out
 *   jinja_chars.c    characters and cases;  jinja_format.c: % and str.format
 *   jinja_filters.c  jinja_seq.c  jinja_tests.c  jinja_globals.c  jinja_methods.c
 *   jinja_objects.c  what templates can call
 *   template.c       the public functions of lode/chat.h
 *
 * Not offered, because no chat template can need them: include, import and extends (there are no
 * other templates; an error where one is reached), autoescape, and the filters urlize, wordwrap,
 * pprint and random.
 *
 * Templates and their variables come from strangers.  Every loop and every allocation is counted
 * against the limits below, so that no template can hang or exhaust memory. */
#ifndef LODE_TEXT_JINJA_H
#define LODE_TEXT_JINJA_H

#include "base/arena.h"
#include "base/buf.h"
#include "lode/chat.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jinja_limit {
    JINJA_MAX_SOURCE = 4 << 20,   /* bytes of a template */
    JINJA_MAX_HEIGHT = 400,       /* of the syntax tree, and of the parser's recursion */
    JINJA_MAX_DEPTH = 800,        /* nodes under evaluation at once: nesting and macro calls */
    JINJA_MAX_NESTING = 200,      /* lists in lists, in JSON and while printing or comparing */
    JINJA_MAX_OUTPUT = 64 << 20,  /* bytes */
    JINJA_MAX_MEMORY = 256 << 20, /* bytes of values made by one rendering */
    JINJA_MAX_STEPS = 50000000,   /* of some 10 ns: nodes evaluated, items visited, text read */
    JINJA_MAX_RANGE = 100000,     /* as the sandbox of jinja2 */
    JINJA_MAX_ARGS = 8,           /* named parameters of a built-in */
};

/* ---- values ---- */

enum jinja_kind {
    JV_MISSING, /* an argument that was not given; never seen by templates */
    JV_UNDEF,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_BIG, /* an integer beyond 64 bits, as its digits */
    JV_FLOAT,
    JV_STR,
    JV_LIST,
    JV_TUPLE,
    JV_RANGE,
    JV_VIEW, /* dict.keys(), values(), items() */
    JV_DICT,
    JV_GEN, /* what map, select and others return: read once, always true, no length */
    JV_NS,
    JV_FUNC,
    JV_MACRO,
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
};

struct jinja_text {   /* immutable */
    const char *data; /* (len) UTF-8; may be shared with other texts */
    size_t len;
    size_t n_chars;          /* code points */
    struct jinja_tail *tail; /* the buffer data lies in, if it has room to grow; or NULL */
};

struct jv {
    uint8_t kind;
    uint8_t mark; /* a string that is Markup; a tuple that groupby made */
    union {
        bool b;
        int64_t i;
        double f;
        const struct jinja_text *s;  /* JV_STR, JV_BIG */
        const struct jinja_list *l;  /* JV_LIST, JV_TUPLE, JV_RANGE, JV_VIEW */
        struct jinja_dict *d;        /* JV_DICT, JV_NS */
        struct jinja_gen *g;         /* JV_GEN, JV_CYCLER */
        const struct jinja_undef *u; /* JV_UNDEF */
        const struct jinja_func *fn;
        const struct jinja_macro *m;
        struct jinja_loop *loop;
        struct jinja_joiner *j;
    };
};

struct jinja_list {
    const struct jv *items; /* (n) */
    size_t n;
    int64_t start, stop, step; /* JV_RANGE */
    const char *name;          /* JV_VIEW: how Python calls it */
};

struct jinja_dict {           /* keeps the order of insertion */
    struct jv *keys, *values; /* (n) of (cap) */
    uint32_t n, cap;
    uint32_t *slots; /* (n_slots) index + 1 by hash; NULL while the dict is small */
    uint32_t n_slots;
};

struct jinja_gen { /* also a cycler, which starts over */
    const struct jv *items;
    size_t n, at;
};

struct jinja_undef {
    const char *why; /* the sentence of the error that using it makes */
};

struct jinja_joiner {
    struct jv sep;
    bool used;
};

struct jinja_args {
    const struct jv *pos;
    size_t n;
    const struct jv *names, *values; /* (n_named) keyword arguments */
    size_t n_named;
};

struct jinja_run;
/* self: what the filter, test or method is applied to.  a: (JINJA_MAX_ARGS) the arguments bound
 * to the parameters, JV_MISSING where absent; args: as they were given. */
typedef bool jinja_fn(struct jinja_run *r, struct jv self, const struct jv *a,
                      const struct jinja_args *args, struct jv *out);

#define JINJA_FN(name)                                                                             \
    static bool name(struct jinja_run *r, struct jv self, const struct jv *a,                      \
                     const struct jinja_args *args, struct jv *out)
#define JINJA_UNUSED (void)r, (void)self, (void)a, (void)args, (void)out
/* A built-in that is one call. */
#define JINJA_IS(name, result)                                                                     \
    JINJA_FN(name) {                                                                               \
        JINJA_UNUSED;                                                                              \
        return result;                                                                             \
    }

struct jinja_builtin {
    const char *name;
    jinja_fn *fn;
    const char *params; /* names separated by spaces; NULL: any arguments, unbound */
    unsigned required;
};

struct jinja_func { /* a global function or a bound method */
    const struct jinja_builtin *b;
    struct jv self;
};

/* ---- tokens and the syntax tree ---- */

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

enum jinja_node_kind {              /* a, b, c, d, e: children; lists are linked by next */
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

                       JN_DATA,   /* value */
                       JN_OUTPUT, /* a */
                       JN_IF,     /* a: test, b: body, c: else */
                       JN_FOR, /* a: target, b: iterable, c: body, d: else, e: test; flag: recursive
                                */
                       JN_SET, /* a: target, b: value */
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
    uint16_t height;
    uint32_t line;
    uint32_t op;
    uint32_t sym;
    struct jv value;
    const struct jinja_builtin *builtin; /* JN_FILTER, JN_TEST; NULL: there is none */
    struct jinja_node *next, *a, *b, *c, *d, *e;
};

/* ---- running ---- */

struct jinja_scope { /* variables set in a loop's body, a macro, a block */
    struct jinja_scope *parent;
    uint32_t *syms;
    struct jv *values;
    uint32_t n, cap;
    bool captured; /* by a macro: must not be used again */
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* where it was defined */
};

struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* around the loop */
    const struct jv *items;    /* what is iterated over */
    size_t n, at;              /* the next one to test */
    struct jv *taken;          /* (n) those that passed the loop's test so far */
    size_t n_taken, index0, depth0;
    bool completed;    /* an iteration ran to its end, without break or continue */
    struct jv changed; /* the arguments of the last loop.changed() */
};

struct lode_template {
    struct lode_arena arena; /* owns everything */
    struct jinja_node *body;
    struct lode_str *syms; /* (n_syms) names of variables */
    uint32_t n_syms;
    uint32_t sym_loop, sym_caller, sym_varargs, sym_kwargs;
    void *c_locale; /* numbers and dates are written as in C, whatever the program chose */
};

struct jinja_run { /* one compilation or one rendering */
    struct lode_arena arena;
    size_t memory;
    uint64_t steps;
    uint32_t line, depth;
    int rc; /* of the first failure */
    struct lode_error *err;
    /* rendering only */
    const struct lode_template *t;
    struct lode_buf out;
    struct jv *globals; /* (n_syms) JV_MISSING where neither set nor given */
    struct jinja_scope *scope;
    int64_t now;
};

/* All functions that return bool return false after a failure that is recorded in r. */

bool jinja_compile(struct jinja_run *r, struct lode_template *t, const char *source, size_t len);
bool jinja_lex(struct jinja_run *r, const char *source, size_t len, struct jinja_token **tokens,
               size_t *n);

/* jinja_value.c */
__attribute__((format(printf, 3, 4))) bool jinja_fail(struct jinja_run *r, int code,
                                                      const char *fmt, ...);
__attribute__((format(printf, 2, 3))) bool jinja_type_error(struct jinja_run *r, const char *fmt,
                                                            ...);
void *jinja_alloc(struct jinja_run *r, size_t n, size_t size); /* NULL: failed, recorded */
bool jinja_spend(struct jinja_run *r, size_t steps);
/* What a walk over text costs: by the C library, and character by character. */
#define JINJA_COST_COPY(len) ((len) / 64)
#define JINJA_COST_WALK(len) ((len) / 2)
bool jinja_str(struct jinja_run *r, const char *data, size_t len, struct jv *out); /* copies */
bool jinja_str_borrow(struct jinja_run *r, const char *data, size_t len, struct jv *out);
bool jinja_concat(struct jinja_run *r, struct jv a, struct jv b, struct jv *out); /* strings */
bool jinja_list(struct jinja_run *r, const struct jv *items, size_t n,
                struct jv *out); /* borrows */
bool jinja_tuple2(struct jinja_run *r, struct jv a, struct jv b, struct jv *out);
bool jinja_gen(struct jinja_run *r, const struct jv *items, size_t n, struct jv *out); /* borrows */
bool jinja_undef(struct jinja_run *r, struct jv *out, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool jinja_undef_error(struct jinja_run *r, struct jv u);
struct jinja_dict *jinja_dict_new(struct jinja_run *r);
bool jinja_dict_put(struct jinja_run *r, struct jinja_dict *d, struct jv key, struct jv value);
const struct jv *jinja_dict_get(const struct jinja_dict *d, struct jv key);
const struct jv *jinja_dict_getz(const struct jinja_dict *d, struct lode_str key);
bool jinja_hashable(struct jv v); /* nor is a tuple of thousands of parts */
const char *jinja_type(struct jv v);
bool jinja_truth(struct jv v);
/* The items of anything iterable; a generator is used up. */
bool jinja_items(struct jinja_run *r, struct jv v, const struct jv **items, size_t *n);
bool jinja_len(struct jinja_run *r, struct jv v, size_t *n); /* fails where Python's len() does */
bool jinja_builtin_call(struct jinja_run *r, const struct jinja_builtin *b, struct jv self,
                        const struct jinja_args *args, struct jv *out);
const struct jinja_builtin *jinja_find(const struct jinja_builtin *table, struct lode_str name);

static inline struct jv jv_none(void) {
    return (struct jv){.kind = JV_NONE};
}
static inline struct jv jv_bool(bool b) {
    return (struct jv){.kind = JV_BOOL, .b = b};
}
static inline struct jv jv_int(int64_t i) {
    return (struct jv){.kind = JV_INT, .i = i};
}
static inline struct jv jv_float(double f) {
    return (struct jv){.kind = JV_FLOAT, .f = f};
}
static inline bool jv_given(struct jv v) {
    return v.kind != JV_MISSING;
}
static inline bool jv_is_int(struct jv v) {
    return v.kind == JV_INT || v.kind == JV_BOOL;
}
static inline int64_t jv_as_int(struct jv v) {
    return v.kind == JV_BOOL ? v.b : v.i;
}
static inline bool jv_is_number(struct jv v) {
    return jv_is_int(v) || v.kind == JV_FLOAT || v.kind == JV_BIG;
}
double jv_as_double(struct jv v);                    /* of a number */
static inline struct lode_str jv_text(struct jv v) { /* of a JV_STR or JV_BIG */
    return (struct lode_str){v.s->data, v.s->len};
}
static inline bool jv_is_text(struct jv v, const char *z) {
    return v.kind == JV_STR && lode_str_eqz(jv_text(v), z);
}

/* jinja_print.c: str() and repr() of Python, appended or as a value; Markup stays marked. */
bool jinja_print(struct jinja_run *r, struct lode_buf *b, struct jv v);
bool jinja_repr(struct jinja_run *r, struct lode_buf *b, struct jv v);
bool jinja_to_str(struct jinja_run *r, struct jv v, struct jv *out);
bool jinja_take(struct jinja_run *r, struct lode_buf *b, struct jv *out); /* buffer -> string */
void jinja_float_repr(double f, char out[40]);

/* jinja_json.c */
bool jinja_json_read(struct jinja_run *r, const char *text, size_t len, struct jv *out);
jinja_fn jinja_tojson;

/* jinja_ops.c */
bool jinja_equal(struct jinja_run *r, struct jv a, struct jv b, bool *equal);
bool jinja_less(struct jinja_run *r, struct jv a, struct jv b, uint32_t op, bool *result);
bool jinja_contains(struct jinja_run *r, struct jv container, struct jv item, bool *result);
bool jinja_binary(struct jinja_run *r, uint32_t op, struct jv a, struct jv b, struct jv *out);
bool jinja_negate(struct jinja_run *r, struct jv v, struct jv *out);
bool jinja_attr(struct jinja_run *r, struct jv v, struct jv name, struct jv *out);
bool jinja_item(struct jinja_run *r, struct jv v, struct jv key, struct jv *out);
bool jinja_slice(struct jinja_run *r, struct jv v, struct jv start, struct jv stop, struct jv step,
                 struct jv *out);
bool jinja_escape(struct jinja_run *r, struct jv v, struct jv *out); /* & < > " ' ; gives Markup */
bool jinja_repeat(struct jinja_run *r, struct jv v, int64_t times, struct jv *out);

/* jinja_eval.c */
bool jinja_eval(struct jinja_run *r, const struct jinja_node *n, struct jv *out);
bool jinja_call(struct jinja_run *r, struct jv fn, const struct jinja_args *args, struct jv *out);
bool jinja_filter(struct jinja_run *r, const struct jinja_node *n, struct jv operand,
                  struct jv *out); /* a chain of JN_FILTER whose innermost operand is NULL */

/* jinja_exec.c */
bool jinja_run_template(struct jinja_run *r);
bool jinja_macro_call(struct jinja_run *r, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jv *out);
bool jinja_loop_call(struct jinja_run *r, struct jinja_loop *loop, struct jv items, struct jv *out);
bool jinja_loop_attr(struct jinja_run *r, struct jinja_loop *loop, struct lode_str name,
                     struct jv *out); /* JV_MISSING: no such attribute */

/* the built-ins, each table ended by an empty line */
extern const struct jinja_builtin jinja_filters[], jinja_tests[], jinja_globals[];
extern const struct jinja_builtin jinja_str_methods[], jinja_list_methods[], jinja_dict_methods[],
    jinja_loop_methods[], jinja_cycler_methods[];
/* jinja_seq.c: filters over sequences, listed in jinja_filters.c */
#define JINJA_SEQ_FILTERS(X)                                                                       \
    X(batch, "linecount fill_with", 1)                                                             \
    X(dictsort, "case_sensitive by reverse", 0)                                                    \
    X(first, "", 0)                                                                                \
    X(groupby, "attribute default case_sensitive", 1)                                              \
    X(items, "", 0)                                                                                \
    X(join, "d attribute", 0)                                                                      \
    X(last, "", 0)                                                                                 \
    X(length, "", 0)                                                                               \
    X(list, "", 0)                                                                                 \
    X(map, NULL, 0)                                                                                \
    X(max, "case_sensitive attribute", 0)                                                          \
    X(min, "case_sensitive attribute", 0)                                                          \
    X(reject, NULL, 0)                                                                             \
    X(rejectattr, NULL, 0)                                                                         \
    X(reverse, "", 0)                                                                              \
    X(select, NULL, 0)                                                                             \
    X(selectattr, NULL, 0)                                                                         \
    X(slice, "slices fill_with", 1)                                                                \
    X(sort, "reverse case_sensitive attribute", 0)                                                 \
    X(sum, "attribute start", 0)                                                                   \
    X(unique, "case_sensitive attribute", 0)
#define JINJA_SEQ_DECLARE(name, params, required) jinja_fn jinja_filter_##name;
JINJA_SEQ_FILTERS(JINJA_SEQ_DECLARE)
#undef JINJA_SEQ_DECLARE

/* jinja_format.c */
bool jinja_percent(struct jinja_run *r, struct jv format, struct jv values, struct jv *out);
jinja_fn jinja_str_format;

/* jinja_methods.c, jinja_chars.c: text as Python sees it */
bool jinja_strip(struct jinja_run *r, struct jv s, struct jv chars, bool left, bool right,
                 struct jv *out);
bool jinja_replace(struct jinja_run *r, struct jv s, struct lode_str from, struct lode_str to,
                   int64_t count, struct jv *out);
bool jinja_title(struct jinja_run *r, struct jv s, struct jv *out); /* the filter's, not str's */
bool jinja_change_case(struct jinja_run *r, struct jv s, char how, struct jv *out); /* u l c t s */
size_t jinja_count_chars(const char *s, size_t len);
size_t jinja_char_len(const char *s, size_t left); /* bytes of the first code point; 1 if invalid */
uint32_t jinja_char(const char *s, size_t left, size_t *len);
size_t jinja_offset(const struct jinja_text *s, size_t i_char); /* byte offset of a code point */
bool jinja_is_space(uint32_t cp);
bool jinja_is_alnum(uint32_t cp);

#endif
