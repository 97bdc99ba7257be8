/* phi3 - Phi-3 and Phi-4-mini: q, k, v in one tensor, gate and up in one, a window in all layers
 * where the file gives one, longrope (factors chosen by the session's context).
 *
 * Source: arXiv:2404.14219. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.fused_qkv = true, .window = b->hp.window});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, true);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_phi3 = {"phi3", .layer = layer};
