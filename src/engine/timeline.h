/* timeline.h - sessions whose pages come from a pool that many share, for those who move whole
 * beginnings of timelines between them. */
#ifndef LODE_ENGINE_TIMELINE_H
#define LODE_ENGINE_TIMELINE_H

#include "engine/workers.h"
#include "lode/session.h"
#include "store/kv.h"

/* A session on given workers, with pages of a pool; opts->ctx is what it may have, at most the
 * pool's.  A step fails with LODE_ERR_LIMIT where the pool has too few pages: the caller sees to it
 * that it has them. */
int lode_session_open_in(struct lode_session **out, struct lode_workers *w,
                         struct lode_kv_pool *pool, const struct lode_session_opts *opts,
                         struct lode_error *err);

struct lode_kv *lode_session_kv(struct lode_session *s);
struct lode_state *lode_session_state(struct lode_session *s); /* NULL: the model has none */
const struct lode_rope *lode_session_ropes(const struct lode_session *s); /* (n_ropes of the model) */

/* The timeline is tokens (n), whose pages (all that a step can see) have been attached; the state, if
 * there is one, stands there. */
void lode_session_place(struct lode_session *s, const int32_t *tokens, uint32_t n);
/* Becomes what src is, logits included; s was empty. */
void lode_session_fork(struct lode_session *s, struct lode_session *src);

#endif
