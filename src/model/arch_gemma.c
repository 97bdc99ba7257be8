/* gemma - Gemma 1: pre-norm (the files hold weight + 1), embeddings scaled by sqrt(d_model), GELU.
 *
 * Source: arXiv:2403.08295. */
#include "model/build.h"

#include <math.h>

static void setup(struct lode_build *b) { b->hp.embed_scale = sqrtf((float)b->hp.d_model); }

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_GELU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_gemma = {"gemma", .setup = setup, .layer = layer};
