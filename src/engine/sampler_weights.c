/* sampler_weights.c - steps that change logits: penalties, DRY, temperature. */
#include "engine/sampler_impl.h"

#include "base/dmath.h"

#include <string.h>

/* Repetition (Keskar et al., "CTRL", 2019), frequency and presence (OpenAI) penalties.  A token
 * seen c times within the last repeat_last_n: its logit is divided by the repetition penalty, or
 * multiplied where negative, then loses c * frequency + presence. */
void lode_step_penalties(struct lode_sampler *s) {
    if (!s->count)
        return;
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t seen = s->count[s->cand[i].id];
        if (!seen)
            continue;
        double x = s->cand[i].logit;
        x = x > 0 ? x / (double)s->o.repeat_penalty : x * (double)s->o.repeat_penalty;
        x -= (double)seen * (double)s->o.frequency_penalty + (double)s->o.presence_penalty;
        s->cand[i].logit = lode_finite(x);
    }
}

/* The first breaker, in their order, that does not begin with a smaller id. */
static size_t first_breaker(const struct lode_sampler *s, int32_t id) {
    size_t lo = 0, hi = s->o.n_dry_breakers;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->breakers[mid].ids[0] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* How many tokens at the end of the history follow its last breaker: a repetition that spans a
 * breaker does not count.  recent is newest first. */
static uint32_t tokens_since_breaker(const struct lode_sampler *s, uint32_t n) {
    const size_t n_breakers = s->o.n_dry_breakers;
    for (uint32_t at = 0; at < n && n_breakers; at++) { /* where a breaker might begin */
        size_t lo = first_breaker(s, s->dry_recent[at]);
        uint32_t longest = 0;
        for (; lo < n_breakers && s->breakers[lo].ids[0] == s->dry_recent[at]; lo++) {
            const struct lode_breaker *b = &s->breakers[lo];
            uint32_t same = 1;
            while (same < b->len && same <= at && b->ids[same] == s->dry_recent[at - same])
                same++;
            if (same == b->len && same > longest)
                longest = same;
        }
        if (longest)
            return at + 1 - longest;
    }
    return n;
}

/* match[i] = how many tokens recent[i..] shares with recent[0..], by the Z algorithm: O(n). */
static void match_with_start(const int32_t *recent, uint32_t n, uint32_t *match) {
    uint32_t left = 0, right = 0; /* [left, right): the match that reaches furthest */
    match[0] = n;
    for (uint32_t i = 1; i < n; i++) {
        uint32_t m = 0;
        if (i < right)
            m = match[i - left] < right - i ? match[i - left] : right - i;
        while (i + m < n && recent[m] == recent[i + m])
            m++;
        match[i] = m;
        if (i + m > right) {
            left = i;
            right = i + m;
        }
    }
}

static bool is_breaker(const struct lode_sampler *s, int32_t id) {
    for (size_t i = first_breaker(s, id); i < s->o.n_dry_breakers && s->breakers[i].ids[0] == id;
         i++)
        if (s->breakers[i].len == 1)
            return true;
    return false;
}

/* DRY (p-e-w, text-generation-webui #5677): a token that would extend a repetition of m tokens
 * already in the history, m >= allowed_length, loses multiplier * base^(m - allowed_length). */
void lode_step_dry(struct lode_sampler *s) {
    const uint32_t n = s->n_seen < s->dry_window ? (uint32_t)s->n_seen : s->dry_window;
    const uint32_t allowed = (uint32_t)s->o.dry_allowed_length;
    if (n < 2 || n <= allowed)
        return;
    for (uint32_t i = 0; i < n; i++)
        s->dry_recent[i] = s->ring[(s->n_seen - 1 - i) % s->ring_size];
    const uint32_t limit = tokens_since_breaker(s, n);
    if (limit < allowed)
        return;
    match_with_start(s->dry_recent, n, s->dry_match);
    for (uint32_t i = 1; i < n; i++) {
        const uint32_t m = s->dry_match[i] < limit ? s->dry_match[i] : limit;
        uint32_t *longest = &s->dry_longest[s->dry_recent[i - 1]]; /* what came after it then */
        if (m >= allowed && m + 1 > *longest)
            *longest = m + 1; /* 0: none */
    }
    for (size_t i = 0; i < s->n; i++) {
        const uint32_t longest = s->dry_longest[s->cand[i].id];
        if (!longest || is_breaker(s, s->cand[i].id))
            continue;
        const double power = lode_pow((double)s->o.dry_base, (double)(longest - 1 - allowed));
        s->cand[i].logit =
            lode_finite(s->cand[i].logit - lode_finite((double)s->o.dry_multiplier * power));
    }
    for (uint32_t i = 0; i < n; i++)
        s->dry_longest[s->dry_recent[i]] = 0;
}

/* Dynamic temperature: between temp - range and temp + range by the normalised entropy. */
static double dynamic_temperature(struct lode_sampler *s) {
    const double range = s->o.dynatemp_range, temp = s->o.temp;
    if (range <= 0 || s->n < 2)
        return temp;
    const double sum = lode_sampler_softmax(s), log_sum = lode_log(sum);
    const float max = lode_sampler_max(s);
    double entropy = 0;
    for (size_t i = 0; i < s->n; i++)
        entropy += s->weight[i] / sum * (log_sum - ((double)s->cand[i].logit - max));
    double share = entropy / lode_log((double)s->n);
    share = share > 1 ? 1 : share < 0 ? 0 : share; /* rounding */
    const double low = temp > range ? temp - range : 0, high = temp + range;
    const double power = share > 0 ? lode_pow(share, (double)s->o.dynatemp_exponent)
                                   : (s->o.dynatemp_exponent > 0 ? 0 : 1);
    return low + (high - low) * power;
}

void lode_step_temperature(struct lode_sampler *s) {
    const double temp = dynamic_temperature(s);
    if (temp < LODE_SAMPLER_COLD) { /* only dynamic temperature gets here: the best one stays */
        lode_sampler_keys_by_logit(s);
        lode_sampler_keep(s, lode_select_key(s->key, NULL, s->n, 1, 0));
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        s->cand[i].logit = lode_finite(s->cand[i].logit / temp);
}
