/* nomic-bert - Nomic Embed: BERT with rotation instead of learned positions, gated SiLU, q, k and v in
 * one tensor, no biases.
 *
 * Source: arXiv:2402.01613, transformers' NomicBert (modeling_nomic_bert.py). */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h =
        lode_b_attention(b, x, &x, l, &(struct lode_b_attn){.fused_qkv = true});
    x = lode_b_norm(b, lode_g_add(b->g, h, x, 1.0f), "attn_output_norm", l);
    h = lode_b_ffn(b, x, l, LODE_GLU_SILU, false);
    return lode_b_norm(b, lode_g_add(b->g, h, x, 1.0f), "layer_output_norm", l);
}

const struct lode_arch lode_arch_nomic_bert = {"nomic-bert",
                                               .encoder = true,
                                               .setup = lode_b_encoder,
                                               .layer = layer,
                                               .embed = lode_b_encoder_embed};
