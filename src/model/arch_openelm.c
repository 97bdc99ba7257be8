/* openelm - OpenELM: heads and FFN widths that grow from layer to layer, q, k and v in one tensor,
 * norms on heads.  GGUF files hold gate and up apart, the published ones in one tensor.
 *
 * Source: arXiv:2404.14619 and the code published with it. */
#include "model/build.h"

#include <stdio.h>

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    static const char *const names[3] = {"ffn_gate", "ffn_up", "ffn_down"};
    const struct lode_b_attn attn = {
        .qk_norm = LODE_QK_HEAD,
        .fused_qkv = true,
        .n_heads = lode_b_count(b, "attention.head_count", l, b->hp.n_heads),
        .n_kv_heads = lode_b_count(b, "attention.head_count_kv", l, b->hp.n_kv_heads)};
    const uint32_t d_ff = lode_b_count(b, "feed_forward_length", l, b->hp.d_ff);
    char gate[64];
    snprintf(gate, sizeof gate, "blk.%u.ffn_gate.weight", l);
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &attn);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "ffn_norm", l);
    h = lode_b_has(b, gate) ? lode_b_gated(b, h, l, LODE_GLU_SILU, d_ff, names)
                            : lode_b_fused(b, h, l, LODE_GLU_SILU, d_ff);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_openelm = {"openelm", .by_layer = true, .layer = layer};
