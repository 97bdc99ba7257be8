/* fuse.h - chains of instructions that become one launch: what fuse.c and the files that launch them share. */
#ifndef LODE_BACKEND_CUDA_FUSE_H
#define LODE_BACKEND_CUDA_FUSE_H

#include "backend/cuda/run.h"

enum { LODE_CUDA_GEMV_BUDGET = 200 << 10 /* bytes of shared memory: more where one tile does not fit */ };

/* [RMS_NORM] [QUANT] and a product of what they give, then [GLU | ADD]: NULL where there is none; n: instructions. */
struct chain {
    const struct lode_instr *norm, *quant, *mul, *glu, *add;
    uint32_t n;
};

static inline bool lode_cuda_is_next(const struct op *o, uint32_t i, uint32_t n, enum lode_op op) {
    return i < n && o->in[i].op == op;
}
static inline bool lode_cuda_is_experts(enum lode_op op) {
    return op == LODE_OP_EXPERTS || op == LODE_OP_EXPERTS_IN || op == LODE_OP_EXPERTS_OUT;
}

/* ---- values ---- */

static inline const struct lode_value *result_of(const struct lode_instr *in) { return &in->parts[0].out; }
static inline lode_dev address(const struct lode_value *v) { return (lode_dev)(uintptr_t)v->data; }
static inline bool same_place(const struct lode_value *a, const struct lode_value *b) {
    return a->data && a->data == b->data && a->width == b->width;
}
static inline const struct lode_value *input_of(const struct chain *c) {
    return c->norm ? &c->norm->in[0] : c->quant ? &c->quant->in[0] : &c->mul->in[0];
}
static inline const struct lode_value *residual_of(const struct chain *c) {
    return !c->add ? NULL : &c->add->in[same_place(&c->add->in[0], result_of(c->mul))];
}

/* chain.c: whether n rows of both have bytes in common; values of one stride may lie side by side in its rows. */
bool lode_cuda_overlap(const struct lode_value *a, const struct lode_value *b, uint32_t n);
/* Whether any of the instructions from `from` on, n in all, reads what v holds. */
bool lode_cuda_read_later(const struct op *o, uint32_t from, uint32_t n, const struct lode_value *v);

/* ---- chains: chain.c ---- */

/* The chain that begins with o->in, of n instructions that are left; false: there is none. */
bool lode_cuda_find_chain(const struct op *o, uint32_t n, struct chain *c);
bool lode_cuda_writes_what_it_reads(const struct op *o, const struct chain *c, const struct lode_value *y);
/* Whether it is one of --numerics tensor or fast. */
bool lode_cuda_is_fast_chain(const struct op *o, const struct chain *c);
/* What the parts of a product have in common: their activations' type, LODE_F32 for one type of floats;
 * LODE_NONE: nothing that a gemv could do. */
enum lode_dtype lode_cuda_common_act(const struct lode_part *parts, uint32_t n);
/* Whether the kernels of a few rows know all of their types. */
bool lode_cuda_all_few(const struct lode_part *parts, uint32_t n);

/* A gemv's arguments.  The rows that others read too; false where one would be written over x. */
bool lode_cuda_set_copies(const struct op *o, uint32_t n, const struct chain *c, struct lode_cuda_gemv_args *a);
void lode_cuda_set_input(const struct op *o, const struct chain *c, struct lode_cuda_gemv_args *a);
void lode_cuda_set_residual(const struct chain *c, struct lode_cuda_gemv_args *a);
/* The parts of a product, `tile` rows a tile, and what comes after it; false: it can't be fused. */
bool lode_cuda_set_parts(const struct op *o, const struct chain *c, uint32_t tile, struct lode_cuda_gemv_args *a);

/* ---- launches: 1, or what they ran of the n instructions where that is said; 0 and nothing done; or an error ---- */

/* fuse_row.c: shared memory and the grid of a gemv of quantised weights; false: no room. */
bool lode_cuda_lay_out_gemv(const struct op *o, struct lode_cuda_gemv_args *a, bool by32, uint32_t *grid,
                            uint32_t *shared);
int lode_cuda_run_gemv(const struct op *o, uint32_t n, const struct chain *c, struct lode_cuda_gemv_args *a,
                       enum lode_dtype act);
int lode_cuda_run_one_row(const struct op *o, uint32_t n, const struct chain *c);
/* fuse_few.c; the second: instructions */
int lode_cuda_run_few_rows(const struct op *o, uint32_t n, const struct chain *c);
int lode_cuda_run_few_rows_fast(const struct op *o, uint32_t n, const struct chain *c);
/* fuse.c: rows of a product up to which kernels of few rows, in pieces of LODE_FEW_ROWS, are faster than tiles of many. */
uint32_t lode_cuda_most_few(const struct op *o, const struct chain *c);
/* fuse_many.c: instructions; the second: attention and the product of what it gives */
int lode_cuda_run_many_rows(const struct op *o, uint32_t n, const struct chain *c);
int lode_cuda_run_attended(const struct op *o, uint32_t n);
/* chosen.c: gate and up, and down, of the experts that a row has chosen, by the kernels of kernels/experts/chosen_*.cu.  choice: the ROUTE that the first
 * makes itself; NULL: it is there.  known: the route was there before the launch before this one let it begin. */
int lode_cuda_run_chosen_in(const struct op *o, const struct lode_cuda_gemv_args *a, const struct op *choice);
int lode_cuda_run_chosen_out(const struct op *o, const struct lode_cuda_gemv_args *a, bool known);
/* fuse_experts.c; choice: as lode_cuda_run_chosen_in's */
int lode_cuda_run_chosen_experts(const struct op *o, uint32_t n, const struct chain *c, const struct op *choice);
/* A ROUTE with the experts that it chooses: instructions. */
int lode_cuda_run_choice(const struct op *o, uint32_t n);
/* fuse_rows.c: instructions */
int lode_cuda_run_norm_and_next(const struct op *o, uint32_t n);
int lode_cuda_run_cut_gate(const struct op *o, uint32_t n);
int lode_cuda_run_gated_sum(const struct op *o, uint32_t n);
/* fuse_recur.c: instructions */
int lode_cuda_run_before_delta(const struct op *o, uint32_t n);
/* fuse_kv.c: instructions */
int lode_cuda_run_prepare(const struct op *o, uint32_t n);
/* fuse_latent.c: instructions; the second: a QUANT of one row and the HEADS that reads it */
int lode_cuda_run_latent(const struct op *o, uint32_t n);
int lode_cuda_run_rounded_heads(const struct op *o, uint32_t n);

#endif
