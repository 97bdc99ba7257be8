/* weights.c - what the device can run, and what weights take there (upload.c brings them). */
#include "backend/cuda/cuda.h"
#include "backend/route_groups.h"

/* One that is added to the list and not here is named, and the CPU takes the model. */
static const bool has_op[LODE_OP_COUNT] = {
    [LODE_OP_INPUT] = true, [LODE_OP_EMBED] = true, [LODE_OP_RMS_NORM] = true,
    [LODE_OP_LAYER_NORM] = true, [LODE_OP_QUANT] = true, [LODE_OP_LINEAR] = true,
    [LODE_OP_ROPE_TABLE] = true, [LODE_OP_ROPE] = true, [LODE_OP_UNPAIR] = true,
    [LODE_OP_KV_PUT] = true, [LODE_OP_ATTENTION] = true, [LODE_OP_ADD] = true,
    [LODE_OP_GLU] = true, [LODE_OP_ACT] = true, [LODE_OP_ROW_GATE] = true, [LODE_OP_ROUTE] = true,
    [LODE_OP_EXPERTS] = true, [LODE_OP_EXPERTS_IN] = true, [LODE_OP_EXPERTS_OUT] = true,
    [LODE_OP_ALL_GATHER] = true, [LODE_OP_SCALE] = true, [LODE_OP_TEMPERATURE] = true,
    [LODE_OP_SOFTCAP] = true, [LODE_OP_PICK] = true, [LODE_OP_GATHER] = true,
    [LODE_OP_SLICE] = true, [LODE_OP_CUT] = true, [LODE_OP_JOIN] = true, [LODE_OP_HEADS] = true,
    [LODE_OP_TRACE] = true, [LODE_OP_L2_NORM] = true, [LODE_OP_CONV] = true,
    [LODE_OP_DELTA_GATES] = true, [LODE_OP_DELTA] = true,
};

/* TILE queries, keys or values, TILE rows of scores and of sums, and a little. */
uint32_t lode_cuda_attention_shared(const struct lode_cuda *c, uint32_t head_dim, uint32_t head_dim_v, uint32_t *kv_rows) {
    const uint32_t dim = head_dim > head_dim_v ? head_dim : head_dim_v;
    const uint32_t ld = ((dim + 15) & ~15u) + 4, beside = 4 * (16 * ld + 16 * 64 + 16 * head_dim_v + 9 * 16);
    *kv_rows = LODE_KV_PAGE;
    while (*kv_rows > 4 && beside + 4 * *kv_rows * ld > lode_cuda_room(c))
        *kv_rows /= 2;
    return beside + 4 * *kv_rows * ld;
}

int lode_cuda_check(const struct lode_cuda *c, const struct lode_node *n, bool float_act,
                    struct lode_error *err) {
    if (!has_op[n->op])
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                         "the model needs %s, which has no CUDA kernel yet", lode_ops[n->op].name);
    for (int i = 0; i < LODE_MAX_WEIGHTS; i++) {
        const struct lode_operand *w = n->w[i];
        if (w && !lode_cuda_layouts[w->type].n)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                             "weights of type %s have no CUDA kernel yet", lode_dtypes[w->type].name);
        if (w && float_act && !lode_cuda_layouts[w->type].plain && n->op != LODE_OP_EMBED)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--float-act",
                             "float activations for quantised weights run on the CPU only");
    }
    if (n->op == LODE_OP_ATTENTION) {
        uint32_t kv_rows;
        const uint32_t bytes = lode_cuda_attention_shared(c, n->p.attention.head_dim, n->p.attention.head_dim_v, &kv_rows);
        if (bytes > lode_cuda_room(c))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                             "attention heads of %u and %u numbers need %u bytes of shared memory; "
                             "'%s' has %d",
                             n->p.attention.head_dim, n->p.attention.head_dim_v, bytes, c->name,
                             c->shared_max);
    }
    if ((n->op == LODE_OP_RMS_NORM || n->op == LODE_OP_LAYER_NORM) &&
        n->p.rms_norm.group * 4 > lode_cuda_room(c))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                         "a norm of %u numbers is too wide for '%s'", n->p.rms_norm.group, c->name);
    if (n->op == LODE_OP_ROUTE && (n->in[0]->width > 1024 || n->p.route.n_used > 64 ||
                                   n->p.route.n_groups > LODE_ROUTE_GROUPS))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                         "%u experts are more than the CUDA kernel takes (1024)", n->in[0]->width);
    return 0;
}

/* The order of a matrix's columns lies behind it. */
uint64_t lode_cuda_weight_size(const struct lode_weight *w) {
    const uint64_t size = lode_cuda_matrix_size(&w->op);
    return w->op.order ? size + (((uint64_t)w->op.cols * sizeof *w->op.order + 255) & ~(uint64_t)255)
                       : size;
}
