/* gpt-oss - every second layer has a window; each head has a sink, a score that takes part in the
 * softmax and has no value; YaRN; routed experts with biases and a clamped SwiGLU, softmax over the
 * chosen.
 *
 * Source: transformers' GptOss (modeling_gpt_oss.py); OpenAI's model card, arXiv:2508.10925. */
#include "model/build.h"

static void setup(struct lode_build *b) {
    b->hp.window_period = 2;
    b->hp.gating = LODE_GATE_SOFTMAX_TOP;
    /* config.json of the published models (32 times 4096 positions) says truncate: false, for which
     * GGUF files of others have no key. */
    struct lode_rope_spec *r = &b->hp.ropes[0];
    if (r->factor == 32 && r->ctx_orig == 4096)
        r->exact_ramp = true;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = lode_b_window(b, l)});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_moe(b, lode_b_norm(b, x, "post_attention_norm", l), l, LODE_GLU_CLAMPED);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_gptoss = {"gpt-oss", .setup = setup, .layer = layer};
