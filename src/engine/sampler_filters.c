/* sampler_filters.c - steps that drop candidates.  Each keeps at least one. */
#include "engine/sampler_impl.h"

#include "base/dmath.h"
#include "base/rng.h"

#include <math.h>

/* How many a filter must leave. */
static size_t at_least(const struct lode_sampler *s) {
    return s->o.min_keep > 1 ? (size_t)s->o.min_keep : 1;
}

/* Keeps what is at or above the threshold, or the best few where those are too few. */
static void keep_above(struct lode_sampler *s, double threshold) {
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        kept += s->cand[i].logit >= threshold;
    if (kept < at_least(s)) {
        lode_sampler_keys_by_logit(s);
        lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, at_least(s), 0));
        return;
    }
    kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->cand[i].logit >= threshold)
            s->cand[kept++] = s->cand[i];
    s->n = kept;
}

void lode_step_top_k(struct lode_sampler *s) {
    if (s->o.top_k <= 0)
        return;
    const size_t k = (size_t)s->o.top_k > at_least(s) ? (size_t)s->o.top_k : at_least(s);
    if (k >= s->n)
        return;
    lode_sampler_keys_by_logit(s);
    lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, k, 0));
}

/* The smallest set of the most probable tokens with at least p of the mass (Holtzman et al.,
 * "The Curious Case of Neural Text Degeneration", 2019). */
void lode_step_top_p(struct lode_sampler *s) {
    if (s->o.top_p >= 1)
        return;
    const double sum = lode_sampler_softmax(s);
    lode_sampler_keys_by_logit(s);
    lode_sampler_keep(
        s, lode_select_key(s->key, s->weight, s->n, at_least(s), (double)s->o.top_p * sum));
}

/* Tokens at least min_p times as probable as the most probable one. */
void lode_step_min_p(struct lode_sampler *s) {
    if (s->o.min_p > 0)
        keep_above(s, lode_sampler_max(s) + lode_log((double)s->o.min_p));
}

/* Logits within n standard deviations of the largest (Tang et al., "Top-nsigma", 2024). */
void lode_step_top_n_sigma(struct lode_sampler *s) {
    if (s->o.top_n_sigma <= 0 || s->n < 2)
        return;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += s->cand[i].logit;
    const double mean = sum / (double)s->n;
    for (size_t i = 0; i < s->n; i++)
        squares += (s->cand[i].logit - mean) * (s->cand[i].logit - mean);
    const double sigma = sqrt(squares / (double)s->n); /* IEEE: the same everywhere */
    keep_above(s, lode_sampler_max(s) - (double)s->o.top_n_sigma * sigma);
}

/* The tokens whose surprise is closest to the expected one (Meister et al., "Locally Typical
 * Sampling", 2022), up to a mass of typical_p. */
void lode_step_typ_p(struct lode_sampler *s) {
    if (s->o.typical_p >= 1)
        return;
    const double sum = lode_sampler_softmax(s), log_sum = lode_log(sum);
    const float max = lode_sampler_max(s);
    double entropy = 0;
    for (size_t i = 0; i < s->n; i++) /* surprise of i: log_sum - (logit - max) */
        entropy += s->weight[i] / sum * (log_sum - ((double)s->cand[i].logit - max));
    for (size_t i = 0; i < s->n; i++) {
        const double surprise = log_sum - ((double)s->cand[i].logit - max);
        s->key[i] = lode_key_of(-lode_finite(fabs(surprise - entropy)), s->cand[i].id);
    }
    lode_sampler_keep(
        s, lode_select_key(s->key, s->weight, s->n, at_least(s), (double)s->o.typical_p * sum));
}

/* Exclude top choices: with probability xtc_probability, all tokens at or above the threshold
 * but the least probable of them go. */
void lode_step_xtc(struct lode_sampler *s) {
    if (s->o.xtc_probability <= 0 || s->o.xtc_threshold > 0.5f || s->n < 2 ||
        lode_rng_uniform(s->o.seed, s->position, 1) >= s->o.xtc_probability)
        return;
    const double bar = s->o.xtc_threshold * lode_sampler_softmax(s);
    lode_sampler_keys_by_logit(s);
    size_t above = 0;
    uint64_t least = 0; /* largest key among those above: the least probable */
    for (size_t i = 0; i < s->n; i++) {
        if (s->weight[i] >= bar) {
            above++;
            least = s->key[i] > least ? s->key[i] : least;
        }
    }
    if (above < 2 || s->n - (above - 1) < at_least(s))
        return;
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->key[i] >= least)
            s->cand[kept++] = s->cand[i];
    s->n = kept;
}
