/* seed_oss - Seed-OSS: Qwen 2's layer (biases on q, k and v); the files call the FFN's norm
 * post_attention_norm.
 *
 * Source: transformers' SeedOss (modeling_seed_oss.py). */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "post_attention_norm", l), l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_seed_oss = {"seed_oss", .layer = layer};
