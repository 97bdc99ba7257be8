/* hf_fam_neox.c - dense models with LayerNorms, most with an FFN without gate. */
#include "format/hf_parts.h"

#include "base/error.h"

/* ---- GPT-NeoX, Pythia ---- */

static const struct lode_hf_name neox_names[] = {
    LODE_HF_IS("embed_in", "token_embd"),
    LODE_HF_IS("final_layer_norm", "output_norm"),
    LODE_HF_IS("embed_out", "output"),
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.ffn_norm"),
    LODE_HF_CUT("layers.#.attention.query_key_value", "blk.#.attn_qkv", lode_hf_place_qkv),
    LODE_HF_IS("layers.#.attention.dense", "blk.#.attn_output"),
    LODE_HF_IS("layers.#.mlp.dense_h_to_4h", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.mlp.dense_4h_to_h", "blk.#.ffn_down"),
    LODE_HF_IS("layers.#.attention.bias", ""),
    LODE_HF_IS("layers.#.attention.masked_bias", ""),
    LODE_HF_IS("layers.#.attention.rotary_emb.inv_freq", ""),
    {0},
};

static int neox(struct lode_hf *h, struct lode_error *err) {
    uint32_t n_heads;
    LODE_TRY(lode_hf_count(h, "num_attention_heads", 0, &n_heads, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.head_count", n_heads, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.head_count_kv", n_heads, err));
    return lode_hf_put_flag(h, "use_parallel_residual",
                            lode_hf_flag(h, "use_parallel_residual", true), err);
}

/* ---- Falcon ---- */

static const struct lode_hf_name falcon_names[] = {
    LODE_HF_IS("word_embeddings", "token_embd"),
    LODE_HF_IS("ln_f", "output_norm"),
    LODE_HF_IS("h.#.input_layernorm", "blk.#.attn_norm"),
    LODE_HF_IS("h.#.ln_mlp", "blk.#.attn_norm"),
    LODE_HF_IS("h.#.ln_attn", "blk.#.attn_norm_2"),
    LODE_HF_CUT("h.#.self_attention.query_key_value", "blk.#.attn_qkv", lode_hf_place_qkv),
    LODE_HF_IS("h.#.self_attention.dense", "blk.#.attn_output"),
    LODE_HF_IS("h.#.mlp.dense_h_to_4h", "blk.#.ffn_up"),
    LODE_HF_IS("h.#.mlp.dense_4h_to_h", "blk.#.ffn_down"),
    LODE_HF_IS("h.#.self_attention.rotary_emb.inv_freq", ""),
    {0},
};

static int falcon(struct lode_hf *h, struct lode_error *err) {
    uint32_t n_heads, n_kv, width, d_ff;
    LODE_TRY(lode_hf_count(h, "num_attention_heads", 0, &n_heads, err));
    LODE_TRY(lode_hf_count(h, "num_kv_heads", n_heads, &n_kv, err));
    LODE_TRY(lode_hf_count(h, "hidden_size", 0, &width, err));
    LODE_TRY(lode_hf_count(h, "ffn_hidden_size", width <= 1 << 20 ? 4 * width : 0, &d_ff, err));
    if (!lode_hf_flag(h, "parallel_attn", true))
        return lode_hf_refuse(h, "parallel_attn", "false is not supported", err);
    if (!lode_hf_flag(h, "new_decoder_architecture", false)) /* num_kv_heads does not count */
        n_kv = lode_hf_flag(h, "multi_query", true) ? 1 : n_heads;
    LODE_TRY(lode_hf_put_u32(h, "attention.head_count", n_heads, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.head_count_kv", n_kv, err));
    return lode_hf_put_u32(h, "feed_forward_length", d_ff, err);
}

/* ---- Phi 1 to 2, StarCoder 2 ---- */

static const struct lode_hf_name phi_names[] = {
    LODE_HF_IS("final_layernorm", "output_norm"),
    LODE_HF_IS("layers.#.self_attn.dense", "blk.#.attn_output"),
    LODE_HF_IS("layers.#.mlp.fc1", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.mlp.fc2", "blk.#.ffn_down"),
    {0},
};

static const struct lode_hf_name starcoder2_names[] = {
    LODE_HF_IS("layers.#.mlp.c_fc", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.mlp.c_proj", "blk.#.ffn_down"),
    {0},
};

static const struct lode_hf_default neox_defaults[] = {{"rotary_pct", 0.25}, {0}};
static const struct lode_hf_default falcon_defaults[] = {
    {"max_position_embeddings", 2048}, {"tie_word_embeddings", 1}, {0}};
static const struct lode_hf_default phi_defaults[] = {{"rotary_pct", 0.5}, {0}};
static const struct lode_hf_default starcoder2_defaults[] = {{"tie_word_embeddings", 1}, {0}};

#define TANH_GELU " gelu_new gelu_fast gelu_pytorch_tanh "

const struct lode_hf_family lode_hf_neox_families[] = {
    {.model_type = "gpt_neox",
     .arch = "gptneox",
     .names = neox_names,
     .defaults = neox_defaults,
     .config = neox,
     .acts = " gelu ",
     .layer_norm = true},
    {.model_type = "falcon",
     .arch = "falcon",
     .names = falcon_names,
     .defaults = falcon_defaults,
     .config = falcon,
     .acts = " gelu ",
     .refuse = "alibi",
     .layer_norm = true},
    {.model_type = "phi",
     .arch = "phi2",
     .names = phi_names,
     .defaults = phi_defaults,
     .acts = TANH_GELU,
     .refuse = "qk_layernorm",
     .layer_norm = true},
    {.model_type = "starcoder2",
     .arch = "starcoder2",
     .names = starcoder2_names,
     .defaults = starcoder2_defaults,
     .acts = TANH_GELU,
     .layer_norm = true,
     .window = true},
    {.model_type = "nemotron",
     .arch = "nemotron",
     .defaults = phi_defaults, /* half of a head rotates here too */
     .acts = " relu2 ",
     .layer_norm = true,
     .plus_one = true},
    {.model_type = "stablelm",
     .arch = "stablelm",
     .defaults = neox_defaults,
     .refuse = "qk_layernorm",
     .layer_norm = true},
    {0},
};
