/* detect.c - which format a template speaks: it is given a call to write, and what it writes is
 * read back by each format. */
#include "text/toolcall/parser.h"

#include "base/error.h"
#include "lode/chat.h"
#include "text/jinja/jinja.h"

#include <string.h>

#define TOOL "lode_probe"
#define KEY "probe_key"
#define VALUE "probe value"
#define TOOLS                                                                                      \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"description\":\"d\"," \
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"" KEY "\":{\"type\":\"string\","        \
    "\"description\":\"d\"}},\"required\":[\"" KEY "\"]}}}]"
#define USER "{\"role\":\"user\",\"content\":\"u\"}"
#define CALL(content, arguments)                                                                   \
    ",{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"probe1234\","      \
    "\"type\":\"function\",\"function\":{\"name\":\"" TOOL "\",\"arguments\":" arguments "}}]}"
#define RESULT                                                                                     \
    ",{\"role\":\"tool\",\"tool_call_id\":\"probe1234\",\"name\":\"" TOOL "\",\"content\":\"r\"}"
#define OBJECT "{\"" KEY "\":\"" VALUE "\"}"
#define STRING "\"{\\\"" KEY "\\\": \\\"" VALUE "\\\"}\""
#define CHAT(more) "{\"messages\":[" USER more "]," TOOLS "}"

static int render(const struct lode_template *t, const char *chat, char **text, size_t *len) {
    /* some templates add these to texts, which fails where they are not defined */
    static const char tokens[] = "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","
                                 "\"unk_token\":\"<unk>\",\"pad_token\":\"<pad>\"}";
    return lode_template_render_chat(t, chat, strlen(chat), tokens, sizeof tokens - 1, 1, text, len,
                                     NULL);
}

/* ---- reading it back ---- */

struct seen { /* of a parse of what was rendered */
    bool named, wrong;
    int n_ended;
    char arguments[256];
    size_t n;
};

static int look(void *user, const struct lode_toolcall_event *e) {
    struct seen *s = user;
    if (e->kind == LODE_TOOLCALL_BEGIN)
        s->named = strcmp(e->name, TOOL) == 0;
    s->wrong = s->wrong || e->kind == LODE_TOOLCALL_MALFORMED;
    s->n_ended += e->kind == LODE_TOOLCALL_END;
    if (e->kind == LODE_TOOLCALL_ARGUMENTS) {
        const size_t room = sizeof s->arguments - s->n, n = e->len < room ? e->len : room;
        memcpy(s->arguments + s->n, e->text, n);
        s->n += n;
    }
    return 0;
}

/* 1: the arguments are those that were given; 0: they are not. */
static int has_value(const struct seen *s, struct lode_error *err) {
    struct lode_json_doc doc;
    const int rc = lode_json_parse(&doc, (struct lode_str){s->arguments, s->n}, "probe", err);
    if (rc < 0)
        return rc == LODE_ERR_NOMEM ? rc : 0;
    const struct lode_json *v = lode_json_get(doc.nodes, KEY);
    const bool same = lode_json_is(v, LODE_JSON_STRING) && lode_str_eqz(lode_json_str(v), VALUE);
    lode_json_free(&doc);
    return same;
}

/* 1: this format reads the call; 0: it does not. */
static int reads(const struct tc_format *f, const char *text, size_t len, struct lode_error *err) {
    struct seen seen = {0};
    struct lode_toolcall *p;
    const struct lode_toolcall_opts opts = {
        .style = {.format = f->name}, .put = look, .user = &seen};
    int rc = lode_toolcall_create(&p, &opts, err);
    if (rc < 0)
        return rc;
    rc = lode_toolcall_push(p, text, len, err);
    if (rc == 0)
        rc = lode_toolcall_finish(p, err);
    lode_toolcall_free(p);
    if (rc < 0 || !seen.named || seen.wrong || seen.n_ended != 1)
        return rc;
    return has_value(&seen, err);
}

/* The same; a format that needs no tag reads from each bracket on that may begin the call. */
static int reads_anywhere(const struct tc_format *f, const char *text, size_t len,
                          struct lode_error *err) {
    int found = reads(f, text, len, err);
    const char *name = memmem(text, len, TOOL, sizeof TOOL - 1);
    for (const char *at = text; f->tags.bare && found == 0 && name && at < name; at++)
        if (*at == '{' || *at == '[')
            found = reads(f, at, len - (size_t)(at - text), err);
    return found;
}

/* *found: the first format that reads what the template makes of this chat; NULL: none. */
static int probe(const struct tc_format **found, const struct lode_template *t, const char *before,
                 size_t n_before, const char *chat, struct lode_error *err) {
    char *text;
    size_t len, same = 0;
    int rc = render(t, chat, &text, &len);
    if (rc < 0)
        return rc == LODE_ERR_NOMEM ? lode_fail_nomem(err, "tool call format") : 0;
    while (same < len && same < n_before && text[same] == before[same])
        same++;
    for (const struct tc_format *f = tc_formats + 1; f->name && !*found && rc >= 0; f++)
        if ((rc = reads_anywhere(f, text + same, len - same, err)) > 0)
            *found = f;
    lode_chat_text_free(text);
    return rc < 0 ? rc : 0;
}

static const struct tc_format *by_marks(const char *source) {
    for (const struct tc_format *f = tc_formats + 1; f->name; f++) {
        size_t n = 0;
        while (n < TC_MAX_TAGS && f->marks[n] && strstr(source, f->marks[n]))
            n++;
        if (n && (n == TC_MAX_TAGS || !f->marks[n]))
            return f;
    }
    return NULL;
}

int lode_toolcall_detect(struct lode_toolcall_style *out, const struct lode_template *t,
                         struct lode_error *err) {
    static const char *const chats[] = {
        CHAT(CALL("\"\"", OBJECT)),        CHAT(CALL("\"\"", STRING)),
        CHAT(CALL("null", OBJECT)),        CHAT(CALL("null", STRING)),
        CHAT(CALL("\"\"", OBJECT) RESULT), CHAT(CALL("\"\"", STRING) RESULT)};
    const struct tc_format *found = NULL;
    char *before = NULL;
    size_t len = 0;
    *out = (struct lode_toolcall_style){"none", "<think>"};
    if (!t)
        return 0;
    for (size_t i = 0; tc_thinks[i][0]; i++) {
        if (strstr(t->source, tc_thinks[i][0])) {
            out->think = tc_thinks[i][0];
            break;
        }
    }
    int rc = render(t, CHAT(""), &before, &len);
    if (rc == LODE_ERR_NOMEM)
        return lode_fail_nomem(err, "tool call format");
    rc = 0;
    for (size_t i = 0; i < sizeof chats / sizeof *chats && !found && rc == 0; i++)
        rc = probe(&found, t, before, len, chats[i], err);
    lode_chat_text_free(before);
    if (rc < 0)
        return rc;
    if (!found)
        found = by_marks(t->source);
    if (found)
        out->format = found->name;
    return 0;
}

bool lode_toolcall_thinks(const struct lode_toolcall_style *s, const char *prompt, size_t len) {
    const size_t n = s->think ? strlen(s->think) : 0;
    while (len && tc_is_blank(prompt[len - 1]))
        len--;
    return n && len >= n && memcmp(prompt + len - n, s->think, n) == 0;
}
