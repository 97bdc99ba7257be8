/* blocks.c - the parts that most decoder layers are made of. */
#include "model/build.h"

#include <stdio.h>

struct lode_node *lode_b_linear(struct lode_build *b, struct lode_node *x, uint32_t rows,
                                const char *name, uint32_t l) {
    if (!x)
        return NULL;
    return lode_g_linear(b->g, x, lode_b_matrix(b, rows, x->width, "blk.%u.%s.weight", l, name),
                         lode_b_vector_opt(b, rows, "blk.%u.%s.bias", l, name));
}

struct lode_node *lode_b_norm(struct lode_build *b, struct lode_node *x, const char *name,
                              uint32_t l) {
    const uint32_t n = b->hp.d_model;
    const struct lode_operand *w = lode_b_vector(b, n, "blk.%u.%s.weight", l, name);
    if (!b->hp.layer_norm)
        return lode_g_rms_norm(b->g, x, w, b->hp.norm_eps, 0);
    return lode_g_layer_norm(b->g, x, w, lode_b_vector_opt(b, n, "blk.%u.%s.bias", l, name),
                             b->hp.norm_eps, 0);
}

void lode_b_drop_nextn(struct lode_build *b) {
    uint32_t extra = 0;
    if (lode_source_arch_u32(b->source, "nextn_predict_layers", &extra) && extra < b->hp.n_layers)
        b->hp.n_layers -= extra;
}

bool lode_b_pairs(const struct lode_build *b) {
    return b->arch->rope_pairs && !b->source->half_order;
}

uint32_t lode_b_window(const struct lode_build *b, uint32_t l) {
    const struct lode_hparams *hp = &b->hp;
    return hp->window_period && (l + 1) % hp->window_period == 0 ? 0 : hp->window;
}

struct lode_node *lode_b_pick_last(struct lode_build *b, struct lode_node *h, uint32_t l) {
    return l + 1 == b->hp.n_layers ? lode_g_pick(b->g, h) : h;
}

/* Each head by itself, without weights. */
static struct lode_node *plain_norm(struct lode_build *b, struct lode_node *x, uint32_t head_dim) {
    return lode_g_rms_norm(b->g, x, NULL, b->hp.norm_eps, head_dim);
}

/* Norm, rotation and norm of queries or keys, as the layer has them. */
static struct lode_node *finish_heads(struct lode_build *b, struct lode_node *x, const char *norm,
                                      uint32_t n_heads, uint32_t l, const struct lode_b_attn *a) {
    if (!x)
        return NULL;
    const uint32_t dim = x->width / n_heads;
    if (a->qk_norm == LODE_QK_HEAD || a->qk_norm == LODE_QK_FULL) {
        const uint32_t group = a->qk_norm == LODE_QK_HEAD ? dim : x->width;
        x = lode_g_rms_norm(b->g, x, lode_b_vector(b, group, "blk.%u.%s.weight", l, norm),
                            b->hp.norm_eps, group);
    }
    if (!a->no_rope)
        x = lode_g_rope(b->g, x, b->rope_tables[a->rope], n_heads, lode_b_pairs(b));
    else if (lode_b_pairs(b)) /* scores are sums over a head: their bits depend on its order */
        x = lode_g_unpair(b->g, x, n_heads, b->hp.ropes[a->rope].n_pairs);
    return a->qk_norm == LODE_QK_PLAIN ? plain_norm(b, x, dim) : x;
}

/* Whether the layer's values are its keys, before norm and rotation. */
static bool keys_are_values(const struct lode_build *b, uint32_t l, const struct lode_b_attn *a) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.attn_v.weight", l);
    return a->v_norm && !lode_b_has(b, name);
}

struct lode_node *lode_b_attention(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                                   uint32_t l, const struct lode_b_attn *a) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t dim = a->head_dim ? a->head_dim : hp->head_dim;
    const uint32_t dim_v = a->head_dim ? a->head_dim : hp->head_dim_v;
    const uint32_t kv_heads = a->n_kv_heads ? a->n_kv_heads : hp->n_kv_heads;
    const uint32_t heads = a->n_heads ? a->n_heads : hp->n_heads;
    if (dim > 4096 || heads > 4096 || kv_heads > heads || heads % kv_heads || heads / kv_heads > 256)
        return lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                               "layer %u has %u heads of %u numbers over %u key heads, which do not "
                               "fit together",
                               l, heads, dim, kv_heads);
    const uint32_t nq = heads * dim, nk = kv_heads * dim, nv = kv_heads * dim_v;
    struct lode_node *q, *k = NULL, *v = NULL, *both = NULL, *put = a->share;
    if (a->fused_qkv) {
        struct lode_node *qkv = lode_b_linear(b, h, nq + nk + nv, "attn_qkv", l);
        q = lode_g_slice(b->g, qkv, 0, nq);
        k = lode_g_slice(b->g, qkv, nq, nk);
        v = lode_g_slice(b->g, qkv, nq + nk, nv);
    } else {
        q = lode_b_linear(b, h, a->gated ? 2 * nq : nq, "attn_q", l);
        if (!put) {
            k = lode_b_linear(b, h, nk, "attn_k", l);
            v = keys_are_values(b, l, a) ? k : lode_b_linear(b, h, nv, "attn_v", l);
        }
    }
    if (a->gated) { /* head by head beside its gate, which is cut from there when it is wanted */
        both = q;
        q = lode_g_cut(b->g, q, heads, 0, dim);
    }
    q = finish_heads(b, q, "attn_q_norm", heads, l, a);
    if (a->temperature)
        q = lode_g_temperature(b->g, q, hp->temperature, hp->temperature_floor);
    if (!put) {
        if (a->v_norm)
            v = plain_norm(b, v, dim_v);
        k = finish_heads(b, k, "attn_k_norm", kv_heads, l, a);
        /* with the whole sequence in one step, layers have the room one after the other */
        put = lode_g_kv_put(b->g, k, v, hp->both_ways ? 0 : l);
        if (a->put)
            *a->put = put;
    }
    const uint32_t window = a->chunk ? a->chunk : a->window;
    const uint32_t source = put ? put->p.kv_put.layer : l;
    if (hp->both_ways && (window || a->share || (l && b->kv[0].head_dim != dim) ||
                          (l && b->kv[0].n_heads != kv_heads)))
        return lode_graph_fail(b->g, LODE_ERR_UNSUPPORTED, b->source->path,
                               "layer %u: attention both ways with windows or with heads that differ "
                               "between layers is not supported",
                               l);
    if (a->share && (b->kv[source].n_heads != kv_heads || b->kv[source].head_dim != dim ||
                     b->kv[source].head_dim_v != dim_v || b->kv[source].window != window))
        return lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                               "layer %u shares keys and values of layer %u, whose heads differ", l,
                               source);
    b->kv[l] = (struct lode_kv_layer){.n_heads = a->share || source != l ? 0 : kv_heads,
                                      .head_dim = dim,
                                      .head_dim_v = dim_v,
                                      .window = window,
                                      .type_k = LODE_F16,
                                      .type_v = LODE_F16};
    const union lode_op_params p = {.attention = {.layer = source,
                                                  .n_heads = heads,
                                                  .n_kv_heads = kv_heads,
                                                  .head_dim = dim,
                                                  .head_dim_v = dim_v,
                                                  .window = a->window,
                                                  .chunk = a->chunk,
                                                  .both_ways = hp->both_ways,
                                                  .scale = hp->attn_scale,
                                                  .cap = hp->attn_cap}};
    const struct lode_operand *sinks =
        lode_b_vector_opt(b, heads, "blk.%u.attn_sinks.weight", l);
    struct lode_node *o = lode_b_pick_last(b, lode_g_attention(b->g, q, put, sinks, &p), l);
    *x = lode_b_pick_last(b, *x, l);
    if (a->gated)
        o = lode_g_glu(b->g, lode_g_cut(b->g, lode_b_pick_last(b, both, l), heads, dim, dim), o, LODE_GLU_SIGMOID);
    return lode_b_linear(b, o, hp->d_model, "attn_output", l);
}

struct lode_node *lode_b_gated(struct lode_build *b, struct lode_node *h, uint32_t l,
                               enum lode_glu act, uint32_t d_ff, const char *const names[3]) {
    struct lode_node *gate = lode_b_linear(b, h, d_ff, names[0], l);
    struct lode_node *up = lode_b_linear(b, h, d_ff, names[1], l);
    return lode_b_linear(b, lode_g_glu(b->g, gate, up, act), b->hp.d_model, names[2], l);
}

struct lode_node *lode_b_ffn(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_glu act, bool fused) {
    static const char *const names[3] = {"ffn_gate", "ffn_up", "ffn_down"};
    const uint32_t n = b->hp.d_ff;
    return fused ? lode_b_fused(b, h, l, act, n) : lode_b_gated(b, h, l, act, n, names);
}

struct lode_node *lode_b_fused(struct lode_build *b, struct lode_node *h, uint32_t l,
                               enum lode_glu act, uint32_t n) {
    struct lode_node *both = lode_b_linear(b, h, 2 * n, "ffn_up", l);
    struct lode_node *gate = lode_g_slice(b->g, both, 0, n), *up = lode_g_slice(b->g, both, n, n);
    return lode_b_linear(b, lode_g_glu(b->g, gate, up, act), b->hp.d_model, "ffn_down", l);
}

struct lode_node *lode_b_mlp(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_act act) {
    h = lode_b_linear(b, h, b->hp.d_ff, "ffn_up", l);
    return lode_b_linear(b, lode_g_act(b->g, h, act), b->hp.d_model, "ffn_down", l);
}

/* The gate of the expert that all rows go to; NULL: there is none.  It reads what the router does, and is one product with that where it
 * follows at once: asked for with the router's logits, it is given if their weights are of one type, as otherwise neither is better off. */
static struct lode_node *shared_gate(struct lode_build *b, struct lode_node *h, uint32_t l, const struct lode_node *logits) {
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp_shexp.weight", l);
    if (!h || !b->hp.d_ff_shared || !lode_b_has(b, name))
        return NULL;
    const struct lode_operand *w = lode_b_matrix(b, 1, h->width, "%s", name);
    if (logits && (!w || w->type != logits->w[0]->type))
        return NULL;
    return lode_b_linear(b, h, 1, "ffn_gate_inp_shexp", l);
}

struct lode_node *lode_b_moe(struct lode_build *b, struct lode_node *h, uint32_t l,
                             enum lode_glu act) {
    static const char *const shared[3] = {"ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp"};
    const struct lode_hparams *hp = &b->hp;
    const uint32_t n = hp->n_experts, ff = hp->d_ff_expert, d = hp->d_model;
    const union lode_op_params p = {.route = {.n_used = hp->n_experts_used,
                                              .gating = hp->gating,
                                              .normalise = hp->expert_normalise,
                                              .scale = hp->expert_scale,
                                              .n_groups = hp->n_expert_groups,
                                              .n_groups_used = hp->n_expert_groups_used,
                                              .layer = l}};
    struct lode_node *logits = lode_b_linear(b, h, n, "ffn_gate_inp", l);
    struct lode_node *gate = logits ? shared_gate(b, h, l, logits) : NULL;
    struct lode_node *route =
        lode_g_route(b->g, logits, lode_b_vector_opt(b, n, "blk.%u.exp_probs_b.bias", l), &p);
    const struct lode_operand *w[LODE_MAX_WEIGHTS] = {
        lode_b_experts(b, ff, d, n, "blk.%u.ffn_gate_exps.weight", l),
        lode_b_experts(b, ff, d, n, "blk.%u.ffn_up_exps.weight", l),
        lode_b_experts(b, d, ff, n, "blk.%u.ffn_down_exps.weight", l),
        lode_b_vectors_opt(b, n, ff, "blk.%u.ffn_gate_exps.bias", l),
        lode_b_vectors_opt(b, n, ff, "blk.%u.ffn_up_exps.bias", l),
        lode_b_vectors_opt(b, n, d, "blk.%u.ffn_down_exps.bias", l)};
    struct lode_node *y = lode_g_experts(b->g, h, route, w, act, hp->expert_weigh_input);
    if (!hp->d_ff_shared)
        return y;
    struct lode_node *s = lode_b_gated(b, h, l, act, hp->d_ff_shared, shared);
    gate = gate ? gate : shared_gate(b, h, l, NULL);
    if (gate)
        s = lode_g_row_gate(b->g, s, gate);
    return lode_g_add(b->g, y, s, 1.0f);
}
