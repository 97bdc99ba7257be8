/* plan.h - what a model and its sessions will use and do, before they exist.
 *
 * The same counting decides inside lode_session_create whether a session fits; this is how a
 * program shows it, and how it decides what of a model stays in memory:
 *
 *     lode_model_open(&m, path, &opts, &err);                       headers only
 *     lode_plan_place(m, &session_opts, &budget, &p, &err);
 *     if (!p.fits)
 *         puts(p.advice);
 *     lode_model_split(m, p.gpu_layers, p.cpu_experts);
 *     if (p.gpu_beside)
 *         lode_model_gpu_cache(m, p.gpu_cache);
 *     if (p.brings)
 *         lode_model_bring(m);
 *     lode_model_fill(m, p.expert_cache, p.layer_cache, &err);
 *     session_opts.ctx = p.ctx;
 */
#ifndef LODE_PLAN_H
#define LODE_PLAN_H

#include "lode/session.h"

/* Of the speed at which plain reading of RAM goes, what computing with weights there comes to; and of that of products
 * with weights in the cache.  Both count what lies between products; products alone come to RAM_SHARE_APART of reading, and
 * to the cache's speed. */
#define LODE_PLAN_RAM_SHARE 0.75
#define LODE_PLAN_MULTIPLY_SHARE 0.9
#define LODE_PLAN_RAM_SHARE_APART 0.85

#ifdef __cplusplus
extern "C" {
#endif

struct lode_memory_plan { /* bytes */
    uint64_t weights;     /* as they lie; pages of the mapped file, given back under pressure */
    uint64_t repacked;    /* copies of weights in another layout, or read instead of mapped */
    uint64_t kv;          /* for the whole context; touched as the timeline grows */
    uint64_t state;       /* of recurrent layers, with checkpoints; the same for every context */
    uint64_t state_token; /* read and written of it for each token that is generated */
    uint64_t work;        /* buffers for steps */
    uint64_t available;   /* what is left for kv + state + work: of memory (the machine's and the control
                             group's), and of GPUs where layers run on them */
    uint32_t ctx;         /* the context these numbers are for */
    bool fits;            /* false: kv, state, work and available are those of the place that has too little */
    bool short_of_gpu;    /* which is a GPU */
};

/* opts as for lode_session_create (NULL: defaults).  With ctx 0 the plan is for the model's
 * trained context or, where memory does not hold that, the largest that fits.  A plan that does not
 * fit is no error: fits says so. */
LODE_API int lode_plan_memory(const struct lode_model *m, const struct lode_session_opts *opts,
                              struct lode_memory_plan *out, struct lode_error *err);

/* The rungs of the ladder, the fastest first. */
enum lode_rung { LODE_RUNG_VRAM, LODE_RUNG_RAM, LODE_RUNG_DISK, LODE_RUNGS };

enum { LODE_PLACEMENT_ROWS = 12, LODE_PLACEMENT_GPUS = 8 };
struct lode_placement_row {
    const char *name;          /* "attention", "experts", "KV cache", ... */
    uint64_t size[LODE_RUNGS]; /* bytes that live there; of experts on disk those not in memory */
    double read[LODE_RUNGS];   /* bytes read from there for a token */
};

#define LODE_NO_GPU_CACHE UINT64_MAX

/* What a token takes besides going through its weights: its seconds, in which it went through so many bytes of them
 * all the same; or, of a model that the CPU's last cache holds (whole), through all of them, from there. */
struct lode_besides {
    double seconds, bytes;
    bool whole;
};

struct lode_budget { /* zero means the default */
    uint64_t ram;      /* bytes for all that this program holds, at most and by default what the machine
                          and the control groups have left */
    uint64_t vram;     /* bytes of each of the model's GPUs; 0: what other programs leave of them */
    uint64_t own;      /* bytes of that which the caller holds or will, beside models: a text, its tokens */
    uint32_t gpu_layers;  /* so many of n_layers + 1 on the GPUs (lode_model_split); 0: chosen */
    uint32_t cpu_experts; /* the experts of the first so many layers on the CPU; 0: chosen */
    uint64_t gpu_cache;   /* bytes of a GPU for those of them that are used most (lode_model_gpu_cache); 0: chosen,
                             but none where cpu_experts was named; LODE_NO_GPU_CACHE: none */
    bool no_bring;        /* no weights of the CPU's layers are brought to a GPU (lode_model_bring) */
    uint32_t parallel; /* sequences at once, each with the whole context; 0: 1 */
    double hit_rate;   /* of the cache of experts at the size that will be chosen; 0: 1 - (1 - c)^1.75,
                          c the share of experts that it holds, about what recorded routes give */
    double waits;      /* seconds that a token waits for its experts, from a replay of routes in time
                          (lode/trace.h); 0: what is missed over the disk's speed */
    double ram_speed, disk_speed, vram_speed; /* bytes/s; 0: not known, and no tokens/s are said */
    double multiply_speed; /* bytes/s of weights in the CPU's cache (lode_model_multiply_bandwidth); 0: not known,
                              and memory alone is what holds products up */
    double bus_speed;  /* bytes/s between the host and a GPU; 0: not known */
    double fork_time;  /* seconds that threads need to share one product (lode_machine_fork_time) */
    struct lode_besides besides; /* of a token on the CPU (lode_model_besides); zeros: what fork_time says alone */
};

struct lode_placement {
    struct lode_placement_row rows[LODE_PLACEMENT_ROWS];
    uint32_t n_rows;
    uint64_t size[LODE_RUNGS], budget[LODE_RUNGS]; /* sums; what there is, 0: no such limit */
    double read[LODE_RUNGS];                       /* sums, at an empty context */
    double read_full[LODE_RUNGS]; /* at a full one */
    double bus;              /* bytes that cross between the host and GPUs for a token, */
    uint32_t borders;        /* in so many pieces */
    uint32_t forks;          /* of a token on the CPU: pieces of work that its threads share */
    uint32_t launches, expert_launches; /* of a token on GPUs: instructions, and of those the experts' */
    uint32_t exchanges;      /* of a token between GPUs that share rows: "row" of lode_model_opts.split_mode */
    uint32_t n_gpus;         /* places beside the host, */
    uint64_t gpu_size[LODE_PLACEMENT_GPUS], gpu_room[LODE_PLACEMENT_GPUS]; /* (n_gpus) what each has of it, and has */
    uint32_t gpu_layers, cpu_experts; /* for lode_model_split */
    bool gpu_beside;         /* for lode_model_gpu_cache: a GPU computes some of the CPU's experts, */
    uint64_t gpu_cache;      /* those that are in so many bytes of it, */
    double gpu_hit_rate;     /* which so many of the uses find there; and others are brought: */
    double upload_seconds;   /* what a prompt's step takes to bring all others; 0: not known */
    bool brings;             /* for lode_model_bring: of steps of many tokens a GPU computes the CPU's layers too, */
    uint64_t bring_size;     /* for which so many bytes are brought, */
    double bring_seconds;    /* in so long; 0: not known */
    uint32_t bring_rows;     /* where it is quicker: steps of so many tokens or more; 0: not known, or none */
    uint64_t bring_lacks;    /* not 0: nothing is brought, for want of so many bytes of a GPU beside the layers there */
    uint32_t n_layers;
    uint32_t ctx, parallel;
    uint32_t batch;          /* for the session: what was asked for, or more than its default where experts
                                are streamed for one sequence, as a batch reads each of them once; fewer where
                                that leaves room for weights which else were read from the disk */
    uint32_t ctx_wanted;     /* what was asked for, or trained; more than ctx: it was cut to fit */
    uint64_t expert_cache;   /* bytes for lode_model_fill; 0: no expert is streamed */
    uint64_t layer_cache;    /* the same for the layers' own matrices, where not even those fit */
    uint64_t experts_size, expert_cache_least, layers_size, layer_cache_least;
    double hit_rate;         /* that read[] reckons with; 1: all are there */
    double tokens_per_second, tokens_per_second_full; /* at an empty and a full context; 0: unknown */
    bool fits, on_gpu; /* on_gpu: some of it */
    char advice[768];        /* lines: what to change to make it fit, or faster; "": nothing */
};

/* Bytes/s at which so many threads (0: all cores) multiply what a token reads of the model's weights where
 * these lie in the CPU's own cache, which is the most that quicker memory could bring.  Takes 30 ms for each type of
 * weights that counts; 0: they have no products of their own; LODE_ERR_LIMIT, LODE_ERR_NOMEM. */
LODE_API double lode_model_multiply_bandwidth(const struct lode_model *m, uint32_t threads, struct lode_error *err);

/* Measures that for a token whose context is short, with so many threads (0: all cores): takes some 70 ms.  Zeros where
 * GPUs compute, the model gives no tokens, or memory is short; LODE_ERR_NOMEM. */
LODE_API int lode_model_besides(const struct lode_model *m, uint32_t threads, struct lode_besides *out,
                                struct lode_error *err);

/* Bytes/s at which a token goes through weights in RAM, by the budget's speeds; 0: not known. */
LODE_API double lode_plan_ram_pace(const struct lode_budget *b);
/* Seconds that it takes besides, on the CPU, by what the budget knows. */
LODE_API double lode_plan_besides(const struct lode_placement *p, const struct lode_budget *b);

/* Nothing needs to be loaded (lode_model_open).  A context that opts names is kept, and what does not
 * fit then is no error: fits says so, and advice what would.  Without one, the largest is chosen that
 * leaves all weights in memory, down to 4096; then a batch that nobody named gives way to weights as far as that spares
 * the disk; what is too much all the same is streamed, experts first, then layers; and where even that does not fit,
 * the context gives way to the largest with which it does. */
LODE_API int lode_plan_place(const struct lode_model *m, const struct lode_session_opts *opts,
                             const struct lode_budget *budget, struct lode_placement *out,
                             struct lode_error *err);

struct lode_plan_step {
    const char *op;        /* "LINEAR", ... */
    const char *gradient;  /* how its derivative is formed, in words */
    uint32_t n_outputs;    /* products that run as one */
    uint64_t weight_bytes; /* read once per step */
    uint64_t row_bytes;    /* read and written for each row */
    uint64_t row_flops;    /* for each row; attention: per position seen */
};

/* The instructions of one step, in order; i < lode_plan_n_steps. */
LODE_API size_t lode_plan_n_steps(const struct lode_model *m);
LODE_API struct lode_plan_step lode_plan_step(const struct lode_model *m, size_t i);

#ifdef __cplusplus
}
#endif
#endif
