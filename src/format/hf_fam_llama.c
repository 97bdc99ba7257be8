/* hf_fam_llama.c - dense models after Llama: norm, attention, norm, gated FFN, each with its turn.
 */
#include "format/hf_parts.h"

#include "base/error.h"

#include <math.h>

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

/* ---- OpenELM: heads and FFN widths by layer, under names of its own ---- */

static const struct lode_hf_name openelm_names[] = {
    LODE_HF_IS("token_embeddings", "token_embd"),
    LODE_HF_IS("layers.#.attn_norm", "blk.#.attn_norm"),
    LODE_HF_IS("layers.#.attn.qkv_proj", "blk.#.attn_qkv"),
    LODE_HF_IS("layers.#.attn.q_norm", "blk.#.attn_q_norm"),
    LODE_HF_IS("layers.#.attn.k_norm", "blk.#.attn_k_norm"),
    LODE_HF_IS("layers.#.attn.out_proj", "blk.#.attn_output"),
    LODE_HF_IS("layers.#.ffn_norm", "blk.#.ffn_norm"),
    LODE_HF_CUT("layers.#.ffn.proj_1", "blk.#.ffn_up", lode_hf_place_gate_up_rows),
    LODE_HF_IS("layers.#.ffn.proj_2", "blk.#.ffn_down"),
    {0},
};

/* The next number of a list that has one for each layer, or the number that all layers have. */
static int next_number(const struct lode_hf *h, const char *field, const struct lode_json **at,
                       double *out, struct lode_error *err) {
    const struct lode_json *v = lode_hf_field(h, field);
    if (lode_json_is(v, LODE_JSON_ARRAY)) {
        *at = *at ? lode_json_next(v, *at) : lode_json_first(v);
        v = lode_json_count(v) < h->n_layers ? NULL : *at;
    }
    return lode_json_real(v, out) && *out > 0 && *out <= 1 << 16
               ? 0
               : lode_hf_fail_field(h, field, "a number above 0 for each layer", err);
}

/* The multiple of `by` next to x, at least 0.9 x. */
static double divisible(double x, double by) {
    const double near = floor((x + by / 2) / by) * by, n = near > by ? near : by;
    return n < 0.9 * x ? n + by : n;
}

static int openelm_layers(struct lode_hf *h, double width, double divisor, struct lode_error *err) {
    const uint32_t n = h->n_layers;
    uint32_t *heads = LODE_ARENA_ARRAY(&h->arena, uint32_t, n);
    uint32_t *kv = LODE_ARENA_ARRAY(&h->arena, uint32_t, n);
    uint32_t *ff = LODE_ARENA_ARRAY(&h->arena, uint32_t, n);
    const struct lode_json *at[3] = {NULL};
    if (!heads || !kv || !ff)
        return lode_fail_nomem(err, "list of layers");
    for (uint32_t l = 0; l < n; l++) {
        double q, k, times;
        LODE_TRY(next_number(h, "num_query_heads", &at[0], &q, err));
        LODE_TRY(next_number(h, "num_kv_heads", &at[1], &k, err));
        LODE_TRY(next_number(h, "ffn_multipliers", &at[2], &times, err));
        heads[l] = (uint32_t)q;
        kv[l] = (uint32_t)k;
        times = divisible(times * width, divisor);
        ff[l] = times < 1 << 24 ? (uint32_t)times : 0;
    }
    LODE_TRY(lode_hf_put_counts(h, "attention.head_count", heads, n, err));
    LODE_TRY(lode_hf_put_counts(h, "attention.head_count_kv", kv, n, err));
    return lode_hf_put_counts(h, "feed_forward_length", ff, n, err);
}

static int openelm(struct lode_hf *h, struct lode_error *err) {
    static const struct lode_hf_plain plain[] = {
        {"model_dim", "embedding_length", LODE_HF_COUNT},
        {"num_transformer_layers", "block_count", LODE_HF_COUNT},
        {"head_dim", "attention.key_length", LODE_HF_COUNT},
        {"max_context_length", "context_length", LODE_HF_COUNT},
        {"rope_freq_constant", "rope.freq_base", LODE_HF_NUMBER},
    };
    static const char *const musts[] = {"ffn_with_glu", "normalize_qk_projections"};
    char word[LODE_HF_WORD];
    const char *act = lode_hf_word(lode_hf_field(h, "activation_fn_name"), word);
    uint32_t width, divisor;
    for (size_t i = 0; i < sizeof musts / sizeof *musts; i++)
        if (!lode_hf_flag(h, musts[i], true))
            return lode_hf_refuse(h, musts[i], "false is not supported", err);
    if (act && strcmp(act, "swish") != 0)
        return lode_hf_refuse(h, "activation_fn_name", act, err);
    LODE_TRY(lode_hf_count(h, "num_transformer_layers", 0, &h->n_layers, err));
    LODE_TRY(lode_hf_count(h, "model_dim", 0, &width, err));
    LODE_TRY(lode_hf_count(h, "ffn_dim_divisor", 256, &divisor, err));
    if (h->n_layers > 65536 || divisor == 0)
        return lode_hf_fail_field(h, divisor ? "num_transformer_layers" : "ffn_dim_divisor",
                                  "1 to 65536", err);
    LODE_TRY(openelm_layers(h, width, divisor, err));
    return lode_hf_put_plain(h, plain, sizeof plain / sizeof *plain, err);
}

/* What transformers takes where the text part of a multimodal model leaves a field out (LLaVA). */
static const struct lode_hf_default llama_defaults[] = {
    {"hidden_size", 4096},        {"num_hidden_layers", 32},         {"num_attention_heads", 32},
    {"intermediate_size", 11008}, {"max_position_embeddings", 2048}, {0}};
static const struct lode_hf_default mistral_defaults[] = {{"hidden_size", 4096},
                                                          {"num_hidden_layers", 32},
                                                          {"num_attention_heads", 32},
                                                          {"num_key_value_heads", 8},
                                                          {"intermediate_size", 14336},
                                                          {"max_position_embeddings", 131072},
                                                          {0}};

static const struct lode_hf_default half_rotates[] = {{"rotary_pct", 0.5}, {0}};

#define QWEN2 .arch = "qwen2", .refuse = "use_sliding_window"

const struct lode_hf_family lode_hf_llama_families[] = {
    {.model_type = "llama", .arch = "llama", .defaults = llama_defaults},
    {.model_type = "mistral", .arch = "llama", .defaults = mistral_defaults, .window = true},
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
    {.model_type = "openelm", .arch = "openelm", .names = openelm_names, .config = openelm},
    {.model_type = "seed_oss", .arch = "seed_oss", .names = post_norm},
    {.model_type = "glm4",
     .arch = "glm4",
     .names = glm4_names,
     .defaults = half_rotates,
     .pairs = true},
    {0},
};
