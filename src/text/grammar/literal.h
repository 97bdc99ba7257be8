/* literal.h - the parts of the JSON Schema compiler.
 *
 *   schema.c       the nodes of the program and the compilation as a whole
 *   schema_refs.c  the schemas of the document: $id, $anchor, $ref
 *   solve*.c       a conjunction of schemas, for one type, to its alternatives (lists of atoms)
 *   shape*.c       an alternative to strings, numbers, and shapes of arrays and objects
 *
 * A literal says that a value is valid, or is not, under one schema of the document, or that it
 * equals one value of it.  A node of the program is a set of literals that hold together; nodes are
 * found by their set, so a schema that refers to itself gives a program that does.
 *
 * allOf needs no construction of its own: its members are literals of the same set.  anyOf, oneOf,
 * not and if are alternatives: solve.c walks them as a solver would, once for each of JSON's types,
 * which drops most at once.  What it meets at the end of each branch are atoms: bounds, patterns,
 * required keys.  Everything that can be negated is (a negated `required` forbids, a negated
 * pattern is the complement); what cannot is refused where it is met.
 */
#ifndef LODE_GRAMMAR_LITERAL_H
#define LODE_GRAMMAR_LITERAL_H

#include "base/json.h"
#include "text/grammar/program.h"

/* The types as solve.c tells them apart. */
enum g_type { TYPE_NULL, TYPE_TRUE, TYPE_FALSE, TYPE_NUMBER, TYPE_STRING, TYPE_ARRAY, TYPE_OBJECT };

/* A literal: the index of the document's node, and two bits. */
typedef uint32_t g_lit;
enum { LIT_NOT = 1, LIT_CONST = 2 };
static inline g_lit lit_schema(uint32_t node) { return node << 2; }
static inline g_lit lit_const(uint32_t node) { return node << 2 | LIT_CONST; }
static inline uint32_t lit_node(g_lit l) { return l >> 2; }

enum atom_op {
    ATOM_COND,     /* cond */
    ATOM_PATTERN,  /* json: the pattern */
    ATOM_LENGTH,   /* min, max */
    ATOM_WORDS,    /* json: enum's array, or one string */
    ATOM_FORMAT,   /* json: its name */
    ATOM_ITEMS,    /* json: the schema: prefixItems, items */
    ATOM_ITEM,     /* item number min is lit */
    ATOM_COUNT,    /* items, or members: min, max */
    ATOM_CONTAINS, /* lit, min to max times */
    ATOM_UNIQUE,   /* json: the keyword */
    ATOM_REST,     /* json: the schema with unevaluatedItems or unevaluatedProperties */
    ATOM_MEMBERS,  /* json: the schema: properties, patternProperties, additionalProperties */
    ATOM_MEMBER,   /* the value of key is lit, where there is one */
    ATOM_REQUIRED, /* key */
    ATOM_FORBID,   /* key */
    ATOM_KEYS,     /* keys are lit (propertyNames) */
    ATOM_ONLY,     /* json: an object: no other keys than its */
    ATOM_SOME_KEY, /* some key's value is lit; json: the keyword; min: which keys, enum
                      some_key; max: 1 where it is one without a name */
    ATOM_REFUSED,  /* json: the keyword that cannot be enforced; text says why */
};

enum some_key {
    SOME_OTHER, /* those that additionalProperties is about; json: it */
    SOME_MATCH, /* those that match a pattern; json: the pattern's schema */
    SOME_NAME,  /* those that are not as json says */
};

struct atom {
    enum atom_op op;
    bool neg;
    uint32_t entry; /* whence */
    uint32_t json;
    g_lit lit;
    uint32_t min, max;
    struct lode_str key;
    struct number_cond cond;
    const char *text;
};

/* A step of the way to an atom. */
struct entry {
    g_lit lit;
    uint32_t parent; /* or G_NONE */
    bool apart;      /* below `not`: its annotations are dropped */
    bool scope;      /* a schema with unevaluated... is here or above */
};

/* What is to be done in a branch, as a list that branches share. */
struct task {
    uint32_t entry;
    uint32_t keyword; /* its node in the document; G_NONE: the whole literal */
    uint32_t next;
};

struct node_parts { /* a node of the program while it is being made */
    uint8_t state;  /* 0: not begun, 1: under way, 2: done */
    bool listed;    /* can be reached from the root */
    uint8_t literals;
    GVEC(struct g_str) strs, strs_free;
    GVEC(struct g_conds) conds;
    GVEC(struct g_obj *) objs;
    GVEC(struct g_arr *) arrs;
    gvec_u32 children;
};

struct resource { /* a schema with its own $id */
    uint32_t node;
    char *uri; /* in the arena; absolute, or "" for a document without one */
};

struct anchor {
    uint32_t resource, node;
    struct lode_str name;
    bool dynamic;
};

struct schema {
    struct gbuild *b;
    struct lode_json_doc doc;
    struct lode_json *top; /* doc.nodes */
    bool old;              /* a draft before 2019-09, which ignores what stands beside $ref */
    const char *id;        /* the keyword that names a schema: $id, or id in draft 4 */
    uint32_t *home;        /* (doc.n) 1 + the resource a schema lies in; 0: not visited */
    GVEC(struct resource) resources;
    GVEC(struct anchor) anchors;
    struct gintern sets;             /* the literals of each node */
    GVEC(struct node_parts *) nodes; /* in the arena, but for their arrays */
    gvec_u32 queue;                  /* nodes to build */
    uint32_t depth;                  /* of nested questions about emptiness */
    uint32_t walking;                /* tasks of solvers under way */
    struct patterns {
        struct schema_pattern *v;
        size_t n, cap;
    } patterns; /* each pattern once */
};

struct schema_pattern {
    uint32_t json;
    struct dfa dfa;
};

/* One alternative being found. */
struct solver {
    struct schema *s;
    enum g_type type;
    uint32_t node;
    GVEC(struct entry) entries;
    GVEC(struct task) tasks;
    GVEC(struct atom) atoms;
};

/* Fails with the path of a node of the document: "#/properties/a/pattern". */
__attribute__((format(printf, 4, 5))) int schema_fail(struct schema *s, int code, uint32_t node,
                                                      const char *fmt, ...);
/* Names the place for errors of the layers below; returns b->where as it was. */
const char *schema_at(struct schema *s, uint32_t node);
uint32_t json_index(const struct schema *s, const struct lode_json *v);
/* What an array's first items are, one by one, and what all others: prefixItems and items, or in
 * drafts before 2020-12 a list of items and additionalItems, which says nothing without that list.
 * NULL: anything. */
const struct lode_json *schema_first_items(const struct schema *s, uint32_t schema_node);
const struct lode_json *schema_other_items(const struct schema *s, uint32_t schema_node);
const struct lode_json *json_member(const struct schema *s, uint32_t object, const char *key);

/* What $ref or $dynamicRef at this node (the keyword's) means. */
int schema_resolve(struct schema *s, uint32_t schema_node, uint32_t keyword, bool dynamic,
                   uint32_t *target);
/* Registers the schemas at and below a node that is used as one. */
int schema_visit(struct schema *s, uint32_t node, uint32_t resource);

/* The node of the program for a set of literals (any order; sorted in place). */
int schema_node(struct schema *s, g_lit *lits, size_t n, uint32_t *out);
int schema_build_node(struct schema *s, uint32_t node);
/* Whether it is certain that no value of the type is valid under both. */
int schema_disjoint(struct schema *s, g_lit a, g_lit c, enum g_type type, bool *out);

/* Finds all alternatives of a node for one type. */
int solve_node(struct schema *s, uint32_t node, enum g_type type);
/* Called by solve.c for each alternative it found: the node gets its shape. */
int shape_add(struct solver *v);
/* The automaton of one "pattern" (or key of patternProperties), made once. */
int schema_pattern_dfa(struct schema *s, uint32_t json, struct lode_str text,
                       const struct dfa **out);
/* The strings that a conjunction of literals allows, by any of a node's ways. */
int shape_strings(struct schema *s, uint32_t node, struct dfa *out);
int number_of(struct schema *s, const struct lode_json *v, struct decimal *out);
const char *format_pattern(struct lode_str name); /* NULL: not one that is enforced */

#endif
