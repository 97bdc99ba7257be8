/* jinja.h - the template engine's own parts, shared by the jinja_*.c files.
 *
 * What is rendered is what the Python package jinja2 renders in the environment that
 * transformers makes for chat templates: trim_blocks and lstrip_blocks on, an immutable sandbox,
 * loop controls, {% generation %}, a tojson that does not escape, raise_exception and
 * strftime_now.  Values print as Python prints them.
 *
 *   lex.c      text -> tokens
 *   parse.c    tokens -> statements;  parse_expr.c: expressions
 *   exec.c     runs statements;       eval.c: expressions and calls
 *   ops.c      operators, comparison; item.c: attributes, items, slices
 *   value.c    values and limits;     dict.c: dicts
 *   print.c    str() and repr();      json.c: JSON in and out
 *   chars.c    characters and cases;  format.c: % and str.format
 *   filters.c  seq.c  tests.c  globals.c  methods.c
 *   objects.c  what templates can call
 *   template.c       the public functions of lode/chat.h
 *
 * Not offered, because no chat template can need them: include, import and extends (there are no
 * other templates; an error where one is reached), autoescape, arithmetic beyond 64 bits, the filters
 * pprint, random, striptags, urlize, wordwrap and xmlattr, and str.encode, format_map, translate.
 */
#ifndef LODE_TEXT_JINJA_H
#define LODE_TEXT_JINJA_H

#include "base/arena.h"
#include "lode/chat.h"
#include "text/jinja/ast.h"

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
    const char *source;      /* NUL-terminated, newlines made \n */
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
/* *text: the source with its newlines made \n, NUL-terminated; tokens borrow from it. */
bool jinja_lex(struct jinja_run *r, const char *source, size_t len, const char **text,
               struct jinja_token **tokens, size_t *n);

/* ops.c */
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

/* eval.c */
bool jinja_eval(struct jinja_run *r, const struct jinja_node *n, struct jv *out);
bool jinja_call(struct jinja_run *r, struct jv fn, const struct jinja_args *args, struct jv *out);
bool jinja_filter(struct jinja_run *r, const struct jinja_node *n, struct jv operand,
                  struct jv *out); /* a chain of JN_FILTER whose innermost operand is NULL */

/* exec.c */
bool jinja_run_template(struct jinja_run *r);
bool jinja_macro_call(struct jinja_run *r, const struct jinja_macro *m,
                      const struct jinja_args *args, struct jv *out);
bool jinja_loop_call(struct jinja_run *r, struct jinja_loop *loop, struct jv items, struct jv *out);
bool jinja_loop_attr(struct jinja_run *r, struct jinja_loop *loop, struct lode_str name,
                     struct jv *out); /* JV_MISSING: no such attribute */

/* the built-ins, each table ended by an empty line */
extern const struct jinja_builtin jinja_filters[], jinja_tests[], jinja_globals[];
extern const struct jinja_builtin jinja_str_methods[], jinja_list_methods[], jinja_tuple_methods[],
    jinja_dict_methods[], jinja_int_methods[], jinja_float_methods[], jinja_loop_methods[],
    jinja_cycler_methods[];
/* seq.c: filters over sequences, listed in filters.c */
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

/* format.c */
bool jinja_percent(struct jinja_run *r, struct jv format, struct jv values, struct jv *out);
jinja_fn jinja_str_format;

/* methods.c, chars.c: text as Python sees it */
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
size_t jinja_char_before(const struct jinja_text *s, size_t to); /* where the one that ends at `to` begins */
bool jinja_is_space(uint32_t cp);
bool jinja_is_alnum(uint32_t cp);
bool jinja_is_printable(uint32_t cp); /* print.c */

#endif
