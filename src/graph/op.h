/* op.h - every operation a model can be made of, as one list.
 *
 * Ops are as coarse as the hardware likes: attention over a paged cache is one op, not ten.  A
 * value is a matrix of rows, one per token of the step, so its row count is known only when a step
 * runs; its width is fixed when the graph is built.
 *
 * The columns of the list:
 *   name       LODE_OP_name, and the word that profiles and plans print
 *   inputs     how many values it reads
 *   weights    how many weights it reads, at most
 *   gradient   how the derivative of its inputs follows from that of its output (dy), in words of
 *              the other ops; "none" where there is nothing to differentiate
 *
 * Shape rules and costs are in graph.c, one function each, indexed by the same list.
 */
#ifndef LODE_GRAPH_OP_H
#define LODE_GRAPH_OP_H

#include <stdbool.h>
#include <stdint.h>

#define LODE_OP_LIST(X)                                                                            \
    X(INPUT, 0, 0, "none")                                                                         \
    X(EMBED, 0, 1, "dW[row] += scale dy")                                                        \
    X(RMS_NORM, 1, 1, "dx = (w dy - y^ mean(w dy y^)) / rms, y^ = x / rms")                        \
    X(LAYER_NORM, 1, 2, "as RMS_NORM's of the centred row, less mean(w dy)")                       \
    X(QUANT, 1, 0, "dx = dy (straight through)")                                                   \
    X(LINEAR, 1, 2, "dx = dy W; dW = dy^T x; db = sum dy")                                         \
    X(ROPE_TABLE, 0, 0, "none")                                                                    \
    X(ROPE, 2, 0, "dx = rotation of dy by the negative angle")                                     \
    X(UNPAIR, 1, 0, "dx = dy, put back in pairs")                                                  \
    X(KV_PUT, 2, 0, "dk, dv = what attention gives for the stored rows")                           \
    X(ATTENTION, 2, 1, "softmax attention's own: dv = p^T dy; ds = p (dy v^T - dy o); dq = ds k")  \
    X(ADD, 2, 0, "da = dy; db = scale dy")                                                         \
    X(GLU, 2, 0, "dgate = dy up act'(gate); dup = dy act(gate)")                                   \
    X(ACT, 1, 0, "dx = dy act'(x)")                                                                \
    X(ROW_GATE, 2, 0, "dx = sigmoid(gate) dy; dgate = sigmoid'(gate) <x, dy>")                     \
    X(ROUTE, 1, 1, "d(chosen weights) through the gating's softmax or sigmoid; none through choice")  \
    X(EXPERTS, 2, 6, "each chosen expert's FFN; dweight = <dy, expert's output>")                 \
    X(EXPERTS_IN, 2, 2, "EXPERTS' first half, expert by expert")                                   \
    X(EXPERTS_OUT, 2, 1, "its second; dweight = <dy, expert's output>")                            \
    X(ALL_GATHER, 1, 0, "dx = dy in this rank's columns")                                          \
    X(SCALE, 1, 0, "dx = scale dy")                                                                \
    X(TEMPERATURE, 1, 0, "dx = dy times the same factor")                                          \
    X(SOFTCAP, 1, 0, "dx = (1 - (y / cap)^2) dy")                                                  \
    X(PICK, 1, 0, "dx = dy in the rows that were picked, 0 elsewhere")                             \
    X(SLICE, 1, 0, "dx = dy in its columns, 0 elsewhere")                                          \
    X(GATHER, 1, 0, "dx[order[j]] = dy[j]")                                                        \
    X(CUT, 1, 0, "dx = dy in each head's columns, 0 elsewhere")                                    \
    X(JOIN, 2, 0, "da, db = dy in each head's columns of theirs")                                  \
    X(HEADS, 1, 1, "as LINEAR's, head by head")                                                    \
    X(CONV, 1, 1, "dx = sum over this and the next rows of w dy, by tap; dw = sum x dy")           \
    X(L2_NORM, 1, 0, "as RMS_NORM's, per group; dx = dy in the rest")                              \
    X(DELTA_GATES, 1, 2, "through exp, softplus and sigmoid")                                      \
    X(DELTA, 2, 0, "the recurrence run backwards: dS from the last row to the first")              \
    X(TRACE, 1, 0, "dx = dy")

enum lode_op {
#define LODE_OP_ENUM(name, inputs, weights, gradient) LODE_OP_##name,
    LODE_OP_LIST(LODE_OP_ENUM)
#undef LODE_OP_ENUM
        LODE_OP_COUNT
};

struct lode_op_info {
    const char *name, *gradient;
    int n_inputs, n_weights;
};
extern const struct lode_op_info lode_ops[LODE_OP_COUNT];

enum lode_glu { LODE_GLU_SILU, LODE_GLU_GELU, LODE_GLU_CLAMPED /* gpt-oss's, see kern.h */,
                LODE_GLU_SIGMOID, LODE_GLU_TIMES /* no function */ };
/* Which row of its table an embedding takes. */
enum lode_embed_by {
    LODE_BY_TOKEN,
    LODE_BY_POSITION,
    LODE_BY_PART, /* 0, or 1 in the second text of a pair */
};
enum lode_act { LODE_ACT_GELU /* tanh form */, LODE_ACT_GELU_ERF, LODE_ACT_RELU2 };

/* How router logits become expert weights. */
enum lode_gating {
    LODE_GATE_SOFTMAX,     /* softmax over all experts, then choose */
    LODE_GATE_SIGMOID,     /* sigmoid of each, then choose */
    LODE_GATE_SOFTMAX_TOP, /* choose by logit, then softmax over the chosen */
    LODE_GATE_SPARSEMIXER, /* PhiMoE's, see route.c */
};

/* The parameters of an op, by its name in lower case. */
union lode_op_params {
    struct {
        float scale;
    } add /* y = a + scale b */, scale;
    struct {
        float scale;
        enum lode_embed_by by;
    } embed;
    struct {
        float eps;
        uint32_t group; /* numbers normalised together: the width, or a head's size */
    } rms_norm, layer_norm;
    struct {
        uint32_t spec; /* which of the model's rotary specifications */
        uint32_t n_pairs;
    } rope_table;
    struct {
        uint32_t n_heads, head_dim, n_pairs;
        bool pairs; /* they come as (2i, 2i+1) and are put as (i, i + n_pairs) first */
    } rope, unpair;
    struct {
        uint32_t layer;
    } kv_put, trace;
    struct {
        uint32_t layer;
        uint32_t n_heads, n_kv_heads, head_dim, head_dim_v;
        uint32_t all_kv_heads; /* of the model, where these are a rank's: lode_g_attention sets it */
        uint32_t window; /* positions seen, the own one included; 0: all */
        uint32_t chunk;  /* none is seen before the last multiple of this; 0: no such limit */
        bool both_ways;  /* all of the sequence is seen, which the step holds as a whole */
        float scale, cap; /* cap 0: none */
    } attention;
    struct {
        enum lode_glu act;
    } glu;
    struct {
        enum lode_glu act;
        bool weigh_input; /* an expert's weight is its input's factor instead of its output's */
    } experts; /* and of its halves */
    struct { /* a rank's columns of each head become those of all ranks, side by side */
        uint32_t n_ranks, n_heads;
    } all_gather;
    struct {
        float coef; /* y = x (1 + coef ln(1 + floor((position + 1) / floor))) */
        uint32_t floor;
    } temperature;
    struct {
        enum lode_act act;
    } act;
    struct {
        uint32_t n_used;
        enum lode_gating gating;
        bool normalise; /* chosen weights are divided by their sum */
        float scale;    /* and multiplied by this */
        uint32_t n_groups, n_groups_used; /* experts are chosen within the best groups; 0: all */
        uint32_t layer;                   /* for traces */
    } route;
    struct {
        float cap;
    } softcap;
    struct {
        uint32_t first;
    } slice;
    struct {
        const struct lode_operand *of; /* whose columns' order it is: y[j] = x[of->order[j]] */
    } gather;
    struct {
        uint32_t n_heads;
        uint32_t first; /* CUT: where in each head's numbers */
    } cut, join, heads;
    struct {
        uint32_t layer, taps;
        bool silu; /* of the result */
    } conv;
    struct {
        float eps;         /* added to the sum of squares */
        uint32_t group, n; /* the first n numbers of a row, in groups; the others are passed on */
        uint32_t n_scaled; /* of these, the first so many are multiplied by scale as well */
        float scale;
    } l2_norm;
    struct {
        uint32_t layer;
        uint32_t n_k_heads, n_heads, dim_k, dim_v; /* n_heads: of values */
        bool tiled; /* value head h reads key head h % n_k_heads, not h / (n_heads / n_k_heads) */
    } delta;
};

#endif
