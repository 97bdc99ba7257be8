#include "base/buf.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>

/* Short needles, byte by byte: memmem is as good, but for sanitizers, which look at all of the text
 * at each call, so that a walk from find to find takes the square of its length. */
enum { SHORT_NEEDLE = 16 };

size_t lode_str_find(struct lode_str s, size_t from, struct lode_str what) {
    if (from >= s.len || s.len - from < what.len)
        return s.len;
    if (what.len > SHORT_NEEDLE) {
        const char *at = memmem(s.data + from, s.len - from, what.data, what.len);
        return at ? (size_t)(at - s.data) : s.len;
    }
    while (s.len - from >= what.len) {
        const char *at = memchr(s.data + from, what.data[0], s.len - from - what.len + 1);
        if (!at)
            break;
        if (memcmp(at, what.data, what.len) == 0)
            return (size_t)(at - s.data);
        from = (size_t)(at - s.data) + 1;
    }
    return s.len;
}

void lode_buf_free(struct lode_buf *b) {
    lode_free(b->data);
    *b = (struct lode_buf){0};
}

void lode_buf_clear(struct lode_buf *b) {
    b->len = 0;
    b->failed = false;
    if (b->data)
        b->data[0] = '\0';
}

bool lode_buf_reserve(struct lode_buf *b, size_t more) {
    size_t need;
    if (b->failed)
        return false;
    if (!lode_add_size(b->len, more, &need) || !lode_add_size(need, 1, &need))
        return b->failed = true, false;
    if (need <= b->cap)
        return true;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    char *data = lode_realloc(b->data, cap, 1);
    if (!data)
        return b->failed = true, false;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0';
    return true;
}

bool lode_buf_add(struct lode_buf *b, const void *data, size_t len) {
    if (!lode_buf_reserve(b, len))
        return false;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = '\0';
    return true;
}

bool lode_buf_addz(struct lode_buf *b, const char *s) { return lode_buf_add(b, s, strlen(s)); }
bool lode_buf_addc(struct lode_buf *b, char c) { return lode_buf_add(b, &c, 1); }

bool lode_buf_addf(struct lode_buf *b, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n < 0 || !lode_buf_reserve(b, (size_t)n))
        return false;
    va_start(ap, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return true;
}

bool lode_buf_add_replaced(struct lode_buf *b, struct lode_str s, struct lode_str from,
                           struct lode_str to) {
    size_t done = 0;
    for (size_t at; from.len && (at = lode_str_find(s, done, from)) < s.len; done = at + from.len) {
        lode_buf_add(b, s.data + done, at - done);
        lode_buf_add(b, to.data, to.len);
    }
    return lode_buf_add(b, s.data + done, s.len - done);
}
