/* chars.c - characters of UTF-8 text, their classes and cases.
 *
 * Texts in the engine are valid UTF-8: sources and variables are checked when they come in, and
 * everything made of them is cut between characters. */
#include "text/jinja/jinja.h"
#include "text/jinja/special_case.h"

#include "base/utf8.h"

#include <utf8proc.h>

size_t jinja_count_chars(const char *s, size_t len) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++)
        n += ((unsigned char)s[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_char_len(const char *s, size_t left) {
    const unsigned char c = (unsigned char)*s;
    const size_t len = c < 0xc0 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    return len < left ? len : left;
}

uint32_t jinja_char(const char *s, size_t left, size_t *len) {
    uint32_t cp;
    if ((unsigned char)*s < 0x80) {
        *len = 1;
        return (unsigned char)*s;
    }
    *len = lode_utf8_decode(s, left, &cp);
    if (*len)
        return cp;
    *len = 1;
    return 0xfffd;
}

size_t jinja_offset(const struct jinja_text *s, size_t i_char) {
    if (s->n_chars == s->len || i_char >= s->n_chars)
        return i_char >= s->n_chars ? s->len : i_char;
    size_t at = 0;
    while (i_char-- > 0)
        at += jinja_char_len(s->data + at, s->len - at);
    return at;
}

bool jinja_is_space(uint32_t cp) { /* str.isspace, and \s of re */
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool jinja_is_alnum(uint32_t cp) {
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO
               ? true
               : c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
                     c == UTF8PROC_CATEGORY_NO;
}

static void add_char(struct lode_buf *b, uint32_t cp) {
    char utf8[4];
    lode_buf_add(b, utf8, lode_utf8_encode(cp, utf8));
}

static void add_upper(struct lode_buf *b, uint32_t cp, bool title) {
    size_t low = 0, high = sizeof special_cases / sizeof *special_cases;
    while (cp > 127 && low < high) {
        const size_t middle = (low + high) / 2;
        if (special_cases[middle].cp == cp) {
            lode_buf_addz(b, title ? special_cases[middle].title : special_cases[middle].upper);
            return;
        }
        if (special_cases[middle].cp < cp)
            low = middle + 1;
        else
            high = middle;
    }
    add_char(b, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)cp)
                                 : utf8proc_toupper((utf8proc_int32_t)cp)));
}

static void add_lower(struct lode_buf *b, uint32_t cp) {
    if (cp == 0x130) /* the one letter whose small form is two: i and a dot above */
        lode_buf_addz(b, "i\xcc\x87");
    else
        add_char(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp));
}

static bool is_cased(uint32_t cp) {
    const utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

/* how: upper, lower, capitalize, title (words begin after anything without case), swapcase */
bool jinja_change_case(struct jinja_run *r, struct jv s, char how, struct jv *out) {
    struct lode_buf b = {0};
    bool in_word = false;
    if (!jinja_spend(r, JINJA_COST_WALK(s.s->len)))
        return false;
    for (size_t i = 0, len; i < s.s->len; i += len) {
        const uint32_t cp = jinja_char(s.s->data + i, s.s->len - i, &len);
        const uint32_t lower = (uint32_t)utf8proc_tolower((utf8proc_int32_t)cp);
        if (how == 'u' || (how == 's' && cp == lower))
            add_upper(&b, cp, false);
        else if ((how == 'c' && i == 0) || (how == 't' && !in_word))
            add_upper(&b, cp, true);
        else if (how == 's' && utf8proc_category((utf8proc_int32_t)cp) == UTF8PROC_CATEGORY_LT)
            add_char(&b, cp); /* neither a capital nor small */
        else
            add_lower(&b, cp);
        in_word = is_cased(cp);
    }
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    out->mark = s.mark;
    return ok;
}

/* The filter: words begin after white space and -({[<, and are cut between those only. */
bool jinja_title(struct jinja_run *r, struct jv s, struct jv *out) {
    struct lode_buf b = {0};
    bool in_word = false;
    if (!jinja_spend(r, JINJA_COST_WALK(s.s->len)))
        return false;
    for (size_t i = 0, len; i < s.s->len; i += len) {
        const uint32_t cp = jinja_char(s.s->data + i, s.s->len - i, &len);
        const bool splits =
            jinja_is_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
        if (in_word || splits)
            add_lower(&b, cp);
        else
            add_upper(&b, cp, false);
        in_word = !splits;
    }
    const bool ok = jinja_take(r, &b, out);
    lode_buf_free(&b);
    return ok;
}

size_t jinja_char_before(const struct jinja_text *s, size_t to) {
    do
        to--;
    while (to > 0 && ((unsigned char)s->data[to] & 0xc0) == 0x80);
    return to;
}
