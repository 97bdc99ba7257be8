/* qwen3next - Qwen3-Next: GatedDeltaNet in most layers, gated attention with partial rotation in
 * every fourth, routed experts and a gated shared one in all of them.
 *
 * Source: transformers' Qwen3Next (modeling_qwen3_next.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    if (!lode_source_arch_bool(b->source, "expert_weights_norm", &b->hp.expert_normalise))
        b->hp.expert_normalise = true;
    lode_b_drop_nextn(b);
    lode_b_delta_setup(b);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    if (lode_b_recurrent(b, l))
        h = lode_b_delta(b, h, &x, l, false);
    else
        h = lode_b_attention(b, h, &x, l,
                             &(struct lode_b_attn){.qk_norm = LODE_QK_HEAD, .gated = true});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "post_attention_norm", l), l, LODE_GLU_SILU);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_qwen3next = {"qwen3next", .setup = setup, .layer = layer};
