/* cache.h - experts of layers whose experts are the host's, as far as they live in a device's memory too.
 *
 * A slot holds one expert's three matrices, laid out as kernels read them, with their biases.  Experts whose
 * matrices are alike in types and shapes are a kind and share slots; a policy for each kind says who leaves.  Slots
 * are allocated once.  A slot that is pinned stays; one that is on its way is no hit for anybody until whoever brings
 * it says that it came.
 *
 * Shared by all who compute with the model, each call under one lock.
 */
#ifndef LODE_BACKEND_CUDA_CACHE_H
#define LODE_BACKEND_CUDA_CACHE_H

#include "backend/cuda/cuda.h"
#include "store/policy.h"

#define LODE_CUDA_NO_SLOT UINT32_MAX

struct lode_cuda_kind {
    const struct lode_operand *w[3]; /* of one of its layers: gate, up, down */
    bool biased[3];
    bool many;                       /* there are kernels for many rows of all three */
    uint64_t raw[3];                 /* bytes of each as files have it, */
    uint64_t size[3], bias_size[3];  /* and in a slot */
    lode_dev at[3], bias_at[3];      /* slot s: at[k] + s * size[k]; biases bias_at[k] + s * bias_size[k] */
    uint32_t n_slots, n_free, n_layers, n_experts;
    struct lode_policy *policy; /* owned, as below */
    uint32_t *slot_of;          /* (n_layers, n_experts), by the policy's ids */
    uint32_t *id_in;            /* (n_slots); LODE_CUDA_NO_SLOT: it is free */
    bool *here;                 /* (n_slots) */
};

struct lode_cuda_kept { /* a layer's experts */
    struct lode_cuda_kind *kind;
    uint32_t first[3]; /* ids of the first expert's gate, up and down */
    uint32_t layer;   /* of the model */
    uint32_t nth;     /* of its kind */
    uint32_t n_held;
    const char *host[3]; /* pinned: where the first expert's matrices are; the others' raw[k] bytes apart; NULL */
    uint64_t uses, hits, brought; /* brought: bytes that went up */
};

/* Bytes of an expert as files have it, but for its biases. */
static inline uint64_t lode_cuda_raw_size(const struct lode_cuda_kind *k) { return k->raw[0] + k->raw[1] + k->raw[2]; }
/* Where its matrices are, of a layer whose are pinned. */
static inline void lode_cuda_find_raw(const struct lode_cuda_kept *k, uint32_t expert, const char *w[3]) {
    for (int i = 0; i < 3; i++)
        w[i] = k->host[i] + expert * k->kind->raw[i];
}

/* NULL: the cache does not know the instruction's experts. */
struct lode_cuda_kept *lode_cuda_cache_find(struct lode_cuda_cache *cache, const struct lode_instr *in);
/* A use of an expert: its slot, pinned; LODE_CUDA_NO_SLOT: it is not here. */
uint32_t lode_cuda_cache_use(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t expert);
/* All uses of a step have been told. */
void lode_cuda_cache_end_uses(struct lode_cuda_cache *cache, struct lode_cuda_kept *k);
bool lode_cuda_cache_has(struct lode_cuda_cache *cache, const struct lode_cuda_kept *k, uint32_t expert);
/* A slot for an expert that is not here, pinned; somebody leaves for it where `evict` says so.  LODE_CUDA_NO_SLOT:
 * there is none, or the expert is on its way already. */
uint32_t lode_cuda_cache_make_room(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t expert,
                                   bool evict);
/* Unpins a slot; came: its expert is there for others from now on.  Else it was there, or is gone if it never came. */
void lode_cuda_cache_let_go(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint32_t slot, bool came);
/* n experts went up, to slots or only to be used. */
void lode_cuda_cache_brought(struct lode_cuda_cache *cache, struct lode_cuda_kept *k, uint64_t n);
/* Experts of each layer that the slots of its kind come to. */
uint32_t lode_cuda_cache_quota(const struct lode_cuda_kept *k);

#endif
