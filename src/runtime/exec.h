/* exec.h - runs plans, one step at a time.
 *
 * An executor gives plans their memory, once, and then runs steps over it without allocating.  Parts of
 * a plan that run at other places do so in their turn, on what is copied to them before.  It
 * pins the weights of an instruction before running it and waits for those that are still on
 * their way; results do not depend on when they arrive.  It belongs to one thread at a time.
 *
 * Of a plan with ranks all places do the same at once, on parts of the weights; what one of them has made of a
 * value, another may need: ALL_GATHER.  Results are read of the first.
 *
 * A model runs as two plans over one set of workers: the body makes the final rows of the residual
 * stream, the head turns a few of them at a time into logits.
 */
#ifndef LODE_RUNTIME_EXEC_H
#define LODE_RUNTIME_EXEC_H

#include "runtime/plan.h"
#include "store/weight.h"

struct lode_exec;

/* plan, the backends (of each place that the plan has) and store are borrowed and must outlive the
 * executor.  other: NULL, or a plan for which there is to be room too. */
int lode_exec_create(struct lode_exec **out, const struct lode_plan *plan, const struct lode_plan *other,
                     struct lode_backend *const backends[LODE_PLACES], struct lode_store *store,
                     uint32_t max_rows, uint32_t max_out, struct lode_error *err);
/* That plan's, over the memory of `first`: their steps take turns, and whose was last has its results there. */
int lode_exec_create_other(struct lode_exec **out, const struct lode_plan *other, const struct lode_exec *first,
                           struct lode_error *err);
void lode_exec_free(struct lode_exec *e);

/* cancel (may be NULL) is asked between instructions; true ends the step with
 * LODE_ERR_CANCELLED.  After any error the step's results are not to be used. */
int lode_exec_run(struct lode_exec *e, const struct lode_step *step, bool (*cancel)(void *user),
                  void *cancel_user, struct lode_error *err);

/* Gives the plan's input rows first .. first + n - 1 of another's result, which is as wide. */
int lode_exec_take(struct lode_exec *e, const struct lode_exec *from, uint32_t first, uint32_t n,
                   struct lode_error *err);
/* The first n rows of the result where the host can read them, *stride bytes apart, until the next
 * call; NULL: see err. */
const char *lode_exec_read(const struct lode_exec *e, uint32_t n, size_t *stride,
                           struct lode_error *err);
/* Row i alone, in the same way. */
const char *lode_exec_read_row(const struct lode_exec *e, uint32_t i, struct lode_error *err);
/* The k largest numbers of each of the first n rows, in the same way but beside what was read; to be asked
 * only where the result's backend gives them. */
bool lode_exec_gives_best(const struct lode_exec *e);
const struct lode_best *lode_exec_best(const struct lode_exec *e, uint32_t n, uint32_t k, struct lode_error *err);

/* Whether the result's backend draws (backend.h). */
bool lode_exec_draws(const struct lode_exec *e);
/* A step of body and head with a draw after each of its n_out rows, which is not waited for: a number to ask by, or an error; to be
 * asked only where the head draws.  The ids, when they are there. */
int lode_exec_draw_step(struct lode_exec *body, struct lode_exec *head, const struct lode_step *step,
                        const struct lode_draw *draws, bool (*cancel)(void *user), void *cancel_user,
                        struct lode_error *err);
int lode_exec_drawn(const struct lode_exec *e, int draw, uint32_t n, int32_t *ids, struct lode_error *err);
/* Whether all of both runs at one place, so that one's next step can have tokens that were drawn there. */
bool lode_exec_together(const struct lode_exec *a, const struct lode_exec *b);

#endif
