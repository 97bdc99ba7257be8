/* gemma_call.c - Gemma 4: <|tool_call>call:name{a:1,b:<|"|>text<|"|>}<tool_call|> */
#include "text/toolcall/parser.h"

#include <string.h>

#define QUOTE "<|\"|>"

enum step { OUTSIDE, NAME, BODY };

struct reader {
    struct lode_toolcall *p;
    const char *at, *end;
};

static bool read_value(struct reader *r, unsigned depth);

static void skip_blanks(struct reader *r) {
    while (r->at < r->end && tc_is_blank(*r->at))
        r->at++;
}

static bool skip(struct reader *r, const char *what) {
    const size_t n = strlen(what);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, what, n) != 0)
        return false;
    r->at += n;
    return true;
}

/* Up to the closing quote. */
static bool read_string(struct reader *r) {
    const char *end = memmem(r->at, (size_t)(r->end - r->at), QUOTE, sizeof QUOTE - 1);
    if (!end)
        return false;
    lode_buf_addc(&r->p->out, '"');
    tc_escape(r->p, r->at, (size_t)(end - r->at));
    lode_buf_addc(&r->p->out, '"');
    r->at = end + sizeof QUOTE - 1;
    return true;
}

/* A string as JSON has it, behind its quote: what models write when they are held to JSON. */
static bool read_json_string(struct reader *r) {
    const char *start = r->at;
    while (r->at < r->end && *r->at != '"')
        r->at += *r->at == '\\' && r->end - r->at > 1 ? 2 : 1;
    if (r->at == r->end)
        return false;
    lode_buf_addc(&r->p->out, '"');
    lode_buf_add(&r->p->out, start, (size_t)(r->at - start));
    lode_buf_addc(&r->p->out, '"');
    r->at++;
    return true;
}

static bool read_key(struct reader *r) {
    if (skip(r, QUOTE))
        return read_string(r) && skip(r, ":");
    if (skip(r, "\""))
        return read_json_string(r) && skip(r, ":");
    const char *colon = memchr(r->at, ':', (size_t)(r->end - r->at));
    if (!colon || colon == r->at || colon - r->at > TC_MAX_KEY)
        return false;
    lode_buf_addc(&r->p->out, '"');
    tc_escape(r->p, r->at, (size_t)(colon - r->at));
    lode_buf_addc(&r->p->out, '"');
    r->at = colon + 1;
    return true;
}

static bool read_members(struct reader *r, const char *close, bool keys, unsigned depth) {
    lode_buf_addc(&r->p->out, keys ? '{' : '[');
    for (bool first = true; !skip(r, close); first = false) {
        if (!first && !skip(r, ","))
            return false;
        if (!first)
            lode_buf_addz(&r->p->out, ", ");
        if (keys && !read_key(r))
            return false;
        if (keys)
            lode_buf_addz(&r->p->out, ": ");
        if (!read_value(r, depth + 1))
            return false;
    }
    lode_buf_addc(&r->p->out, keys ? '}' : ']');
    return true;
}

static bool read_value(struct reader *r, unsigned depth) {
    if (depth >= TC_MAX_DEPTH)
        return false;
    if (skip(r, QUOTE))
        return read_string(r);
    if (skip(r, "\""))
        return read_json_string(r);
    if (skip(r, "{"))
        return read_members(r, "}", true, depth);
    if (skip(r, "["))
        return read_members(r, "]", false, depth);
    const char *start = r->at;
    while (r->at < r->end && !(*r->at && strchr(",]}", *r->at)))
        r->at++;
    if (r->at == start)
        return false;
    tc_add_value(r->p, TC_NUMBER | TC_BOOL | TC_NULL, start, (size_t)(r->at - start));
    return true;
}

/* The braces, between NAME and the closing tag. */
static enum tc_result end_body(struct lode_toolcall *p, size_t at) {
    struct reader r = {p, p->text + p->mark, p->text + at};
    const bool ok = skip(&r, "{") && read_members(&r, "}", true, 0);
    skip_blanks(&r);
    if (!ok || r.at < r.end)
        return tc_bad(p, TC_REASON(bad_syntax));
    tc_put_arguments(p);
    p->pos = at + strlen(p->format->tags.close);
    tc_end(p);
    return TC_CLOSED;
}

enum tc_result tc_gemma_call(struct lode_toolcall *p) {
    static const char *const brace[] = {"{"};
    const char *const ends[] = {QUOTE, p->format->tags.close};
    size_t at;
    int found;
    switch (p->step) {
    case OUTSIDE:
        if (!tc_blanks(p))
            return TC_MORE;
        found = tc_tag(p, "call:");
        if (found <= 0)
            return found ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
        p->mark = p->scan = p->pos;
        p->step = NAME;
        return TC_AGAIN;
    case NAME:
        found = tc_find_tag(p, brace, 1, &at);
        if (tc_too_far(p, 2 * TC_MAX_NAME))
            return tc_bad(p, TC_REASON(bad_name));
        if (found < 0)
            return TC_MORE;
        if (!tc_set_name(p, p->mark, at))
            return tc_bad(p, TC_REASON(bad_name));
        tc_begin(p);
        p->mark = p->pos = p->scan = at;
        p->step = BODY;
        return TC_AGAIN;
    default:
        found = tc_find_tag(p, ends, 2, &at);
        if (found < 0)
            return TC_MORE;
        p->pos = at;
        if (found == 1 && !p->quoted)
            return end_body(p, at);
        p->quoted = p->quoted != (found == 0); /* within a string, where tags are text */
        p->scan = at + strlen(ends[found]);
        return TC_AGAIN;
    }
}
