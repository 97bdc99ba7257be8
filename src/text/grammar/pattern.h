/* pattern.h - regular expressions of ECMA-262 (with the u flag), to automata.
 *
 * All that is regular: classes, \d \w \s as ECMA-262 has them, \p{general category}, \u and \x,
 * groups, alternatives, greedy and lazy quantifiers, ^ and $ anywhere.  Lookaround, back
 * references, \b and inline flags are refused by name.
 */
#ifndef LODE_GRAMMAR_PATTERN_H
#define LODE_GRAMMAR_PATTERN_H

#include "text/grammar/expr.h"

/* search: the texts in which it is found (JSON Schema's "pattern"); else those that it matches from
 * end to end.  Errors name b->where and the byte. */
int pattern_compile(struct gbuild *b, struct lode_str text, bool search, struct dfa *out);

/* What class escapes mean: adds the spans of \d, \w, \s or a general category by name. */
struct span_list {
    struct expr_span *v;
    size_t n, cap;
};
bool span_add(struct span_list *l, uint32_t lo, uint32_t hi);
bool span_add_class(struct span_list *l, char letter);

#endif
