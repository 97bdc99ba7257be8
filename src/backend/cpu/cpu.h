/* cpu.h - inside the CPU backend: what its files share. */
#ifndef LODE_BACKEND_CPU_CPU_H
#define LODE_BACKEND_CPU_CPU_H

#include "backend/backend.h"
#include "base/threads.h"
#include "kern/kern.h"

struct lode_cpu {
    struct lode_backend base;
    struct lode_kern kern;
    struct lode_pool *pool;
    uint32_t threads;
    bool float_act;
    enum lode_fast fast;
    struct lode_store *store;     /* borrowed */
    struct lode_aside *aside;     /* borrowed; NULL: there is no device beside it */
    struct lode_experts *experts; /* owned; NULL where the model has none */
    char *scratch;                /* owned; (threads, scratch_size): each worker's own */
    size_t scratch_size;
    char *rounded; /* owned; (max_rows, rounded_stride): activations of fast products, or NULL */
    size_t rounded_stride;
};

enum {
    LODE_WIDEN_ROWS = 16, /* weight rows widened at a time */
    LODE_ATT_ROWS = 128,  /* most query rows of one attention task, over tokens and heads */
};

static inline struct lode_cpu *lode_cpu(struct lode_backend *b) { return (struct lode_cpu *)b; }
static inline char *lode_cpu_scratch(const struct lode_cpu *c, uint32_t worker) {
    return c->scratch + worker * c->scratch_size;
}

/* Runs fn(arg, task, worker) for tasks 0 .. n-1 on all threads; on the caller alone when the work
 * (in numbers touched) is too little to share. */
void lode_cpu_for(struct lode_cpu *c, lode_pool_fn *fn, void *arg, size_t n, size_t work);

/* y[j * ldy + i] = <w row i, x row j> for n rows of w that begin at data; see kern.h, and kern/fast.h
 * if `fast`: then x is as lode_cpu_round makes it. */
void lode_cpu_mul(const struct lode_cpu *c, uint32_t worker, float *y, size_t ldy,
                  const struct lode_operand *w, const char *data, size_t n, const char *x,
                  size_t x_stride, uint32_t n_rows, bool fast);

/* Whether products with such weights are fast ones. */
static inline bool lode_cpu_fast(const struct lode_cpu *c, const struct lode_operand *w) {
    return c->fast && lode_fast_of(c->fast, w->type);
}
/* A row of n floats for a fast product: y has room for whole steps. */
void lode_cpu_round(const struct lode_cpu *c, void *y, const float *x, size_t n);

/* Ops whose rows are treated one by one, and what treats a row (rows.c). */
#define LODE_CPU_ROW_OPS(X)                                                                        \
    X(EMBED, embed_row) X(RMS_NORM, norm_row) X(LAYER_NORM, layer_norm_row) X(QUANT, quant_row)    \
    X(ADD, add_row) X(GLU, glu_row) X(ROW_GATE, gate_row) X(L2_NORM, l2_row)                       \
    X(DELTA_GATES, delta_gates_row) X(ACT, act_row) X(SCALE, scale_row) X(SOFTCAP, cap_row)        \
    X(GATHER, gather_row) X(CUT, cut_row) X(JOIN, join_row) X(TEMPERATURE, temperature_row)        \
    X(ROPE_TABLE, table_row) X(ROPE, rope_row) X(KV_PUT, put_row) X(UNPAIR, rope_row)

typedef void lode_cpu_fn(struct lode_backend *b, const struct lode_instr *in,
                         const struct lode_step *step);
lode_cpu_fn lode_cpu_rows /* of LODE_CPU_ROW_OPS */, lode_cpu_linear, lode_cpu_attention, lode_cpu_heads,
    lode_cpu_route, lode_cpu_experts, lode_cpu_pick, lode_cpu_trace, lode_cpu_conv, lode_cpu_delta;

/* See lode_backend_ops. */
uint32_t lode_cpu_together(const struct lode_instr *in, uint32_t n, const struct lode_step *step);
void lode_cpu_row_by_row(struct lode_backend *b, const struct lode_instr *in, uint32_t n,
                         const struct lode_step *step);

/* y = act(gate) * up of one row. */
static inline void lode_cpu_glu_row(const struct lode_kern *k, enum lode_glu act, float *y,
                                    const float *gate, const float *up, size_t n) {
    switch (act) {
    case LODE_GLU_SILU:
        k->silu_mul(y, gate, up, n);
        break;
    case LODE_GLU_GELU:
        k->gelu_mul(y, gate, up, n);
        break;
    case LODE_GLU_CLAMPED:
        k->clamped_mul(y, gate, up, n);
        break;
    case LODE_GLU_SIGMOID:
        k->sigmoid_mul(y, gate, up, n);
        break;
    case LODE_GLU_TIMES:
        k->times(y, gate, up, n);
        break;
    }
}

/* The buffers of routed experts; NULL: out of memory. */
struct lode_experts *lode_cpu_experts_create(const struct lode_cpu_opts *o);
void lode_cpu_experts_free(struct lode_experts *x);
uint64_t lode_cpu_experts_size(const struct lode_cpu_opts *o);

/* The floats that an attention task needs. */
size_t lode_cpu_attention_scratch(uint32_t max_heads, uint32_t max_head_dim);

#endif
