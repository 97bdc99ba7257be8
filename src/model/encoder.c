/* encoder.c - what encoders have in common: every token sees its whole sequence, and a token's
 * embedding is a sum (of token, part of a pair, position) that is normed. */
#include "model/build.h"

void lode_b_encoder(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->both_ways = true;
    if (!hp->layer_norm)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "%s.attention.layer_norm_epsilon is missing", b->arch->name);
}

static struct lode_node *add_part(struct lode_build *b, struct lode_node *x) {
    const struct lode_gguf_tensor *t = lode_source_tensor(b->source, "token_types.weight");
    if (!t)
        return x;
    if (t->dims[1] == 0 || t->dims[1] > 2)
        return lode_graph_fail(b->g, LODE_ERR_UNSUPPORTED, b->source->path,
                               "token_types.weight has %llu rows; 1 or 2 expected",
                               (unsigned long long)t->dims[1]);
    b->hp.n_parts = (uint32_t)t->dims[1];
    const struct lode_operand *w =
        lode_b_matrix(b, b->hp.n_parts, b->hp.d_model, "token_types.weight");
    return lode_g_add(b->g, x, lode_g_embed_by(b->g, w, LODE_BY_PART), 1.0f);
}

static struct lode_node *add_position(struct lode_build *b, struct lode_node *x) {
    if (!lode_b_has(b, "position_embd.weight"))
        return x;
    const struct lode_operand *w =
        lode_b_matrix(b, b->hp.ctx_train, b->hp.d_model, "position_embd.weight");
    return lode_g_add(b->g, x, lode_g_embed_by(b->g, w, LODE_BY_POSITION), 1.0f);
}

struct lode_node *lode_b_encoder_embed(struct lode_build *b, struct lode_node *x) {
    const uint32_t d = b->hp.d_model;
    x = add_position(b, add_part(b, x));
    return lode_g_layer_norm(b->g, x, lode_b_vector(b, d, "token_embd_norm.weight"),
                             lode_b_vector_opt(b, d, "token_embd_norm.bias"), b->hp.norm_eps, 0);
}
