/* utf8.h - UTF-8 over bytes that may be anything. */
#ifndef LODE_BASE_UTF8_H
#define LODE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one code point at s (n > 0 bytes left).  Returns its length, 1..4, or 0 where the bytes
 * are not valid UTF-8 (overlong, surrogate, above U+10FFFF, truncated). */
size_t lode_utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Writes cp (a scalar value) to out; returns the length, 1..4. */
size_t lode_utf8_encode(uint32_t cp, char out[4]);
bool lode_utf8_valid(const char *s, size_t n);
/* The length of the longest prefix of s that does not end within a character that later bytes
 * could still complete.  What a stream may print now. */
size_t lode_utf8_complete(const char *s, size_t n);

#endif
