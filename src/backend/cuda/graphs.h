/* graphs.h - what is asked of a stream again and again, as captured graphs: places that are found by a key, of which the least
 * used makes room. */
#ifndef LODE_BACKEND_CUDA_GRAPHS_H
#define LODE_BACKEND_CUDA_GRAPHS_H

#include "backend/cuda/cuda.h"

/* Whatever tells one from another; the first is never 0. */
struct graph_key { uint64_t v[4]; };
static inline uint64_t graph_two(uint32_t a, uint32_t b) { return (uint64_t)a << 32 | b; }

struct graph {
    struct graph_key key;
    void *exec;    /* NULL: not captured yet, or never */
    uint32_t seen; /* how often it came before it was captured */
    uint64_t used; /* 0: the place is free */
};

/* Among n; clock: of their uses. */
struct graph *lode_cuda_find_graph(const struct lode_cuda *c, struct graph *all, size_t n, const struct graph_key *key,
                                   uint64_t *clock);
/* Whether what is asked of the stream from now on is captured, as it comes the second time: lode_cuda_end_graph ends that, good: nothing
 * of it failed.  The driver may take none: what then is asked for plainly says what is wrong, or nothing is. */
bool lode_cuda_begin_graph(const struct lode_cuda *c, struct graph *g, void *stream);
void lode_cuda_end_graph(const struct lode_cuda *c, struct graph *g, void *stream, bool good);
/* All places are free, but those whose graph the driver does not give up; the first error. */
int lode_cuda_drop_graphs(const struct lode_cuda *c, struct graph *all, size_t n, struct lode_error *err);

#endif
