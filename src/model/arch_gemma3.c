/* gemma3 - Gemma 3 (text): Gemma 2's layer with norms on query and key heads instead of the soft
 * cap, five windowed layers to one that sees all, and two rotations: windowed layers use a base of
 * 10,000, the others the file's base and scaling.
 *
 * Source: arXiv:2503.19786. */
#include "model/build.h"

#include <math.h>

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->window_period = 6;
    lode_source_arch_u32(b->source, "attention.sliding_window_pattern", &hp->window_period);
    lode_source_arch_f32(b->source, "final_logit_softcapping", &hp->logit_cap);
    if (hp->n_layers == 62) /* the 27B's query_pre_attn_scalar is d_model / n_heads */
        hp->attn_scale = (float)(1 / sqrt((double)hp->d_model / hp->n_heads));
    lode_source_arch_f32(b->source, "attention.scale", &hp->attn_scale);
    float local = 10000;
    lode_source_arch_f32(b->source, "rope.freq_base_swa", &local);
    hp->ropes[1] = (struct lode_rope_spec){.n_pairs = hp->ropes[0].n_pairs, .theta = local};
    hp->n_ropes = 2;
    if (!(local > 1))
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "gemma3.rope.freq_base_swa is %g; more than 1 expected", (double)local);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const uint32_t window = lode_b_window(b, l);
    const struct lode_b_attn attn = {
        .qk_norm = LODE_QK_HEAD, .window = window, .rope = window ? 1 : 0};
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &attn);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_GELU, false);
    return lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
}

const struct lode_arch lode_arch_gemma3 = {"gemma3", .setup = setup, .layer = layer};
