/* hf_rope.c - the rotation: its base, the share of a head that turns, and how it is stretched. */
#include "format/hf_parts.h"

#include "base/dmath.h"
#include "base/error.h"

#include <math.h>

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
    LODE_TRY(lode_hf_number(h, rope, "low_freq_factor", 1, &low, err));
    LODE_TRY(lode_hf_number(h, rope, "high_freq_factor", 4, &high, err));
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
        return lode_hf_fail_field(h, field, "one number a rotary pair", err);
    if (!factors)
        return lode_fail_nomem(err, "rotation");
    uint32_t i = 0;
    for (const struct lode_json *c = lode_json_first(list); c; c = lode_json_next(list, c), i++) {
        double factor;
        if (!lode_json_real(c, &factor))
            return lode_hf_fail_field(h, field, "numbers", err);
        factors[i] = (float)factor;
    }
    return lode_hf_add_made(h, name, factors, n_pairs, err);
}

static int add_yarn(struct lode_hf *h, const struct lode_json *rope, double factor,
                    struct lode_error *err) {
    double attn, fast, slow, mscale, mscale_all;
    LODE_TRY(lode_hf_number(h, rope, "mscale", 0, &mscale, err));
    LODE_TRY(lode_hf_number(h, rope, "mscale_all_dim", 0, &mscale_all, err));
    LODE_TRY(lode_hf_number(h, rope, "attention_factor", 0, &attn, err));
    LODE_TRY(lode_hf_number(h, rope, "beta_fast", 32, &fast, err));
    LODE_TRY(lode_hf_number(h, rope, "beta_slow", 1, &slow, err));
    if (!(factor > 0))
        return lode_hf_fail_field(h, "rope_parameters.factor", "a number above 0", err);
    if (lode_json_is(lode_json_get(rope, "truncate"), LODE_JSON_FALSE))
        LODE_TRY(lode_hf_put_flag(h, "rope.scaling.yarn_truncate", false, err));
    if (!(attn > 0) && mscale > 0 && mscale_all > 0)
        attn = (1 + 0.1 * mscale * lode_log(factor)) / (1 + 0.1 * mscale_all * lode_log(factor));
    LODE_TRY(lode_hf_put_word(h, "rope.scaling.type", "yarn", err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.factor", factor, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.yarn_beta_fast", fast, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.scaling.yarn_beta_slow", slow, err));
    /* GGUF's factor multiplies what the paper gives, this one replaces it */
    return attn > 0 ? lode_hf_put_f64(h, "rope.scaling.attn_factor",
                                      attn / (1 + 0.1 * lode_log(factor)), err)
                    : 0;
}

/* The first `partial` of the pairs turn as they would if all did, the others not at all. */
static int add_proportional(struct lode_hf *h, double partial, double factor, uint32_t n_pairs,
                            struct lode_error *err) {
    static const float never = 1e30f; /* as GGUF files say it */
    const uint32_t n = (uint32_t)(partial * n_pairs);
    float *divisors = LODE_ARENA_ARRAY(&h->arena, float, n_pairs);
    if (!divisors)
        return lode_fail_nomem(err, "rotation");
    for (uint32_t i = 0; i < n_pairs; i++)
        divisors[i] = i < n ? (float)factor : never;
    return lode_hf_add_made(h, "rope_freqs.weight", divisors, n_pairs, err);
}

/* The rotation as config.json has it, in either form. */
struct rotation {
    const struct lode_json *object; /* rope_parameters or rope_scaling; NULL: neither */
    char type[LODE_HF_WORD];        /* "" or "default": no scaling */
    double theta, partial;
    uint32_t n_pairs;
};

static int put_scaling(struct lode_hf *h, const struct rotation *r, struct lode_error *err) {
    const struct lode_json *rope = r->object;
    double factor, orig, attn;
    uint32_t ctx_orig, ctx_train;
    if (strcmp(r->type, "") == 0 || strcmp(r->type, "default") == 0 ||
        strcmp(r->type, "mrope") == 0) /* of images; in text its three positions are one */
        return 0;
    if (strcmp(r->type, "dynamic") == 0)
        return lode_hf_note(h, err,
                            "rotations of type dynamic are those of the trained context; beyond "
                            "it they would have to change");
    LODE_TRY(lode_hf_number(h, rope, "factor", 1, &factor, err));
    if (strcmp(r->type, "proportional") == 0)
        return add_proportional(h, r->partial, factor, r->n_pairs, err);
    LODE_TRY(lode_hf_count(h, "max_position_embeddings", 0, &ctx_train, err));
    LODE_TRY(lode_hf_count(h, "original_max_position_embeddings", ctx_train, &ctx_orig, err));
    LODE_TRY(lode_hf_number(h, rope, "original_max_position_embeddings", ctx_orig, &orig, err));
    ctx_orig = orig >= 1 && orig < 1 << 30 ? (uint32_t)orig : 0;
    LODE_TRY(lode_hf_put_u32(h, "rope.scaling.original_context_length", ctx_orig, err));
    if (strcmp(r->type, "linear") == 0) {
        LODE_TRY(lode_hf_put_word(h, "rope.scaling.type", "linear", err));
        return lode_hf_put_f64(h, "rope.scaling.factor", factor, err);
    }
    if (strcmp(r->type, "yarn") == 0)
        return add_yarn(h, rope, factor, err);
    if (strcmp(r->type, "llama3") == 0)
        return add_llama3(h, rope, (double)(float)r->theta, r->n_pairs, ctx_orig, factor, err);
    if (strcmp(r->type, "longrope") != 0 && strcmp(r->type, "su") != 0)
        return lode_hf_refuse(h, "rope_parameters.rope_type", r->type, err);
    LODE_TRY(add_factors(h, rope, "short_factor", "rope_factors_short.weight", r->n_pairs, err));
    LODE_TRY(add_factors(h, rope, "long_factor", "rope_factors_long.weight", r->n_pairs, err));
    const double stretch = ctx_orig ? (double)ctx_train / ctx_orig : 1; /* arXiv:2402.13753 */
    attn = stretch > 1 && ctx_orig > 1 ? sqrt(1 + lode_log(stretch) / lode_log(ctx_orig)) : 1;
    LODE_TRY(lode_hf_number(h, rope, "attention_factor", attn, &attn, err));
    return lode_hf_put_f64(h, "rope.scaling.attn_factor", attn, err);
}

/* From the configuration, or from a projection's rows: many files leave it out. */
static int find_head_dim(struct lode_hf *h, uint32_t *head_dim, struct lode_error *err) {
    uint32_t n_heads = 0, n_kv, width;
    lode_source_arch_u32(&h->base, "attention.head_count", &n_heads);
    n_kv = n_heads;
    lode_source_arch_u32(&h->base, "attention.head_count_kv", &n_kv);
    LODE_TRY(lode_hf_count(h, "hidden_size", 0, &width, err));
    LODE_TRY(lode_hf_count(h, "head_dim", 0, head_dim, err));
    if (lode_hf_field(h, "head_dim") && *head_dim)
        return 0;
    const struct lode_gguf_tensor *q = lode_source_tensor(&h->base, "blk.0.attn_q.weight");
    const struct lode_gguf_tensor *qkv = lode_source_tensor(&h->base, "blk.0.attn_qkv.weight");
    if (!n_heads || (!q && !qkv && *head_dim)) /* the family's default */
        return 0;
    const uint64_t rows = q     ? q->dims[1] / n_heads
                          : qkv ? qkv->dims[1] / ((uint64_t)n_heads + 2 * (uint64_t)n_kv)
                                : width / n_heads;
    *head_dim = rows < 65536 ? (uint32_t)rows : 0;
    return 0;
}

/* theta and the share of a head that rotates: of an object, else of the configuration. */
static int read_rotation(struct lode_hf *h, const struct lode_json *o, struct rotation *r,
                         struct lode_error *err) {
    const struct lode_json *type = lode_json_get(o, "rope_type");
    r->object = o;
    if (!lode_hf_word(type ? type : lode_json_get(o, "type"), r->type))
        r->type[0] = '\0';
    LODE_TRY(lode_hf_number(h, NULL, "rope_theta", 10000, &r->theta, err));
    LODE_TRY(lode_hf_number(h, NULL, "rotary_emb_base", r->theta, &r->theta, err));
    LODE_TRY(lode_hf_number(h, NULL, "rotary_pct", 1, &r->partial, err));
    LODE_TRY(lode_hf_number(h, NULL, "partial_rotary_factor", r->partial, &r->partial, err));
    if (o) {
        LODE_TRY(lode_hf_number(h, o, "rope_theta", r->theta, &r->theta, err));
        LODE_TRY(lode_hf_number(h, o, "partial_rotary_factor", r->partial, &r->partial, err));
    }
    r->partial = r->partial > 0 && r->partial <= 1 ? r->partial : 1;
    return 0;
}

int lode_hf_read_rope(struct lode_hf *h, struct lode_error *err) {
    const struct lode_json *rope = lode_hf_field(h, "rope_parameters"), *local = NULL;
    struct rotation r;
    uint32_t head_dim = 0, n_rot;
    if (!lode_source_arch_u32(&h->base, "attention.key_length", &head_dim))
        LODE_TRY(find_head_dim(h, &head_dim, err));
    if (!head_dim || head_dim > 4096)
        return lode_hf_fail_field(h, "head_dim", "1 to 4096", err);
    LODE_TRY(lode_hf_put_u32(h, "attention.key_length", head_dim, err));
    LODE_TRY(lode_hf_put_u32(h, "attention.value_length", head_dim, err));
    if (lode_json_is(lode_json_get(rope, "full_attention"), LODE_JSON_OBJECT)) {
        local = lode_json_get(rope, "sliding_attention");
        rope = lode_json_get(rope, "full_attention");
    }
    if (!rope)
        rope = lode_hf_field(h, "rope_scaling");
    if (!lode_json_is(rope, LODE_JSON_OBJECT))
        rope = NULL;
    LODE_TRY(read_rotation(h, rope, &r, err));
    LODE_TRY(lode_hf_put_f64(h, "rope.freq_base", r.theta, err));
    const bool share = strcmp(r.type, "proportional") != 0; /* else all rotate, some by nothing */
    LODE_TRY(lode_hf_put_u32(h, "rope.dimension_count",
                             share ? (uint32_t)(head_dim * r.partial) : head_dim, err));
    if (h->family->local_rope) {
        double theta;
        LODE_TRY(lode_hf_number(h, NULL, "rope_local_base_freq", 10000, &theta, err));
        if (local)
            LODE_TRY(lode_hf_number(h, local, "rope_theta", theta, &theta, err));
        LODE_TRY(lode_hf_put_f64(h, "rope.freq_base_swa", theta, err));
    }
    if (!lode_source_arch_u32(&h->base, "rope.dimension_count", &n_rot) || n_rot < 2 ||
        n_rot > 4096)
        return lode_hf_fail_field(h, "partial_rotary_factor", "at least one rotary pair", err);
    r.n_pairs = n_rot / 2;
    return put_scaling(h, &r, err);
}
