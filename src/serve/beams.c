/* beams.c - POST /v1/completions with "use_beam_search", as vLLM has it: the likeliest
 * continuations. */
#include "serve/exchange.h"
#include "serve/fields.h"

#include "lode/jobs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_BEAMS = LODE_GENERATION_TOP / 2, USUAL_TOKENS = 64 };

struct beam_request {
    struct lode_beam_opts o;
    struct prompt prompt;
    bool echo;
};

/* What a search of the likeliest texts cannot have beside it. */
static int refuse_rest(const json_t *body, struct lode_error *err) {
    static const char *const not_here[] = {"stream",          "logprobs",   "suffix",
                                           "grammar",         "regex",      "json_schema",
                                           "response_format", "logit_bias", "stop"};
    for (size_t i = 0; i < sizeof not_here / sizeof *not_here; i++) {
        const json_t *v = json_object_get(body, not_here[i]);
        if (v && !json_is_null(v) && !json_is_false(v))
            return field_fail(err, not_here[i],
                              "is not possible together with \"use_beam_search\"");
    }
    return 0;
}

static int read_prompt(struct beam_request *b, struct request *r, struct lode_error *err) {
    const json_t *v = json_object_get(r->body, "prompt");
    if (json_array_size(v) == 1 && !json_is_integer(json_array_get(v, 0)))
        v = json_array_get(v, 0);
    if (json_is_string(v))
        return prompt_tokenize(&b->prompt, r->m, json_string_value(v), json_string_length(v),
                               LODE_TOK_SPECIAL | LODE_TOK_PARSE, err);
    return json_is_integer(json_array_get(v, 0))
               ? prompt_ids(&b->prompt, v, "prompt", err)
               : field_fail(err, "prompt",
                            "with \"use_beam_search\": one text, or its token ids, expected");
}

static int read_body(struct beam_request *b, struct request *r, const struct asker *who,
                     struct lode_error *err) {
    int64_t n = 1, best_of = 0;
    float penalty = 1;
    r->g.max_tokens = USUAL_TOKENS;
    int rc = request_common(r, err);
    if (rc == 0)
        rc = refuse_rest(r->body, err);
    if (rc == 0)
        rc = field_int(r->body, "n", 1, MOST_BEAMS, &n, err);
    if (rc == 0)
        rc = field_int(r->body, "best_of", n, MOST_BEAMS, &best_of, err);
    if (rc == 0)
        rc = field_real(r->body, "length_penalty", 0, 10, &penalty, err);
    if (rc == 0)
        rc = field_bool(r->body, "echo", &b->echo, err);
    if (rc == 0 && r->g.max_tokens == 0)
        rc = field_fail(err, "max_tokens", "at least 1 expected");
    if (rc == 0)
        rc = read_prompt(b, r, err);
    const int64_t most =
        r->g.max_tokens < 0 ? lode_scheduler_ctx(r->m->scheduler) : r->g.max_tokens;
    r->n = (int)n;
    b->o = (struct lode_beam_opts){.width = (uint32_t)(best_of ? best_of : n),
                                   .max_tokens = most > UINT32_MAX ? UINT32_MAX : (uint32_t)most,
                                   .length_penalty = penalty > 0 ? penalty : -1,
                                   .job = {.cancel = who->gone, .cancel_user = who->user}};
    return rc;
}

/* The text of ids as a JSON string; NULL without memory. */
static json_t *text_json(const struct served *m, const int32_t *ids, size_t n) {
    const int64_t len = lode_detokenize(m->tokenizer, ids, n, true, NULL, 0, NULL);
    char *text = len >= 0 ? malloc((size_t)len + 1) : NULL;
    if (text)
        lode_detokenize(m->tokenizer, ids, n, true, text, (size_t)len, NULL);
    json_t *v = text ? json_stringn(text, (size_t)len) : NULL;
    free(text);
    return v;
}

static json_t *choice_json(const struct request *r, const struct beam_request *b,
                           const struct lode_beam *beam, size_t i) {
    json_t *text = text_json(r->m, beam->ids, beam->n), *before;
    if (b->echo && (before = text_json(r->m, b->prompt.ids, b->prompt.n))) {
        json_t *both =
            text ? json_sprintf("%s%s", json_string_value(before), json_string_value(text)) : NULL;
        json_decref(text);
        json_decref(before);
        text = both;
    }
    return json_pack("{s:I, s:o, s:s, s:n, s:f, s:f}", "index", (json_int_t)i, "text", text,
                     "finish_reason", beam->ended ? "stop" : "length", "logprobs",
                     "cumulative_logprob", beam->logprob, "score", beam->score);
}

json_t *route_beams(struct server *s, const struct asker *who, const json_t *body,
                    struct lode_error *err) {
    struct request r;
    struct beam_request b = {0};
    struct lode_beam *beams = NULL;
    json_t *choices = NULL, *reply = NULL;
    size_t n = 0, n_answer = 0;
    char id[64];
    int rc = request_init(&r, s, body, err);
    if (rc == 0 && !r.m->scheduler)
        rc = field_fail(err, "model", "%s gives vectors, not text", r.m->name);
    if (rc == 0)
        rc = read_body(&b, &r, who, err);
    if (rc == 0)
        rc = lode_beam_search(r.m->scheduler, (struct lode_ids){b.prompt.ids, b.prompt.n}, &b.o,
                              &beams, &n, err);
    choices = rc == 0 ? json_array() : NULL;
    for (size_t i = 0; i < n && i < (size_t)r.n; i++)
        json_array_append_new(choices, choice_json(&r, &b, &beams[i], i));
    for (size_t i = 0; i < n; i++)
        n_answer += beams[i].n;
    if (choices) {
        make_id(s, "cmpl-", id);
        reply =
            json_pack("{s:s, s:s, s:I, s:s, s:s, s:o, s:{s:I, s:I, s:I}}", "id", id, "object",
                      "text_completion", "created", (json_int_t)time(NULL), "model", r.m->name,
                      "system_fingerprint", "lode-" LODE_VERSION, "choices", choices, "usage",
                      "prompt_tokens", (json_int_t)b.prompt.n, "completion_tokens",
                      (json_int_t)n_answer, "total_tokens", (json_int_t)(b.prompt.n + n_answer));
    }
    lode_beams_free(beams, n);
    prompt_free(&b.prompt);
    request_deinit(&r);
    return reply;
}
