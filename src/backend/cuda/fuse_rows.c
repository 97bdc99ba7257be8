/* fuse_rows.c - chains of instructions that treat every row by itself: a norm or a gated row, and what that is added to or multiplied with.
 *
 * What such a launch reads beside what it writes it reads number by number, so y may be where x is.  What all of a row's blocks read, as a
 * row's gate is, nobody may write. */
#include "backend/cuda/fuse.h"

/* Whether rows of y may be written by those who have read x's: each number where it was, or elsewhere. */
static bool may_be_over(const struct lode_value *y, const struct lode_value *x, uint32_t n) {
    return (same_place(y, x) && y->stride == x->stride) || !lode_cuda_overlap(y, x, n);
}

/* Whether instruction i of those that are left is `op`, an operand of which is v, of which nobody has any other use; *first: whether the first. */
static bool takes(const struct op *o, uint32_t i, uint32_t n, enum lode_op op, const struct lode_value *v, bool *first) {
    if (!lode_cuda_is_next(o, i, n, op))
        return false;
    const struct lode_instr *in = o->in + i;
    *first = same_place(&in->in[0], v);
    return *first != same_place(&in->in[1], v) && lode_value_rows(result_of(in), o->step) == o->n &&
           (same_place(result_of(in), v) || !lode_cuda_read_later(o, i + 1, n, v));
}

/* As after attention and after the feed-forward of some models; or after the delta rule. */
int lode_cuda_run_norm_and_next(const struct op *o, uint32_t n) {
    const struct lode_value *norm = result_of(o->in);
    bool first;
    const bool added = takes(o, 1, n, LODE_OP_ADD, norm, &first),
               gated = !added && takes(o, 1, n, LODE_OP_GLU, norm, &first) && !first;
    if (!added && !gated)
        return 0;
    const struct lode_instr *next = o->in + 1;
    const struct lode_value *to = &next->in[first], *y = result_of(next);
    if (!may_be_over(y, &o->in->in[0], o->n) || !may_be_over(y, to, o->n))
        return 0;
    struct lode_cuda_after_norm after = {.to = lode_cuda_mat(to), .y = lode_cuda_mat(y), .norm_first = first, .gates = gated};
    if (added)
        after.scale = next->p.add.scale;
    else
        after.act = next->p.glu.act;
    LODE_TRY(lode_cuda_run_rms_norm(o, &after));
    return 2;
}

/* As a gate that lies beside queries has it. */
int lode_cuda_run_cut_gate(const struct op *o, uint32_t n) {
    bool first;
    if (!takes(o, 1, n, LODE_OP_GLU, result_of(o->in), &first) || !first)
        return 0;
    struct op glu = *o;
    glu.in++;
    const struct lode_value *y = result_of(glu.in);
    if (lode_cuda_overlap(y, &o->in->in[0], o->n) || !may_be_over(y, &glu.in->in[1], o->n))
        return 0;
    LODE_TRY(lode_cuda_run_glu(&glu, o->in));
    return 2;
}

/* As experts that all tokens go to end.  Of sums only the last one that is launched is written anywhere. */
int lode_cuda_run_gated_sum(const struct op *o, uint32_t n) {
    struct lode_cuda_row_sum sums[LODE_GATE_SUMS];
    const struct lode_value *read[1 + LODE_GATE_SUMS] = {&o->in->in[0]}, *v = result_of(o->in), *y = v;
    uint32_t n_sums = 0;
    bool first;
    for (uint32_t k = 0; k < LODE_GATE_SUMS && takes(o, 1 + k, n, LODE_OP_ADD, v, &first); k++) {
        const struct lode_instr *add = o->in + 1 + k;
        read[1 + k] = &add->in[first];
        sums[k] = (struct lode_cuda_row_sum){lode_cuda_mat(read[1 + k]), add->p.add.scale, first};
        v = result_of(add);
        bool may = !lode_cuda_overlap(v, &o->in->in[1], o->n);
        for (uint32_t i = 0; i <= 1 + k; i++)
            may = may && may_be_over(v, read[i], o->n);
        if (may)
            n_sums = k + 1, y = v;
    }
    if (n_sums == 0)
        return 0;
    LODE_TRY(lode_cuda_run_row_gate(o, y, sums, n_sums));
    return (int)n_sums + 1;
}
