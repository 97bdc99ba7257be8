/* load.h - the model and session that most verbs need: their flags, and loading with a bar. */
#ifndef LODE_TOOLS_LOAD_H
#define LODE_TOOLS_LOAD_H

#include "args.h"

#include "lode/machine.h"
#include "lode/model.h"
#include "lode/plan.h"
#include "lode/session.h"
#include "lode/trace.h"

struct load_opts {
    const char *model, *ctk, *ctv, *kv, *isa, *numerics, *device;
    int64_t ctx, batch, threads, experts, gpu_layers;
    uint64_t expert_cache, layer_cache, split_least;
    const char *cache_policy, *hot, *profile_json, *profile_tokens;
    bool direct, profile, no_prefetch, no_checksum;
    struct arg_share ram, vram, vram_experts;
    uint32_t parallel; /* sessions at once; set by verbs, 0: 1 */
    uint32_t waiting;  /* requests that may wait for one; set by verbs */
    uint64_t own;      /* bytes that the verb holds beside the model; set by verbs */
    const char *tensor_devices, *tensor_split, *split_mode;
    bool cpu_moe, fit, no_op_offload;
    int64_t n_cpu_moe, bring_rows;
    bool no_mmap, mlock, prefault, float_act;
};

extern const char *const load_numerics[];
extern const char *const load_split_modes[];

/* Rows of a verb's table, for a `struct load_opts load` within its options. */
#define LOAD_MODEL_FLAGS(type) ARG_MODEL(type, load.model), LOAD_DEBUG_FLAGS(type)

#define LOAD_DEBUG_FLAGS(type)                                                                     \
    { "--no-mmap", ARG_BOOL, ARG_AT(type, load.no_mmap), .debug = true,                            \
      .help = "read the weights into memory instead of mapping the file" },                        \
        { "--mlock", ARG_BOOL, ARG_AT(type, load.mlock),                                           \
          .help = "forbid the system to page the weights out" },                                   \
        { "--prefault", ARG_BOOL, ARG_AT(type, load.prefault),                                     \
          .help = "read all mapped weights in while loading, and have the memory for what is "       \
                  "streamed, so that the first tokens are fast" },                                 \
        { "--isa", ARG_CHOICE, ARG_AT(type, load.isa), .meta = "SET", .choices_of = lode_machine_isas, \
          .shown = "the best that this CPU has", .debug = true,                                    \
          .help = "instruction set of the kernels" },                                              \
        { "--numerics", ARG_CHOICE, ARG_AT(type, load.numerics), .meta = "auto|exact|tensor|fast",   \
          .def = "auto", .choices = load_numerics,                                                 \
          .help = "exact: the same bits on every machine; tensor: on GPUs attention, and F16 and "    \
                  "BF16 weights, by tensor cores, which round numbers to 16 bits (quantised weights " \
                  "stay exact); fast: on Hopper quantised weights too, and on CPUs F16 and BF16 "     \
                  "weights by BF16 instructions; auto: tensor if GPUs compute all of it, else exact" }, \
        { "--device", ARG_STR, ARG_AT(type, load.device), .meta = "DEV", .def = "auto",               \
          .help = "where the model runs: auto, cuda, cuda:N, several with commas between, or cpu" },   \
        { "-ngl, --n-gpu-layers, --gpu-layers", ARG_INT, ARG_AT(type, load.gpu_layers),               \
          .meta = "N", .min = -1, .max = 1 << 20, .def = "-1", .shown = "as many as fit",             \
          .help = "layers on the GPU, the last N and then the output: 0 is --device cpu" },           \
        { "-ts, --tensor-split", ARG_STR, ARG_AT(type, load.tensor_split), .meta = "N,N,...",         \
          .shown = "by their free memory", .help = "the share of the layers that each GPU has" },     \
        { "-sm, --split-mode", ARG_CHOICE, ARG_AT(type, load.split_mode), .meta = "MODE",             \
          .def = "layer", .choices = load_split_modes,                                                \
          .help = "how several GPUs share a model: layer: each has some layers; row (or tensor): "    \
                  "each a part of all matrices, by NCCL; none: the first has all" },                  \
        { "--split-least", ARG_SIZE, ARG_AT(type, load.split_least), .meta = "BYTES", .def = "0",     \
          .shown = "what pays", .debug = true,                                                        \
          .help = "of --split-mode row: what sharing out a matrix must save where its result is "     \
                  "exchanged at once" },                                                              \
        { "--float-act", ARG_BOOL, ARG_AT(type, load.float_act), .debug = true,                    \
          .help = "experimental: quantised weights meet float activations (slow, exact)" }

#define LOAD_SESSION_FLAGS(type)                                                                   \
    { "-t, --threads", ARG_INT, ARG_AT(type, load.threads), .meta = "N", .min = 0, .max = 1024,    \
      .def = "0", .shown = "the physical cores this process may use; of 8 or more one less beside a GPU",   \
      .group = "Speed and memory", .help = "threads" },                                            \
        { "-b, --batch-size, --batch", ARG_INT, ARG_AT(type, load.batch), .meta = "N", .min = 0,   \
          .max = 1 << 20, .def = "0",                                                              \
          .shown = "512; more where experts are streamed, fewer where weights need the room",      \
          .help = "prompt tokens evaluated at once" },                                             \
        { "-ctk, --cache-type-k", ARG_CHOICE, ARG_AT(type, load.ctk), .meta = "TYPE",              \
          .def = "f16", .choices = arg_kv_types, .help = "how keys are stored" },                  \
        { "-ctv, --cache-type-v", ARG_CHOICE, ARG_AT(type, load.ctv), .meta = "TYPE",              \
          .def = "f16", .choices = arg_kv_types, .help = "how values are stored" },                \
        { "--kv", ARG_CHOICE, ARG_AT(type, load.kv), .meta = "TYPE", .shown = "-ctk and -ctv",     \
          .choices = arg_kv_types, .help = "both of them" },                                       \
        LOAD_EXPERTS_FLAG(type)

#define LOAD_EXPERTS_FLAG(type)                                                                    \
    { "--experts", ARG_INT, ARG_AT(type, load.experts), .meta = "K", .min = 0, .max = 4096,        \
      .def = "0", .shown = "as it was trained",                                                    \
      .help = "experts that each token uses, the best K of all" },                                 \
        { "--expert-cache", ARG_SIZE, ARG_AT(type, load.expert_cache), .meta = "BYTES",            \
          .def = "0", .shown = "all are in memory",                                                \
          .help = "memory for the experts, which are then read from the file when they are used" },     \
        { "--layer-cache", ARG_SIZE, ARG_AT(type, load.layer_cache), .meta = "BYTES",              \
          .def = "0", .shown = "all are in memory",                                                \
          .help = "memory for the layers' other matrices, which are then read in turn" },          \
        { "--direct", ARG_BOOL, ARG_AT(type, load.direct),                                         \
          .help = "read weights past the system's page cache, into memory of the program's own" }, \
        { "--hot-experts", ARG_STR, ARG_AT(type, load.hot), .meta = "FILE",                        \
          .help = "begin with the experts that this file says are used most, and keep it up to date" }, \
        { "--cache-policy", ARG_CHOICE, ARG_AT(type, load.cache_policy), .meta = "NAME",           \
          .choices_of = lode_trace_policies, .shown = "the best", .debug = true,                   \
          .help = "which experts leave that memory first" },                                       \
        { "--bring-rows", ARG_INT, ARG_AT(type, load.bring_rows), .meta = "N", .min = 0, .max = 1 << 20, .debug = true, \
          .def = "0", .shown = "where it is quicker",                                               \
          .help = "bring all experts and layers to the GPU for steps of so many tokens" },                     \
        { "--no-prefetch", ARG_BOOL, ARG_AT(type, load.no_prefetch), .debug = true,                \
          .help = "do not guess the next layer's experts" },                                       \
        { "--no-checksum", ARG_BOOL, ARG_AT(type, load.no_checksum), .debug = true,                \
          .help = "do not compare the checksums of a packed model" },                              \
        { "--profile", ARG_BOOL, ARG_AT(type, load.profile),                                       \
          .help = "say at the end where the time went, layer by layer and in the slowest tokens, on " \
                  "standard error" },                                                              \
        { "--profile-json", ARG_STR, ARG_AT(type, load.profile_json), .meta = "FILE",              \
          .help = "write it as JSON" },                                                            \
        { "--profile-tokens", ARG_STR, ARG_AT(type, load.profile_tokens), .meta = "FILE",          \
          .help = "write each step's own as soon as it is done, a line of JSON each, layer by "    \
                  "layer; the file is begun anew and may be followed" },                           \
        { "--ram", ARG_SHARE, ARG_AT(type, load.ram), .meta = "SIZE|%",                            \
          .shown = "what is free", .help = "memory for all of it: weights, experts, KV cache, "    \
          "buffers, the program; what cannot fit is refused (lode plan)" },                        \
        { "--vram", ARG_SHARE, ARG_AT(type, load.vram), .meta = "SIZE|%",                          \
          .shown = "all of the GPU's", .help = "the same for the GPU; 0: it is not used" },        \
        { "--vram-experts", ARG_SHARE, ARG_AT(type, load.vram_experts), .meta = "SIZE|%",          \
          .shown = "what is left of it", .help = "of that, for those of the CPU's experts that are used most, which the " \
          "GPU then computes; 0: none, nor any that it is brought" },                               \
        { "-nopo, --no-op-offload", ARG_BOOL, ARG_AT(type, load.no_op_offload),                     \
          .help = "the CPU computes its layers in long prompts too, instead of a GPU that is brought their weights" }, \
        { "--fit", ARG_BOOL, ARG_AT(type, load.fit),                                               \
          .help = "say which context and placement were chosen" },                                 \
        { "-ot, --override-tensor", ARG_STR, ARG_AT(type, load.tensor_devices),                    \
          .meta = "PATTERN=DEVICE,...",                                                            \
          .help = "where tensors whose names match are computed with: CPU, CUDA0, ..." },          \
        { "-cmoe, --cpu-moe", ARG_BOOL, ARG_AT(type, load.cpu_moe),                                \
          .help = "experts on the CPU, the rest on the GPU" },                                     \
        { "-ncmoe, --n-cpu-moe", ARG_INT, ARG_AT(type, load.n_cpu_moe), .meta = "N", .def = "0",   \
          .min = 0, .max = 1 << 20, .help = "the same for the experts of the first N layers" }

/* What llama.cpp users type and this program has no use for. */
#define LOAD_FOREIGN_FLAGS                                                                         \
    { "-fa, --flash-attn", ARG_FOREIGN, .meta = "on|off|auto",                                 \
          .help = "attention never stores the matrix of scores" },                                 \
        { "-ub, --ubatch-size", ARG_FOREIGN, .meta = "N", .help = "-b is the only batch size" },   \
        { "-tb, --threads-batch", ARG_FOREIGN, .meta = "N",                                        \
          .help = "-t sets the threads of prompt and answer" }

/* Prints the devices that models can run on (--list-devices, with any verb or none); returns 0. */
int load_list_devices(void);
/* Headers only (lode_model_open), for plans; says what is left out or assumed. */
int load_open(struct lode_model **out, const struct load_opts *o, struct lode_error *err);
struct lode_budget load_budget(const struct load_opts *o);
/* Plans, loads by the plan, with a bar on the terminal, and says what was chosen.  o->ctx becomes the
 * plan's where that had to be cut. */
int load_model(struct lode_model **out, struct load_opts *o, struct lode_error *err);
/* Fills the session's options from the flags; the caller may add to them. */
struct lode_session_opts load_session_opts(const struct load_opts *o);

#endif
