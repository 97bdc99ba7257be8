/* qwen35, qwen35moe - Qwen 3.5 (text): Qwen3-Next's layers, with a plain FFN or with experts.  The
 * heads of values are tiled over those of keys in its files.  Its three rotary sections (time,
 * height, width) have the same position for text, which is plain rotation.
 *
 * Source: transformers' Qwen3_5 and Qwen3_5Moe (modeling_qwen3_5.py, modeling_qwen3_5_moe.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    b->hp.expert_normalise = true;
    lode_b_drop_nextn(b);
    lode_b_delta_setup(b);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    if (lode_b_recurrent(b, l))
        h = lode_b_delta(b, h, &x, l, true);
    else
        h = lode_b_attention(b, h, &x, l,
                             &(struct lode_b_attn){.qk_norm = LODE_QK_HEAD, .gated = true});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "post_attention_norm", l);
    h = b->hp.n_experts ? lode_b_moe(b, h, l, LODE_GLU_SILU)
                        : lode_b_ffn(b, h, l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_qwen35 = {"qwen35", .setup = setup, .layer = layer};
const struct lode_arch lode_arch_qwen35moe = {"qwen35moe", .setup = setup, .layer = layer};
