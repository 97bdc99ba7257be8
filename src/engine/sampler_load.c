/* sampler_load.c - the candidates that a draw begins with.
 *
 * Most draws want few of them: the likeliest, or the best k.  So the row is read in blocks of 64 by
 * their maximum, and what lies below the k-th best so far is not looked at.  Whatever is left out
 * could not have stayed, so the draw is the same as from all candidates.
 */
#include "engine/sampler_impl.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 64, SOME = 128 };

static uint64_t fewer(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* How many tokens penalties and DRY may change, all of them for the worse; UINT32_MAX: unknown. */
static uint64_t lowered_by(const struct lode_sampler *s, lode_sampler_step *step) {
    const struct lode_sampler_opts *o = &s->o;
    if (step == lode_step_dry)
        return fewer(s->n_seen, s->dry_window);
    if (!s->count)
        return 0;
    if (o->repeat_penalty < 1 || o->presence_penalty < 0 || o->frequency_penalty < 0)
        return UINT32_MAX;
    return o->repeat_last_n > 0 ? fewer(s->n_seen, (uint64_t)o->repeat_last_n) : s->n_seen;
}

bool lode_sampler_is_idle(const struct lode_sampler *s, lode_sampler_step *step) {
    const struct lode_sampler_opts *o = &s->o;
    return (step == lode_step_top_n_sigma && o->top_n_sigma <= 0) ||
           (step == lode_step_top_k && o->top_k <= 0) ||
           (step == lode_step_typ_p && o->typical_p >= 1) ||
           (step == lode_step_top_p && o->top_p >= 1) || (step == lode_step_min_p && o->min_p <= 0) ||
           (step == lode_step_xtc && o->xtc_probability <= 0);
}

/* How many of the best the draw can come to want: of those that a step lowers, each may have to be
 * replaced by one that was behind it. */
static uint64_t wanted(const struct lode_sampler *s, bool greedy) {
    uint64_t lowered = 0;
    if (s->o.mirostat && !greedy)
        return s->n_vocab;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        lode_sampler_step *step = s->steps[i];
        if (step == lode_step_penalties || step == lode_step_dry)
            lowered += lowered_by(s, step);
        else if (greedy || lode_sampler_is_idle(s, step))
            continue;
        else if (step == lode_step_top_k)
            return (uint64_t)(s->o.top_k > s->o.min_keep ? s->o.top_k : s->o.min_keep) + lowered;
        else
            return s->n_vocab;
    }
    return greedy ? 1 + lowered : s->n_vocab;
}

/* How many tokens biases lower; UINT32_MAX: they may lift some, or tell +infinity, which the largest float
 * stands for, from it. */
static uint64_t lowered_by_bias(const struct lode_sampler *s) {
    for (size_t i = 0; i < s->o.n_bias; i++) {
        const float b = s->o.bias[i].bias;
        if (!(b <= 0 && (b >= -1e28f || b == -INFINITY)))
            return UINT32_MAX;
    }
    return s->o.n_bias;
}

uint32_t lode_sampler_wants(const struct lode_sampler *s) {
    const uint64_t n = wanted(s, lode_sampler_is_greedy(s)) + lowered_by_bias(s);
    return n <= LODE_BEST_MAX && n < s->n_vocab ? (uint32_t)n : 0;
}

void lode_sampler_load_best(struct lode_sampler *s, const struct lode_best *best, size_t n) {
    s->n = 0;
    for (size_t i = 0; i < n; i++) {
        size_t at = s->n;
        float x = best[i].logit;
        if (best[i].id < 0 || (uint32_t)best[i].id >= s->n_vocab || s->n == s->n_vocab)
            continue;
        for (size_t k = 0; k < s->o.n_bias; k++)
            x += s->o.bias[k].id == best[i].id ? s->o.bias[k].bias : 0;
        if (!(x > -INFINITY))
            continue;
        while (at > 0 && s->cand[at - 1].id > best[i].id)
            at--;
        if (at > 0 && s->cand[at - 1].id == best[i].id)
            continue; /* a device that fails may say anything; keys must be distinct */
        memmove(&s->cand[at + 1], &s->cand[at], (s->n - at) * sizeof *s->cand);
        s->cand[at] = (struct lode_cand){x < FLT_MAX ? x : FLT_MAX, best[i].id};
        s->n++;
    }
}

float lode_max_64(const float *x) {
    float lane[16], most = -INFINITY;
    for (int k = 0; k < 16; k++)
        lane[k] = -INFINITY; /* no lane is ever a NaN, which would hide what comes after */
    for (int i = 0; i < BLOCK; i += 16)
        for (int k = 0; k < 16; k++)
            lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
    for (int k = 0; k < 16; k++)
        most = lane[k] > most ? lane[k] : most;
    return most;
}

/* Leaves the best `most`; the least of their logits. */
static float cut(struct lode_sampler *s, size_t most) {
    float least = FLT_MAX;
    lode_sampler_keys_by_logit(s);
    lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, most, 0));
    for (size_t i = 0; i < s->n; i++)
        least = s->cand[i].logit < least ? s->cand[i].logit : least;
    return least;
}

/* Ids from `from` on, up to the end of their block; those below `least` may be left out. */
static void load_block(struct lode_sampler *s, const float *logits, uint64_t allowed, uint32_t from,
                       const struct lode_logit_bias **bias, float least) {
    const struct lode_logit_bias *end = s->o.bias + s->o.n_bias;
    const uint32_t to = s->n_vocab - from < BLOCK ? s->n_vocab : from + BLOCK;
    size_t n = s->n;
    for (uint32_t i = from; i < to; i++) {
        float x = logits[i];
        for (; *bias < end && (uint32_t)(*bias)->id == i; (*bias)++)
            x += (*bias)->bias;
        s->cand[n] = (struct lode_cand){x < FLT_MAX ? x : FLT_MAX, (int32_t)i};
        n += x >= least && x > -INFINITY && (allowed >> i % BLOCK & 1); /* false for NaN */
    }
    s->n = n;
}

void lode_sampler_load(struct lode_sampler *s, const float *logits, const uint64_t *mask, bool greedy) {
    const struct lode_logit_bias *bias = s->o.bias, *end = bias + s->o.n_bias;
    const uint64_t want = wanted(s, greedy), room = 4 * want + SOME;
    float least = -INFINITY;
    s->n = 0;
    for (uint32_t from = 0; from < s->n_vocab; from += BLOCK) {
        const uint64_t allowed = mask ? mask[from / BLOCK] : UINT64_MAX;
        const bool biased = bias < end && (uint32_t)bias->id < from + BLOCK;
        if (!biased && (!allowed || (least > -INFINITY && s->n_vocab - from >= BLOCK &&
                                     lode_max_64(logits + from) < least)))
            continue;
        load_block(s, logits, allowed, from, &bias, least);
        if (s->n + BLOCK > room)
            least = cut(s, (size_t)want);
    }
}
