/* chars.h - characters out of bytes: of a text, or of a JSON string with its escapes.
 *
 * A byte is taken only if a character that may come can still come of it, so that no prefix of
 * UTF-8 or of an escape leads nowhere.
 */
#ifndef LODE_GRAMMAR_CHARS_H
#define LODE_GRAMMAR_CHARS_H

#include "text/grammar/dfa.h"

/* What bytes are: a text; the inside of a JSON string, as it is read, as a model writes it.  A
 * model escapes by \u only what is not printable ASCII: it could spell every key in a way of its
 * own. */
enum spelling { SPELT_TEXT, SPELT_JSON, SPELT_WRITTEN };

enum taken { TAKEN_DEAD, TAKEN_PART, TAKEN_CHAR, TAKEN_QUOTE };

/* Whether a character of lo .. hi may come now. */
typedef bool char_range_fn(const void *user, uint32_t lo, uint32_t hi);

/* One byte of a text, or of a JSON string, in which `any` says which characters may come now.
 * lex: where it is within a character, 0 at its start.  TAKEN_CHAR: *cp is complete. */
enum taken take_byte(uint32_t *lex, uint8_t c, enum spelling spelling, uint32_t *cp,
                     char_range_fn *any, const void *user);
/* The same where an automaton at *q says it; *q moves on with each character. */
enum taken take_dfa(const struct dfa *d, uint32_t *q, uint32_t *lex, uint8_t c,
                    enum spelling spelling, uint32_t *cp);

#endif
