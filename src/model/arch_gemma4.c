/* gemma4 - Gemma 4 (text, dense): Gemma 3's layer with a norm on values, scores that are not scaled,
 * windowed layers with smaller heads of their own, last layers that read the keys and values of an
 * earlier one, and an input for each layer: a second embedding of the token and a projection of the
 * first, which enters the residual stream through a gate after the FFN.  A factor ends each layer.
 *
 * Source: transformers' Gemma4 (modeling_gemma4.py). */
#include "model/build.h"

#include <math.h>

enum { INPUTS, PUT_ALL, PUT_WINDOW }; /* in b->kept: inputs of all layers; the last KV_PUT of a kind */

static bool windowed(const struct lode_build *b, uint32_t l) {
    return b->hp.window && lode_b_count(b, "attention.sliding_window_pattern", l, 0);
}

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->attn_scale = 1.0f;
    lode_source_arch_f32(b->source, "final_logit_softcapping", &hp->logit_cap);
    float local = 10000;
    lode_source_arch_f32(b->source, "rope.freq_base_swa", &local);
    const uint32_t n_rot = lode_b_count(b, "rope.dimension_count_swa", 0, 2 * hp->ropes[0].n_pairs);
    hp->ropes[1] = (struct lode_rope_spec){.n_pairs = n_rot / 2, .theta = local};
    hp->n_ropes = 2;
    if (!(local > 1) || n_rot < 2 || n_rot > 4096)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "windowed layers rotate %u numbers by base %g; 2 to 4096 and more than 1 "
                        "expected",
                        n_rot, (double)local);
    const uint64_t inputs = lode_b_count(b, "embedding_length_per_layer_input", 0, 0);
    if (inputs * hp->n_layers > 1 << 28)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "gemma4.embedding_length_per_layer_input is too large for %u layers",
                        hp->n_layers);
    if (hp->n_experts)
        lode_graph_fail(b->g, LODE_ERR_UNSUPPORTED, b->source->path,
                        "gemma4 with routed experts is not supported");
}

/* (norm(project(x)) + embed(token)) / sqrt(2) for all layers side by side, n numbers each. */
static struct lode_node *layer_inputs(struct lode_build *b, struct lode_node *x, uint32_t n) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t width = n * hp->n_layers;
    const float root = sqrtf((float)n);
    struct lode_node *e = lode_g_embed(
        b->g, lode_b_matrix(b, hp->n_vocab, width, "per_layer_token_embd.weight"), root);
    struct lode_node *p = lode_g_linear(
        b->g, x, lode_b_matrix(b, width, hp->d_model, "per_layer_model_proj.weight"), NULL);
    p = lode_g_scale(b->g, p, (float)(1 / sqrt(hp->d_model)));
    p = lode_g_rms_norm(b->g, p, lode_b_vector(b, n, "per_layer_proj_norm.weight"), hp->norm_eps, n);
    return lode_g_scale(b->g, lode_g_add(b->g, p, e, 1.0f), (float)M_SQRT1_2);
}

static struct lode_node *attention(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                                   uint32_t l) {
    const struct lode_hparams *hp = &b->hp;
    const bool window = windowed(b, l);
    const uint32_t shared = lode_b_count(b, "attention.shared_kv_layers", 0, 0);
    struct lode_node **put = &b->kept[window ? PUT_WINDOW : PUT_ALL];
    const bool own = shared >= hp->n_layers || l < hp->n_layers - shared;
    if (!own && !*put)
        return lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                               "layer %u has no earlier layer to share keys and values with", l);
    const struct lode_b_attn attn = {
        .qk_norm = LODE_QK_HEAD,
        .v_norm = true,
        .window = window ? hp->window : 0,
        .rope = window ? 1 : 0,
        .head_dim = window ? lode_b_count(b, "attention.key_length_swa", 0, hp->head_dim) : 0,
        .n_kv_heads = lode_b_count(b, "attention.head_count_kv", l, hp->n_kv_heads),
        .put = put,
        .share = own ? NULL : *put};
    return lode_b_attention(b, h, x, l, &attn);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    static const char *const names[3] = {"ffn_gate", "ffn_up", "ffn_down"};
    const uint32_t n = lode_b_count(b, "embedding_length_per_layer_input", 0, 0);
    if (l == 0 && n)
        b->kept[INPUTS] = layer_inputs(b, x, n);
    struct lode_node *h = attention(b, lode_b_norm(b, x, "attn_norm", l), &x, l);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_gated(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_GELU,
                     lode_b_count(b, "feed_forward_length", l, b->hp.d_ff), names);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
    if (n) {
        struct lode_node *in = lode_g_slice(b->g, b->kept[INPUTS], l * n, n);
        h = lode_b_linear(b, x, n, "inp_gate", l);
        h = lode_g_glu(b->g, h, lode_b_pick_last(b, in, l), LODE_GLU_GELU);
        h = lode_b_linear(b, h, b->hp.d_model, "proj", l);
        x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_norm", l), 1.0f);
    }
    const float *factor = lode_b_layer_floats(b, "layer_output_scale.weight", l, 1);
    return factor ? lode_g_scale(b->g, x, *factor) : x;
}

const struct lode_arch lode_arch_gemma4 = {
    "gemma4", .by_layer = true, .setup = setup, .layer = layer};
