/* qwen3moe - Qwen 3 with routed experts: softmax over all of them, the chosen weights made to sum
 * to one.
 *
 * Source: arXiv:2505.09388. */
#include "model/build.h"

static void setup(struct lode_build *b) {
    if (!lode_source_arch_bool(b->source, "expert_weights_norm", &b->hp.expert_normalise))
        b->hp.expert_normalise = true;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.qk_norm = LODE_QK_HEAD});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_qwen3moe = {"qwen3moe", .setup = setup, .layer = layer};
