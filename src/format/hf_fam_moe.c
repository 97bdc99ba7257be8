/* hf_fam_moe.c - models with routed experts and common attention. */
#include "format/hf_parts.h"

#include "base/error.h"

/* GLM 4.5: post_attention_layernorm comes before the FFN, but GGUF calls it so. */
static const struct lode_hf_name post_norm[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    {0},
};

static int glm4_moe(struct lode_hf *h, struct lode_error *err) {
    LODE_TRY(lode_hf_put_u32(h, "expert_gating_func", 2, err)); /* sigmoid */
    return lode_hf_put_dense_layers(h, err);
}

/* ---- PhiMoE, MiniMax-M2 ---- */

/* Its longrope gives the factor of long and of short texts. */
static int phimoe(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *rope = lode_hf_field(h, "rope_parameters");
    double jitter, longs, shorts;
    if (!rope)
        rope = lode_hf_field(h, "rope_scaling");
    LODE_TRY(lode_hf_number(h, NULL, "router_jitter_noise", 0.01, &jitter, err));
    if (jitter != 0.01)
        return lode_hf_refuse(h, "router_jitter_noise", "only 0.01 is supported", err);
    if (!lode_json_get(rope, "long_mscale"))
        return 0;
    LODE_TRY(lode_hf_number(h, rope, "long_mscale", 1, &longs, err));
    LODE_TRY(lode_hf_number(h, rope, "short_mscale", longs, &shorts, err));
    if (longs != shorts)
        return lode_hf_refuse(h, "long_mscale", "another than short_mscale is not supported", err);
    return lode_hf_put_f64(h, "rope.scaling.attn_factor", longs, err);
}

static const struct lode_hf_name minimax_names[] = {
    LODE_HF_IS("layers.#.block_sparse_moe.e_score_correction_bias", "blk.#.exp_probs_b.bias"),
    {0},
};

static int minimax_m2(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"rotary_dim", "rope.dimension_count", LODE_HF_COUNT},
        {"intermediate_size", "expert_feed_forward_length", LODE_HF_COUNT},
    };
    char word[LODE_HF_WORD];
    const char *scoring = lode_hf_word(lode_hf_field(h, "scoring_func"), word);
    if (scoring && strcmp(scoring, "sigmoid") != 0)
        return lode_hf_refuse(h, "scoring_func", scoring, err);
    if (!lode_hf_flag(h, "use_qk_norm", true))
        return lode_hf_refuse(h, "use_qk_norm", "false is not supported", err);
    LODE_TRY(lode_hf_put_u32(h, "expert_gating_func", 2, err)); /* sigmoid */
    return lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err);
}

/* ---- gpt-oss ---- */

static const struct lode_hf_name gpt_oss_names[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    LODE_HF_IS("layers.#.self_attn.sinks", "blk.#.attn_sinks"),
    LODE_HF_IS("layers.#.mlp.router", "blk.#.ffn_gate_inp"),
    LODE_HF_CUT("layers.#.mlp.experts.gate_up_proj", "blk.#.ffn_gate_exps",
                lode_hf_place_gate_up_woven),
    LODE_HF_CUT("layers.#.mlp.experts.gate_up_proj_bias", "blk.#.ffn_gate_exps",
                lode_hf_place_gate_up_woven),
    LODE_HF_CUT("layers.#.mlp.experts.down_proj", "blk.#.ffn_down_exps", lode_hf_place_turned),
    LODE_HF_IS("layers.#.mlp.experts.down_proj_bias", "blk.#.ffn_down_exps.bias"),
    LODE_HF_IS("layers.#.mlp.experts.gate_proj", "blk.#.ffn_gate_exps"), /* MLX */
    LODE_HF_IS("layers.#.mlp.experts.up_proj", "blk.#.ffn_up_exps"),
    {0},
};

static int gpt_oss(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"intermediate_size", "expert_feed_forward_length", LODE_HF_COUNT},
    };
    double limit;
    LODE_TRY(lode_hf_number(h, NULL, "swiglu_limit", 7, &limit, err));
    if (limit != 7)
        return lode_hf_refuse(h, "swiglu_limit", "only 7 is supported", err);
    return lode_hf_put_plain(h, plain, 1, err);
}

/* ---- Llama 4 ---- */

static const struct lode_hf_name llama4_names[] = {
    LODE_HF_IS("layers.#.feed_forward.gate_proj", "blk.#.ffn_gate"),
    LODE_HF_IS("layers.#.feed_forward.up_proj", "blk.#.ffn_up"),
    LODE_HF_IS("layers.#.feed_forward.down_proj", "blk.#.ffn_down"),
    LODE_HF_IS("layers.#.feed_forward.router", "blk.#.ffn_gate_inp"),
    LODE_HF_IS("layers.#.feed_forward.shared_expert.gate_proj", "blk.#.ffn_gate_shexp"),
    LODE_HF_IS("layers.#.feed_forward.shared_expert.up_proj", "blk.#.ffn_up_shexp"),
    LODE_HF_IS("layers.#.feed_forward.shared_expert.down_proj", "blk.#.ffn_down_shexp"),
    LODE_HF_CUT("layers.#.feed_forward.experts.gate_up_proj", "blk.#.ffn_gate_exps",
                lode_hf_place_gate_up_turned),
    LODE_HF_CUT("layers.#.feed_forward.experts.down_proj", "blk.#.ffn_down_exps",
                lode_hf_place_turned),
    {0},
};

/* A list of one number a layer, where there is one, is what the period gives. */
static int check_period(const struct lode_hf *h, const char *field, uint32_t period,
                        struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, field);
    uint32_t l = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), l++) {
        double v;
        if (!lode_json_real(c, &v) || (v == 0) != ((l + 1) % period == 0))
            return lode_hf_refuse(h, field,
                                  "the layers follow another pattern than published "
                                  "models",
                                  err);
    }
    return 0;
}

/* Layers with experts: those that the step gives. */
static int check_moe_layers(const struct lode_hf *h, uint32_t step, struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, "moe_layers");
    uint32_t l = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), l++) {
        int64_t layer;
        if (!lode_json_int(c, 0, 65536, &layer) || layer != (int64_t)(l + 1) * step - 1)
            return lode_hf_refuse(h, "moe_layers",
                                  "they are not every interleave_moe_layer_step-th", err);
    }
    return 0;
}

static int llama4(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"intermediate_size_mlp", "feed_forward_length", LODE_HF_COUNT},
        {"intermediate_size", "expert_feed_forward_length", LODE_HF_COUNT},
        {"interleave_moe_layer_step", "interleave_moe_layer_step", LODE_HF_COUNT},
        {"attention_chunk_size", "attention.chunk_size", LODE_HF_COUNT},
        {"floor_scale", "attention.temperature_length", LODE_HF_COUNT},
        {"attn_scale", "attention.temperature_scale", LODE_HF_NUMBER},
    };
    const struct lode_json *tuning = lode_hf_field(h, "attn_temperature_tuning");
    uint32_t step;
    LODE_TRY(lode_hf_count(h, "interleave_moe_layer_step", 1, &step, err));
    LODE_TRY(check_period(h, "no_rope_layers", 4, err));
    LODE_TRY(check_moe_layers(h, step, err));
    int64_t zero; /* published files have a number there */
    if (lode_json_is(tuning, LODE_JSON_FALSE) || lode_json_int(tuning, 0, 0, &zero))
        LODE_TRY(lode_hf_put_f64(h, "attention.temperature_scale", 0, err));
    LODE_TRY(lode_hf_put_flag(h, "attention.qk_norm", lode_hf_flag(h, "use_qk_norm", true), err));
    return lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err);
}

static const struct lode_hf_default glm4_moe_defaults[] = {{"rotary_pct", 0.5}, {0}};
static const struct lode_hf_default phimoe_defaults[] = {
    {"rope_theta", 1e6}, {"num_experts_per_tok", 2}, {0}};
static const struct lode_hf_default minimax_defaults[] = {{"rope_theta", 5e6}, {0}};
static const struct lode_hf_default llama4_defaults[] = {{"interleave_moe_layer_step", 1},
                                                         {"attention_chunk_size", 8192},
                                                         {"floor_scale", 8192},
                                                         {"attn_scale", 0.1},
                                                         {"rope_theta", 500000},
                                                         {0}};

const struct lode_hf_family lode_hf_moe_families[] = {
    {.model_type = "mixtral", .arch = "llama", .window = true},
    {.model_type = "olmoe", .arch = "olmoe"},
    {.model_type = "qwen2_moe", .arch = "qwen2moe", .refuse = "use_sliding_window"},
    {.model_type = "qwen3_moe", .arch = "qwen3moe", .refuse = "use_sliding_window"},
    {.model_type = "glm4_moe",
     .arch = "glm4moe",
     .names = post_norm,
     .defaults = glm4_moe_defaults,
     .config = glm4_moe},
    {.model_type = "phimoe",
     .arch = "phimoe",
     .defaults = phimoe_defaults,
     .config = phimoe,
     .window = true},
    {.model_type = "minimax_m2",
     .arch = "minimax-m2",
     .names = minimax_names,
     .defaults = minimax_defaults,
     .config = minimax_m2},
    {.model_type = "gpt_oss",
     .arch = "gpt-oss",
     .names = gpt_oss_names,
     .config = gpt_oss,
     .window = true,
     .period = 2},
    {.model_type = "llama4_text",
     .arch = "llama4",
     .names = llama4_names,
     .defaults = llama4_defaults,
     .config = llama4,
     .pairs = true},
    {0},
};
