/* scan.h - JSON read from front to back, without building anything.
 *
 * For headers that may be a hundred megabytes and come from strangers: memory is what the caller
 * keeps, time is linear, depth is bounded.  Every function returns false once something is wrong,
 * with the reason in `why` and the place in `at`; after that all of them do.
 *
 *     struct lode_scan s = {.text = text, .len = len};
 *     struct lode_str key;
 *     lode_scan_open(&s, '{');
 *     while (lode_scan_next(&s, '}'))
 *         if (lode_scan_key(&s, &key) && ...)
 *     if (!lode_scan_end(&s)) complain(s.why, s.at);
 *     lode_buf_free(&s.scratch);
 */
#ifndef LODE_FORMAT_SCAN_H
#define LODE_FORMAT_SCAN_H

#include "base/buf.h"

struct lode_scan {
    const char *text; /* borrowed */
    size_t len, at;
    const char *why;         /* NULL while all is well; "out of memory" is one reason */
    bool first;              /* just inside of a bracket */
    struct lode_buf scratch; /* owned: the last string that had escapes */
};

bool lode_scan_open(struct lode_scan *s, char bracket);
/* Whether another member follows: takes the comma, or the closing bracket and says no. */
bool lode_scan_next(struct lode_scan *s, char closing);
/* A string, escapes undone, valid UTF-8; borrowed from the text or until the next call. */
bool lode_scan_str(struct lode_scan *s, struct lode_str *out);
bool lode_scan_key(struct lode_scan *s, struct lode_str *out); /* a string and its colon */
/* A whole number without sign, point or exponent. */
bool lode_scan_u64(struct lode_scan *s, uint64_t *out);
/* Any value, checked and thrown away. */
bool lode_scan_skip(struct lode_scan *s);
/* Nothing but blanks may follow. */
bool lode_scan_end(struct lode_scan *s);
bool lode_scan_fail(struct lode_scan *s, const char *why); /* false */

#endif
