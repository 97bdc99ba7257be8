/* phi2 - Phi-1 to Phi-2: attention and an FFN without gate read the same LayerNorm and are added
 * together; biases everywhere, the output matrix included; part of each head rotates.
 *
 * Source: transformers' Phi (modeling_phi.py). */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    struct lode_node *a = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    h = lode_b_mlp(b, lode_b_pick_last(b, h, l), l, LODE_ACT_GELU);
    return lode_g_add(b->g, lode_g_add(b->g, x, a, 1.0f), h, 1.0f);
}

const struct lode_arch lode_arch_phi2 = {"phi2", .layer = layer};
