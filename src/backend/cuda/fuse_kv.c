/* fuse_kv.c - queries, keys and values on their way: norms and rotations, the cache, and attention of one row a
 * sequence. */
#include "backend/cuda/fuse.h"

struct turned { /* a norm and a rotation on the way to `last`, from `first`, which may be cut from another value */
    const struct lode_instr *cut, *norm, *rope;
    const struct lode_value *first, *last;
};

static bool take(struct turned *t, const struct lode_instr *in, uint32_t dim) {
    if (!same_place(result_of(in), t->first) || t->cut)
        return false;
    if (in->op == LODE_OP_ROPE && !t->rope && !t->norm && in->p.rope.head_dim == dim &&
        in->p.rope.n_pairs <= 128 && in->p.rope.n_pairs > 0)
        t->rope = in;
    else if (in->op == LODE_OP_RMS_NORM && !t->norm && in->p.rms_norm.group == dim)
        t->norm = in;
    else if (in->op == LODE_OP_CUT && in->p.cut.first % 4 == 0 && in->in[0].width / in->p.cut.n_heads % 4 == 0)
        t->cut = in;
    else
        return false;
    t->first = &in->in[0];
    return true;
}

int lode_cuda_run_prepare(const struct op *o, uint32_t n) {
    uint32_t put = o->in->op == LODE_OP_CUT;
    while (put < n && (o->in[put].op == LODE_OP_RMS_NORM || o->in[put].op == LODE_OP_ROPE))
        put++;
    if (!lode_cuda_is_next(o, put, n, LODE_OP_KV_PUT) || !lode_cuda_is_next(o, put + 1, n, LODE_OP_ATTENTION))
        return 0;
    const struct lode_instr *kv = &o->in[put], *att = &o->in[put + 1];
    const struct lode_kv_layer *l = lode_kv_layer(o->step->segments[0].kv, kv->p.kv_put.layer);
    const struct lode_value *v = &kv->in[1];
    struct turned q = {.first = &att->in[0], .last = &att->in[0]},
                  k = {.first = &kv->in[0], .last = &kv->in[0]};
    for (uint32_t i = put; i-- > 0;) /* from the last one back */
        if (!take(&q, &o->in[i], l->head_dim) && !take(&k, &o->in[i], l->head_dim))
            return 0;
    const uint32_t rows = o->step->n_rows, dim = l->head_dim, n_heads = att->p.attention.n_heads;
    if (k.cut || (q.cut && (q.cut->p.cut.n_heads != n_heads || result_of(q.cut)->width != n_heads * dim || !same_place(result_of(q.cut), q.last))))
        return 0;
    const struct lode_value *table = q.rope ? &q.rope->in[1] : k.rope ? &k.rope->in[1] : NULL;
    if (dim > 512 || l->head_dim_v > 512 || (!q.cut && q.first->width != n_heads * dim) || k.first->width != l->n_heads * dim ||
        (q.rope && k.rope && q.rope->in[1].data != k.rope->in[1].data) ||
        (!same_place(q.first, q.last) && lode_cuda_overlap(q.last, q.first, rows)) ||
        lode_cuda_overlap(q.last, k.first, rows) || lode_cuda_overlap(q.last, v, rows) ||
        (!same_place(k.first, k.last) && lode_cuda_overlap(k.last, k.first, rows)) ||
        lode_cuda_overlap(k.last, q.first, rows) || lode_cuda_overlap(k.last, v, rows) || lode_cuda_overlap(k.last, q.last, rows))
        return 0;
    struct lode_cuda_prepare_args a = {
        .step = o->r->step,
        .q = lode_cuda_mat(q.first),
        .k = lode_cuda_mat(k.first),
        .v = lode_cuda_mat(v),
        .q_out = lode_cuda_mat(q.last),
        .layer = kv->p.kv_put.layer,
        .n_heads = n_heads,
        .n_kv_heads = l->n_heads,
        .head_dim = dim,
        .head_dim_v = l->head_dim_v,
        .q_apart = q.first->width / n_heads,
        .norms_q = q.norm != NULL,
        .norms_k = k.norm != NULL,
        .norm_q = q.norm ? lode_cuda_weight(o, q.norm->parts[0].w) : 0,
        .norm_k = k.norm ? lode_cuda_weight(o, k.norm->parts[0].w) : 0,
        .eps_q = q.norm ? q.norm->p.rms_norm.eps : 0,
        .eps_k = k.norm ? k.norm->p.rms_norm.eps : 0,
        .pairs_q = q.rope ? q.rope->p.rope.n_pairs : 0,
        .pairs_k = k.rope ? k.rope->p.rope.n_pairs : 0,
        .kind_q = q.rope && q.rope->p.rope.pairs,
        .kind_k = k.rope && k.rope->p.rope.pairs};
    if (q.cut)
        a.q.data += q.cut->p.cut.first * sizeof(float);
    if (table)
        a.table = lode_cuda_mat(table);
    if (!lode_cuda_read_later(o, put + 2, n, k.last) && !lode_cuda_read_later(o, put + 2, n, q.last) &&
        !lode_cuda_overlap(result_of(att), q.first, rows) && !lode_cuda_overlap(result_of(att), k.first, rows) &&
        !lode_cuda_overlap(result_of(att), v, rows) && (!table || !lode_cuda_overlap(result_of(att), table, rows))) {
        const int decoded = lode_cuda_run_decode(o, att, &a);
        if (decoded != 0)
            return decoded < 0 ? decoded : (int)put + 2;
    }
    if (lode_cuda_read_later(o, put + 1, n, k.last))
        a.k_out = lode_cuda_mat(k.last);
    /* a warp a head; of many rows several, one after the other, as finding a row's places takes longer than a head */
    enum { WARPS = 8, AT_ONCE = 4 }; /* of a block; blocks of a multiprocessor */
    const uint32_t most = (n_heads + 2 * l->n_heads + WARPS - 1) / WARPS, all = AT_ONCE * (uint32_t)o->r->c->multiprocessors;
    const uint32_t of_row = all / rows < 1 ? 1 : all / rows < most ? all / rows : most;
    const uint32_t longest = dim > l->head_dim_v ? dim : l->head_dim_v;
    const struct lode_cuda_kernels *kernels = &o->r->c->kernels;
    void *const kernel = dim != l->head_dim_v ? kernels->prepare : dim == 128 ? kernels->prepare_128
                         : dim == 64 ? kernels->prepare_64 : kernels->prepare;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, rows, of_row, 1, 32 * WARPS, WARPS * longest * 4, &a));
    return (int)put + 1;
}
