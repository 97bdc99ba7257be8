/* glm4moe - GLM 4.5 to 4.7: norms on heads where the file has them, half of each head rotated, the
 * first layers dense, then sigmoid gating with a bias for the choice and shared experts.
 *
 * Source: arXiv:2508.06471. */
#include "model/build.h"

#include <stdio.h>

static void setup(struct lode_build *b) { lode_b_drop_nextn(b); }

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_q_norm.weight", l);
    const struct lode_b_attn attn = {.qk_norm = lode_b_has(b, name) ? LODE_QK_HEAD : LODE_QK_NONE};
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &attn);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "post_attention_norm", l);
    h = l < b->hp.n_dense_layers ? lode_b_ffn(b, h, l, LODE_GLU_SILU, false)
                                 : lode_b_moe(b, h, l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_glm4moe = {"glm4moe", .setup = setup, .layer = layer};
