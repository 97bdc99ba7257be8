/* program.h - a compiled constraint: what the machine (machine.h) runs.
 *
 * One of three roots: a JSON value (node 0 of `nodes`), an automaton over the whole text (regex),
 * or the rules of a GBNF grammar.  Nothing changes after compilation, so threads share it.
 *
 * A node is what is wanted of one JSON value: which literals, which strings, which numbers, and
 * lists of shapes of arrays and objects.  The value must have one of the shapes (any of them: the
 * machine follows all that fit at once).
 */
#ifndef LODE_GRAMMAR_PROGRAM_H
#define LODE_GRAMMAR_PROGRAM_H

#include "text/grammar/dfa.h"
#include "text/grammar/expr.h"
#include "text/grammar/number.h"

#define G_NONE UINT32_MAX
#define G_MANY UINT32_MAX

enum g_literal { G_NULL, G_TRUE, G_FALSE };

struct g_str {
    struct dfa dfa;    /* of characters, not of JSON's escapes */
    uint32_t min, max; /* characters; counted only where `counted` */
    bool counted;
};

struct g_conds { /* one way of being a good number */
    const struct number_cond *v;
    uint32_t n;
};

struct g_class { /* keys that are alike */
    uint32_t node;
    uint32_t name; /* the index of the one key it stands for, or G_NONE: any number of keys */
    bool required; /* without a name: its keys are such as must be there once, see `some` */
};

/* The shape of an object.  Keys run through an automaton whose accepting states are marked with
 * their class.  Named keys are numbered in ascending order, so that those below a state of the
 * automaton are a range. */
struct g_obj {
    struct dfa keys;
    const uint32_t *label;      /* (keys.n) class, or G_NONE */
    const uint32_t *low, *high; /* (keys.n): named keys that can still be reached */
    uint8_t *open;              /* (keys.n): so can one of a class of many */
    uint8_t *finite;            /* (keys.n): of these, finitely many */
    struct g_class *classes;    /* (n_classes) named ones first, by name */
    uint32_t n_classes, n_names;
    uint32_t *dead, *required; /* (n_names + 1) how many of the names before are that */
    uint32_t n_required;
    uint8_t *some; /* (keys.n): a required key without a name can still be reached; NULL: none is
                      wanted.  It counts as one of n_required */
    uint32_t min, max; /* members */
};

/* The shape of an array: items[2 * i] is the node of item i (all from n_prefix on are alike); with
 * `contains`, items[2 * i + 1] is what item i must be to count, else G_NONE. */
struct g_arr {
    uint32_t *items; /* (2 * (n_prefix + 1)) */
    uint32_t n_prefix;
    uint32_t min, max;
    bool contains;
    uint32_t least, most; /* items that count */
};

struct g_node {
    uint8_t literals; /* bits: 1 << enum g_literal */
    bool ok;          /* some value fits */
    uint32_t str,
        str_free;      /* strings as a model writes them, and as they are accepted; or G_NONE */
    struct dfa number; /* spellings that a model writes */
    const struct g_conds *conds; /* (n_conds) any of these; by value */
    uint32_t n_conds;
    struct g_obj *const *objs; /* (n_objs) */
    struct g_arr *const *arrs; /* (n_arrs) */
    uint32_t n_objs, n_arrs;
};

/* Whether a node can be met at all, asked by g_arr_live; G_NONE cannot. */
typedef bool node_ok_fn(void *user, uint32_t node);
/* Whether an array of `i` items, `have` of which count, can still come to a good end. */
bool g_arr_live(const struct g_arr *a, uint32_t i, uint32_t have, node_ok_fn *ok, void *user);

enum g_root { G_ROOT_JSON, G_ROOT_TEXT, G_ROOT_RULES };

struct lode_grammar {
    struct lode_arena arena;
    enum g_root root;
    struct g_node *nodes; /* (n_nodes) in the arena */
    uint32_t n_nodes;
    struct g_str *strs; /* (n_strs) in the arena */
    uint32_t n_strs;
    struct dfa text;
    struct expr expr; /* the sets of the rules */
    struct nfa nfa;
    uint32_t *rules; /* (n_rules) where each begins; in the arena */
    uint32_t n_rules, start_rule;
    double seconds;           /* that compiling took */
    struct mask_cache *cache; /* owned; masks.h */
};

int schema_compile(struct gbuild *b, struct lode_grammar *g, struct lode_str text);
int gbnf_compile(struct gbuild *b, struct lode_grammar *g, struct lode_str text);

#endif
