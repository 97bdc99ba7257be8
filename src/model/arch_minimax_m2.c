/* minimax_m2 - MiniMax-M2: norms over the whole query and key rows, part of each head rotated, sigmoid
 * gating with a bias for the choice, the chosen weights divided by their sum.
 *
 * Source: transformers' MiniMaxM2 (modeling_minimax_m2.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    b->hp.gating = LODE_GATE_SIGMOID;
    b->hp.expert_normalise = true;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.qk_norm = LODE_QK_FULL});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_minimax_m2 = {"minimax-m2", .setup = setup, .layer = layer};
