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

/* Whether an integer of n characters fits 64 bits. */
static bool fits(const char *text, size_t n) {
    char own[24];
    if (n >= sizeof own)
        return false;
    memcpy(own, text, n);
    own[n] = 0;
    errno = 0;
    (void)strtoll(own, NULL, 10);
    return errno == 0;
}

/* The text, with an exponent of 0 behind every integer that does not fit 64 bits. */
static void widen(struct lode_buf *out, const char *text, size_t len) {
    for (size_t at = 0, n; at < len; at += n) {
        if (text[at] == '"') {
            n = string_end(text, len, at) - at;
            lode_buf_add(out, text + at, n);
            continue;
        }
        bool integer = true;
        for (n = 0; at + n < len && text[at + n] && strchr("+-.0123456789Ee", text[at + n]); n++)
            integer = integer && !strchr(".Ee", text[at + n]);
        lode_buf_add(out, text + at, n ? n : 1);
        if (n && integer && !fits(text + at, n))
            lode_buf_addz(out, "e0");
        n = n ? n : 1;
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
