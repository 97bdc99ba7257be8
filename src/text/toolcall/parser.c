/* parser.c - the stream: thinking, text and calls told apart, nothing lost. */
#include "text/toolcall/parser.h"

#include "base/alloc.h"
#include "base/error.h"

#include <string.h>

/* ---- giving out ---- */

static void put(struct lode_toolcall *p, struct lode_toolcall_event *e) {
    if (p->rc < 0)
        return;
    const int rc = p->put(p->user, e);
    if (rc)
        p->rc = rc < 0 ? rc : LODE_ERR_CANCELLED;
}

void tc_put_text(struct lode_toolcall *p, enum lode_toolcall_kind kind, size_t to) {
    if (to <= p->done)
        return;
    struct lode_toolcall_event e = {
        .kind = kind, .text = p->text + p->done, .len = to - p->done, .index = LODE_TOOLCALL_NONE};
    put(p, &e);
    p->done = to;
}

/* Nine letters and digits, which is what Mistral's templates insist on. */
static void make_id(struct lode_toolcall *p) {
    static const char digits[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    uint64_t x = p->seed + (uint64_t)p->n_calls * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u; /* splitmix64 */
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    for (int i = 0; i < 9; i++, x /= 62)
        p->id[i] = digits[x % 62];
    p->id[9] = '\0';
}

static int64_t index_now(const struct lode_toolcall *p) {
    return p->begun ? p->n_calls - 1 : LODE_TOOLCALL_NONE;
}

void tc_begin(struct lode_toolcall *p) {
    if (!p->id[0])
        make_id(p);
    p->schema = tc_tool_schema(p, p->name);
    p->first = true;
    p->begun = true;
    p->n_calls++;
    put(p, &(struct lode_toolcall_event){.kind = LODE_TOOLCALL_BEGIN,
                                         .text = "",
                                         .index = index_now(p),
                                         .id = p->id,
                                         .name = p->name});
}

void tc_put_arguments(struct lode_toolcall *p) {
    if (p->out.failed)
        p->rc = lode_fail_nomem(p->err, "tool call");
    else if (p->out.len)
        put(p, &(struct lode_toolcall_event){.kind = LODE_TOOLCALL_ARGUMENTS,
                                             .text = p->out.data,
                                             .len = p->out.len,
                                             .index = index_now(p)});
    lode_buf_clear(&p->out);
}

void tc_end(struct lode_toolcall *p) {
    put(p, &(struct lode_toolcall_event){.kind = LODE_TOOLCALL_END,
                                         .text = p->text + p->done,
                                         .len = p->pos - p->done,
                                         .index = index_now(p),
                                         .id = p->id,
                                         .name = p->name});
    p->done = p->pos;
    p->begun = false;
    p->n_here++;
    p->name[0] = p->id[0] = '\0';
}

enum tc_result tc_bad(struct lode_toolcall *p, const char *reason) {
    if (p->untagged && !p->begun && p->n_here == 0)
        return TC_TEXT;
    p->reason = reason;
    return TC_BAD;
}

static void put_malformed(struct lode_toolcall *p, size_t to) {
    if (p->begun || to > p->done) /* else only a closing tag is missing */
        put(p, &(struct lode_toolcall_event){.kind = LODE_TOOLCALL_MALFORMED,
                                             .text = p->text + p->done,
                                             .len = to - p->done,
                                             .index = index_now(p),
                                             .reason = p->reason});
    p->done = p->pos = to;
    p->begun = false;
    p->name[0] = p->id[0] = '\0';
}

/* ---- text with tags in it ---- */

static void enter_call(struct lode_toolcall *p, bool untagged) {
    p->state = TC_CALL;
    p->step = 0;
    p->n_here = 0;
    p->untagged = untagged;
    p->in_list = p->nested = p->streaming = p->other = false;
    p->no_outer = p->fence_seen = p->quoted = false;
    p->scan = p->mark = p->pos;
    lode_buf_clear(&p->out);
}

static void enter_text(struct lode_toolcall *p, enum tc_state state) {
    p->state = state;
    p->pos = p->mark = p->done;
}

/* What is at p->pos, which is no blank: the tag, *len bytes (0: none); false: the text ends within
 * what may be one. */
static bool look_for_tag(const struct lode_toolcall *p, const char *const *tags, size_t n_tags,
                         size_t *which, size_t *len) {
    *len = 0;
    bool partial = false;
    for (size_t i = 0; i < n_tags && tags[i]; i++) {
        const size_t n = strlen(tags[i]), left = p->n - p->pos;
        if (memcmp(p->text + p->pos, tags[i], n < left ? n : left) != 0)
            continue;
        if (left < n) {
            partial = true;
        } else if (n > *len) {
            *which = i;
            *len = n;
        }
    }
    return *len || !partial || p->last;
}

bool tc_read_text(struct lode_toolcall *p, enum lode_toolcall_kind kind, const char *const *tags,
                  size_t n_tags, size_t *which, size_t *len) {
    for (; p->pos < p->n; p->pos++) {
        if (tc_is_blank(p->text[p->pos]))
            continue;
        if (!look_for_tag(p, tags, n_tags, which, len))
            break;
        const bool bare = p->bare && (p->text[p->pos] == '{' || p->text[p->pos] == '[');
        if (*len || bare) {
            tc_put_text(p, kind, p->mark);
            tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
            return true;
        }
        p->bare = false;
        p->mark = p->pos + 1;
    }
    tc_put_text(p, kind, p->mark);
    return false;
}

static bool read_thinking(struct lode_toolcall *p) {
    size_t which, len;
    const bool bare = p->bare;
    p->bare = false; /* thinking is no answer */
    const bool found = tc_read_text(p, LODE_TOOLCALL_REASONING, p->think + 1, 1, &which, &len);
    p->bare = bare;
    if (!found) {
        if (p->last)
            tc_put_text(p, LODE_TOOLCALL_MARKUP, p->n);
        return false;
    }
    p->pos += len;
    tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
    p->state = TC_BETWEEN;
    return true;
}

static bool read_content(struct lode_toolcall *p) {
    const struct tc_tags *t = &p->format->tags;
    const char *tags[2 * TC_MAX_TAGS];
    size_t n = 0, which = 0, len = 0, n_open;
    for (size_t i = 0; i < TC_MAX_TAGS && t->open[i]; i++)
        tags[n++] = t->open[i];
    n_open = n;
    for (size_t i = 0; i < TC_MAX_TAGS && t->drop[i]; i++)
        tags[n++] = t->drop[i];
    if (!tc_read_text(p, LODE_TOOLCALL_CONTENT, tags, n, &which, &len)) {
        if (p->last)
            tc_put_text(p, LODE_TOOLCALL_CONTENT, p->n);
        return false;
    }
    const bool untagged = len == 0;
    p->pos += len;
    if (untagged || which < n_open) {
        enter_call(p, untagged);
        p->no_outer = which > 0 && p->format->params;
    } else {
        tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
        p->state = TC_BETWEEN;
    }
    return true;
}

/* Blanks, then the tag that opens thinking, or something else. */
static bool read_start(struct lode_toolcall *p) {
    size_t which, len;
    if (!tc_blanks(p) && !p->last)
        return false;
    if (p->pos < p->n && !look_for_tag(p, p->think, 1, &which, &len))
        return false;
    if (p->pos < p->n && len) {
        p->pos += len;
        tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
        p->state = TC_OPENED;
        return true;
    }
    enter_text(p, TC_CONTENT);
    return true;
}

/* The blanks behind the tag that opens thinking, and the tag itself where a model writes it
 * although the prompt has it already. */
static bool read_opened(struct lode_toolcall *p) {
    size_t which, len;
    const bool more = tc_blanks(p);
    tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
    if (!more || !look_for_tag(p, p->think, 1, &which, &len))
        return false;
    if (len) {
        p->pos += len;
        tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
        return true;
    }
    enter_text(p, TC_THINKING);
    return true;
}

static bool skip_blanks(struct lode_toolcall *p, enum tc_state next) {
    const bool more = tc_blanks(p);
    tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
    if (more)
        enter_text(p, next);
    return more;
}

/* ---- calls ---- */

static bool only_blanks_left(const struct lode_toolcall *p) {
    for (size_t i = p->done; i < p->n; i++)
        if (!tc_is_blank(p->text[i]))
            return false;
    return true;
}

static enum tc_result read_format(struct lode_toolcall *p) {
    const enum tc_result r = p->format->read(p);
    if (r != TC_MORE || !p->last)
        return r;
    /* a call that is whole needs no closing tag: that may be what ended the text */
    if (!p->begun && p->n_here && only_blanks_left(p)) {
        p->pos = p->n;
        return TC_CLOSED;
    }
    return tc_bad(p, TC_REASON(unclosed));
}

static bool read_call(struct lode_toolcall *p) {
    switch (read_format(p)) {
    case TC_MORE:
        return false;
    case TC_AGAIN:
        return true;
    case TC_TEXT:
        p->bare = false;
        p->name[0] = p->id[0] = '\0';
        enter_text(p, TC_CONTENT);
        return true;
    case TC_CLOSED:
        if (p->n_here) {
            tc_put_text(p, LODE_TOOLCALL_MARKUP, p->pos);
            p->state = TC_BETWEEN;
            p->bare = p->format->tags.bare;
            return true;
        }
        p->reason = TC_REASON(no_call);
        put_malformed(p, p->pos);
        p->state = TC_BETWEEN;
        return true;
    case TC_BAD:
        break;
    }
    p->scan = p->pos;
    p->state = TC_RECOVER;
    return true;
}

/* A malformed call reaches to its closing tag, or to where another opens. */
static bool read_malformed(struct lode_toolcall *p) {
    const struct tc_tags *t = &p->format->tags;
    const char *tags[1 + TC_MAX_TAGS];
    size_t n = 0, at;
    if (t->close)
        tags[n++] = t->close;
    for (size_t i = 0; i < TC_MAX_TAGS && t->open[i]; i++)
        tags[n++] = t->open[i];
    const int which = tc_find_tag(p, tags, n, &at);
    if (which < 0 && !p->last)
        return false;
    const bool closed = which == 0 && t->close;
    put_malformed(p, which < 0 ? p->n : closed ? at + strlen(t->close) : at);
    p->step = 0;
    p->n_here = 0;
    enter_text(p, p->format->whole ? TC_WHOLE : closed ? TC_BETWEEN : TC_CONTENT);
    return p->done < p->n;
}

static bool read_whole(struct lode_toolcall *p) {
    switch (read_format(p)) {
    case TC_MORE:
    case TC_CLOSED:
        return false;
    case TC_AGAIN:
    case TC_TEXT:
        return true;
    case TC_BAD:
        break;
    }
    p->scan = p->pos > p->done ? p->pos : p->done + 1; /* behind the tag that began it */
    p->state = TC_RECOVER;
    return true;
}

/* ---- the public functions ---- */

/* One step; false: there is nothing more to do with this text. */
static bool advance(struct lode_toolcall *p) {
    switch (p->state) {
    case TC_START:
        return read_start(p);
    case TC_OPENED:
        return read_opened(p);
    case TC_THINKING:
        return read_thinking(p);
    case TC_BETWEEN:
        return skip_blanks(p, TC_CONTENT);
    case TC_CONTENT:
        return read_content(p);
    case TC_CALL:
        return read_call(p);
    case TC_RECOVER:
        return read_malformed(p);
    case TC_WHOLE:
        return read_whole(p);
    case TC_STOPPED:
        break;
    }
    return false;
}

/* Drops what is accounted for once it is half of the text, so that moving the rest costs little. */
static void drop_text(struct lode_toolcall *p) {
    const size_t by = p->done;
    if (by < p->n - by)
        return;
    memmove(p->text, p->text + by, p->n - by);
    size_t *const indices[] = {&p->n,    &p->done, &p->pos,     &p->scan,
                               &p->mark, &p->args, &p->args_end};
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++)
        *indices[i] -= *indices[i] < by ? *indices[i] : by;
}

static int run(struct lode_toolcall *p, struct lode_error *err) {
    struct lode_error scratch;
    p->err = err ? err : &scratch;
    while (p->rc == 0 && advance(p))
        continue;
    p->err = NULL;
    if (p->rc < 0) {
        p->state = TC_STOPPED;
        return p->rc;
    }
    if (p->n)
        drop_text(p);
    return 0;
}

int lode_toolcall_push(struct lode_toolcall *p, const char *text, size_t len,
                       struct lode_error *err) {
    if (p->state == TC_STOPPED || p->last)
        return lode_fail(err, LODE_ERR_ARG, "tool call", "the text is over already");
    if (len == 0)
        return 0;
    if (len > p->cap - p->n) {
        const size_t cap = (p->n + len) * 2 + 64;
        char *more = cap > len ? lode_realloc(p->text, cap, 1) : NULL;
        if (!more)
            return lode_fail_nomem(err, "tool call");
        p->text = more;
        p->cap = cap;
    }
    memcpy(p->text + p->n, text, len);
    p->n += len;
    return run(p, err);
}

int lode_toolcall_finish(struct lode_toolcall *p, struct lode_error *err) {
    if (p->state == TC_STOPPED || p->last)
        return p->rc;
    p->last = true;
    return p->n ? run(p, err) : 0;
}

static const char *const *find_think(const char *tag) {
    for (size_t i = 0; tag && tc_thinks[i][0]; i++)
        if (strcmp(tc_thinks[i][0], tag) == 0)
            return tc_thinks[i];
    return NULL;
}

int lode_toolcall_create(struct lode_toolcall **out, const struct lode_toolcall_opts *opts,
                         struct lode_error *err) {
    const char *name = opts->style.format ? opts->style.format : "none";
    const struct tc_format *format = tc_find_format(name);
    *out = NULL;
    if (!format)
        return lode_fail(err, LODE_ERR_ARG, "tool call format", "there is no format named %.60s",
                         name);
    if (opts->style.think && !find_think(opts->style.think))
        return lode_fail(err, LODE_ERR_ARG, "thinking", "no thinking is opened by %.60s",
                         opts->style.think);
    struct lode_toolcall *p = LODE_NEW(struct lode_toolcall);
    if (!p)
        return lode_fail_nomem(err, "tool call");
    p->format = format;
    p->think = find_think(opts->style.think);
    p->put = opts->put;
    p->user = opts->user;
    p->seed = opts->seed;
    p->bare = format->tags.bare;
    p->state = format->whole    ? TC_WHOLE
               : !p->think      ? TC_CONTENT
               : opts->thinking ? TC_OPENED
                                : TC_START;
    if (opts->tools) {
        const struct lode_str text = {opts->tools, opts->tools_len};
        const int rc = lode_json_parse(&p->tools, text, "tools", err);
        if (rc < 0) {
            lode_toolcall_free(p);
            return rc;
        }
    }
    *out = p;
    return 0;
}

void lode_toolcall_free(struct lode_toolcall *p) {
    if (!p)
        return;
    lode_json_free(&p->tools);
    lode_buf_free(&p->out);
    lode_free(p->text);
    lode_free(p);
}

static bool within(const char *tag, const char *piece, size_t len) {
    return tag && memmem(tag, strlen(tag), piece, len);
}

enum lode_toolcall_stage lode_toolcall_stage(const struct lode_toolcall *p) {
    return p->state == TC_START                               ? LODE_TOOLCALL_AT_START
           : p->state == TC_OPENED || p->state == TC_THINKING ? LODE_TOOLCALL_AT_THINKING
           : p->state == TC_CALL                              ? LODE_TOOLCALL_AT_CALL
                                                              : LODE_TOOLCALL_AT_ANSWER;
}

bool lode_toolcall_wants(const struct lode_toolcall *p, const char *piece, size_t len) {
    const struct tc_format *f = p->format;
    bool found = len == 0 || within(f->tags.close, piece, len) ||
                 (p->think && (within(p->think[0], piece, len) || within(p->think[1], piece, len)));
    for (size_t i = 0; i < TC_MAX_TAGS; i++)
        found = found || within(f->tags.open[i], piece, len) || within(f->tags.drop[i], piece, len);
    for (const char *const *w = f->words; w && *w && !found; w++)
        found = within(*w, piece, len);
    return found;
}
