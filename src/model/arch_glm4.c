/* glm4 - GLM-4-0414 (dense): norms before and after attention and FFN, half of each head rotated in
 * neighbouring pairs, biases on q, k and v where the file has them, gate and up in one tensor.
 *
 * Source: transformers' Glm4 (modeling_glm4.py). */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, true);
    return lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
}

const struct lode_arch lode_arch_glm4 = {"glm4", .rope_pairs = true, .layer = layer};
