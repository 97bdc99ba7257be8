/* lex.c - template text to tokens, as jinja2's lexer with trim_blocks and lstrip_blocks. */
#include "text/jinja/jinja.h"

#include "base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct lexer {
    struct jinja_run *r;
    const char *s; /* (n) with newlines made \n */
    size_t n, at;
    uint32_t line;
    bool line_starting; /* the last thing read ended a line */
    struct jinja_token *tokens;
    size_t n_tokens, cap;
};

static bool add(struct lexer *x, struct jinja_token t) {
    if (x->n_tokens == x->cap) {
        const size_t cap = x->cap ? x->cap * 2 : 256;
        struct jinja_token *tokens = jinja_alloc(x->r, cap, sizeof *tokens);
        if (!tokens)
            return false;
        if (x->n_tokens)
            memcpy(tokens, x->tokens, x->n_tokens * sizeof *tokens);
        x->tokens = tokens;
        x->cap = cap;
    }
    t.line = x->line;
    x->tokens[x->n_tokens++] = t;
    return true;
}

static bool fail(struct lexer *x, const char *what) {
    x->r->line = x->line;
    return jinja_fail(x->r, LODE_ERR_FORMAT, "%s", what);
}

static void advance(struct lexer *x, size_t to) {
    for (; x->at < to; x->at++)
        x->line += x->s[x->at] == '\n';
    if (to > 0)
        x->line_starting = x->s[to - 1] == '\n';
}

static bool looking_at(const struct lexer *x, size_t at, const char *what) {
    const size_t n = strlen(what);
    return x->n - at >= n && memcmp(x->s + at, what, n) == 0;
}

static size_t skip_space(const struct lexer *x, size_t at) {
    while (at < x->n) {
        size_t len;
        if (!jinja_is_space(jinja_char(x->s + at, x->n - at, &len)))
            break;
        at += len;
    }
    return at;
}

/* Where the white space that ends s[from, to) begins. */
static size_t before_space(const struct lexer *x, size_t from, size_t to) {
    while (to > from) {
        size_t start = to - 1, len;
        while (start > from && ((unsigned char)x->s[start] & 0xc0) == 0x80)
            start--;
        if (!jinja_is_space(jinja_char(x->s + start, to - start, &len)))
            break;
        to = start;
    }
    return to;
}

/* The end of the text before a tag at `tag` that carries sign ('-', '+' or 0). */
static size_t text_end(const struct lexer *x, size_t tag, char sign, bool is_variable) {
    if (sign == '-')
        return before_space(x, x->at, tag);
    if (sign == '+' || is_variable)
        return tag;
    size_t line = tag;
    while (line > x->at && x->s[line - 1] != '\n')
        line--;
    if (line == x->at && !x->line_starting)
        return tag;
    return before_space(x, line, tag) == line ? line : tag;
}

static bool add_data(struct lexer *x, size_t end) {
    return end <= x->at ||
           add(x, (struct jinja_token){.kind = JT_DATA, .text = {x->s + x->at, end - x->at}});
}

static char sign_at(const struct lexer *x, size_t at) {
    return at < x->n && (x->s[at] == '-' || x->s[at] == '+') ? x->s[at] : 0;
}

/* After the closing tag at `at` (its sign, if any, just before): what is swallowed with it. */
static size_t after_close(const struct lexer *x, size_t at, char sign) {
    at += 2;
    if (sign == '-')
        return skip_space(x, at);
    return sign != '+' && at < x->n && x->s[at] == '\n' ? at + 1 : at;
}

static bool lex_comment(struct lexer *x) {
    size_t at = x->at;
    if (at + (at < x->n && sign_at(x, at)) == x->n) { /* jinja2 does not mind one that begins last */
        advance(x, x->n);
        return true;
    }
    while (at < x->n && !looking_at(x, at, "#}"))
        at++;
    if (at == x->n)
        return fail(x, "a comment is not closed by #}");
    advance(x, after_close(x, at, at > x->at ? sign_at(x, at - 1) : 0));
    return true;
}

/* Is there {% raw %} at x->at?  *end: behind it. */
static bool raw_begins(const struct lexer *x, const char *word, size_t at, size_t *end,
                       char *close) {
    size_t p = at + 2;
    p += sign_at(x, p) != 0;
    p = skip_space(x, p);
    if (!looking_at(x, p, word))
        return false;
    p = skip_space(x, p + strlen(word));
    *close = sign_at(x, p);
    p += *close != 0;
    if (!looking_at(x, p, "%}"))
        return false;
    *end = p;
    return true;
}

/* From behind {% raw %} to behind {% endraw %}: one piece of data. */
static bool lex_raw(struct lexer *x) {
    for (size_t at = x->at; at < x->n; at++) {
        size_t end;
        char close;
        if (!looking_at(x, at, "{%") || !raw_begins(x, "endraw", at, &end, &close))
            continue;
        if (!add_data(x, text_end(x, at, sign_at(x, at + 2), false)))
            return false;
        advance(x, after_close(x, end, close));
        return true;
    }
    return x->at == x->n || fail(x, "{% raw %} is not closed by {% endraw %}"); /* as comments */
}

/* ---- inside tags ---- */

static int hex_value(const char *s, size_t n) {
    int v = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)s[i]))
            return -1;
        v = v << 4 | (s[i] <= '9' ? s[i] - '0' : (s[i] | 32) - 'a' + 10);
    }
    return v;
}

/* \u and \U, at s[at] behind the backslash; pairs of surrogates are joined. */
static bool unescape_unicode(struct lexer *x, const char *s, size_t n, size_t *at,
                             struct lode_buf *b) {
    const size_t digits = s[*at] == 'U' ? 8 : s[*at] == 'u' ? 4 : 2;
    if (n - *at - 1 < digits || (digits == 8 && (s[*at + 1] != '0' || s[*at + 2] != '0')))
        return fail(x, "a \\x, \\u or \\U escape is not a character");
    int cp = hex_value(s + *at + 1, digits);
    *at += 1 + digits;
    if (cp >= 0xd800 && cp < 0xdc00 && n - *at >= 6 && s[*at] == '\\' && s[*at + 1] == 'u') {
        const int low = hex_value(s + *at + 2, 4);
        if (low >= 0xdc00 && low < 0xe000) {
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            *at += 6;
        }
    }
    if (cp < 0 || cp > 0x10ffff)
        return fail(x, "a \\x, \\u or \\U escape is not a character");
    if (cp >= 0xd800 && cp < 0xe000)
        cp = 0xfffd; /* half a pair is no character */
    char utf8[4];
    return lode_buf_add(b, utf8, lode_utf8_encode((uint32_t)cp, utf8)), true;
}

static bool unescape(struct lexer *x, const char *s, size_t n, struct lode_buf *b) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    for (size_t at = 0; at < n;) {
        if (s[at] != '\\' || at + 1 == n) {
            lode_buf_addc(b, s[at++]);
            continue;
        }
        at++;
        const char *known = strchr(from, s[at]);
        if (s[at] && known) {
            lode_buf_addc(b, to[known - from]);
            at++;
        } else if (s[at] == '\n') {
            at++;
        } else if (s[at] == 'x' || s[at] == 'u' || s[at] == 'U') {
            if (!unescape_unicode(x, s, n, &at, b))
                return false;
        } else if (s[at] == 'N') {
            return fail(x, "\\N{...} escapes are not supported");
        } else if (s[at] >= '0' && s[at] <= '7') {
            uint32_t cp = 0;
            for (int digits = 0; digits < 3 && at < n && s[at] >= '0' && s[at] <= '7'; digits++)
                cp = cp * 8 + (uint32_t)(s[at++] - '0');
            char utf8[4];
            lode_buf_add(b, utf8, lode_utf8_encode(cp, utf8));
        } else {
            lode_buf_addc(b, '\\'); /* unknown escapes stay as they are */
        }
    }
    return true;
}

static bool lex_string(struct lexer *x) {
    const char quote = x->s[x->at];
    size_t end = x->at + 1;
    while (end < x->n && x->s[end] != quote)
        end += x->s[end] == '\\' ? 2 : 1;
    if (end >= x->n)
        return fail(x, "a string is not closed");
    struct lode_buf b = {0};
    struct jv text;
    const bool ok =
        unescape(x, x->s + x->at + 1, end - x->at - 1, &b) && jinja_take(x->r, &b, &text);
    lode_buf_free(&b);
    if (!ok ||
        !add(x, (struct jinja_token){.kind = JT_STRING, .text = jv_text(text), .value = text}))
        return false;
    advance(x, end + 1);
    return true;
}

/* digits separated by single underscores */
static size_t skip_digits(const struct lexer *x, size_t at) {
    while (at < x->n &&
           (isdigit((unsigned char)x->s[at]) ||
            (x->s[at] == '_' && at + 1 < x->n && isdigit((unsigned char)x->s[at + 1]))))
        at++;
    return at;
}

static bool is_digit(const struct lexer *x, size_t at) {
    return at < x->n && isdigit((unsigned char)x->s[at]);
}

/* The end of a float at x->at, or x->at where there is none. */
static size_t float_end(const struct lexer *x) {
    if (x->at > 0 && x->s[x->at - 1] == '.')
        return x->at; /* a.1.2: two subscripts */
    size_t at = skip_digits(x, x->at);
    bool is_float = false;
    if (at < x->n && x->s[at] == '.' && is_digit(x, at + 1)) {
        at = skip_digits(x, at + 1);
        is_float = true;
    }
    if (at < x->n && (x->s[at] | 32) == 'e') {
        const size_t digits = at + 1 + (sign_at(x, at + 1) != 0);
        if (is_digit(x, digits)) {
            at = skip_digits(x, digits);
            is_float = true;
        }
    }
    return is_float ? at : x->at;
}

static bool lex_number(struct lexer *x) {
    size_t end = float_end(x);
    struct jinja_token t = {.kind = JT_FLOAT};
    int base = 10;
    size_t start = x->at;
    if (end == x->at) {
        t.kind = JT_INT;
        const char prefix =
            x->s[x->at] == '0' && x->at + 1 < x->n ? (char)(x->s[x->at + 1] | 32) : 0;
        base = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 10;
        if (base != 10) {
            start = end = x->at + 2;
            while (end < x->n && (isxdigit((unsigned char)x->s[end]) || x->s[end] == '_'))
                end++;
        } else if (x->s[x->at] == '0') {
            end = x->at + 1;
            while (end < x->n && (x->s[end] == '0' || x->s[end] == '_'))
                end++;
        } else {
            end = skip_digits(x, x->at);
        }
    }
    char digits[64];
    size_t n = 0;
    for (size_t i = start; i < end && n < sizeof digits - 1; i++)
        if (x->s[i] != '_')
            digits[n++] = x->s[i];
    digits[n] = '\0';
    char *rest;
    errno = 0;
    if (t.kind == JT_FLOAT)
        t.value = jv_float(strtod(digits, &rest));
    else
        t.value = jv_int(strtoll(digits, &rest, base));
    if (*rest || n == 0 || n == sizeof digits - 1 || (t.kind == JT_INT && errno == ERANGE))
        return fail(x, "a number is malformed or too large");
    if (!add(x, t))
        return false;
    advance(x, end);
    return true;
}

static bool is_name_char(char c) {
    return isalnum((unsigned char)c) || c == '_' || (c & 0x80);
}

static bool lex_name(struct lexer *x) {
    size_t end = x->at;
    while (end < x->n && is_name_char(x->s[end]))
        end++;
    if (!add(x, (struct jinja_token){.kind = JT_NAME, .text = {x->s + x->at, end - x->at}}))
        return false;
    advance(x, end);
    return true;
}

enum { MAX_OPEN = JINJA_MAX_HEIGHT };

struct brackets {
    char open[MAX_OPEN];
    size_t n;
};

static bool lex_operator(struct lexer *x, struct brackets *b) {
    static const char two[] = "//**==!=>=<=", one[] = "+-/*%~[](){}><=.:|,;";
    const char c = x->s[x->at], next = x->at + 1 < x->n ? x->s[x->at + 1] : 0;
    struct jinja_token t = {.kind = JT_OP, .op = (unsigned char)c};
    for (size_t i = 0; two[i]; i += 2)
        if (c == two[i] && next == two[i + 1])
            t.op = JINJA_OP2(c, next);
    if (t.op < 256 && (!c || !strchr(one, c)))
        return fail(x, "a tag holds a character that no expression can hold");
    if (c == '(' || c == '[' || c == '{') {
        if (b->n == MAX_OPEN)
            return fail(x, "brackets are nested too deeply");
        b->open[b->n++] = c;
    } else if (c == ')' || c == ']' || c == '}') {
        if (b->n == 0 || b->open[--b->n] != (c == ')' ? '(' : c == ']' ? '[' : '{'))
            return fail(x, "a closing bracket does not match");
    }
    if (!add(x, t))
        return false;
    advance(x, x->at + (t.op < 256 ? 1 : 2));
    return true;
}

/* From behind {{ or {% to behind its end. */
static bool lex_tag(struct lexer *x, bool is_variable) {
    struct brackets b = {.n = 0};
    const char *close = is_variable ? "}}" : "%}";
    while (x->at < x->n) {
        if (b.n == 0) {
            char sign = sign_at(x, x->at);
            if (is_variable && sign == '+')
                sign = 0;
            const size_t end = x->at + (sign != 0);
            if (looking_at(x, end, close)) {
                if (!add(x, (struct jinja_token){.kind = is_variable ? JT_VAR_END : JT_BLOCK_END}))
                    return false;
                advance(x, is_variable && sign != '-' ? end + 2 : after_close(x, end, sign));
                return true;
            }
        }
        const char c = x->s[x->at];
        const size_t space = skip_space(x, x->at);
        bool ok = true;
        if (space > x->at)
            advance(x, space);
        else if (isdigit((unsigned char)c))
            ok = lex_number(x);
        else if (is_name_char(c))
            ok = lex_name(x);
        else if (c == '\'' || c == '"')
            ok = lex_string(x);
        else
            ok = lex_operator(x, &b);
        if (!ok)
            return false;
    }
    return fail(x, is_variable ? "a {{ is not closed by }}" : "a {% is not closed by %}");
}

static bool lex_all(struct lexer *x) {
    while (x->at < x->n) {
        size_t tag = x->at;
        while (tag < x->n &&
               !(x->s[tag] == '{' && tag + 1 < x->n &&
                 (x->s[tag + 1] == '{' || x->s[tag + 1] == '%' || x->s[tag + 1] == '#')))
            tag++;
        if (tag == x->n)
            return add_data(x, tag);
        const char kind = x->s[tag + 1], sign = sign_at(x, tag + 2);
        if (!add_data(x, text_end(x, tag, sign, kind == '{')))
            return false;
        size_t end;
        char close;
        bool ok;
        advance(x, tag);
        if (kind == '%' && raw_begins(x, "raw", tag, &end, &close) && close != '+') {
            advance(x, close == '-' ? skip_space(x, end + 2) : end + 2);
            ok = lex_raw(x);
        } else {
            advance(x, tag + 2 + (sign != 0));
            ok = kind == '#' ||
                 add(x, (struct jinja_token){.kind = kind == '{' ? JT_VAR_BEGIN : JT_BLOCK_BEGIN});
            ok = ok && (kind == '#' ? lex_comment(x) : lex_tag(x, kind == '{'));
        }
        if (!ok)
            return false;
    }
    return true;
}

/* \r\n and \r become \n, and one newline at the end goes. */
static bool normalize(struct lexer *x, const char *source, size_t len) {
    char *s = jinja_alloc(x->r, len + 1, 1);
    if (!s)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (source[i] == '\r' && i + 1 < len && source[i + 1] == '\n')
            continue;
        s[x->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (x->n && s[x->n - 1] == '\n')
        x->n--;
    x->s = s;
    return true;
}

bool jinja_lex(struct jinja_run *r, const char *source, size_t len, const char **text,
               struct jinja_token **tokens, size_t *n) {
    struct lexer x = {.r = r, .line = 1, .line_starting = true};
    if (len > JINJA_MAX_SOURCE)
        return jinja_fail(r, LODE_ERR_LIMIT, "the chat template has %zu bytes, at most %d expected",
                          len, JINJA_MAX_SOURCE);
    if (!lode_utf8_valid(source, len))
        return jinja_fail(r, LODE_ERR_FORMAT, "the chat template is not valid UTF-8");
    if (!normalize(&x, source, len) || !lex_all(&x) ||
        !add(&x, (struct jinja_token){.kind = JT_EOF}))
        return false;
    *text = x.s;
    *tokens = x.tokens;
    *n = x.n_tokens;
    return true;
}
