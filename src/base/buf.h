/* buf.h - a growing byte string, and a borrowed one.
 *
 * struct lode_buf owns its bytes; init is zeroing, lode_buf_free releases.  `data` is
 * NUL-terminated whenever it is not NULL, so text can be handed to C functions.  A failed append
 * leaves the contents as they were and sets `failed`, which stays set: a writer may ignore each
 * return value and look once at the end.
 */
#ifndef LODE_BASE_BUF_H
#define LODE_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct lode_str { /* borrowed bytes, any content, not NUL-terminated */
    const char *data;
    size_t len;
};

#define LODE_STR(literal) ((struct lode_str){(literal), sizeof(literal) - 1})
static inline struct lode_str lode_str(const char *s) { return (struct lode_str){s, strlen(s)}; }
static inline bool lode_str_eq(struct lode_str a, struct lode_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
static inline bool lode_str_eqz(struct lode_str a, const char *b) {
    return lode_str_eq(a, lode_str(b));
}
static inline bool lode_str_starts(struct lode_str s, struct lode_str prefix) {
    return s.len >= prefix.len && (prefix.len == 0 || memcmp(s.data, prefix.data, prefix.len) == 0);
}
/* Where `what` (not empty) first stands in s at or behind `from`; s.len when nowhere or
 * `from` is behind its end.  Linear in the
 * bytes it passes: calling it again from behind each find is linear over the whole text. */
size_t lode_str_find(struct lode_str s, size_t from, struct lode_str what);

struct lode_buf {
    char *data; /* owned; (cap) */
    size_t len, cap;
    bool failed;
};

void lode_buf_free(struct lode_buf *b);
void lode_buf_clear(struct lode_buf *b); /* keeps the memory */
bool lode_buf_reserve(struct lode_buf *b, size_t more);
bool lode_buf_add(struct lode_buf *b, const void *data, size_t len);
bool lode_buf_addz(struct lode_buf *b, const char *s);
bool lode_buf_addc(struct lode_buf *b, char c);
/* s with every `from` made `to`; as it is when `from` is empty. */
bool lode_buf_add_replaced(struct lode_buf *b, struct lode_str s, struct lode_str from,
                           struct lode_str to);
__attribute__((format(printf, 2, 3))) bool lode_buf_addf(struct lode_buf *b, const char *fmt, ...);
static inline struct lode_str lode_buf_str(const struct lode_buf *b) {
    return (struct lode_str){b->data ? b->data : "", b->len};
}

#endif
