#include "model/groups.h"

#include "base/alloc.h"
#include "store/assemble.h"
#include "store/memory.h"

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

void lode_groups_drop(struct lode_weight *weights, struct lode_group *groups, uint32_t *n_groups) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n_groups; i++) {
        struct lode_group *g = &groups[i];
        const bool stays = !weights[g->weights[0]].elsewhere;
        for (uint32_t k = 0; k < g->n_weights; k++)
            weights[g->weights[k]].group = stays ? kept : LODE_NO_GROUP;
        if (stays)
            groups[kept++] = *g;
    }
    *n_groups = kept;
}

/* ---- layers ---- */

enum { MOST_LAYERS = 4096, READ_ALIGN = 4096, SMALL = 4096 /* bytes: vectors and the like stay */ };

struct layers {
    struct lode_group groups[MOST_LAYERS];
    uint64_t sizes[MOST_LAYERS];
    bool streams[MOST_LAYERS]; /* else it stays */
    uint32_t n;
    uint64_t stage; /* bytes that the largest matrix which has to be converted is made of; 0: none has */
};

static bool on_host(const struct lode_weight *w, const uint16_t *uses) {
    return uses ? !uses[w->op.id] || uses[w->op.id] & 1u << LODE_HOST : !w->elsewhere;
}

static bool may_stream(const struct lode_weight *w, const struct lode_operand *op, unsigned *layer) {
    return op->count == 1 && w->group == LODE_NO_GROUP && w->home->type == w->op.type &&
           w->size >= SMALL && sscanf(w->home->name, "blk.%u.", layer) == 1 && *layer < MOST_LAYERS;
}

static void add_weight(struct layers *l, const struct lode_source *source, const struct lode_weight *weights,
                       const struct lode_weight *w, uint32_t layer) {
    struct lode_group *g = &l->groups[layer];
    struct lode_place place;
    for (uint32_t i = 0; i < g->n_weights; i++)
        if (g->weights[i] == w->op.id)
            return;
    if (g->n_weights == LODE_GROUP_WEIGHTS)
        return; /* the others stay */
    g->weights[g->n_weights++] = w->op.id;
    /* with the ends of pages around it */
    l->sizes[layer] += (w->size + 2 * READ_ALIGN - 1) & ~(uint64_t)(READ_ALIGN - 1);
    l->n = layer >= l->n ? layer + 1 : l->n;
    if (!lode_source_place(source, w->home, w->offset, w->size, &place)) {
        const size_t stage = lode_assembler_stage(source, weights, w->op.id);
        l->stage = stage > l->stage ? stage : l->stage;
    }
}

/* What is needed beside the layers that stay: room for two, and to convert a matrix while another is read. */
static uint64_t streaming(const struct layers *l, uint64_t largest) { return 2 * largest + 2 * l->stage; }

/* Chooses the layers that stay, as many as fit beside the streaming's two, and returns their bytes.  Those that are
 * streamed lie as far from each other as they can: while others are computed the disk reads the next one, where side by
 * side they would wait for it one after the other and leave it nothing to do then. */
static uint64_t choose_staying(struct layers *l, uint64_t two, uint64_t room) {
    uint32_t n = 0; /* layers that there are; others are elsewhere */
    uint64_t stay = UINT64_MAX;
    for (uint32_t i = 0; i < l->n; i++)
        n += l->sizes[i] > 0;
    for (uint32_t m = 0; m <= n && (stay == UINT64_MAX || stay + two > room); m++) { /* m of n are streamed */
        stay = 0;
        for (uint32_t i = 0, k = 0; i < l->n; i++) {
            l->streams[i] = l->sizes[i] > 0 && (uint64_t)(k + 1) * m / n > (uint64_t)k * m / n;
            stay += l->streams[i] ? 0 : l->sizes[i];
            k += l->sizes[i] > 0;
        }
    }
    return stay;
}

/* Makes groups of the layers that do not stay. */
static int choose_layers(struct layers *l, struct lode_weight *weights, uint64_t room,
                         struct lode_group **groups, uint32_t *n_groups, uint64_t *streamed,
                         struct lode_error *err) {
    uint64_t largest = 0, all = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        largest = l->sizes[i] > largest ? l->sizes[i] : largest;
        all += l->sizes[i];
    }
    const uint64_t two = streaming(l, largest);
    if (all <= room)
        return 0;
    if (room < two)
        return lode_fail(err, LODE_ERR_LIMIT, "--layer-cache",
                         "%.2f MiB of memory are left for layers, but two take %.2f MiB",
                         (double)room / 0x1p20, (double)two / 0x1p20);
    choose_staying(l, two, room);
    struct lode_group *more = lode_realloc(*groups, *n_groups + l->n, sizeof *more);
    if (!more)
        return lode_fail_nomem(err, "table of layers");
    *groups = more;
    for (uint32_t i = 0; i < l->n; i++) {
        struct lode_group *g = &l->groups[i];
        if (!l->streams[i])
            continue;
        g->layer = i;
        g->expert = LODE_NO_EXPERT;
        for (uint32_t k = 0; k < g->n_weights; k++)
            weights[g->weights[k]].group = *n_groups;
        more[(*n_groups)++] = *g;
    }
    *streamed = two;
    return 0;
}

/* The layers' matrices, none of which is in a group yet; NULL: no memory. */
static struct layers *list_layers(const struct lode_graph *g, const struct lode_source *source,
                                  const struct lode_weight *weights, const uint16_t *uses) {
    struct layers *l = LODE_NEW(struct layers);
    for (uint32_t i = 0; l && i < g->n_nodes; i++)
        for (int k = 0; k < LODE_MAX_WEIGHTS; k++) {
            const struct lode_operand *op = g->nodes[i]->w[k];
            unsigned layer;
            if (op && on_host(&weights[op->id], uses) && may_stream(&weights[op->id], op, &layer))
                add_weight(l, source, weights, &weights[op->id], layer);
        }
    return l;
}

uint64_t lode_layers_size(const struct lode_graph *g, const struct lode_source *source,
                          const struct lode_weight *weights, const uint16_t *uses) {
    struct layers *l = list_layers(g, source, weights, uses);
    uint64_t all = 0;
    for (uint32_t i = 0; l && i < l->n; i++)
        all += l->sizes[i];
    lode_free(l);
    return all;
}

uint64_t lode_layers_room(const struct lode_graph *g, const struct lode_source *source,
                          const struct lode_weight *weights, const uint16_t *uses, uint64_t room) {
    struct layers *l = list_layers(g, source, weights, uses);
    uint64_t largest = 0;
    for (uint32_t i = 0; l && i < l->n; i++)
        largest = l->sizes[i] > largest ? l->sizes[i] : largest;
    const uint64_t two = l ? streaming(l, largest) : 0, stay = l ? choose_staying(l, two, room) : 0;
    lode_free(l);
    return stay + two;
}

int lode_groups_of_layers(const struct lode_graph *g, const struct lode_source *source,
                          struct lode_weight *weights, uint64_t room, struct lode_group **groups, uint32_t *n_groups, uint64_t *streamed,
                          struct lode_error *err) {
    *streamed = 0;
    struct layers *l = list_layers(g, source, weights, NULL);
    if (!l)
        return lode_fail_nomem(err, "table of layers");
    const int rc = choose_layers(l, weights, room, groups, n_groups, streamed, err);
    lode_free(l);
    return rc;
}
