/* named_call.c - calls as a name, a tag, and JSON arguments: Mistral, DeepSeek, Kimi, Functionary.
 */
#include "text/toolcall/parser.h"

#include <string.h>

enum step {
    SECTION, /* a call's tag, or the section's end */
    NAME,
    SECOND_NAME, /* DeepSeek V3 writes "function" first */
    ARGUMENTS,
    IN_ARGUMENTS,
    TAIL, /* the call's closing tag */
};

static enum tc_result go(struct lode_toolcall *p, enum step step) {
    p->step = step;
    p->scan = p->pos;
    p->mark = p->pos;
    return TC_AGAIN;
}

/* Reads up to one of the tags: its index; -1: wait_for_name says what then. */
static int read_to(struct lode_toolcall *p, const char *const *tags, size_t n, size_t *at) {
    const int which = tc_find_tag(p, tags, n, at);
    if (which < 0 || tc_too_far(p, 2 * TC_MAX_NAME))
        return -1;
    p->pos = *at + strlen(tags[which]);
    return which;
}

/* What may be a name is short. */
static enum tc_result wait_for_name(struct lode_toolcall *p) {
    return tc_too_far(p, 2 * TC_MAX_NAME) ? tc_bad(p, TC_REASON(bad_name)) : TC_MORE;
}

static enum tc_result begin(struct lode_toolcall *p, size_t from, size_t to) {
    if (!tc_set_name(p, from, to))
        return tc_bad(p, TC_REASON(bad_name));
    tc_begin(p);
    return go(p, ARGUMENTS);
}

static enum tc_result arguments(struct lode_toolcall *p) {
    if (!tc_blanks(p))
        return TC_MORE;
    if (p->text[p->pos] != '{')
        return tc_bad(p, TC_REASON(bad_arguments));
    tc_json_init(&p->json);
    return go(p, IN_ARGUMENTS);
}

static enum tc_result in_arguments(struct lode_toolcall *p) {
    const enum tc_result r = tc_read_arguments(p);
    return r == TC_CLOSED ? go(p, TAIL) : r;
}

/* The call's closing tag, behind blanks and, where fence says so, ```. */
static enum tc_result close_call(struct lode_toolcall *p, const char *tag, bool fence) {
    if (!tc_blanks(p))
        return TC_MORE;
    if (fence && !p->fence_seen) {
        const int found = tc_tag(p, "```");
        p->fence_seen = found >= 0; /* looked for once */
        return found < 0 ? TC_MORE : TC_AGAIN;
    }
    const int found = tc_tag(p, tag);
    if (found <= 0)
        return found ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
    tc_end(p);
    p->fence_seen = false;
    return go(p, SECTION);
}

/* Within a section: another call, or the end. */
static enum tc_result section(struct lode_toolcall *p, const char *open, const char *close) {
    if (!tc_blanks(p))
        return TC_MORE;
    const int ended = tc_tag(p, close), begun = ended ? 0 : tc_tag(p, open);
    if (ended > 0)
        return TC_CLOSED;
    if (begun > 0)
        return go(p, NAME);
    return ended < 0 || begun < 0 ? TC_MORE : tc_bad(p, TC_REASON(bad_syntax));
}

/* [TOOL_CALLS]name[ARGS]{...}, name[CALL_ID]id[ARGS]{...}, or [TOOL_CALLS][{"name": ...}] */
enum tc_result tc_mistral_call(struct lode_toolcall *p) {
    static const char *const ends[] = {"[ARGS]", "[CALL_ID]", "{"};
    size_t at;
    if (p->other)
        return tc_json_call(p);
    switch (p->step) {
    case SECTION:
        if (!tc_blanks(p))
            return TC_MORE;
        p->other = p->text[p->pos] == '[' || p->text[p->pos] == '{';
        return p->other ? TC_AGAIN : go(p, NAME);
    case NAME: {
        const int which = read_to(p, ends, 3, &at);
        if (which < 0)
            return wait_for_name(p);
        if (which == 2)
            p->pos--;
        if (which != 1)
            return begin(p, p->mark, at);
        if (!tc_set_name(p, p->mark, at))
            return tc_bad(p, TC_REASON(bad_name));
        return go(p, SECOND_NAME);
    }
    case SECOND_NAME: {
        char name[TC_MAX_NAME];
        if (read_to(p, ends, 1, &at) < 0)
            return wait_for_name(p);
        memcpy(name, p->name, sizeof name);
        if (!tc_set_name(p, p->mark, at)) /* the id, which looks like a name */
            return tc_bad(p, TC_REASON(bad_syntax));
        memcpy(p->id, p->name, sizeof name);
        memcpy(p->name, name, sizeof name);
        tc_begin(p);
        return go(p, ARGUMENTS);
    }
    case ARGUMENTS:
        return arguments(p);
    case IN_ARGUMENTS:
        return in_arguments(p);
    default:
        tc_end(p);
        return TC_CLOSED;
    }
}

/* V3.1: name<sep>{...}; V3 and R1: function<sep>name, a line, ```json, {...}, ``` */
enum tc_result tc_deepseek_call(struct lode_toolcall *p) {
    static const char open[] = "<｜tool▁call▁begin｜>", sep[] = "<｜tool▁sep｜>";
    static const char *const seps[] = {sep}, *const lines[] = {"\n", "{"};
    size_t at;
    switch (p->step) {
    case SECTION:
        return section(p, open, p->format->tags.close);
    case NAME:
        if (read_to(p, seps, 1, &at) < 0)
            return wait_for_name(p);
        if (at - p->mark == 8 && memcmp(p->text + p->mark, "function", 8) == 0)
            return go(p, SECOND_NAME);
        return begin(p, p->mark, at);
    case SECOND_NAME: {
        if (!tc_blanks(p))
            return TC_MORE;
        const int which = read_to(p, lines, 2, &at);
        if (which < 0)
            return wait_for_name(p);
        if (which == 1) { /* a tool that is called function */
            p->pos = at;
            strcpy(p->name, "function");
            tc_begin(p);
            return go(p, ARGUMENTS);
        }
        return begin(p, p->mark, at);
    }
    case ARGUMENTS: {
        if (!tc_blanks(p))
            return TC_MORE;
        const int fence = tc_tag(p, "```json");
        return fence < 0 ? TC_MORE : arguments(p);
    }
    case IN_ARGUMENTS:
        return in_arguments(p);
    default:
        return close_call(p, "<｜tool▁call▁end｜>", true);
    }
}

/* functions.NAME:0 is the id */
static void name_of_id(struct lode_toolcall *p) {
    static const char prefix[] = "functions.";
    memcpy(p->id, p->name, sizeof p->id);
    const size_t skip = strncmp(p->name, prefix, sizeof prefix - 1) == 0 ? sizeof prefix - 1 : 0;
    char *colon = strrchr(p->name, ':');
    if (colon && colon[1] && strspn(colon + 1, "0123456789") == strlen(colon + 1))
        *colon = '\0';
    memmove(p->name, p->name + skip, strlen(p->name + skip) + 1);
}

enum tc_result tc_kimi_call(struct lode_toolcall *p) {
    static const char *const ends[] = {"<|tool_call_argument_begin|>"};
    size_t at;
    switch (p->step) {
    case SECTION:
        return section(p, "<|tool_call_begin|>", p->format->tags.close);
    case NAME:
        if (read_to(p, ends, 1, &at) < 0)
            return wait_for_name(p);
        if (!tc_set_name(p, p->mark, at))
            return tc_bad(p, TC_REASON(bad_name));
        name_of_id(p);
        if (!p->name[0])
            return tc_bad(p, TC_REASON(bad_name));
        tc_begin(p);
        return go(p, ARGUMENTS);
    case ARGUMENTS:
        return arguments(p);
    case IN_ARGUMENTS:
        return in_arguments(p);
    default:
        return close_call(p, "<|tool_call_end|>", false);
    }
}

/* <function=NAME>{...}</function> */
enum tc_result tc_functionary_call(struct lode_toolcall *p) {
    static const char *const ends[] = {">"};
    size_t at;
    switch (p->step) {
    case SECTION:
        if (p->n_here)
            return TC_CLOSED;
        return go(p, NAME);
    case NAME:
        if (read_to(p, ends, 1, &at) < 0)
            return wait_for_name(p);
        return begin(p, p->mark, at);
    case ARGUMENTS:
        return arguments(p);
    case IN_ARGUMENTS:
        return in_arguments(p);
    default:
        return close_call(p, p->format->tags.close, false);
    }
}
