/* guess.h - which experts the next layer will want: its router, asked about this layer's input.
 *
 * The residual stream changes little from layer to layer, so the next router mostly chooses among what
 * it would choose now.  A guess is only ever read ahead of its time (store/weight.h: want): results do
 * not depend on it, and nothing waits for it.  Plans whose routers are no plain products of the same value are not guessed for.
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
