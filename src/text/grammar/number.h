/* number.h - numbers by value: exact decimals, conditions on them, and the automaton of the plain
 * decimal spellings that meet all conditions.
 *
 * JSON can spell a number in many ways (100, 1e2, 100.0): conditions are about the value.  What a
 * model writes is held to plain decimals without an exponent where there is any condition, and to
 * no fraction where a whole number is wanted: each value has such a spelling, so nothing is lost,
 * and a half-written number can always be finished well.  What a person hands in (lode schema) is
 * read in any spelling and judged by decimal_meets.
 */
#ifndef LODE_GRAMMAR_NUMBER_H
#define LODE_GRAMMAR_NUMBER_H

#include "text/grammar/dfa.h"

struct decimal {        /* digits * 10^exp, negated if neg; zero has no digits */
    const char *digits; /* (n) without zeros at either end */
    uint32_t n;
    int64_t exp;
    bool neg;
};

/* text: a number in JSON's spelling; its digits are copied to room (len bytes). */
void decimal_parse(struct lode_str text, char *room, struct decimal *out);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* -1, 0, 1 */
/* A whole number in [0, most]. */
bool decimal_count(const struct decimal *d, uint32_t most, uint32_t *out);

/* name, negation */
#define NUMBER_OP_LIST(X)                                                                          \
    X(GE, LT)                                                                                      \
    X(LT, GE) X(LE, GT) X(GT, LE) X(EQ, NE) X(NE, EQ) X(INT, NOT_INT) X(NOT_INT, INT)              \
        X(MULT, NOT_MULT) X(NOT_MULT, MULT)
enum number_op {
#define NUMBER_OP(name, negation) NUMBER_##name,
    NUMBER_OP_LIST(NUMBER_OP)
#undef NUMBER_OP
};
enum number_op number_negate(enum number_op op);

struct number_cond {
    enum number_op op;
    struct decimal value; /* MULT: at most 18 digits */
};

bool decimal_meets(const struct decimal *d, const struct number_cond *conds, size_t n);
int number_dfa(struct gbuild *b, const struct number_cond *conds, size_t n, struct dfa *out);

#endif
