/* answer.c - see answer.h. */
#include "answer.h"

#include "interrupt.h"
#include "out.h"
#include "progress.h"

#include "lode/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps a copy of what passes through. */
struct tee {
    FILE *text, *thinking;
    flow_put_fn *put;
    void *user;
};

static int put_both(void *user, bool thinking, const char *text, size_t len) {
    const struct tee *t = user;
    fwrite(text, 1, len, thinking ? t->thinking : t->text);
    return t->put(t->user, thinking, text, len);
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

static int generate(struct answer *a, const struct answer_opts *o, struct lode_detok *detok,
                    struct flow *flow, struct lode_error *err) {
    const struct lode_tokenizer *t = lode_model_tokenizer(o->model);
    int rc = 0, stop = 0;
    a->end = ANSWER_LIMIT;
    while (o->n_predict < 0 || (int64_t)a->n_answer < o->n_predict) {
        const char *text;
        size_t len;
        const int32_t id = lode_sampler_next(o->sampler, lode_session_logits(o->session),
                                             lode_session_length(o->session));
        if (lode_tokenizer_is_end(t, id)) {
            a->end = ANSWER_ENDED;
            break;
        }
        lode_sampler_accept(o->sampler, id);
        a->n_answer++;
        rc = lode_detok_push(detok, id, &text, &len, err);
        if (rc < 0)
            return rc;
        stop = flow_push(flow, text, len);
        if (stop || flow->state == FLOW_STOPPED) {
            a->end = stop ? ANSWER_CLOSED : ANSWER_STOPPED;
            break;
        }
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
        rc = lode_session_eval(o->session, &id, 1, err);
        if (rc == LODE_ERR_CANCELLED && interrupt_seen()) {
            a->end = ANSWER_INTERRUPTED;
            rc = 0;
            break;
        }
        if (rc < 0)
            return rc;
    }
    const char *text;
    size_t len;
    rc = lode_detok_finish(detok, &text, &len, err);
    if (rc == 0 && !stop && (flow_push(flow, text, len) || flow_finish(flow)))
        a->end = ANSWER_CLOSED;
    return rc;
}

int answer_generate(struct answer *a, const struct answer_opts *o, const struct ids *prompt,
                    struct lode_error *err) {
    size_t n_text, n_thinking;
    struct lode_detok *detok = NULL;
    struct flow flow;
    *a = (struct answer){0};
    struct tee tee = {open_memstream(&a->text, &n_text), open_memstream(&a->thinking, &n_thinking),
                      o->put, o->user};
    flow_init(&flow, o->start, o->stops, o->n_stops, put_both, &tee);
    int rc =
        tee.text && tee.thinking ? 0 : tool_fail(err, LODE_ERR_NOMEM, "answer", "no memory for it");
    if (rc == 0)
        rc = lode_detok_create(&detok, lode_model_tokenizer(o->model), !o->keep_special, err);
    if (rc == 0)
        rc = evaluate_prompt(a, o, prompt, err);
    if (rc == LODE_ERR_CANCELLED && interrupt_seen()) {
        a->end = ANSWER_INTERRUPTED;
        rc = 0;
    } else if (rc == 0) {
        lode_sampler_reset(o->sampler);
        for (size_t i = 0; i < prompt->n; i++)
            lode_sampler_accept(o->sampler, prompt->v[i]);
        const double start = clock_now();
        rc = generate(a, o, detok, &flow, err);
        a->answer_seconds = clock_now() - start;
    }
    if (tee.text)
        fclose(tee.text);
    if (tee.thinking)
        fclose(tee.thinking);
    flow_deinit(&flow);
    lode_detok_free(detok);
    if (rc < 0)
        answer_free(a);
    return rc;
}

void answer_free(struct answer *a) {
    free(a->text);
    free(a->thinking);
    a->text = a->thinking = NULL;
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
