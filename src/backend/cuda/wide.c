/* wide.c - products of many rows on Hopper's warpgroups (kernels/wide.cu): x is spread once, in as
 * many tiles as the scratch holds, and multiplied. */
#include "backend/cuda/run.h"

static uint32_t up(uint32_t n, uint32_t by) { return (n + by - 1) / by; }

/* Spread tiles of n rows of `cols` numbers rounded to `act`. */
struct spread {
    enum lode_dtype act;
    uint32_t cols, n;
    uint64_t size; /* bytes of one */
};
static struct spread spread_of(enum lode_dtype act, uint32_t cols, uint32_t n) {
    const uint64_t row = act == LODE_A256 ? (uint64_t)(cols / 256) * (512 + 72)
                                          : (uint64_t)up(cols, 128) * (256 + 32);
    return (struct spread){act, cols, n, row * n};
}

/* The first `tiles` of the scratch's. */
static int spread(const struct op *o, const struct spread *s, struct lode_cuda_spread_args a,
                  uint32_t tiles) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const int wide = s->n == 128;
    const bool by_256 = s->act == LODE_A256;
    a.y = o->r->scratch;
    a.tile_size = s->size;
    a.cols = s->cols;
    a.tile = s->n;
    return lode_cuda_run_kernel(o, by_256 ? k->spread_256[wide] : k->spread_32[wide], tiles * s->n,
                                up(by_256 ? s->cols / 256 : up(s->cols, 128), 8), 1, 256, 0, &a);
}

static int multiply(const struct op *o, enum lode_dtype type, const struct spread *s,
                    struct lode_cuda_gemm_args *a, uint32_t x_tiles, uint32_t w_tiles) {
    const uint32_t units = x_tiles * w_tiles, most = (uint32_t)o->r->c->multiprocessors;
    a->x = (struct lode_cuda_mat){o->r->scratch, s->size};
    a->w_tiles = w_tiles;
    return lode_cuda_run_kernel(o, o->r->c->kernels.wide[type][s->n == 128], units < most ? units : most, 1, 1,
                                LODE_WIDE_THREADS, LODE_WIDE_SHARED, a);
}

/* Those of 64 take some tenths of the time of those of 128. */
uint32_t lode_cuda_wide_rows(const struct op *o, const struct lode_operand *w, uint32_t w_tiles, uint32_t n_x) {
    const uint32_t tenths = lode_cuda_tuned(o->r->c, LODE_TUNING_tile, w->type, w->cols);
    const uint32_t units = (uint32_t)o->r->c->multiprocessors;
    return 10 * up(w_tiles * up(n_x, 128), units) <= tenths * up(w_tiles * up(n_x, 64), units) ? 128
                                                                                          : 64;
}

int lode_cuda_run_wide(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                       const struct lode_value *x, uint32_t n_x) {
    const struct lode_operand *w = parts[0].w;
    if (!o->r->c->kernels.wide[w->type][0])
        return 0;
    struct lode_cuda_gemm_args a = {.cols = w->cols, .n_parts = n_parts, .x_div = 1};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        const struct lode_part *p = &parts[i];
        a.parts[i] = lode_cuda_part(o, p, tiles);
        tiles += up(p->w->rows, LODE_WIDE_W);
    }
    const struct spread s = spread_of(x->type, w->cols, lode_cuda_wide_rows(o, w, tiles, n_x));
    const uint32_t most = (uint32_t)(LODE_CUDA_SCRATCH / s.size) * s.n; /* rows at once */
    if (most == 0)
        return 0;
    for (uint32_t first = 0; first < n_x; first += most) {
        const uint32_t some = n_x - first < most ? n_x - first : most, x_tiles = up(some, s.n);
        const struct lode_cuda_spread_args sa = {
            .x = {(lode_dev)(uintptr_t)x->data + first * x->stride, x->stride},
            .n_x = some,
            .x_div = 1};
        LODE_TRY(spread(o, &s, sa, x_tiles));
        a.n_x = some;
        LODE_TRY(multiply(o, w->type, &s, &a, x_tiles, tiles));
        for (uint32_t i = 0; i < n_parts; i++)
            a.parts[i].y += some * a.parts[i].y_stride;
    }
    return 1;
}

int lode_cuda_run_wide_sorted(const struct op *o, struct lode_cuda_gemm_args a,
                              const struct lode_operand *w, uint32_t x_tiles, uint32_t w_tiles) {
    const struct spread s = spread_of(lode_dtypes[w->type].act, w->cols, LODE_GEMM_TILE_X);
    if (!o->r->c->kernels.wide[w->type][0] || x_tiles * s.size > o->r->scratch_size)
        return 0;
    const struct lode_cuda_spread_args sa = {
        .x = a.x, .tiles = a.tiles, .list = a.list, .x_div = a.x_div};
    LODE_TRY(spread(o, &s, sa, x_tiles));
    LODE_TRY(multiply(o, w->type, &s, &a, x_tiles, w_tiles));
    return 1;
}
