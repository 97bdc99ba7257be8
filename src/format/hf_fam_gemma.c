/* hf_fam_gemma.c - Gemma 1 to 4: norms whose weights miss one (but Gemma 4's), GELU. */
#include "format/hf_parts.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>

static const struct lode_hf_name post_norm[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    {0},
};

/* Where GGUF has defaults: absent means none. */
static int read_caps(struct lode_hf *h, struct lode_error *err) {
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (int i = 0; i < 2; i++) {
        double cap;
        LODE_TRY(lode_hf_number(h, NULL, caps[i], 0, &cap, err));
        LODE_TRY(lode_hf_put_f64(h, caps[i], cap, err));
    }
    return 0;
}

static int gemma(struct lode_hf *h, struct lode_error *err) {
    double scalar;
    LODE_TRY(lode_hf_number(h, NULL, "query_pre_attn_scalar", 0, &scalar, err));
    if (scalar > 0)
        LODE_TRY(lode_hf_put_f64(h, "attention.scale", 1 / sqrt(scalar), err));
    return read_caps(h, err);
}

/* ---- Gemma 4: layers differ in more than their window ---- */

static float as_is(float number) { return number; }

static const struct lode_hf_name gemma4_names[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    LODE_HF_MAPPED("layers.#.layer_scalar", "blk.#.layer_output_scale", as_is),
    LODE_HF_IS("layers.#.per_layer_input_gate", "blk.#.inp_gate"),
    LODE_HF_IS("layers.#.per_layer_projection", "blk.#.proj"),
    LODE_HF_IS("layers.#.post_per_layer_input_norm", "blk.#.post_norm"),
    LODE_HF_IS("embed_tokens_per_layer", "per_layer_token_embd"),
    LODE_HF_IS("per_layer_model_projection", "per_layer_model_proj"),
    LODE_HF_IS("per_layer_projection_norm", "per_layer_proj_norm"),
    {0},
};

/* A number of the layers that see all: named by itself, or the first such layer's in
 * per_layer_config. */
static int read_global(struct lode_hf *h, const char *name, const char *field, uint32_t layer,
                       uint32_t otherwise, uint32_t *out, struct lode_error *err) {
    char key[16];
    int64_t n;
    snprintf(key, sizeof key, "%u", layer);
    const struct lode_json *own = lode_json_get(lode_hf_field(h, "per_layer_config"), key);
    LODE_TRY(lode_hf_count(h, name, otherwise, out, err));
    if (lode_json_int(lode_json_get(own, field), 1, 1 << 24, &n))
        *out = (uint32_t)n;
    return 0;
}

struct gemma4 { /* what layers with a window have, and the others */
    uint32_t dim, dim_all, kv, kv_all;
};

static int put_layers(struct lode_hf *h, const struct gemma4 *g, const unsigned char *window,
                      struct lode_error *err) {
    uint32_t shared, d_ff;
    uint32_t *kv = LODE_ARENA_ARRAY(&h->arena, uint32_t, h->n_layers);
    uint32_t *ff = LODE_ARENA_ARRAY(&h->arena, uint32_t, h->n_layers);
    if (!kv || !ff)
        return lode_fail_nomem(err, "layers");
    LODE_TRY(lode_hf_count(h, "num_kv_shared_layers", 0, &shared, err));
    LODE_TRY(lode_hf_count(h, "intermediate_size", 0, &d_ff, err));
    const bool wide = lode_hf_flag(h, "use_double_wide_mlp", false);
    for (uint32_t l = 0; l < h->n_layers; l++) {
        kv[l] = window[l] ? g->kv : g->kv_all;
        ff[l] = wide && shared && l + shared >= h->n_layers ? 2 * d_ff : d_ff;
    }
    LODE_TRY(lode_hf_put_u32(h, "attention.shared_kv_layers", shared, err));
    LODE_TRY(lode_hf_put_flags(h, "attention.sliding_window_pattern", window, h->n_layers, err));
    if (g->kv != g->kv_all)
        LODE_TRY(lode_hf_put_counts(h, "attention.head_count_kv", kv, h->n_layers, err));
    return wide ? lode_hf_put_counts(h, "feed_forward_length", ff, h->n_layers, err) : 0;
}

static int gemma4(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"hidden_size_per_layer_input", "embedding_length_per_layer_input", LODE_HF_COUNT},
        {"sliding_window", "attention.sliding_window", LODE_HF_COUNT},
    };
    const struct lode_json *types = lode_hf_field(h, "layer_types"), *c;
    struct gemma4 g;
    uint32_t all = 0, l = 0;
    double partial = 1;
    if (lode_json_count(types) < h->n_layers)
        return lode_hf_fail_field(h, "layer_types", "one entry a layer", err);
    unsigned char *window = LODE_ARENA_ARRAY(&h->arena, unsigned char, h->n_layers);
    if (!window)
        return lode_fail_nomem(err, "layers");
    for (c = lode_json_first(types); l < h->n_layers; c = lode_json_next(types, c), l++)
        window[l] = lode_str_eqz(lode_json_str(c), "sliding_attention");
    while (all < h->n_layers && window[all])
        all++;
    LODE_TRY(lode_hf_count(h, "head_dim", 256, &g.dim, err));
    LODE_TRY(lode_hf_count(h, "num_key_value_heads", 1, &g.kv, err));
    LODE_TRY(read_global(h, "global_head_dim", "head_dim", all, g.dim, &g.dim_all, err));
    LODE_TRY(read_global(h, "num_global_key_value_heads", "num_key_value_heads", all, g.kv,
                         &g.kv_all, err));
    const struct lode_json *local =
        lode_json_get(lode_hf_field(h, "rope_parameters"), "sliding_attention");
    if (local)
        LODE_TRY(lode_hf_number(h, local, "partial_rotary_factor", 1, &partial, err));
    if (!(partial > 0 && partial <= 1))
        return lode_hf_fail_field(h, "partial_rotary_factor", "more than 0, at most 1", err);
    LODE_TRY(lode_hf_put_u32(h, "attention.key_length", g.dim_all, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.value_length", g.dim_all, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.key_length_swa", g.dim, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.value_length_swa", g.dim, err));
    LODE_TRY(lode_hf_put_u32(h, "rope.dimension_count_swa", (uint32_t)(g.dim * partial), err));
    LODE_TRY(put_layers(h, &g, window, err));
    LODE_TRY(lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err));
    return read_caps(h, err);
}

/* What transformers takes where published configurations leave a field out. */
static const struct lode_hf_default gemma1_defaults[] = {
    {"head_dim", 256}, {"tie_word_embeddings", 1}, {0}};
static const struct lode_hf_default gemma2_defaults[] = {
    {"head_dim", 256}, {"query_pre_attn_scalar", 256}, {"tie_word_embeddings", 1}, {0}};
static const struct lode_hf_default gemma3_defaults[] = {
    {"num_attention_heads", 8}, {"num_key_value_heads", 4},
    {"head_dim", 256},          {"query_pre_attn_scalar", 256},
    {"rope_theta", 1e6},        {"max_position_embeddings", 131072},
    {"tie_word_embeddings", 1}, {0}};
static const struct lode_hf_default gemma4_defaults[] = {
    {"max_position_embeddings", 131072}, {"tie_word_embeddings", 1}, {0}};

#define GELU .acts = " gelu gelu_pytorch_tanh "
#define GEMMA3                                                                                     \
    GELU, .arch = "gemma3", .names = post_norm, .defaults = gemma3_defaults, .config = gemma,      \
          .plus_one = true, .window = true, .period = 6, .any_period = true, .local_rope = true
#define GEMMA4                                                                                     \
    .arch = "gemma4", .names = gemma4_names, .defaults = gemma4_defaults, .config = gemma4,        \
    .acts = " gelu_pytorch_tanh ", .refuse = "enable_moe_block", .local_rope = true

const struct lode_hf_family lode_hf_gemma_families[] = {
    {GELU, .model_type = "gemma", .arch = "gemma", .defaults = gemma1_defaults, .plus_one = true},
    {GELU, .model_type = "gemma2", .arch = "gemma2", .names = post_norm,
     .defaults = gemma2_defaults, .config = gemma, .plus_one = true, .window = true, .period = 2},
    {GEMMA3, .model_type = "gemma3_text"},
    {GEMMA3, .model_type = "gemma3"},
    {GEMMA4, .model_type = "gemma4_text"},
    {GEMMA4, .model_type = "gemma4"},
    {0},
};
