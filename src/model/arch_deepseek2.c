/* deepseek2 - DeepSeek V2 to V3.1, Kimi K2, GLM 4.7 Flash: latent attention (mla.c), first layers
 * dense, then routed experts, chosen within groups where the file says so, and shared ones.
 *
 * Source: arXiv:2405.04434, arXiv:2412.19437; transformers' DeepseekV2, DeepseekV3 and
 * Glm4MoeLite. */
#include "base/dmath.h"
#include "model/build.h"

#include <math.h>

static uint32_t need(struct lode_build *b, const char *key) {
    uint32_t v = 0;
    if (!lode_source_arch_u32(b->source, key, &v) || v == 0 || v > 65536)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "deepseek2.%s is %u; 1 to 65536 expected (files made before 2025-04 lack "
                        "it: convert the model again)",
                        key, v);
    return v;
}

/* YaRN: the scores are scaled by the square of mscale, 1 + log_multiplier ln(factor), which the
 * files give, and the rotation by a quotient of two such numbers that are equal in all published
 * models: by 1. */
static void setup_yarn(struct lode_build *b, struct lode_rope_spec *r) {
    float multiplier = 0;
    lode_source_arch_f32(b->source, "rope.scaling.yarn_log_multiplier", &multiplier);
    if (r->scaling != LODE_ROPE_YARN || !(multiplier > 0))
        return;
    const double mscale = 1 + (double)multiplier * lode_log(r->factor);
    b->hp.attn_scale = (float)((double)b->hp.attn_scale * mscale * mscale);
    if (r->attn_factor == 0)
        r->attn_factor = (float)(1 / (1 + 0.1 * lode_log(r->factor)));
}

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    struct lode_rope_spec *r = &hp->ropes[0];
    lode_b_drop_nextn(b);
    hp->mla.rank = need(b, "attention.kv_lora_rank");
    hp->mla.v = need(b, "attention.value_length_mla");
    const uint32_t key = need(b, "attention.key_length_mla"), rope = 2 * r->n_pairs;
    lode_source_arch_u32(b->source, "attention.q_lora_rank", &hp->mla.q_rank);
    if (key <= rope || hp->head_dim != hp->mla.rank + rope || hp->n_kv_heads != 1)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "heads of %u numbers, %u of them rotated, over rows of %u + %u with %u key "
                        "heads do not fit together",
                        key, rope, hp->mla.rank, hp->head_dim - hp->mla.rank, hp->n_kv_heads);
    hp->mla.plain = key - rope;
    hp->attn_scale = (float)(1 / sqrt(key));
    setup_yarn(b, r);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_mla(b, lode_b_norm(b, x, "attn_norm", l), &x, l);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "ffn_norm", l);
    h = l < b->hp.n_dense_layers ? lode_b_ffn(b, h, l, LODE_GLU_SILU, false)
                                 : lode_b_moe(b, h, l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_deepseek2 = {
    "deepseek2", .rope_pairs = true, .setup = setup, .layer = layer};
