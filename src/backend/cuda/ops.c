/* ops.c - each instruction of a plan as one launch or a few. */
#include "backend/cuda/run.h"

static const struct lode_cuda_kernels *kernels(const struct op *o) { return &o->r->c->kernels; }

static struct lode_cuda_row_args row_args(const struct op *o) {
    const struct lode_instr *in = o->in;
    const struct lode_part *p = &in->parts[0];
    return (struct lode_cuda_row_args){.step = o->r->step,
                                       .y = lode_cuda_mat(&p->out),
                                       .a = lode_cuda_mat(&in->in[0]),
                                       .b = lode_cuda_mat(&in->in[1]),
                                       .w = lode_cuda_weight(o, p->w),
                                       .bias = lode_cuda_weight(o, p->bias),
                                       .width = p->out.width,
                                       .width_a = in->in[0].width,
                                       .width_b = in->in[1].width};
}

/* Number by number: blocks of 256 threads, each with up to 4 numbers; of few rows with one, as they would come one after the other. */
static uint32_t blocks_of(const struct op *o, uint32_t width) {
    const uint32_t blocks = lode_cuda_up(width, 256);
    return o->n * blocks <= 4 * (uint32_t)o->r->c->multiprocessors ? blocks : lode_cuda_up(width, 1024);
}
static int each(const struct op *o, void *kernel, const struct lode_cuda_row_args *a) {
    return lode_cuda_run_kernel(o, kernel, o->n, blocks_of(o, a->width), 1, 256, 0, a);
}

int lode_cuda_run_row_gate(const struct op *o, const struct lode_value *y, const struct lode_cuda_row_sum *sums, uint32_t n_sums) {
    struct lode_cuda_row_gate_args a = {.x = lode_cuda_mat(&o->in->in[0]), .gate = lode_cuda_mat(&o->in->in[1]), .y = lode_cuda_mat(y),
                                        .width = y->width, .n_sums = n_sums};
    for (uint32_t i = 0; i < n_sums; i++)
        a.sums[i] = sums[i];
    return lode_cuda_run_kernel(o, kernels(o)->row_gate, o->n, blocks_of(o, a.width), 1, 256, 0, &a);
}

int lode_cuda_run_glu(const struct op *o, const struct lode_instr *cut) {
    struct lode_cuda_row_args a = row_args(o);
    a.kind = o->in->p.glu.act;
    if (cut) {
        const uint32_t heads = cut->p.cut.n_heads;
        a.a = lode_cuda_mat(&cut->in[0]);
        a.group = a.width / heads;
        a.n = cut->in[0].width / heads;
        a.first = cut->p.cut.first;
    }
    return each(o, kernels(o)->glu, &a);
}

/* CUT and JOIN: numbers to other places, by fours where all of them begin at addresses of fours.  Of many rows a thread has four of these; of
 * few the blocks are more. */
static int run_copies(const struct op *o, void *kernel, struct lode_cuda_row_args *a, uint32_t n_heads) {
    enum { EACH = 4, AT_ONCE = 8 }; /* AT_ONCE: blocks of a multiprocessor */
    const lode_dev all = a->y.data | a->y.stride | a->a.data | a->a.stride | a->b.data | a->b.stride;
    const uint32_t per = all % 16 || (a->width / n_heads | a->width_a / n_heads | a->first) % 4 ? 1 : 4;
    a->kind = per == 4;
    a->group = a->width_a / n_heads / per;
    a->width /= per;
    a->first /= per;
    a->head = lode_cuda_divisor(a->width / n_heads);
    if ((uint64_t)a->width * a->head.by > UINT32_MAX)
        a->head.part = 0;
    const uint32_t most = lode_cuda_up(a->width, 256);
    const bool many = (uint64_t)o->n * most > AT_ONCE * (uint64_t)o->r->c->multiprocessors;
    return lode_cuda_run_kernel(o, kernel, o->n, many ? lode_cuda_up(most, EACH) : most, 1, 256, 0, a);
}

static int run_embed(const struct op *o) {
    const struct lode_part *p = &o->in->parts[0];
    const struct lode_cuda_embed_args a = {.step = o->r->step,
                                           .w = lode_cuda_weight(o, p->w),
                                           .y = lode_cuda_mat(&p->out),
                                           .w_stride = lode_cuda_row_size(p->w->type, p->w->cols),
                                           .cols = p->w->cols,
                                           .by = o->in->p.embed.by,
                                           .scale = o->in->p.embed.scale};
    return lode_cuda_run_kernel(o, kernels(o)->embed[p->w->type], o->n, 1, 1, 256, 0, &a);
}

/* A norm with a block of threads for each group of a row. */
static int run_groups(const struct op *o, void *kernel, const struct lode_cuda_row_args *a) {
    const uint32_t threads = a->group >= 4096   ? 1024
                             : a->group >= 1024 ? 512
                             : a->group >= 256  ? 128
                                                : 32;
    return lode_cuda_run_kernel(o, kernel, o->n, a->width / a->group, 1, threads, a->group * 4, a);
}

static int run_layer_norm(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.layer_norm.group;
    a.eps = o->in->p.layer_norm.eps;
    return run_groups(o, kernels(o)->layer_norm, &a);
}

int lode_cuda_run_rms_norm(const struct op *o, const struct lode_cuda_after_norm *after) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.rms_norm.group;
    a.eps = o->in->p.rms_norm.eps;
    a.b = (struct lode_cuda_mat){0};
    if (after) {
        a.b = after->to, a.y = after->y, a.scale = after->scale, a.product_first = after->norm_first;
        a.gates = after->gates, a.kind = after->act;
    }
    const lode_dev all = a.y.data | a.y.stride | a.a.data | a.a.stride | a.b.data | a.b.stride | a.w;
    if (all % 16 || a.group % 4 || a.group > LODE_NORM_COLS)
        return run_groups(o, kernels(o)->rms_norm_any, &a);
    const uint32_t fours = a.group / 4, fewest = lode_cuda_up(fours, LODE_NORM_FOURS),
                   least = fours < LODE_NORM_LEAST ? fours : LODE_NORM_LEAST, threads = fewest > least ? fewest : least;
    return lode_cuda_run_kernel(o, kernels(o)->rms_norm, o->n, a.width / a.group, 1, lode_cuda_up(threads, 32) * 32,
                                LODE_LANES_SIZE(lode_cuda_up(a.group, 256) * 256), &a);
}

static int run_l2_norm(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.l2_norm.group;
    a.n = o->in->p.l2_norm.n;
    a.first = o->in->p.l2_norm.n_scaled;
    a.scale = o->in->p.l2_norm.scale;
    a.eps = o->in->p.l2_norm.eps;
    return lode_cuda_run_kernel(o, kernels(o)->l2_norm, o->n, a.n / a.group + 1, 1, 128,
                                a.group * 4, &a);
}

int lode_cuda_run_quant(const struct op *o, enum lode_dtype type, struct lode_cuda_row_args *a,
                        uint32_t n) {
    const uint32_t blocks = a->width / lode_dtypes[type].block;
    const uint32_t each = type == LODE_A32 ? 32 : 8; /* of a block of threads */
    return lode_cuda_run_kernel(o,
                                type == LODE_A32 ? kernels(o)->quant_a32 : kernels(o)->quant_a256,
                                n, (blocks + each - 1) / each, 1, 256, 0, a);
}

static int run_quant(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    return lode_cuda_run_quant(o, o->in->parts[0].out.type, &a, o->n);
}

uint32_t lode_cuda_mul_tile(enum lode_dtype type, int i) {
    static const uint32_t tile[4] = {16, 16, 8, 4};
    return lode_cuda_layouts[type].plain ? 32 : tile[i];
}

void *lode_cuda_many_kernel(const struct op *o, const struct lode_operand *w) {
    const bool whole = !lode_cuda_layouts[w->type].plain || w->cols % 64 == 0; /* kernels/products/gemm_float.cu */
    return whole ? o->r->c->kernels.gemm[w->type] : NULL;
}
static uint32_t many_depth(const struct lode_operand *w) { return lode_cuda_layouts[w->type].plain ? 4 : 1; }
int lode_cuda_run_gemm(const struct op *o, const struct lode_operand *w, uint32_t x_tiles, uint32_t w_tiles,
                       const struct lode_cuda_gemm_args *a) {
    void *const large = kernels(o)->gemm_large[w->type];
    if (large && !a->tiles && a->n_x > 2 * LODE_GEMM_TILE_X)
        return lode_cuda_run_kernel(o, large, (a->n_x + LODE_GEMM_LARGE_X - 1) / LODE_GEMM_LARGE_X, w_tiles, 1,
                                    LODE_GEMM_THREADS * LODE_GEMM_LARGE_X, LODE_GEMM_LARGE_SHARED, a);
    return lode_cuda_run_kernel(o, kernels(o)->gemm[w->type], x_tiles, w_tiles, many_depth(w), LODE_GEMM_THREADS * LODE_GEMM_TILE_X,
                                lode_cuda_gemm_shared(w->type), a);
}

/* Parts of one type as one product of many rows; a: all but the parts. */
static int run_many(const struct op *o, const struct lode_part *parts, uint32_t n_parts, struct lode_cuda_gemm_args a) {
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < n_parts; i++) {
        a.parts[a.n_parts++] = lode_cuda_part(o, &parts[i], tiles);
        tiles += lode_cuda_up(parts[i].w->rows, LODE_GEMM_TILE_W);
    }
    return lode_cuda_run_gemm(o, parts[0].w, lode_cuda_up(a.n_x, LODE_GEMM_TILE_X), tiles, &a);
}

/* Rows of x of a block of threads of mul.cuh, as a power of two: of floats as few as keep half of the multiprocessors busy, as
 * a router's matrix has four tiles and is read from the second cache. */
static int rows_at_once(const struct op *o, const struct lode_operand *w, uint32_t n_x) {
    const uint32_t wanted = (uint32_t)o->r->c->multiprocessors / 2, tile = lode_cuda_mul_tile(w->type, 0), tiles = (w->rows + tile - 1) / tile;
    int i = 0;
    while (i < 3 && 1u << i < n_x)
        i++;
    while (lode_cuda_layouts[w->type].plain && i > 0 && tiles * ((n_x + (1u << i) - 1) >> i) < wanted)
        i--;
    return i;
}

/* Of floats: whether tiles of many rows of x would leave most multiprocessors without work. */
static bool many_are_few(const struct op *o, const struct lode_operand *w, uint32_t n_x) {
    const uint32_t blocks = (n_x + LODE_GEMM_TILE_X - 1) / LODE_GEMM_TILE_X * ((w->rows + LODE_GEMM_TILE_W - 1) / LODE_GEMM_TILE_W);
    return lode_cuda_layouts[w->type].plain && 2 * blocks * many_depth(w) <= (uint32_t)o->r->c->multiprocessors;
}

/* The same of few rows, by kernels that take any number of them (mul.cuh). */
static int run_mul(const struct op *o, const struct lode_part *parts, uint32_t n_parts, struct lode_cuda_mul_args a) {
    const enum lode_dtype type = parts[0].w->type;
    const int i = rows_at_once(o, parts[0].w, a.n_x);
    const uint32_t tile = lode_cuda_mul_tile(type, i);
    uint32_t tiles = 0;
    for (uint32_t k = 0; k < n_parts; k++) {
        const uint32_t rows = parts[k].w->rows;
        a.parts[a.n_parts++] = lode_cuda_part(o, &parts[k], tiles);
        tiles += a.head_rows ? rows / a.head_rows * lode_cuda_up(a.head_rows, tile) : lode_cuda_up(rows, tile);
    }
    return lode_cuda_run_kernel(o, kernels(o)->mul[type][i], tiles, lode_cuda_up(a.n_x, 1u << i), 1, 256, 0, &a);
}

static int run_linear(const struct op *o) {
    const struct lode_instr *in = o->in;
    const struct lode_cuda_mat x = lode_cuda_mat(&in->in[0]);
    const uint32_t n_x = lode_value_rows(&in->in[0], o->step);
    for (uint32_t first = 0; first < in->n_parts;) { /* runs of one type, or of what is computed alike */
        const struct lode_part *parts = in->parts + first;
        const struct lode_operand *w = parts[0].w;
        uint32_t n = lode_cuda_fast_parts(o, parts, in->n_parts - first, in->in[0].type);
        if (n > 0) {
            LODE_TRY(lode_cuda_run_fast(o, parts, n, x, n_x, NULL, NULL));
            first += n;
            continue;
        }
        n = n_x >= LODE_CUDA_MANY ? lode_cuda_wide_parts(o, parts, in->n_parts - first) : 0;
        if (n > 0) {
            const int wide = lode_cuda_run_wide(o, parts, n, &(struct lode_cuda_wide_x){.x = x}, n_x, NULL);
            LODE_TRY(wide);
            if (wide) {
                first += n;
                continue;
            }
        }
        n = 1;
        while (first + n < in->n_parts && n < LODE_CUDA_PARTS && parts[n].w->type == w->type)
            n++;
        if (n_x >= LODE_CUDA_MANY && lode_cuda_many_kernel(o, w) && !(lode_cuda_router_rows(parts, n) != UINT32_MAX && many_are_few(o, w, n_x)))
            LODE_TRY(run_many(o, parts, n, (struct lode_cuda_gemm_args){.x = x, .n_x = n_x, .cols = w->cols, .x_div = 1}));
        else
            LODE_TRY(run_mul(o, parts, n, (struct lode_cuda_mul_args){.x = x, .n_x = n_x, .cols = w->cols}));
        first += n;
    }
    return 0;
}

/* Each head's rows of the one matrix by its own columns of x: LINEAR's kernels, those of many rows where a head's rows are whole tiles, as
 * models' are.  Exact in all numerics: with float weights on the tensor cores for many rows alone, a row's bits would depend on how many there
 * are. */
int lode_cuda_run_heads(const struct op *o, const struct lode_cuda_heads *h) {
    struct lode_part p = o->in->parts[0];
    const uint32_t n_x = o->n, cols = p.w->cols, head_rows = p.w->rows / o->in->p.heads.n_heads;
    p.out.data = (char *)(uintptr_t)h->y.data;
    p.out.stride = h->y.stride;
    if (n_x >= LODE_CUDA_MANY) {
        struct lode_cuda_gemm_args a = {.x = h->x, .n_x = n_x, .cols = cols, .x_div = 1, .x_head = h->x_head, .y_head = h->y_head};
        const int wide = lode_cuda_run_wide_heads(o, &p, head_rows, a);
        if (wide != 0)
            return wide < 0 ? wide : 0;
        a.head_tiles = lode_cuda_divisor(head_rows / LODE_GEMM_TILE_W);
        if (head_rows % LODE_GEMM_TILE_W == 0 && lode_cuda_many_kernel(o, p.w) && !many_are_few(o, p.w, n_x))
            return run_many(o, &p, 1, a);
    }
    return run_mul(o, &p, 1, (struct lode_cuda_mul_args){.x = h->x, .n_x = n_x, .cols = cols, .rounds = h->rounds,
                                                         .head_rows = head_rows, .x_head = h->x_head, .y_head = h->y_head});
}

static int run_heads(const struct op *o) {
    const struct lode_value *x = &o->in->in[0];
    const struct lode_part *p = &o->in->parts[0];
    return lode_cuda_run_heads(o, &(struct lode_cuda_heads){.x = lode_cuda_mat(x), .y = lode_cuda_mat(&p->out),
                                                            .x_head = lode_cuda_numbers_size(x->type, p->w->cols)});
}

static int run_gather(const struct op *o) {
    const struct lode_operand *w = o->in->p.gather.of;
    const struct lode_cuda_gather_args a = {.order = lode_cuda_weight(o, w) + lode_cuda_matrix_size(w),
                                            .x = lode_cuda_mat(&o->in->in[0]),
                                            .y = lode_cuda_mat(&o->in->parts[0].out),
                                            .width = w->cols};
    return lode_cuda_run_kernel(o, kernels(o)->gather, o->n, 1, 1, 256, 0, &a);
}

static int run_rope_table(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.kind = o->in->p.rope_table.spec;
    a.n = o->in->p.rope_table.n_pairs;
    return each(o, kernels(o)->rope_table, &a);
}

static int run_rope(const struct op *o) {
    struct lode_cuda_row_args a = row_args(o);
    a.group = o->in->p.rope.head_dim;
    a.n = o->in->p.rope.n_pairs;
    a.kind = o->in->p.rope.pairs;
    return lode_cuda_run_kernel(o, kernels(o)->rope, o->n, o->in->p.rope.n_heads, 1,
                                a.group < 128 ? 64 : 128, a.group * 4, &a);
}

static int run_kv_put(const struct op *o) {
    const struct lode_kv_layer *l = lode_kv_layer(o->step->segments[0].kv, o->in->p.kv_put.layer);
    const struct lode_cuda_put_args a = {.step = o->r->step,
                                         .k = lode_cuda_mat(&o->in->in[0]),
                                         .v = lode_cuda_mat(&o->in->in[1]),
                                         .layer = o->in->p.kv_put.layer,
                                         .n_heads = l->n_heads,
                                         .head_dim = l->head_dim,
                                         .head_dim_v = l->head_dim_v};
    return lode_cuda_run_kernel(o, kernels(o)->kv_put, o->step->n_rows, (2 * l->n_heads + 7) / 8, 1,
                                256, 0, &a);
}

bool lode_cuda_route_args(const struct op *o, uint32_t threads, struct lode_cuda_route_args *a) {
    const struct lode_part *p = &o->in->parts[0];
    const union lode_op_params *q = &o->in->p;
    *a = (struct lode_cuda_route_args){.x = lode_cuda_mat(&o->in->in[0]),
                                       .y = lode_cuda_mat(&p->out),
                                       .bias = lode_cuda_weight(o, p->w),
                                       .n = o->in->in[0].width,
                                       .n_used = q->route.n_used,
                                       .gating = q->route.gating,
                                       .normalise = q->route.normalise,
                                       .n_groups = q->route.n_groups,
                                       .n_groups_used = q->route.n_groups_used,
                                       .scale = q->route.scale};
    while (a->part_bits < LODE_QUICK_PARTS && a->n << (a->part_bits + 1) <= threads)
        a->part_bits++;
    return a->n_groups <= 1 && a->gating != LODE_GATE_SPARSEMIXER && a->n <= LODE_QUICK_EXPERTS && a->n <= threads &&
           a->n_used <= LODE_QUICK_USED;
}

static int run_route(const struct op *o) {
    struct lode_cuda_route_args a;
    if (lode_cuda_route_args(o, 256, &a))
        return lode_cuda_run_kernel(o, kernels(o)->route_few, o->n, 1, 1, ((a.n << a.part_bits) + 31) / 32 * 32, 0, &a);
    return lode_cuda_run_kernel(o, kernels(o)->route, o->n, 1, 1, 256, 0, &a);
}

/* Rows of x side by side where the host can read them; between launches, never while capturing. */
static int read_rows(const struct op *o, const struct lode_value *x, uint32_t n) {
    const struct lode_cu *cu = &o->r->c->cu;
    const size_t row = x->width * sizeof(float);
    if (n * row > o->r->read_size)
        return lode_fail(o->err, LODE_ERR_INTERNAL, "cuda", "%zu bytes to trace, %zu expected at most", n * row,
                         o->r->read_size);
    for (uint32_t i = 0; i < n; i++)
        LODE_TRY(lode_cu_check(cu,
                               cu->to_host(o->r->read + i * row, (lode_dev)(uintptr_t)x->data + i * x->stride, row,
                                           o->r->stream),
                               "trace", o->err));
    return lode_cu_check(cu, cu->stream_wait(o->r->stream), "trace", o->err);
}

static int run_trace(const struct op *o) {
    const struct lode_value *x = &o->in->in[0];
    const uint32_t n = lode_value_rows(x, o->step);
    if (!o->step->trace || n == 0)
        return 0;
    LODE_TRY(read_rows(o, x, n));
    o->step->trace(o->step->trace_user, o->in->p.trace.layer, o->step, (const float *)o->r->read,
                   x->width * sizeof(float), x->rows == LODE_ROWS_OUT);
    return 0;
}

/* Tells whoever asked what a router has chosen. */
static int run_route_told(const struct op *o) {
    const struct lode_value *pairs = &o->in->parts[0].out;
    LODE_TRY(run_route(o));
    if (!o->step->routes || o->n == 0)
        return 0;
    LODE_TRY(read_rows(o, pairs, o->n));
    o->step->routes(o->step->trace_user, o->in->p.route.layer, o->step, (const float *)o->r->read,
                    pairs->width * sizeof(float), o->in->p.route.n_used, o->in->in[0].rows != LODE_ROWS_ALL);
    return 0;
}

int lode_cuda_run_instr(const struct op *o) {
    const union lode_op_params *p = &o->in->p;
    const struct lode_cuda_kernels *k = kernels(o);
    struct lode_cuda_row_args a = row_args(o);
    switch (o->in->op) {
    case LODE_OP_EMBED:
        return run_embed(o);
    case LODE_OP_RMS_NORM:
        return lode_cuda_run_rms_norm(o, NULL);
    case LODE_OP_LAYER_NORM:
        return run_layer_norm(o);
    case LODE_OP_L2_NORM:
        return run_l2_norm(o);
    case LODE_OP_CONV:
        return lode_cuda_run_conv(o, NULL, NULL);
    case LODE_OP_DELTA_GATES:
        return lode_cuda_run_delta_gates(o, NULL);
    case LODE_OP_DELTA:
        return lode_cuda_run_delta(o);
    case LODE_OP_QUANT:
        return run_quant(o);
    case LODE_OP_LINEAR:
        return run_linear(o);
    case LODE_OP_HEADS:
        return run_heads(o);
    case LODE_OP_ROPE_TABLE:
        return run_rope_table(o);
    case LODE_OP_ROPE:
    case LODE_OP_UNPAIR:
        return run_rope(o);
    case LODE_OP_KV_PUT:
        return run_kv_put(o);
    case LODE_OP_ATTENTION:
        return lode_cuda_run_attention(o);
    case LODE_OP_ADD:
        a.scale = p->add.scale;
        return each(o, k->add, &a);
    case LODE_OP_GLU:
        return lode_cuda_run_glu(o, NULL);
    case LODE_OP_ACT:
        a.kind = p->act.act;
        return each(o, k->act, &a);
    case LODE_OP_ROW_GATE:
        return lode_cuda_run_row_gate(o, &o->in->parts[0].out, NULL, 0);
    case LODE_OP_ROUTE:
        return run_route_told(o);
    case LODE_OP_EXPERTS:
    case LODE_OP_EXPERTS_IN:
    case LODE_OP_EXPERTS_OUT:
        return lode_cuda_run_experts(o);
    case LODE_OP_SCALE:
        a.scale = p->scale.scale;
        return each(o, k->scale, &a);
    case LODE_OP_SOFTCAP:
        a.scale = p->softcap.cap;
        return each(o, k->softcap, &a);
    case LODE_OP_TEMPERATURE:
        a.scale = p->temperature.coef;
        a.n = p->temperature.floor;
        return each(o, k->temperature, &a);
    case LODE_OP_PICK:
        return each(o, k->pick, &a);
    case LODE_OP_GATHER:
        return run_gather(o);
    case LODE_OP_CUT:
        a.first = p->cut.first;
        return run_copies(o, k->cut, &a, p->cut.n_heads);
    case LODE_OP_JOIN:
        return run_copies(o, k->join, &a, p->join.n_heads);
    case LODE_OP_TRACE:
        return run_trace(o);
    default:
        return lode_fail(o->err, LODE_ERR_INTERNAL, "cuda", "%s has no kernel",
                         lode_ops[o->in->op].name);
    }
}
