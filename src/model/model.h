/* model.h - a loaded model, for the engine.  The public half is lode/model.h. */
#ifndef LODE_MODEL_MODEL_H
#define LODE_MODEL_MODEL_H

#include "backend/cuda.h"
#include "kern/kern.h"
#include "lode/model.h"
#include "model/build.h"
#include "model/split.h"
#include "runtime/plan.h"
#include "store/weight.h"

struct lode_device {
    struct lode_cuda *cuda; /* NULL: the host, or what stands in for a device there */
    int index;              /* as --device counts */
};

#define NUMERICS_ENUM(name) LODE_NUMERICS_##name,
enum lode_numerics { LODE_NUMERICS_LIST(NUMERICS_ENUM) };
#undef NUMERICS_ENUM

struct lode_model {
    struct lode_source *source;      /* owned, as all below */
    struct lode_tokenizer *tokenizer; /* NULL: the file has none */
    struct lode_arch const *arch;
    struct lode_hparams hp;
    struct lode_graph graphs[LODE_STAGES];
    struct lode_plan plans[LODE_PLANS];
    struct lode_kv_layer *kv; /* (n_kept); formats are the session's to choose */
    struct lode_state_layer *state; /* (n_kept) */
    struct lode_weight *weights;
    uint32_t n_weights;
    struct lode_group *groups; /* (n_groups): what may be streamed */
    uint32_t n_groups, n_expert_groups; /* those of experts come first */
    uint64_t layer_room; /* bytes for the groups of layers; 0: there are none */
    struct lode_store *store;
    struct lode_device devices[LODE_PLACES]; /* (n_places); the first is the host */
    uint32_t n_places, n_gpus; /* n_gpus: of the places, those that are GPUs */
    uint32_t n_ranks; /* places 1 .. n_ranks share out products by rows (shard.h); 0: they do not */
    uint32_t n_kept;  /* layers of kv and state: hp.n_layers, of each rank */
    int gpu;                   /* the first's index */
    uint16_t *uses;   /* (n_weights): bit p: place p computes with it */
    uint32_t gpu_layers, cpu_experts; /* as lode_model_split was told */
    bool is_split;                    /* it was told */
    bool has_beside;                  /* a GPU computes some of the host's experts: lode_model_gpu_cache */
    uint64_t gpu_cache;               /* bytes of its memory for them */
    struct lode_cuda_experts_sizes beside; /* of all that it could; zeros: none */
    bool brings;                      /* lode_model_bring: a GPU computes the host's layers of steps of many rows */
    double bus_speed;                 /* bytes/s to that GPU, measured; 0: not yet */
    bool any_device;                  /* --device was "auto" */
    enum lode_split_mode split_mode;  /* as opts say */
    char *tensor_devices, *tensor_split; /* of opts; NULL: none */
    char device_note[256];
    struct lode_model_opts opts; /* progress, isa and device cleared */
    enum lode_isa isa;           /* what opts.isa or this machine chose */
    enum lode_numerics wanted;   /* opts.numerics */
    bool tensor;                 /* GPUs that have tensor cores use them; once the model is filled */
    enum lode_fast fast;         /* what this machine has for it; none: exact */
    char numerics[64];           /* its name */
    struct lode_model_info info;
    char *chat_template; /* NUL-terminated, or NULL */
    char *name, *type, *notes;
    uint64_t *expert_bytes; /* (hp.n_layers) of one routed expert; NULL: the model has none */
};

/* Fills expert_bytes. */
int lode_model_find_experts(struct lode_model *m, struct lode_error *err);

/* Fills info, name, type and chat_template (describe.c). */
int lode_model_describe(struct lode_model *m, struct lode_error *err);

/* Makes the store of a model that is being loaded: source, weights, groups and opts are there.  Tests give their own, which delivers weights
 * late and out of order. */
typedef int lode_store_maker(struct lode_store **out, void *user, const struct lode_model *m,
                             struct lode_error *err);
int lode_model_load_with(struct lode_model **out, const char *path,
                         const struct lode_model_opts *opts, lode_store_maker *make, void *user,
                         struct lode_error *err);

#endif
