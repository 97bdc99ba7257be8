/* pattern.c - see pattern.h. */
#include "text/grammar/pattern.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

bool span_add(struct span_list *l, uint32_t lo, uint32_t hi) {
    return GVEC_PUSH(l, ((struct expr_span){lo, hi}));
}

struct spans {
    const struct expr_span *v;
    size_t n;
};

static const struct expr_span digit_spans[] = {{'0', '9'}};
static const struct expr_span word_spans[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
static const struct expr_span space_spans[] = {
    {9, 13},          {32, 32},         {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a},
    {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};

static bool add_spans(struct span_list *l, const struct expr_span *v, size_t n, bool negate) {
    uint32_t at = 0;
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) {
        ok = negate ? v[i].lo == at || span_add(l, at, v[i].lo - 1) : span_add(l, v[i].lo, v[i].hi);
        at = v[i].hi + 1;
    }
    return ok && (!negate || at > 0x10ffff || span_add(l, at, 0x10ffff));
}

bool span_add_class(struct span_list *l, char c) {
    switch (c) {
    case 'd':
    case 'D':
        return add_spans(l, digit_spans, 1, c == 'D');
    case 'w':
    case 'W':
        return add_spans(l, word_spans, sizeof word_spans / sizeof *word_spans, c == 'W');
    default:
        return add_spans(l, space_spans, sizeof space_spans / sizeof *space_spans, c == 'S');
    }
}

struct parser {
    struct gbuild *b;
    struct lode_str s;
    size_t at;
    struct expr e;
    struct span_list spans; /* of the class being read */
    uint32_t depth;
};

static int bad(struct parser *p, int code, const char *what) {
    return lode_fail(p->b->err, code, p->b->where, "pattern, byte %zu: %s", p->at, what);
}

static bool more(const struct parser *p) { return p->at < p->s.len; }
static char peek(const struct parser *p) { return more(p) ? p->s.data[p->at] : 0; }
static bool eat(struct parser *p, char c) {
    if (!more(p) || p->s.data[p->at] != c)
        return false;
    p->at++;
    return true;
}
static bool eat_text(struct parser *p, const char *t) {
    const size_t n = strlen(t);
    if (p->s.len - p->at < n || memcmp(p->s.data + p->at, t, n) != 0)
        return false;
    p->at += n;
    return true;
}

static int read_char(struct parser *p, uint32_t *cp) {
    const size_t n = lode_utf8_decode(p->s.data + p->at, p->s.len - p->at, cp);
    if (n == 0)
        return bad(p, LODE_ERR_FORMAT, "not UTF-8");
    p->at += n;
    return 0;
}

static bool read_hex(struct parser *p, unsigned n, uint32_t *v) {
    *v = 0;
    if (p->s.len - p->at < n)
        return false;
    for (unsigned i = 0; i < n; i++) {
        const char c = p->s.data[p->at + i], low = (char)(c | 32);
        if (c >= '0' && c <= '9')
            *v = *v << 4 | (uint32_t)(c - '0');
        else if (low >= 'a' && low <= 'f')
            *v = *v << 4 | (uint32_t)(low - 'a' + 10);
        else
            return false;
    }
    p->at += n;
    return true;
}

/* Behind "\u": four digits, two times four for a surrogate pair, or {digits}. */
static int read_u(struct parser *p, uint32_t *cp) {
    uint32_t low;
    if (eat(p, '{')) {
        *cp = 0;
        while (more(p) && peek(p) != '}' && *cp <= 0x10ffff) {
            if (!read_hex(p, 1, &low))
                return bad(p, LODE_ERR_FORMAT, "\\u{ needs hex digits");
            *cp = *cp << 4 | low;
        }
        if (!eat(p, '}') || *cp > 0x10ffff)
            return bad(p, LODE_ERR_FORMAT, "\\u{...} is no character");
        return 0;
    }
    if (!read_hex(p, 4, cp))
        return bad(p, LODE_ERR_FORMAT, "\\u needs four hex digits");
    const size_t back = p->at;
    if (*cp >= 0xd800 && *cp < 0xdc00 && eat_text(p, "\\u")) {
        if (read_hex(p, 4, &low) && low >= 0xdc00 && low < 0xe000)
            *cp = 0x10000 + ((*cp - 0xd800) << 10) + (low - 0xdc00);
        else
            p->at = back;
    }
    return 0;
}

/* name, the general categories of utf8proc it stands for */
static const struct category {
    const char *name, *alias, *letters;
} categories[] = {
    {"L", "Letter", "Lu Ll Lt Lm Lo"},
    {"LC", "Cased_Letter", "Lu Ll Lt"},
    {"Lu", "Uppercase_Letter", "Lu"},
    {"Ll", "Lowercase_Letter", "Ll"},
    {"Lt", "Titlecase_Letter", "Lt"},
    {"Lm", "Modifier_Letter", "Lm"},
    {"Lo", "Other_Letter", "Lo"},
    {"M", "Mark", "Mn Mc Me"},
    {"Mn", "Nonspacing_Mark", "Mn"},
    {"Mc", "Spacing_Mark", "Mc"},
    {"Me", "Enclosing_Mark", "Me"},
    {"N", "Number", "Nd Nl No"},
    {"Nd", "Decimal_Number", "Nd"},
    {"Nd", "digit", "Nd"},
    {"Nl", "Letter_Number", "Nl"},
    {"No", "Other_Number", "No"},
    {"P", "Punctuation", "Pc Pd Ps Pe Pi Pf Po"},
    {"Pc", "Connector_Punctuation", "Pc"},
    {"Pd", "Dash_Punctuation", "Pd"},
    {"Ps", "Open_Punctuation", "Ps"},
    {"Pe", "Close_Punctuation", "Pe"},
    {"Pi", "Initial_Punctuation", "Pi"},
    {"Pf", "Final_Punctuation", "Pf"},
    {"Po", "Other_Punctuation", "Po"},
    {"S", "Symbol", "Sm Sc Sk So"},
    {"Sm", "Math_Symbol", "Sm"},
    {"Sc", "Currency_Symbol", "Sc"},
    {"Sk", "Modifier_Symbol", "Sk"},
    {"So", "Other_Symbol", "So"},
    {"Z", "Separator", "Zs Zl Zp"},
    {"Zs", "Space_Separator", "Zs"},
    {"Zl", "Line_Separator", "Zl"},
    {"Zp", "Paragraph_Separator", "Zp"},
    {"Cc", "Control", "Cc"},
    {"Cf", "Format", "Cf"},
};

/* Behind "\p" or "\P". */
static int read_property(struct parser *p, bool negate) {
    const char *what = "\\p takes a general category, as \\p{L} or \\p{Letter}; scripts and other "
                       "properties are not supported";
    if (!eat(p, '{'))
        return bad(p, LODE_ERR_UNSUPPORTED, what);
    if (!eat_text(p, "General_Category="))
        eat_text(p, "gc=");
    const size_t start = p->at;
    while (more(p) && peek(p) != '}')
        p->at++;
    const struct lode_str name = {p->s.data + start, p->at - start};
    if (!eat(p, '}'))
        return bad(p, LODE_ERR_FORMAT, "\\p{ has no end");
    for (size_t i = 0; i < sizeof categories / sizeof *categories; i++) {
        const struct category *c = &categories[i];
        if (!lode_str_eqz(name, c->name) && !lode_str_eqz(name, c->alias))
            continue;
        LODE_TRY(gb_work(p->b, 100 * 1000)); /* a walk over all characters */
        uint32_t from = UINT32_MAX;
        for (uint32_t cp = 0; cp <= 0x110000; cp++) {
            const bool in =
                cp < 0x110000 &&
                (strstr(c->letters, utf8proc_category_string((int32_t)cp)) != NULL) != negate;
            if (in && from == UINT32_MAX)
                from = cp;
            if (!in && from != UINT32_MAX) {
                if (!span_add(&p->spans, from, cp - 1))
                    return gb_nomem(p->b);
                from = UINT32_MAX;
            }
        }
        return 0;
    }
    return bad(p, LODE_ERR_UNSUPPORTED, what);
}

/* Behind a backslash: a character (*cp), or a class added to spans (*cp = UINT32_MAX). */
static int read_escape(struct parser *p, bool in_class, uint32_t *cp) {
    static const char from[] = "tnvfr", to[] = "\t\n\v\f\r";
    if (!more(p))
        return bad(p, LODE_ERR_FORMAT, "a backslash at the end");
    const char c = peek(p);
    const char *known = strchr(from, c);
    *cp = UINT32_MAX;
    if (c && strchr("dDwWsS", c)) {
        p->at++;
        return span_add_class(&p->spans, c) ? 0 : gb_nomem(p->b);
    }
    if (c == 'p' || c == 'P') {
        p->at++;
        return read_property(p, c == 'P');
    }
    if (!in_class && (c == 'b' || c == 'B'))
        return bad(p, LODE_ERR_UNSUPPORTED,
                   "word boundaries (\\b, \\B) cannot be enforced yet; "
                   "write the characters around them");
    if (!in_class && ((c >= '1' && c <= '9') || c == 'k'))
        return bad(p, LODE_ERR_UNSUPPORTED,
                   "back references are not regular and cannot be enforced");
    if (known && c) {
        p->at++;
        *cp = (uint8_t)to[known - from];
    } else if (c == '0') {
        p->at++;
        *cp = 0;
    } else if (c == 'b') {
        p->at++;
        *cp = 8;
    } else if (c == 'c' && p->s.len - p->at > 1 &&
               ((p->s.data[p->at + 1] | 32) >= 'a' && (p->s.data[p->at + 1] | 32) <= 'z')) {
        *cp = (uint32_t)p->s.data[p->at + 1] & 31;
        p->at += 2;
    } else if (c == 'x') {
        p->at++;
        if (!read_hex(p, 2, cp))
            return bad(p, LODE_ERR_FORMAT, "\\x needs two hex digits");
    } else if (c == 'u') {
        p->at++;
        return read_u(p, cp);
    } else if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')) {
        return bad(p, LODE_ERR_FORMAT, "an escape that ECMA-262 does not have (with the u flag)");
    } else {
        return read_char(p, cp);
    }
    return 0;
}

/* One member of a class: *cp, or UINT32_MAX where it was a class of its own. */
static int read_member(struct parser *p, uint32_t *cp) {
    return eat(p, '\\') ? read_escape(p, true, cp) : read_char(p, cp);
}

/* Behind "[". */
static int read_class(struct parser *p, uint32_t *out) {
    const bool negate = eat(p, '^');
    p->spans.n = 0;
    while (!eat(p, ']')) {
        uint32_t lo, hi;
        if (!more(p))
            return bad(p, LODE_ERR_FORMAT, "a class [ has no end");
        LODE_TRY(read_member(p, &lo));
        if (lo != UINT32_MAX && peek(p) == '-' && p->at + 1 < p->s.len &&
            p->s.data[p->at + 1] != ']') {
            p->at++;
            LODE_TRY(read_member(p, &hi));
            if (hi == UINT32_MAX || hi < lo)
                return bad(p, LODE_ERR_FORMAT, "a range in a class ends before it begins");
        } else {
            hi = lo;
        }
        if (lo != UINT32_MAX && !span_add(&p->spans, lo, hi))
            return gb_nomem(p->b);
    }
    *out = expr_set_node(&p->e, p->spans.v, p->spans.n, negate);
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int one_char(struct parser *p, uint32_t cp, uint32_t *out) {
    struct expr_span span = {cp, cp};
    *out = expr_set_node(&p->e, &span, 1, false);
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_either(struct parser *p, uint32_t *out);

/* Behind "(". */
static int read_group(struct parser *p, uint32_t *out) {
    if (eat(p, '?')) {
        const bool behind = peek(p) == '<' && p->at + 1 < p->s.len &&
                            (p->s.data[p->at + 1] == '=' || p->s.data[p->at + 1] == '!');
        if (behind || peek(p) == '=' || peek(p) == '!')
            return bad(p, LODE_ERR_UNSUPPORTED, "lookahead and lookbehind cannot be enforced");
        if (eat(p, '<')) {
            while (more(p) && peek(p) != '>')
                p->at++;
            if (!eat(p, '>'))
                return bad(p, LODE_ERR_FORMAT, "a group's name has no end");
        } else if (!eat(p, ':')) {
            return bad(p, LODE_ERR_UNSUPPORTED, "inline flags are not supported");
        }
    }
    if (++p->depth > EXPR_DEPTH)
        return bad(p, LODE_ERR_LIMIT, "groups are nested more than 200 deep");
    LODE_TRY(read_either(p, out));
    p->depth--;
    return eat(p, ')') ? 0 : bad(p, LODE_ERR_FORMAT, "a group ( has no end");
}

static int read_atom(struct parser *p, uint32_t *out) {
    uint32_t cp;
    if (eat(p, '('))
        return read_group(p, out);
    if (eat(p, '['))
        return read_class(p, out);
    if (eat(p, '^') || eat(p, '$')) {
        *out = expr_node(&p->e, p->s.data[p->at - 1] == '^' ? EXPR_BOL : EXPR_EOL, 0, 0);
        return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
    }
    if (eat(p, '.')) {
        struct expr_span ends[] = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
        *out = expr_set_node(&p->e, ends, 3, true);
        return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
    }
    if (strchr("*+?", peek(p)) && peek(p))
        return bad(p, LODE_ERR_FORMAT, "a quantifier without anything to repeat");
    if (eat(p, '\\')) {
        p->spans.n = 0;
        LODE_TRY(read_escape(p, false, &cp));
        if (cp != UINT32_MAX)
            return one_char(p, cp, out);
        *out = expr_set_node(&p->e, p->spans.v, p->spans.n, false);
        return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
    }
    LODE_TRY(read_char(p, &cp));
    return one_char(p, cp, out);
}

static bool read_count(struct parser *p, uint32_t *v) {
    const size_t start = p->at;
    uint64_t n = 0;
    while (peek(p) >= '0' && peek(p) <= '9' && more(p)) {
        n = n * 10 + (uint64_t)(peek(p) - '0');
        n = n > 1000000000 ? 1000000000 : n; /* the limit of states says no long before */
        p->at++;
    }
    *v = (uint32_t)n;
    return p->at > start;
}

/* A quantifier, if one follows. */
static int read_quantifier(struct parser *p, uint32_t *node) {
    uint32_t min, max;
    if (eat(p, '*')) {
        min = 0;
        max = EXPR_MANY;
    } else if (eat(p, '+')) {
        min = 1;
        max = EXPR_MANY;
    } else if (eat(p, '?')) {
        min = 0;
        max = 1;
    } else if (peek(p) == '{') {
        const size_t back = p->at++;
        bool good = read_count(p, &min);
        max = min;
        if (good && eat(p, ','))
            max = read_count(p, &max) ? max : EXPR_MANY;
        if (!good || !eat(p, '}')) {
            p->at = back; /* a brace that stands for itself */
            return 0;
        }
        if (max < min)
            return bad(p, LODE_ERR_FORMAT, "a quantifier {m,n} with n below m");
    } else {
        return 0;
    }
    eat(p, '?'); /* lazy: the same texts */
    const uint8_t op = p->e.nodes.v[*node].op;
    if (op == EXPR_BOL || op == EXPR_EOL)
        return bad(p, LODE_ERR_FORMAT, "an anchor cannot be repeated");
    *node = expr_rep(&p->e, *node, min, max);
    return *node == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_sequence(struct parser *p, uint32_t *out) {
    *out = expr_node(&p->e, EXPR_EMPTY, 0, 0);
    while (*out != UINT32_MAX && more(p) && peek(p) != '|' && peek(p) != ')') {
        uint32_t atom;
        LODE_TRY(read_atom(p, &atom));
        LODE_TRY(read_quantifier(p, &atom));
        *out = expr_node(&p->e, EXPR_CAT, *out, atom);
        LODE_TRY(gb_work(p->b, 1));
    }
    return *out == UINT32_MAX ? gb_nomem(p->b) : 0;
}

static int read_either(struct parser *p, uint32_t *out) {
    LODE_TRY(read_sequence(p, out));
    while (eat(p, '|')) {
        uint32_t next;
        LODE_TRY(read_sequence(p, &next));
        *out = expr_node(&p->e, EXPR_ALT, *out, next);
        if (*out == UINT32_MAX)
            return gb_nomem(p->b);
    }
    return 0;
}

int pattern_compile(struct gbuild *b, struct lode_str text, bool search, struct dfa *out) {
    struct parser p = {.b = b, .s = text};
    uint32_t node;
    struct expr_span all = {0, 0x10ffff};
    *out = (struct dfa){0};
    int rc = read_either(&p, &node);
    if (rc == 0 && more(&p))
        rc = bad(&p, LODE_ERR_FORMAT, "a ) without its (");
    if (rc == 0 && expr_set_node(&p.e, &all, 1, false) == UINT32_MAX) /* for the search */
        rc = gb_nomem(b);
    if (rc == 0)
        rc = nfa_to_dfa(b, &p.e, node, search, out);
    expr_free(&p.e);
    lode_free(p.spans.v);
    return rc;
}
