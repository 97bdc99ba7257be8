/* experts.c - routed experts: their products, by pairs, by tiles of pairs of one expert or (few_experts.c) by small ones, and the sums. */
#include "backend/cuda/run.h"

static const struct lode_cuda_kernels *kernels(const struct op *o) { return &o->r->c->kernels; }

/* By pairs sorted by expert; parts of one type. */
static int multiply_sorted(const struct op *o, const struct lode_cuda_expert_product *e) {
    const struct lode_operand *w = e->parts[0].w;
    const uint32_t n_tiles = e->call->n_tiles;
    struct lode_cuda_gemm_args a = {.x = e->x,
                                    .cols = w->cols,
                                    .n_parts = e->n_parts,
                                    .x_div = e->x_div,
                                    .tiles = o->r->tiles,
                                    .list = o->r->list};
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < e->n_parts; i++) {
        const struct lode_part *p = &e->parts[i];
        a.parts[i] = (struct lode_cuda_part){.w = e->call->w[e->first + i],
                                             .bias = e->call->bias[e->first + i],
                                             .y = e->y[i],
                                             .w_stride = lode_cuda_row_size(w->type, w->cols),
                                             .y_stride = e->y_stride,
                                             .rows = p->w->rows,
                                             .first_tile = tiles};
        a.expert_size[i] = e->call->size[e->first + i];
        tiles += (p->w->rows + LODE_GEMM_TILE_W - 1) / LODE_GEMM_TILE_W;
    }
    const int wide = lode_cuda_run_wide_sorted(o, e, a, n_tiles, tiles);
    if (wide)
        return wide < 0 ? wide : 0;
    return lode_cuda_run_gemm(o, w, n_tiles, tiles, &a);
}

/* Pair by pair. */
static int multiply_pairs(const struct op *o, const struct lode_cuda_expert_product *e) {
    const struct lode_operand *w = e->parts[0].w;
    struct lode_cuda_moe_args a = {.x = e->x,
                                   .route = e->call->route,
                                   .expert_size = e->call->size[e->first],
                                   .w_stride = lode_cuda_row_size(w->type, w->cols),
                                   .y_stride = e->y_stride,
                                   .n_used = e->call->n_used,
                                   .x_div = e->x_div,
                                   .rows = w->rows,
                                   .cols = w->cols,
                                   .n_pairs = e->call->pairs,
                                   .n_kinds = e->n_parts};
    for (uint32_t i = 0; i < e->n_parts; i++) {
        a.w[i] = e->call->w[e->first + i];
        a.bias[i] = e->call->bias[e->first + i];
        a.y[i] = e->y[i];
    }
    const uint32_t tile = lode_cuda_mul_tile(w->type, 0);
    return lode_cuda_run_kernel(o, kernels(o)->moe[w->type], (w->rows + tile - 1) / tile, a.n_pairs,
                                e->n_parts, 256, 0, &a);
}

/* Whether a product is made by tiles of pairs sorted by expert. */
static bool is_sorted(const struct op *o, const struct lode_cuda_expert_call *e, const struct lode_operand *w) {
    return e->n_tiles && lode_cuda_many_kernel(o, w);
}

static int multiply(const struct op *o, const struct lode_cuda_expert_product *e) {
    const struct lode_operand *w = e->parts[0].w;
    if (e->call->few)
        return lode_cuda_multiply_few_experts(o, e);
    if (e->n_parts == 2 && e->parts[1].w->type != w->type) { /* one after the other */
        struct lode_cuda_expert_product one = *e;
        one.n_parts = 1;
        LODE_TRY(multiply(o, &one));
        one.parts++;
        one.first++;
        one.y[0] = e->y[1];
        return multiply(o, &one);
    }
    return is_sorted(o, e->call, w) ? multiply_sorted(o, e) : multiply_pairs(o, e);
}

/* Whether gate and up meet where down's x is rounded. */
static bool meets_late(const struct op *o, const struct lode_cuda_expert_call *e) {
    const struct lode_operand *down = o->in->op == LODE_OP_EXPERTS ? o->in->parts[2].w : NULL;
    return down && (e->few || (is_sorted(o, e, down) && lode_cuda_takes_wide_sorted(o, down, e->n_tiles)));
}

/* Gate, up and activation of all pairs, to r->gate; where these meet late, gate alone, and up to r->up. */
static int experts_in(const struct op *o, const struct lode_cuda_expert_call *e) {
    struct run *r = o->r;
    const struct lode_operand *gate = o->in->parts[0].w;
    const struct lode_cuda_expert_product in = {.parts = o->in->parts,
                                                .call = e,
                                                .n_parts = 2,
                                                .x_div = e->x_div,
                                                .x = e->x,
                                                .y = {r->gate, r->up},
                                                .y_stride = r->ff_stride};
    LODE_TRY(multiply(o, &in));
    if (meets_late(o, e))
        return 0;
    const struct lode_cuda_moe_act_args ma = {.gate = r->gate,
                                              .up = r->up,
                                              .y = r->gate,
                                              .route = e->route,
                                              .stride = r->ff_stride,
                                              .n = gate->rows,
                                              .n_used = e->n_used,
                                              .act = o->in->p.experts.act,
                                              .weigh_input = o->in->p.experts.weigh_input};
    return lode_cuda_run_kernel(o, kernels(o)->moe_act, e->pairs, (gate->rows + 1023) / 1024, 1, 256, 0, &ma);
}

/* From there to r->down. */
static int experts_out(const struct op *o, const struct lode_part *part, const struct lode_cuda_expert_call *e) {
    struct run *r = o->r;
    const enum lode_dtype act = lode_dtypes[part->w->type].act;
    const bool late = meets_late(o, e), rounded = !e->few && !late && lode_dtype_is_rounded(act);
    if (rounded) {
        struct lode_cuda_row_args q = {
            .y = {r->h, r->ff_stride}, .a = {r->gate, r->ff_stride}, .width = part->w->cols};
        LODE_TRY(lode_cuda_run_quant(o, act, &q, e->pairs));
    }
    const struct lode_cuda_expert_product out = {.parts = part,
                                                 .call = e,
                                                 .first = 2,
                                                 .n_parts = 1,
                                                 .x_div = 1,
                                                 .x = {rounded ? r->h : r->gate, r->ff_stride},
                                                 .up = late ? r->up : 0,
                                                 .y = {r->down},
                                                 .y_stride = r->out_stride};
    return multiply(o, &out);
}

int lode_cuda_multiply_experts(const struct op *o, const struct lode_cuda_expert_call *e) {
    LODE_TRY(experts_in(o, e));
    return experts_out(o, &o->in->parts[2], e);
}

int lode_cuda_sum_experts(const struct op *o, struct lode_cuda_mat route, struct lode_cuda_mat y, uint32_t n,
                          uint32_t n_used) {
    const uint32_t width = o->in->parts[o->in->n_parts - 1].w->rows; /* down's */
    const struct lode_cuda_moe_sum_args s = {.down = o->r->down,
                                             .route = route,
                                             .y = y,
                                             .stride = o->r->out_stride,
                                             .n = width,
                                             .n_used = n_used,
                                             .weigh_input = o->in->p.experts.weigh_input};
    const uint32_t each = n * width < 1024 * 4 * (uint32_t)o->r->c->multiprocessors ? 256 : 1024; /* numbers of a block of threads */
    return lode_cuda_run_kernel(o, kernels(o)->moe_sum, n, (width + each - 1) / each, 1, 256, 0, &s);
}

/* ---- an instruction, or a half of one, whose weights are all here ---- */

int lode_cuda_unite(const struct op *o, const struct lode_cuda_unite_args *a, uint32_t rows, uint32_t ranks) {
    return lode_cuda_run_kernel(o, kernels(o)->unite, rows, (a->width * a->n_heads + 1023) / 1024, ranks, 256, 0, a);
}

/* Between the pairs' own buffer and n rows of `rows` that have them side by side. */
static int move_pairs(const struct op *o, struct lode_cuda_mat rows, uint32_t n, uint32_t n_used, uint32_t width, bool out) {
    const uint64_t stride = o->r->ff_stride, head = width * sizeof(float);
    const struct lode_cuda_mat pairs = {o->r->gate, n_used * stride};
    const struct lode_cuda_unite_args a = {.x = out ? pairs : rows,
                                           .y = out ? rows : pairs,
                                           .x_head = out ? stride : head,
                                           .y_head = out ? head : stride,
                                           .width = width,
                                           .n_heads = n_used};
    return lode_cuda_unite(o, &a, n, 1);
}

/* Rows first .. first + n of it. */
static int experts_wave(const struct op *o, uint32_t first, uint32_t n) {
    struct run *r = o->r;
    const struct lode_instr *in = o->in;
    const struct lode_part *parts = in->parts;
    const uint32_t n_used = in->in[1].width / 2, n_experts = parts[0].w->count;
    const uint32_t first_kind = in->op == LODE_OP_EXPERTS_OUT ? 2 : 0;
    struct lode_cuda_mat y = lode_cuda_mat(&parts[0].out);
    struct lode_cuda_expert_call e = {.x = lode_cuda_mat(&in->in[0]),
                                      .route = lode_cuda_mat(&in->in[1]),
                                      .pairs = n * n_used,
                                      .n_used = n_used,
                                      .x_div = n_used};
    e.x.data += first * e.x.stride;
    e.route.data += first * e.route.stride;
    y.data += first * y.stride;
    for (uint32_t k = 0; k < in->n_parts; k++) {
        e.w[first_kind + k] = lode_cuda_weight(o, parts[k].w);
        e.bias[first_kind + k] = lode_cuda_weight(o, parts[k].bias);
        e.size[first_kind + k] = lode_cuda_expert_size(o, parts[k].w);
    }
    e.few = lode_cuda_takes_few_experts(o, &e);
    if (e.few || (n >= LODE_CUDA_MANY && n_experts <= LODE_GROUP_EXPERTS)) {
        const struct lode_cuda_group_args g = {.route = e.route,
                                               .tiles = r->tiles,
                                               .list = r->list,
                                               .n_pairs = e.pairs,
                                               .n_used = n_used,
                                               .tile = e.few ? LODE_FEW_PAIRS : LODE_GEMM_TILE_X};
        LODE_TRY(lode_cuda_run_kernel(o, kernels(o)->group_pairs, 1, 1, 1, 1024, 0, &g));
        e.n_tiles = lode_cuda_tiles(e.pairs, n_experts, g.tile);
    }
    if (in->op == LODE_OP_EXPERTS_OUT)
        LODE_TRY(move_pairs(o, e.x, n, n_used, parts[0].w->cols, false));
    else
        LODE_TRY(experts_in(o, &e));
    if (in->op == LODE_OP_EXPERTS_IN)
        return move_pairs(o, y, n, n_used, parts[0].w->rows, true);
    LODE_TRY(experts_out(o, &parts[in->n_parts - 1], &e));
    return lode_cuda_sum_experts(o, e.route, y, n, n_used);
}

int lode_cuda_run_experts(const struct op *o) {
    const uint32_t n_used = o->in->in[1].width / 2, most = lode_cuda_wave_pairs(&o->r->o) / n_used;
    for (uint32_t first = 0; first < o->n; first += most)
        LODE_TRY(experts_wave(o, first, o->n - first < most ? o->n - first : most));
    return 0;
}
