/* dfa.h - deterministic automata over Unicode characters.
 *
 * Every language of texts that the engine knows (patterns, enumerations, lengths, keys, numbers) is
 * one of these.  State 0 is the start; all states are live: from each an accepting one can be
 * reached, so a text that has a state has a completion.  The empty language has no states.
 * Surrogates are no characters.  A finished automaton lies in the grammar's arena and never
 * changes.
 */
#ifndef LODE_GRAMMAR_DFA_H
#define LODE_GRAMMAR_DFA_H

#include "text/grammar/build.h"

#define DFA_NONE UINT32_MAX /* no state: the text has no completion */

struct dfa_range {
    uint32_t lo, hi; /* characters, inclusive */
    uint32_t to;
};

struct dfa {
    uint32_t n;                     /* states */
    const uint32_t *first;          /* (n + 1) */
    const struct dfa_range *ranges; /* ascending within a state */
    const uint8_t *accept;          /* (n) 0 or a mark, 1 unless the maker says otherwise */
};

uint32_t dfa_next(const struct dfa *d, uint32_t q, uint32_t cp);
/* Whether any character of [lo, hi] leads on. */
bool dfa_any(const struct dfa *d, uint32_t q, uint32_t lo, uint32_t hi);
/* Whether it accepts this text (valid UTF-8). */
bool dfa_accepts(const struct dfa *d, struct lode_str text);
/* Whether it accepts finitely many texts. */
int dfa_finite(struct gbuild *b, const struct dfa *d, bool *finite);

extern const struct dfa dfa_all; /* every text */

enum dfa_op { DFA_AND, DFA_OR, DFA_MINUS };
int dfa_product(struct gbuild *b, const struct dfa *x, const struct dfa *y, enum dfa_op op,
                struct dfa *out);
/* Texts of x with min to max characters. */
int dfa_bound(struct gbuild *b, const struct dfa *x, uint32_t min, uint32_t max, struct dfa *out);
/* Exactly these texts. */
int dfa_words(struct gbuild *b, const struct lode_str *words, size_t n, struct dfa *out);

/* Making one state after the other. */
struct dfa_maker {
    gvec_u32 first;
    GVEC(struct dfa_range) ranges;
    GVEC(uint8_t) accept;
};
bool dfa_maker_state(struct dfa_maker *m, uint8_t accept); /* what follows are its ranges */
bool dfa_maker_range(struct dfa_maker *m, uint32_t lo, uint32_t hi, uint32_t to); /* ascending */
/* Drops states that are not live and moves the rest to the arena; frees the maker either way.
 * kept (may be NULL): receives, for each state of the result, which it was; owned by the caller. */
int dfa_maker_finish(struct gbuild *b, struct dfa_maker *m, struct dfa *out, gvec_u32 *kept);
void dfa_maker_free(struct dfa_maker *m);

#endif
