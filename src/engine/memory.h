/* memory.h - what sessions take, and whether it is there. */
#ifndef LODE_ENGINE_MEMORY_H
#define LODE_ENGINE_MEMORY_H

#include "lode/plan.h"
#include "model/model.h"
#include "store/kv.h"

/* Recurrent states that a scheduler's cache of prefixes has room for at least, with so many slots. */
#define LODE_STATES_KEPT(slots) ((slots) + 2u)

enum { LODE_DEFAULT_BATCH = 512, LODE_MAX_BATCH = 1 << 16 };

/* The model's layers with the session's KV formats; *out is owned by the caller (lode_free). */
int lode_session_layers(const struct lode_model *m, const struct lode_session_opts *o,
                        struct lode_kv_layer **out, struct lode_error *err);
/* What sessions keep at each place, in bytes; a model may lie at several. */
struct lode_needs {
    uint64_t kv[LODE_PLACES], work[LODE_PLACES];
    uint64_t state[LODE_PLACES]; /* of one session */
};
/* For a pool of that room; workers are counted unless the sessions have those of others, tokens and logits
 * once.  plans: the model's, or those that it might have. */
int lode_session_needs(const struct lode_model *m, const struct lode_plan *plans,
                       const struct lode_kv_layer *layers, const struct lode_session_opts *o,
                       const struct lode_kv_room *room, struct lode_needs *out, struct lode_error *err);
/* What is left at each place. */
void lode_places_left(const struct lode_model *m, uint64_t left[LODE_PLACES]);
/* Rows of a step: what was asked for, at most the context. */
uint32_t lode_session_batch(const struct lode_session_opts *o, uint32_t ctx);
/* The plan, or LODE_ERR_LIMIT with the numbers and what to change when it does not fit. */
int lode_session_admit(const struct lode_model *m, const struct lode_session_opts *o,
                       struct lode_memory_plan *out, struct lode_error *err);

#endif
