/* answer.c - see answer.h. */
#include "answer.h"

#include "serve/flow.h"
#include "interrupt.h"
#include "out.h"
#include "progress.h"

#include "lode/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An answer on its way: what the model writes goes through the parser, the content of it through
 * the search for stop texts, and all of it to the caller.  A copy is kept. */
struct stream {
    struct answer *answer;
    const struct answer_opts *o;
    struct lode_toolcall *parser;
    struct flow flow;
    FILE *text, *thinking, *arguments;
    char *args; /* of the call that is being read */
    size_t n_text, n_thinking, n_args;
};

static int put_content(void *user, const char *text, size_t len) {
    struct stream *s = user;
    const struct lode_toolcall_event e = {
        .kind = LODE_TOOLCALL_CONTENT, .text = text, .len = len, .index = LODE_TOOLCALL_NONE};
    fwrite(text, 1, len, s->text);
    return s->o->parse->put(s->o->parse->user, &e);
}

static void add_call(struct stream *s, const struct lode_toolcall_event *e) {
    fflush(s->arguments);
    /* numbers that jansson cannot hold stay text, which templates take as well */
    json_t *args = json_loadb(s->args, s->n_args, JSON_ALLOW_NUL, NULL);
    json_array_append_new(s->answer->calls,
                          json_pack("{s:s, s:s, s:{s:s, s:o}}", "id", e->id, "type", "function",
                                    "function", "name", e->name, "arguments",
                                    args ? args : json_stringn(s->args, s->n_args)));
}

static int on_event(void *user, const struct lode_toolcall_event *e) {
    struct stream *s = user;
    switch (e->kind) {
    case LODE_TOOLCALL_CONTENT:
        return flow_push(&s->flow, e->text, e->len);
    case LODE_TOOLCALL_REASONING:
        fwrite(e->text, 1, e->len, s->thinking);
        break;
    case LODE_TOOLCALL_BEGIN: {
        const int rc = flow_finish(&s->flow); /* no stop text reaches over a call */
        if (rc)
            return rc;
        rewind(s->arguments);
        break;
    }
    case LODE_TOOLCALL_ARGUMENTS:
        fwrite(e->text, 1, e->len, s->arguments);
        break;
    case LODE_TOOLCALL_END:
        add_call(s, e);
        break;
    case LODE_TOOLCALL_MALFORMED:
        fwrite(e->text, 1, e->len, s->text);
        break;
    case LODE_TOOLCALL_MARKUP:
        break;
    }
    return s->flow.stopped ? 0 : s->o->parse->put(s->o->parse->user, e);
}

static int open_stream(struct stream *s, struct answer *a, const struct answer_opts *o,
                       struct lode_error *err) {
    struct lode_toolcall_opts parse = *o->parse;
    *s = (struct stream){.answer = a, .o = o};
    parse.put = on_event;
    parse.user = s;
    s->text = open_memstream(&a->text, &s->n_text);
    s->thinking = open_memstream(&a->thinking, &s->n_thinking);
    s->arguments = open_memstream(&s->args, &s->n_args);
    a->calls = json_array();
    flow_init(&s->flow, o->stops, o->n_stops, put_content, s);
    if (!s->text || !s->thinking || !s->arguments || !a->calls)
        return tool_fail(err, LODE_ERR_NOMEM, "answer", "no memory for it");
    return lode_toolcall_create(&s->parser, &parse, err);
}

static void close_stream(struct stream *s) {
    FILE *const files[] = {s->text, s->thinking, s->arguments};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i])
            fclose(files[i]);
    free(s->args);
    flow_deinit(&s->flow);
    lode_toolcall_free(s->parser);
}

/* 1: the answer ends here, *end says why. */
static int push_text(struct stream *s, const char *text, size_t len, enum answer_end *end,
                     struct lode_error *err) {
    const int rc = lode_toolcall_push(s->parser, text, len, err);
    if (rc == LODE_ERR_CANCELLED || s->flow.stopped) {
        *end = s->flow.stopped ? ANSWER_STOPPED : ANSWER_CLOSED;
        return 1;
    }
    return rc;
}

/* Special tokens are no text, but for those that the parser looks for. */
static bool is_left_out(const struct stream *s, int32_t id) {
    struct lode_token_info info;
    return !s->o->keep_special &&
           lode_token_info(lode_model_tokenizer(s->o->model), id, &info) == 0 && info.special &&
           !lode_toolcall_wants(s->parser, info.piece, info.piece_len);
}

static size_t common_prefix(const struct lode_session *s, const struct ids *prompt) {
    const int32_t *have = lode_session_tokens(s);
    const size_t n_have = lode_session_length(s);
    size_t n = 0;
    while (n < n_have && n < prompt->n && have[n] == prompt->v[n])
        n++;
    return n;
}

/* Evaluates the prompt in parts, so that a terminal can show how far it is. */
static int evaluate_prompt(struct answer *a, const struct answer_opts *o, const struct ids *prompt,
                           struct lode_error *err) {
    const double start = clock_now();
    const uint32_t ctx = lode_session_ctx(o->session);
    struct progress bar;
    if (prompt->n == 0)
        return tool_fail(err, LODE_ERR_ARG, "prompt", "is empty: there is nothing to continue");
    if (prompt->n > ctx)
        return tool_fail(err, LODE_ERR_LIMIT, "prompt",
                         "has %zu tokens, the context holds %u: shorten it, or choose a larger "
                         "context with -c (the model was trained for %u)",
                         prompt->n, ctx, lode_model_info(o->model)->ctx_train);
    /* The first part takes in all that the session already has. */
    enum { PART = 512 };
    const size_t common = common_prefix(o->session, prompt);
    size_t n = prompt->n - common > PART ? common + PART : prompt->n;
    lode_session_want(o->session, 0);
    progress_begin(&bar, "reading the prompt", "tokens", prompt->n);
    int rc = lode_session_sync(o->session, prompt->v, n, &a->n_reused, err);
    while (rc == 0 && n < prompt->n) {
        const size_t part = prompt->n - n > PART ? PART : prompt->n - n;
        progress_update(&bar, n);
        rc = lode_session_eval(o->session, prompt->v + n, part, err);
        n += part;
    }
    a->n_prompt = prompt->n;
    progress_end(&bar);
    a->prompt_seconds = clock_now() - start;
    return rc;
}

/* The next token: held to the constraint once the answer has begun, or may begin.  Sets *over where
 * only the end may come. */
static int choose(const struct answer *a, const struct stream *stream, int32_t *id, bool *over,
                  struct lode_error *err) {
    const struct answer_opts *o = stream->o;
    const struct lode_tokenizer *t = lode_model_tokenizer(o->model);
    const enum lode_toolcall_stage stage = lode_toolcall_stage(stream->parser);
    struct constraint *c = o->constraint;
    const bool held = c && c->state && stage != LODE_TOOLCALL_AT_THINKING;
    int32_t think = -1;
    *over = false;
    if (held) {
        /* thinking comes first or not at all */
        if (stage == LODE_TOOLCALL_AT_START && a->n_answer == 0 && o->parse->style.think)
            think = lode_tokenizer_find(t, o->parse->style.think);
        const int rc = constraint_mask(c, o->model, think, over, err);
        if (rc < 0 || *over)
            return rc;
    }
    *id = held ? lode_sampler_next_masked(o->sampler, lode_session_logits(o->session), c->mask,
                                          lode_session_length(o->session))
               : lode_session_sample(o->session, o->sampler);
    if (*id < 0)
        return tool_fail(err, LODE_ERR_ARG, "--logit-bias",
                         "bans every token that the form of the answer allows here");
    if (!held || *id == think || lode_tokenizer_is_end(t, *id))
        return 0;
    return constraint_accept(c, *id, err);
}

static int generate(struct answer *a, const struct answer_opts *o, struct lode_detok *detok,
                    struct stream *stream, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(o->model);
    int rc = 0;
    a->end = ANSWER_LIMIT;
    while (o->n_predict < 0 || (int64_t)a->n_answer < o->n_predict) {
        const char *text = "";
        size_t len = 0;
        int32_t id = -1;
        bool over;
        rc = choose(a, stream, &id, &over, err);
        if (rc < 0)
            return rc;
        if (over || lode_tokenizer_is_end(t, id)) {
            a->end = ANSWER_ENDED;
            break;
        }
        lode_sampler_accept(o->sampler, id);
        a->n_answer++;
        if (!is_left_out(stream, id))
            rc = lode_detok_push(detok, id, &text, &len, err);
        if (rc == 0)
            rc = push_text(stream, text, len, &a->end, err);
        if (rc)
            return rc < 0 ? rc : 0;
        if (interrupt_seen()) {
            a->end = ANSWER_INTERRUPTED;
            break;
        }
        if (lode_session_length(o->session) == lode_session_ctx(o->session)) {
            a->end = ANSWER_FULL;
            break;
        }
        if ((int64_t)a->n_answer == o->n_predict)
            break;
        if (o->constraint)
            lode_session_want(o->session, 0);
        else
            lode_session_draw(o->session, o->sampler, o->n_predict < 0 || (int64_t)a->n_answer + 1 < o->n_predict);
        rc = lode_session_eval(o->session, &id, 1, err);
        if (rc == LODE_ERR_CANCELLED && interrupt_seen()) {
            a->end = ANSWER_INTERRUPTED;
            break;
        }
        if (rc < 0)
            return rc;
    }
    const char *text;
    size_t len;
    rc = lode_detok_finish(detok, &text, &len, err);
    if (rc == 0)
        rc = push_text(stream, text, len, &a->end, err);
    if (rc == 0)
        rc = lode_toolcall_finish(stream->parser, err);
    if (rc == LODE_ERR_CANCELLED || (rc == 0 && flow_finish(&stream->flow))) {
        a->end = ANSWER_CLOSED;
        rc = 0;
    }
    return rc < 0 ? rc : 0;
}

int answer_generate(struct answer *a, const struct answer_opts *o, const struct ids *prompt,
                    struct lode_error *err) {
    struct lode_detok *detok = NULL;
    struct stream stream;
    *a = (struct answer){0};
    int rc = open_stream(&stream, a, o, err);
    if (rc == 0)
        rc = lode_detok_create(&detok, lode_model_tokenizer(o->model), false, err);
    if (rc == 0)
        rc = evaluate_prompt(a, o, prompt, err);
    if (rc == 0 && o->constraint)
        rc = constraint_begin(o->constraint, err);
    if (rc == LODE_ERR_CANCELLED && interrupt_seen()) {
        a->end = ANSWER_INTERRUPTED;
        rc = 0;
    } else if (rc == 0) {
        lode_sampler_reset(o->sampler);
        for (size_t i = 0; i < prompt->n; i++)
            lode_sampler_accept(o->sampler, prompt->v[i]);
        const double start = clock_now();
        rc = generate(a, o, detok, &stream, err);
        a->answer_seconds = clock_now() - start;
    }
    close_stream(&stream);
    lode_detok_free(detok);
    if (rc < 0)
        answer_free(a);
    return rc;
}

void answer_free(struct answer *a) {
    free(a->text);
    free(a->thinking);
    json_decref(a->calls);
    a->text = a->thinking = NULL;
    a->calls = NULL;
}

const char *answer_notice(const struct answer *a, const struct answer_opts *o, char *out,
                          size_t cap) {
    switch (a->end) {
    case ANSWER_LIMIT:
        snprintf(out, cap, "the answer was cut after %zu tokens (-n)", a->n_answer);
        return out;
    case ANSWER_FULL:
        snprintf(
            out, cap,
            "the context is full: %zu tokens of prompt and %zu of answer fill its %u; a larger "
            "-c gives more room",
            a->n_prompt, a->n_answer, lode_session_ctx(o->session));
        return out;
    case ANSWER_INTERRUPTED:
        return "stopped";
    case ANSWER_ENDED:
    case ANSWER_STOPPED:
    case ANSWER_CLOSED:
        break;
    }
    return NULL;
}
