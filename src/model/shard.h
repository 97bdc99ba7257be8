/* shard.h - a model's products shared out by rows: --split-mode row, tensor parallelism.
 *
 * Every rank (a device) has a part of the rows of the large matrices and computes that part of their results.
 * Heads of keys, with their pages and queries, stay on one rank each, as do the numbers of a feed-forward layer
 * until its down product; where an op needs all numbers of a row, ALL_GATHER puts the ranks' columns side by
 * side.  Nothing is ever summed across ranks, so every sum has the order that it has on one device and no bit
 * depends on the number of ranks.
 *
 * The graphs become those of one rank, which are equal on all.  What cannot be divided equally (heads by ranks, a
 * norm over all of a row, layers with a state) every rank computes as a whole, as it does a product that is read
 * at once and takes less time than the exchange of its parts.
 */
#ifndef LODE_MODEL_SHARD_H
#define LODE_MODEL_SHARD_H

#include "base/error.h"

#include <stdint.h>

struct lode_model;

/* Of a model whose graphs are built and whose places are known: they are the ranks, but for the host.  Its graphs,
 * weights, caches and plans are changed; m->n_ranks says by how many, and m->device_note what could not be
 * divided. */
int lode_shard_model(struct lode_model *m, struct lode_error *err);

#endif
