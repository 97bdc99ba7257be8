/* draw_body.h - the draw of draw.h, once for every processor: an including file has defined DRAW, what stands
 * before a function there, DRAW_LANE and DRAW_LANES, which of how many threads that share a draw this one is,
 * and DRAW_MEET(), where they wait for each other and see what was written; and has included draw.h, float.h
 * and dmath.h's functions. */

/* Where each candidate stands in the order of ids. */
DRAW void draw_sort(struct lode_draw_room *r) {
    for (uint32_t i = DRAW_LANE; i < r->n; i += DRAW_LANES) {
        uint32_t before = 0;
        for (uint32_t k = 0; k < r->n; k++)
            before += r->id[k] < r->id[i];
        r->by_id[before] = i;
    }
    DRAW_MEET();
}

/* Weights of the first n of n_all; their sum, which each adds up for itself, so that nobody has to wait. */
DRAW double draw_weigh(struct lode_draw_room *r, uint32_t n, uint32_t n_all) {
    for (uint32_t i = DRAW_LANE; i < n; i += DRAW_LANES)
        r->weight[i] = lode_exp((double)r->logit[i] - (double)r->logit[0]);
    DRAW_MEET();
    double sum = 0;
    for (uint32_t j = 0; j < n_all; j++)
        if (r->by_id[j] < n)
            sum += r->weight[r->by_id[j]];
    return sum;
}

/* How many of the first n stay.  They are those with the largest logits, whatever the filter. */
DRAW uint32_t draw_filter(const struct lode_draw *d, const struct lode_draw_filter *f, struct lode_draw_room *r,
                          uint32_t n, uint32_t n_all) {
    uint32_t kept = 0;
    double sum = 0, mass;
    switch (f->kind) {
    case LODE_DRAW_TOP_K:
        kept = f->by > (double)d->least ? (uint32_t)f->by : d->least;
        return kept < n ? kept : n;
    case LODE_DRAW_TOP_P:
        mass = f->by * draw_weigh(r, n, n_all);
        for (; kept < n && (kept < d->least || !(sum >= mass)); kept++)
            sum += r->weight[kept];
        DRAW_MEET(); /* before weights are others */
        return kept;
    default:
        while (kept < n && (double)r->logit[kept] >= (double)r->logit[0] + f->by)
            kept++;
        kept = kept > d->least ? kept : d->least;
        return kept < n ? kept : n;
    }
}

/* The place of the first n that `target`, a part of the sum of weights, falls on. */
DRAW uint32_t draw_pick(const struct lode_draw_room *r, uint32_t n, uint32_t n_all, double target) {
    double below = 0;
    uint32_t last = 0; /* where rounding leaves target at the sum */
    bool any = false;
    for (uint32_t j = 0; j < n_all; j++) {
        const uint32_t i = r->by_id[j];
        if (i >= n)
            continue;
        last = any ? last : i;
        any = true;
        if (r->weight[i] <= 0)
            continue;
        below += r->weight[i];
        if (target < below)
            return i;
        last = i;
    }
    return last;
}

DRAW int32_t draw_few(const struct lode_draw *d, struct lode_draw_room *r) {
    const uint32_t n_all = r->n;
    uint32_t n = n_all;
    if (n_all == 0)
        return 0;
    if (d->n == 1)
        return r->id[0];
    draw_sort(r);
    for (uint32_t i = 0; i < d->n_filters; i++)
        n = draw_filter(d, &d->filters[i], r, n, n_all);
    for (uint32_t i = DRAW_LANE; i < n; i += DRAW_LANES) {
        const double x = (double)r->logit[i] / d->temp;
        r->logit[i] = x > (double)FLT_MAX ? FLT_MAX : x < -(double)FLT_MAX ? -FLT_MAX : (float)x;
    }
    DRAW_MEET();
    const double sum = draw_weigh(r, n, n_all);
    return r->id[draw_pick(r, n, n_all, d->u * sum)];
}
