/* cohere2 - Command R7B: attention and FFN read the same LayerNorm (no biases) and are added together;
 * three windowed layers, which rotate, to one that sees all and does not.
 *
 * Source: transformers' Cohere2 (modeling_cohere2.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    b->hp.window_period = 4;
    lode_source_arch_u32(b->source, "attention.sliding_window_pattern", &b->hp.window_period);
    lode_source_arch_f32(b->source, "logit_scale", &b->hp.logit_scale);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const uint32_t window = lode_b_window(b, l);
    const struct lode_b_attn attn = {.window = window, .no_rope = b->hp.window && !window};
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    struct lode_node *a = lode_b_attention(b, h, &x, l, &attn);
    h = lode_b_pick_last(b, h, l);
    x = lode_g_add(b->g, x, a, 1.0f);
    return lode_g_add(b->g, x, lode_b_ffn(b, h, l, LODE_GLU_SILU, false), 1.0f);
}

const struct lode_arch lode_arch_cohere2 = {
    "cohere2", .rope_pairs = true, .setup = setup, .layer = layer};
