/* trace_synth.c - route traces of no model: skewed, drifting, with a memory of one token. */
#include "store/trace.h"

#include "base/alloc.h"
#include "base/dmath.h"
#include "base/error.h"
#include "base/rng.h"

#include <stdlib.h>

struct synth {
    const struct lode_trace_synth *how;
    struct lode_trace *t;
    uint32_t *ranked; /* owned; (n_layers, n_experts): the expert of each rank */
    double *up_to;    /* owned; (n_experts): chance of a rank or a better one */
    bool *taken;      /* owned; (n_experts) */
    uint64_t drawn;
};

static double draw(struct synth *s) { return lode_rng_uniform(s->how->seed, s->drawn++, 0); }

static uint32_t below(struct synth *s, uint32_t n) { return (uint32_t)(draw(s) * n); }

/* The first rank whose sum of chances is above x. */
static uint32_t rank_at(const struct synth *s, double x) {
    uint32_t low = 0, high = s->how->n_experts - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->up_to[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int ascending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void drift(struct synth *s) {
    const struct lode_trace_synth *how = s->how;
    for (uint32_t l = 0; l < how->n_layers; l++) {
        const double wanted = how->drift * how->n_experts;
        uint32_t n = (uint32_t)wanted;
        n += draw(s) < wanted - n;
        uint32_t *ranked = s->ranked + (size_t)l * how->n_experts;
        while (n-- > 0) {
            const uint32_t a = below(s, how->n_experts), b = below(s, how->n_experts);
            const uint32_t e = ranked[a];
            ranked[a] = ranked[b];
            ranked[b] = e;
        }
    }
}

static void route(struct synth *s, uint32_t pos, uint32_t l) {
    const struct lode_trace_synth *how = s->how;
    uint32_t ids[LODE_TRACE_MAX_USED];
    float weights[LODE_TRACE_MAX_USED];
    const uint16_t *before = pos ? lode_trace_experts(s->t, pos - 1, l) : NULL;
    for (uint32_t k = 0; k < how->n_used; k++) {
        uint32_t e = 0;
        for (int turn = 0; turn == 0 || (s->taken[e] && turn < 16); turn++)
            e = before && draw(s) < how->repeat
                    ? before[below(s, how->n_used)]
                    : s->ranked[(size_t)l * how->n_experts + rank_at(s, draw(s))];
        while (s->taken[e]) /* however steep the law is, it ends */
            e = (e + 1) % how->n_experts;
        s->taken[e] = true;
        ids[k] = e;
        weights[k] = 1.0f / (float)how->n_used;
    }
    qsort(ids, how->n_used, sizeof *ids, ascending);
    for (uint32_t k = 0; k < how->n_used; k++)
        s->taken[ids[k]] = false;
    lode_trace_put(s->t, l, pos, ids, weights, how->n_used);
}

static void rank(struct synth *s) {
    const struct lode_trace_synth *how = s->how;
    double sum = 0;
    for (uint32_t r = 0; r < how->n_experts; r++)
        sum += s->up_to[r] = lode_pow(r + 1, -how->zipf);
    for (uint32_t r = 0; r < how->n_experts; r++)
        s->up_to[r] = s->up_to[r] / sum + (r ? s->up_to[r - 1] : 0);
    for (uint32_t l = 0; l < how->n_layers; l++) {
        uint32_t *ranked = s->ranked + (size_t)l * how->n_experts;
        for (uint32_t e = 0; e < how->n_experts; e++) { /* a random order (Fisher, Yates) */
            const uint32_t at = below(s, e + 1);
            ranked[e] = ranked[at];
            ranked[at] = e;
        }
    }
}

static int synthesise(struct synth *s, struct lode_error *err) {
    const struct lode_trace_synth *how = s->how;
    s->ranked = LODE_NEW_ARRAY(uint32_t, (size_t)how->n_layers * how->n_experts);
    s->up_to = LODE_NEW_ARRAY(double, how->n_experts);
    s->taken = LODE_NEW_ARRAY(bool, how->n_experts);
    if (!s->ranked || !s->up_to || !s->taken)
        return lode_fail_nomem(err, "route trace");
    rank(s);
    for (size_t i = 0; i < how->n_tokens; i++, drift(s))
        for (uint32_t l = 0; l < how->n_layers; l++)
            route(s, (uint32_t)i, l);
    return 0;
}

int lode_trace_synthesise(struct lode_trace **out, const struct lode_trace_synth *how,
                          struct lode_error *err) {
    *out = NULL;
    if (how->n_layers > LODE_TRACE_MAX_LAYERS || how->n_used > LODE_TRACE_MAX_USED ||
        how->n_experts < how->n_used || how->n_experts > LODE_TRACE_MAX_EXPERTS)
        return lode_fail(err, LODE_ERR_ARG, "synthetic trace",
                         "%u layers, %u experts, %u used: at most %d, %d and %d, and no more used "
                         "than there are",
                         how->n_layers, how->n_experts, how->n_used, (int)LODE_TRACE_MAX_LAYERS,
                         (int)LODE_TRACE_MAX_EXPERTS, (int)LODE_TRACE_MAX_USED);
    uint64_t *bytes = LODE_NEW_ARRAY(uint64_t, how->n_layers);
    if (!bytes)
        return lode_fail_nomem(err, "route trace");
    for (uint32_t l = 0; l < how->n_layers; l++)
        bytes[l] = how->expert_bytes;
    struct synth s = {.how = how};
    int rc = lode_trace_create(&s.t,
                               &(struct lode_trace_shape){.n_layers = how->n_layers,
                                                          .n_experts = how->n_experts,
                                                          .n_used = how->n_used,
                                                          .expert_bytes = bytes,
                                                          .name = "synthetic"},
                               how->n_tokens, err);
    lode_free(bytes);
    rc = rc < 0 ? rc : synthesise(&s, err);
    lode_free(s.ranked);
    lode_free(s.up_to);
    lode_free(s.taken);
    if (rc < 0)
        lode_trace_free(s.t);
    else
        *out = s.t;
    return rc;
}
