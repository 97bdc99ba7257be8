/* regex.h - the regular expressions of pre-tokenizers, by PCRE2.
 *
 * Patterns are written for Oniguruma (tokenizer.json's Split) or Rust's regex crate; the few things
 * that mean something else to PCRE2 are rewritten: \s is White_Space, \w is Alphabetic, M, Nd, Pc,
 * \h a hex digit, scripts are by Script and not Script_Extensions, [A&&B] intersects, ^ and $ are
 * at lines. A compiled expression is immutable and may be shared; a run belongs to one thread.
 *
 * The text must be valid UTF-8.  Effort is limited: an expression that backtracks out of hand ends
 * in LODE_ERR_LIMIT, not in hours.
 */
#ifndef LODE_TEXT_REGEX_H
#define LODE_TEXT_REGEX_H

#include "base/buf.h"
#include "base/error.h"

struct lode_regex;
struct lode_regex_run;

int lode_regex_create(struct lode_regex **out, struct lode_str pattern, struct lode_error *err);
void lode_regex_free(struct lode_regex *re);

int lode_regex_run_create(struct lode_regex_run **out, const struct lode_regex *re,
                          struct lode_error *err);
void lode_regex_run_free(struct lode_regex_run *run);

/* The first match in s at or after from: 1 and [*start, *end), 0 for none, negative: an error. */
int lode_regex_find(struct lode_regex_run *run, const char *s, size_t len, size_t from,
                    size_t *start, size_t *end, struct lode_error *err);

/* The pattern as PCRE2 gets it; for tests. */
int lode_regex_translate(struct lode_buf *out, struct lode_str pattern, struct lode_error *err);

#endif
