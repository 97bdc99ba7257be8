/* olmoe - OLMoE: norms over the whole query and key rows, softmax gating whose chosen weights are
 * left as they are.
 *
 * Source: arXiv:2409.02060. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.qk_norm = LODE_QK_FULL});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_olmoe = {"olmoe", .layer = layer};
