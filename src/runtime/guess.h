/* guess.h - which experts the next layer will want: its router, asked before its time.
 *
 * The residual stream changes little from layer to layer, so the next router mostly chooses among what
 * it would choose now.  It is asked twice, with the norm of its own layer: of what this layer's router
 * saw, while this layer's experts are on their way; and of what this layer made of it, while the next
 * layer's attention is computed.  The second guess, which is surer, replaces the first.
 *
 * A guess is only ever read ahead of its time (store/weight.h: want): results do not depend on it, and
 * nothing waits for it.  There is none for routers that read something else than the last one's.
 */
#ifndef LODE_RUNTIME_GUESS_H
#define LODE_RUNTIME_GUESS_H

#include "runtime/plan.h"

struct lode_guess;

enum { LODE_GUESS_ROWS = 4 /* of a step; larger ones use most experts anyway */ };

/* instrs: the executor's, whose EXPERTS get their `ahead`; all borrowed.  *out is NULL where there is
 * nothing to guess. */
int lode_guess_create(struct lode_guess **out, const struct lode_plan *plan,
                      struct lode_instr *instrs, struct lode_backend *backend,
                      struct lode_store *store, struct lode_error *err);
void lode_guess_free(struct lode_guess *g);
/* After instruction i has run. */
int lode_guess_run(struct lode_guess *g, uint32_t i, const struct lode_step *step,
                   struct lode_error *err);

#endif
