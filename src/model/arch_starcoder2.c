/* starcoder2 - pre-norm with LayerNorms and biases everywhere, an FFN without gate, a window in all
 * layers where the file gives one.
 *
 * Source: transformers' Starcoder2 (modeling_starcoder2.py); arXiv:2402.19173. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = b->hp.window});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_mlp(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_ACT_GELU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_starcoder2 = {"starcoder2", .layer = layer};
