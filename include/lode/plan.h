/* plan.h - what a session will use and do, before it exists.
 *
 * The same counting decides inside lode_session_create whether a session fits; this is how a
 * program shows it.
 */
#ifndef LODE_PLAN_H
#define LODE_PLAN_H

#include "lode/session.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lode_memory_plan { /* bytes */
    uint64_t weights;     /* as they lie; pages of the mapped file, given back under pressure */
    uint64_t repacked;    /* copies of weights in another layout, or read instead of mapped */
    uint64_t kv;          /* for the whole context; touched as the timeline grows */
    uint64_t state;       /* of recurrent layers, with checkpoints; the same for every context */
    uint64_t state_token; /* read and written of it for each token that is generated */
    uint64_t work;        /* buffers for steps */
    uint64_t available;   /* what the machine and the cgroup have left for kv + state + work */
    uint32_t ctx;         /* the context these numbers are for */
    bool fits;
};

/* opts as for lode_session_create (NULL: defaults).  With ctx 0 the plan is for the model's
 * trained context or, where memory does not hold that, the largest that fits.  A plan that does not
 * fit is no error: fits says so. */
LODE_API int lode_plan_memory(const struct lode_model *m, const struct lode_session_opts *opts,
                              struct lode_memory_plan *out, struct lode_error *err);

struct lode_plan_step {
    const char *op;        /* "LINEAR", ... */
    const char *gradient;  /* how its derivative is formed, in words */
    uint32_t n_outputs;    /* products that run as one */
    uint64_t weight_bytes; /* read once per step */
    uint64_t row_bytes;    /* read and written for each row */
    uint64_t row_flops;    /* for each row; attention: per position seen */
};

/* The instructions of one step, in order; i < lode_plan_n_steps. */
LODE_API size_t lode_plan_n_steps(const struct lode_model *m);
LODE_API struct lode_plan_step lode_plan_step(const struct lode_model *m, size_t i);

#ifdef __cplusplus
}
#endif
#endif
