#include "model/rope.h"

#include "base/dmath.h"

#include <math.h>

static const double PI = 0x1.921fb54442d18p+1;

/* YaRN's find_correction_dim: the pair that turns `turns` times over the original context. */
static double correction_dim(const struct lode_rope_spec *s, double turns) {
    return s->n_pairs * lode_log(s->ctx_orig / (turns * 2 * PI)) / lode_log(s->theta);
}

static double clamp(double x, double low, double high) {
    return x < low ? low : x > high ? high : x;
}

static void fill_yarn(struct lode_rope *rope, const struct lode_rope_spec *s) {
    const double last = 2.0 * s->n_pairs - 1;
    const double fast = correction_dim(s, s->beta_fast), slow = correction_dim(s, s->beta_slow);
    const double low = clamp(s->exact_ramp ? fast : floor(fast), 0, last);
    double high = clamp(s->exact_ramp ? slow : ceil(slow), 0, last);
    if (high <= low)
        high = low + 0.001;
    for (uint32_t i = 0; i < s->n_pairs; i++) {
        const double ramp = clamp((i - low) / (high - low), 0, 1);
        rope->freq[i] = rope->freq[i] / s->factor * ramp + rope->freq[i] * (1 - ramp);
    }
    rope->scale = (s->attn_factor > 0 ? s->attn_factor : 1.0) * (1 + 0.1 * lode_log(s->factor));
}

static double long_scale(const struct lode_rope_spec *s) {
    if (s->attn_factor > 0)
        return s->attn_factor;
    const double stretch = (double)s->ctx_train / s->ctx_orig;
    return stretch > 1 ? sqrt(1 + lode_log(stretch) / lode_log(s->ctx_orig)) : 1;
}

void lode_rope_fill(struct lode_rope *rope, const struct lode_rope_spec *s, uint32_t ctx) {
    rope->n_pairs = s->n_pairs;
    rope->scale = 1;
    for (uint32_t i = 0; i < s->n_pairs; i++)
        rope->freq[i] = lode_pow(s->theta, -(double)i / s->n_pairs);
    const float *divisors = s->divisors;
    switch (s->scaling) {
    case LODE_ROPE_PLAIN:
        break;
    case LODE_ROPE_LINEAR:
        for (uint32_t i = 0; i < s->n_pairs; i++)
            rope->freq[i] /= s->factor;
        break;
    case LODE_ROPE_YARN:
        fill_yarn(rope, s);
        break;
    case LODE_ROPE_LONG:
        divisors = ctx > s->ctx_orig ? s->longer : s->shorter;
        rope->scale = long_scale(s);
        break;
    }
    for (uint32_t i = 0; divisors && i < s->n_pairs; i++)
        rope->freq[i] /= divisors[i];
}
