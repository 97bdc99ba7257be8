/* needle.c - see needle.h. */
#include "serve/needle.h"

#include "base/error.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

enum { SNIPPET = 120 /* bytes on either side, about */ };

static utf8proc_int32_t lower_at(const char *s, size_t n, size_t *len) {
    uint32_t cp = (unsigned char)*s;
    *len = cp < 0x80 ? 1 : lode_utf8_decode(s, n, &cp);
    if (*len == 0) {
        *len = 1;
        return -1;
    }
    if (cp < 0x80)
        return cp >= 'A' && cp <= 'Z' ? (int)cp + 32 : (int)cp;
    return utf8proc_tolower((utf8proc_int32_t)cp);
}

int needle_make(struct needle *w, const char *text, struct lode_error *err) {
    size_t n = text ? strlen(text) : 0, len;
    w->n = 0;
    for (size_t i = 0; i < n; i += len) {
        if (w->n == NEEDLE_MAX)
            return lode_fail(err, LODE_ERR_ARG, "q", "at most %d characters expected", NEEDLE_MAX);
        w->cp[w->n++] = lower_at(text + i, n - i, &len);
    }
    return 0;
}

size_t needle_find(const struct needle *w, const char *s, size_t n, size_t *covers) {
    size_t len;
    *covers = 0;
    for (size_t i = 0; i < n && w->n; i += len) {
        if (lower_at(s + i, n - i, &len) != w->cp[0])
            continue;
        size_t at = i, k = 0, more;
        while (k < w->n && at < n && lower_at(s + at, n - at, &more) == w->cp[k]) {
            at += more;
            k++;
        }
        if (k == w->n) {
            *covers = at - i;
            return i;
        }
    }
    return w->n ? n : 0;
}

void needle_snippet(struct lode_buf *b, const char *s, size_t n, size_t at, size_t covers) {
    size_t from = at > SNIPPET / 2 ? at - SNIPPET / 2 : 0;
    size_t to = n - at - covers > SNIPPET ? at + covers + SNIPPET : n;
    while (from > 0 && from < at && ((unsigned char)s[from] & 0xc0) == 0x80)
        from++;
    while (to < n && ((unsigned char)s[to] & 0xc0) == 0x80)
        to++;
    lode_buf_clear(b);
    lode_buf_addz(b, from ? "…" : "");
    lode_buf_add(b, s + from, to - from);
    lode_buf_addz(b, to < n ? "…" : "");
}
