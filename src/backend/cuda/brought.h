/* brought.h - products whose weights are not the device's: a step of many rows brings them (model/split.h, LODE_MANY).
 *
 * Rows of the matrices go up in loads, each to a room of a ring: from where their file is mapped, or copied to pinned
 * memory by the host's threads, which have nothing else to do then.  A load is laid out in planes and multiplied while
 * others are on their way, and where nobody has to copy them, they set out for the next product while the host is at
 * work.  A load may have parts of several matrices that read the same value, and a matrix come in several loads: a
 * row's products are its own. */
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
/* Of the instruction with such weights that comes next, while the host is at work between: what there is room for sets
 * out, where nobody has to copy it. */
int lode_cuda_bring_ahead(struct run *r, const struct lode_instr *next, struct lode_error *err);

#endif
