/* hf_fam_llama.c - dense models after Llama: norm, attention, norm, gated FFN, each with its turn.
 */
#include "format/hf_parts.h"

#include "base/error.h"

/* post_attention_layernorm is what it says, not the norm before the FFN; or GGUF calls that so. */
static const struct lode_hf_name post_norm[] = {
    LODE_HF_IS("layers.#.post_attention_layernorm", "blk.#.post_attention_norm"),
    {0},
};

/* GLM 4: two norms more, and this one before the FFN. */
static const struct lode_hf_name glm4_names[] = {
    LODE_HF_IS("layers.#.post_self_attn_layernorm", "blk.#.post_attention_norm"),
    LODE_HF_IS("layers.#.post_mlp_layernorm", "blk.#.post_ffw_norm"),
    {0},
};

/* SmolLM3: every fourth layer does not rotate; that is built in. */
static int smollm3(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, "no_rope_layers");
    uint32_t l = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), l++) {
        double rotates;
        if (!lode_json_real(c, &rotates) || (rotates != 0) != ((l + 1) % 4 != 0))
            return lode_hf_refuse(h, "no_rope_layers", "only every fourth layer is supported", err);
    }
    return 0;
}

static const struct lode_hf_default half_rotates[] = {{"rotary_pct", 0.5}, {0}};

#define QWEN2 .arch = "qwen2", .refuse = "use_sliding_window"

const struct lode_hf_family lode_hf_llama_families[] = {
    {.model_type = "llama", .arch = "llama"},
    {.model_type = "mistral", .arch = "llama", .window = true},
    {.model_type = "qwen2", QWEN2},
    {.model_type = "qwen2_vl", QWEN2},
    {.model_type = "qwen2_vl_text", QWEN2},
    {.model_type = "qwen2_5_vl", QWEN2},
    {.model_type = "qwen2_5_vl_text", QWEN2},
    {.model_type = "qwen3", .arch = "qwen3", .refuse = "use_sliding_window"},
    {.model_type = "phi3", .arch = "phi3", .window = true},
    {.model_type = "smollm3", .arch = "smollm3", .config = smollm3},
    {.model_type = "olmo2", .arch = "olmo2", .names = post_norm},
    {.model_type = "granite", .arch = "granite"},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .refuse = "use_qk_norm",
     .pairs = true,
     .layer_norm = true,
     .window = true,
     .period = 4,
     .any_period = true},
    {.model_type = "exaone4", .arch = "exaone4", .names = post_norm, .window = true, .period = 4},
    {.model_type = "seed_oss", .arch = "seed_oss", .names = post_norm},
    {.model_type = "glm4",
     .arch = "glm4",
     .names = glm4_names,
     .defaults = half_rotates,
     .pairs = true},
    {0},
};
