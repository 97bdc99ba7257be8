/* hf_fam_mla.c - latent attention: DeepSeek V2 to V3.1, Kimi K2, GLM 4.7 Flash. */
#include "format/hf_parts.h"

#include "base/error.h"

static const struct lode_hf_name names[] = {
    LODE_HF_IS("layers.#.self_attn.q_a_proj", "blk.#.attn_q_a"),
    LODE_HF_IS("layers.#.self_attn.q_a_layernorm", "blk.#.attn_q_a_norm"),
    LODE_HF_IS("layers.#.self_attn.q_b_proj", "blk.#.attn_q_b"),
    LODE_HF_IS("layers.#.self_attn.kv_a_proj_with_mqa", "blk.#.attn_kv_a_mqa"),
    LODE_HF_IS("layers.#.self_attn.kv_a_layernorm", "blk.#.attn_kv_a_norm"),
    LODE_HF_CUT("layers.#.self_attn.kv_b_proj", "blk.#.attn_k_b", lode_hf_place_kv_b),
    LODE_HF_IS("layers.#.self_attn.embed_q", "blk.#.attn_k_b"), /* MLX: cut already */
    LODE_HF_IS("layers.#.self_attn.unembed_out", "blk.#.attn_v_b"),
    {0},
};

/* How experts are chosen: softmax or sigmoid, in groups or not. */
static int read_routing(struct lode_hf *h, bool sigmoid, struct lode_error *err) {
    char word[LODE_HF_WORD];
    uint32_t every;
    const char *scoring = lode_hf_word(lode_hf_field(h, "scoring_func"), word);
    if (scoring && strcmp(scoring, "softmax") != 0 && strcmp(scoring, "sigmoid") != 0)
        return lode_hf_refuse(h, "scoring_func", scoring, err);
    if (scoring)
        sigmoid = strcmp(scoring, "sigmoid") == 0;
    LODE_TRY(lode_hf_put_u32(h, "expert_gating_func", sigmoid ? 2 : 1, err));
    const char *method = lode_hf_word(lode_hf_field(h, "topk_method"), word);
    if (method && strcmp(method, "greedy") == 0) { /* n_group does not count */
        LODE_TRY(lode_hf_put_u32(h, "expert_group_count", 1, err));
        LODE_TRY(lode_hf_put_u32(h, "expert_group_used_count", 1, err));
    }
    LODE_TRY(lode_hf_count(h, "moe_layer_freq", 1, &every, err));
    if (every != 1)
        return lode_hf_refuse(h, "moe_layer_freq", "only 1 is supported", err);
    return lode_hf_put_dense_layers(h, err);
}

static int latent(struct lode_hf *h, bool sigmoid, struct lode_error *err) {
    uint32_t q_rank, rank, plain, rope, v;
    double mscale = 0;
    LODE_TRY(lode_hf_count(h, "q_lora_rank", 0, &q_rank, err));
    LODE_TRY(lode_hf_count(h, "kv_lora_rank", 0, &rank, err));
    LODE_TRY(lode_hf_count(h, "qk_nope_head_dim", 0, &plain, err));
    LODE_TRY(lode_hf_count(h, "qk_rope_head_dim", 0, &rope, err));
    LODE_TRY(lode_hf_count(h, "v_head_dim", 0, &v, err));
    if (rank > 65536 || plain > 65536 || rope > 65536 || v > 65536)
        return lode_hf_fail_field(h, "kv_lora_rank and head dims", "65536 at most", err);
    if (q_rank)
        LODE_TRY(lode_hf_put_u32(h, "attention.q_lora_rank", q_rank, err));
    const struct {
        const char *key;
        uint32_t value;
    } counts[] = {{"attention.kv_lora_rank", rank},
                  {"attention.head_count_kv", 1}, /* as it runs: see model/mla.c */
                  {"attention.key_length", rank + rope},
                  {"attention.value_length", rank},
                  {"attention.key_length_mla", plain + rope},
                  {"attention.value_length_mla", v},
                  {"rope.dimension_count", rope}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        LODE_TRY(lode_hf_put_u32(h, counts[i].key, counts[i].value, err));
    const struct lode_json *o = lode_hf_field(h, "rope_parameters");
    if (!o)
        o = lode_hf_field(h, "rope_scaling");
    if (lode_json_is(o, LODE_JSON_OBJECT))
        LODE_TRY(lode_hf_number(h, o, "mscale_all_dim", 0, &mscale, err));
    if (mscale > 0)
        LODE_TRY(lode_hf_put_f64(h, "rope.scaling.yarn_log_multiplier", 0.1 * mscale, err));
    h->base.half_order = !lode_hf_flag(h, "rope_interleave", true);
    return read_routing(h, sigmoid, err);
}

static int softmax(struct lode_hf *h, struct lode_error *err) { return latent(h, false, err); }
static int sigmoid(struct lode_hf *h, struct lode_error *err) { return latent(h, true, err); }

#define MLA .arch = "deepseek2", .names = names, .pairs = true

const struct lode_hf_family lode_hf_mla_families[] = {
    {MLA, .model_type = "deepseek_v2", .config = softmax},
    {MLA, .model_type = "deepseek_v3", .config = sigmoid},
    {MLA, .model_type = "kimi_k2", .config = sigmoid},
    {MLA, .model_type = "glm4_moe_lite", .config = sigmoid},
    {0},
};
