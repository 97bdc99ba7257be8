/* delta.c - GatedDeltaNet: linear attention whose state is a matrix a head, corrected towards each
 * new value by the delta rule.
 *
 * Queries, keys and values pass a short convolution and silu; queries and keys are normalised to
 * length 1, queries scaled as in attention.  Per head and token, alpha and b give a decay and a
 * rate (graph op DELTA_GATES), the state decays, moves its answer at the key towards the value, and
 * is asked at the query.  The answers are normed per head and multiplied by silu of a gate.
 *
 * Files have queries, keys and values of the convolution in one tensor, attn_qkv, or older ones, as
 * published checkpoints of Qwen3-Next, ssm_in with them and the gate head by head.
 *
 * Source: Yang et al., arXiv:2412.06464; transformers' Qwen3Next (modeling_qwen3_next.py). */
#include "model/build.h"

#include <math.h>
#include <stdio.h>

static const float l2_eps = 1e-6f; /* fixed in the published models' code */

static uint32_t setting(struct lode_build *b, const char *key, uint32_t most) {
    const uint32_t v = lode_b_count(b, key, 0, 0);
    if (v == 0 || v > most)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path, "%s.%s is %s%u; 1 to %u expected",
                        b->arch->name, key, v ? "" : "missing or ", v, most);
    return v;
}

void lode_b_delta_setup(struct lode_build *b) {
    struct lode_hparams *hp = &b->hp;
    hp->delta.taps = setting(b, "ssm.conv_kernel", 8);
    hp->delta.dim_k = setting(b, "ssm.state_size", 1024);
    hp->delta.n_k_heads = setting(b, "ssm.group_count", 4096);
    hp->delta.n_heads = setting(b, "ssm.time_step_rank", 4096);
    hp->delta.period = lode_b_count(b, "full_attention_interval", 0, 4);
    const uint32_t inner = setting(b, "ssm.inner_size", 1 << 20);
    if (b->g->error.code)
        return;
    hp->delta.dim_v = inner / hp->delta.n_heads;
    if (inner % hp->delta.n_heads || hp->delta.n_heads % hp->delta.n_k_heads ||
        hp->delta.dim_v % 16 || hp->delta.dim_v > 1024)
        lode_graph_fail(b->g, LODE_ERR_FORMAT, b->source->path,
                        "linear attention with %u numbers in %u heads of values over %u of keys: "
                        "they must divide each other, into values of a multiple of 16 up to 1024",
                        inner, hp->delta.n_heads, hp->delta.n_k_heads);
}

bool lode_b_recurrent(const struct lode_build *b, uint32_t l) {
    const uint32_t period = b->hp.delta.period;
    const bool by_period = period == 0 || (l + 1) % period != 0;
    return lode_b_count(b, "attention.recurrent_layers", l, by_period);
}

static struct lode_node *cut(struct lode_build *b, struct lode_node *x, uint32_t first,
                             uint32_t width) {
    return lode_g_cut(b->g, x, b->hp.delta.n_k_heads, first, width);
}

/* Queries, keys and values side by side, and the gate. */
static struct lode_node *project(struct lode_build *b, struct lode_node *h, uint32_t l,
                                 struct lode_node **gate) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t keys = hp->delta.n_k_heads * hp->delta.dim_k;
    const uint32_t values = hp->delta.n_heads * hp->delta.dim_v;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ssm_in.weight", l);
    if (!lode_b_has(b, name)) {
        struct lode_node *qkv = lode_b_linear(b, h, 2 * keys + values, "attn_qkv", l);
        *gate = lode_b_linear(b, h, values, "attn_gate", l);
        return qkv;
    }
    const uint32_t k = hp->delta.dim_k, v = values / hp->delta.n_k_heads;
    struct lode_node *all = lode_b_linear(b, h, 2 * (keys + values), "ssm_in", l);
    struct lode_node *qk = lode_g_join(b->g, cut(b, all, 0, k), cut(b, all, k, k), 1);
    *gate = cut(b, all, 2 * k + v, v);
    return lode_g_join(b->g, qk, cut(b, all, 2 * k, v), 1);
}

/* Decay and rate of every head. */
static struct lode_node *gates(struct lode_build *b, struct lode_node *h, uint32_t l) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t n = hp->delta.n_heads, each = n / hp->delta.n_k_heads;
    struct lode_node *alpha, *rate;
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ssm_ba.weight", l);
    if (lode_b_has(b, name)) { /* key head by key head */
        struct lode_node *both = lode_b_linear(b, h, 2 * n, "ssm_ba", l);
        rate = cut(b, both, 0, each);
        alpha = cut(b, both, each, each);
    } else {
        rate = lode_b_linear(b, h, n, "ssm_beta", l);
        alpha = lode_b_linear(b, h, n, "ssm_alpha", l);
    }
    return lode_g_delta_gates(b->g, lode_g_join(b->g, alpha, rate, n),
                              lode_b_vector(b, n, "blk.%u.ssm_a", l),
                              lode_b_vector(b, n, "blk.%u.ssm_dt.bias", l));
}

struct lode_node *lode_b_delta(struct lode_build *b, struct lode_node *h, struct lode_node **x,
                               uint32_t l, bool tiled) {
    const struct lode_hparams *hp = &b->hp;
    const uint32_t k = hp->delta.dim_k, v = hp->delta.dim_v, keys = hp->delta.n_k_heads * k;
    struct lode_node *gate, *qkv = project(b, h, l, &gate), *g = gates(b, h, l);
    if (!qkv)
        return NULL;
    b->state[l] = (struct lode_state_layer){.inputs = hp->delta.taps - 1,
                                            .width = qkv->width,
                                            .n_heads = hp->delta.n_heads,
                                            .dim_k = k,
                                            .dim_v = v};
    qkv = lode_g_conv(b->g, qkv,
                      lode_b_vectors(b, qkv->width, hp->delta.taps, "blk.%u.ssm_conv1d.weight", l),
                      l, true);
    const union lode_op_params norm = {.l2_norm = {.eps = l2_eps,
                                                   .group = k,
                                                   .n = 2 * keys,
                                                   .n_scaled = keys,
                                                   .scale = (float)(1 / sqrt(k))}};
    const union lode_op_params p = {.delta = {.layer = l,
                                              .n_k_heads = hp->delta.n_k_heads,
                                              .n_heads = hp->delta.n_heads,
                                              .dim_k = k,
                                              .dim_v = v,
                                              .tiled = tiled}};
    struct lode_node *o = lode_g_delta(b->g, lode_g_l2_norm(b->g, qkv, &norm), g, &p);
    o = lode_b_pick_last(b, o, l);
    gate = lode_b_pick_last(b, gate, l);
    *x = lode_b_pick_last(b, *x, l);
    o = lode_g_rms_norm(b->g, o, lode_b_vector(b, v, "blk.%u.ssm_norm.weight", l), hp->norm_eps, v);
    return lode_b_linear(b, lode_g_glu(b->g, gate, o, LODE_GLU_SILU), hp->d_model, "ssm_out", l);
}
