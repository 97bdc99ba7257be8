/* mla.c - multi-head latent attention, as it runs with one compressed row a token in the cache.
 *
 * A token keeps c = norm(latent) and a rotated key r that all heads share.  A head's key is
 * (K_h c, r) and its value V_h c, but <q, K_h c> = <K_h^T q, c> and sum p V_h c = V_h sum p c: so the
 * query is taken into the latent space, attention runs over the rows (c, r) with one key head whose
 * values are the rows' own beginning, and V_h comes after it.  Files hold K_h^T as attn_k_b.
 *
 * Source: DeepSeek-V2, arXiv:2405.04434, section 2.1 and appendix C. */
#include "model/build.h"

/* The latents' norms have this eps whatever that of the others is: transformers' modules leave it at
 * their default.  (DeepSeek's models say 1e-6 throughout, GLM 4.7 Flash 1e-5 for the others.) */
static const float latent_eps = 1e-6f;

static struct lode_node *latent_norm(struct lode_build *b, struct lode_node *x, const char *name,
                                     uint32_t l) {
    if (!x)
        return NULL;
    return lode_g_rms_norm(b->g, x, lode_b_vector(b, x->width, "blk.%u.%s.weight", l, name),
                           latent_eps, 0);
}

struct lode_node *lode_b_mla(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                             uint32_t l) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t rank = hp->mla.rank, rope = 2 * hp->ropes[0].n_pairs, plain = hp->mla.plain;
    const uint32_t heads = hp->n_heads, nq = heads * (plain + rope);
    /* In this order both products of h are one instruction, and all that is between products can be one launch
     * (backend/cuda/fuse_latent.c). */
    struct lode_node *q = hp->mla.q_rank ? lode_b_linear(b, h, hp->mla.q_rank, "attn_q_a", l)
                                         : lode_b_linear(b, h, nq, "attn_q", l);
    struct lode_node *row = lode_b_linear(b, h, rank + rope, "attn_kv_a_mqa", l);
    if (hp->mla.q_rank)
        q = lode_b_linear(b, latent_norm(b, q, "attn_q_a_norm", l), nq, "attn_q_b", l);
    struct lode_node *qc = lode_g_cut(b->g, q, heads, 0, plain);
    struct lode_node *qr = lode_g_rope(b->g, lode_g_cut(b->g, q, heads, plain, rope), b->rope_tables[0], heads,
                                       lode_b_pairs(b));
    struct lode_node *c = latent_norm(b, lode_g_slice(b->g, row, 0, rank), "attn_kv_a_norm", l);
    struct lode_node *r = lode_g_rope(b->g, lode_g_slice(b->g, row, rank, rope), b->rope_tables[0],
                                      1, lode_b_pairs(b));
    row = lode_g_join(b->g, c, r, 1);
    struct lode_node *put = lode_g_kv_put(b->g, row, row, l);
    qc = lode_g_heads(b->g, qc, lode_b_heads(b, rank, plain, heads, "blk.%u.attn_k_b.weight", l), heads);

    b->kv[l] = (struct lode_kv_layer){.n_heads = 1,
                                      .head_dim = rank + rope,
                                      .head_dim_v = rank,
                                      .v_in_k = true,
                                      .type_k = LODE_F16,
                                      .type_v = LODE_F16};
    const union lode_op_params p = {.attention = {.layer = l,
                                                  .n_heads = heads,
                                                  .n_kv_heads = 1,
                                                  .head_dim = rank + rope,
                                                  .head_dim_v = rank,
                                                  .scale = hp->attn_scale}};
    struct lode_node *o = lode_g_attention(b->g, lode_g_join(b->g, qc, qr, heads), put, NULL, &p);
    o = lode_b_pick_last(b, o, l);
    *x = lode_b_pick_last(b, *x, l);
    o = lode_g_heads(b->g, o, lode_b_heads(b, hp->mla.v, rank, heads, "blk.%u.attn_v_b.weight", l),
                     heads);
    return lode_b_linear(b, o, hp->d_model, "attn_output", l);
}
