/* model.h - a loaded model: weights, shapes, vocabulary.  It never changes and may be shared by
 * any number of threads and sessions; free it after the last session.
 *
 *     struct lode_model *m;
 *     if (lode_model_load(&m, "demo.gguf", NULL, &err) < 0) ...
 *     printf("%s, %u layers\n", lode_model_info(m)->arch, lode_model_info(m)->n_layers);
 *     lode_model_free(m);
 */
#ifndef LODE_MODEL_H
#define LODE_MODEL_H

#include "lode/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lode_model;
struct lode_tokenizer; /* lode/tokenizer.h */

/* Called now and then while long work goes on: done of total units of `what`.  A non-zero return
 * cancels (LODE_ERR_CANCELLED).  On the calling thread. */
typedef int lode_progress_fn(void *user, const char *what, uint64_t done, uint64_t total);

/* How numbers are made.  Whichever it is, a token's logits do not depend on who shares its batch, how its prompt was cut, or on
 * caches.
 *     auto    tensor where GPUs compute all of the model, else exact
 *     exact   the same bits on every machine, whatever computes
 *     tensor  on NVIDIA GPUs from Ampere on attention over keys and values in F16 or BF16, and products of F16 and BF16 weights, by
 *             the tensor cores, whose sums are their own: rows and weights of attention are rounded to 16 bits.  Quantised
 *             weights and all that a CPU computes are exact
 *     fast    tensor, and quantised weights as halves on Hopper; on CPUs that have BF16 instructions products of F16 and BF16
 *             weights by those */
#define LODE_NUMERICS_LIST(X) X(auto) X(exact) X(tensor) X(fast)

struct lode_model_opts { /* zero means the default, so name only what you change */
    const char *isa;     /* one of lode_machine_isas() (lode/machine.h); NULL: the best here */
    const char *numerics; /* one of LODE_NUMERICS_LIST; NULL: auto */
    const char *device;  /* "cpu", "cuda", "cuda:1", several of these with commas between (then layers are
                            shared out among them); "auto" or NULL: a CUDA device if there is one, else the
                            CPU.  lode_model_split says how much of the model runs there */
    const char *tensor_devices; /* "PATTERN=DEVICE,...": tensors whose names match the regular expression are
                            computed with there ("CPU", "CUDA0"); the first that matches decides; or NULL */
    const char *tensor_split; /* "3,1": how much of the layers each device has; NULL: by their free memory */
    const char *split_mode; /* "layer" or NULL: each device has some of the layers; "row" (or "tensor"): each has a
                            part of every matrix's rows, and of the heads, and they exchange what they have
                            computed, GPUs by NCCL (libnccl.so.2; where that is missing, layers are split);
                            "none": the first device alone.  No bit depends on it */
    uint64_t split_least;   /* diagnosis: of "row", what sharing out a matrix has to save in bytes where its
                            result is exchanged at once; 0: what pays */
    bool no_mmap;        /* read the weights into memory instead of mapping the file */
    bool direct;         /* read them past the system's page cache, which is left to others */
    bool mlock;          /* keep them there */
    bool prefault;       /* have the pages of mapped weights read in while loading, by several threads,
                            and the memory for what is streamed taken from the system */
    bool float_act;      /* diagnosis: quantised weights meet float activations */
    uint64_t expert_cache; /* bytes of memory for routed experts, which are then read from the file when
                              they are used; 0: all are in memory.  They run on the CPU then */
    uint64_t layer_cache; /* the same for the other matrices of layers: those of as many layers as fit stay, the
                              others, spread among them, are read in turn, one ahead; 0: all are in memory */
    const char *cache_policy; /* who leaves that memory first (lode trace lists them); NULL: the best */
    uint32_t bring_rows; /* diagnosis: a GPU beside the CPU is brought all experts (lode_model_gpu_cache) and the layers'
                            weights (lode_model_bring) of steps of so many tokens or more; 0: where that is quicker */
    const char *hot;     /* a list of experts that it begins with (lode/profile.h); NULL, or no such file.
                            LODE_ERR_ARG where it is another model's */
    bool no_prefetch;    /* experts of the next layer are not guessed and read ahead */
    bool no_checksum;    /* what packed models have of their weights is not compared */
    uint32_t experts;    /* experts that a token uses, the best so many; 0: as it was trained */
    bool vocab_only;     /* tokenizer and metadata, no weights; sessions are refused */
    lode_progress_fn *progress;
    void *progress_user;
};

struct lode_model_info { /* borrowed strings live as long as the model */
    const char *path, *arch, *name; /* name: general.name or "" */
    const char *type;               /* "Q4_K - Medium", "BF16", ...: as llama.cpp would say it */
    const char *chat_template;      /* Jinja source, or NULL */
    uint32_t n_layers, d_model, n_heads, n_kv_heads, n_vocab, ctx_train;
    uint64_t n_params;   /* numbers in all weights */
    uint64_t size;       /* bytes of all weights as they lie */
    uint64_t token_size; /* bytes of weights read for one token */
    uint64_t prompt_int_macs, prompt_float_macs; /* multiply-adds of a prompt's token with weights: of
                                                    8-bit integers, of floats */
    const char *isa;     /* instruction set in use */
    const char *numerics; /* "exact", or "tensor (CUDA tensor cores)", "fast (avx512bf16)", "fast (CUDA tensor cores)": and by
                             which instructions; once it is filled, of what computes */
    const char *device;  /* the GPU's name, or "CPU" */
    bool on_gpu;         /* some of it is */
    bool on_cpu;         /* some of it is; once it is filled */
    uint32_t gpu_layers; /* so many of its layers */
    uint32_t n_gpus;     /* that it may use; once it is filled, that it uses */
    int gpu;             /* the first of them, as lode_device_info counts */
    uint64_t uploaded;   /* bytes of weights that fill brought to them, and how long that took: reading included */
    double upload_seconds;
    bool vectors_only;       /* it gives no next token: lode/embed.h */
    const char *device_note; /* why "auto" left the GPU unused though there is one, or what it cannot
                                run; "" */
    const char *notes;   /* lines: what is left out or assumed; "" where there is nothing to say */
};

/* path: a GGUF file (the first of a sharded set loads all), a Hugging Face directory, or ORG/NAME as
 * it is called in Hugging Face's cache on this disk. */
LODE_API int lode_model_load(struct lode_model **out, const char *path,
                             const struct lode_model_opts *opts, struct lode_error *err);
/* The same in two steps, so that what it will need can be planned in between (lode/plan.h): open reads
 * headers and makes all but the weights; sessions are refused until fill has brought those.  Strings
 * of opts live until then.  After a fill that failed the model is good for nothing but freeing. */
LODE_API int lode_model_open(struct lode_model **out, const char *path,
                             const struct lode_model_opts *opts, struct lode_error *err);
LODE_API int lode_model_fill(struct lode_model *m, uint64_t expert_cache, uint64_t layer_cache,
                             struct lode_error *err);
/* Before fill: how much of the model its devices have.  The last gpu_layers of n_layers + 1, of which the
 * last is what follows the layers (the output, and with it the embedding), but not the experts of the
 * first cpu_experts layers.  Without this call: all, or nothing where "auto" finds too little memory. */
LODE_API void lode_model_split(struct lode_model *m, uint32_t gpu_layers, uint32_t cpu_experts);
/* Before fill, for a model whose experts are on the CPU in part and its layers on GPUs: the first of these computes
 * some of the CPU's experts too, those that are in `bytes` of its memory, where the ones that are used most come
 * to be, and some that it is given meanwhile; of a long prompt all, where that is quicker.  No bit of a result
 * depends on it.  Without this call none. */
LODE_API void lode_model_gpu_cache(struct lode_model *m, uint64_t bytes);
/* Before lode_model_fill: of steps of many tokens a GPU that has layers computes those of the CPU's too, with weights
 * that are brought to it, a part after the other, each time: where that is quicker, by the speeds of the bus and of the
 * CPU's products, which are measured, or as opts.bring_rows says.  Attention, recurrent states and experts stay with
 * the CPU.  No bit of a result depends on it.  Without this call none. */
LODE_API void lode_model_bring(struct lode_model *m);
/* Bytes of the layers' own matrices, without experts: what layer_cache can be of. */
LODE_API uint64_t lode_model_layers_size(const struct lode_model *m);
/* Whether a device that has a part of it has failed for good (a step said LODE_ERR_DEVICE): then no step of it
 * works again, and it is to be freed, as all models on that device, and loaded anew.  From any thread. */
LODE_API bool lode_model_lost(const struct lode_model *m);
LODE_API void lode_model_free(struct lode_model *m);
LODE_API const struct lode_model_info *lode_model_info(const struct lode_model *m);
/* Borrowed from the model; never NULL unless the file has no vocabulary. */
LODE_API const struct lode_tokenizer *lode_model_tokenizer(const struct lode_model *m);

/* Sampling defaults that the model's file carries (general.sampling.*): true and *value, or
 * false.  key: "temp", "top_k", "top_p", "min_p", "penalty_repeat", ... */
LODE_API bool lode_model_sampling_default(const struct lode_model *m, const char *key,
                                          double *value);

/* GPUs that this build can run models on; 0: why (may be NULL) says why there are none. */
LODE_API int lode_device_count(struct lode_error *why);
/* Name and memory of one, `index` < the count. */
LODE_API int lode_device_info(int index, char name[256], uint64_t *memory, struct lode_error *err);

/* Of one, bytes/s: what its memory gives to plain loads; what it reads and writes together, copying; what comes
 * from the host.  Takes a second, most of it to open the device, and meanwhile half of what is free there, from
 * half a GiB to 4 GiB. */
struct lode_device_speeds {
    double read, copy, bus;
    bool fast; /* it has what --numerics tensor and fast take; known even where an error says that nothing was measured */
};
LODE_API int lode_device_speeds(int index, struct lode_device_speeds *out, struct lode_error *err);

/* Architectures this build runs, NULL-terminated. */
LODE_API const char *const *lode_model_archs(void);

#ifdef __cplusplus
}
#endif
#endif
