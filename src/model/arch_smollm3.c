/* smollm3 - SmolLM3: Llama's layer, but every fourth layer has no rotation (NoPE).
 *
 * Source: the model's configuration (no_rope_layer_interval 4) and arXiv:2501.18795. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.no_rope = (l + 1) % 4 == 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_smollm3 = {"smollm3", .rope_pairs = true, .layer = layer};
