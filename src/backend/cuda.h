/* cuda.h - NVIDIA GPUs: a device with a model's weights, and backends over it.
 *
 * The kernels give the bits of the CPU's scalar kernels (cuda/kernels/common.cuh), so a model says the
 * same on both; but with lode_cuda_opts.tensor attention and 16-bit weights have the tensor cores' own (fast.cuh,
 * attention_fast.cuh).  All of law 2 holds either way: no row depends on its neighbours.  lode_cuda_check says of a node
 * whether the device can run it, and else why.
 *
 * One device belongs to a model and is shared by its sessions' backends, each with a stream of its own;
 * create and free may be called from any thread, a backend by one at a time.
 */
#ifndef LODE_BACKEND_CUDA_H
#define LODE_BACKEND_CUDA_H

#include "backend/backend.h"
#include "backend/tuning.h"

#include "lode/model.h"

struct lode_cuda;

/* The number of devices, 0 or more; 0 with an error's text that says why there are none. */
int lode_cuda_count(struct lode_error *why);

int lode_cuda_info(int index, char name[256], uint64_t *memory, struct lode_error *err);

/* index: as the driver counts.  LODE_ERR_MISSING: no such device; LODE_ERR_UNSUPPORTED: this build has
 * no CUDA, or no kernels for it. */
int lode_cuda_open(struct lode_cuda **out, int index, struct lode_error *err);
void lode_cuda_close(struct lode_cuda *c); /* after its backends */
/* Lets two devices copy from each other's memory where they can; else it goes by way of the host. */
void lode_cuda_befriend(const struct lode_cuda *a, const struct lode_cuda *b);
/* 0, or LODE_ERR_MISSING that says what is lacking for lode_cuda_join: NCCL. */
int lode_cuda_can_join(struct lode_error *err);
const char *lode_cuda_name(const struct lode_cuda *c);
/* What is to be said of how it was opened; "". */
const char *lode_cuda_note(const struct lode_cuda *c);
/* Its choices, and what they are of; backends that are created later go by them, and none while they change. */
struct lode_tuning *lode_cuda_tuning(struct lode_cuda *c, struct lode_tuning_device *d);
/* Whether it has what --numerics tensor takes (cuda/kernels/products/fast.cuh, attention_fast.cuh): from Ampere on. */
bool lode_cuda_has_fast(const struct lode_cuda *c);
/* Whether these packed weights meet rows that are not rounded to 8 bits with --numerics fast (cuda/kernels/products/fast_items.cuh): on
 * Hopper, where rows are whole 256 numbers. */
bool lode_cuda_takes_floats(const struct lode_cuda *c, const struct lode_operand *w);
/* Whether it has failed for good: nothing that was opened on it works again, but after lode_cuda_close of all
 * that have it a new one may.  From any thread; costs nothing as long as nothing fails. */
bool lode_cuda_lost(struct lode_cuda *c);
/* Bytes of its memory that nobody uses now; all of them where it fails. */
uint64_t lode_cuda_available(const struct lode_cuda *c);

/* As lode_device_speeds says, but for `fast`, in hundredths of a second, or tenths where memory is slow. */
int lode_cuda_speeds(struct lode_cuda *c, struct lode_device_speeds *out, struct lode_error *err);
/* What comes from the host alone: quicker, and with less memory. */
int lode_cuda_bus_speed(struct lode_cuda *c, double *bus, struct lode_error *err);

/* 0, or LODE_ERR_UNSUPPORTED naming what the device can't run of a node. */
int lode_cuda_check(const struct lode_cuda *c, const struct lode_node *n, bool float_act,
                    struct lode_error *err);
/* Bytes that a weight takes on a device. */
uint64_t lode_cuda_weight_size(const struct lode_weight *w);
/* Copies those of the n weights whose `uses` has the bit, after counting them against what is free; what
 * it had before is gone, and no backend may still want it.
 * progress may be NULL. */
int lode_cuda_load(struct lode_cuda *c, const struct lode_source *source,
                   const struct lode_weight *weights, uint32_t n, const uint16_t *uses, uint16_t bit,
                   int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                   void *user, struct lode_error *err);

/* Bytes of weights that load brought, and in how many seconds. */
uint64_t lode_cuda_uploaded(const struct lode_cuda *c, double *seconds);

/* ---- experts of the host's that live here too (cuda/cache.h), and are computed here (cuda/aside.c) ---- */

struct lode_cuda_experts_opts { /* all borrowed until keep returns, but for the graph, which stays */
    const struct lode_graph *graph;
    const struct lode_source *source;
    const struct lode_weight *weights;
    const uint16_t *uses; /* by weight; bit 0: the host computes with it; NULL: with all */
    const struct lode_group *groups;
    bool float_act;
    enum lode_fast fast; /* the host's: types that have such products are computed there alone */
    uint64_t bytes;      /* of the cache, at most */
    const char *policy;  /* NULL: the default */
    bool may_pin;        /* what is mapped stays in memory while the cache lives, for the device to read */
};
struct lode_cuda_experts_sizes {
    uint64_t all;       /* bytes of a cache that all such experts fit in; 0: there are none */
    uint64_t raw, slot; /* of the largest as files have it, as the device does */
    uint32_t n_layers;
};
int lode_cuda_experts_sizes(const struct lode_cuda *c, const struct lode_cuda_experts_opts *o,
                            struct lode_cuda_experts_sizes *out, struct lode_error *err);
/* Makes room for them, once, within o->bytes; LODE_ERR_NOMEM with numbers.  It fills as experts are used.  forget:
 * after the asides. */
int lode_cuda_keep_experts(struct lode_cuda *c, const struct lode_cuda_experts_opts *o, struct lode_error *err);
void lode_cuda_forget_experts(struct lode_cuda *c);
/* Whether the device reads experts where the host has them. */
bool lode_cuda_fetches_experts(const struct lode_cuda *c);
/* Adds what was counted to a profile. */
void lode_cuda_count_experts(const struct lode_cuda *c, struct lode_profile *out);

struct lode_cuda_aside_opts {
    uint32_t max_rows;
    struct lode_expert_sizes experts; /* the largest of the host's */
    uint64_t raw, slot;               /* as lode_cuda_experts_sizes has them */
    uint32_t bring_rows; /* it takes all of jobs of so many rows or more; 0: where that is quicker */
};
/* NULL in *out where the device keeps no experts. */
int lode_cuda_aside_create(struct lode_aside **out, struct lode_cuda *c, const struct lode_cuda_aside_opts *o,
                           struct lode_error *err);
/* Bytes that create takes, of the device's memory and of the host's. */
void lode_cuda_aside_size(const struct lode_cuda_aside_opts *o, uint64_t *device, uint64_t *host);

/* Of the matrices that steps of many rows bring (cuda/brought.h): bytes of the largest, of the longest row. */
struct lode_cuda_bring_sizes {
    uint64_t largest, row; /* 0: none are */
};
void lode_cuda_bring_grow(struct lode_cuda_bring_sizes *s, const struct lode_operand *w);
uint64_t lode_cuda_bring_pinned(const struct lode_cuda_bring_sizes *s); /* bytes of the host's memory that it takes */
/* Lets the device fetch those of the n weights, of which `brought` has the ids, from where their file is mapped, as long
 * as it is open; where it cannot, the host's threads copy them.  LODE_ERR_NOMEM. */
int lode_cuda_fetch_layers(struct lode_cuda *c, const struct lode_source *source, const struct lode_weight *weights,
                           const uint32_t *brought, uint32_t n, struct lode_error *err);
bool lode_cuda_fetches_layers(const struct lode_cuda *c);
/* Bytes that were brought so. */
uint64_t lode_cuda_brought(const struct lode_cuda *c);

struct lode_cuda_opts {
    bool tensor;       /* attention, and 16-bit weights, by the tensor cores, where it has them: not the CPU's bits */
    uint32_t max_rows; /* of a step */
    uint32_t n_layers;
    size_t out_row;         /* bytes of a row of what the host reads */
    uint32_t max_read;      /* rows of it at once */
    uint32_t max_traced;    /* width of the residual stream */
    size_t longest_copy;    /* bytes of a row that comes from other places or goes there; 0: none does */
    uint32_t n_cuts;        /* parts of plans that run here */
    uint32_t n_ropes;       /* rotary specifications of a segment */
    struct lode_expert_sizes experts;
    struct lode_cuda_bring_sizes bring;
    struct lode_store *store;  /* borrowed: whence it is brought, */
    struct lode_backend *host; /* and by whose threads; NULL: the one that steps */
};
int lode_cuda_create(struct lode_backend **out, struct lode_cuda *c,
                     const struct lode_cuda_opts *opts, struct lode_error *err);
/* Makes n backends, of a device each, the ranks of plans that have any (runtime/plan.h): the first has run_ranks
 * from now on.  They are freed the first before the others.  Takes some memory of each device,
 * LODE_CUDA_JOIN_SIZE. */
enum { LODE_CUDA_JOIN_SIZE = 960 << 20 }; /* NCCL 2.28 took 870 MiB of each of two H200s */
int lode_cuda_join(struct lode_backend *const *all, uint32_t n, struct lode_error *err);
/* Bytes of device memory that create takes. */
uint64_t lode_cuda_work_size(const struct lode_cuda_opts *opts);

#endif
