/* split.h - a model's graphs laid over several places (store/memory.h): what runs and lies where.
 *
 * Layers run at one place each, those on devices at the end; a layer's keys, values and state lie where
 * it runs.  Experts may be on the host while their layer is on a device, and with them the product that
 * chooses them, so that one value goes there and one comes back.  Tensors may be put elsewhere by name.
 * What a device cannot run, the host does.  No bit of a result depends on any of this.
 *
 * Or all devices do all layers, each its part of the rows (shard.h): then nothing is on the host.
 */
#ifndef LODE_MODEL_SPLIT_H
#define LODE_MODEL_SPLIT_H

#include "graph/graph.h"
#include "model/build.h"
#include "runtime/plan.h"

struct lode_model;

enum { LODE_USED_IN_PARTS = 1 << 15 }; /* nobody computes with it, ranks have their parts of it */

/* A plan beside those of the stages: of the body again, for steps of many rows, whose host layers a device computes
 * from weights that are brought to it.  What lies with a layer (pages, states) stays, and so what works with it. */
enum { LODE_MANY = LODE_STAGES, LODE_PLANS };

struct lode_split {
    uint8_t *layers; /* owned; (n_kept): where keys, values and states of a layer lie */
    uint16_t *uses;  /* owned; (n_weights): bit p: place p computes with it; LODE_USED_IN_PARTS */
    struct lode_plan plans[LODE_PLANS]; /* LODE_MANY's without instructions: nothing is brought */
    uint32_t n_gpu_layers; /* that run on devices */
    char note[256];  /* what runs on the host because a device cannot, and why; "" */
};

/* The last gpu_layers of n_layers + 1 on devices (the last of them is what follows the layers, and takes
 * the embedding along), less the experts of the first cpu_experts layers.
 * beside: the first GPU computes some of the experts that are the host's.  brings: and has a plan for steps of many
 * rows. */
int lode_split_make(struct lode_split *out, const struct lode_model *m, uint32_t gpu_layers,
                    uint32_t cpu_experts, bool beside, bool brings, struct lode_error *err);
void lode_split_free(struct lode_split *s);

enum lode_split_mode { LODE_SPLIT_LAYER, LODE_SPLIT_ROW, LODE_SPLIT_NONE };

/* Reads opts.split_mode. */
int lode_split_mode(struct lode_model *m, const char *name, struct lode_error *err);
/* The place that "cpu", "cuda:1" or "CUDA1" names among the model's devices; -1: none. */
int lode_split_place(const struct lode_model *m, const char *name, size_t n);
/* Opens what a list of devices ("cuda:0,cuda:1", "cpu", "auto" or NULL) names.  A "cpu" at the head is
 * the host; others stand in for devices, with memory of their own, where there are none (tests). */
int lode_split_devices(struct lode_model *m, const char *list, struct lode_error *err);
/* Whether the model is to be split by rows, as opts.split_mode says and its devices can: 1, 0 (where it was
 * asked for, m->device_note says why not), or an error. */
int lode_split_by_rows(struct lode_model *m, struct lode_error *err);

#endif
