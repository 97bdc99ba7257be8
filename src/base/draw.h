/* draw.h - a draw among few candidates, of which the usual filters may drop some: what the processor that has
 * the logits can do by itself.
 *
 * The same draw as that of a sampler (engine/sampler.c), to the bit: sums in the order of ids, ties to the
 * smaller id.  draw_body.h has it, once for every processor.
 */
#ifndef LODE_BASE_DRAW_H
#define LODE_BASE_DRAW_H

#include <stdint.h>

enum {
    LODE_DRAW_MOST = 48, /* candidates; no more than select_few (engine/sampler_select.c) adds up in their order */
    LODE_DRAW_FILTERS = 4,
};

enum lode_draw_kind {
    LODE_DRAW_TOP_K, /* the best `by` */
    LODE_DRAW_TOP_P, /* the fewest best that have `by` of the mass */
    LODE_DRAW_MIN_P, /* logits no lower than the largest plus `by` */
};

struct lode_draw_filter {
    double by;
    uint32_t kind, pad;
};

struct lode_draw {
    double u, temp; /* u: in [0, 1); temp: not 0 */
    uint32_t n;     /* of the largest logits that are looked at; 1: the likeliest it is */
    uint32_t least; /* that each filter leaves; at least 1 */
    uint32_t n_filters, pad;
    struct lode_draw_filter filters[LODE_DRAW_FILTERS]; /* in their order; then the temperature */
};

/* The candidates, the best first; in memory that all who share a draw can see. */
struct lode_draw_room {
    float logit[LODE_DRAW_MOST];
    int32_t id[LODE_DRAW_MOST];
    double weight[LODE_DRAW_MOST];
    uint32_t by_id[LODE_DRAW_MOST]; /* places in the order of ids */
    uint32_t n;                     /* 0: there are none */
};

/* The id that is drawn; 0 where there is no candidate.  room: logit, id and n are set. */
int32_t lode_draw_few(const struct lode_draw *d, struct lode_draw_room *room);

#endif
