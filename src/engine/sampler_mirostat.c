/* sampler_mirostat.c - sampling that holds the surprise of the text at a target (Basu et al.,
 * "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", 2020).
 *
 * The state mu moves when a drawn token is accepted, not when it is drawn, so that drawing twice
 * gives the same token twice. */
#include "engine/sampler_impl.h"

#include "base/dmath.h"

#include <math.h>

enum { N_FIT = 100 }; /* the paper's m: tokens that the Zipf exponent is fitted to */

static const double LN2 = 0x1.62e42fefa39efp-1;

/* The exponent of the rank-probability law, by least squares over the best N_FIT tokens. */
static double zipf_exponent(struct lode_sampler *s) {
    double best[N_FIT];
    size_t n = 0;
    lode_sampler_keys_by_logit(s);
    const uint64_t last = lode_select_key(s->key, NULL, s->n, N_FIT, 0);
    for (size_t i = 0; i < s->n; i++) {
        if (s->key[i] > last)
            continue;
        size_t j = n++;
        for (; j > 0 && best[j - 1] < s->cand[i].logit; j--)
            best[j] = best[j - 1];
        best[j] = s->cand[i].logit;
    }
    double products = 0, squares = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        const double t = lode_log((double)(i + 2) / (double)(i + 1));
        products += t * (best[i] - best[i + 1]); /* log of the ratio of their probabilities */
        squares += t * t;
    }
    return squares > 0 ? products / squares : 1;
}

/* Version 1: as many tokens as the fitted law says hold a surprise of mu. */
static void keep_by_law(struct lode_sampler *s) {
    const double exponent = zipf_exponent(s), eps = exponent - 1;
    const double k = lode_pow(
        eps * lode_exp(s->mu * LN2) / (1 - lode_pow((double)s->n_vocab, -eps)), 1 / exponent);
    if (!(k < (double)s->n)) /* a flat law gives infinity or NaN: no bound */
        return;
    lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, k >= 1 ? (size_t)k : 1, 0));
}

/* Version 2: the tokens whose surprise is at most mu. */
static void keep_by_surprise(struct lode_sampler *s) {
    const double sum = lode_sampler_softmax(s);
    const double least = lode_sampler_max(s) + lode_log(sum) - s->mu * LN2;
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        kept += s->cand[i].logit >= least;
    lode_sampler_keys_by_logit(s);
    lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, kept > 0 ? kept : 1, 0));
}

size_t lode_mirostat_pick(struct lode_sampler *s, double u) {
    if (s->o.mirostat == 1)
        keep_by_law(s);
    else
        keep_by_surprise(s);
    const double sum = lode_sampler_softmax(s);
    const size_t i = lode_sampler_pick(s, sum, u);
    s->surprise = (lode_log(sum) - lode_log(s->weight[i])) / LN2;
    s->surprised = true;
    return i;
}
