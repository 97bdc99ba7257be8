/* granite - Granite 3: Llama's layer with four constants: embeddings, scores, residual branches and
 * logits are scaled (muP).
 *
 * Source: the Granite 3.0 technical report; arXiv:2203.03466 for the scalings. */
#include "model/build.h"

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    float logit_divisor = 1;
    lode_source_arch_f32(b->source, "embedding_scale", &hp->embed_scale);
    lode_source_arch_f32(b->source, "residual_scale", &hp->residual_scale);
    lode_source_arch_f32(b->source, "attention.scale", &hp->attn_scale);
    lode_source_arch_f32(b->source, "logit_scale", &logit_divisor);
    hp->logit_scale = logit_divisor != 0 ? 1 / logit_divisor : 1;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const float scale = b->hp.residual_scale;
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, scale);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, scale);
}

const struct lode_arch lode_arch_granite = {
    "granite", .rope_pairs = true, .setup = setup, .layer = layer};
