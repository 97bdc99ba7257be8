/* brought.h - products whose weights are not the device's: a step of many rows brings them (model/split.h, LODE_MANY).
 *
 * Rows of the matrices go up in halves of a double buffer, copied to pinned memory by the host's threads, which have
 * nothing else to do then; a half is laid out in planes and multiplied while the next is filled.  A half may have parts
 * of several matrices that read the same value, and a matrix come in several halves: a row's products are its own. */
#ifndef LODE_BACKEND_CUDA_BROUGHT_H
#define LODE_BACKEND_CUDA_BROUGHT_H

#include "backend/cuda/run.h"

struct lode_cuda_bring; /* NULL, of a backend that is brought nothing */

int lode_cuda_bring_create(struct lode_cuda_bring **out, struct run *r, struct lode_error *err);
/* What it has of the device's, whose context is entered; then it is the caller's to free. */
void lode_cuda_bring_deinit(struct lode_cuda_bring *b);
uint64_t lode_cuda_bring_size(const struct lode_cuda_bring_sizes *s); /* bytes of the device's memory */

/* Whether an instruction has such weights. */
bool lode_cuda_is_brought(const struct lode_instr *in);
/* Runs it.  After an error nothing is on its way. */
int lode_cuda_run_brought(const struct op *o, bool (*cancel)(void *user), void *user);

#endif
