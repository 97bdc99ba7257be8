/* fuse.c - several instructions as one launch: what decoding one token is made of.
 *
 *     [RMS_NORM] [QUANT] LINEAR [GLU | ADD]     gemv.cu, gemv_float.cu, gemv_near.cu, gemv_stream.cu,
 *                                               gemv_stream_k.cu; steps of one row
 *         .. the same with quantised weights    few.cu, two launches for 32 rows; steps of 2 to 96 rows, and of
 *                                               one long row that is only rounded before; of more on
 *                                               Hopper wide.cu, wide_glu.cu
 *         .. the same with --numerics tensor    gemv_stream_fast.cu, gemv_fast.cu, few_fast.cu; steps of up to 32 rows; of more
 *                                               gemm_fast.cu, wide_fast.cu, wide_gated.cu
 *         .. a gated one and the next, ATTENTION and the next: rows rounded where they are made, for BF16 weights as panels
 *                                               (gemm_fast.cu), for those that meet blocks of 32 spread (wide_round.cuh)
 *     [QUANT] EXPERTS [ADD]                     two launches of chosen_in.cu, chosen_out.cu or the same of blocks of 32, or of gemv.cu;
 *                                               steps of one row
 *         .. ROUTE before them                  in the first of chosen_in.cu or chosen_in_32.cu
 *         .. EXPERTS_IN, EXPERTS_OUT [ADD]      one each
 *     RMS_NORM ADD | GLU                        rows.cu's rms_norm; any step
 *     CUT GLU                                   rows.cu's glu; any step
 *     ROW_GATE ADD [ADD]                        rows.cu's row_gate; any step
 *     [[CUT CUT] JOIN] DELTA_GATES CONV [L2_NORM]   recur.cu's conv; any step
 *         .. any of these but the first alone
 *     [CUT of q] [norms and rotations of q and k] KV_PUT   positions.cu's prepare; any step
 *         .. ATTENTION                          and decode.cu, or decode_short_fast.cu, decode_fast.cu; steps of one row a sequence
 *     [CUT CUT ROPE] RMS_NORM ROPE JOIN KV_PUT  latent.cu, what a token of latent attention keeps and its queries; any step
 *         .. [QUANT] HEADS JOIN                 and HEADS' kernels, that leave results where they are joined
 *     QUANT HEADS                               mul.cuh; steps of one row
 *
 * What lies between them is not written where nobody reads it later.  As instructions share
 * buffers, a fused launch must not write what it reads; where it would, nothing is fused. */
#include "backend/cuda/fuse.h"

/* Tiles of more: wide.cu's, which Hopper has, or gemm.cu's. */
uint32_t lode_cuda_most_few(const struct op *o, const struct chain *c) {
    const enum lode_dtype type = c->mul->parts[0].w->type;
    if (lode_cuda_is_fast_chain(o, c))
        return LODE_FEW_ROWS;
    return !o->r->c->kernels.wide[type][0] ? 128 : lode_dtypes[type].act == LODE_A32 ? 64 : 96;
}

int lode_cuda_run_fused(const struct op *o, uint32_t n) {
    const enum lode_op op = o->in->op;
    if ((op == LODE_OP_CUT || op == LODE_OP_RMS_NORM) && o->n > 0 && o->step->n_segments) {
        const int rc = lode_cuda_run_latent(o, n);
        if (rc != 0)
            return rc;
    }
    if (op == LODE_OP_QUANT) {
        const int rc = lode_cuda_run_rounded_heads(o, n);
        if (rc != 0)
            return rc;
    }
    if (op == LODE_OP_RMS_NORM || op == LODE_OP_ROPE || op == LODE_OP_CUT) {
        const int rc = o->step->n_segments ? lode_cuda_run_prepare(o, n) : 0;
        if (rc != 0)
            return rc;
    }
    if (op == LODE_OP_RMS_NORM && o->n > 0) {
        const int rc = lode_cuda_run_norm_and_next(o, n);
        if (rc != 0)
            return rc;
    }
    if (op == LODE_OP_CUT && o->n > 0) {
        const int rc = lode_cuda_run_cut_gate(o, n);
        if (rc != 0)
            return rc;
    }
    if (op == LODE_OP_ROW_GATE && o->n > 0)
        return lode_cuda_run_gated_sum(o, n);
    if ((op == LODE_OP_CUT || op == LODE_OP_JOIN || op == LODE_OP_DELTA_GATES || op == LODE_OP_CONV) && o->n > 0)
        return lode_cuda_run_before_delta(o, n);
    if (op == LODE_OP_ROUTE)
        return o->n == 1 ? lode_cuda_run_choice(o, n) : 0;
    if (op == LODE_OP_ATTENTION && o->r->o.tensor)
        return lode_cuda_run_attended(o, n);
    struct chain c;
    if (o->n == 0 ||
        (op != LODE_OP_RMS_NORM && op != LODE_OP_QUANT && op != LODE_OP_LINEAR &&
         !lode_cuda_is_experts(op)) ||
        !lode_cuda_find_chain(o, n, &c))
        return 0;
    if (o->n > lode_cuda_most_few(o, &c))
        return lode_cuda_run_many_rows(o, n, &c);
    if (lode_cuda_is_fast_chain(o, &c))
        return lode_cuda_run_few_rows_fast(o, n, &c);
    if (o->n > 1 && c.mul->op != LODE_OP_LINEAR)
        return 0;
    const int rc = o->n > 1                      ? lode_cuda_run_few_rows(o, n, &c)
                   : c.mul->op == LODE_OP_LINEAR ? lode_cuda_run_one_row(o, n, &c)
                                                 : lode_cuda_run_chosen_experts(o, n, &c, NULL);
    if (rc == 0 && o->n > LODE_FEW_ROWS)
        return lode_cuda_run_many_rows(o, n, &c);
    return rc > 0 ? (int)c.n : rc;
}

int lode_cuda_run_product(const struct op *o, const struct lode_cuda_gemv_args *a, void *kernel, uint32_t x, uint32_t threads,
                          uint32_t shared, const void *args) {
    const struct lode_cuda *c = o->r->c;
    lode_dev from = a->parts[0].w, to = from; /* of parts that lie apart, what is between them too */
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const lode_dev w = a->parts[i].w, end = w + (uint64_t)a->parts[i].rows * a->parts[i].w_stride;
        from = w < from ? w : from;
        to = end > to ? end : to;
    }
    const bool large = c->second_cache > 0 && c->uploaded > 2 * (uint64_t)c->second_cache;
    const struct lode_cuda_once once = {from, large ? to - from : 0};
    return lode_cuda_launch_once(c, once, o->r->stream, kernel, x, 1, 1, threads, shared, args, o->err);
}
