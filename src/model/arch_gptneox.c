/* gptneox - GPT-NeoX, Pythia: LayerNorms and biases everywhere, q, k, v one tensor, an FFN without
 * gate that reads either the layer's input (use_parallel_residual) or attention's result.
 *
 * Source: transformers' GPTNeoX (modeling_gpt_neox.py); arXiv:2204.06745. */
#include "model/build.h"

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    bool parallel = true;
    lode_source_arch_bool(b->source, "use_parallel_residual", &parallel);
    struct lode_node *a = lode_b_norm(b, x, "attn_norm", l);
    a = lode_b_attention(b, a, &x, l, &(struct lode_b_attn){.fused_qkv = true});
    struct lode_node *sum = lode_g_add(b->g, x, a, 1.0f);
    struct lode_node *h = lode_b_norm(b, parallel ? x : sum, "ffn_norm", l);
    return lode_g_add(b->g, sum, lode_b_mlp(b, h, l, LODE_ACT_GELU_ERF), 1.0f);
}

const struct lode_arch lode_arch_gptneox = {"gptneox", .layer = layer};
