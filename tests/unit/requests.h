/* requests.h - requests to a scheduler, and what each must be answered: the tokens of a session of its
 * own, read one step and then one token after the other. */
#ifndef LODE_TESTS_REQUESTS_H
#define LODE_TESTS_REQUESTS_H

#include "../own_files.h"
#include "base/rng.h"
#include "lode/lode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_REQUESTS = 12, MAX_PROMPT = 160, MAX_ANSWER = 80, CTX = 256 };

struct request {
    int32_t prompt[MAX_PROMPT], answer[MAX_ANSWER];
    size_t n_prompt, n_answer;
    struct lode_sampler_opts sampler;
    float logprob[MAX_ANSWER], given[MAX_PROMPT]; /* of the answer; of the prompt's own, from 1 on */
};

static struct lode_model *model;
static struct request requests[N_REQUESTS];

static void must(int rc, const struct lode_error *err) {
    if (rc < 0)
        fail_msg("%s: %s", err->where, err->text);
}

static void load(const char *name) {
    struct lode_error err;
    must(lode_model_load(&model, own_arch(name), NULL, &err), &err);
}

/* Prompts come in families of three that begin alike, so that slots have prefixes to reuse. */
static void make_request(struct request *r, uint64_t i) {
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    *r = (struct request){.n_prompt = 3 + (size_t)(lode_rng_uniform(1, i, 0) * (MAX_PROMPT - 3))};
    for (uint64_t k = 0; k < r->n_prompt; k++)
        r->prompt[k] = (int32_t)(lode_rng_uniform(k < r->n_prompt / 2 ? i / 3 : 100 + i, k, 1) * n_vocab);
    lode_sampler_defaults(&r->sampler);
    r->sampler.seed = i;
    r->sampler.temp = i % 4 ? 0.9f : 0;
    r->sampler.presence_penalty = i % 2 ? 0.5f : 0;
    r->n_answer = 1 + (size_t)(lode_rng_uniform(2, i, 0) * (MAX_ANSWER - 1));
}

static int weigh_next(void *user, uint32_t pos, const float *logits) {
    struct request *r = user;
    if (pos + 1 < r->n_prompt)
        r->given[pos + 1] = lode_logprob_of(logits, lode_model_info(model)->n_vocab, r->prompt[pos + 1]);
    return 0;
}

static void answer_alone(struct request *r) {
    const uint32_t n_vocab = lode_model_info(model)->n_vocab;
    struct lode_session *s;
    struct lode_sampler *sampler;
    struct lode_error err;
    must(lode_session_create(&s, model, &(struct lode_session_opts){.ctx = CTX, .threads = 1}, &err), &err);
    must(lode_sampler_create(&sampler, n_vocab, &r->sampler, &err), &err);
    must(lode_session_eval_each(s, r->prompt, r->n_prompt, weigh_next, r, &err), &err);
    for (size_t i = 0; i < r->n_prompt; i++)
        lode_sampler_accept(sampler, r->prompt[i]);
    for (size_t i = 0; i < r->n_answer; i++) {
        const float *logits = lode_session_logits(s);
        r->answer[i] = lode_sampler_next(sampler, logits, lode_session_length(s));
        r->logprob[i] = lode_logprob_of(logits, n_vocab, r->answer[i]);
        lode_sampler_accept(sampler, r->answer[i]);
        must(lode_session_eval(s, &r->answer[i], 1, &err), &err);
    }
    lode_sampler_free(sampler);
    lode_session_free(s);
}

static struct lode_generation_opts opts_of(const struct request *r) {
    return (struct lode_generation_opts){.prompt = r->prompt,
                                         .n_prompt = r->n_prompt,
                                         .sampler = r->sampler,
                                         .max_tokens = (int64_t)r->n_answer,
                                         .ignore_end = true,
                                         .logprobs = true};
}

#endif
