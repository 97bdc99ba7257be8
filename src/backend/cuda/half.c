#include "backend/cuda/half.h"

int lode_cuda_half_init(struct lode_cuda *c, struct half *h, uint64_t size, const char *what, struct lode_error *err) {
    const struct lode_cu *cu = &c->cu;
    LODE_TRY(lode_cu_check(cu, cu->event_create(&h->there, 2), "event", err));
    LODE_TRY(lode_cu_check(cu, cu->event_create(&h->used, 2), "event", err));
    LODE_TRY(lode_cuda_take_pinned(c, &h->host, size, err));
    return lode_cuda_take(c, &h->raw, size, "-b", what, err);
}

void lode_cuda_half_deinit(struct lode_cuda *c, struct half *h) {
    const struct lode_cu *cu = &c->cu;
    if (h->raw)
        cu->free(h->raw);
    if (h->host)
        cu->host_free(h->host);
    if (h->there)
        cu->event_destroy(h->there);
    if (h->used)
        cu->event_destroy(h->used);
    *h = (struct half){0};
}

int lode_cuda_half_open(struct lode_cuda *c, struct half *h, void *copies, struct lode_error *err) {
    const struct lode_cu *cu = &c->cu;
    LODE_TRY(lode_cu_check(cu, cu->event_wait(h->there), "copies", err));
    return lode_cu_check(cu, cu->stream_wait_event(copies, h->used, 0), "copies", err);
}

int lode_cuda_half_sent(struct lode_cuda *c, struct half *h, void *copies, struct lode_error *err) {
    return lode_cu_check(&c->cu, c->cu.event_record(h->there, copies), "copies", err);
}

int lode_cuda_half_wait(struct lode_cuda *c, struct half *h, void *stream, struct lode_error *err) {
    return lode_cu_check(&c->cu, c->cu.stream_wait_event(stream, h->there, 0), "copies", err);
}

int lode_cuda_half_done(struct lode_cuda *c, struct half *h, void *stream, struct lode_error *err) {
    return lode_cu_check(&c->cu, c->cu.event_record(h->used, stream), "copies", err);
}

int lode_cuda_repack(const struct lode_cuda *c, void *stream, enum lode_dtype type, uint32_t cols, lode_dev from,
                     lode_dev to, uint64_t rows, struct lode_error *err) {
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    struct lode_cuda_repack_args a = {.dst = to, .src = from, .rows = rows, .dst_stride = lode_cuda_row_size(type, cols),
                                      .blocks = cols / lode_dtypes[type].block, .block_size = lode_dtypes[type].bytes,
                                      .n_planes = l->n};
    for (uint32_t p = 0; p < l->n; p++) {
        a.offset[p] = l->plane[p].offset;
        a.size[p] = l->plain ? lode_dtypes[type].bytes : l->plane[p].size;
    }
    return lode_cuda_launch(c, stream, c->kernels.repack, rows < 65535 ? (uint32_t)rows : 65535, 1, 1, 256, 0, &a, err);
}
