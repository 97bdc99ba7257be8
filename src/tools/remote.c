/* remote.c - see remote.h.
 *
 * The conversation is kept here; each turn sends all of it to /v1/chat/completions and reads the
 * stream that comes: thinking, text, calls of tools, and the numbers at the end.
 */
#include "remote.h"

#include "chat.h"
#include "client.h"
#include "entry.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"
#include "toolbox.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_EVENT = 16 << 20, MAX_TURNS = 100 };

struct bytes {
    char *data;
    size_t len, cap;
};

struct remote {
    struct run *r;
    struct toolbox *tools; /* NULL: none */
    json_t *messages;      /* owned */

    /* of the answer that comes */
    struct bytes line, text, thinking;
    json_t *calls, *usage, *timings; /* owned */
    char *refused;                   /* owned: the server's complaint */
    double asked, first;             /* clock; 0: nothing has come */
    bool dimmed, midline, cut;
    struct lode_error *err; /* where client_ask's callback says what is wrong */
};

static int add(struct bytes *b, const char *data, size_t len, struct lode_error *err) {
    if (b->len + len + 1 > b->cap) {
        const size_t cap = 2 * (b->len + len) + 256;
        char *more = cap > MAX_EVENT ? NULL : realloc(b->data, cap);
        if (!more)
            return tool_fail(err, LODE_ERR_LIMIT, "the server's reply", "is longer than memory allows");
        b->data = more;
        b->cap = cap;
    }
    memcpy(b->data + b->len, data, len);
    b->len += len;
    b->data[b->len] = 0;
    return 0;
}

static const char *text_of(const struct bytes *b) { return b->len ? b->data : ""; }

static void clear(struct remote *m) {
    m->line.len = m->text.len = m->thinking.len = 0;
    json_decref(m->calls);
    json_decref(m->usage);
    json_decref(m->timings);
    free(m->refused);
    m->calls = m->usage = m->timings = NULL;
    m->refused = NULL;
    m->first = 0;
    m->dimmed = m->midline = m->cut = false;
}

/* ---- what comes ---- */

static void print(struct remote *m, bool thinking, const char *text, size_t len) {
    if (thinking && !m->r->show_thinking)
        return;
    if (thinking != m->dimmed) {
        fputs(thinking ? out_dim(stdout) : out_plain(stdout), stdout);
        if (!thinking)
            fputs("\n\n", stdout);
        m->dimmed = thinking;
    }
    fwrite(text, 1, len, stdout);
    fflush(stdout);
    if (len)
        m->midline = text[len - 1] != '\n';
}

/* A call comes in pieces: its id and name once, then its arguments. */
static void add_call(struct remote *m, const json_t *piece) {
    const size_t index = (size_t)json_integer_value(json_object_get(piece, "index"));
    const json_t *f = json_object_get(piece, "function");
    const char *more = json_string_value(json_object_get(f, "arguments"));
    if (!m->calls)
        m->calls = json_array();
    json_t *call = json_array_get(m->calls, index);
    if (!call) {
        const char *id = json_string_value(json_object_get(piece, "id"));
        const char *name = json_string_value(json_object_get(f, "name"));
        json_array_append_new(m->calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id ? id : "", "type",
                                                  "function", "function", "name", name ? name : "",
                                                  "arguments", ""));
        call = json_array_get(m->calls, json_array_size(m->calls) - 1);
    }
    json_t *function = json_object_get(call, "function");
    const char *have = json_string_value(json_object_get(function, "arguments"));
    char *all = NULL;
    if (more && asprintf(&all, "%s%s", have ? have : "", more) >= 0)
        json_object_set_new(function, "arguments", json_string(all));
    free(all);
}

static int take_text(struct remote *m, bool thinking, const json_t *v, struct lode_error *err) {
    const size_t len = json_string_length(v);
    if (!len)
        return 0;
    print(m, thinking, json_string_value(v), len);
    return add(thinking ? &m->thinking : &m->text, json_string_value(v), len, err);
}

static void refuse(struct remote *m, const json_t *event) {
    const json_t *e = json_object_get(event, "error");
    const char *text = json_string_value(json_is_string(e) ? e : json_object_get(e, "message"));
    if (!m->refused)
        m->refused = strdup(text ? text : "the server gave no reason");
}

static int take_event(struct remote *m, const json_t *event, struct lode_error *err) {
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *delta = json_object_get(choice, "delta");
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    json_t *thought = json_object_get(delta, "reasoning_content"), *piece;
    size_t i;
    if (json_object_get(event, "error"))
        refuse(m, event);
    if (!thought) /* as others call it */
        thought = json_object_get(delta, "reasoning");
    json_array_foreach(json_object_get(delta, "tool_calls"), i, piece) add_call(m, piece);
    int rc = take_text(m, true, thought, err);
    if (rc == 0)
        rc = take_text(m, false, json_object_get(delta, "content"), err);
    if (!m->first && (m->text.len || m->thinking.len || m->calls))
        m->first = clock_now();
    m->cut = m->cut || (finish && !strcmp(finish, "length"));
    json_t *usage = json_object_get(event, "usage"), *timings = json_object_get(event, "timings");
    if (json_is_object(usage)) {
        json_decref(m->usage);
        m->usage = json_incref(usage);
    }
    if (json_is_object(timings)) {
        json_decref(m->timings);
        m->timings = json_incref(timings);
    }
    return rc;
}

static int take_line(struct remote *m, struct lode_error *err) {
    const char *at = m->line.data + 5;
    int rc = 0;
    if (strncmp(m->line.data, "data:", 5) != 0)
        return 0;
    at += *at == ' ';
    json_t *event = strcmp(at, "[DONE]") ? json_loads(at, 0, NULL) : NULL;
    if (event)
        rc = take_event(m, event, err);
    json_decref(event);
    return rc;
}

static int on_bytes(void *user, const struct client_reply *reply, const char *data, size_t len) {
    struct remote *m = user;
    if (!reply->events) /* an error, whole */
        return add(&m->line, data, len, m->err);
    while (len) {
        const char *end = memchr(data, '\n', len);
        const size_t n = end ? (size_t)(end - data) : len;
        int rc = add(&m->line, data, n, m->err);
        if (rc == 0 && end && m->line.len) {
            if (m->line.data[m->line.len - 1] == '\r')
                m->line.data[--m->line.len] = 0;
            rc = take_line(m, m->err);
            m->line.len = 0;
        }
        if (rc < 0)
            return rc;
        data += n + (end != NULL);
        len -= n + (end != NULL);
    }
    return 0;
}

static bool stopped(void *user) {
    (void)user;
    return interrupt_seen();
}

/* ---- a turn ---- */

static void print_stats(const struct remote *m) {
    const json_t *u = m->usage, *t = m->timings, *d = json_object_get(u, "prompt_tokens_details");
    const json_int_t kept = json_integer_value(json_object_get(d, "cached_tokens"));
    fprintf(stderr, "%sprompt %lld tokens", out_dim(stderr),
            (long long)json_integer_value(json_object_get(u, "prompt_tokens")));
    if (kept)
        fprintf(stderr, " (%lld kept)", (long long)kept);
    if (t)
        fprintf(stderr, ", %.1f tokens/s", json_number_value(json_object_get(t, "prompt_per_second")));
    fprintf(stderr, "; first token after %.2f s; answer %lld tokens", m->first > 0 ? m->first - m->asked : 0,
            (long long)json_integer_value(json_object_get(u, "completion_tokens")));
    if (t)
        fprintf(stderr, ", %.1f tokens/s", json_number_value(json_object_get(t, "predicted_per_second")));
    fprintf(stderr, "%s\n", out_plain(stderr));
}

/* The flags that were given, under the API's names. */
static void add_sampling(const struct run *r, json_t *body) {
    static const struct {
        const char *flag, *name;
    } names[] = {{"--temp", "temperature"},      {"--top-k", "top_k"},
                 {"--top-p", "top_p"},           {"--min-p", "min_p"},
                 {"--repeat-penalty", "repeat_penalty"}, {"--seed", "seed"},
                 {"--presence-penalty", "presence_penalty"}, {"--frequency-penalty", "frequency_penalty"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct arg_flag *f = args_find(r->args.spec, names[i].flag);
        if (!f || args_origin(&r->args, f->offset) < ARG_FROM_ENV)
            continue;
        const void *at = (const char *)&r->o + f->offset;
        if (f->type == ARG_INT)
            json_object_set_new(body, names[i].name, json_integer(*(const int64_t *)at));
        else if (f->type == ARG_FLOAT)
            json_object_set_new(body, names[i].name, json_real(*(const double *)at));
    }
    if (r->o.n_predict >= 0)
        json_object_set_new(body, "max_tokens", json_integer(r->o.n_predict));
    if (strcmp(r->o.think, "auto") != 0)
        json_object_set_new(body, "chat_template_kwargs",
                            json_pack("{s:b}", "enable_thinking", !strcmp(r->o.think, "on")));
    if (r->o.stops.n) {
        json_t *stops = json_array();
        for (size_t i = 0; i < r->o.stops.n; i++)
            json_array_append_new(stops, json_string(r->o.stops.v[i]));
        json_object_set_new(body, "stop", stops);
    }
}

static char *make_body(const struct remote *m) {
    json_t *body = json_pack("{s:O, s:b, s:{s:b}}", "messages", m->messages, "stream", 1,
                             "stream_options", "include_usage", 1);
    if (m->r->o.load.model)
        json_object_set_new(body, "model", json_string(m->r->o.load.model));
    if (m->tools)
        json_object_set(body, "tools", toolbox_list(m->tools));
    add_sampling(m->r, body);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static int keep_answer(struct remote *m) {
    json_t *answer = json_pack("{s:s, s:s}", "role", "assistant", "content", text_of(&m->text));
    if (m->thinking.len)
        json_object_set_new(answer, "reasoning_content", json_string(text_of(&m->thinking)));
    if (json_array_size(m->calls))
        json_object_set(answer, "tool_calls", m->calls);
    return json_array_append_new(m->messages, answer);
}

/* One answer, and those to the results of its calls. */
static int turn(struct remote *m, struct lode_error *err) {
    int rc = 0;
    for (int i = 0; i < MAX_TURNS; i++) {
        struct client_reply reply;
        char *body = make_body(m);
        clear(m);
        m->asked = clock_now();
        m->err = err;
        rc = client_ask("POST", m->r->o.url, "/v1/chat/completions", m->r->o.key, body ? body : "{}",
                        on_bytes, stopped, m, &reply, err);
        free(body);
        if (m->dimmed)
            fputs(out_plain(stdout), stdout);
        if (m->midline)
            putchar('\n');
        out_flush();
        if (rc < 0 && rc != LODE_ERR_CANCELLED)
            return rc;
        if (rc == 0 && (reply.status != 200 || m->refused)) {
            json_t *e = m->refused ? NULL : json_loads(text_of(&m->line), 0, NULL);
            if (!m->refused)
                refuse(m, e);
            json_decref(e);
            return tool_fail(err, LODE_ERR_UNSUPPORTED, m->r->o.url, "status %d: %s", reply.status,
                             m->refused ? m->refused : "");
        }
        if (keep_answer(m))
            return tool_fail(err, LODE_ERR_NOMEM, "the conversation", "no memory for the answer");
        if (rc == LODE_ERR_CANCELLED)
            return rc;
        if (m->cut)
            fprintf(stderr, "%s(cut: as many tokens as allowed)%s\n", out_dim(stderr), out_plain(stderr));
        if (m->usage && (m->r->o.stats || m->r->o.verbose ||
                         (out_is_terminal(stderr) && !m->r->o.interactive)))
            print_stats(m);
        if (!m->tools || !json_array_size(m->calls))
            return 0;
        rc = toolbox_answer(m->tools, m->messages, m->calls, err);
        if (rc < 0)
            return rc;
    }
    return tool_fail(err, LODE_ERR_LIMIT, "tools", "%d rounds of calls are enough: ask again to go on",
                     MAX_TURNS);
}

static int say(struct remote *m, const char *role, const char *text, struct lode_error *err) {
    json_t *message = json_pack("{s:s, s:s}", "role", role, "content", text);
    return message && !json_array_append_new(m->messages, message)
               ? 0
               : tool_fail(err, LODE_ERR_FORMAT, role, "the text is no UTF-8");
}

/* ---- the chat ---- */

/* Says it and shows the answer; what failed is as if it had not been said. */
static void converse(struct remote *m, const char *text) {
    struct lode_error err = {0};
    const size_t before = json_array_size(m->messages);
    int rc = say(m, "user", text, &err);
    if (rc == 0)
        rc = turn(m, &err);
    if (rc < 0 && rc != LODE_ERR_CANCELLED) {
        tool_report(&err);
        while (json_array_size(m->messages) > before)
            json_array_remove(m->messages, json_array_size(m->messages) - 1);
    }
}

static void forget(struct remote *m) {
    struct lode_error err = {0};
    json_array_clear(m->messages);
    if (m->r->o.system)
        say(m, "system", m->r->o.system, &err);
}

static int chat(struct remote *m) {
    static const char *const words[] = {"/clear", "/quit", NULL};
    struct line *lines = line_open(words);
    if (!lines)
        return 1;
    bool going = true;
    fprintf(stderr, "chat through %s; /clear forgets, /quit leaves\n", m->r->o.url);
    while (going) {
        char *text = NULL;
        if (entry_read(lines, &text) != LINE_TEXT || !strcmp(text, "/quit") || !strcmp(text, "/bye")) {
            going = false;
        } else if (text[strspn(text, " \t\n")]) {
            line_remember(lines, text);
            if (!strcmp(text, "/clear"))
                forget(m);
            else
                converse(m, text);
        }
        free(text);
    }
    line_close(lines);
    return 0;
}

static int first_prompt(const struct run_opts *o, char **text, struct lode_error *err) {
    size_t size;
    int rc = 0;
    *text = NULL;
    if (o->prompt)
        *text = strdup(o->prompt);
    else if (o->file || !o->interactive)
        rc = input_read(o->file ? o->file : "-", 0, text, &size, err);
    if (rc == 0 && *text)
        for (size_t n = strlen(*text); n && strchr("\r\n", (*text)[n - 1]); n--)
            (*text)[n - 1] = 0;
    return rc;
}

int remote_run(struct run *r) {
    struct remote m = {.r = r, .messages = json_array()};
    struct lode_error err = {0};
    char *text = NULL;
    interrupt_catch();
    r->show_thinking = !strcmp(r->o.show_thinking, "on") ||
                       (!strcmp(r->o.show_thinking, "auto") && out_is_terminal(stdout));
    int rc = m.messages ? 0 : tool_fail(&err, LODE_ERR_NOMEM, "the conversation", "no memory");
    if (rc == 0 && r->o.tools)
        rc = toolbox_open(&m.tools, r->o.tools, r->o.yes, &err);
    if (rc == 0 && r->o.system)
        rc = say(&m, "system", r->o.system, &err);
    if (rc == 0)
        rc = first_prompt(&r->o, &text, &err);
    if (rc == 0 && text) {
        rc = say(&m, "user", text, &err);
        if (rc == 0)
            rc = turn(&m, &err);
    }
    int status = rc == LODE_ERR_CANCELLED ? 130 : rc < 0 ? tool_report(&err) : 0;
    if (status == 0 && r->o.interactive)
        status = chat(&m);
    clear(&m);
    free(m.line.data);
    free(m.text.data);
    free(m.thinking.data);
    free(text);
    toolbox_close(m.tools);
    json_decref(m.messages);
    return status;
}
