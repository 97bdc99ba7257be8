/* ollama.c - Ollama's API: /api/chat and /api/generate, a JSON object a line, and what its clients ask
 * for beside. */
#include "serve/exchange.h"
#include "serve/fields.h"
#include "serve/json_read.h"
#include "serve/vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct ollama {
    bool generate; /* not chat */
    bool load;     /* nothing is asked: the client only wants the model to be there */
};

/* ---- what comes in ---- */

static int read_think(struct request *r, struct lode_error *err) {
    const json_t *think = json_object_get(r->body, "think");
    if (!think || json_is_null(think))
        return 0;
    if (json_is_boolean(think))
        return talk_default(&r->talk, "enable_thinking", json_boolean(json_is_true(think)), err);
    const char *word = json_string_value(think);
    if (!word || (strcmp(word, "low") && strcmp(word, "medium") && strcmp(word, "high")))
        return field_fail(err, "think", "true, false, \"low\", \"medium\" or \"high\" expected");
    const int rc = talk_default(&r->talk, "enable_thinking", json_true(), err);
    return rc < 0 ? rc
                  : talk_default(&r->talk, "reasoning_effort",
                                 json_string(word), err);
}

/* What changes nothing here must be what it says it is all the same. */
static int read_ignored(const json_t *body, const json_t *options, struct lode_error *err) {
    const json_t *keep = json_object_get(body, "keep_alive");
    int64_t ctx = 0;
    if (keep && !json_is_null(keep) && !json_is_string(keep) && !json_is_number(keep))
        return field_fail(err, "keep_alive", "a number of seconds, or a duration like \"5m\", expected");
    return field_int(options, "num_ctx", 0, INT32_MAX, &ctx, err);
}

static int read_options(struct request *r, struct lode_error *err) {
    json_t *options = NULL, *none = NULL;
    const json_t *format = json_object_get(r->body, "format");
    int rc = field_object(r->body, "options", &options, err);
    if (!options)
        options = none = json_object();
    r->stream = true;
    if (rc == 0)
        rc = field_bool(r->body, "stream", &r->stream, err);
    if (rc == 0)
        rc = read_ignored(r->body, options, err);
    if (rc == 0)
        rc = field_int(options, "num_predict", -2, INT32_MAX, &r->g.max_tokens, err);
    if (rc == 0)
        rc = request_stops(r, options, "stop", err);
    if (rc == 0)
        rc = request_sampling(r, options, err);
    if (rc == 0 && json_is_object(format))
        rc = request_schema(r, format, "format", err);
    else if (rc == 0 && json_is_string(format) && !strcmp(json_string_value(format), "json"))
        rc = request_form_of(r, LODE_GRAMMAR_SCHEMA, "{\"type\": \"object\"}", "format", err);
    else if (rc == 0 && format && !json_is_null(format) && !(json_is_string(format) && !json_string_length(format)))
        rc = field_fail(err, "format", "\"json\" or a JSON Schema expected");
    json_decref(none);
    return rc;
}

static int no_images(const json_t *v, const char *field, struct lode_error *err) {
    return json_array_size(json_object_get(v, "images"))
               ? field_fail(err, field, "this model reads text only")
               : 0;
}

/* A prompt of one token that is only read: the reply says that the model is there. */
static int only_load(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    ((struct ollama *)x->state)->load = true;
    r->stream = false;
    r->g.max_tokens = 0;
    int rc = request_prompts(r, 1, err);
    if (rc == 0)
        rc = prompt_tokenize(&r->prompts[0], r->m, "a", 1, LODE_TOK_SPECIAL, err);
    return rc;
}

static int read_chat(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    json_t *messages = NULL, *tools = NULL, *m;
    char where[40];
    size_t i;
    int rc = read_options(r, err);
    if (rc == 0)
        rc = field_array(r->body, "messages", &messages, err);
    if (rc == 0 && !json_array_size(messages))
        return only_load(x, err);
    json_array_foreach(messages, i, m) {
        json_t *thinking = json_object_get(m, "thinking"), *name = json_object_get(m, "tool_name");
        const char *text;
        snprintf(where, sizeof where, "messages[%zu]", i);
        if (rc == 0)
            rc = field_text(m, where, "thinking", &text, err);
        if (rc == 0)
            rc = field_text(m, where, "tool_name", &text, err);
        if (rc == 0)
            rc = no_images(m, "messages.images", err);
        if (thinking && !json_object_get(m, "reasoning_content"))
            json_object_set(m, "reasoning_content", thinking);
        if (name && !json_object_get(m, "name"))
            json_object_set(m, "name", name);
    }
    if (rc == 0)
        rc = field_array(r->body, "tools", &tools, err);
    r->talk.messages = json_incref(messages);
    if (rc == 0)
        rc = talk_chat_tools(&r->talk, tools, NULL, err);
    if (rc == 0)
        rc = read_think(r, err);
    if (rc == 0)
        rc = talk_settle(&r->talk, err);
    return rc < 0 ? rc : request_talk(r, err);
}

static int refuse_rest(const json_t *body, struct lode_error *err) {
    static const char *const not_here[] = {"template", "context"};
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
        const json_t *v = json_object_get(body, not_here[i]);
        if (v && (json_string_length(v) || json_array_size(v)))
            return field_fail(err, not_here[i], "is not supported: send messages to /api/chat");
    }
    return no_images(body, "images", err);
}

static int read_generate(struct exchange *x, struct lode_error *err) {
    struct request *r = &x->r;
    const char *prompt = NULL, *system = NULL, *suffix = NULL;
    bool raw = false;
    int rc = read_options(r, err);
    ((struct ollama *)x->state)->generate = true;
    if (rc == 0)
        rc = field_string(r->body, "prompt", &prompt, err);
    if (rc == 0)
        rc = field_string(r->body, "system", &system, err);
    if (rc == 0)
        rc = field_string(r->body, "suffix", &suffix, err);
    if (rc == 0)
        rc = field_bool(r->body, "raw", &raw, err);
    if (rc == 0)
        rc = refuse_rest(r->body, err);
    if (rc < 0)
        return rc;
    if (!prompt || !*prompt)
        return only_load(x, err);
    if (suffix && *suffix) {
        rc = request_prompts(r, 1, err);
        if (rc == 0)
            rc = prompt_tokenize(&r->prompts[0], r->m, prompt, strlen(prompt), 0, err);
        return rc < 0 ? rc : prompt_around(&r->prompts[0], r->m, suffix, strlen(suffix), err);
    }
    if (raw || !r->m->tmpl) {
        rc = request_prompts(r, 1, err);
        return rc < 0 ? rc
                      : prompt_tokenize(&r->prompts[0], r->m, prompt, strlen(prompt),
                                        LODE_TOK_SPECIAL | LODE_TOK_PARSE, err);
    }
    r->talk.messages = json_pack("[{s:s, s:s}]", "role", "user", "content", prompt);
    if (!r->talk.messages ||
        (system && *system &&
         json_array_insert_new(r->talk.messages, 0,
                               json_pack("{s:s, s:s}", "role", "system", "content", system))))
        return request_no_memory(err);
    rc = read_think(r, err);
    return rc < 0 ? rc : request_talk(r, err);
}

/* ---- what goes out ---- */

static json_t *line(const struct exchange *x, bool done) {
    char stamp[40];
    struct timespec t;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &t);
    gmtime_r(&t.tv_sec, &tm);
    const size_t n = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(stamp + n, sizeof stamp - n, ".%06ldZ", t.tv_nsec / 1000);
    return json_pack("{s:s, s:s, s:b}", "model", x->r.m->name, "created_at", stamp, "done", done);
}

static bool generates(const struct exchange *x) { return ((struct ollama *)x->state)->generate; }

/* Takes the texts; those that are empty or NULL are left out, but the answer's. */
static json_t *say(const struct exchange *x, json_t *v, json_t *text, json_t *thinking, json_t *calls) {
    json_t *m = generates(x) ? v : json_pack("{s:s}", "role", "assistant");
    json_object_set_new(m, generates(x) ? "response" : "content", text ? text : json_string(""));
    if (json_string_length(thinking))
        json_object_set(m, "thinking", thinking);
    if (json_array_size(calls))
        json_object_set(m, "tool_calls", calls);
    json_decref(thinking);
    json_decref(calls);
    if (!generates(x))
        json_object_set_new(v, "message", m);
    return v;
}

static void send(struct exchange *x, json_t *v) {
    char *text = v ? json_text(v) : NULL;
    json_decref(v);
    if (text) {
        lode_buf_addz(&x->out, text);
        lode_buf_addc(&x->out, '\n');
    } else {
        x->out.failed = true;
    }
    free(text);
}

static json_t *call_json(const struct part *p) {
    json_t *args = json_read(lode_buf_str(&p->text).data, p->text.len, 0, NULL);
    return json_pack("{s:s, s:{s:s, s:o}}", "id", p->id, "function", "name", p->name, "arguments",
                     args ? args : json_object());
}

/* Times in nanoseconds. */
static json_t *finish(struct exchange *x, json_t *v, const struct choice *c) {
    const struct ollama *st = x->state;
    struct answer_usage u;
    answers_usage(x->a, &u);
    const double p = u.stats.prompt_seconds, a = u.stats.answer_seconds, q = u.stats.queue_seconds;
    const struct {
        const char *name;
        json_int_t value;
    } numbers[] = {{"total_duration", (json_int_t)((q + p + a) * 1e9)},
                   {"load_duration", 0},
                   {"prompt_eval_count", (json_int_t)u.n_prompt},
                   {"prompt_eval_duration", (json_int_t)(p * 1e9)},
                   {"eval_count", (json_int_t)u.n_answer},
                   {"eval_duration", (json_int_t)(a * 1e9)}};
    json_object_set_new(v, "done_reason", json_string(st->load                     ? "load"
                                                      : c->finish == FINISH_LENGTH ? "length"
                                                                                   : "stop"));
    for (size_t i = 0; !st->load && i < sizeof numbers / sizeof *numbers; i++)
        json_object_set_new(v, numbers[i].name, json_integer(numbers[i].value));
    return v;
}

static void put(struct exchange *x, const struct answer_event *e) {
    json_t *text = e->kind == ANSWER_DELTA ? json_stringn(e->text, e->len) : NULL;
    const bool thinking = e->part && e->part->kind == PART_THINKING;
    switch (e->kind) {
    case ANSWER_DELTA:
        if (e->part->kind == PART_CALL) /* its calls are sent whole */
            json_decref(text);
        else
            send(x, say(x, line(x, false), thinking ? NULL : text, thinking ? text : NULL, NULL));
        break;
    case ANSWER_PART_END:
        if (e->part->kind == PART_CALL && !e->part->broken)
            send(x, say(x, line(x, false), NULL, NULL, json_pack("[o]", call_json(e->part))));
        break;
    case ANSWER_END:
        send(x, finish(x, say(x, line(x, true), NULL, NULL, NULL), e->choice));
        break;
    case ANSWER_BEGIN:
    case ANSWER_PART:
    case ANSWER_ALL:
        break;
    }
}

static json_t *reply(struct exchange *x) {
    const struct choice *c = answers_choice(x->a, 0);
    json_t *calls = json_array();
    for (size_t i = 0; i < c->n_parts; i++)
        if (c->parts[i].kind == PART_CALL)
            json_array_append_new(calls, call_json(&c->parts[i]));
    return finish(x, say(x, line(x, true), choice_text(c, PART_TEXT), choice_text(c, PART_THINKING),
                         calls),
                  c);
}

json_t *ollama_error(int status, const struct lode_error *err) {
    (void)status;
    return json_pack("{s:o}", "error",
                     json_sprintf("%s%s%s", err->where, *err->where ? ": " : "",
                                  *err->text ? err->text : lode_error_name(err->code)));
}

static void put_error(struct exchange *x, int status, const struct lode_error *err) {
    send(x, ollama_error(status, err));
}

static void alive(struct exchange *x, const struct lode_generation_stats *st) {
    (void)st;
    send(x, say(x, line(x, false), NULL, NULL, NULL)); /* a line that adds nothing */
}

const struct api ollama_chat = {.prefix = "chat",
                                .stream_type = "application/x-ndjson",
                                .state_size = sizeof(struct ollama),
                                .read = read_chat,
                                .put = put,
                                .reply = reply,
                                .put_error = put_error,
                                .alive = alive,
                                .error = ollama_error};
const struct api ollama_generate = {.prefix = "generate",
                                    .stream_type = "application/x-ndjson",
                                    .state_size = sizeof(struct ollama),
                                    .read = read_generate,
                                    .put = put,
                                    .reply = reply,
                                    .put_error = put_error,
                                    .alive = alive,
                                    .error = ollama_error};
