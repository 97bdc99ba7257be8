/* gemma2 - Gemma 2: norms before and after each block (the files hold weight + 1), embeddings scaled
 * by sqrt(d_model), GELU, soft caps on scores and logits, a window in every other layer.
 *
 * Source: arXiv:2408.00118. */
#include "model/build.h"

#include <math.h>

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->embed_scale = sqrtf((float)hp->d_model);
    hp->window_period = 2;
    if (!lode_source_arch_u32(b->source, "attention.sliding_window", &hp->window))
        hp->window = 4096;
    hp->attn_cap = 50;
    hp->logit_cap = 30;
    lode_source_arch_f32(b->source, "attn_logit_softcapping", &hp->attn_cap);
    lode_source_arch_f32(b->source, "final_logit_softcapping", &hp->logit_cap);
    /* query_pre_attn_scalar is the head's size, but d_model / n_heads in the 27B (46 layers) */
    if (hp->n_layers == 46)
        hp->attn_scale = (float)(1 / sqrt((double)hp->d_model / hp->n_heads));
    lode_source_arch_f32(b->source, "attention.scale", &hp->attn_scale);
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const struct lode_b_attn attn = {.window = lode_b_window(b, l)};
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &attn);
    x = lode_g_add(b->g, x, lode_b_norm(b, h, "post_attention_norm", l), 1.0f);
    h = lode_b_ffn(b, lode_b_norm(b, x, "ffn_norm", l), l, LODE_GLU_GELU, false);
    return lode_g_add(b->g, x, lode_b_norm(b, h, "post_ffw_norm", l), 1.0f);
}

const struct lode_arch lode_arch_gemma2 = {"gemma2", .setup = setup, .layer = layer};
