/* graphs.c - captured graphs in places that are found by a key. */
#include "backend/cuda/graphs.h"

#include <string.h>

static bool same(const struct graph_key *a, const struct graph_key *b) { return memcmp(a, b, sizeof *a) == 0; }

struct graph *lode_cuda_find_graph(const struct lode_cuda *c, struct graph *all, size_t n, const struct graph_key *key,
                                   uint64_t *clock) {
    struct graph *at = all;
    for (struct graph *g = all; g < all + n; g++) {
        if (same(&g->key, key)) {
            at = g;
            break;
        }
        if (g->used < at->used)
            at = g;
    }
    if (!same(&at->key, key)) {
        if (at->exec)
            c->cu.graph_exec_destroy(at->exec);
        *at = (struct graph){.key = *key};
    }
    at->used = ++*clock;
    return at;
}

bool lode_cuda_begin_graph(const struct lode_cuda *c, struct graph *g, void *stream) {
    return !g->exec && g->seen++ == 1 && c->cu.capture_begin(stream, 2 /* relaxed */) == 0;
}

void lode_cuda_end_graph(const struct lode_cuda *c, struct graph *g, void *stream, bool good) {
    void *graph = NULL;
    if (c->cu.capture_end(stream, &graph) == 0 && good && c->cu.graph_instantiate(&g->exec, graph, 0) != 0)
        g->exec = NULL;
    if (graph)
        c->cu.graph_destroy(graph);
}

int lode_cuda_drop_graphs(const struct lode_cuda *c, struct graph *all, size_t n, struct lode_error *err) {
    int rc = 0;
    for (struct graph *g = all; all && g < all + n; g++) {
        const int dropped = g->exec ? lode_cu_check(&c->cu, c->cu.graph_exec_destroy(g->exec), "graph", rc ? NULL : err) : 0;
        if (dropped == 0)
            *g = (struct graph){0};
        rc = rc ? rc : dropped;
    }
    return rc;
}
