#include "text/unicode.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <utf8proc.h>

/* How many of the n bytes at s one invalid part takes: the longest start of a well-formed
 * character, at least one byte. */
static size_t invalid_part(const char *s, size_t n) {
    for (size_t len = n < 3 ? n : 3; len > 1; len--)
        if (lode_utf8_complete(s, len) == 0)
            return len;
    return 1;
}

size_t lode_utf8_lossy(struct lode_buf *out, const char *s, size_t n, bool final) {
    size_t done = 0, i = 0;
    uint32_t cp;
    while (i < n) {
        const size_t len = (uint8_t)s[i] < 0x80 ? 1 : lode_utf8_decode(s + i, n - i, &cp);
        if (len) {
            i += len;
            continue;
        }
        lode_buf_add(out, s + done, i - done);
        done = i;
        if (!final && lode_utf8_complete(s + i, n - i) == 0)
            return done;
        lode_buf_addz(out, LODE_REPLACEMENT);
        i += invalid_part(s + i, n - i);
        done = i;
    }
    lode_buf_add(out, s + done, i - done);
    return n;
}

uint32_t lode_char_at(const char *str, size_t *len) {
    const uint8_t *s = (const uint8_t *)str;
    if (s[0] < 0x80) {
        *len = 1;
        return s[0];
    }
    *len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t cp = s[0] & (0x7fu >> *len);
    for (size_t i = 1; i < *len; i++)
        cp = cp << 6 | (s[i] & 0x3f);
    return cp;
}

bool lode_buf_add_char(struct lode_buf *b, uint32_t cp) {
    char s[4];
    return lode_buf_add(b, s, lode_utf8_encode(cp, s));
}

static utf8proc_category_t category(uint32_t cp) {
    return utf8proc_category((int32_t)cp);
}

bool lode_char_is_space(uint32_t cp) {
    return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 || cp == 0xa0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 || cp == 0x202f ||
           cp == 0x205f || cp == 0x3000;
}

bool lode_char_is_mark(uint32_t cp) {
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool lode_char_is_mn(uint32_t cp) {
    return category(cp) == UTF8PROC_CATEGORY_MN;
}

bool lode_char_is_control(uint32_t cp) {
    const utf8proc_category_t c = category(cp);
    return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

bool lode_char_is_word(uint32_t cp) {
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* Join_Control, and the Alphabetic symbols: circled and squared Latin letters */
        return cp == 0x200c || cp == 0x200d || (cp >= 0x24b6 && cp <= 0x24e9) ||
               (cp >= 0x1f130 && cp <= 0x1f149) || (cp >= 0x1f150 && cp <= 0x1f169) ||
               (cp >= 0x1f170 && cp <= 0x1f189);
    }
}

bool lode_char_is_cjk(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) ||
           (cp >= 0x20000 && cp <= 0x2a6df) || (cp >= 0x2a700 && cp <= 0x2b73f) ||
           (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
           (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

bool lode_buf_add_lower(struct lode_buf *b, uint32_t cp) {
    if (cp == 0x130) /* the one character whose unconditional lower case is two */
        return lode_buf_addz(b, "i\xcc\x87");
    return lode_buf_add_char(b, (uint32_t)utf8proc_tolower((int32_t)cp));
}

/* -- normal forms ---------------------------------------------------------------------- */

static int ccc(int32_t cp) {
    return cp < 0x300 ? 0 : utf8proc_get_property(cp)->combining_class;
}

/* Orders a run of marks by combining class, equal ones as they stand. */
static bool order_marks(int32_t *marks, size_t n) {
    if (n <= 32) {
        for (size_t i = 1; i < n; i++) {
            const int32_t mark = marks[i];
            const int class = ccc(mark);
            size_t at = i;
            for (; at > 0 && ccc(marks[at - 1]) > class; at--)
                marks[at] = marks[at - 1];
            marks[at] = mark;
        }
        return true;
    }
    int32_t *sorted = lode_alloc(n, sizeof *sorted);
    if (!sorted)
        return false;
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++)
        at[ccc(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        at[c + 1] += at[c];
    for (size_t i = 0; i < n; i++)
        sorted[at[ccc(marks[i])]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *marks);
    lode_free(sorted);
    return true;
}

static bool order(int32_t *cps, size_t n) {
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && ccc(cps[end]) != 0)
            end++;
        if (end - i > 1 && !order_marks(cps + i, end - i))
            return false;
        i = end + 1;
    }
    return true;
}

/* Decomposes, orders and perhaps composes one stretch; grows *cps as needed. */
static bool normalize_stretch(struct lode_buf *out, const char *s, size_t n,
                              enum lode_normal_form form, int32_t **cps, size_t *cap) {
    const bool compose = form == LODE_NFC || form == LODE_NFKC;
    const utf8proc_option_t how = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : 0) |
                                  (form >= LODE_NFKC ? UTF8PROC_COMPAT : 0);
    size_t count = 0;
    for (size_t i = 0, len; i < n; i += len) {
        const int32_t cp = (int32_t)lode_char_at(s + i, &len);
        if (*cap - count < 32) { /* the longest decomposition has 18 */
            int32_t *more = lode_realloc(*cps, *cap * 2 + 256, sizeof *more);
            if (!more)
                return false;
            *cps = more;
            *cap = *cap * 2 + 256;
        }
        const utf8proc_ssize_t k = utf8proc_decompose_char(
            cp, *cps + count, (utf8proc_ssize_t)(*cap - count), how | UTF8PROC_DECOMPOSE, NULL);
        if (k < 0) /* unassigned: stands for itself */
            (*cps)[count++] = cp;
        else
            count += (size_t)k;
    }
    if (!order(*cps, count))
        return false;
    if (compose) {
        const utf8proc_ssize_t k = utf8proc_normalize_utf32(*cps, (utf8proc_ssize_t)count,
                                                            UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        if (k >= 0)
            count = (size_t)k;
    }
    for (size_t i = 0; i < count; i++)
        if (!lode_buf_add_char(out, (uint32_t)(*cps)[i]))
            return false;
    return true;
}

bool lode_normalize(struct lode_buf *out, const char *s, size_t n, enum lode_normal_form form) {
    /* Characters below U+0300 never join what stands before them, so a text may be cut there, and
     * stretches of nothing else are in NFC already; for the other forms only ASCII is. */
    const uint32_t plain = form == LODE_NFC ? 0x300 : 0x80;
    int32_t *cps = NULL;
    size_t cap = 0;
    bool ok = lode_buf_reserve(out, n);
    for (size_t i = 0; ok && i < n;) {
        size_t len = 0, end = i, last = i;
        /* plain characters; the last of them may be the base of what follows */
        while (end < n && ((uint8_t)s[end] < 0x80 || lode_char_at(s + end, &len) < plain)) {
            last = end;
            end += (uint8_t)s[end] < 0x80 ? 1 : len;
        }
        if (end == n) {
            ok = lode_buf_add(out, s + i, n - i);
            break;
        }
        ok = lode_buf_add(out, s + i, last - i);
        i = last;
        while (end < n && lode_char_at(s + end, &len) >= plain)
            end += len;
        ok = ok && normalize_stretch(out, s + i, end - i, form, &cps, &cap);
        i = end;
    }
    lode_free(cps);
    return ok;
}
