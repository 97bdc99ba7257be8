/* groups.h - which weights of a model are read and evicted together (store/weight.h). */
#ifndef LODE_MODEL_GROUPS_H
#define LODE_MODEL_GROUPS_H

#include "store/weight.h"

/* Makes a group of each routed expert's matrices: sets weights[i].group.  *groups is the caller's to
 * free, NULL where there are none. */
int lode_groups_of_experts(const struct lode_graph *g, struct lode_weight *weights,
                           struct lode_group **groups, uint32_t *n_groups, struct lode_error *err);

/* Takes out the groups whose weights are elsewhere. */
void lode_groups_drop(struct lode_weight *weights, struct lode_group *groups, uint32_t *n_groups);

/* Bytes of what could be in those groups, of layers that the host computes; 0 where memory for the list is
 * missing.  uses: as in a split (split.h); NULL: as the weights say themselves. */
uint64_t lode_layers_size(const struct lode_graph *g, const struct lode_source *source,
                          const struct lode_weight *weights, const uint16_t *uses);
/* What streaming them takes of `room`: two of the largest (with what two matrices are made of, where a source
 * has to convert them) and as many whole layers as fit beside these; for room 0 the least that will do. */
uint64_t lode_layers_room(const struct lode_graph *g, const struct lode_source *source,
                          const struct lode_weight *weights, const uint16_t *uses, uint64_t room);

/* Adds a group of each layer's own matrices, but for as many as fit in `room` bytes beside
 * what streaming needs, as above: they stay, and those that are streamed are spread over all layers.  *streamed: bytes of that, 0 where all layers fit.  LODE_ERR_LIMIT where not even two do. */
int lode_groups_of_layers(const struct lode_graph *g, const struct lode_source *source,
                          struct lode_weight *weights, uint64_t room, struct lode_group **groups,
                          uint32_t *n_groups, uint64_t *streamed, struct lode_error *err);

#endif
