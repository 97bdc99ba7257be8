/* params_call.c - calls with a pair of tags around every parameter: Qwen3-Coder, Seed, GLM,
 * MiniMax, DeepSeek V3.2.  The tags are the format's (struct tc_params).
 *
 * A value is what the tool's schema says, and a string where it says nothing.  A string leaves as
 * it comes; other values wait for their end. */
#include "text/toolcall/parser.h"

#include <string.h>

enum step {
    SECTION, /* a call, or the closing tag */
    NAME,
    PARAM, /* a parameter, or the end of the call */
    KEY,
    ATTRIBUTES,
    OPENING, /* the tag before the value, where it has one of its own */
    VALUE,
    CLOSED_VALUE, /* a tag that may have closed the value: what follows decides */
};

static enum tc_result go(struct lode_toolcall *p, enum step step) {
    p->step = step;
    p->scan = p->pos;
    p->mark = p->pos;
    return TC_AGAIN;
}

static enum tc_result section(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    if (p->no_outer && p->n_here == 0) /* the tag that began it was the name's */
        return go(p, NAME);
    if (!tc_blanks(p))
        return TC_MORE;
    const int closed = tc_tag(p, p->format->tags.close);
    if (closed > 0)
        return TC_CLOSED;
    const int named = closed ? 0 : *f->name ? tc_tag(p, f->name) : p->n_here == 0;
    if (named > 0)
        return go(p, NAME);
    if (closed == 0 && named == 0 && p->no_outer)
        return TC_CLOSED;
    return closed < 0 || named < 0 ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
}

static enum tc_result name(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    /* GLM's name has no closing tag of its own */
    const char *const ends[] = {f->name_end, f->key, f->end};
    size_t at;
    const int which = tc_find_tag(p, ends, *f->name ? 1 : 3, &at);
    if (tc_too_far(p, 2 * TC_MAX_NAME))
        return tc_bad(p, TC_REASON(bad_name));
    if (which < 0)
        return TC_MORE;
    if (!tc_set_name(p, p->mark, at)) {
        p->pos = at;
        return tc_bad(p, TC_REASON(bad_name));
    }
    p->pos = which == 0 ? at + strlen(ends[0]) : at;
    tc_begin(p);
    return go(p, PARAM);
}

static enum tc_result end_call(struct lode_toolcall *p) {
    lode_buf_addz(&p->out, p->first ? "{}" : "}");
    tc_put_arguments(p);
    tc_end(p);
    /* where the call's end is the closing tag, this is all */
    return strcmp(p->format->params->end, p->format->tags.close) == 0 ? TC_CLOSED : go(p, SECTION);
}

static enum tc_result param(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    if (!tc_blanks(p))
        return TC_MORE;
    const int ended = tc_tag(p, f->end), key = ended ? 0 : tc_tag(p, f->key);
    if (ended > 0)
        return end_call(p);
    if (key > 0)
        return go(p, KEY);
    return ended < 0 || key < 0 ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
}

/* How the value is given out: its beginning, unless it waits for its end. */
static enum tc_result begin_value(struct lode_toolcall *p) {
    p->streaming = p->types == 0 || p->types == TC_STRING;
    if (p->streaming)
        lode_buf_addc(&p->out, '"');
    tc_put_arguments(p);
    p->newline_due = p->format->params->newline; /* one may still have to be left out */
    return go(p, VALUE);
}

static enum tc_result key(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    size_t at;
    const int found = tc_find_tag(p, &f->key_end, 1, &at);
    if (tc_too_far(p, TC_MAX_KEY))
        return tc_bad(p, TC_REASON(bad_name));
    if (found < 0)
        return TC_MORE;
    const char *text = p->text + p->mark;
    size_t len = at - p->mark;
    while (len && tc_is_blank(text[len - 1]))
        len--;
    while (len && tc_is_blank(*text))
        text++, len--;
    if (len == 0)
        return tc_bad(p, TC_REASON(bad_name));
    tc_add_key(p, text, len);
    tc_put_arguments(p);
    p->types = tc_param_types(p->schema, text, len);
    p->pos = at + strlen(f->key_end);
    if (f->attributes)
        return go(p, ATTRIBUTES);
    return *f->value ? go(p, OPENING) : begin_value(p);
}

/* The rest of the tag, up to >. */
static enum tc_result attributes(struct lode_toolcall *p) {
    static const char *const end[] = {">"};
    size_t at;
    const int found = tc_find_tag(p, end, 1, &at);
    if (tc_too_far(p, TC_MAX_KEY))
        return tc_bad(p, TC_REASON(bad_syntax));
    if (found < 0)
        return TC_MORE;
    const char *text = p->text + p->mark;
    if (memmem(text, at - p->mark, "string=\"true\"", 13))
        p->types = TC_STRING;
    else if (memmem(text, at - p->mark, "string=\"false\"", 14))
        p->types = TC_OBJECT; /* anything but a string */
    p->pos = at + 1;
    return begin_value(p);
}

static enum tc_result opening(struct lode_toolcall *p) {
    if (!tc_blanks(p))
        return TC_MORE;
    const int found = tc_tag(p, p->format->params->value);
    return found > 0 ? begin_value(p) : found < 0 ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
}

/* Leaves out the newline behind the opening tag.  False: it may still come. */
static bool skip_newline(struct lode_toolcall *p) {
    if (p->newline_due && p->pos == p->n)
        return false;
    if (p->newline_due && p->text[p->pos] == '\n')
        p->mark = ++p->pos;
    p->newline_due = false;
    return true;
}

static enum tc_result value(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    size_t at;
    if (!skip_newline(p))
        return TC_MORE;
    if (p->scan < p->pos)
        p->scan = p->pos;
    const bool found = tc_find_tag(p, &f->value_end, 1, &at) == 0;
    size_t to = at;
    if (f->newline && to > p->mark && p->text[to - 1] == '\n')
        to--; /* it may be the one before the closing tag */
    if (p->streaming && to > p->mark) {
        tc_escape(p, p->text + p->mark, to - p->mark);
        tc_put_arguments(p);
        p->mark = to;
    }
    if (!found) {
        p->pos = p->scan;
        return TC_MORE;
    }
    p->args = to;     /* the end of the value, if the tag closes it */
    p->args_end = at; /* the tag */
    p->pos = at + strlen(f->value_end);
    p->step = CLOSED_VALUE;
    return TC_AGAIN;
}

/* A value may hold its own closing tag: it ends where another parameter or the call's end follows.
 */
static enum tc_result closed_value(struct lode_toolcall *p) {
    const struct tc_params *f = p->format->params;
    const char *const follow[] = {f->key, f->end, p->format->tags.close};
    if (!tc_blanks(p))
        return TC_MORE;
    const size_t at = p->pos;
    int found = 0;
    for (size_t i = 0; i < 3 && found == 0; i++)
        found = tc_tag(p, follow[i]);
    p->pos = at;
    if (found < 0)
        return TC_MORE;
    if (!found) {
        p->scan = p->args_end + 1;
        p->pos = p->scan;
        p->step = VALUE;
        return TC_AGAIN;
    }
    if (p->streaming)
        lode_buf_addc(&p->out, '"');
    else
        tc_add_value(p, p->types, p->text + p->mark, p->args - p->mark);
    tc_put_arguments(p);
    return go(p, PARAM);
}

enum tc_result tc_params_call(struct lode_toolcall *p) {
    static enum tc_result (*const steps[])(struct lode_toolcall *) = {
        [SECTION] = section,       [NAME] = name,
        [PARAM] = param,           [KEY] = key,
        [ATTRIBUTES] = attributes, [OPENING] = opening,
        [VALUE] = value,           [CLOSED_VALUE] = closed_value};
    return steps[p->step](p);
}
