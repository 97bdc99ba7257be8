/* bert - BERT and XLM-RoBERTa: learned positions, norms after the sums, GELU, every token sees all.
 *
 * Source: arXiv:1810.04805, arXiv:1911.02116. */
#include "model/build.h"

#include <stdio.h>

static void setup(struct lode_build *b) {
    lode_b_encoder(b);
    b->hp.n_ropes = 0;
    if (!lode_b_has(b, "position_embd.weight"))
        lode_graph_fail(b->g, LODE_ERR_MISSING, b->source->path,
                        "tensor position_embd.weight is missing: the file is incomplete");
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    char qkv[64];
    snprintf(qkv, sizeof qkv, "blk.%u.attn_qkv.weight", l);
    const struct lode_b_attn attn = {.no_rope = true, .fused_qkv = lode_b_has(b, qkv)};
    struct lode_node *h = lode_b_attention(b, x, &x, l, &attn);
    x = lode_b_norm(b, lode_g_add(b->g, h, x, 1.0f), "attn_output_norm", l);
    h = lode_b_mlp(b, x, l, LODE_ACT_GELU_ERF);
    return lode_b_norm(b, lode_g_add(b->g, h, x, 1.0f), "layer_output_norm", l);
}

const struct lode_arch lode_arch_bert = {
    "bert", .encoder = true, .setup = setup, .layer = layer, .embed = lode_b_encoder_embed};
