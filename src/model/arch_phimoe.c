/* phimoe - Phi-3.5-MoE: Mixtral's layer with norms that have a mean and a bias (the files give their
 * epsilon under RMS norm's key), biases on every projection of attention, longrope, and two experts
 * a token weighed one after the other (SparseMixer).
 *
 * Source: arXiv:2409.12136, transformers' Phimoe (modeling_phimoe.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    b->hp.layer_norm = true;
    b->hp.gating = LODE_GATE_SPARSEMIXER;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = b->hp.window});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_phimoe = {"phimoe", .setup = setup, .layer = layer};
