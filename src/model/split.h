/* split.h - a model's graphs laid over several places (store/memory.h): what runs and lies where.
 *
 * Layers run at one place each, those on devices at the end; a layer's keys, values and state lie where
 * it runs.  Experts may be on the host while their layer is on a device, and with them the product that
 * chooses them, so that one value goes there and one comes back.  Tensors may be put elsewhere by name.
 * What a device cannot run, the host does.  No bit of a result depends on any of this.
 */
#ifndef LODE_MODEL_SPLIT_H
#define LODE_MODEL_SPLIT_H

#include "graph/graph.h"
#include "model/build.h"
#include "runtime/plan.h"

struct lode_model;

struct lode_split {
    uint8_t *layers; /* owned; (n_layers): where keys, values and states of a layer lie */
    uint16_t *uses;  /* owned; (n_weights): bit p: place p computes with it */
    struct lode_plan plans[LODE_STAGES];
    uint32_t n_gpu_layers; /* that run on devices */
    char note[256];  /* what runs on the host because a device cannot, and why; "" */
};

/* The last gpu_layers of n_layers + 1 on devices (the last of them is what follows the layers, and takes
 * the embedding along), less the experts of the first cpu_experts layers. */
int lode_split_make(struct lode_split *out, const struct lode_model *m, uint32_t gpu_layers,
                    uint32_t cpu_experts, struct lode_error *err);
void lode_split_free(struct lode_split *s);

/* The place that "cpu", "cuda:1" or "CUDA1" names among the model's devices; -1: none. */
int lode_split_place(const struct lode_model *m, const char *name, size_t n);
/* Opens what a list of devices ("cuda:0,cuda:1", "cpu", "auto" or NULL) names.  A "cpu" at the head is
 * the host; others stand in for devices, with memory of their own, where there are none (tests). */
int lode_split_devices(struct lode_model *m, const char *list, struct lode_error *err);

#endif
