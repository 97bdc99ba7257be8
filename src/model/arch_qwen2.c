/* qwen2 - Qwen 2 and 2.5: Llama's layer with biases on q, k and v (taken where the file has them).
 *
 * Source: arXiv:2407.10671. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_qwen2 = {"qwen2", .layer = layer};
