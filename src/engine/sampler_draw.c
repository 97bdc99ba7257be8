/* sampler_draw.c - draws that need nothing but a few of the largest logits, as base/draw.h describes them. */
#include "engine/sampler_impl.h"

#include "base/dmath.h"
#include "base/rng.h"

double lode_sampler_uniform(const struct lode_sampler *s, uint64_t position) {
    return lode_rng_uniform(s->o.seed, position, 0);
}

static bool add_filter(struct lode_draw *d, enum lode_draw_kind kind, double by) {
    if (d->n_filters == LODE_DRAW_FILTERS)
        return false;
    d->filters[d->n_filters++] = (struct lode_draw_filter){.kind = (uint32_t)kind, .by = by};
    return true;
}

/* The steps that are at work, in their order; false: there is another one, or one after the temperature, which
 * may make equal what was not. */
static bool add_filters(const struct lode_sampler *s, struct lode_draw *d) {
    bool last = false;
    for (uint32_t i = 0; i < s->n_steps; i++) {
        lode_sampler_step *step = s->steps[i];
        if (step == lode_step_penalties || step == lode_step_dry || lode_sampler_is_idle(s, step))
            continue;
        if (last)
            return false;
        last = step == lode_step_temperature;
        if (last)
            d->temp = (double)s->o.temp;
        else if (!(step == lode_step_top_k   ? add_filter(d, LODE_DRAW_TOP_K, (double)s->o.top_k)
                   : step == lode_step_top_p ? add_filter(d, LODE_DRAW_TOP_P, (double)s->o.top_p)
                   : step == lode_step_min_p ? add_filter(d, LODE_DRAW_MIN_P, lode_log((double)s->o.min_p))
                                             : false))
            return false;
    }
    return true;
}

bool lode_sampler_draw(const struct lode_sampler *s, struct lode_draw *d) {
    const bool greedy = lode_sampler_is_greedy(s);
    *d = (struct lode_draw){.temp = 1, .least = s->o.min_keep > 1 ? (uint32_t)s->o.min_keep : 1};
    if (s->o.n_bias || s->count || s->dry_window || (!greedy && (s->o.mirostat || s->o.dynatemp_range > 0)))
        return false;
    d->n = lode_sampler_wants(s);
    return d->n && d->n <= LODE_DRAW_MOST && (greedy || add_filters(s, d));
}
