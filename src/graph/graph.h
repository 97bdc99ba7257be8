/* graph.h - what a model computes, as a list of ops in the order in which they can run.
 *
 * An architecture builds its graph once, when the model is loaded; the runtime compiles it to a
 * plan.  Nodes and values are the same thing here: every op makes one value.  The number of rows
 * is one of two symbols: one row a token of the step, or one row a token whose logits are wanted.
 *
 * Building never fails half-way: the first error (no memory, shapes that do not fit) is kept in
 * the graph, the calls after it return NULL and do nothing, and lode_graph_error gives it.  That
 * keeps architecture files free of error handling.  A NULL input means an earlier error.
 *
 *     x = lode_g_rms_norm(g, x, norm_w, eps, 0);
 *     x = lode_g_add(g, residual, lode_g_linear(g, x, w, NULL), 1.0f);
 */
#ifndef LODE_GRAPH_GRAPH_H
#define LODE_GRAPH_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "graph/op.h"
#include "tensor/dtype.h"

/* What a graph has to know of a weight: a matrix of `rows` outputs by `cols` inputs (a vector has
 * one row).  `id` is the owner's name for it.  Of a model whose products are shared out by rows
 * (model/shard.h) a graph has the first rank's part, and `next` leads to those of the others. */
struct lode_operand {
    uint32_t id;
    enum lode_dtype type;
    uint32_t rows, cols;
    uint32_t count; /* 1; of experts: how many such matrices, with ids id .. id + count - 1 */
    const uint32_t *order; /* (cols) borrowed: column j is for number order[j] of the input; NULL: j.
                              For lode_g_linear only */
    const struct lode_operand *next; /* borrowed: the next rank's part; NULL: all ranks have this one */
};

enum { LODE_MAX_WEIGHTS = 6 }; /* of one op */

enum lode_rows {
    LODE_ROWS_ALL, /* every token of the step */
    LODE_ROWS_OUT, /* every token whose logits are wanted */
};

struct lode_node {
    enum lode_op op;
    uint32_t id; /* position in the graph's list */
    union lode_op_params p;
    struct lode_node *in[2];
    const struct lode_operand *w[LODE_MAX_WEIGHTS]; /* borrowed from the model */
    uint32_t width;                  /* numbers in a row */
    enum lode_dtype type;
    enum lode_rows rows;
};

struct lode_graph {
    struct lode_arena arena;
    struct lode_node **nodes; /* (n_nodes) */
    uint32_t n_nodes, cap;
    struct lode_node *result;
    struct lode_error error;
};

void lode_graph_free(struct lode_graph *g);
/* 0, or the first error of the building. */
int lode_graph_error(const struct lode_graph *g, struct lode_error *err);
/* Records an error found by the builder itself; returns NULL. */
__attribute__((format(printf, 4, 5))) struct lode_node *
lode_graph_fail(struct lode_graph *g, int code, const char *where, const char *fmt, ...);

struct lode_node *lode_g_input(struct lode_graph *g, uint32_t width, enum lode_rows rows);
struct lode_node *lode_g_embed(struct lode_graph *g, const struct lode_operand *w, float scale);
/* The same by something else than the token. */
struct lode_node *lode_g_embed_by(struct lode_graph *g, const struct lode_operand *w,
                                  enum lode_embed_by by);
/* group 0: the whole row; w may be NULL */
struct lode_node *lode_g_rms_norm(struct lode_graph *g, struct lode_node *x,
                                  const struct lode_operand *w, float eps, uint32_t group);
struct lode_node *lode_g_layer_norm(struct lode_graph *g, struct lode_node *x,
                                    const struct lode_operand *w, const struct lode_operand *bias,
                                    float eps, uint32_t group);
struct lode_node *lode_g_quant(struct lode_graph *g, struct lode_node *x, enum lode_dtype type);
struct lode_node *lode_g_linear(struct lode_graph *g, struct lode_node *x,
                                const struct lode_operand *w, const struct lode_operand *bias);
struct lode_node *lode_g_rope_table(struct lode_graph *g, uint32_t spec, uint32_t n_pairs);
/* Turns the pairs (i, i + n_pairs) of every head; pairs: they come as (2i, 2i+1) and are put in
 * that order first, so that all models have one order inside. */
struct lode_node *lode_g_rope(struct lode_graph *g, struct lode_node *x, struct lode_node *table,
                              uint32_t n_heads, bool pairs);
/* Only puts them in that order. */
struct lode_node *lode_g_unpair(struct lode_graph *g, struct lode_node *x, uint32_t n_heads,
                                uint32_t n_pairs);
struct lode_node *lode_g_kv_put(struct lode_graph *g, struct lode_node *k, struct lode_node *v,
                                uint32_t layer);
/* sinks: a score for each head that takes part in the softmax and has no value; may be NULL. */
struct lode_node *lode_g_attention(struct lode_graph *g, struct lode_node *q, struct lode_node *put,
                                   const struct lode_operand *sinks,
                                   const union lode_op_params *p);
struct lode_node *lode_g_add(struct lode_graph *g, struct lode_node *a, struct lode_node *b,
                             float scale);
struct lode_node *lode_g_glu(struct lode_graph *g, struct lode_node *gate, struct lode_node *up,
                             enum lode_glu act);
/* y = sigmoid(gate) x; gate: one number a row */
struct lode_node *lode_g_row_gate(struct lode_graph *g, struct lode_node *x,
                                  struct lode_node *gate);
struct lode_node *lode_g_act(struct lode_graph *g, struct lode_node *x, enum lode_act act);
/* Router logits to n_used pairs (expert as int32 bits, weight), experts ascending.  bias: added to
 * the scores for the choice only; may be NULL. */
struct lode_node *lode_g_route(struct lode_graph *g, struct lode_node *logits,
                               const struct lode_operand *bias, const union lode_op_params *p);
/* Sum over the chosen experts, ascending, of weight * down(act(gate x) * up x).  w: gate, up, down,
 * then their biases (NULL where there are none).  weigh_input: weight * x is the expert's input, and
 * its output counts once (no biases then). */
struct lode_node *lode_g_experts(struct lode_graph *g, struct lode_node *x, struct lode_node *route,
                                 const struct lode_operand *const w[LODE_MAX_WEIGHTS],
                                 enum lode_glu act, bool weigh_input);
/* Its halves, between which ranks that have parts of the experts' rows exchange them: side by side for each
 * chosen expert act(gate x) * up x; and the sum of weight * down of these.  No biases. */
struct lode_node *lode_g_experts_in(struct lode_graph *g, struct lode_node *x, struct lode_node *route,
                                    const struct lode_operand *gate, const struct lode_operand *up,
                                    enum lode_glu act, bool weigh_input);
struct lode_node *lode_g_experts_out(struct lode_graph *g, struct lode_node *h, struct lode_node *route,
                                     const struct lode_operand *down, bool weigh_input);
/* All ranks' columns of x, which are as many on each: for each head the first rank's, then the second's. */
struct lode_node *lode_g_all_gather(struct lode_graph *g, struct lode_node *x, uint32_t n_ranks,
                                    uint32_t n_heads);
/* A node that does what n does of other inputs; its width is n's. */
struct lode_node *lode_g_copy(struct lode_graph *g, const struct lode_node *n, struct lode_node *a,
                              struct lode_node *b);
/* y = x (1 + coef ln(1 + floor((position + 1) / floor))) */
struct lode_node *lode_g_temperature(struct lode_graph *g, struct lode_node *x, float coef,
                                     uint32_t floor);
struct lode_node *lode_g_scale(struct lode_graph *g, struct lode_node *x, float scale);
struct lode_node *lode_g_softcap(struct lode_graph *g, struct lode_node *x, float cap);
struct lode_node *lode_g_pick(struct lode_graph *g, struct lode_node *x);
struct lode_node *lode_g_slice(struct lode_graph *g, struct lode_node *x, uint32_t first,
                               uint32_t width);
/* Columns first .. first + width - 1 of each head, side by side. */
struct lode_node *lode_g_cut(struct lode_graph *g, struct lode_node *x, uint32_t n_heads,
                             uint32_t first, uint32_t width);
/* Each head's numbers of a, then of b. */
struct lode_node *lode_g_join(struct lode_graph *g, struct lode_node *a, struct lode_node *b,
                              uint32_t n_heads);
/* Each head's numbers by a matrix of its own; w: the matrices one below the other. */
struct lode_node *lode_g_heads(struct lode_graph *g, struct lode_node *x,
                               const struct lode_operand *w, uint32_t n_heads);
/* A causal convolution over positions, each column by itself.  w: (x->width, taps) as one vector a
 * column, oldest position first.  Reads and advances the sequence's state. */
struct lode_node *lode_g_conv(struct lode_graph *g, struct lode_node *x,
                              const struct lode_operand *w, uint32_t layer, bool silu);
/* x / sqrt(sum of squares + eps) of each group. */
struct lode_node *lode_g_l2_norm(struct lode_graph *g, struct lode_node *x,
                                 const union lode_op_params *p);
/* For each head (alpha, b) to (decay, beta) = (exp(a softplus(alpha + dt)), sigmoid(b)). */
struct lode_node *lode_g_delta_gates(struct lode_graph *g, struct lode_node *x,
                                     const struct lode_operand *a, const struct lode_operand *dt);
/* The gated delta rule.  x: queries and keys of n_k_heads, values of n_heads, side by side; gates:
 * as DELTA_GATES gives them.  Reads and advances the sequence's state. */
struct lode_node *lode_g_delta(struct lode_graph *g, struct lode_node *x, struct lode_node *gates,
                               const union lode_op_params *p);
struct lode_node *lode_g_trace(struct lode_graph *g, struct lode_node *x, uint32_t layer);

/* The part of a rank, the first being 0. */
static inline const struct lode_operand *lode_operand_of(const struct lode_operand *w, uint32_t rank) {
    while (w && rank-- && w->next)
        w = w->next;
    return w;
}

/* What an op costs: bytes of weights read once per step, bytes and flops for each row. */
struct lode_cost {
    uint64_t weight_bytes, row_bytes, row_flops;
};
/* w may hold NULLs; width_in is the sum over the inputs, bytes_in and bytes_out those of a row. */
struct lode_cost lode_op_cost(enum lode_op op, const union lode_op_params *p,
                              const struct lode_operand *const w[2], uint32_t width,
                              uint64_t bytes_in, uint64_t bytes_out);

#endif
