/* falcon - attention and an FFN without gate side by side on the same LayerNorm; the models with
 * grouped queries (40B, 180B) give attention a norm of its own, attn_norm_2.  q, k, v are one
 * tensor, which the files hold in this order.
 *
 * Source: transformers' Falcon (modeling_falcon.py); arXiv:2311.16867. */
#include "model/build.h"

#include <stdio.h>

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_norm_2.weight", l);
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    struct lode_node *a = lode_b_has(b, name) ? lode_b_norm(b, x, "attn_norm_2", l) : h;
    a = lode_b_attention(b, a, &x, l, &(struct lode_b_attn){.fused_qkv = true});
    h = lode_b_mlp(b, lode_b_pick_last(b, h, l), l, LODE_ACT_GELU_ERF);
    return lode_g_add(b->g, lode_g_add(b->g, x, a, 1.0f), h, 1.0f);
}

const struct lode_arch lode_arch_falcon = {"falcon", .layer = layer};
