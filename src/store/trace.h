/* trace.h - route traces, for those who walk them; the public half is lode/trace.h. */
#ifndef LODE_STORE_TRACE_H
#define LODE_STORE_TRACE_H

#include "lode/trace.h"

enum { LODE_TRACE_MAX_LAYERS = 4096, LODE_TRACE_MAX_EXPERTS = 65535, LODE_TRACE_MAX_USED = 256 };

#define LODE_TRACE_NO_GUESS UINT16_MAX /* in place of each expert of a guess that was not made */

/* The two guesses of a layer's choice, in the order in which they are made. */
enum lode_trace_when { LODE_TRACE_EARLY, LODE_TRACE_LATE, LODE_TRACE_WHENS };

struct lode_trace {
    struct lode_trace_shape shape; /* its arrays are owned */
    char *name;                    /* owned, as the next seven */
    uint64_t *expert_bytes;        /* (n_layers) */
    uint64_t *moe_bytes;           /* (n_moe): the same of those with experts alone */
    uint32_t *slot;                /* (n_layers): place among those with experts, or UINT32_MAX */
    uint32_t *pos;                 /* (n_tokens) */
    uint16_t *experts;             /* (n_tokens, n_moe, n_used), ascending */
    float *weights;                /* as experts */
    uint16_t *guesses;             /* (n_tokens, n_moe, LODE_TRACE_WHENS, n_used), the surest first; NULL: none */
    size_t n_tokens, first; /* first: token of position 0, while recording */
    uint32_t n_moe; /* layers that have experts */
    bool summed;    /* false: read from a file that has no checksum */
};

static inline const uint16_t *lode_trace_experts(const struct lode_trace *t, size_t token,
                                                 uint32_t i_moe) {
    return t->experts + (token * t->n_moe + i_moe) * t->shape.n_used;
}

/* (n_used), the surest first; NULL: it was not made. */
static inline const uint16_t *lode_trace_guess(const struct lode_trace *t, size_t token, uint32_t i_moe,
                                               enum lode_trace_when when) {
    const uint16_t *g =
        t->guesses ? t->guesses + ((token * t->n_moe + i_moe) * LODE_TRACE_WHENS + when) * t->shape.n_used : NULL;
    return g && *g != LODE_TRACE_NO_GUESS ? g : NULL;
}

#endif
