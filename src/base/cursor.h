/* cursor.h - reading little-endian bytes that may end anywhere.
 *
 * A read past the end gives zero and sets `failed`, which stays set; every later read gives zero
 * too.  So a parser reads a whole record and looks once:
 *
 *     struct lode_cursor c = {.data = bytes, .len = n};
 *     const uint32_t version = lode_cursor_u32(&c);
 *     const uint64_t count = lode_cursor_u64(&c);
 *     if (c.failed)
 *         return lode_fail(err, LODE_ERR_FORMAT, path, "the file ends at byte %zu", c.len);
 *
 * `pos` stays where the failed read began, for the message.  The bytes are borrowed.
 */
#ifndef LODE_BASE_CURSOR_H
#define LODE_BASE_CURSOR_H

#include "base/buf.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lode runs on little-endian machines");

struct lode_cursor {
    const unsigned char *data; /* borrowed; (len) */
    size_t len, pos;           /* pos <= len */
    bool failed;
};

static inline size_t lode_cursor_left(const struct lode_cursor *c) {
    return c->failed ? 0 : c->len - c->pos;
}

/* The next n bytes, or NULL. */
static inline const void *lode_cursor_take(struct lode_cursor *c, uint64_t n) {
    if (n > lode_cursor_left(c) || c->failed) {
        c->failed = true;
        return NULL;
    }
    const void *p = c->data + c->pos;
    c->pos += (size_t)n;
    return p;
}

/* n bytes into out, or zeros. */
static inline void lode_cursor_copy(struct lode_cursor *c, void *out, size_t n) {
    const void *p = lode_cursor_take(c, n);
    if (p)
        memcpy(out, p, n);
    else
        memset(out, 0, n);
}

#define LODE_CURSOR_READ(name, type)                                                               \
    static inline type lode_cursor_##name(struct lode_cursor *c) {                                 \
        type v;                                                                                    \
        lode_cursor_copy(c, &v, sizeof v);                                                         \
        return v;                                                                                  \
    }
LODE_CURSOR_READ(u8, uint8_t)
LODE_CURSOR_READ(u16, uint16_t)
LODE_CURSOR_READ(u32, uint32_t)
LODE_CURSOR_READ(u64, uint64_t)
LODE_CURSOR_READ(f32, float)
LODE_CURSOR_READ(f64, double)
#undef LODE_CURSOR_READ

/* n bytes as a borrowed string; empty on failure. */
static inline struct lode_str lode_cursor_str(struct lode_cursor *c, uint64_t n) {
    const char *p = lode_cursor_take(c, n);
    return p ? (struct lode_str){p, (size_t)n} : (struct lode_str){"", 0};
}

#endif
