/* olmo2 - OLMo 2: no norm before the blocks but one after each, and norms over the whole query and
 * key rows.
 *
 * Source: arXiv:2501.00656. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const struct lode_b_attn attn = {.qk_norm = LODE_QK_FULL, .window = lode_b_window(b, l)};
    struct lode_node *h = lode_b_attention(b, x, &x, l, &attn);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_ffn(b, x, l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
}

const struct lode_arch lode_arch_olmo2 = {"olmo2", .layer = layer};
