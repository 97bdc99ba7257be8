/* groups.h - which weights of a model are read and evicted together (store/weight.h). */
#ifndef LODE_MODEL_GROUPS_H
#define LODE_MODEL_GROUPS_H

#include "store/weight.h"

/* Makes a group of each routed expert's matrices: sets weights[i].group.  *groups is the caller's to
 * free, NULL where there are none. */
int lode_groups_of_experts(const struct lode_graph *g, struct lode_weight *weights,
                           struct lode_group **groups, uint32_t *n_groups, struct lode_error *err);

#endif
