/* build.h - what an architecture file writes with: settings, weights by name, common blocks.
 *
 * Loading runs the architecture's `setup` once (settings beyond the common ones), then its
 * `layer` for every layer; embedding, final norm and output are common.  Errors are kept in the
 * graph (graph/graph.h): after one, every call here returns NULL and does nothing, so that
 * architecture files need no error handling.
 */
#ifndef LODE_MODEL_BUILD_H
#define LODE_MODEL_BUILD_H

#include "format/source.h"
#include "graph/graph.h"
#include "model/rope.h"
#include "store/kv.h"
#include "store/state.h"

enum { LODE_MAX_ROPES = 2 };

/* Read from the file by common keys before setup runs; setup may change any of it. */
struct lode_hparams {
    uint32_t n_layers, d_model, d_ff, n_heads, n_kv_heads, head_dim, head_dim_v;
    uint32_t n_vocab, ctx_train;
    float norm_eps;
    bool layer_norm; /* LayerNorm (with biases where the file has them) instead of RMS norm */
    uint32_t window;       /* attention.sliding_window; 0: none */
    uint32_t window_period; /* every window_period-th layer sees all; 0: every layer has the window */
    uint32_t chunk; /* positions before the last multiple of this are not seen; 0: no such limit */
    float temperature; /* how queries grow by position: op TEMPERATURE's coef and floor */
    uint32_t temperature_floor;
    /* Routed experts; n_experts 0 where the model has none. */
    uint32_t n_experts, n_experts_used, n_experts_trained /* used in training */, d_ff_expert;
    uint32_t d_ff_shared;    /* width of the experts that all tokens use; 0: none */
    uint32_t n_dense_layers; /* the first layers, which have a plain FFN */
    uint32_t n_expert_groups, n_expert_groups_used;
    float expert_scale;
    bool expert_normalise;
    bool expert_weigh_input;
    uint32_t moe_period;   /* every moe_period-th layer has them, where an architecture says so */
    enum lode_gating gating;
    struct { /* latent attention (mla.c) */
        uint32_t q_rank;   /* 0: queries have no rank of their own */
        uint32_t rank;     /* of keys and values: what the cache keeps, beside the rotated part */
        uint32_t plain, v; /* numbers of a head's query that are not rotated, of its value */
    } mla;
    struct { /* recurrent layers (delta.c); the first of its kind, lfm2's convolution, has taps only */
        uint32_t taps; /* of the convolution */
        uint32_t n_k_heads, n_heads, dim_k, dim_v;
        uint32_t period; /* every period-th layer has attention, where the file has no list */
    } delta;
    float embed_scale, residual_scale, logit_scale; /* 1 where the model has none */
    float attn_scale;      /* of the scores; 1 / sqrt(head_dim) by default */
    float attn_cap, logit_cap; /* soft caps; 0: none */
    bool both_ways; /* attention.causal is false: every token sees its whole sequence */
    uint32_t n_parts;  /* of a pair that embeddings tell apart; 0: none do */
    uint32_t n_scores; /* of a classifier on one row of the result; 0: the model has none */
    struct lode_rope_spec ropes[LODE_MAX_ROPES];
    uint32_t n_ropes;
};

struct lode_build {
    const struct lode_source *source;
    const struct lode_arch *arch;
    uint32_t experts; /* lode_model_opts.experts */
    struct lode_hparams hp;
    struct lode_graph *g;
    struct lode_node *rope_tables[LODE_MAX_ROPES];
    struct lode_node *kept[4];   /* what an architecture keeps from layer to layer */
    struct lode_kv_layer *kv;    /* (n_layers): what attention declares it keeps */
    struct lode_state_layer *state; /* (n_layers): what recurrent layers declare they carry */
    struct lode_weight *weights; /* (n_weights of cap_weights) */
    uint32_t n_weights, cap_weights;
    uint32_t *weight_of; /* (tensors of the file): its weight, or UINT32_MAX */
    char note[512];      /* for the user: what is assumed; "": nothing */
};

struct lode_arch {
    char name[24]; /* general.architecture */
    bool rope_pairs; /* rotary pairs are (2i, 2i+1) as its GGUF files are written */
    bool by_layer;   /* counts may be arrays: hp has layer 0's, the layers ask lode_b_count */
    bool all_used;   /* a tensor that it has no use for is an error */
    bool encoder;    /* its result is the last layer's: no final norm, no logits */
    void (*setup)(struct lode_build *b); /* may be NULL */
    struct lode_node *(*layer)(struct lode_build *b, struct lode_node *x, uint32_t l);
    /* What is added to the tokens' embeddings x before the first layer; may be NULL */
    struct lode_node *(*embed)(struct lode_build *b, struct lode_node *x);
};

/* The weight of a name: required, or NULL when the file has none (_opt).  A missing or misshapen
 * tensor is an error that names it and the shape expected. */
__attribute__((format(printf, 4, 5))) const struct lode_operand *
lode_b_matrix(struct lode_build *b, uint32_t rows, uint32_t cols, const char *fmt, ...);
/* count matrices in one tensor of three dimensions. */
__attribute__((format(printf, 5, 6))) const struct lode_operand *
lode_b_experts(struct lode_build *b, uint32_t rows, uint32_t cols, uint32_t count, const char *fmt,
               ...);
__attribute__((format(printf, 3, 4))) const struct lode_operand *
lode_b_vector(struct lode_build *b, uint32_t n, const char *fmt, ...);
__attribute__((format(printf, 3, 4))) const struct lode_operand *
lode_b_vector_opt(struct lode_build *b, uint32_t n, const char *fmt, ...);
/* The same as one matrix of count * rows rows. */
__attribute__((format(printf, 5, 6))) const struct lode_operand *
lode_b_heads(struct lode_build *b, uint32_t rows, uint32_t cols, uint32_t count, const char *fmt,
             ...);
/* count vectors in one tensor of two dimensions. */
__attribute__((format(printf, 4, 5))) const struct lode_operand *
lode_b_vectors_opt(struct lode_build *b, uint32_t count, uint32_t n, const char *fmt, ...);
__attribute__((format(printf, 4, 5))) const struct lode_operand *
lode_b_vectors(struct lode_build *b, uint32_t count, uint32_t n, const char *fmt, ...);
bool lode_b_has(const struct lode_build *b, const char *name);
/* The numbers of a small F32 tensor, for settings that come as tensors; NULL when absent. */
const float *lode_b_floats(struct lode_build *b, const char *name, uint32_t n);
/* The same for "blk.L.NAME". */
const float *lode_b_layer_floats(struct lode_build *b, const char *name, uint32_t l, uint32_t n);
/* The count that layer l has under an architecture's key, an array or one for all; at most 2^24. */
uint32_t lode_b_count(const struct lode_build *b, const char *key, uint32_t l, uint32_t otherwise);

/* x W^T + bias for "NAME.weight" and, where the file has it, "NAME.bias". */
struct lode_node *lode_b_linear(struct lode_build *b, struct lode_node *x, uint32_t rows,
                                const char *name, uint32_t l);
/* The model's kind of norm by "NAME.weight" (and "NAME.bias") of layer l. */
struct lode_node *lode_b_norm(struct lode_build *b, struct lode_node *x, const char *name,
                              uint32_t l);

enum lode_qk_norm { /* before the rotation, but PLAIN after it */
    LODE_QK_NONE,
    LODE_QK_HEAD,  /* per head */
    LODE_QK_FULL,  /* the whole row */
    LODE_QK_PLAIN, /* per head, without weights */
};

struct lode_b_attn {
    enum lode_qk_norm qk_norm;
    bool fused_qkv;            /* one attn_qkv tensor */
    bool no_rope;
    uint32_t rope;   /* which of hp.ropes */
    uint32_t window, chunk; /* 0: all */
    bool temperature;       /* queries grow with the position, by hp.temperature */
    bool v_norm;            /* per head, without weights; with it, keys are values where the file
                               has no attn_v */
    uint32_t head_dim, n_heads, n_kv_heads; /* 0: the model's */
    struct lode_node **put;        /* where to leave the layer's KV_PUT; may be NULL */
    bool gated; /* attn_q has a gate beside each head's query, whose sigmoid multiplies its result */
    struct lode_node *share;       /* an earlier KV_PUT whose keys and values are read: no own ones */
};
/* Attention of layer l over h (already normed), its output projection included.  In the last layer
 * only the rows whose logits are wanted go on: *x, the residual, is picked along. */
struct lode_node *lode_b_attention(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                                   uint32_t l, const struct lode_b_attn *a);
/* The same for latent attention, by hp.mla. */
struct lode_node *lode_b_mla(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                             uint32_t l);
/* The gated delta rule of layer l in place of attention, by hp.delta; lode_b_delta_setup reads that.
 * tiled: value head h goes with key head h % n_k_heads. */
void lode_b_delta_setup(struct lode_build *b);
struct lode_node *lode_b_delta(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                               uint32_t l, bool tiled);
/* Whether layer l is recurrent. */
bool lode_b_recurrent(const struct lode_build *b, uint32_t l);
/* down(act(gate h) * up h); fused: gate and up are one tensor, ffn_up, gate first. */
struct lode_node *lode_b_ffn(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_glu act, bool fused);
/* The same for d_ff inner numbers and tensors gate, up, down of these names. */
struct lode_node *lode_b_gated(struct lode_build *b, struct lode_node *h, uint32_t l,
                               enum lode_glu act, uint32_t d_ff, const char *const names[3]);
/* The same for d_ff inner numbers and one tensor ffn_up of both. */
struct lode_node *lode_b_fused(struct lode_build *b, struct lode_node *h, uint32_t l,
                               enum lode_glu act, uint32_t d_ff);
/* down(act(up h)). */
struct lode_node *lode_b_mlp(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_act act);
/* In the last layer, the rows of h whose logits are wanted: for what is read beside attention. */
struct lode_node *lode_b_pick_last(struct lode_build *b, struct lode_node *h, uint32_t l);
/* Routed experts in place of the FFN, by hp.n_experts and so on: router, choice, experts; shared
 * experts are added where the file has them, by the gate that it has. */
struct lode_node *lode_b_moe(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_glu act);
/* Of encoders: the setup, and the sum that a token's embedding becomes. */
void lode_b_encoder(struct lode_build *b);
struct lode_node *lode_b_encoder_embed(struct lode_build *b, struct lode_node *x);
/* Layers that predict further tokens come last in a file and are not run. */
void lode_b_drop_nextn(struct lode_build *b);
/* Whether q and k come with rotary pairs (2i, 2i + 1): inside, all have them as (i, i + n / 2). */
bool lode_b_pairs(const struct lode_build *b);
/* The window of layer l by hp.window and hp.window_period. */
uint32_t lode_b_window(const struct lode_build *b, uint32_t l);

/* The list of architectures; one file arch_NAME.c each. */
#define LODE_ARCH_LIST(X)                                                                          \
    X(llama)                                                                                       \
    X(qwen2)                                                                                       \
    X(qwen3)                                                                                       \
    X(qwen3moe)                                                                                    \
    X(olmoe)                                                                                       \
    X(gemma)                                                                                       \
    X(gemma2)                                                                                      \
    X(gemma3)                                                                                      \
    X(phi3)                                                                                        \
    X(smollm3)                                                                                     \
    X(olmo2)                                                                                       \
    X(cohere2)                                                                                     \
    X(exaone4)                                                                                     \
    X(glm4moe)                                                                                     \
    X(stablelm)                                                                                    \
    X(granite)                                                                                     \
    X(phi2)                                                                                        \
    X(falcon)                                                                                      \
    X(gptneox)                                                                                     \
    X(starcoder2)                                                                                  \
    X(nemotron)                                                                                    \
    X(gptoss)                                                                                      \
    X(deepseek2)                                                                                   \
    X(llama4)                                                                                      \
    X(glm4)                                                                                        \
    X(seed_oss)                                                                                    \
    X(qwen2moe)                                                                                    \
    X(gemma4)                                                                                      \
    X(qwen3next)                                                                                   \
    X(qwen35)                                                                                      \
    X(qwen35moe)                                                                                   \
    X(lfm2)                                                                                        \
    X(phimoe)                                                                                      \
    X(minimax_m2)                                                                                  \
    X(openelm)                                                                                     \
    X(bert)                                                                                        \
    X(nomic_bert)

#define LODE_ARCH_DECLARE(name) extern const struct lode_arch lode_arch_##name;
LODE_ARCH_LIST(LODE_ARCH_DECLARE)
#undef LODE_ARCH_DECLARE

/* NULL when this build has no such architecture. */
const struct lode_arch *lode_arch_find(const char *name);
/* For all others: arch_standard.c, where the file's tensors are those of such a model. */
extern const struct lode_arch lode_arch_standard;
bool lode_arch_fits(const struct lode_source *s);

enum lode_stage {
    LODE_BODY, /* tokens to the final rows of the residual stream */
    LODE_TAIL, /* those rows to the final hidden states, normed: what embeddings pool */
    LODE_HEAD, /* those rows to logits; of an encoder, to its classifier's scores */
    LODE_STAGES
};
/* Reads the settings and builds the graphs.  b->source, arch and experts are set, the rest zero; kv,
 * state and weights are allocated here and the caller's to free,
 * whatever happens. */
int lode_build_model(struct lode_build *b, struct lode_graph graphs[LODE_STAGES],
                     struct lode_error *err);
int lode_hparams_read(struct lode_build *b, struct lode_error *err);

#endif
