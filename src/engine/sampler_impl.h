/* sampler_impl.h - what the parts of the sampler share.
 *
 * A draw runs over a list of candidates.  The list stays in ascending order of ids from the first
 * step to the last: a filter computes which key is the last to stay (sampler_select.c) and closes
 * the gaps.  So every sum is formed in the order of ids, no step depends on how another one
 * partitioned the list, ties fall to the smaller id by construction, and nothing is sorted.
 *
 *   sampler.c          options, life cycle, history, one draw
 *   sampler_load.c     what a draw begins with
 *   sampler_draw.c     a draw that needs nothing but a few of the largest logits
 *   sampler_select.c   the smallest set of best candidates with enough members or enough mass
 *   sampler_filters.c  steps that drop candidates
 *   sampler_weights.c  steps that change logits
 *   sampler_mirostat.c mirostat 1 and 2
 *   logprob.c          log-probabilities and argmax, without a sampler
 */
#ifndef LODE_ENGINE_SAMPLER_IMPL_H
#define LODE_ENGINE_SAMPLER_IMPL_H

#include "base/arena.h"
#include "base/draw.h"
#include "base/half.h"
#include "lode/sampler.h"

#include <float.h>

struct lode_cand {
    float logit; /* finite */
    int32_t id;
};

/* The steps, in the default order: name, the other names people use. */
#define LODE_SAMPLER_STEP_LIST(X)                                                                  \
    X(penalties, "penalty", "repetition")                                                          \
    X(dry, "dry", "dry")                                                                           \
    X(top_n_sigma, "n_sigma", "nsigma")                                                            \
    X(top_k, "topk", "k")                                                                          \
    X(typ_p, "typical", "typical_p")                                                               \
    X(top_p, "topp", "nucleus")                                                                    \
    X(min_p, "minp", "min")                                                                        \
    X(xtc, "xtc", "xtc")                                                                           \
    X(temperature, "temp", "t")

typedef void lode_sampler_step(struct lode_sampler *s);
#define LODE_SAMPLER_STEP_DECLARE(name, alias1, alias2) lode_sampler_step lode_step_##name;
LODE_SAMPLER_STEP_LIST(LODE_SAMPLER_STEP_DECLARE)
#undef LODE_SAMPLER_STEP_DECLARE

enum {
    LODE_SAMPLER_MAX_STEPS = 32,
    /* What "all" means to DRY, which must remember the tokens themselves. */
    LODE_SAMPLER_DRY_ALL = 1 << 16,
};

/* Below this temperature the draw is greedy: dividing by less could overflow a float. */
#define LODE_SAMPLER_COLD 1e-6

struct lode_breaker { /* a token sequence that repetitions must not span */
    const int32_t *ids;
    uint32_t len;
};

struct lode_sampler {
    struct lode_sampler_opts o; /* its pointers refer to copies in memory */
    uint32_t n_vocab;
    lode_sampler_step *steps[LODE_SAMPLER_MAX_STEPS];
    uint32_t n_steps;

    /* the draw under way */
    uint64_t position;
    struct lode_cand *cand; /* (n) of (n_vocab), ids ascending */
    size_t n;
    double *weight; /* (n) by lode_sampler_softmax */
    uint64_t *key;  /* (n) what a filter selects by, smallest first */

    /* history */
    int32_t *ring; /* (ring_size) the last tokens, token t at t % ring_size */
    uint64_t ring_size, n_seen;
    uint32_t *count; /* (n_vocab) occurrences within repeat_last_n; NULL: no penalties */

    /* DRY */
    uint32_t dry_window;           /* tokens looked at; 0: off */
    struct lode_breaker *breakers; /* (o.n_dry_breakers) by first id */
    int32_t *dry_recent;           /* (dry_window) newest first */
    uint32_t *dry_match;           /* (dry_window) Z array of dry_recent */
    uint32_t *dry_longest;         /* (n_vocab) longest repetition each token would extend */

    /* mirostat */
    double mu, surprise; /* of the token that next returned, until it is accepted */
    bool surprised;

    struct lode_arena memory; /* owns all of the above */
};

static inline bool lode_sampler_is_greedy(const struct lode_sampler *s) {
    const bool dynamic = s->o.temp > 0 && s->o.dynatemp_range > 0;
    return s->o.temp < LODE_SAMPLER_COLD && !dynamic;
}

/* Keys ascend from the best candidate to the worst; equal logits are told apart by the id. */
static inline uint64_t lode_key_of(float value, int32_t id) {
    const uint32_t bits = lode_f32_bits(value + 0.0f); /* -0 becomes 0 */
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (uint64_t)~rising << 32 | (uint32_t)id;
}

static inline float lode_finite(double x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

/* The last key of the smallest set of smallest keys that has at least `least` members and, with
 * weights, at least `mass` of weight; UINT64_MAX when all are needed.  Keys are distinct.
 * O(n): no sorting and no bad pivots. */
uint64_t lode_select_key(const uint64_t *key, const double *weight, size_t n, size_t least,
                         double mass);

/* Logits plus bias; NaN and -infinity are no candidates, +infinity is the largest float.  mask: ids
 * whose bit is not set are none either; NULL: all are.  What no step can come to want may be left out. */
void lode_sampler_load(struct lode_sampler *s, const float *logits, const uint64_t *mask, bool greedy);
/* Whether the step leaves all as it is. */
bool lode_sampler_is_idle(const struct lode_sampler *s, lode_sampler_step *step);
/* The same by the largest of them alone. */
void lode_sampler_load_best(struct lode_sampler *s, const struct lode_best *best, size_t n);
/* The largest of x (64); a NaN is none. */
float lode_max_64(const float *x);

void lode_sampler_keys_by_logit(struct lode_sampler *s);
/* Keeps the candidates whose key is at most last (their keys are s->key). */
void lode_sampler_keep(struct lode_sampler *s, uint64_t last);
float lode_sampler_max(const struct lode_sampler *s); /* n > 0 */
/* weight[i] = exp(logit - largest); returns their sum, added in the order of ids. */
double lode_sampler_softmax(struct lode_sampler *s);
/* The index of the candidate that u in [0, 1) falls on, by weight. */
size_t lode_sampler_pick(const struct lode_sampler *s, double sum, double u);

/* The next draws, where they want no more than LODE_DRAW_MOST of the largest logits as they are and no
 * filters but the usual ones: all but the number at a position (lode_sampler_uniform).  It stays the same
 * whatever the sampler accepts. */
bool lode_sampler_draw(const struct lode_sampler *s, struct lode_draw *d);
/* The number in [0, 1) by which the token at a position is drawn. */
double lode_sampler_uniform(const struct lode_sampler *s, uint64_t position);

size_t lode_mirostat_pick(struct lode_sampler *s, double u);

#endif
