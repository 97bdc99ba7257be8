/* value.h - the values that templates compute with, and what they cost.
 *
 * Values live in the arena of their rendering (struct jinja_run) and are never freed one by one.
 * They do not change, but for namespaces, generators, cyclers and joiners, so lists and texts share
 * what they are made of.  Templates and variables come from strangers: every allocation and every
 * step is counted against the limits below, so that no template can hang or exhaust memory.
 *
 * Functions that return bool return false after a failure that is recorded in the run. */
#ifndef LODE_TEXT_JINJA_VALUE_H
#define LODE_TEXT_JINJA_VALUE_H

#include "base/buf.h"
#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct jinja_run;

enum jinja_limit {
    JINJA_MAX_SOURCE = 4 << 20,   /* bytes of a template */
    JINJA_MAX_HEIGHT = 400,       /* of the syntax tree, and of the parser's recursion */
    JINJA_MAX_DEPTH = 800,        /* nodes under evaluation at once: nesting and macro calls */
    JINJA_MAX_NESTING = 200,      /* lists in lists, in JSON and while printing or comparing */
    JINJA_MAX_OUTPUT = 64 << 20,  /* bytes */
    JINJA_MAX_MEMORY = 256 << 20, /* bytes of values made by one rendering */
    JINJA_MAX_STEPS = 32000000,   /* of some 10 ns: nodes evaluated, items visited, text read */
    JINJA_MAX_RANGE = 100000,     /* as the sandbox of jinja2 */
    JINJA_MAX_DIGITS = 320,       /* of an integer; 309 are beyond any float */
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

/* value.c */
__attribute__((format(printf, 3, 4))) bool jinja_fail(struct jinja_run *r, int code,
                                                      const char *fmt, ...);
__attribute__((format(printf, 2, 3))) bool jinja_type_error(struct jinja_run *r, const char *fmt,
                                                            ...);
void *jinja_alloc(struct jinja_run *r, size_t n, size_t size); /* NULL: failed, recorded */
bool jinja_spend(struct jinja_run *r, size_t steps);
/* One more level of evaluation; leave it by r->depth--. */
bool jinja_enter_call(struct jinja_run *r);
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

/* print.c: str() and repr() of Python, appended or as a value; Markup stays marked. */
bool jinja_print(struct jinja_run *r, struct lode_buf *b, struct jv v);
bool jinja_repr(struct jinja_run *r, struct lode_buf *b, struct jv v);
bool jinja_to_str(struct jinja_run *r, struct jv v, struct jv *out);
bool jinja_take(struct jinja_run *r, struct lode_buf *b, struct jv *out); /* buffer -> string */
void jinja_float_repr(double f, char out[40]);

/* json.c */
bool jinja_json_read(struct jinja_run *r, const char *text, size_t len, struct jv *out);
jinja_fn jinja_tojson;

#endif
