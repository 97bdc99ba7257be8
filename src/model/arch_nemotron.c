/* nemotron - Nemotron 4, Minitron: pre-norm with LayerNorms (the files hold weight + 1), part of each
 * head rotated, an FFN without gate whose activation is the square of ReLU.
 *
 * Source: transformers' Nemotron (modeling_nemotron.py); arXiv:2402.16819. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_mlp(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_ACT_RELU2);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_nemotron = {"nemotron", .layer = layer};
