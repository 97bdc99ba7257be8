/* wide.c - products of many rows on Hopper's warpgroups (kernels/wide.cu): x is spread once, in as many
 * tiles as the scratch holds, and multiplied. */
#include "backend/cuda/run.h"

static uint32_t up(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

/* Bytes of a spread tile of n rows. */
static uint64_t tile_size(enum lode_dtype act, uint32_t cols, uint32_t n) {
    return act == LODE_A256 ? (uint64_t)(cols / 256) * n * (512 + 72)
                            : (uint64_t)up(cols, 128) * n * (256 + 32);
}

/* Tiles of 128 rows of x (1) or of 64 (0): whichever is done sooner, where a wave of the narrower takes 0.6
 * of the time. */
static int tile_for(const struct op *o, uint32_t w_tiles, uint32_t n_x) {
    const uint32_t units = (uint32_t)o->r->c->multiprocessors;
    return 10 * up(w_tiles * up(n_x, 128), units) <= 6 * up(w_tiles * up(n_x, 64), units);
}

int lode_cuda_run_wide(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                       const struct lode_value *x, uint32_t n_x) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const struct lode_operand *w = parts[0].w;
    if (!k->wide[w->type][0])
        return 0;
    struct lode_cuda_gemm_args a = {.cols = w->cols, .n_parts = n_parts, .x_div = 1};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct lode_part *p = &parts[i];
        a.parts[i] = (struct lode_cuda_part){.w = lode_cuda_weight(o, p->w),
                                             .bias = lode_cuda_weight(o, p->bias),
                                             .y = (lode_dev)(uintptr_t)p->out.data,
                                             .w_stride = lode_cuda_row_size(w->type, w->cols),
                                             .y_stride = p->out.stride,
                                             .rows = p->w->rows,
                                             .first_tile = tiles};
        tiles += up(p->w->rows, LODE_WIDE_W);
    }
    const int wider = tile_for(o, tiles, n_x);
    const uint32_t n = wider ? 128 : 64;
    const uint64_t size = tile_size(x->type, w->cols, n);
    if (size > LODE_CUDA_SCRATCH)
        return 0;
    const uint32_t most = (uint32_t)(LODE_CUDA_SCRATCH / size) * n; /* rows at once */
    const uint32_t records = x->type == LODE_A256 ? w->cols / 256 : up(w->cols, 128);
    void *const spread = x->type == LODE_A256 ? k->spread_256[wider] : k->spread_32[wider];
    for (uint32_t first = 0; first < n_x; first += most) {
        const uint32_t some = n_x - first < most ? n_x - first : most;
        const struct lode_cuda_spread_args s = {
            .x = {(lode_dev)(uintptr_t)x->data + first * x->stride, x->stride},
            .y = o->r->scratch,
            .tile_size = size,
            .n_x = some,
            .cols = w->cols,
            .tile = n,
            .x_div = 1};
        LODE_TRY(lode_cuda_run_kernel(o, spread, up(some, n) * n, up(records, 8), 1, 256, 0, &s));
        a.x = (struct lode_cuda_mat){o->r->scratch, size};
        a.n_x = some;
        LODE_TRY(lode_cuda_run_kernel(o, k->wide[w->type][wider], up(some, n), tiles, 1, 384,
                                      LODE_WIDE_SHARED, &a));
        for (uint32_t i = 0; i < n_parts; i++)
            a.parts[i].y += some * a.parts[i].y_stride;
    }
    return 1;
}
