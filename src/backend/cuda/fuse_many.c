/* fuse_many.c - products of more rows: the norm, the product and what comes after it, of --numerics fast and of Hopper's
 * exact ones. */
#include "backend/cuda/fuse.h"

/* What comes after the product of a chain, of many rows; false: nothing that could be done with it. */
static bool find_after(const struct op *o, const struct chain *c, struct lode_cuda_after *after) {
    const struct lode_part *parts = c->mul->parts;
    if (!c->glu && !c->add)
        return false;
    const struct lode_value *y = result_of(c->glu ? c->glu : c->add), *res = residual_of(c);
    if (lode_cuda_writes_what_it_reads(o, c, y) || (c->glu && parts[0].w->rows != parts[1].w->rows))
        return false;
    *after = (struct lode_cuda_after){.y = lode_cuda_mat(y)};
    after->end.output = c->glu ? LODE_GEMV_GLU : LODE_GEMV_ADD;
    if (c->glu)
        after->end.act = c->glu->p.glu.act;
    if (c->add) {
        after->end.residual = address(res);
        after->end.residual_stride = res->stride;
        after->end.product_first = same_place(&c->add->in[0], result_of(c->mul));
        after->end.scale = c->add->p.add.scale;
    }
    return true;
}

static bool is_wide(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    return mul->op == LODE_OP_LINEAR && mul->n_parts <= LODE_CUDA_PARTS &&
           lode_cuda_wide_parts(o, mul->parts, mul->n_parts) == mul->n_parts;
}

int lode_cuda_run_many_rows(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    const bool fast = lode_cuda_is_fast_chain(o, c);
    struct lode_cuda_gemv_args copies = {0};
    struct lode_cuda_after after;
    if ((!fast && !is_wide(o, c)) ||
        (c->norm && c->norm->parts[0].out.width * 4 > (uint32_t)o->r->c->shared_max - LODE_CUDA_OWN_SHARED) ||
        !lode_cuda_set_copies(o, n, c, &copies) || copies.q_out)
        return 0;
    const struct lode_cuda_norm norm = {.weight = c->norm ? lode_cuda_weight(o, c->norm->parts[0].w) : 0,
                                        .eps = c->norm ? c->norm->p.rms_norm.eps : 0,
                                        .copy = {copies.x_out, copies.x_out ? result_of(c->norm)->stride : 0}};
    const struct lode_cuda_norm *before = c->norm ? &norm : NULL;
    const struct lode_cuda_wide_x x = {lode_cuda_mat(input_of(c)), c->quant != NULL, before};
    if (find_after(o, c, &after)) {
        const int all = fast ? lode_cuda_run_fast(o, mul->parts, mul->n_parts, x.x, o->n, before, &after)
                             : lode_cuda_run_wide(o, mul->parts, mul->n_parts, &x, o->n, &after);
        if (all != 0)
            return all < 0 ? all : (int)c->n;
    }
    if (!before && !c->quant)
        return 0;
    for (uint32_t i = 0; i < mul->n_parts; i++) /* what is normed or rounded in pieces is still read */
        if (lode_cuda_overlap(&mul->parts[i].out, input_of(c), o->n))
            return 0;
    const int some = fast ? lode_cuda_run_fast(o, mul->parts, mul->n_parts, x.x, o->n, before, NULL)
                          : lode_cuda_run_wide(o, mul->parts, mul->n_parts, &x, o->n, NULL);
    return some > 0 ? (int)(mul - o->in) + 1 : some;
}
