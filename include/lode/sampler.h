/* sampler.h - from logits to the next token.
 *
 * A sampler holds its options and the tokens it has seen; it belongs to one thread at a time.
 * Random numbers depend on the seed and the position only, so a run can be repeated from any
 * point.  Logits are not changed; NaN and -infinity are never chosen, of equals the smaller id is
 * first, and the same token comes out on every CPU.  Nothing is allocated after create.
 *
 *     struct lode_sampler_opts o;
 *     lode_sampler_defaults(&o);
 *     o.temp = 0;
 *     lode_sampler_create(&s, n_vocab, &o, &err);
 *     lode_sampler_accept(s, prompt_id);              for each token of the prompt
 *     id = lode_sampler_next(s, logits, position);
 *     lode_sampler_accept(s, id);
 */
#ifndef LODE_SAMPLER_H
#define LODE_SAMPLER_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_sampler;

struct lode_logit_bias {
    int32_t id;
    float bias; /* -INFINITY bans the token */
};

/* Names and defaults follow llama.cpp. */
struct lode_sampler_opts {
    const char *samplers; /* order, names joined by ';'; NULL: the default
                             "penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature" */
    uint64_t seed;
    float temp; /* < 1e-6: greedy, the best after bias, penalties and dry; filters are skipped */
    float dynatemp_range, dynatemp_exponent;
    int32_t top_k; /* <= 0: all */
    float top_p, min_p, typical_p, top_n_sigma;
    int32_t min_keep;
    float xtc_probability, xtc_threshold;
    int32_t repeat_last_n; /* 0: off, -1: all */
    float repeat_penalty, presence_penalty, frequency_penalty;
    float dry_multiplier, dry_base;
    int32_t dry_allowed_length, dry_penalty_last_n; /* last_n: -1: 65536, 0: off */
    const int32_t *const *dry_breakers; /* (n_dry_breakers) token sequences, each ended by -1 */
    size_t n_dry_breakers;
    int32_t mirostat; /* 0; 1 or 2: instead of samplers, after the temperature */
    float mirostat_tau, mirostat_eta;
    const struct lode_logit_bias *bias; /* (n_bias); copied */
    size_t n_bias;
};

LODE_API void lode_sampler_defaults(struct lode_sampler_opts *opts);
/* Names the option and its range when one is out of it. */
LODE_API int lode_sampler_create(struct lode_sampler **out, uint32_t n_vocab,
                                 const struct lode_sampler_opts *opts, struct lode_error *err);
LODE_API void lode_sampler_free(struct lode_sampler *s);
LODE_API void lode_sampler_reset(struct lode_sampler *s); /* forgets the tokens seen */
LODE_API void lode_sampler_accept(struct lode_sampler *s, int32_t id);
/* position: the timeline position the new token will take. */
LODE_API int32_t lode_sampler_next(struct lode_sampler *s, const float *logits, uint64_t position);
/* The same among the ids whose bit id % 64 of mask[id / 64] is set (grammar.h makes such masks; one
 * has (n_vocab + 63) / 64 words; NULL: all ids).  -1 where none of them is possible. */
LODE_API int32_t lode_sampler_next_masked(struct lode_sampler *s, const float *logits,
                                          const uint64_t *mask, uint64_t position);

/* One of the largest logits: +infinity is the largest float; NaN and -infinity are none. */
struct lode_best {
    float logit;
    int32_t id; /* -1: there are no more */
};
enum { LODE_BEST_MAX = 256 };
/* How many of the largest logits the next draw can come to want, no id being masked, at most
 * LODE_BEST_MAX; 0: all logits. */
LODE_API uint32_t lode_sampler_wants(const struct lode_sampler *s);
/* lode_sampler_next, to the bit, by those: the n largest, of equals the smaller id first, n as many as it
 * wants or more; in any order. */
LODE_API int32_t lode_sampler_next_best(struct lode_sampler *s, const struct lode_best *best, size_t n,
                                        uint64_t position);

/* Log-probability of one id, or the n best (sorted, ties by id), under the plain softmax. */
struct lode_logprob {
    int32_t id;
    float logprob;
};
LODE_API float lode_logprob_of(const float *logits, uint32_t n_vocab, int32_t id);
LODE_API size_t lode_logprob_top(const float *logits, uint32_t n_vocab, struct lode_logprob *out,
                                 size_t n);
/* The smallest id among the largest logits. */
LODE_API int32_t lode_argmax(const float *logits, uint32_t n_vocab);

#ifdef __cplusplus
}
#endif
#endif
