/* unicode.h - what tokenizers ask about characters, and the four normal forms.
 *
 * Character data is utf8proc's.  The normal forms are our own loop over it: utf8proc orders
 * combining marks by insertion, which a line of a million marks turns into hours; here a long run
 * is sorted by counting, so time stays linear.  Memory: a few times the longest stretch that has
 * no character below U+0300.
 */
#ifndef LODE_TEXT_UNICODE_H
#define LODE_TEXT_UNICODE_H

#include "base/buf.h"

#define LODE_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Appends s with every maximal invalid part (Unicode 15, 3.9, "best practice"; what Python's
 * errors='replace' does) as one U+FFFD.  When more is to come (final false) an incomplete
 * character at the end is left; returns how many bytes were taken. */
size_t lode_utf8_lossy(struct lode_buf *out, const char *s, size_t n, bool final);

/* The code point at s, which is valid UTF-8; *len is its length. */
uint32_t lode_char_at(const char *s, size_t *len);
bool lode_buf_add_char(struct lode_buf *b, uint32_t cp);

bool lode_char_is_space(uint32_t cp);   /* White_Space */
bool lode_char_is_word(uint32_t cp);    /* \w of UTS 18: Alphabetic, M, Nd, Pc, Join_Control */
bool lode_char_is_control(uint32_t cp); /* Cc, Cf, Co: what BERT's cleaning drops */
bool lode_char_is_mark(uint32_t cp);    /* general category M */
bool lode_char_is_mn(uint32_t cp);
bool lode_char_is_cjk(uint32_t cp);                       /* BERT's "Chinese character" */
bool lode_buf_add_lower(struct lode_buf *b, uint32_t cp); /* full, unconditional lower case */

enum lode_normal_form { LODE_NFC, LODE_NFD, LODE_NFKC, LODE_NFKD };

/* Appends the normal form of s (valid UTF-8).  false: out of memory. */
bool lode_normalize(struct lode_buf *out, const char *s, size_t n, enum lode_normal_form form);

#endif
