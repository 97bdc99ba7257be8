/* devices.h - a model that is being loaded, and the devices that run it. */
#ifndef LODE_MODEL_DEVICES_H
#define LODE_MODEL_DEVICES_H

#include "model/model.h"

/* Whether anything is to be streamed. */
static inline bool lode_model_streams(const struct lode_model *m) {
    return m->opts.expert_cache > 0 || m->opts.layer_cache > 0;
}

/* By what lode_model_split said; else all on the devices, or nothing where "auto" finds no room. */
int lode_model_choose_split(struct lode_model *m, struct lode_error *err);
/* Devices get their weights; those that have nothing to do are given back. */
int lode_model_fill_devices(struct lode_model *m, struct lode_error *err);
/* Fills m->beside. */
int lode_model_size_experts(struct lode_model *m, struct lode_error *err);
/* Room for experts beside the host.  Those that are mapped, and have room in memory beside what others hold, are
 * pinned there for the GPU to read. */
int lode_model_keep_experts(struct lode_model *m, struct lode_error *err);
/* A GPU that is brought layers reads them where they are mapped, if it can. */
int lode_model_fetch_layers(struct lode_model *m, struct lode_error *err);
/* By what was wanted and what the places that compute have for it. */
void lode_model_choose_numerics(struct lode_model *m);

#endif
