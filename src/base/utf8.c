#include "base/utf8.h"

/* bytes that a lead byte announces; 0: no lead byte */
static size_t announced(uint8_t b) {
    return b < 0x80 ? 1 : b < 0xc2 ? 0 : b < 0xe0 ? 2 : b < 0xf0 ? 3 : b < 0xf5 ? 4 : 0;
}

/* Second bytes have narrower ranges after E0, ED, F0 and F4 (Unicode 15, table 3-7). */
static bool second_ok(uint8_t lead, uint8_t b) {
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return b >= low && b <= high;
}

size_t lode_utf8_decode(const char *str, size_t n, uint32_t *cp) {
    const uint8_t *s = (const uint8_t *)str;
    const size_t len = announced(s[0]);
    if (len == 0 || len > n)
        return 0;
    if (len == 1) {
        *cp = s[0];
        return 1;
    }
    if (!second_ok(s[0], s[1]))
        return 0;
    uint32_t v = s[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        v = v << 6 | (s[i] & 0x3f);
    }
    *cp = v;
    return len;
}

size_t lode_utf8_encode(uint32_t cp, char out[4]) {
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    const size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)((0xf00 >> len & 0xff) | cp);
    return len;
}

bool lode_utf8_valid(const char *s, size_t n) {
    uint32_t cp;
    for (size_t i = 0, len; i < n; i += len)
        if ((len = lode_utf8_decode(s + i, n - i, &cp)) == 0)
            return false;
    return true;
}

size_t lode_utf8_complete(const char *str, size_t n) {
    const uint8_t *s = (const uint8_t *)str;
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        const uint8_t b = s[n - back];
        if ((b & 0xc0) == 0x80)
            continue; /* a continuation byte: look for its lead */
        if (announced(b) <= back)
            return n;
        return back >= 2 && !second_ok(b, s[n - back + 1]) ? n : n - back;
    }
    return n;
}
