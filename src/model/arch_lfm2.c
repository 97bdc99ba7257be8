/* lfm2 - LFM2: gated short convolutions, and attention in some layers.
 *
 * A convolution layer projects to b, c and x, and gives project(c * conv(b * x)).  A layer without
 * heads of keys is one.
 *
 * Source: transformers' Lfm2 (modeling_lfm2.py). */
#include "model/build.h"

static void setup(struct lode_build *b) {
    const uint32_t taps = lode_b_count(b, "shortconv.l_cache", 0, 0);
    b->hp.delta.taps = taps;
    if (taps < 2 || taps > 8)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "lfm2.shortconv.l_cache is %u; 2 to 8 expected", taps);
}

static struct lode_node *convolution(struct lode_build *b, struct lode_node *h,
                                     struct lode_node **x, uint32_t l) {
    const uint32_t d = b->hp.d_model, taps = b->hp.delta.taps;
    struct lode_node *bcx = lode_b_linear(b, h, 3 * d, "shortconv.in_proj", l);
    struct lode_node *in = lode_g_glu(b->g, lode_g_slice(b->g, bcx, 0, d),
                                      lode_g_slice(b->g, bcx, 2 * d, d), LODE_GLU_TIMES);
    b->state[l] = (struct lode_state_layer){.inputs = taps - 1, .width = d};
    in = lode_g_conv(b->g, in, lode_b_vectors(b, d, taps, "blk.%u.shortconv.conv.weight", l), l,
                     false);
    in = lode_b_pick_last(b, in, l);
    struct lode_node *c = lode_b_pick_last(b, lode_g_slice(b->g, bcx, d, d), l);
    *x = lode_b_pick_last(b, *x, l);
    return lode_b_linear(b, lode_g_glu(b->g, c, in, LODE_GLU_TIMES), d, "shortconv.out_proj", l);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const uint32_t kv_heads = lode_b_count(b, "attention.head_count_kv", l, 0);
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    if (kv_heads)
        h = lode_b_attention(
            b, h, &x, l, &(struct lode_b_attn){.qk_norm = LODE_QK_HEAD, .n_kv_heads = kv_heads});
    else
        h = convolution(b, h, &x, l);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_lfm2 = {"lfm2", .by_layer = true, .setup = setup, .layer = layer};
