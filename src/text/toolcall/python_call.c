/* python_call.c - calls as Python writes them: [f(a=1, b='x'), g()], with or without the brackets.
 *
 * A value is read to its end, by quotes and brackets, then written as JSON. */
#include "text/toolcall/parser.h"

#include "base/utf8.h"

#include <string.h>

enum step {
    OUTSIDE,
    NAME,
    FIRST_KEY, /* or ) */
    KEY,
    EQUALS,
    VALUE,
    BETWEEN, /* a comma or ] */
    TAIL,
};

static enum tc_result go(struct lode_toolcall *p, enum step step) {
    p->step = step;
    p->mark = p->pos;
    p->quote = 0;
    p->depth = 0;
    p->escaped = false;
    return TC_AGAIN;
}

static enum tc_result pass(struct lode_toolcall *p, enum step step) {
    p->pos++;
    return go(p, step);
}

/* ---- values ---- */

struct reader {
    struct lode_toolcall *p;
    const char *at, *end;
};

static bool read_value(struct reader *r, unsigned depth);

static void skip_blanks(struct reader *r) {
    while (r->at < r->end && tc_is_blank(*r->at))
        r->at++;
}

static bool skip(struct reader *r, char c) {
    skip_blanks(r);
    if (r->at == r->end || *r->at != c)
        return false;
    r->at++;
    return true;
}

/* digits hexadecimal digits; -1: they are not there */
static int64_t read_hex(struct reader *r, int digits) {
    int64_t v = 0;
    for (int i = 0; i < digits; i++) {
        static const char hex[] = "0123456789abcdef";
        const char *d = r->at < r->end && *r->at ? strchr(hex, *r->at | 32) : NULL;
        if (!d)
            return -1;
        v = v << 4 | (d - hex);
        r->at++;
    }
    return v;
}

static bool read_escape(struct reader *r) {
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *r->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        tc_escape(r->p, to + (known - from), 1);
        return true;
    }
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (!digits) { /* an unknown one stays as it is; one before a line's end joins the lines */
        tc_escape(r->p, "\\", c != '\n');
        tc_escape(r->p, &c, c != '\n');
        return true;
    }
    const int64_t cp = read_hex(r, digits);
    if (cp < 0 || cp > 0x10ffff)
        return false;
    char utf8[4];
    if (cp < 0x10000) /* halves of pairs too, which JSON joins as Python does not */
        return lode_buf_addf(&r->p->out, "\\u%04x", (unsigned)cp), true;
    return lode_buf_add(&r->p->out, utf8, lode_utf8_encode((uint32_t)cp, utf8)), true;
}

static bool read_string(struct reader *r) {
    const char quote = *r->at++;
    lode_buf_addc(&r->p->out, '"');
    while (r->at < r->end && *r->at != quote) {
        if (*r->at != '\\')
            tc_escape(r->p, r->at++, 1);
        else if (++r->at == r->end || !read_escape(r))
            return false;
    }
    lode_buf_addc(&r->p->out, '"');
    return r->at++ < r->end;
}

static bool read_items(struct reader *r, char close, unsigned depth) {
    r->at++;
    lode_buf_addc(&r->p->out, '[');
    for (bool first = true; !skip(r, close); first = false) {
        if (!first && (!skip(r, ',')))
            return false;
        if (!first && skip(r, close))
            break;
        if (!first)
            lode_buf_addz(&r->p->out, ", ");
        if (!read_value(r, depth))
            return false;
    }
    lode_buf_addc(&r->p->out, ']');
    return true;
}

static bool read_dict(struct reader *r, unsigned depth) {
    r->at++;
    lode_buf_addc(&r->p->out, '{');
    for (bool first = true; !skip(r, '}'); first = false) {
        if (!first && !skip(r, ','))
            return false;
        if (!first && skip(r, '}'))
            break;
        if (!first)
            lode_buf_addz(&r->p->out, ", ");
        skip_blanks(r);
        if (r->at == r->end || (*r->at != '"' && *r->at != '\'') || !read_string(r) ||
            !skip(r, ':'))
            return false;
        lode_buf_addz(&r->p->out, ": ");
        if (!read_value(r, depth))
            return false;
    }
    lode_buf_addc(&r->p->out, '}');
    return true;
}

/* True, None, 12, -1.5e3 */
static bool read_word(struct reader *r) {
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    const char *start = r->at;
    while (r->at < r->end && !strchr(",]}): \t\r\n", *r->at) && *r->at)
        r->at++;
    const struct lode_str word = {start, (size_t)(r->at - start)};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (lode_str_eqz(word, words[i][0]))
            return lode_buf_addz(&r->p->out, words[i][1]), true;
    struct tc_json j;
    tc_json_init(&j);
    for (size_t i = 0; i < word.len; i++)
        if (!strchr("+-.0123456789eE", word.data[i]) ||
            tc_json_byte(&j, (unsigned char)word.data[i]) != TC_JSON_ON)
            return false;
    return tc_json_done(&j) && (lode_buf_add(&r->p->out, word.data, word.len), true);
}

static bool read_value(struct reader *r, unsigned depth) {
    skip_blanks(r);
    if (r->at == r->end || depth >= TC_MAX_DEPTH)
        return false;
    switch (*r->at) {
    case '\'':
    case '"':
        return read_string(r);
    case '[':
        return read_items(r, ']', depth + 1);
    case '(':
        return read_items(r, ')', depth + 1);
    case '{':
        return read_dict(r, depth + 1);
    default:
        return read_word(r);
    }
}

/* Moves pos to the comma or parenthesis that ends the value; false: more text is needed. */
static bool find_end(struct lode_toolcall *p) {
    for (; p->pos < p->n; p->pos++) {
        const char c = p->text[p->pos];
        if (p->quote) { /* the quote that is open */
            if (p->escaped)
                p->escaped = false;
            else if (c == '\\')
                p->escaped = true;
            else if (c == p->quote)
                p->quote = 0;
        } else if (c == '"' || c == '\'') {
            p->quote = c;
        } else if (p->depth == 0 && (c == ',' || c == ')')) {
            return true;
        } else if (strchr("([{", c) && c) {
            p->depth++;
        } else if (strchr(")]}", c) && c && p->depth) {
            p->depth--;
        }
    }
    return false;
}

/* ---- calls ---- */

static bool is_word_char(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) ||
           (!first && ((c >= '0' && c <= '9') || c == '.' || c == '-'));
}

/* Moves pos behind a word; false: more text is needed. */
static bool read_name(struct lode_toolcall *p) {
    while (p->pos < p->n && is_word_char(p->text[p->pos], p->pos == p->mark))
        p->pos++;
    return p->pos < p->n;
}

static enum tc_result outside(struct lode_toolcall *p) {
    if (!tc_blanks(p))
        return TC_MORE;
    p->in_list = p->text[p->pos] == '[';
    if (!p->in_list && p->untagged)
        return TC_TEXT;
    return p->in_list ? pass(p, NAME) : go(p, NAME);
}

static enum tc_result name(struct lode_toolcall *p) {
    if (p->mark == p->pos) {
        const bool more = tc_blanks(p);
        p->mark = p->pos;
        if (!more)
            return TC_MORE;
    }
    const bool whole = read_name(p);
    if (p->pos - p->mark > TC_MAX_NAME)
        return tc_bad(p, TC_REASON(bad_name));
    if (!whole)
        return TC_MORE;
    if (p->text[p->pos] != '(')
        return tc_bad(p, TC_REASON(bad_syntax));
    size_t end = p->pos;
    if (end - p->mark > 5 && memcmp(p->text + end - 5, ".call", 5) == 0 && !p->in_list)
        end -= 5; /* Llama's own tools: brave_search.call(query="...") */
    if (!tc_set_name(p, p->mark, end))
        return tc_bad(p, TC_REASON(bad_name));
    if (p->untagged && p->n_here == 0 && p->tools.n && !tc_knows_tool(p, p->name))
        return TC_TEXT;
    tc_begin(p);
    return pass(p, FIRST_KEY);
}

static enum tc_result end_call(struct lode_toolcall *p) {
    p->pos++;
    lode_buf_addz(&p->out, p->first ? "{}" : "}");
    tc_put_arguments(p);
    tc_end(p);
    return go(p, p->in_list ? BETWEEN : TAIL);
}

static enum tc_result key(struct lode_toolcall *p) {
    if (p->mark == p->pos) {
        const bool more = tc_blanks(p);
        p->mark = p->pos;
        if (!more)
            return TC_MORE;
        if (p->text[p->pos] == ')')
            return end_call(p);
    }
    const bool whole = read_name(p);
    if (p->pos - p->mark > TC_MAX_KEY)
        return tc_bad(p, TC_REASON(bad_name));
    if (!whole)
        return TC_MORE;
    if (p->pos == p->mark)
        return tc_bad(p, TC_REASON(bad_syntax));
    p->args = p->mark;
    p->args_end = p->pos;
    return go(p, EQUALS);
}

static enum tc_result equals(struct lode_toolcall *p) {
    if (!tc_blanks(p))
        return TC_MORE;
    if (p->text[p->pos] != '=')
        return tc_bad(p, TC_REASON(bad_syntax));
    tc_add_key(p, p->text + p->args, p->args_end - p->args);
    tc_put_arguments(p);
    return pass(p, VALUE);
}

static enum tc_result value(struct lode_toolcall *p) {
    if (!find_end(p))
        return TC_MORE;
    struct reader r = {p, p->text + p->mark, p->text + p->pos};
    const bool ok = read_value(&r, 0);
    skip_blanks(&r);
    if (!ok || r.at < r.end)
        return tc_bad(p, TC_REASON(bad_syntax));
    tc_put_arguments(p);
    return p->text[p->pos] == ')' ? end_call(p) : pass(p, KEY);
}

enum tc_result tc_python_call(struct lode_toolcall *p) {
    const char *const close = p->format->tags.close;
    int found;
    switch (p->step) {
    case OUTSIDE:
        return outside(p);
    case NAME:
        return name(p);
    case FIRST_KEY:
    case KEY:
        return key(p);
    case EQUALS:
        return equals(p);
    case VALUE:
        return value(p);
    case BETWEEN:
        if (!tc_blanks(p))
            return TC_MORE;
        if (p->text[p->pos] == ',')
            return pass(p, NAME);
        return p->text[p->pos] == ']' ? pass(p, TAIL) : tc_bad(p, TC_REASON(bad_syntax));
    default: /* TAIL */
        if (!close || p->untagged)
            return TC_CLOSED;
        if (!tc_blanks(p))
            return TC_MORE;
        found = tc_tag(p, close);
        return found > 0 ? TC_CLOSED : found < 0 ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
    }
}

/* Llama 3: JSON, or behind <|python_tag|> a call of a tool of its own. */
enum tc_result tc_llama_call(struct lode_toolcall *p) {
    if (p->step == OUTSIDE && !p->untagged && !p->other) {
        if (!tc_blanks(p))
            return TC_MORE;
        p->other = p->text[p->pos] != '{' && p->text[p->pos] != '[';
    }
    return p->other ? tc_python_call(p) : tc_json_call(p);
}
