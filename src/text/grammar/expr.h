/* expr.h - expressions over characters, and the nondeterministic automata made of them.
 *
 * Patterns (pattern.c) and GBNF rules (gbnf.c) are parsed to the same tree and become the same kind
 * of automaton; patterns are then made deterministic, rules stay as they are, because their calls
 * need a stack.
 */
#ifndef LODE_GRAMMAR_EXPR_H
#define LODE_GRAMMAR_EXPR_H

#include "text/grammar/dfa.h"

enum { EXPR_DEPTH = 200, EXPR_MAX_STATES = 200 * 1000 };
#define EXPR_MANY UINT32_MAX /* no upper bound */

struct expr_span {
    uint32_t lo, hi; /* characters, inclusive */
};

enum expr_op {
    EXPR_EMPTY,
    EXPR_SET,  /* one character of set a */
    EXPR_CAT,  /* a, then b; chains lean to the left */
    EXPR_ALT,  /* a or b; chains lean to the left */
    EXPR_REP,  /* a, min to max times */
    EXPR_BOL,  /* here the text begins */
    EXPR_EOL,  /* here it ends */
    EXPR_CALL, /* rule a */
};

struct expr_node {
    uint8_t op;
    uint32_t a, b, min, max;
};

struct expr_set {
    uint32_t first, n; /* in spans; ascending, not touching */
};

struct expr {
    GVEC(struct expr_node) nodes;
    GVEC(struct expr_set) sets;
    GVEC(struct expr_span) spans;
};

void expr_free(struct expr *e);
size_t expr_bytes(const struct expr *e); /* that it takes */
/* Return the new node; UINT32_MAX without memory. */
uint32_t expr_node(struct expr *e, enum expr_op op, uint32_t a, uint32_t b);
uint32_t expr_rep(struct expr *e, uint32_t a, uint32_t min, uint32_t max);
/* A set node from n spans in any order, which are sorted in place; negate: all other characters. */
uint32_t expr_set_node(struct expr *e, struct expr_span *spans, size_t n, bool negate);
bool expr_set_has(const struct expr *e, uint32_t set, uint32_t lo, uint32_t hi);

enum nfa_op { NFA_SPLIT, NFA_SET, NFA_BOL, NFA_EOL, NFA_CALL, NFA_MATCH };

struct nfa_state {
    uint8_t op;
    uint32_t a; /* next */
    uint32_t b; /* SPLIT: next too; SET: the set; CALL: the rule */
};

struct nfa {
    GVEC(struct nfa_state) states;
};

/* Adds the automaton of a node that goes on to state `next`; *start is where it begins. */
int nfa_emit(struct gbuild *b, struct nfa *n, const struct expr *e, uint32_t node, uint32_t next,
             uint32_t *start);
uint32_t nfa_add(struct nfa *n, enum nfa_op op, uint32_t a, uint32_t b);

/* search: the texts that contain a match; else those that are one. */
int nfa_to_dfa(struct gbuild *b, const struct expr *e, uint32_t node, bool search, struct dfa *out);

#endif
