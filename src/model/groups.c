#include "model/groups.h"

#include "base/alloc.h"

#include <stdio.h>

/* A layer whose experts are another's (none is known) stays with the first. */
static bool is_new(const struct lode_node *n, const struct lode_weight *weights) {
    for (int k = 0; k < 3; k++)
        if (weights[n->w[k]->id].group != LODE_NO_GROUP ||
            n->w[k]->count != n->w[0]->count || weights[n->w[k]->id].home->type != n->w[k]->type)
            return false;
    return n->w[0]->count > 1;
}

int lode_groups_of_experts(const struct lode_graph *g, struct lode_weight *weights,
                           struct lode_group **groups, uint32_t *n_groups,
                           struct lode_error *err) {
    uint32_t most = 0;
    *groups = NULL;
    *n_groups = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        most += g->nodes[i]->op == LODE_OP_EXPERTS ? g->nodes[i]->w[0]->count : 0;
    if (most == 0)
        return 0;
    *groups = LODE_NEW_ARRAY(struct lode_group, most);
    if (!*groups)
        return lode_fail_nomem(err, "table of experts");
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct lode_node *n = g->nodes[i];
        unsigned layer = 0;
        if (n->op != LODE_OP_EXPERTS || !is_new(n, weights))
            continue;
        sscanf(weights[n->w[0]->id].home->name, "blk.%u.", &layer);
        for (uint32_t e = 0; e < n->w[0]->count; e++, ++*n_groups) {
            struct lode_group *group = &(*groups)[*n_groups];
            *group = (struct lode_group){.layer = layer, .expert = e, .n_weights = 3};
            for (int k = 0; k < 3; k++) {
                group->weights[k] = n->w[k]->id + e;
                weights[n->w[k]->id + e].group = *n_groups;
            }
        }
    }
    return 0;
}
