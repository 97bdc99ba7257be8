#include "serve/json_read.h"

#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The end of the string whose quote is at `at`. */
static size_t string_end(const char *text, size_t len, size_t at) {
    for (at++; at < len && text[at] != '"'; at++)
        if (text[at] == '\\')
            at++;
    return at < len ? at + 1 : len;
}

/* Characters that look like a number's. */
static size_t number_length(const char *text, size_t len) {
    size_t n = 0;
    while (n < len && text[n] && strchr("+-.0123456789Ee", text[n]))
        n++;
    return n;
}

/* Whether these n characters of a number are an integer that does not fit 64 bits. */
static bool is_long_integer(const char *text, size_t n) {
    char own[24];
    if (memchr(text, '.', n) || memchr(text, 'e', n) || memchr(text, 'E', n))
        return false;
    if (n >= sizeof own)
        return true;
    memcpy(own, text, n);
    own[n] = 0;
    errno = 0;
    (void)strtoll(own, NULL, 10);
    return errno != 0;
}

/* The text, with an exponent of 0 behind every integer that does not fit 64 bits. */
static void widen(struct lode_buf *out, const char *text, size_t len) {
    for (size_t at = 0, n; at < len; at += n) {
        const size_t number = number_length(text + at, len - at);
        n = number ? number : text[at] == '"' ? string_end(text, len, at) - at : 1;
        lode_buf_add(out, text + at, n);
        if (number && is_long_integer(text + at, n))
            lode_buf_addz(out, "e0");
    }
}

json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *why) {
    json_error_t own;
    why = why ? why : &own;
    json_t *v = json_loadb(text, len, flags, why);
    if (v || json_error_code(why) != json_error_numeric_overflow)
        return v;
    struct lode_buf wide = {0};
    widen(&wide, text, len);
    if (!wide.failed)
        v = json_loadb(lode_buf_str(&wide).data, wide.len, flags, why);
    lode_buf_free(&wide);
    return v;
}
