/* llama - Llama 2 and 3 and what is built like them: SmolLM2, Mistral (with a sliding window where
 * the file gives one), Mixtral (routed experts), DeepSeek distils.  Pre-norm, grouped queries, SwiGLU; Llama 3.1's rotary
 * divisors come as the tensor rope_freqs.  GGUF files of this family hold q and k permuted, so
 * that rotary pairs are neighbours.
 *
 * Sources: arXiv:2302.13971, 2307.09288, 2407.21783; Mistral 2310.06825; Mixtral
 * 2401.04088. */
#include "model/build.h"

static void setup(struct lode_build *b) { b->hp.expert_normalise = true; }

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    struct lode_node *h = lode_b_norm(b, x, "attn_norm", l);
    h = lode_b_attention(b, h, &x, l, &(struct lode_b_attn){.window = b->hp.window});
    x = lode_g_add(b->g, x, h, 1.0f);
    h = lode_b_norm(b, x, "ffn_norm", l);
    h = b->hp.n_experts ? lode_b_moe(b, h, l, LODE_GLU_SILU)
                        : lode_b_ffn(b, h, l, LODE_GLU_SILU, false);
    return lode_g_add(b->g, x, h, 1.0f);
}

const struct lode_arch lode_arch_llama = {"llama", .rope_pairs = true, .setup = setup, .layer = layer};
