/* qwen2moe - Qwen 1.5 MoE and Qwen 2 MoE: Qwen 2's attention, softmax gating whose chosen weights are
 * left as they are, and a shared expert with a gate of its own.
 *
 * Source: transformers' Qwen2Moe (modeling_qwen2_moe.py). */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_qwen2moe = {"qwen2moe", .layer = layer};
