/* fast_packed.c - packed weights in --numerics fast: halves of what a row's codes mean and rows of x rounded to
 * halves, on Hopper's tensor cores (kernels/products/fast_items.cuh).  Rows of x come as for F16 weights, numbers at even places
 * of sixteen before the others. */
#include "backend/cuda/run.h"

bool lode_cuda_is_packed(enum lode_dtype type) {
    return lode_dtype_is_rounded(lode_dtypes[type].act);
}

bool lode_cuda_takes_floats(const struct lode_cuda *c, const struct lode_operand *w) {
    const struct lode_cuda_kernels *k = &c->kernels;
    bool all = k->packed.x && k->packed.few_x && k->packed.wide[w->type][0] && k->packed.wide[w->type][1];
    for (int i = 0; i < 8; i++)
        all &= k->packed.few[i / 4][i % 4] != NULL;
    return all && lode_cuda_is_packed(w->type) && w->cols % LODE_FAST_SLICE == 0 &&
           lode_cuda_fast_tile(w->cols) <= LODE_CUDA_SCRATCH;
}

/* ---- a few rows ---- */

int lode_cuda_run_few_packed(const struct op *o, struct lode_cuda_few_args *f, struct lode_cuda_fast_x_args *x) {
    const uint32_t n_x = f->a.n_x, columns = lode_cuda_groups_of(n_x);
    const bool by32 = lode_dtypes[f->a.parts[0].type].act == LODE_A32;
    struct lode_cuda_few_launch l;
    if (!lode_cuda_lay_out_few(o, columns, 0, f, &l))
        return lode_fail(o->err, LODE_ERR_INTERNAL, "--numerics fast", "no shared memory for %u rows of %u numbers", n_x,
                         f->a.cols);
    x->groups = n_x == 1 ? 0 : columns;
    LODE_TRY(lode_cuda_run_kernel(o, o->r->c->kernels.packed.few_x, n_x, 1, 1, 512,
                                  x->input == LODE_GEMV_NORM ? x->cols * 4 : 0, x));
    f->a.x = x->y;
    return lode_cuda_run_kernel(o, o->r->c->kernels.packed.few[by32][lode_cuda_few_size(x->groups)], l.grid, 1, 1, 32 * l.warps, l.shared, f);
}

/* ---- many ---- */

int lode_cuda_multiply_packed(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                              const struct lode_cuda_mat *y, uint64_t tile_size, uint32_t n_x,
                              const struct lode_cuda_fast_end *end) {
    const bool gated = end->output == LODE_GEMV_GLU; /* by one unit for both */
    for (uint32_t p = 0; p < n_parts;) { /* runs of one type */
        const struct lode_operand *w = parts[p].w;
        struct lode_cuda_packed_args f = {.g = {.x = {o->r->scratch, tile_size}, .n_x = n_x, .cols = w->cols, .x_div = 1},
                                          .end = *end};
        struct lode_cuda_gemm_args *a = &f.g;
        for (; p < n_parts && parts[p].w->type == w->type; p++) {
            struct lode_cuda_part *part = &a->parts[a->n_parts++];
            *part = lode_cuda_part(o, &parts[p], a->w_tiles);
            part->y = y[p].data;
            part->y_stride = y[p].stride;
            a->w_tiles += (part->rows + LODE_WIDE_W - 1) / LODE_WIDE_W;
        }
        if (gated) { /* half a tile of each; the second part has none of its own */
            a->w_tiles = a->parts[0].rows / (LODE_WIDE_W / 2);
            a->n_parts = 1;
        }
        const uint32_t rows = gated ? 128 : lode_cuda_wide_rows(o, w, a->w_tiles, n_x), units = (n_x + rows - 1) / rows * a->w_tiles,
                       most = (uint32_t)o->r->c->multiprocessors;
        void *const kernel = gated ? o->r->c->kernels.packed.gated[w->type] : o->r->c->kernels.packed.wide[w->type][rows == 128];
        LODE_TRY(lode_cuda_run_kernel(o, kernel, units < most ? units : most,
                                      1, 1, LODE_WIDE_THREADS, LODE_WIDE_SHARED, &f));
    }
    return 0;
}
