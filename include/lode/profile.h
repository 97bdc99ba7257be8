/* profile.h - where the time of a model's steps went, layer by layer, and what its experts' cache did.
 *
 *     struct lode_profile p;
 *     lode_model_profile(model, &p);
 *     for (uint32_t l = 0; l < p.n_layers; l++)
 *         use(p.layers[l].seconds, p.layers[l].waited);
 *
 * Counts go on from loading to the end and are those of all sessions together; take two and subtract.
 * On a GPU steps run as a whole, and only their number is known.
 */
#ifndef LODE_PROFILE_H
#define LODE_PROFILE_H

#include "lode/error.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_model;

struct lode_profile_layer {
    double seconds; /* spent in it, waiting included */
    double waited;  /* of these, for the disk, with nothing to compute */
    uint64_t uses;  /* of experts; one that serves several tokens of a step counts once */
    uint64_t hits;  /* of these, in memory, or on their way, when they were asked for */
    uint64_t bytes; /* read */
    uint64_t guesses, guessed; /* experts read ahead; of these, how many were then used */
    uint64_t gpu_uses, gpu_hits; /* of experts that a GPU's cache may have; of these, found in it */
    uint64_t gpu_bytes;          /* brought to it */
};

enum { LODE_PROFILE_LAYERS = 1024 };

struct lode_profile {
    uint64_t steps, rows; /* rows: tokens computed */
    double seconds;       /* of the steps */
    double head;          /* of these, behind the layers: the products with the vocabulary */
    uint32_t n_layers;
    struct lode_profile_layer layers[LODE_PROFILE_LAYERS];
    bool streams;         /* experts are read when they are used */
    uint64_t cache;       /* bytes that the cache may hold, */
    uint64_t held;        /* and holds now */
    uint64_t cancelled;   /* guesses that were off before they were read */
    double busy;          /* seconds in which the disk had something to read, steps or none */
    const char *reader;   /* how files are read: "io_uring, direct" */
    uint64_t gpu_layers;  /* bytes of the CPU's layers that were brought to a GPU (lode_model_bring) */
    uint64_t gpu_cache, gpu_held; /* the same of the cache in a GPU's memory; 0: there is none */
};

LODE_API void lode_model_profile(const struct lode_model *m, struct lode_profile *out);

/* How often each expert was used, as JSON: {"of": [layers, experts of each], "experts": [[layer, expert, uses],
 * ...]}, the most used first.  lode_model_opts.hot takes such a file: a cache that starts with those (QPL-13).
 * _ARG where no experts are streamed. */
LODE_API int lode_model_save_hot(const struct lode_model *m, const char *path, struct lode_error *err);

#ifdef __cplusplus
}
#endif
#endif
