/* memory.h - what sessions take, and whether it is there. */
#ifndef LODE_ENGINE_MEMORY_H
#define LODE_ENGINE_MEMORY_H

#include "lode/plan.h"
#include "store/kv.h"

enum { LODE_DEFAULT_BATCH = 512, LODE_MAX_BATCH = 1 << 16 };

/* The model's layers with the session's KV formats; *out is owned by the caller (lode_free). */
int lode_session_layers(const struct lode_model *m, const struct lode_session_opts *o,
                        struct lode_kv_layer **out, struct lode_error *err);
/* Rows of a step: what was asked for, at most the context. */
uint32_t lode_session_batch(const struct lode_session_opts *o, uint32_t ctx);
/* The plan, or LODE_ERR_LIMIT with the numbers and what to change when it does not fit. */
int lode_session_admit(const struct lode_model *m, const struct lode_session_opts *o,
                       struct lode_memory_plan *out, struct lode_error *err);

#endif
