#include "graph/graph.h"

#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct lode_op_info lode_ops[LODE_OP_COUNT] = {
#define ROW(name, inputs, weights, gradient) [LODE_OP_##name] = {#name, gradient, inputs, weights},
    LODE_OP_LIST(ROW)
#undef ROW
};

void lode_graph_free(struct lode_graph *g) {
    lode_arena_free(&g->arena);
    lode_free(g->nodes);
    *g = (struct lode_graph){0};
}

int lode_graph_error(const struct lode_graph *g, struct lode_error *err) {
    if (g->error.code && err)
        *err = g->error;
    return g->error.code;
}

struct lode_node *lode_graph_fail(struct lode_graph *g, int code, const char *where,
                                  const char *fmt, ...) {
    if (g->error.code)
        return NULL;
    char text[sizeof g->error.text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    lode_fail(&g->error, code, where, "%s", text);
    return NULL;
}

/* A new node after its inputs; NULL when an error stands or an input is missing. */
static struct lode_node *append(struct lode_graph *g, enum lode_op op, struct lode_node *a,
                                struct lode_node *b, uint32_t width) {
    const int needed = lode_ops[op].n_inputs;
    if (g->error.code)
        return NULL;
    if ((needed > 0 && !a) || (needed > 1 && !b))
        return lode_graph_fail(g, LODE_ERR_INTERNAL, lode_ops[op].name, "an input is missing");
    if (g->n_nodes == g->cap) {
        const uint32_t cap = g->cap ? 2 * g->cap : 256;
        struct lode_node **nodes = lode_realloc(g->nodes, cap, sizeof *nodes);
        if (!nodes)
            return lode_graph_fail(g, LODE_ERR_NOMEM, "", "out of memory (graph)");
        g->nodes = nodes;
        g->cap = cap;
    }
    struct lode_node *n = LODE_ARENA_NEW(&g->arena, struct lode_node);
    if (!n)
        return lode_graph_fail(g, LODE_ERR_NOMEM, "", "out of memory (graph)");
    *n = (struct lode_node){.op = op, .id = g->n_nodes, .in = {a, b}, .width = width,
                            .type = LODE_F32, .rows = a ? a->rows : LODE_ROWS_ALL};
    g->nodes[g->n_nodes++] = n;
    return n;
}

static struct lode_node *bad_shape(struct lode_graph *g, enum lode_op op, uint32_t have,
                                   uint32_t want) {
    return lode_graph_fail(g, LODE_ERR_FORMAT, lode_ops[op].name, "width %u where %u is needed",
                           have, want);
}

struct lode_node *lode_g_input(struct lode_graph *g, uint32_t width, enum lode_rows rows) {
    struct lode_node *n = append(g, LODE_OP_INPUT, NULL, NULL, width);
    if (n)
        n->rows = rows;
    return n;
}

struct lode_node *lode_g_embed(struct lode_graph *g, const struct lode_operand *w, float scale) {
    struct lode_node *n = w ? append(g, LODE_OP_EMBED, NULL, NULL, w->cols) : NULL;
    if (n) {
        n->w[0] = w;
        n->p.embed.scale = scale;
    }
    return n;
}

struct lode_node *lode_g_embed_by(struct lode_graph *g, const struct lode_operand *w,
                                  enum lode_embed_by by) {
    struct lode_node *n = lode_g_embed(g, w, 1.0f);
    if (n)
        n->p.embed.by = by;
    return n;
}

static struct lode_node *norm(struct lode_graph *g, enum lode_op op, struct lode_node *x,
                              const struct lode_operand *w, const struct lode_operand *bias,
                              float eps, uint32_t group) {
    struct lode_node *n = append(g, op, x, NULL, x ? x->width : 0);
    if (!n)
        return NULL;
    n->p.rms_norm.eps = eps;
    n->p.rms_norm.group = group ? group : x->width;
    n->w[0] = w;
    n->w[1] = bias;
    if (x->width % n->p.rms_norm.group)
        return bad_shape(g, op, x->width, n->p.rms_norm.group);
    for (int i = 0; i < 2; i++)
        if (n->w[i] && n->w[i]->cols != n->p.rms_norm.group)
            return bad_shape(g, op, n->w[i]->cols, n->p.rms_norm.group);
    return n;
}

struct lode_node *lode_g_rms_norm(struct lode_graph *g, struct lode_node *x,
                                  const struct lode_operand *w, float eps, uint32_t group) {
    return norm(g, LODE_OP_RMS_NORM, x, w, NULL, eps, group);
}

struct lode_node *lode_g_layer_norm(struct lode_graph *g, struct lode_node *x,
                                    const struct lode_operand *w, const struct lode_operand *bias,
                                    float eps, uint32_t group) {
    return norm(g, LODE_OP_LAYER_NORM, x, w, bias, eps, group);
}

struct lode_node *lode_g_quant(struct lode_graph *g, struct lode_node *x, enum lode_dtype type) {
    struct lode_node *n = append(g, LODE_OP_QUANT, x, NULL, x ? x->width : 0);
    if (!n)
        return NULL;
    n->type = type;
    if (x->width % lode_dtypes[type].block)
        return bad_shape(g, LODE_OP_QUANT, x->width, lode_dtypes[type].block);
    return n;
}

/* x in the order of w's columns.  Queries, keys and values have the same order as a rule: what was
 * made just before serves again. */
static struct lode_node *gather(struct lode_graph *g, struct lode_node *x,
                                const struct lode_operand *w) {
    if (!x || w->cols != x->width)
        return x; /* the caller says so */
    for (uint32_t i = g->n_nodes; i > 0 && i + 6 > g->n_nodes; i--) {
        struct lode_node *n = g->nodes[i - 1];
        if (n->op == LODE_OP_GATHER && n->in[0] == x &&
            memcmp(n->p.gather.of->order, w->order, w->cols * sizeof *w->order) == 0)
            return n;
    }
    struct lode_node *n = append(g, LODE_OP_GATHER, x, NULL, x->width);
    if (n)
        n->p.gather.of = w;
    return n;
}

struct lode_node *lode_g_linear(struct lode_graph *g, struct lode_node *x,
                                const struct lode_operand *w, const struct lode_operand *bias) {
    if (w && w->order)
        x = gather(g, x, w);
    struct lode_node *n = w ? append(g, LODE_OP_LINEAR, x, NULL, w->rows) : NULL;
    if (!n)
        return NULL;
    n->w[0] = w;
    n->w[1] = bias;
    if (w->cols != x->width)
        return bad_shape(g, LODE_OP_LINEAR, x->width, w->cols);
    if (bias && bias->cols != w->rows)
        return bad_shape(g, LODE_OP_LINEAR, bias->cols, w->rows);
    return n;
}

struct lode_node *lode_g_rope_table(struct lode_graph *g, uint32_t spec, uint32_t n_pairs) {
    struct lode_node *n = append(g, LODE_OP_ROPE_TABLE, NULL, NULL, 2 * n_pairs);
    if (n) {
        n->p.rope_table.spec = spec;
        n->p.rope_table.n_pairs = n_pairs;
    }
    return n;
}

static struct lode_node *rope(struct lode_graph *g, enum lode_op op, struct lode_node *x,
                              struct lode_node *table, uint32_t n_heads, uint32_t n_pairs,
                              bool pairs) {
    struct lode_node *n = append(g, op, x, table, x ? x->width : 0);
    if (!n)
        return NULL;
    n->p.rope.n_heads = n_heads;
    n->p.rope.head_dim = x->width / n_heads;
    n->p.rope.n_pairs = n_pairs;
    n->p.rope.pairs = pairs;
    if (x->width % n_heads || n_pairs > n->p.rope.head_dim / 2)
        return bad_shape(g, op, n->p.rope.head_dim, 2 * n_pairs);
    return n;
}

struct lode_node *lode_g_rope(struct lode_graph *g, struct lode_node *x, struct lode_node *table,
                              uint32_t n_heads, bool pairs) {
    return table ? rope(g, LODE_OP_ROPE, x, table, n_heads, table->width / 2, pairs) : NULL;
}

struct lode_node *lode_g_unpair(struct lode_graph *g, struct lode_node *x, uint32_t n_heads,
                                uint32_t n_pairs) {
    return rope(g, LODE_OP_UNPAIR, x, NULL, n_heads, n_pairs, true);
}

struct lode_node *lode_g_kv_put(struct lode_graph *g, struct lode_node *k, struct lode_node *v,
                                uint32_t layer) {
    struct lode_node *n = append(g, LODE_OP_KV_PUT, k, v, 0);
    if (n)
        n->p.kv_put.layer = layer;
    return n;
}

struct lode_node *lode_g_attention(struct lode_graph *g, struct lode_node *q, struct lode_node *put,
                                   const struct lode_operand *sinks,
                                   const union lode_op_params *p) {
    const uint32_t width = p->attention.n_heads * p->attention.head_dim_v;
    struct lode_node *n = append(g, LODE_OP_ATTENTION, q, put, width);
    if (!n)
        return NULL;
    n->p = *p;
    n->p.attention.all_kv_heads = p->attention.n_kv_heads;
    n->w[0] = sinks;
    if (sinks && sinks->cols != p->attention.n_heads)
        return bad_shape(g, LODE_OP_ATTENTION, sinks->cols, p->attention.n_heads);
    if (q->width != p->attention.n_heads * p->attention.head_dim)
        return bad_shape(g, LODE_OP_ATTENTION, q->width,
                         p->attention.n_heads * p->attention.head_dim);
    return n;
}

struct lode_node *lode_g_add(struct lode_graph *g, struct lode_node *a, struct lode_node *b,
                             float scale) {
    struct lode_node *n = append(g, LODE_OP_ADD, a, b, a ? a->width : 0);
    if (!n)
        return NULL;
    n->p.add.scale = scale;
    return a->width == b->width ? n : bad_shape(g, LODE_OP_ADD, b->width, a->width);
}

struct lode_node *lode_g_glu(struct lode_graph *g, struct lode_node *gate, struct lode_node *up,
                             enum lode_glu act) {
    struct lode_node *n = append(g, LODE_OP_GLU, gate, up, gate ? gate->width : 0);
    if (!n)
        return NULL;
    n->p.glu.act = act;
    return gate->width == up->width ? n : bad_shape(g, LODE_OP_GLU, up->width, gate->width);
}

struct lode_node *lode_g_row_gate(struct lode_graph *g, struct lode_node *x,
                                  struct lode_node *gate) {
    struct lode_node *n = append(g, LODE_OP_ROW_GATE, x, gate, x ? x->width : 0);
    return !n || gate->width == 1 ? n : bad_shape(g, LODE_OP_ROW_GATE, gate->width, 1);
}

struct lode_node *lode_g_act(struct lode_graph *g, struct lode_node *x, enum lode_act act) {
    struct lode_node *n = append(g, LODE_OP_ACT, x, NULL, x ? x->width : 0);
    if (n)
        n->p.act.act = act;
    return n;
}

struct lode_node *lode_g_route(struct lode_graph *g, struct lode_node *logits,
                               const struct lode_operand *bias, const union lode_op_params *p) {
    struct lode_node *n = append(g, LODE_OP_ROUTE, logits, NULL, 2 * p->route.n_used);
    if (!n)
        return NULL;
    n->p = *p;
    n->w[0] = bias;
    if (p->route.n_used > logits->width)
        return bad_shape(g, LODE_OP_ROUTE, logits->width, p->route.n_used);
    if (bias && bias->cols != logits->width)
        return bad_shape(g, LODE_OP_ROUTE, bias->cols, logits->width);
    return n;
}

static bool same_act(const struct lode_operand *a, const struct lode_operand *b) {
    return lode_dtypes[a->type].act == lode_dtypes[b->type].act;
}

struct lode_node *lode_g_experts(struct lode_graph *g, struct lode_node *x, struct lode_node *route,
                                 const struct lode_operand *const w[LODE_MAX_WEIGHTS],
                                 enum lode_glu act, bool weigh_input) {
    struct lode_node *n =
        w[0] && w[1] && w[2] ? append(g, LODE_OP_EXPERTS, x, route, w[2]->rows) : NULL;
    if (!n)
        return NULL;
    for (int i = 0; i < LODE_MAX_WEIGHTS; i++)
        n->w[i] = w[i];
    n->p.experts.act = act;
    n->p.experts.weigh_input = weigh_input;
    if (w[0]->cols != x->width || w[1]->cols != x->width)
        return bad_shape(g, LODE_OP_EXPERTS, x->width, w[0]->cols);
    if (w[1]->rows != w[0]->rows || w[2]->cols != w[0]->rows)
        return bad_shape(g, LODE_OP_EXPERTS, w[2]->cols, w[0]->rows);
    if (!same_act(w[0], w[1]))
        return lode_graph_fail(g, LODE_ERR_UNSUPPORTED, "ffn_up_exps",
                               "experts whose gate is %s and up is %s need different activations",
                               lode_dtypes[w[0]->type].name, lode_dtypes[w[1]->type].name);
    return n;
}

struct lode_node *lode_g_experts_in(struct lode_graph *g, struct lode_node *x, struct lode_node *route,
                                    const struct lode_operand *gate, const struct lode_operand *up,
                                    enum lode_glu act, bool weigh_input) {
    struct lode_node *n = append(g, LODE_OP_EXPERTS_IN, x, route, route ? route->width / 2 * gate->rows : 0);
    if (!n)
        return NULL;
    n->w[0] = gate;
    n->w[1] = up;
    n->p.experts.act = act;
    n->p.experts.weigh_input = weigh_input;
    if (gate->cols != x->width || up->cols != x->width || up->rows != gate->rows || !same_act(gate, up))
        return bad_shape(g, LODE_OP_EXPERTS_IN, x->width, gate->cols);
    return n;
}

struct lode_node *lode_g_experts_out(struct lode_graph *g, struct lode_node *h, struct lode_node *route,
                                     const struct lode_operand *down, bool weigh_input) {
    struct lode_node *n = append(g, LODE_OP_EXPERTS_OUT, h, route, down->rows);
    if (!n)
        return NULL;
    n->w[0] = down;
    n->p.experts.weigh_input = weigh_input;
    return h->width == route->width / 2 * down->cols ? n : bad_shape(g, LODE_OP_EXPERTS_OUT, h->width, down->cols);
}

struct lode_node *lode_g_all_gather(struct lode_graph *g, struct lode_node *x, uint32_t n_ranks,
                                    uint32_t n_heads) {
    struct lode_node *n = append(g, LODE_OP_ALL_GATHER, x, NULL, x ? x->width * n_ranks : 0);
    if (!n)
        return NULL;
    n->p.all_gather.n_ranks = n_ranks;
    n->p.all_gather.n_heads = n_heads;
    return x->width % n_heads ? bad_shape(g, LODE_OP_ALL_GATHER, x->width, n_heads) : n;
}

struct lode_node *lode_g_copy(struct lode_graph *g, const struct lode_node *n, struct lode_node *a,
                              struct lode_node *b) {
    struct lode_node *copy = append(g, n->op, a, b, n->width);
    if (!copy)
        return NULL;
    copy->p = n->p;
    copy->type = n->type;
    copy->rows = n->rows;
    memcpy(copy->w, n->w, sizeof copy->w);
    return copy;
}

struct lode_node *lode_g_temperature(struct lode_graph *g, struct lode_node *x, float coef,
                                     uint32_t floor) {
    struct lode_node *n = append(g, LODE_OP_TEMPERATURE, x, NULL, x ? x->width : 0);
    if (n) {
        n->p.temperature.coef = coef;
        n->p.temperature.floor = floor;
    }
    return n;
}

struct lode_node *lode_g_scale(struct lode_graph *g, struct lode_node *x, float scale) {
    struct lode_node *n = append(g, LODE_OP_SCALE, x, NULL, x ? x->width : 0);
    if (n)
        n->p.scale.scale = scale;
    return n;
}

struct lode_node *lode_g_softcap(struct lode_graph *g, struct lode_node *x, float cap) {
    struct lode_node *n = append(g, LODE_OP_SOFTCAP, x, NULL, x ? x->width : 0);
    if (n)
        n->p.softcap.cap = cap;
    return n;
}

struct lode_node *lode_g_pick(struct lode_graph *g, struct lode_node *x) {
    struct lode_node *n = append(g, LODE_OP_PICK, x, NULL, x ? x->width : 0);
    if (n)
        n->rows = LODE_ROWS_OUT;
    return n;
}

struct lode_node *lode_g_slice(struct lode_graph *g, struct lode_node *x, uint32_t first,
                               uint32_t width) {
    struct lode_node *n = append(g, LODE_OP_SLICE, x, NULL, width);
    if (!n)
        return NULL;
    n->p.slice.first = first;
    return (uint64_t)first + width <= x->width ? n : bad_shape(g, LODE_OP_SLICE, x->width, first + width);
}

struct lode_node *lode_g_cut(struct lode_graph *g, struct lode_node *x, uint32_t n_heads,
                             uint32_t first, uint32_t width) {
    struct lode_node *n = append(g, LODE_OP_CUT, x, NULL, n_heads * width);
    if (!n)
        return NULL;
    n->p.cut.n_heads = n_heads;
    n->p.cut.first = first;
    if (x->width % n_heads || (uint64_t)first + width > x->width / n_heads)
        return bad_shape(g, LODE_OP_CUT, x->width / n_heads, first + width);
    return n;
}

struct lode_node *lode_g_join(struct lode_graph *g, struct lode_node *a, struct lode_node *b,
                              uint32_t n_heads) {
    struct lode_node *n = append(g, LODE_OP_JOIN, a, b, a && b ? a->width + b->width : 0);
    if (!n)
        return NULL;
    n->p.join.n_heads = n_heads;
    if (a->width % n_heads || b->width % n_heads)
        return bad_shape(g, LODE_OP_JOIN, a->width, n_heads);
    return n;
}

struct lode_node *lode_g_heads(struct lode_graph *g, struct lode_node *x,
                               const struct lode_operand *w, uint32_t n_heads) {
    struct lode_node *n = w ? append(g, LODE_OP_HEADS, x, NULL, w->rows) : NULL;
    if (!n)
        return NULL;
    n->w[0] = w;
    n->p.heads.n_heads = n_heads;
    if (x->width != n_heads * w->cols)
        return bad_shape(g, LODE_OP_HEADS, x->width, n_heads * w->cols);
    return w->rows % n_heads ? bad_shape(g, LODE_OP_HEADS, w->rows, n_heads) : n;
}

struct lode_node *lode_g_conv(struct lode_graph *g, struct lode_node *x,
                              const struct lode_operand *w, uint32_t layer, bool silu) {
    struct lode_node *n = w ? append(g, LODE_OP_CONV, x, NULL, w->rows) : NULL;
    if (!n)
        return NULL;
    n->w[0] = w;
    n->p.conv.layer = layer;
    n->p.conv.taps = w->cols;
    n->p.conv.silu = silu;
    return w->rows == x->width ? n : bad_shape(g, LODE_OP_CONV, x->width, w->rows);
}

struct lode_node *lode_g_l2_norm(struct lode_graph *g, struct lode_node *x,
                                 const union lode_op_params *p) {
    struct lode_node *n = append(g, LODE_OP_L2_NORM, x, NULL, x ? x->width : 0);
    if (!n)
        return NULL;
    n->p = *p;
    if (p->l2_norm.n > x->width || p->l2_norm.n % p->l2_norm.group)
        return bad_shape(g, LODE_OP_L2_NORM, x->width, p->l2_norm.n);
    return n;
}

struct lode_node *lode_g_delta_gates(struct lode_graph *g, struct lode_node *x,
                                     const struct lode_operand *a, const struct lode_operand *dt) {
    struct lode_node *n = a && dt ? append(g, LODE_OP_DELTA_GATES, x, NULL, x ? x->width : 0) : NULL;
    if (!n)
        return NULL;
    n->w[0] = a;
    n->w[1] = dt;
    if (x->width != 2 * a->cols || dt->cols != a->cols)
        return bad_shape(g, LODE_OP_DELTA_GATES, x->width, 2 * a->cols);
    return n;
}

struct lode_node *lode_g_delta(struct lode_graph *g, struct lode_node *x, struct lode_node *gates,
                               const union lode_op_params *p) {
    const uint32_t keys = p->delta.n_k_heads * p->delta.dim_k;
    const uint32_t values = p->delta.n_heads * p->delta.dim_v;
    struct lode_node *n = append(g, LODE_OP_DELTA, x, gates, values);
    if (!n)
        return NULL;
    n->p = *p;
    if (x->width != 2 * keys + values)
        return bad_shape(g, LODE_OP_DELTA, x->width, 2 * keys + values);
    return gates->width == 2 * p->delta.n_heads
               ? n
               : bad_shape(g, LODE_OP_DELTA, gates->width, 2 * p->delta.n_heads);
}

struct lode_node *lode_g_trace(struct lode_graph *g, struct lode_node *x, uint32_t layer) {
    struct lode_node *n = append(g, LODE_OP_TRACE, x, NULL, x ? x->width : 0);
    if (n)
        n->p.trace.layer = layer;
    return n;
}

static uint64_t operand_bytes(const struct lode_operand *w) {
    size_t row = 0;
    if (!w || !lode_dtype_row_size(w->type, w->cols, &row))
        return 0;
    return (uint64_t)row * w->rows * w->count;
}

struct lode_cost lode_op_cost(enum lode_op op, const union lode_op_params *p,
                              const struct lode_operand *const w[2], uint32_t width,
                              uint64_t bytes_in, uint64_t bytes_out) {
    struct lode_cost c = {operand_bytes(w[0]) + operand_bytes(w[1]), bytes_in + bytes_out, width};
    switch (op) {
    case LODE_OP_LINEAR:
    case LODE_OP_HEADS:
        c.row_flops = 2ull * w[0]->rows * w[0]->cols;
        break;
    case LODE_OP_EMBED: /* one row of the table a token */
        c.row_bytes += c.weight_bytes / w[0]->rows;
        c.weight_bytes = 0;
        break;
    case LODE_OP_EXPERTS_IN:
    case LODE_OP_EXPERTS_OUT:
    case LODE_OP_EXPERTS: /* of one expert's matrix; a row uses n_used of w[0]->count */
        c.row_flops = 2ull * w[0]->rows * w[0]->cols;
        break;
    case LODE_OP_RMS_NORM:
    case LODE_OP_LAYER_NORM: /* square, add, scale, weigh */
        c.row_flops = 4ull * width;
        break;
    case LODE_OP_ATTENTION: /* per position seen */
        c.row_flops =
            2ull * p->attention.n_heads * (p->attention.head_dim + p->attention.head_dim_v);
        break;
    case LODE_OP_CONV:
        c.row_flops = 2ull * width * p->conv.taps;
        break;
    case LODE_OP_DELTA: { /* the state is read and written, by decoding for every row */
        const uint64_t state = (uint64_t)width * p->delta.dim_k;
        c.row_bytes += 2 * sizeof(float) * state;
        c.row_flops = 7 * state;
        break;
    }
    default:
        break;
    }
    return c;
}
