/* needle.h - words looked for in texts, whatever the case of their letters. */
#ifndef LODE_SERVE_NEEDLE_H
#define LODE_SERVE_NEEDLE_H

#include "base/buf.h"
#include "lode/error.h"

#include <stdint.h>

enum { NEEDLE_MAX = 200 /* code points */ };

struct needle {
    int32_t cp[NEEDLE_MAX]; /* in lower case */
    size_t n;
};

/* text NULL: nothing is looked for. */
int needle_make(struct needle *w, const char *text, struct lode_error *err);
/* Where it first stands in s, and how many bytes of s it covers; n when nowhere. */
size_t needle_find(const struct needle *w, const char *s, size_t n, size_t *covers);
/* b becomes what stands around a find, cut between characters. */
void needle_snippet(struct lode_buf *b, const char *s, size_t n, size_t at, size_t covers);

#endif
