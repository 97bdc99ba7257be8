/* placing.h - the parts of lode_plan_place (lode/plan.h): what one attempt to lay a model out has counted. */
#ifndef LODE_ENGINE_PLACING_H
#define LODE_ENGINE_PLACING_H

#include "engine/memory.h"
#include "engine/workers.h"
#include "lode/plan.h"
#include "model/model.h"
#include "model/split.h"

/* Kinds of weights: name, and what of a tensor's name tells. */
#define PLACING_KINDS(X)                                                                           \
    X(EXPERTS, "experts", "_exps")                                                                 \
    X(EMBEDDING, "embedding", "token_embd.")                                                       \
    X(HEAD, "head", "output.")                                                                     \
    X(FFN, "feed-forward", ".ffn_")                                                                \
    X(ATTENTION, "attention", ".attn_")                                                            \
    X(RECURRENT, "recurrent", ".ssm_")                                                             \
    X(OTHER, "norms and others", "")

enum placing_kind {
#define KIND(id, name, part) PLACING_##id,
    PLACING_KINDS(KIND)
#undef KIND
    PLACING_N_KINDS
};

struct placing_weights { /* of a kind, at a rung */
    uint64_t size;
    double read; /* for a token */
};

struct placing {
    const struct lode_model *m;
    struct lode_session_opts opts;
    const struct lode_budget *budget;
    struct lode_placement *p;
    struct lode_split split;              /* that is being tried */
    bool beside;                          /* with a GPU that computes some of the host's experts */
    bool brings;                          /* and the layers of steps of many rows */
    struct placing_weights weights[PLACING_N_KINDS][LODE_RUNGS];
    uint64_t device[LODE_PLACES];         /* bytes of weights at each place but the host */
    struct lode_needs needs;              /* for p->ctx and all sequences */
    uint64_t room[LODE_PLACES];           /* what there is at each place, within the budget */
    uint64_t free;                        /* of the host's memory, without one */
    uint64_t kv_read[LODE_RUNGS];         /* of one sequence at a full context */
    uint64_t program;
    double host_experts;                  /* bytes of experts that a token reads from memory */
    uint64_t slots_most;                  /* bytes of a cache that holds all experts */
    uint64_t around; /* what weights that stay are read with past the page cache: with opts.direct, and beside
                        what is streamed */
};

/* ---- placing_count.c: bytes, of a split and a context ---- */

/* Of pl->split. */
void placing_count_weights(struct placing *pl);
/* What sessions take at a context, which p->ctx is then. */
int placing_count_sessions(struct placing *pl, uint32_t ctx, struct lode_error *err);
uint64_t placing_sessions_at(const struct placing *pl, uint32_t place);
/* Of the host's memory, but for experts. */
uint64_t placing_fixed_size(const struct placing *pl);
/* The same with all streamed that can be. */
uint64_t placing_least_size(const struct placing *pl);
/* The largest context, a multiple of 256 below the present one, at which that fits on the host; 0: none.  What is
 * counted is then one that was tried. */
int placing_largest_streamed_ctx(struct placing *pl, uint32_t *out, struct lode_error *err);
/* The sum over places, host or devices. */
uint64_t placing_at_rung(const uint64_t bytes[LODE_PLACES], enum lode_rung rung);
/* The place whose memory has the cache of experts; LODE_HOST: there is none. */
uint32_t placing_beside_at(const struct placing *pl);
uint64_t placing_cache_at(const struct placing *pl, uint32_t place);
bool placing_fits_devices(const struct placing *pl);
bool placing_all_fits(const struct placing *pl);

/* ---- placing_split.c ---- */

/* What devices have, at a context. */
int placing_choose_split(struct placing *pl, uint32_t ctx, struct lode_error *err);

/* ---- placing_table.c ---- */

void placing_fill_rows(struct placing *pl);
void placing_predict(struct placing *pl);

/* ---- placing_advice.c ---- */

/* What to change to make it fit, or to gain by. */
int placing_give_advice(struct placing *pl, struct lode_error *err);

#endif
