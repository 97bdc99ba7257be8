/* llama4 - Llama 4 (text): layers that rotate see their chunk of the context only and give query and
 * key heads a norm without weights after the rotation; every fourth does neither and sees all, its
 * queries growing with the position; routed experts in every interleave_moe_layer_step-th layer,
 * whose input is weighted, beside a shared one.
 *
 * Source: transformers' Llama4 (modeling_llama4.py).  GGUF files of others have no keys for the
 * chunk and the temperature, which then are those of the published models, nor for use_qk_norm, which
 * is false in Maverick (128 experts) alone; a Hugging Face directory says them. */
#include "model/build.h"

enum { CHUNK = 8192, NO_ROPE_PERIOD = 4, MAVERICK_EXPERTS = 128 };

static void setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->chunk = hp->temperature_floor = CHUNK;
    hp->temperature = 0.1f;
    lode_source_arch_u32(b->source, "attention.chunk_size", &hp->chunk);
    lode_source_arch_u32(b->source, "attention.temperature_length", &hp->temperature_floor);
    lode_source_arch_f32(b->source, "attention.temperature_scale", &hp->temperature);
    hp->moe_period = 1;
    lode_source_arch_u32(b->source, "interleave_moe_layer_step", &hp->moe_period);
    hp->gating = LODE_GATE_SIGMOID;
    hp->expert_weigh_input = true;
    hp->d_ff_shared = hp->d_ff_expert;
}

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    const struct lode_hparams *hp = &b->hp;
    const bool all = (l + 1) % NO_ROPE_PERIOD == 0;
    bool norm = hp->n_experts != MAVERICK_EXPERTS;
    lode_source_arch_bool(b->source, "attention.qk_norm", &norm);
    const struct lode_b_attn attn = {.no_rope = all,
                                     .temperature = all && hp->temperature > 0,
                                     .chunk = all ? 0 : hp->chunk,
                                     .qk_norm = norm && !all ? LODE_QK_PLAIN : LODE_QK_NONE};
    struct lode_node *h = lode_b_attention(b, lode_b_norm(b, x, "attn_norm", l), &x, l, &attn);
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "ffn_norm", l);
    h = hp->moe_period && (l + 1) % hp->moe_period == 0 ? lode_b_moe(b, h, l, LODE_GLU_SILU)
                                                        : lode_b_ffn(b, h, l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_llama4 = {
    "llama4", .rope_pairs = true, .setup = setup, .layer = layer};
