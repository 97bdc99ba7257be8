/* few_experts.c - routed experts of a few rows: pairs of a row and an expert in groups of eight of one expert (kernels/experts/few_experts.cu). */
#include "backend/cuda/fuse.h"

/* Whether a product's x is rounded in blocks of 32. */
static bool is_by_32(const struct lode_part *parts, uint32_t n) { return lode_cuda_common_act(parts, n) == LODE_A32; }

static uint64_t x_size(const struct lode_part *parts, uint32_t n, uint32_t groups) {
    return (uint64_t)parts[0].w->cols / 256 * (is_by_32(parts, n) ? LODE_FEW_X32 : LODE_FEW_X256) * groups;
}

/* Warps of a block of threads, each with a ring of f->depth items of f->slot_size; 0: no room. */
static uint32_t lay_out_rings(const struct op *o, const struct lode_part *parts, uint32_t n, struct lode_cuda_few_experts_args *f) {
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t size = lode_cuda_few_slot(parts[i].w->type);
        f->slot_size = size > f->slot_size ? size : f->slot_size;
    }
    const uint32_t warps = lode_cuda_few_warps(o, LODE_FEW_WARPS, LODE_FEW_SUMS, f->slot_size);
    if (warps == 0)
        return 0;
    f->depth = lode_cuda_few_depth(o, lode_cuda_room(o->r->c) - warps * LODE_FEW_SUMS, warps * f->slot_size, parts[0].w->type, parts[0].w->cols);
    return f->depth >= 2 ? warps : 0;
}

static bool takes(const struct op *o, const struct lode_part *parts, uint32_t n, uint32_t groups) {
    struct lode_cuda_few_experts_args rings = {0};
    for (uint32_t i = 0; i < n; i++)
        if (parts[i].w->cols % 256 || parts[i].w->cols != parts[0].w->cols)
            return false;
    return lode_cuda_all_few(parts, n) && lode_dtype_is_rounded(lode_cuda_common_act(parts, n)) &&
           x_size(parts, n, groups) <= LODE_CUDA_SCRATCH && lay_out_rings(o, parts, n, &rings) > 0;
}

bool lode_cuda_takes_few_experts(const struct op *o, const struct lode_cuda_expert_call *e) {
    const struct lode_part *parts = o->in->parts;
    const uint32_t n = o->in->n_parts, n_in = n < 2 ? 0 : 2, n_experts = parts[0].w->count,
                   groups = lode_cuda_tiles(e->pairs, n_experts, LODE_FEW_PAIRS);
    return e->pairs > e->n_used && e->pairs <= LODE_FEW_PAIRS * n_experts && n_experts <= LODE_GROUP_EXPERTS &&
           (n_in == 0 || takes(o, parts, n_in, groups)) && (n == 2 || takes(o, parts + n_in, 1, groups));
}

/* Which kernel knows all of a product's types. */
static void *kernel_of(const struct op *o, const struct lode_part *parts, uint32_t n) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    void *const kernels[] = {[LODE_CUDA_FEW_A256] = k->few_experts_a256,
                             [LODE_CUDA_FEW_A32] = k->few_experts_a32,
                             [LODE_CUDA_FEW_OWN] = k->few_experts_own,
                             [LODE_CUDA_FEW_Q4_Q6] = k->few_experts_q4_q6,
                             [LODE_CUDA_FEW_Q5_Q6] = k->few_experts_q5_q6};
    return kernels[lode_cuda_few_kind(parts, n)];
}

int lode_cuda_multiply_few_experts(const struct op *o, const struct lode_cuda_expert_product *p) {
    const struct lode_cuda_expert_call *e = p->call;
    const struct lode_part *parts = p->parts;
    const uint32_t cols = parts[0].w->cols;
    const bool by32 = is_by_32(parts, p->n_parts);
    const struct lode_cuda_few_pairs_args x = {.x = p->x,
                                               .route = e->route,
                                               .up = p->up,
                                               .tiles = o->r->tiles,
                                               .list = o->r->list,
                                               .y = o->r->scratch,
                                               .cols = cols,
                                               .x_div = p->x_div,
                                               .n_used = e->n_used,
                                               .input = p->first == 0 ? LODE_GEMV_AS_IS : LODE_GEMV_ROUND,
                                               .act = o->in->p.experts.act,
                                               .weigh_input = p->up && o->in->p.experts.weigh_input};
    LODE_TRY(lode_cuda_run_kernel(o, by32 ? o->r->c->kernels.few_pairs_32 : o->r->c->kernels.few_pairs_256, e->n_tiles,
                                  (8 * cols / 256 + LODE_FEW_WARPS - 1) / LODE_FEW_WARPS, 1, 32 * LODE_FEW_WARPS, 0, &x));
    struct lode_cuda_few_experts_args f = {
        .x = x.y, .tiles = x.tiles, .list = x.list, .y_stride = p->y_stride, .n_parts = p->n_parts, .cols = cols};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        const struct lode_operand *w = parts[i].w;
        f.parts[i] = (struct lode_cuda_few_experts_part){.w = e->w[p->first + i],
                                                         .bias = e->bias[p->first + i],
                                                         .y = p->y[i],
                                                         .expert_size = e->size[p->first + i],
                                                         .w_stride = lode_cuda_row_size(w->type, cols),
                                                         .type = w->type,
                                                         .rows = w->rows,
                                                         .tiles = (w->rows + LODE_GEMV_TILE - 1) / LODE_GEMV_TILE};
        tiles += f.parts[i].tiles;
    }
    f.each = lode_cuda_divisor(tiles);
    const uint32_t warps = lay_out_rings(o, parts, p->n_parts, &f); /* for which lode_cuda_takes_few_experts has found room */
    return lode_cuda_run_kernel(o, kernel_of(o, parts, p->n_parts), (uint32_t)o->r->c->multiprocessors, 1, 1, 32 * warps,
                                warps * (LODE_FEW_SUMS + f.depth * f.slot_size), &f);
}
