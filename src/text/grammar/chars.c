/* chars.c - see chars.h. */
#include "text/grammar/chars.h"

#include <string.h>

/* `lex` within a character: kind << 28 | digits or bytes << 24 | bits. */
enum { LEX_NONE, LEX_UTF8, LEX_ESCAPE, LEX_HEX, LEX_LOW_SLASH, LEX_LOW_U, LEX_LOW_HEX };
static uint32_t lex_of(uint32_t kind, uint32_t n, uint32_t bits) {
    return kind << 28 | n << 24 | bits;
}

/* The first characters that `bits` (of n bytes still to come) can become. */
static bool utf8_lives(uint32_t bits, uint32_t n, uint32_t least, char_range_fn *any,
                       const void *user) {
    uint32_t lo = bits << 6 * n, hi = lo | ((1u << 6 * n) - 1);
    lo = lo < least ? least : lo;
    hi = hi > 0x10ffff ? 0x10ffff : hi;
    return lo <= hi && any(user, lo, hi);
}

static bool pair_lives(uint32_t lo, uint32_t hi, char_range_fn *any, const void *user) {
    lo = lo < 0xd800 ? 0xd800 : lo;
    hi = hi > 0xdbff ? 0xdbff : hi;
    return lo <= hi &&
           any(user, 0x10000 + ((lo - 0xd800) << 10), 0x10000 + ((hi - 0xd800) << 10) + 0x3ff);
}

/* The same for one \uXXXX, or two that make a pair. */
static bool escape_lives(uint32_t lo, uint32_t hi, enum spelling spelling, char_range_fn *any,
                         const void *user) {
    if (pair_lives(lo, hi, any, user))
        return true;
    if (spelling == SPELT_JSON)
        return any(user, lo, hi);
    return (lo < 0x20 && any(user, lo, hi < 0x20 ? hi : 0x1f)) ||
           (hi > 0x7e && any(user, lo > 0x7e ? lo : 0x7f, hi));
}

static int hex_value(uint8_t c) {
    const uint8_t low = c | 32;
    return c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

static const char short_from[] = "\"\\/bfnrt", short_to[] = "\"\\/\b\f\n\r\t";

static bool backslash_lives(enum spelling spelling, char_range_fn *any, const void *user) {
    for (const char *c = short_to; *c; c++)
        if (any(user, (uint8_t)*c, (uint8_t)*c))
            return true;
    return escape_lives(0, 0xffff, spelling, any, user);
}

static enum taken take_escape(uint32_t *lex, uint8_t c, enum spelling spelling, uint32_t *cp,
                              char_range_fn *any, const void *user) {
    const uint32_t kind = *lex >> 28, n = *lex >> 24 & 15, bits = *lex & 0xffffff;
    const int hex = hex_value(c);
    if (kind == LEX_ESCAPE) {
        const char *known = c ? strchr(short_from, c) : NULL;
        if (known) {
            *lex = 0;
            *cp = (uint8_t)short_to[known - short_from];
            return any(user, *cp, *cp) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        *lex = lex_of(LEX_HEX, 0, 0);
        return c == 'u' && escape_lives(0, 0xffff, spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (kind == LEX_HEX) {
        if (hex < 0)
            return TAKEN_DEAD;
        const uint32_t v = bits << 4 | (uint32_t)hex, left = 4 * (3 - n);
        const uint32_t lo = v << left, hi = lo | ((1u << left) - 1);
        if (n == 3 && v >= 0xd800 && v < 0xdc00) {
            *lex = lex_of(LEX_LOW_SLASH, 0, v - 0xd800);
            return pair_lives(v, v, any, user) ? TAKEN_PART : TAKEN_DEAD;
        }
        if (n == 3) {
            *lex = 0;
            *cp = v;
            return escape_lives(v, v, spelling, any, user) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        *lex = lex_of(LEX_HEX, n + 1, v);
        return escape_lives(lo, hi, spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (kind == LEX_LOW_SLASH || kind == LEX_LOW_U) {
        *lex = lex_of(kind + 1, 0, kind == LEX_LOW_U ? bits << 12 : bits);
        return c == (kind == LEX_LOW_U ? 'u' : '\\') ? TAKEN_PART : TAKEN_DEAD;
    }
    /* LEX_LOW_HEX: ten bits of the first half, up to twelve of the second */
    if (hex < 0)
        return TAKEN_DEAD;
    const uint32_t v = (bits & 0xfff) << 4 | (uint32_t)hex, left = 4 * (3 - n);
    uint32_t lo = v << left, hi = lo | ((1u << left) - 1);
    lo = lo < 0xdc00 ? 0xdc00 : lo;
    hi = hi > 0xdfff ? 0xdfff : hi;
    const uint32_t base = 0x10000 + (bits >> 12 << 10);
    if (lo > hi || !any(user, base + (lo - 0xdc00), base + (hi - 0xdc00)))
        return TAKEN_DEAD;
    *cp = base + (lo - 0xdc00);
    *lex = n == 3 ? 0 : lex_of(LEX_LOW_HEX, n + 1, (bits & ~0xfffu) | v);
    return n == 3 ? TAKEN_CHAR : TAKEN_PART;
}

enum taken take_byte(uint32_t *lex, uint8_t c, enum spelling spelling, uint32_t *cp,
                     char_range_fn *any, const void *user) {
    const bool json = spelling != SPELT_TEXT;
    if (*lex == 0) {
        if (json && c == '"')
            return TAKEN_QUOTE;
        if (json && c == '\\') {
            *lex = lex_of(LEX_ESCAPE, 0, 0);
            return backslash_lives(spelling, any, user) ? TAKEN_PART : TAKEN_DEAD;
        }
        if (c < 0x80) {
            *cp = c;
            return (!json || c >= 0x20) && any(user, c, c) ? TAKEN_CHAR : TAKEN_DEAD;
        }
        if (c < 0xc2 || c > 0xf4)
            return TAKEN_DEAD;
        const uint32_t n = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
        const uint32_t bits = c & (0x3fu >> n), least = n == 1 ? 0x80 : n == 2 ? 0x800 : 0x10000;
        *lex = lex_of(LEX_UTF8, n, bits);
        return utf8_lives(bits, n, least, any, user) ? TAKEN_PART : TAKEN_DEAD;
    }
    if (*lex >> 28 != LEX_UTF8)
        return take_escape(lex, c, spelling, cp, any, user);
    const uint32_t n = (*lex >> 24 & 15) - 1, bits = (*lex & 0xffffff) << 6 | (c & 0x3f);
    if ((c & 0xc0) != 0x80)
        return TAKEN_DEAD;
    /* overlong forms are recognised at their second byte, where n was 3 or 2 */
    const uint32_t least = n == 2 ? 0x10000 : n == 1 ? 0x800 : 0;
    *lex = n ? lex_of(LEX_UTF8, n, bits) : 0;
    *cp = bits;
    return !utf8_lives(bits, n, least, any, user) ? TAKEN_DEAD : n ? TAKEN_PART : TAKEN_CHAR;
}

struct in_dfa {
    const struct dfa *d;
    uint32_t q;
};
static bool dfa_range_lives(const void *user, uint32_t lo, uint32_t hi) {
    const struct in_dfa *x = user;
    return dfa_any(x->d, x->q, lo, hi);
}

enum taken take_dfa(const struct dfa *d, uint32_t *q, uint32_t *lex, uint8_t c,
                    enum spelling spelling, uint32_t *cp) {
    const struct in_dfa x = {d, *q};
    const enum taken t = take_byte(lex, c, spelling, cp, dfa_range_lives, &x);
    if (t == TAKEN_CHAR)
        *q = dfa_next(d, *q, *cp);
    return t;
}
