/* hparams.c - the settings that all architectures share, from a file's metadata. */
#include "model/build.h"

#include <math.h>
#include <stdio.h>

uint32_t lode_b_count(const struct lode_build *b, const char *key, uint32_t l, uint32_t otherwise) {
    const struct lode_gguf_array *a;
    uint32_t v = otherwise;
    if (lode_source_arch_array(b->source, key, &a)) {
        const int64_t x = l < a->n ? lode_gguf_array_i64(a, l) : -1;
        v = x < 0 || x > UINT32_MAX ? otherwise : (uint32_t)x;
    } else {
        lode_source_arch_u32(b->source, key, &v);
    }
    return v <= 1 << 24 ? v : otherwise;
}

/* A count, or where the architecture may have one for each layer the first that is not 0 (layers of
 * another kind have 0). */
static bool count_of(const struct lode_build *b, const char *key, uint32_t *out) {
    const struct lode_gguf_array *a;
    if (!b->arch->by_layer || !lode_source_arch_array(b->source, key, &a) || a->n == 0)
        return lode_source_arch_u32(b->source, key, out);
    *out = 0;
    for (uint32_t l = 0; l < a->n && *out == 0; l++)
        *out = lode_b_count(b, key, l, 0);
    return true;
}

static int need_count(struct lode_build *b, const char *key, uint32_t most, uint32_t *out,
                      struct lode_error *err) {
    if (!count_of(b, key, out))
        return lode_source_arch_fail_key(b->source, key, "a count", err);
    if (*out == 0 || *out > most)
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "%s.%s is %u; 1 to %u expected", b->arch->name, key, *out, most);
    return 0;
}

/* An optional key: `otherwise` when the file has none, an error (kept in the graph, as those of
 * tensors are) when it has one of another kind. */
static void refuse_kind(struct lode_build *b, const char *key, const char *expected) {
    struct lode_error err;
    char full[256];
    snprintf(full, sizeof full, "%s.%s", b->source->arch, key);
    if (lode_source_find(b->source, full) &&
        lode_source_arch_fail_key(b->source, key, expected, &err) < 0)
        lode_graph_fail(b->g, err.code, err.where, "%s", err.text);
}

static uint32_t count_or(struct lode_build *b, const char *key, uint32_t otherwise) {
    uint32_t v;
    if (count_of(b, key, &v))
        return v;
    refuse_kind(b, key, "a count");
    return otherwise;
}

static float number_or(struct lode_build *b, const char *key, float otherwise) {
    float v;
    if (lode_source_arch_f32(b->source, key, &v) && isfinite(v))
        return v;
    refuse_kind(b, key, "a finite number");
    return otherwise;
}

static int read_scaling(struct lode_build *b, struct lode_rope_spec *r, struct lode_error *err) {
    struct lode_str type = LODE_STR("none");
    lode_source_arch_str(b->source, "rope.scaling.type", &type);
    r->factor = number_or(b, "rope.scaling.factor", number_or(b, "rope.scale_linear", 1));
    r->attn_factor = number_or(b, "rope.scaling.attn_factor", 0);
    r->beta_fast = number_or(b, "rope.scaling.yarn_beta_fast", 32);
    r->beta_slow = number_or(b, "rope.scaling.yarn_beta_slow", 1);
    bool truncate = true; /* a key of our own: GGUF has none */
    lode_source_arch_bool(b->source, "rope.scaling.yarn_truncate", &truncate);
    r->exact_ramp = !truncate;
    r->ctx_train = b->hp.ctx_train;
    r->ctx_orig = count_or(b, "rope.scaling.original_context_length", b->hp.ctx_train);
    if (lode_str_eqz(type, "linear"))
        r->scaling = LODE_ROPE_LINEAR;
    else if (lode_str_eqz(type, "yarn"))
        r->scaling = LODE_ROPE_YARN;
    else if (!lode_str_eqz(type, "none") && !lode_str_eqz(type, "longrope") && type.len)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, b->source->path,
                         "rope.scaling.type '%.*s' is not known (none, linear, yarn, longrope)",
                         (int)(type.len > 40 ? 40 : type.len), type.data);
    if (r->scaling != LODE_ROPE_PLAIN && !(r->factor > 0))
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "rope.scaling.factor is %g; more than 0 expected", r->factor);
    r->divisors = lode_b_floats(b, "rope_freqs.weight", r->n_pairs);
    r->shorter = lode_b_floats(b, "rope_factors_short.weight", r->n_pairs);
    r->longer = lode_b_floats(b, "rope_factors_long.weight", r->n_pairs);
    if (r->shorter && r->longer)
        r->scaling = LODE_ROPE_LONG;
    else if (r->shorter || r->longer)
        return lode_fail(err, LODE_ERR_MISSING, b->source->path,
                         "rope_factors_%s.weight is missing beside its twin",
                         r->shorter ? "long" : "short");
    return lode_graph_error(b->g, err);
}

static int read_experts(struct lode_build *b, struct lode_error *err) {
    struct lode_hparams *hp = &b->hp;
    hp->n_experts = count_or(b, "expert_count", 0);
    if (!hp->n_experts)
        return b->experts ? lode_fail(err, LODE_ERR_ARG, "--experts",
                                      "the model has no experts to choose from")
                          : 0;
    LODE_TRY(need_count(b, "expert_count", LODE_MAX_EXPERTS, &hp->n_experts, err));
    const uint32_t most = hp->n_experts < LODE_MAX_USED ? hp->n_experts : LODE_MAX_USED;
    LODE_TRY(need_count(b, "expert_used_count", most, &hp->n_experts_used, err));
    if (b->experts > most)
        return lode_fail(err, LODE_ERR_ARG, "--experts",
                         "%u; the model has %u experts and was trained to use %u, 1 to %u expected",
                         b->experts, hp->n_experts, hp->n_experts_used, most);
    hp->n_experts_trained = hp->n_experts_used;
    if (b->experts)
        hp->n_experts_used = b->experts;
    hp->d_ff_expert = count_or(b, "expert_feed_forward_length", hp->d_ff);
    hp->d_ff_shared = count_or(b, "expert_shared_feed_forward_length",
                               hp->d_ff_expert * count_or(b, "expert_shared_count", 0));
    hp->n_dense_layers = count_or(b, "leading_dense_block_count", 0);
    hp->n_expert_groups = count_or(b, "expert_group_count", 1);
    hp->n_expert_groups_used = count_or(b, "expert_group_used_count", hp->n_expert_groups);
    hp->expert_scale = number_or(b, "expert_weights_scale", 1);
    hp->expert_scale = hp->expert_scale == 0 ? 1 : hp->expert_scale; /* some files say 0 for none */
    lode_source_arch_bool(b->source, "expert_weights_norm", &hp->expert_normalise);
    const uint32_t gating = count_or(b, "expert_gating_func", 0);
    if (gating > 3)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, b->source->path,
                         "expert_gating_func %u is not known (1 softmax, 2 sigmoid, 3 softmax of "
                         "the chosen)",
                         gating);
    hp->gating = gating == 2   ? LODE_GATE_SIGMOID
                 : gating == 3 ? LODE_GATE_SOFTMAX_TOP
                               : LODE_GATE_SOFTMAX;
    if (hp->n_expert_groups == 0 || hp->n_expert_groups > 64 ||
        hp->n_experts % hp->n_expert_groups || hp->n_expert_groups_used == 0 ||
        hp->n_expert_groups_used > hp->n_expert_groups)
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "%u experts in %u groups, %u of them used: the groups must divide the "
                         "experts and be at most 64",
                         hp->n_experts, hp->n_expert_groups, hp->n_expert_groups_used);
    return 0;
}

static int read_rope(struct lode_build *b, struct lode_error *err) {
    struct lode_hparams *hp = &b->hp;
    const uint32_t n_rot = count_or(b, "rope.dimension_count", hp->head_dim);
    if (n_rot == 0 || n_rot % 2 || n_rot > hp->head_dim)
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "%s.rope.dimension_count is %u; an even number up to the head's size %u "
                         "expected",
                         b->arch->name, n_rot, hp->head_dim);
    hp->n_ropes = 1;
    hp->ropes[0] = (struct lode_rope_spec){.n_pairs = n_rot / 2,
                                           .theta = number_or(b, "rope.freq_base", 10000)};
    if (!(hp->ropes[0].theta > 1))
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "%s.rope.freq_base is %g; more than 1 expected", b->arch->name,
                         hp->ropes[0].theta);
    return read_scaling(b, &hp->ropes[0], err);
}

/* What a layer needs beyond the metadata: sizes that files leave to the tensors' shapes. */
static int read_vocab(struct lode_build *b, struct lode_error *err) {
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, "token_embd.weight");
    if (!t || t->n_dims != 2)
        return lode_fail(err, LODE_ERR_MISSING, b->source->path,
                         "tensor token_embd.weight (%u x vocabulary) is missing%s",
                         b->hp.d_model,
                         b->source->n_tensors ? "" : ": the file holds a vocabulary only");
    if (t->dims[1] > INT32_MAX)
        return lode_fail(err, LODE_ERR_FORMAT, "token_embd.weight", "%llu rows are too many",
                         (unsigned long long)t->dims[1]);
    b->hp.n_vocab = (uint32_t)t->dims[1];
    return 0;
}

int lode_hparams_read(struct lode_build *b, struct lode_error *err) {
    struct lode_hparams *hp = &b->hp;
    /* Every layer has tensors, so their number bounds the layers before anything is allocated. */
    const size_t n_tensors = b->source->n_tensors;
    const uint32_t most = n_tensors < 65536 ? (uint32_t)n_tensors : 65536;
    LODE_TRY(need_count(b, "embedding_length", 1 << 20, &hp->d_model, err));
    LODE_TRY(read_vocab(b, err));
    LODE_TRY(need_count(b, "block_count", most, &hp->n_layers, err));
    if (!lode_source_arch_u32(b->source, "expert_feed_forward_length", &hp->d_ff) ||
        count_of(b, "feed_forward_length", &hp->d_ff)) /* a model may have experts only */
        LODE_TRY(need_count(b, "feed_forward_length", 1 << 24, &hp->d_ff, err));
    LODE_TRY(need_count(b, "attention.head_count", 4096, &hp->n_heads, err));
    hp->n_kv_heads = count_or(b, "attention.head_count_kv", hp->n_heads);
    if (hp->n_kv_heads == 0 || hp->n_heads % hp->n_kv_heads || hp->n_heads / hp->n_kv_heads > 256)
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "%s.attention.head_count_kv is %u; a divisor of the %u heads expected",
                         b->arch->name, hp->n_kv_heads, hp->n_heads);
    hp->head_dim = count_or(b, "attention.key_length", hp->d_model / hp->n_heads);
    hp->head_dim_v = count_or(b, "attention.value_length", hp->head_dim);
    if (hp->head_dim == 0 || hp->head_dim > 4096 || hp->head_dim_v == 0 || hp->head_dim_v > 4096)
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "heads of %u (keys) and %u (values) numbers; 1 to 4096 expected",
                         hp->head_dim, hp->head_dim_v);
    LODE_TRY(need_count(b, "context_length", 1 << 30, &hp->ctx_train, err));
    hp->layer_norm = lode_source_arch_f32(b->source, "attention.layer_norm_epsilon", &hp->norm_eps);
    if (!hp->layer_norm &&
        !lode_source_arch_f32(b->source, "attention.layer_norm_rms_epsilon", &hp->norm_eps))
        return lode_source_arch_fail_key(b->source, "attention.layer_norm_rms_epsilon", "a number", err);
    if (!(hp->norm_eps >= 0 && hp->norm_eps < 1))
        return lode_fail(err, LODE_ERR_FORMAT, b->source->path,
                         "attention.layer_norm_%sepsilon is %g; 0 to 1 expected",
                         hp->layer_norm ? "" : "rms_", hp->norm_eps);
    LODE_TRY(read_experts(b, err));
    hp->window = count_or(b, "attention.sliding_window", 0);
    bool causal = true;
    lode_source_arch_bool(b->source, "attention.causal", &causal);
    hp->both_ways = !causal;
    hp->embed_scale = hp->residual_scale = hp->logit_scale = 1.0f;
    hp->attn_scale = (float)(1.0 / sqrt(hp->head_dim));
    return read_rope(b, err);
}
