/* trace.h - route traces, for those who walk them; the public half is lode/trace.h. */
#ifndef LODE_STORE_TRACE_H
#define LODE_STORE_TRACE_H

#include "lode/trace.h"

enum { LODE_TRACE_MAX_LAYERS = 4096, LODE_TRACE_MAX_EXPERTS = 65536, LODE_TRACE_MAX_USED = 256 };

struct lode_trace {
    struct lode_trace_shape shape; /* its arrays are owned */
    char *name;                    /* owned, as the next five */
    uint64_t *expert_bytes;        /* (n_layers) */
    uint32_t *slot;                /* (n_layers): place among those with experts, or UINT32_MAX */
    uint32_t *pos;                 /* (n_tokens) */
    uint16_t *experts;             /* (n_tokens, n_moe, n_used), ascending */
    float *weights;                /* as experts */
    size_t n_tokens, first; /* first: token of position 0, while recording */
    uint32_t n_moe; /* layers that have experts */
};

static inline const uint16_t *lode_trace_experts(const struct lode_trace *t, size_t token,
                                                 uint32_t i_moe) {
    return t->experts + (token * t->n_moe + i_moe) * t->shape.n_used;
}

#endif
