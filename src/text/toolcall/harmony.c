/* harmony.c - gpt-oss: messages in channels.
 *
 *   <|channel|>analysis<|message|>thinking<|end|>
 *   <|start|>assistant<|channel|>commentary to=functions.f
 * <|constrain|>json<|message|>{...}<|call|>
 *   <|start|>assistant<|channel|>final<|message|>answer<|return|>
 *
 * The prompt ends with <|start|>assistant, so a text begins within a header.  What has a recipient
 * is a call; analysis is thinking; all else is for the user. */
#include "text/toolcall/parser.h"

#include <string.h>

enum step {
    OUTSIDE,
    HEADER,
    THINKING,
    ANSWER,
    ARGUMENTS,
    IN_ARGUMENTS,
};
enum { MAX_HEADER = 4096 };

static const char *const tags[] = {"<|end|>",   "<|return|>",  "<|call|>",
                                   "<|start|>", "<|channel|>", "<|message|>"};
enum { END_TAGS = 3, TEXT_TAGS = 5, ALL_TAGS = 6, MESSAGE = 5 };

static enum tc_result go(struct lode_toolcall *p, enum step step) {
    p->step = step;
    p->scan = p->mark = p->pos;
    return TC_AGAIN;
}

/* Between messages: the end of one, the header of another, or text that has none. */
static enum tc_result outside(struct lode_toolcall *p) {
    if (!tc_blanks(p)) {
        if (p->last)
            tc_put_text(p, LODE_TOOLCALL_MARKUP, p->n);
        return p->last ? TC_CLOSED : TC_MORE;
    }
    const size_t at = p->pos;
    for (size_t i = 0; i < ALL_TAGS; i++) {
        const int found = tc_tag(p, tags[i]);
        if (found < 0)
            return TC_MORE;
        if (found && i < END_TAGS) {
            tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
            return go(p, OUTSIDE);
        }
        if (found) {
            p->pos = at;
            return go(p, HEADER);
        }
    }
    const int to = tc_tag(p, "to=");
    p->pos = at;
    if (to < 0)
        return TC_MORE;
    if (!to) {
        p->pos = p->done;
        return go(p, ANSWER);
    }
    return go(p, HEADER);
}

/* What follows `word` in a header, up to a blank or a tag: *len bytes. */
static const char *field(const char *header, size_t n, const char *word, size_t *len) {
    const char *at = memmem(header, n, word, strlen(word)), *end = header + n;
    *len = 0;
    if (!at)
        return NULL;
    at += strlen(word);
    while (at + *len < end && !tc_is_blank(at[*len]) && at[*len] != '<')
        ++*len;
    return at;
}

/* A recipient's name, without the namespace that functions have. */
static bool set_recipient(struct lode_toolcall *p, const char *to, size_t len) {
    static const char space[] = "functions.";
    const size_t skip =
        len > sizeof space - 1 && !memcmp(to, space, sizeof space - 1) ? sizeof space - 1 : 0;
    const size_t from = (size_t)(to - p->text) + skip;
    return tc_set_name(p, from, from + len - skip);
}

static enum tc_result header(struct lode_toolcall *p) {
    size_t at, n_to, n_channel;
    const int found = tc_find_tag(p, tags + MESSAGE, 1, &at);
    if (tc_too_far(p, MAX_HEADER))
        return tc_bad(p, TC_REASON(bad_syntax));
    if (found < 0)
        return TC_MORE;
    const char *text = p->text + p->mark;
    const size_t n = at - p->mark;
    const char *to = field(text, n, "to=", &n_to);
    const char *channel = field(text, n, "<|channel|>", &n_channel);
    const bool analysis = channel && n_channel == 8 && !memcmp(channel, "analysis", 8);
    p->pos = at + strlen(tags[MESSAGE]);
    if (to) {
        if (!set_recipient(p, to, n_to))
            return tc_bad(p, TC_REASON(bad_name));
        tc_begin(p);
        return go(p, ARGUMENTS);
    }
    tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
    return go(p, analysis ? THINKING : ANSWER);
}

static enum tc_result text(struct lode_toolcall *p, enum lode_toolcall_kind kind) {
    size_t which, len;
    if (tc_read_text(p, kind, tags, TEXT_TAGS, &which, &len))
        return go(p, OUTSIDE);
    if (!p->last)
        return TC_MORE;
    tc_put_text(p, kind, p->n);
    return TC_CLOSED;
}

enum tc_result tc_harmony(struct lode_toolcall *p) {
    enum tc_result r;
    switch (p->step) {
    case OUTSIDE:
        return outside(p);
    case HEADER:
        return header(p);
    case THINKING:
        return text(p, LODE_TOOLCALL_REASONING);
    case ANSWER:
        return text(p, LODE_TOOLCALL_CONTENT);
    case ARGUMENTS:
        if (!tc_blanks(p))
            return TC_MORE;
        if (p->text[p->pos] != '{')
            return tc_bad(p, TC_REASON(bad_arguments));
        tc_json_init(&p->json);
        return go(p, IN_ARGUMENTS);
    default:
        r = tc_read_arguments(p);
        if (r != TC_CLOSED)
            return r;
        tc_end(p);
        return go(p, OUTSIDE);
    }
}
