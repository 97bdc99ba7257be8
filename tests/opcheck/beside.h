/* beside.h - a stand-in for a device beside the host (backend.h): it takes shares at random, or whole jobs, and computes
 * them with a host of its own; whatever it takes, results must have the same bits. */
#ifndef OC_BESIDE_H
#define OC_BESIDE_H

#include "backend/backend.h"

/* opts: the host's that it stands beside. */
struct lode_aside *beside_create(const struct lode_cpu_opts *opts, uint64_t seed);

#endif
