/* stablelm - StableLM 2: Llama's layer with LayerNorm and a partial rotation; the 12B adds norms on
 * heads and reads one norm for attention and FFN (no ffn_norm in the file).
 *
 * Source: transformers' StableLm (modeling_stablelm.py). */
#include "model/build.h"

#include <stdio.h>

static struct lode_node *layer(struct lode_build *b, struct lode_node *x, uint32_t l) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_q_norm.weight", l);
    if (lode_b_has(b, name))
        return lode_graph_fail(b->g, LODE_ERR_UNSUPPORTED, b->source->path,
                               "%s: StableLM 2 12B's norms on heads are not supported", name);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", l);
    const bool parallel = !lode_b_has(b, name);
    struct lode_node *n = lode_b_norm(b, x, "attn_norm", l);
    struct lode_node *a = lode_b_attention(b, n, &x, l, &(struct lode_b_attn){.window = 0});
    x = lode_g_add(b->g, x, a, 1.0f);
    n = parallel ? lode_b_pick_last(b, n, l) : lode_b_norm(b, x, "ffn_norm", l);
    return lode_g_add(b->g, x, lode_b_ffn(b, n, l, LODE_GLU_SILU, false), 1.0f);
}

const struct lode_arch lode_arch_stablelm = {"stablelm", .layer = layer};
