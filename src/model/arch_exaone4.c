/* exaone4 - EXAONE 4: norms after the blocks and on heads; where the file gives a window, three
 * windowed layers, which rotate, to one that sees all and does not.
 *
 * Source: arXiv:2507.11407. */
#include "model/build.h"

static void setup(struct lode_build *b) { b->hp.window_period = 4; }

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const uint32_t window = lode_b_window(b, l);
    const struct lode_b_attn attn = {
        .qk_norm = LODE_QK_HEAD, .window = window, .no_rope = b->hp.window && !window};
    struct lode_node *h = lode_b_attention(b, x, &x, l, &attn);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_ffn(b, x, l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
}

const struct lode_arch lode_arch_exaone4 = {"exaone4", .setup = setup, .layer = layer};
