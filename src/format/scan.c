#include "format/scan.h"

#include "base/utf8.h"

enum { MAX_DEPTH = 16 };

bool lode_scan_fail(struct lode_scan *s, const char *why) {
    if (!s->why)
        s->why = why;
    return false;
}

/* The next byte that is not blank, left where it is; '\0' at the end. */
static char peek(struct lode_scan *s) {
    while (s->at < s->len && memchr(" \t\r\n", s->text[s->at], 4))
        s->at++;
    return s->why || s->at == s->len ? '\0' : s->text[s->at];
}

static bool take(struct lode_scan *s, char c, const char *why) {
    if (peek(s) != c)
        return lode_scan_fail(s, why);
    s->at++;
    return true;
}

bool lode_scan_open(struct lode_scan *s, char bracket) {
    s->first = true;
    return take(s, bracket, bracket == '{' ? "an object ({) expected" : "a list ([) expected");
}

bool lode_scan_next(struct lode_scan *s, char closing) {
    const bool first = s->first;
    s->first = false;
    if (peek(s) == closing) {
        s->at++;
        return false;
    }
    return !s->why && (first || take(s, ',', "a comma or a closing bracket expected"));
}

static bool hex4(struct lode_scan *s, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < 4; i++, s->at++) {
        const char c = s->at < s->len ? s->text[s->at] : '\0';
        const char *digits = "0123456789abcdef", *d = NULL;
        if (c)
            d = strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c);
        if (!d)
            return lode_scan_fail(s, "four hexadecimal digits expected after \\u");
        *out = *out * 16 + (uint32_t)(d - digits);
    }
    return true;
}

static bool unescape(struct lode_scan *s) {
    static const char names[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    char utf8[4];
    uint32_t cp, low;
    const char c = s->at < s->len ? s->text[s->at++] : '\0';
    for (const char *n = names; c && *n; n += 2)
        if (c == *n)
            return lode_buf_addc(&s->scratch, n[1]) || lode_scan_fail(s, "out of memory");
    if (c != 'u')
        return lode_scan_fail(s, "unknown escape in a string");
    if (!hex4(s, &cp))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (s->len - s->at < 6 || s->text[s->at] != '\\' || s->text[s->at + 1] != 'u')
            return lode_scan_fail(s, "half of a surrogate pair");
        s->at += 2;
        if (!hex4(s, &low))
            return false;
        if (low < 0xdc00 || low > 0xdfff)
            return lode_scan_fail(s, "half of a surrogate pair");
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    } else if (cp >= 0xdc00 && cp < 0xe000) {
        return lode_scan_fail(s, "half of a surrogate pair");
    }
    return lode_buf_add(&s->scratch, utf8, lode_utf8_encode(cp, utf8)) ||
           lode_scan_fail(s, "out of memory");
}

bool lode_scan_str(struct lode_scan *s, struct lode_str *out) {
    if (!take(s, '"', "a string expected"))
        return false;
    size_t from = s->at;
    bool escaped = false;
    lode_buf_clear(&s->scratch);
    for (;; s->at++) {
        if (s->at == s->len)
            return lode_scan_fail(s, "a string without an end");
        const unsigned char c = (unsigned char)s->text[s->at];
        if (c < 0x20)
            return lode_scan_fail(s, "a control character in a string");
        if (c == '"')
            break;
        if (c != '\\')
            continue;
        escaped = true;
        if (!lode_buf_add(&s->scratch, s->text + from, s->at - from))
            return lode_scan_fail(s, "out of memory");
        s->at++;
        if (!unescape(s))
            return false;
        from = s->at--;
    }
    *out = (struct lode_str){s->text + from, s->at - from};
    s->at++;
    if (escaped) {
        if (!lode_buf_add(&s->scratch, out->data, out->len))
            return lode_scan_fail(s, "out of memory");
        *out = lode_buf_str(&s->scratch);
    }
    return lode_utf8_valid(out->data, out->len) ||
           lode_scan_fail(s, "a string that is not valid UTF-8");
}

bool lode_scan_key(struct lode_scan *s, struct lode_str *out) {
    return lode_scan_str(s, out) && take(s, ':', "a colon expected");
}

bool lode_scan_u64(struct lode_scan *s, uint64_t *out) {
    const char first = peek(s);
    const size_t from = s->at;
    *out = 0;
    for (; s->at < s->len && s->text[s->at] >= '0' && s->text[s->at] <= '9'; s->at++)
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, (uint64_t)(s->text[s->at] - '0'), out))
            return lode_scan_fail(s, "a number beyond 64 bits");
    if (s->why || s->at == from)
        return lode_scan_fail(s, "a whole number expected");
    const char next = s->at < s->len ? s->text[s->at] : ' ';
    if ((first == '0' && s->at > from + 1) || next == '.' || next == 'e' || next == 'E')
        return lode_scan_fail(s, "a plain whole number expected");
    return true;
}

static bool skip_number(struct lode_scan *s) {
    const size_t from = s->at;
    while (s->at < s->len && s->text[s->at] && strchr("0123456789+-.eE", s->text[s->at]))
        s->at++;
    return s->at > from || lode_scan_fail(s, "a value expected");
}

static bool skip_word(struct lode_scan *s, const char *word) {
    const size_t n = strlen(word);
    if (s->len - s->at < n || memcmp(s->text + s->at, word, n) != 0)
        return lode_scan_fail(s, "a value expected");
    s->at += n;
    return true;
}

static bool skip(struct lode_scan *s, int depth) {
    struct lode_str text;
    const char c = peek(s);
    if (c == '"')
        return lode_scan_str(s, &text);
    if (c == 't' || c == 'f' || c == 'n')
        return skip_word(s, c == 't' ? "true" : c == 'f' ? "false" : "null");
    if (c != '{' && c != '[')
        return skip_number(s);
    if (depth == MAX_DEPTH)
        return lode_scan_fail(s, "values nested too deeply");
    lode_scan_open(s, c);
    while (lode_scan_next(s, c == '{' ? '}' : ']'))
        if ((c == '{' && !lode_scan_key(s, &text)) || !skip(s, depth + 1))
            return false;
    return !s->why;
}

bool lode_scan_skip(struct lode_scan *s) {
    return skip(s, 0);
}

bool lode_scan_end(struct lode_scan *s) {
    peek(s);
    return !s->why && (s->at == s->len || lode_scan_fail(s, "more text after the end"));
}
