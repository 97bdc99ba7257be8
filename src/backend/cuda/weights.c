/* weights.c - what the device can run, and its copy of the weights.
 *
 * Weights go up through two pinned buffers, the next one filled while the last is on its way; blocks
 * are then laid out in planes by the device (kernels/shared.h). */
#include "backend/cuda/cuda.h"

#include "base/alloc.h"

#include <string.h>

enum { STAGE = 32 << 20 }; /* bytes of a buffer */

/* ---- what can run ---- */

/* One that is added to the list and not here is named, and the CPU takes the model. */
static const bool has_op[LODE_OP_COUNT] = {
    [LODE_OP_INPUT] = true, [LODE_OP_EMBED] = true, [LODE_OP_RMS_NORM] = true,
    [LODE_OP_LAYER_NORM] = true, [LODE_OP_QUANT] = true, [LODE_OP_LINEAR] = true,
    [LODE_OP_ROPE_TABLE] = true, [LODE_OP_ROPE] = true, [LODE_OP_UNPAIR] = true,
    [LODE_OP_KV_PUT] = true, [LODE_OP_ATTENTION] = true, [LODE_OP_ADD] = true,
    [LODE_OP_GLU] = true, [LODE_OP_ACT] = true, [LODE_OP_ROW_GATE] = true, [LODE_OP_ROUTE] = true,
    [LODE_OP_EXPERTS] = true, [LODE_OP_SCALE] = true, [LODE_OP_TEMPERATURE] = true,
    [LODE_OP_SOFTCAP] = true, [LODE_OP_PICK] = true, [LODE_OP_GATHER] = true,
    [LODE_OP_SLICE] = true, [LODE_OP_CUT] = true, [LODE_OP_JOIN] = true, [LODE_OP_HEADS] = true,
    [LODE_OP_TRACE] = true, [LODE_OP_L2_NORM] = true, [LODE_OP_CONV] = true,
    [LODE_OP_DELTA_GATES] = true, [LODE_OP_DELTA] = true,
};

/* (TILE + PAGE) rows of the keys or values, TILE rows of scores and of sums, and a little. */
uint32_t lode_cuda_attention_shared(uint32_t head_dim, uint32_t head_dim_v) {
    const uint32_t dim = head_dim > head_dim_v ? head_dim : head_dim_v;
    const uint32_t ld = ((dim + 15) & ~15u) + 4;
    return 4 * ((16 + 64) * ld + 16 * 64 + 16 * head_dim_v + 9 * 16);
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
        const uint32_t bytes =
            lode_cuda_attention_shared(n->p.attention.head_dim, n->p.attention.head_dim_v);
        if (bytes > (uint32_t)c->shared_max - LODE_CUDA_OWN_SHARED)
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                             "attention heads of %u and %u numbers need %u bytes of shared memory; "
                             "'%s' has %d",
                             n->p.attention.head_dim, n->p.attention.head_dim_v, bytes, c->name,
                             c->shared_max);
    }
    if ((n->op == LODE_OP_RMS_NORM || n->op == LODE_OP_LAYER_NORM) &&
        n->p.rms_norm.group * 4 > (uint32_t)c->shared_max - LODE_CUDA_OWN_SHARED)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                         "a norm of %u numbers is too wide for '%s'", n->p.rms_norm.group, c->name);
    if (n->op == LODE_OP_ROUTE && (n->in[0]->width > 1024 || n->p.route.n_used > 64 ||
                                   n->p.route.n_groups > 64))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                         "%u experts are more than the CUDA kernel takes (1024)", n->in[0]->width);
    return 0;
}

/* ---- upload ---- */

struct upload {
    struct lode_cuda *c;
    void *stream;
    struct {
        char *host;
        lode_dev raw;
        void *sent; /* event: the buffer may be filled again */
    } stage[2];
    unsigned next;
};

static int upload_init(struct upload *u, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    LODE_TRY(lode_cu_check(cu, cu->stream_create(&u->stream, 1), "stream", err));
    for (int i = 0; i < 2; i++) {
        LODE_TRY(lode_cuda_take_pinned(u->c, &u->stage[i].host, STAGE, err));
        LODE_TRY(lode_cuda_take(u->c, &u->stage[i].raw, STAGE, "--device cuda", "buffers to upload by", err));
        LODE_TRY(lode_cu_check(cu, cu->event_create(&u->stage[i].sent, 2), "event", err));
    }
    return 0;
}

static void upload_deinit(struct upload *u) {
    const struct lode_cu *cu = &u->c->cu;
    if (u->stream)
        cu->stream_wait(u->stream);
    for (int i = 0; i < 2; i++) {
        if (u->stage[i].host)
            cu->host_free(u->stage[i].host);
        if (u->stage[i].raw)
            cu->free(u->stage[i].raw);
        if (u->stage[i].sent)
            cu->event_destroy(u->stage[i].sent);
    }
    if (u->stream)
        cu->stream_destroy(u->stream);
}

/* Where rows come from: an address, or a place in the source. */
struct rows {
    const char *data; /* NULL: they are read */
    const struct lode_source *source;
    const struct lode_weight *w;
};

static int get_rows(char *out, const struct rows *r, size_t at, size_t size, struct lode_error *err) {
    if (!r->data)
        return lode_source_read(r->source, r->w->home, r->w->offset + at, out, size, err);
    memcpy(out, r->data + at, size);
    return 0;
}

/* n rows from the host to dst. */
static int send_rows(struct upload *u, lode_dev dst, const struct rows *from, struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu;
    const enum lode_dtype type = from->w->op.type;
    const uint32_t cols = from->w->op.cols;
    const uint64_t n = from->w->op.rows;
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    const size_t stride = lode_cuda_row_size(type, cols);
    size_t row = 0;
    lode_dtype_row_size(type, cols, &row);
    const uint64_t most = STAGE / row;
    if (most == 0)
        return lode_fail(err, LODE_ERR_UNSUPPORTED, "cuda", "a row of %zu bytes is too long", row);
    for (uint64_t done = 0; done < n;) {
        const uint64_t some = n - done < most ? n - done : most;
        const unsigned i = u->next++ % 2;
        LODE_TRY(lode_cu_check(cu, cu->event_wait(u->stage[i].sent), "upload", err));
        LODE_TRY(get_rows(u->stage[i].host, from, done * row, some * row, err));
        const bool as_is = l->plain && stride == row;
        const lode_dev to = as_is ? dst + done * stride : u->stage[i].raw;
        LODE_TRY(lode_cu_check(cu, cu->to_device(to, u->stage[i].host, some * row, u->stream),
                               "upload", err));
        if (!as_is) {
            struct lode_cuda_repack_args a = {.dst = dst + done * stride, .src = to, .rows = some,
                                              .dst_stride = stride, .blocks = cols / lode_dtypes[type].block,
                                              .block_size = lode_dtypes[type].bytes,
                                              .n_planes = l->n};
            for (uint32_t p = 0; p < l->n; p++) {
                a.offset[p] = l->plane[p].offset;
                a.size[p] = l->plain ? lode_dtypes[type].bytes : l->plane[p].size;
            }
            LODE_TRY(lode_cuda_launch(u->c, u->stream, u->c->kernels.repack,
                                      some < 65535 ? (uint32_t)some : 65535, 1, 1, 256, 0, &a, err));
        }
        LODE_TRY(lode_cu_check(cu, cu->event_record(u->stage[i].sent, u->stream), "upload", err));
        done += some;
    }
    return 0;
}

/* A vector that the file has in another type than F32, which is what kernels read. */
static int send_widened(struct upload *u, lode_dev dst, const struct rows *from, struct lode_error *err) {
    const struct lode_weight *w = from->w;
    struct lode_kern kern;
    lode_kern_table(&kern, LODE_ISA_scalar);
    const size_t n = (size_t)w->op.rows * w->op.cols;
    char *packed = lode_alloc(w->size, 1);
    float *wide = lode_alloc(n, sizeof *wide);
    int rc = packed && wide ? get_rows(packed, from, 0, w->size, err) : lode_fail_nomem(err, w->home->name);
    if (rc == 0) {
        kern.dequant[w->home->type](wide, packed, n);
        rc = send_rows(u, dst, &(struct rows){(const char *)wide, from->source, w}, err);
    }
    lode_free(packed);
    lode_free(wide);
    return rc;
}

/* The order of a matrix's columns lies behind it. */
uint64_t lode_cuda_weight_size(const struct lode_weight *w) {
    const uint64_t size = lode_cuda_matrix_size(&w->op);
    return w->op.order ? size + (((uint64_t)w->op.cols * sizeof *w->op.order + 255) & ~(uint64_t)255)
                       : size;
}

static int send_order(struct upload *u, lode_dev dst, const struct lode_operand *w,
                      struct lode_error *err) {
    const struct lode_cu *cu = &u->c->cu; /* from the model's own memory, while nothing else goes */
    LODE_TRY(lode_cu_check(cu, cu->stream_wait(u->stream), "upload", err));
    LODE_TRY(lode_cu_check(cu, cu->to_device(dst, w->order, w->cols * sizeof *w->order, u->stream),
                           "upload", err));
    return lode_cu_check(cu, cu->stream_wait(u->stream), "upload", err);
}

int lode_cuda_load(struct lode_cuda *c, const struct lode_source *source,
                   const struct lode_weight *weights, uint32_t n, const uint16_t *uses, uint16_t bit,
                   int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                   void *user, struct lode_error *err) {
    uint64_t total = 0;
    if (c->arena && lode_cuda_enter(c, NULL) == 0)
        c->cu.free(c->arena);
    lode_free(c->weights);
    c->arena = 0;
    c->weights = NULL;
    for (uint32_t i = 0; i < n; i++)
        total += uses[i] & bit ? lode_cuda_weight_size(&weights[i]) : 0;
    const uint64_t available = lode_cuda_available(c);
    if (total + 2 * (uint64_t)STAGE > available)
        return lode_fail(err, LODE_ERR_LIMIT, "--device cuda",
                         "the weights and the buffers to upload them by take %.0f MiB, but %.0f MiB of the "
                         "memory of '%s' are free: use a smaller or more strongly quantised model, or "
                         "--device cpu",
                         (double)(total + 2 * (uint64_t)STAGE) / 0x1p20, (double)available / 0x1p20, c->name);
    c->weights = LODE_NEW_ARRAY(lode_dev, n);
    if (!c->weights)
        return lode_fail_nomem(err, "weights");
    c->n_weights = n;
    LODE_TRY(lode_cuda_enter(c, err));
    LODE_TRY(lode_cuda_take(c, &c->arena, total, "--device cuda", "the weights", err));
    struct upload u = {.c = c};
    int rc = upload_init(&u, err);
    uint64_t at = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const struct lode_weight *w = &weights[i];
        if (!(uses[i] & bit))
            continue;
        c->weights[i] = c->arena + at;
        at += lode_cuda_weight_size(w);
        const struct rows rows = {lode_source_data(source, w->home, w->offset, w->size), source, w};
        rc = (w->op.type == w->home->type ? send_rows : send_widened)(&u, c->weights[i], &rows, err);
        if (rc == 0 && w->op.order)
            rc = send_order(&u, c->weights[i] + lode_cuda_matrix_size(&w->op), &w->op, err);
        if (rc == 0 && progress && progress(user, "uploading", at, total))
            rc = lode_fail(err, LODE_ERR_CANCELLED, "", "loading was cancelled");
    }
    if (rc == 0)
        rc = lode_cu_check(&c->cu, c->cu.stream_wait(u.stream), "upload", err);
    upload_deinit(&u);
    return rc < 0 ? rc : lode_source_check(source, err);
}
