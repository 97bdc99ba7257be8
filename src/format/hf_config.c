/* hf_config.c - config.json in GGUF's words. */
#include "format/hf_parts.h"

#include "base/dmath.h"
#include "base/error.h"

#include <math.h>
#include <stdio.h>

static const struct lode_hf_family families[] = {
    {.model_type = "llama", .arch = "llama"},
    {.model_type = "mistral", .arch = "llama", .window = true},
    {.model_type = "mixtral", .arch = "llama", .window = true},
    {.model_type = "qwen2", .arch = "qwen2"},
    {.model_type = "qwen3", .arch = "qwen3"},
    {.model_type = "qwen3_moe", .arch = "qwen3moe"},
    {.model_type = "olmoe", .arch = "olmoe"},
    {.model_type = "gemma", .arch = "gemma", .plus_one = true, .gelu = true},
    {.model_type = "gemma2",
     .arch = "gemma2",
     .plus_one = true,
     .gelu = true,
     .post_norm = true,
     .window = true,
     .period = 2},
    {.model_type = "gemma3_text",
     .arch = "gemma3",
     .plus_one = true,
     .gelu = true,
     .post_norm = true,
     .window = true,
     .period = 6,
     .any_period = true},
    {.model_type = "phi3", .arch = "phi3", .window = true},
    {.model_type = "smollm3", .arch = "smollm3"},
    {.model_type = "olmo2", .arch = "olmo2", .post_norm = true},
    {.model_type = "granite", .arch = "granite"},
    {.model_type = "cohere2",
     .arch = "cohere2",
     .pairs = true,
     .layer_norm = true,
     .window = true,
     .period = 4,
     .any_period = true},
    {.model_type = "stablelm", .arch = "stablelm", .layer_norm = true, .partial = 0.25},
    {.model_type = "exaone4", .arch = "exaone4", .post_norm = true, .window = true, .period = 4},
    {.model_type = "glm4_moe", .arch = "glm4moe", .post_norm = true, .partial = 0.5},
};

const struct lode_hf_family *lode_hf_family(const char *model_type) {
    if (strcmp(model_type, "gemma3") == 0) /* with vision; its text part is the same */
        model_type = "gemma3_text";
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

/* Fields that become a key as they are. */
enum kind { COUNT, NUMBER, FLAG };
static const struct {
    const char *field, *key;
    enum kind kind;
} plain[] = {
    {"hidden_size", "embedding_length", COUNT},
    {"num_hidden_layers", "block_count", COUNT},
    {"intermediate_size", "feed_forward_length", COUNT},
    {"num_attention_heads", "attention.head_count", COUNT},
    {"num_key_value_heads", "attention.head_count_kv", COUNT},
    {"max_position_embeddings", "context_length", COUNT},
    {"vocab_size", "vocab_size", COUNT},
    {"num_experts", "expert_count", COUNT},
    {"num_local_experts", "expert_count", COUNT}, /* transformers 5 */
    {"n_routed_experts", "expert_count", COUNT},
    {"num_experts_per_tok", "expert_used_count", COUNT},
    {"moe_intermediate_size", "expert_feed_forward_length", COUNT},
    {"n_shared_experts", "expert_shared_count", COUNT},
    {"first_k_dense_replace", "leading_dense_block_count", COUNT},
    {"n_group", "expert_group_count", COUNT},
    {"topk_group", "expert_group_used_count", COUNT},
    {"routed_scaling_factor", "expert_weights_scale", NUMBER},
    {"norm_topk_prob", "expert_weights_norm", FLAG},
    {"embedding_multiplier", "embedding_scale", NUMBER},
    {"residual_multiplier", "residual_scale", NUMBER},
    {"attention_multiplier", "attention.scale", NUMBER},
    {"logits_scaling", "logit_scale", NUMBER},
    {"logit_scale", "logit_scale", NUMBER},
};

/* What transformers takes where published configurations leave a field out. */
static const struct {
    const char *model_type, *field;
    double value;
} defaults[] = {
    {"gemma3_text", "num_attention_heads", 8}, {"gemma3_text", "num_key_value_heads", 4},
    {"gemma3_text", "head_dim", 256},          {"gemma3_text", "query_pre_attn_scalar", 256},
    {"gemma3_text", "rope_theta", 1e6},        {"gemma3_text", "max_position_embeddings", 131072},
};

/* ---- putting keys ---- */

int lode_hf_put(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                struct lode_error *err) {
    if (h->base.n_keys == LODE_HF_MAX_KEYS)
        return lode_fail(err, LODE_ERR_INTERNAL, key, "too many keys");
    const int rc = lode_map_put(&h->keys, lode_str(key), (uint32_t)h->base.n_keys, NULL);
    if (rc > 0)
        h->kv[h->base.n_keys++] = (struct lode_gguf_kv){key, v};
    return rc < 0 ? lode_fail_nomem(err, key) : 0;
}

static int put_arch(struct lode_hf *h, const char *key, struct lode_gguf_value v,
                    struct lode_error *err) {
    const char *full = lode_arena_printf(&h->arena, "%s.%s", h->base.arch, key);
    return full ? lode_hf_put(h, full, v, err) : lode_fail_nomem(err, key);
}

int lode_hf_put_u32(struct lode_hf *h, const char *arch_key, uint64_t v, struct lode_error *err) {
    return put_arch(h, arch_key, (struct lode_gguf_value){.type = LODE_GGUF_U32, .u = v}, err);
}

int lode_hf_put_f64(struct lode_hf *h, const char *arch_key, double v, struct lode_error *err) {
    /* GGUF keeps 32 bits of it, and so do we: the same model gives the same numbers */
    return put_arch(h, arch_key,
                    (struct lode_gguf_value){.type = LODE_GGUF_F32, .f = (double)(float)v}, err);
}

static int put_flag(struct lode_hf *h, const char *arch_key, bool v, struct lode_error *err) {
    return put_arch(h, arch_key, (struct lode_gguf_value){.type = LODE_GGUF_BOOL, .u = v}, err);
}

/* ---- reading fields ---- */

const struct lode_json *lode_hf_field(const struct lode_hf *h, const char *name) {
    const struct lode_json *v = lode_json_get(h->text, name);
    if (!v)
        v = lode_json_get(h->config, name);
    return lode_json_is(v, LODE_JSON_NULL) ? NULL : v;
}

static int fail_field(const struct lode_hf *h, const char *name, const char *expected,
                      struct lode_error *err) {
    return lode_fail(err, LODE_ERR_FORMAT, h->config_path, "%s: %s expected", name, expected);
}

const char *lode_hf_word(const struct lode_json *v, char out[LODE_HF_WORD]) {
    if (!lode_json_is(v, LODE_JSON_STRING))
        return NULL;
    snprintf(out, LODE_HF_WORD, "%.*s", v->n < LODE_HF_WORD ? (int)v->n : LODE_HF_WORD, v->text);
    return out;
}

int lode_hf_refuse(const struct lode_hf *h, const char *field, const char *why,
                   struct lode_error *err) {
    return lode_fail(err, LODE_ERR_UNSUPPORTED, h->config_path, "%s: %s", field, why);
}

static double default_of(const struct lode_hf *h, const char *name, double otherwise) {
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (strcmp(defaults[i].model_type, h->family->model_type) == 0 &&
            strcmp(defaults[i].field, name) == 0)
            return defaults[i].value;
    return otherwise;
}

int lode_hf_count(const struct lode_hf *h, const char *name, uint32_t otherwise, uint32_t *out,
                  struct lode_error *err) {
    const struct lode_json *v = lode_hf_field(h, name);
    *out = (uint32_t)default_of(h, name, otherwise);
    if (!v)
        return 0;
    double count; /* a real, for 64.0 is a count too */
    if (!lode_json_real(v, &count) || !(count >= 0 && count <= UINT32_MAX) || count != floor(count))
        return fail_field(h, name, "a count", err);
    *out = (uint32_t)count;
    return 0;
}

/* A number of an object (or, with NULL, of the configuration). */
static int read_number(const struct lode_hf *h, const struct lode_json *o, const char *name,
                       double otherwise, double *out, struct lode_error *err) {
    const struct lode_json *v = o ? lode_json_get(o, name) : lode_hf_field(h, name);
    *out = o ? otherwise : default_of(h, name, otherwise);
    if (!v || lode_json_is(v, LODE_JSON_NULL))
        return 0;
    return lode_json_real(v, out) ? 0 : fail_field(h, name, "a number", err);
}

static int read_plain(struct lode_hf *h, struct lode_error *err) {
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        const struct lode_json *v = lode_hf_field(h, plain[i].field);
        uint32_t count = (uint32_t)default_of(h, plain[i].field, 0);
        double number;
        if (!v && !count)
            continue;
        if (plain[i].kind == FLAG) {
            if (!lode_json_is(v, LODE_JSON_TRUE) && !lode_json_is(v, LODE_JSON_FALSE))
                return fail_field(h, plain[i].field, "true or false", err);
            LODE_TRY(put_flag(h, plain[i].key, lode_json_is(v, LODE_JSON_TRUE), err));
        } else if (plain[i].kind == NUMBER) {
            LODE_TRY(read_number(h, NULL, plain[i].field, 0, &number, err));
            LODE_TRY(lode_hf_put_f64(h, plain[i].key, number, err));
        } else {
            LODE_TRY(lode_hf_count(h, plain[i].field, count, &count, err));
            LODE_TRY(lode_hf_put_u32(h, plain[i].key, count, err));
        }
    }
    return 0;
}

/* ---- what needs a thought ---- */

static int check_supported(const struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *act = lode_hf_field(h, "hidden_activation");
    char word[LODE_HF_WORD];
    uint32_t step;
    if (!act)
        act = lode_hf_field(h, "hidden_act");
    if (lode_json_is(act, LODE_JSON_STRING)) {
        const char *name = lode_hf_word(act, word);
        const bool gelu = strncmp(name, "gelu", 4) == 0;
        if (h->family->gelu ? !gelu : strcmp(name, "silu") != 0 && strcmp(name, "swish") != 0)
            return lode_hf_refuse(h, "hidden_act", name, err);
    }
    static const struct {
        const char *model_type, *field;
    } flags[] = {{"stablelm", "qk_layernorm"},
                 {"cohere2", "use_qk_norm"},
                 {"qwen2", "use_sliding_window"},
                 {"qwen3", "use_sliding_window"},
                 {"qwen3_moe", "use_sliding_window"}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (strcmp(flags[i].model_type, h->family->model_type) == 0 &&
            lode_json_is(lode_hf_field(h, flags[i].field), LODE_JSON_TRUE))
            return lode_hf_refuse(h, flags[i].field, "true is not supported for this model", err);
    if (lode_hf_field(h, "clip_qkv"))
        return lode_hf_refuse(h, "clip_qkv", "not supported", err);
    if (lode_json_count(lode_hf_field(h, "mlp_only_layers")) > 0)
        return lode_hf_refuse(h, "mlp_only_layers",
                              "dense layers among the others are not supported", err);
    LODE_TRY(lode_hf_count(h, "decoder_sparse_step", 1, &step, err));
    return step == 1 ? 0 : lode_hf_refuse(h, "decoder_sparse_step", "only 1 is supported", err);
}

/* Whether layer l sees all positions, by the period. */
static bool sees_all(uint32_t l, uint32_t period) { return period && (l + 1) % period == 0; }

/* The period of a list of layer types; an error where they follow none. */
static int find_period(const struct lode_hf *h, const struct lode_json *list, uint32_t n_layers,
                       uint32_t *period, struct lode_error *err) {
    if (lode_json_count(list) < n_layers)
        return fail_field(h, "layer_types", "one entry a layer", err);
    *period = 0;
    uint32_t l = 0;
    const struct lode_json *c = lode_json_first(list);
    for (; l < n_layers && !*period; l++, c = lode_json_next(list, c))
        if (lode_str_eqz(lode_json_str(c), "full_attention"))
            *period = l + 1;
    for (l = 0, c = lode_json_first(list); l < n_layers; l++, c = lode_json_next(list, c))
        if (!lode_str_eqz(lode_json_str(c),
                          sees_all(l, *period) ? "full_attention" : "sliding_attention"))
            return lode_hf_refuse(h, "layer_types", "the layers follow no regular pattern", err);
    return 0;
}

static int read_window(struct lode_hf *h, uint32_t n_layers, struct lode_error *err) {
    const struct lode_hf_family *f = h->family;
    const struct lode_json *list = lode_hf_field(h, "layer_types");
    uint32_t window, period = f->period;
    if (!f->window)
        return 0;
    LODE_TRY(lode_hf_count(h, "sliding_window", 0, &window, err));
    if (lode_json_is(lode_hf_field(h, "use_sliding_window"), LODE_JSON_FALSE))
        window = 0;
    if (lode_json_is(list, LODE_JSON_ARRAY))
        LODE_TRY(find_period(h, list, n_layers, &period, err));
    else if (lode_json_is(lode_hf_field(h, "sliding_window_pattern"), LODE_JSON_NUMBER))
        LODE_TRY(lode_hf_count(h, "sliding_window_pattern", 0, &period, err));
    else
        LODE_TRY(lode_hf_count(h, "_sliding_window_pattern", period, &period, err));
    if (period == 1) /* all layers see all */
        window = 0;
    if (window && f->any_period)
        LODE_TRY(lode_hf_put_u32(h, "attention.sliding_window_pattern", period, err));
    for (uint32_t l = 0; window && !f->any_period && l < n_layers; l++)
        if (sees_all(l, period) != sees_all(l, f->period))
            return lode_hf_refuse(h, "layer_types",
                                  "another pattern than this model's is not supported", err);
    return lode_hf_put_u32(h, "attention.sliding_window", window, err);
}

/* SmolLM3: every fourth layer does not rotate; that is built in. */
static int check_rotating_layers(const struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *list = lode_hf_field(h, "no_rope_layers");
    uint32_t l = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), l++) {
        double rotates;
        if (!lode_json_real(c, &rotates) || (rotates != 0) != ((l + 1) % 4 != 0))
            return lode_hf_refuse(h, "no_rope_layers", "only every fourth layer is supported", err);
    }
    return 0;
}

static int read_special(struct lode_hf *h, struct lode_error *err) {
    const struct lode_hf_family *f = h->family;
    double eps, scalar, cap;
    const char *eps_name = f->layer_norm ? "layer_norm_eps" : "rms_norm_eps";
    LODE_TRY(read_number(h, NULL, eps_name, f->layer_norm ? 1e-5 : 1e-6, &eps, err));
    LODE_TRY(lode_hf_put_f64(
        h, f->layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", eps,
        err));
    LODE_TRY(read_number(h, NULL, "query_pre_attn_scalar", 0, &scalar, err));
    if (scalar > 0)
        LODE_TRY(lode_hf_put_f64(h, "attention.scale", 1 / sqrt(scalar), err));
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (int i = 0; i < 2 && f->gelu; i++) { /* absent: none, where GGUF has defaults */
        LODE_TRY(read_number(h, NULL, caps[i], 0, &cap, err));
        LODE_TRY(lode_hf_put_f64(h, caps[i], cap, err));
    }
    if (strcmp(f->model_type, "glm4_moe") == 0)
        LODE_TRY(lode_hf_put_u32(h, "expert_gating_func", 2, err));
    return strcmp(f->model_type, "smollm3") == 0 ? check_rotating_layers(h, err) : 0;
}

int lode_hf_read_config(struct lode_hf *h, struct lode_error *err) {
    uint32_t n_layers;
    const struct lode_json *tied = lode_hf_field(h, "tie_word_embeddings");
    LODE_TRY(check_supported(h, err));
    LODE_TRY(read_plain(h, err));
    LODE_TRY(read_special(h, err));
    LODE_TRY(lode_hf_count(h, "num_hidden_layers", 0, &n_layers, err));
    LODE_TRY(read_window(h, n_layers, err));
    h->tied = lode_json_is(tied, LODE_JSON_TRUE);
    h->base.half_order = !h->family->pairs;
    return 0;
}

/* ---- rotation ---- */

/* Llama 3.1: frequencies whose wave is longer than the old context are divided by factor, short
 * ones are left, those between go over smoothly.  In single precision step by step, as files with
 * rope_freqs have them, so that both give the same bits. */
static int add_llama3(struct lode_hf *h, const struct lode_json *rope, double theta,
                      uint32_t n_pairs, uint32_t ctx_orig, double factor, struct lode_error *err) {
    static const float two_pi = 6.28318530717958647692f;
    double low, high;
    float *divisors = LODE_ARENA_ARRAY(&h->arena, float, n_pairs);
    if (!divisors)
        return lode_fail_nomem(err, "rotation");
    LODE_TRY(read_number(h, rope, "low_freq_factor", 1, &low, err));
    LODE_TRY(read_number(h, rope, "high_freq_factor", 4, &high, err));
    if (!(low > 0 && high > low && factor > 0 && ctx_orig))
        return lode_hf_refuse(h, "rope_parameters",
                              "0 < low_freq_factor < high_freq_factor expected", err);
    const float span = (float)(high - low), divisor = (float)factor;
    for (uint32_t i = 0; i < n_pairs; i++) {
        const float power = (float)lode_pow(theta, (double)((float)i / (float)n_pairs));
        const float wave = two_pi / (1 / power), turns = (float)ctx_orig / wave;
        const float smooth = (turns - (float)low) / span;
        divisors[i] = wave < (float)(ctx_orig / high)  ? 1
                      : wave > (float)(ctx_orig / low) ? divisor
                                                       : 1 / ((1 - smooth) / divisor + smooth);
    }
    return lode_hf_add_made(h, "rope_freqs.weight", divisors, n_pairs, err);
}

static int add_factors(struct lode_hf *h, const struct lode_json *rope, const char *field,
                       const char *name, uint32_t n_pairs, struct lode_error *err) {
    const struct lode_json *list = lode_json_get(rope, field);
    float *factors = LODE_ARENA_ARRAY(&h->arena, float, n_pairs);
    if (lode_json_count(list) != n_pairs)
        return fail_field(h, field, "one number a rotary pair", err);
    if (!factors)
        return lode_fail_nomem(err, "rotation");
    uint32_t i = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), i++) {
        double factor;
        if (!lode_json_real(c, &factor))
            return fail_field(h, field, "numbers", err);
        factors[i] = (float)factor;
    }
    return lode_hf_add_made(h, name, factors, n_pairs, err);
}

static int put_str(struct lode_hf *h, const char *arch_key, const char *s, struct lode_error *err) {
    return put_arch(h, arch_key, (struct lode_gguf_value){.type = LODE_GGUF_STR, .s = lode_str(s)},
                    err);
}

static int add_yarn(struct lode_hf *h, const struct lode_json *rope, double factor,
                    struct lode_error *err) {
    double attn, fast, slow;
    if (lode_json_is(lode_json_get(rope, "truncate"), LODE_JSON_FALSE))
        return lode_hf_refuse(h, "rope_parameters", "yarn without truncation is not supported",
                              err);
    LODE_TRY(read_number(h, rope, "attention_factor", 0, &attn, err));
    LODE_TRY(read_number(h, rope, "beta_fast", 32, &fast, err));
    LODE_TRY(read_number(h, rope, "beta_slow", 1, &slow, err));
    if (!(factor > 0))
        return fail_field(h, "rope_parameters.factor", "a number above 0", err);
    LODE_TRY(put_str(h, "rope.scaling.type", "yarn", err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.factor", factor, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.yarn_beta_fast", fast, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.yarn_beta_slow", slow, err));
    /* GGUF's factor multiplies what the paper gives, this one replaces it */
    return attn > 0 ? lode_hf_put_f64(h, "rope.scaling.attn_factor",
                                      attn / (1 + 0.1 * lode_log(factor)), err)
                    : 0;
}

static int add_scaling(struct lode_hf *h, const struct lode_json *rope, double theta,
                       uint32_t n_pairs, struct lode_error *err) {
    const struct lode_json *name = lode_json_get(rope, "rope_type");
    char word[LODE_HF_WORD];
    const char *type = lode_hf_word(name ? name : lode_json_get(rope, "type"), word);
    double factor, orig, attn;
    uint32_t ctx_orig, ctx_train;
    if (!type || strcmp(type, "default") == 0)
        return 0;
    LODE_TRY(read_number(h, rope, "factor", 1, &factor, err));
    LODE_TRY(lode_hf_count(h, "max_position_embeddings", 0, &ctx_orig, err));
    LODE_TRY(lode_hf_count(h, "original_max_position_embeddings", ctx_orig, &ctx_orig, err));
    LODE_TRY(read_number(h, rope, "original_max_position_embeddings", ctx_orig, &orig, err));
    ctx_orig = orig >= 1 && orig < 1 << 30 ? (uint32_t)orig : 0;
    LODE_TRY(lode_hf_put_u32(h, "rope.scaling.original_context_length", ctx_orig, err));
    if (strcmp(type, "linear") == 0) {
        LODE_TRY(put_str(h, "rope.scaling.type", "linear", err));
        return lode_hf_put_f64(h, "rope.scaling.factor", factor, err);
    }
    if (strcmp(type, "yarn") == 0)
        return add_yarn(h, rope, factor, err);
    if (strcmp(type, "llama3") == 0)
        return add_llama3(h, rope, theta, n_pairs, ctx_orig, factor, err);
    if (strcmp(type, "longrope") != 0 && strcmp(type, "su") != 0)
        return lode_hf_refuse(h, "rope_parameters.rope_type", type, err);
    LODE_TRY(add_factors(h, rope, "short_factor", "rope_factors_short.weight", n_pairs, err));
    LODE_TRY(add_factors(h, rope, "long_factor", "rope_factors_long.weight", n_pairs, err));
    LODE_TRY(lode_hf_count(h, "max_position_embeddings", 0, &ctx_train, err));
    const double stretch = ctx_orig ? (double)ctx_train / ctx_orig : 1; /* arXiv:2402.13753 */
    attn = stretch > 1 && ctx_orig > 1 ? sqrt(1 + lode_log(stretch) / lode_log(ctx_orig)) : 1;
    LODE_TRY(read_number(h, rope, "attention_factor", attn, &attn, err));
    return lode_hf_put_f64(h, "rope.scaling.attn_factor", attn, err);
}

/* From the configuration, or from a projection's rows: many files leave it out. */
static int find_head_dim(struct lode_hf *h, uint32_t *head_dim, struct lode_error *err) {
    uint32_t n_heads, n_kv, width;
    LODE_TRY(lode_hf_count(h, "num_attention_heads", 0, &n_heads, err));
    LODE_TRY(lode_hf_count(h, "num_key_value_heads", n_heads, &n_kv, err));
    LODE_TRY(lode_hf_count(h, "hidden_size", 0, &width, err));
    LODE_TRY(lode_hf_count(h, "head_dim", 0, head_dim, err));
    if (*head_dim || !n_heads)
        return 0;
    const struct lode_gguf_tensor *q = lode_source_tensor(&h->base, "blk.0.attn_q.weight");
    const struct lode_gguf_tensor *qkv = lode_source_tensor(&h->base, "blk.0.attn_qkv.weight");
    const uint64_t rows = q     ? q->dims[1] / n_heads
                          : qkv ? qkv->dims[1] / ((uint64_t)n_heads + 2 * (uint64_t)n_kv)
                                : width / n_heads;
    *head_dim = rows < 65536 ? (uint32_t)rows : 0;
    return 0;
}

int lode_hf_read_rope(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *rope = lode_hf_field(h, "rope_parameters"), *local = NULL;
    uint32_t head_dim;
    double theta, partial;
    LODE_TRY(find_head_dim(h, &head_dim, err));
    if (!head_dim || head_dim > 4096)
        return fail_field(h, "head_dim", "1 to 4096", err);
    LODE_TRY(lode_hf_put_u32(h, "attention.key_length", head_dim, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.value_length", head_dim, err));
    if (lode_json_is(lode_json_get(rope, "full_attention"), LODE_JSON_OBJECT)) {
        local = lode_json_get(rope, "sliding_attention");
        rope = lode_json_get(rope, "full_attention");
    }
    if (!rope)
        rope = lode_hf_field(h, "rope_scaling");
    LODE_TRY(read_number(h, NULL, "rope_theta", 10000, &theta, err));
    if (rope)
        LODE_TRY(read_number(h, rope, "rope_theta", theta, &theta, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.freq_base", theta, err));
    LODE_TRY(read_number(h, NULL, "rotary_pct", h->family->partial, &partial, err));
    LODE_TRY(read_number(h, NULL, "partial_rotary_factor", partial, &partial, err));
    if (rope)
        LODE_TRY(read_number(h, rope, "partial_rotary_factor", partial, &partial, err));
    partial = partial > 0 && partial <= 1 ? partial : 1;
    const uint32_t n_rot = (uint32_t)(head_dim * partial);
    LODE_TRY(lode_hf_put_u32(h, "rope.dimension_count", n_rot, err));
    double local_theta;
    LODE_TRY(read_number(h, NULL, "rope_local_base_freq", 10000, &local_theta, err));
    if (local)
        LODE_TRY(read_number(h, local, "rope_theta", local_theta, &local_theta, err));
    if (h->family->any_period && h->family->gelu) /* gemma3 */
        LODE_TRY(lode_hf_put_f64(h, "rope.freq_base_swa", local_theta, err));
    return rope ? add_scaling(h, rope, (double)(float)theta, n_rot / 2, err) : 0;
}
