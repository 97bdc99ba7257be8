/* logprob.c - log-probabilities and argmax of a row of logits.  NaN counts as -infinity. */
#include "base/dmath.h"
#include "engine/sampler_impl.h"

#include <math.h>

int32_t lode_argmax(const float *logits, uint32_t n_vocab) {
    uint32_t best = 0;
    float max = -INFINITY;
    for (uint32_t i = 0; i < n_vocab; i++) {
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    }
    return (int32_t)best;
}

static float usable(float x) {
    return isnan(x) ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
}

/* log of the sum of exp(logits); -infinity where every logit is. */
static double log_sum_exp(const float *logits, uint32_t n_vocab) {
    if (n_vocab == 0)
        return -INFINITY;
    const double max = usable(logits[lode_argmax(logits, n_vocab)]);
    if (max == -INFINITY)
        return -INFINITY;
    double sum = 0;
    for (uint32_t i = 0; i < n_vocab; i++)
        sum += lode_exp((double)usable(logits[i]) - max);
    return max + lode_log(sum);
}

static float logprob(float logit, double log_sum) {
    return logit > -INFINITY ? (float)((double)usable(logit) - log_sum) : -INFINITY;
}

float lode_logprob_of(const float *logits, uint32_t n_vocab, int32_t id) {
    if (id < 0 || (uint32_t)id >= n_vocab)
        return -INFINITY;
    return logprob(logits[id], log_sum_exp(logits, n_vocab));
}

static bool worse(struct lode_logprob a, struct lode_logprob b) {
    return a.logprob < b.logprob || (a.logprob == b.logprob && a.id > b.id);
}

/* Restores the heap (the worst on top) of n below at. */
static void sift_down(struct lode_logprob *heap, size_t n, size_t at) {
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && worse(heap[child + 1], heap[child]))
            child++;
        if (!worse(heap[child], heap[at]))
            return;
        const struct lode_logprob t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

size_t lode_logprob_top(const float *logits, uint32_t n_vocab, struct lode_logprob *out, size_t n) {
    if (n > n_vocab)
        n = n_vocab;
    if (n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        out[i] = (struct lode_logprob){(int32_t)i, usable(logits[i])};
    for (size_t i = n / 2; i-- > 0;)
        sift_down(out, n, i);
    for (size_t i = n; i < n_vocab; i++) {
        const struct lode_logprob x = {(int32_t)i, usable(logits[i])};
        if (!worse(out[0], x))
            continue;
        out[0] = x;
        sift_down(out, n, 0);
    }
    for (size_t left = n; left-- > 1;) { /* the worst goes behind the rest */
        const struct lode_logprob t = out[0];
        out[0] = out[left];
        out[left] = t;
        sift_down(out, left, 0);
    }
    const double log_sum = log_sum_exp(logits, n_vocab);
    for (size_t i = 0; i < n; i++)
        out[i].logprob = logprob(out[i].logprob, log_sum);
    return n;
}
