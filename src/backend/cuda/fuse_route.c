/* fuse_route.c - a router of one row with the norm before it and the choice after it: one launch of router.cu. */
#include "backend/cuda/fuse.h"

#include "backend/cuda/kernels/chosen_shared.h"

/* Bytes of rows of a block of threads: more take longer to come, to so few multiprocessors, than launches of their own. */
enum { MOST_ROWS = 64 << 10 };

int lode_cuda_run_router(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_part *part = c->mul->parts;
    const struct lode_instr *choice = o->in + c->n;
    const uint32_t rows = part->w->rows, cols = part->w->cols;
    void *const kernel = o->r->c->kernels.router[part->w->type];
    if (!kernel || c->n == n || choice->op != LODE_OP_ROUTE || o->step->routes || c->mul->n_parts != 1 || c->quant || c->glu ||
        c->add || !same_place(&choice->in[0], result_of(c->mul)) || rows % LODE_ROUTER_BLOCKS || rows > LODE_ROUTER_EXPERTS ||
        cols % 4 || lode_cuda_writes_what_it_reads(o, c, result_of(c->mul)))
        return 0;
    const struct op route = {o->r, choice, o->step, o->err, o->n};
    struct lode_cuda_router_args s = {.a = {.n_parts = 1, .cols = cols, .per_unit = 1}, .route = lode_cuda_route_args(&route)};
    if (!lode_cuda_set_copies(o, n, c, &s.a))
        return 0;
    lode_cuda_set_input(o, c, &s.a);
    s.a.parts[0] = lode_cuda_gemv_part(o, part, 0);
    s.a.rows_at = cols * 4 * (c->norm ? 2 : 1); /* x, and the norm's weights */
    const uint32_t own = rows / LODE_ROUTER_BLOCKS * (s.a.parts[0].w_stride + LODE_ROWS_APART), shared = s.a.rows_at + own;
    if (s.a.parts[0].w_stride % 16 || own > MOST_ROWS || shared > lode_cuda_room(o->r->c))
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, LODE_ROUTER_BLOCKS, 1, 1, LODE_ROUTER_THREADS, shared, &s));
    return (int)c->n + 1;
}
