/* fuse.c - several instructions as one launch: what decoding one token is made of.
 *
 *     [RMS_NORM] [QUANT] LINEAR [GLU | ADD]     gemv.cu, gemv_float.cu, gemv_stream.cu; steps of one row
 *         .. the same with quantised weights    few.cu, two launches; steps of 2 to 32 rows, and of
 *                                               one long row that is only rounded before; of more on
 *                                               Hopper wide.cu, wide_glu.cu
 *         .. the same with --numerics fast      gemv_fast.cu, few_fast.cu; steps of up to 32 rows; of more
 *                                               gemm_fast.cu, wide_fast.cu, wide_gated.cu
 *     [QUANT] EXPERTS [ADD]                     two launches of gemv.cu; steps of one row
 *         .. EXPERTS_IN, EXPERTS_OUT [ADD]      one each
 *     [norms and rotations of q and k] KV_PUT   positions.cu's prepare; any step
 *         .. ATTENTION                          and decode.cu; steps of one row a sequence
 *
 * What lies between them is not written where nobody reads it later.  As instructions share
 * buffers, a fused launch must not write what it reads; where it would, nothing is fused. */
#include "backend/cuda/run.h"

enum {
    BUDGET = 200 << 10, /* bytes of shared memory: more where one tile does not fit */
    TILES = 128,        /* that a block of threads may have, gemv.cuh's LODE_GEMV_TILES */
};

/* ---- values ---- */

static size_t row_bytes(const struct lode_value *v) {
    size_t bytes = 0;
    lode_dtype_row_size(v->type, v->width, &bytes);
    return bytes;
}

/* Whether n rows of both have bytes in common; values of one stride may lie side by side in its
 * rows. */
static bool overlap(const struct lode_value *a, const struct lode_value *b, uint32_t n) {
    const uintptr_t p = (uintptr_t)a->data, q = (uintptr_t)b->data;
    if (!p || !q)
        return false;
    if (a->stride == b->stride && (p < q ? q - p : p - q) < a->stride)
        return p < q ? q - p < row_bytes(a) : p - q < row_bytes(b);
    return p < q + b->stride * n && q < p + a->stride * n;
}

/* Whether any of the instructions from `from` on, n in all, reads what v holds. */
static bool read_later(const struct op *o, uint32_t from, uint32_t n, const struct lode_value *v) {
    const struct lode_instr *in = o->in;
    const uint32_t rows = o->n;
    for (uint32_t i = from; i < n; i++) {
        if (overlap(v, &in[i].in[0], rows) || overlap(v, &in[i].in[1], rows))
            return true;
        for (uint32_t k = 0; k < in[i].n_parts; k++) {
            const struct lode_value *out = &in[i].parts[k].out;
            if (overlap(v, out, rows)) /* memory is given away only when nobody reads what was in it */
                return false;
        }
    }
    return false;
}

static const struct lode_value *result_of(const struct lode_instr *in) { return &in->parts[0].out; }

static lode_dev address(const struct lode_value *v) { return (lode_dev)(uintptr_t)v->data; }

static bool same_place(const struct lode_value *a, const struct lode_value *b) {
    return a->data && a->data == b->data && a->width == b->width;
}

/* ---- products ---- */

struct chain { /* what was recognised; n: instructions */
    const struct lode_instr *norm, *quant, *mul, *glu, *add;
    uint32_t n;
};

static bool is_next(const struct op *o, uint32_t i, uint32_t n, enum lode_op op) {
    return i < n && o->in[i].op == op;
}

static bool is_experts(enum lode_op op) {
    return op == LODE_OP_EXPERTS || op == LODE_OP_EXPERTS_IN || op == LODE_OP_EXPERTS_OUT;
}

/* [RMS_NORM] [QUANT] and a product of what they give. */
static bool find_chain(const struct op *o, uint32_t n, struct chain *c) {
    *c = (struct chain){0};
    uint32_t i = 0;
    const struct lode_value *x = &o->in->in[0];
    if (is_next(o, i, n, LODE_OP_RMS_NORM)) {
        if (o->in[i].p.rms_norm.group != x->width)
            return false;
        c->norm = &o->in[i++];
        x = result_of(c->norm);
    }
    if (is_next(o, i, n, LODE_OP_QUANT) && same_place(&o->in[i].in[0], x)) {
        c->quant = &o->in[i++];
        x = result_of(c->quant);
    }
    if (!is_next(o, i, n, LODE_OP_LINEAR) && !(i < n && is_experts(o->in[i].op) && !c->norm))
        return false;
    c->mul = &o->in[i];
    if (!same_place(&c->mul->in[0], x))
        return false;
    const struct lode_value *y = result_of(c->mul);
    const uint32_t n_parts = c->mul->n_parts;
    i++;
    if (is_next(o, i, n, LODE_OP_GLU) && c->mul->op == LODE_OP_LINEAR && n_parts == 2 &&
        same_place(&o->in[i].in[0], y) && same_place(&o->in[i].in[1], &c->mul->parts[1].out)) {
        c->glu = &o->in[i++];
        if (!same_place(result_of(c->glu), y) && read_later(o, i, n, y))
            return false;
        if (!same_place(result_of(c->glu), &c->mul->parts[1].out) &&
            read_later(o, i, n, &c->mul->parts[1].out))
            return false;
    } else if (is_next(o, i, n, LODE_OP_ADD) && (n_parts == 1 || c->mul->op == LODE_OP_EXPERTS) &&
               same_place(&o->in[i].in[0], y) != same_place(&o->in[i].in[1], y)) {
        c->add = &o->in[i++];
        if (!same_place(result_of(c->add), y) && read_later(o, i, n, y))
            c->add = NULL, i--;
    }
    c->n = i;
    return true;
}

static const struct lode_value *input_of(const struct chain *c) {
    return c->norm ? &c->norm->in[0] : c->quant ? &c->quant->in[0] : &c->mul->in[0];
}
static const struct lode_value *residual_of(const struct chain *c) {
    return !c->add ? NULL : &c->add->in[same_place(&c->add->in[0], result_of(c->mul))];
}

/* The rows that others read too; false where one would be written over x. */
static bool set_copies(const struct op *o, uint32_t n, const struct chain *c,
                       struct lode_cuda_gemv_args *a) {
    const uint32_t after = (uint32_t)(c->mul - o->in);
    if (c->norm && read_later(o, after + (c->quant != NULL ? 0 : 1), n, result_of(c->norm))) {
        if (overlap(result_of(c->norm), input_of(c), o->n))
            return false;
        a->x_out = address(result_of(c->norm));
    }
    if (c->quant && read_later(o, after + 1, n, result_of(c->quant))) {
        if (overlap(result_of(c->quant), input_of(c), o->n))
            return false;
        a->q_out = address(result_of(c->quant));
    }
    return true;
}

static bool writes_what_it_reads(const struct op *o, const struct chain *c,
                                 const struct lode_value *y) {
    const struct lode_value *res = residual_of(c);
    return overlap(y, input_of(c), o->n) || (res && !same_place(y, res) && overlap(y, res, o->n));
}

static void set_input(const struct op *o, const struct chain *c, struct lode_cuda_gemv_args *a) {
    a->x = address(input_of(c));
    a->n_x = 1;
    a->input = c->norm ? LODE_GEMV_NORM : c->quant ? LODE_GEMV_ROUND : LODE_GEMV_AS_IS;
    if (c->norm) {
        a->norm = lode_cuda_weight(o, c->norm->parts[0].w);
        a->eps = c->norm->p.rms_norm.eps;
    }
}

static void set_residual(const struct chain *c, struct lode_cuda_gemv_args *a) {
    if (c->add) {
        a->residual = address(residual_of(c));
        a->product_first = same_place(&c->add->in[0], result_of(c->mul));
        a->scale = c->add->p.add.scale;
    }
}

/* Types whose blocks add a second pair of numbers each (a minimum, or m). */
static bool has_min(uint32_t type) { return type == LODE_Q4_1 || type == LODE_Q5_1; }

/* Shared memory and the grid of a gemv of quantised weights; false: no room. */
static bool lay_out(const struct op *o, struct lode_cuda_gemv_args *a, bool by32, uint32_t *grid,
                    uint32_t *shared) {
    const struct lode_cuda *c = o->r->c;
    const uint32_t nb = a->cols / (by32 ? 32 : 256), nb8 = (nb + 7) & ~7u;
    bool min = !by32;
    uint32_t tile = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        min |= has_min(a->parts[i].type);
        tile = a->parts[i].w_stride > tile ? a->parts[i].w_stride : tile;
    }
    a->ld =
        4 * ((min ? by32 ? nb8 : nb : nb8 / 2) | 1); /* an odd number of 16 bytes: no bank twice */
    *grid = a->n_units < (uint32_t)c->multiprocessors ? a->n_units : (uint32_t)c->multiprocessors;
    const uint64_t x = (uint64_t)a->n_x * (by32 ? nb8 * 40 : nb * 304);
    /* x as it comes, and the norm's weights behind it */
    const uint64_t floats = a->input == LODE_GEMV_AS_IS ? 0 : (a->n_x + (a->input == LODE_GEMV_NORM)) * a->cols * 4ull;
    const uint64_t unit = (uint64_t)a->per_unit * LODE_GEMV_TILE * 4 * (a->ld + 1);
    const uint64_t most = (uint64_t)c->shared_max - LODE_CUDA_OWN_SHARED;
    const uint32_t own = (a->n_units + *grid - 1) / *grid;
    const uint64_t room = x + unit <= BUDGET && x + floats <= BUDGET ? BUDGET : most;
    if (x + unit > room || x + floats > room || (uint64_t)own * a->per_unit > TILES)
        return false;
    uint64_t phase = (room - x) / unit;
    phase = phase < own ? phase : own;
    const uint64_t phases = (own + phase - 1) / phase;
    a->phase = (uint32_t)((own + phases - 1) / phases);
    a->x_at = (uint32_t)(a->phase * unit > floats ? a->phase * unit : floats);
    *shared = (uint32_t)(a->x_at + x);
    const uint32_t bytes = lode_cuda_tuned(c, LODE_TUNING_ahead, a->parts[0].type, a->cols) << 10;
    const uint32_t ahead = bytes / (tile * LODE_GEMV_TILE);
    a->ahead = ahead < 1 ? 1 : ahead > 16 ? 16 : ahead;
    return true;
}

/* The next product's first weights, of which n instructions are left. */
static void set_next(const struct op *o, uint32_t n, const struct chain *c, uint32_t grid,
                     struct lode_cuda_gemv_args *a) {
    for (uint32_t i = c->n; i < n; i++) {
        if (is_experts(o->in[i].op))
            return; /* nobody knows which */
        if (o->in[i].op != LODE_OP_LINEAR)
            continue;
        const struct lode_operand *w = o->in[i].parts[0].w;
        const uint64_t size = (uint64_t)lode_cuda_row_size(w->type, w->cols) * w->rows;
        const uint64_t most = (uint64_t)lode_cuda_tuned(o->r->c, LODE_TUNING_next, w->type, w->cols) << 20;
        a->next = lode_cuda_weight(o, w); /* a small part of the second cache */
        a->next_size = (uint32_t)((size < most ? size : most) / grid) & ~15u;
        return;
    }
}

static bool all_of(const struct lode_cuda_gemv_args *a, uint32_t type, uint32_t other) {
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].type != type && a->parts[i].type != other)
            return false;
    return true;
}
/* Kernels that know few types are faster (gemv.cuh, types_of): for those that most files are made of. */
static void *gemv_kernel(const struct lode_cuda_kernels *k, const struct lode_cuda_gemv_args *a, bool by32) {
    if (by32)
        return all_of(a, LODE_Q8_0, LODE_Q8_0) ? k->gemv_only_q8_0 : k->gemv_a32;
    return all_of(a, LODE_Q4_K, LODE_Q6_K)   ? k->gemv_only_q4_k
           : all_of(a, LODE_Q5_K, LODE_Q6_K) ? k->gemv_only_q5_k
                                             : k->gemv_a256;
}

static int run_gemv(const struct op *o, uint32_t n, const struct chain *c,
                    struct lode_cuda_gemv_args *a, enum lode_dtype act) {
    uint32_t grid = 0, shared = 0;
    if (!lay_out(o, a, act == LODE_A32, &grid, &shared))
        return 0;
    set_next(o, n, c, grid, a);
    LODE_TRY(lode_cuda_run_kernel(o, gemv_kernel(&o->r->c->kernels, a, act == LODE_A32), grid, 1, 1, 512,
                                  shared, a));
    return 1;
}

/* What the parts of a product have in common: their activations' type, LODE_F32 for one type of
 * floats; LODE_NONE: nothing that a gemv could do. */
static enum lode_dtype common_act(const struct lode_part *parts, uint32_t n) {
    const enum lode_dtype first = parts[0].w->type;
    for (uint32_t i = 0; i < n; i++) {
        const enum lode_dtype type = parts[i].w->type;
        if (!lode_cuda_layouts[type].gemv || lode_dtypes[type].act != lode_dtypes[first].act ||
            (lode_cuda_layouts[first].plain && type != first))
            return LODE_NONE;
    }
    return lode_cuda_layouts[first].plain ? LODE_F32 : lode_dtypes[first].act;
}

struct lode_cuda_gemv_part lode_cuda_gemv_part(const struct op *o, const struct lode_part *p,
                                               uint32_t first) {
    return (struct lode_cuda_gemv_part){.w = lode_cuda_weight(o, p->w),
                                        .bias = lode_cuda_weight(o, p->bias),
                                        .y = address(&p->out),
                                        .expert_size = lode_cuda_expert_size(o, p->w),
                                        .rows = p->w->rows,
                                        .type = p->w->type,
                                        .w_stride =
                                            (uint32_t)lode_cuda_row_size(p->w->type, p->w->cols),
                                        .first_unit = first};
}

/* The parts of a product, `tile` rows a tile, and what comes after it; false: it can't be fused. */
static bool set_parts(const struct op *o, const struct chain *c, uint32_t tile,
                      struct lode_cuda_gemv_args *a) {
    const struct lode_part *parts = c->mul->parts;
    set_residual(c, a);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        a->parts[i] = lode_cuda_gemv_part(o, &parts[i], a->n_units);
        a->n_units += (parts[i].w->rows + tile - 1) / tile;
        if (!c->glu && !c->add && writes_what_it_reads(o, c, &parts[i].out))
            return false;
    }
    if (c->glu || c->add) {
        const struct lode_value *y = result_of(c->glu ? c->glu : c->add);
        if (writes_what_it_reads(o, c, y))
            return false;
        a->parts[0].y = address(y);
    }
    a->output = c->glu ? LODE_GEMV_GLU : c->add ? LODE_GEMV_ADD : LODE_GEMV_STORE;
    if (c->glu) {
        if (parts[0].w->rows != parts[1].w->rows)
            return false;
        a->per_unit = 2;
        a->n_units /= 2;
        a->act = c->glu->p.glu.act;
    }
    return true;
}

/* Bytes of shared memory for x of a product of floats; with the norm's weights and the rows of a
 * block where there is one unit for each, and room. */
static uint32_t lay_out_rows(const struct op *o, struct lode_cuda_gemv_args *a) {
    const uint32_t stride = a->parts[0].w_stride,
                   rows_at = a->cols * 4 * (a->input == LODE_GEMV_NORM ? 2 : 1);
    const uint32_t with_rows = rows_at + 4 * (stride + LODE_ROWS_APART);
    if (a->n_units > (uint32_t)o->r->c->multiprocessors || a->n_parts > 1 || a->per_unit > 1 ||
        stride % 16 || rows_at % 16 || with_rows > BUDGET)
        return a->cols * 4;
    a->rows_at = rows_at;
    return with_rows;
}

static int run_product(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_part *parts = c->mul->parts;
    const uint32_t n_parts = c->mul->n_parts;
    const enum lode_dtype act = common_act(parts, n_parts);
    struct lode_cuda_gemv_args a = {.n_parts = n_parts, .cols = parts[0].w->cols, .per_unit = 1};
    if (act == LODE_NONE || n_parts > LODE_CUDA_PARTS || (act == LODE_F32 && c->quant) ||
        !set_copies(o, n, c, &a))
        return 0;
    if (act == LODE_F32 && a.cols * 4 > BUDGET)
        return 0;
    set_input(o, c, &a);
    const uint32_t streams = lode_cuda_streams(o, parts, &a);
    if (!set_parts(o, c, streams ? streams : act == LODE_F32 ? 4 : LODE_GEMV_TILE, &a))
        return 0;
    if (streams) {
        LODE_TRY(lode_cuda_run_stream(o, &a));
        return 1;
    }
    if (act != LODE_F32)
        return run_gemv(o, n, c, &a, act);
    const uint32_t most = 2 * (uint32_t)o->r->c->multiprocessors,
                   grid = a.n_units < most ? a.n_units : most;
    const uint32_t shared = lay_out_rows(o, &a);
    LODE_TRY(lode_cuda_run_kernel(o, o->r->c->kernels.gemv[parts[0].w->type], grid, 1, 1, 512,
                                  shared, &a));
    return 1;
}

/* ---- products of a few rows ---- */

/* Bytes of an item of 16 rows by 256 numbers in shared memory: few.cuh's planes. */
static uint32_t slot_size(enum lode_dtype type) {
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    uint32_t size = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const uint32_t bytes = l->plane[i].size * (256 / l->block);
        size += LODE_GEMV_TILE * (bytes >= 16 ? bytes | 16 : (bytes + 3) & ~3u);
    }
    return size;
}

bool lode_cuda_lay_out_few(const struct op *o, uint32_t columns, struct lode_cuda_few_args *f, uint32_t *grid,
                           uint32_t *shared) {
    const uint32_t room = (uint32_t)o->r->c->shared_max - LODE_CUDA_OWN_SHARED;
    for (uint32_t i = 0; i < f->a.n_parts; i++) {
        const uint32_t size = slot_size(f->a.parts[i].type);
        f->slot_size = size > f->slot_size ? size : f->slot_size;
    }
    const uint32_t most = (uint32_t)o->r->c->multiprocessors, wanted = (f->a.n_units * f->a.per_unit + TILES - 1) / TILES,
                   blocks = most > wanted ? most : wanted;
    *grid = f->a.n_units < blocks ? f->a.n_units : blocks;
    const uint32_t own = (f->a.n_units + *grid - 1) / *grid * f->a.per_unit; /* tiles of a block */
    f->tiles = own < LODE_FEW_WARPS ? own : LODE_FEW_WARPS;
    const uint32_t sums = f->tiles * columns * 512, slots = LODE_FEW_WARPS * f->slot_size;
    f->depth = sums < room ? (room - sums) / slots : 0;
    const uint32_t depth = lode_cuda_tuned(o->r->c, LODE_TUNING_depth, f->a.parts[0].type, f->a.cols);
    f->depth = f->depth > depth ? depth : f->depth;
    *shared = sums + f->depth * slots;
    return f->depth >= 2 && own <= TILES;
}

static void set_strides(const struct chain *c, struct lode_cuda_few_args *f) {
    for (uint32_t i = 0; i < c->mul->n_parts; i++)
        f->y_stride[i] = (uint32_t)c->mul->parts[i].out.stride;
    if (c->glu || c->add)
        f->y_stride[0] = (uint32_t)result_of(c->glu ? c->glu : c->add)->stride;
    f->residual_stride = c->add ? (uint32_t)residual_of(c)->stride : 0;
}

static int run_few(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_cuda *cuda = o->r->c;
    const struct lode_cuda_kernels *k = &cuda->kernels;
    const struct lode_instr *mul = c->mul;
    const uint32_t cols = mul->parts[0].w->cols, columns = o->n > 16 ? 4 : o->n > 8 ? 2 : 1;
    const enum lode_dtype act = common_act(mul->parts, mul->n_parts);
    const bool by32 = act == LODE_A32;
    struct lode_cuda_few_args f = {.a = {.n_parts = mul->n_parts, .cols = cols, .per_unit = 1,
                                         .x = o->r->scratch, .n_x = o->n}};
    const uint64_t x_size = (uint64_t)cols / 256 * columns * (by32 ? LODE_FEW_X32 : LODE_FEW_X256);
    const uint32_t room = (uint32_t)cuda->shared_max - LODE_CUDA_OWN_SHARED;
    if ((act != LODE_A32 && act != LODE_A256) || mul->n_parts > LODE_CUDA_PARTS || cols % 256 ||
        x_size > LODE_CUDA_SCRATCH || (c->norm && cols * 4 > room) || !set_copies(o, n, c, &f.a) ||
        f.a.q_out || !set_parts(o, c, LODE_GEMV_TILE, &f.a))
        return 0;
    set_strides(c, &f);
    uint32_t grid, shared;
    if (!lode_cuda_lay_out_few(o, columns, &f, &grid, &shared))
        return 0;
    const struct lode_cuda_few_x_args x = {
        .x = lode_cuda_mat(input_of(c)),
        .x_out = {f.a.x_out, f.a.x_out ? result_of(c->norm)->stride : 0},
        .norm = c->norm ? lode_cuda_weight(o, c->norm->parts[0].w) : 0,
        .eps = c->norm ? c->norm->p.rms_norm.eps : 0,
        .y = f.a.x,
        .cols = cols,
        .n_x = o->n,
        .groups = columns,
        .input = c->norm ? LODE_GEMV_NORM : c->quant ? LODE_GEMV_ROUND : LODE_GEMV_AS_IS};
    LODE_TRY(lode_cuda_run_kernel(o, by32 ? k->few_x32 : k->few_x256, 8 * columns,
                                  (cols / 256 + 3) / 4, 1, 512,
                                  c->norm ? cols * 4 : 0, &x));
    void *const kernel[2][3] = {{k->few_a256_1, k->few_a256_2, k->few_a256_4},
                                {k->few_a32_1, k->few_a32_2, k->few_a32_4}};
    LODE_TRY(lode_cuda_run_kernel(o, kernel[by32][columns / 2], grid, 1, 1, 512, shared, &f));
    return 1;
}

/* ---- --numerics fast ---- */

static bool is_fast(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    return mul->op == LODE_OP_LINEAR && !c->quant && mul->n_parts <= LODE_CUDA_PARTS &&
           lode_cuda_fast_parts(o, mul->parts, mul->n_parts, mul->in[0].type) == mul->n_parts;
}

/* Up to LODE_FEW_ROWS rows: all of the chain. */
static int run_few_fast(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    struct lode_cuda_few_args f = {
        .a = {.n_parts = mul->n_parts, .cols = mul->parts[0].w->cols, .per_unit = 1}};
    if ((c->norm && f.a.cols * 4 > (uint32_t)o->r->c->shared_max - LODE_CUDA_OWN_SHARED) ||
        !set_copies(o, n, c, &f.a))
        return 0;
    set_input(o, c, &f.a);
    f.a.n_x = o->n;
    if (!set_parts(o, c, LODE_GEMV_TILE, &f.a))
        return 0;
    set_strides(c, &f);
    LODE_TRY(lode_cuda_run_few_fast(o, &f, input_of(c)->stride, f.a.x_out ? result_of(c->norm)->stride : 0));
    return (int)c->n;
}

/* What comes after the product of a chain, of many rows; false: nothing that could be done with it. */
static bool find_after(const struct op *o, const struct chain *c, struct lode_cuda_after *after) {
    const struct lode_part *parts = c->mul->parts;
    if (!c->glu && !c->add)
        return false;
    const struct lode_value *y = result_of(c->glu ? c->glu : c->add), *res = residual_of(c);
    if (writes_what_it_reads(o, c, y) || (c->glu && parts[0].w->rows != parts[1].w->rows))
        return false;
    *after = (struct lode_cuda_after){.y = lode_cuda_mat(y)};
    after->end.output = c->glu ? LODE_GEMV_GLU : LODE_GEMV_ADD;
    if (c->glu)
        after->end.act = c->glu->p.glu.act;
    if (c->add) {
        after->end.residual = address(res);
        after->end.residual_stride = res->stride;
        after->end.product_first = same_place(&c->add->in[0], result_of(c->mul));
        after->end.scale = c->add->p.add.scale;
    }
    return true;
}

static bool is_wide(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    return mul->op == LODE_OP_LINEAR && mul->n_parts <= LODE_CUDA_PARTS &&
           lode_cuda_wide_parts(o, mul->parts, mul->n_parts) == mul->n_parts;
}

/* More: the norm, the product and what comes after it, of products of --numerics fast and of Hopper's exact ones. */
static int run_many(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    const bool fast = is_fast(o, c);
    struct lode_cuda_gemv_args copies = {0};
    struct lode_cuda_after after;
    if ((!fast && !is_wide(o, c)) ||
        (c->norm && c->norm->parts[0].out.width * 4 > (uint32_t)o->r->c->shared_max - LODE_CUDA_OWN_SHARED) ||
        !set_copies(o, n, c, &copies) || copies.q_out)
        return 0;
    const struct lode_cuda_norm norm = {.weight = c->norm ? lode_cuda_weight(o, c->norm->parts[0].w) : 0,
                                        .eps = c->norm ? c->norm->p.rms_norm.eps : 0,
                                        .copy = {copies.x_out, copies.x_out ? result_of(c->norm)->stride : 0}};
    const struct lode_cuda_norm *before = c->norm ? &norm : NULL;
    const struct lode_cuda_wide_x x = {lode_cuda_mat(input_of(c)), c->quant != NULL, before};
    if (find_after(o, c, &after)) {
        const int all = fast ? lode_cuda_run_fast(o, mul->parts, mul->n_parts, x.x, o->n, before, &after)
                             : lode_cuda_run_wide(o, mul->parts, mul->n_parts, &x, o->n, &after);
        if (all != 0)
            return all < 0 ? all : (int)c->n;
    }
    if (!before && !c->quant)
        return 0;
    for (uint32_t i = 0; i < mul->n_parts; i++) /* what is normed or rounded in pieces is still read */
        if (overlap(&mul->parts[i].out, input_of(c), o->n))
            return 0;
    const int some = fast ? lode_cuda_run_fast(o, mul->parts, mul->n_parts, x.x, o->n, before, NULL)
                          : lode_cuda_run_wide(o, mul->parts, mul->n_parts, &x, o->n, NULL);
    return some > 0 ? (int)(mul - o->in) + 1 : some;
}

static bool has_rounded_gemv(enum lode_dtype act) { return act != LODE_NONE && act != LODE_F32; }

/* Gate and up of the chosen experts, to y, y_stride bytes apart; false: otherwise. */
static bool set_experts_in(const struct op *o, uint32_t n, const struct chain *c, lode_dev y, uint64_t y_stride,
                           struct lode_cuda_gemv_args *a) {
    const struct lode_instr *in = c->mul;
    const struct lode_part *parts = in->parts;
    const uint32_t n_used = in->in[1].width / 2;
    *a = (struct lode_cuda_gemv_args){
        .n_parts = 2,
        .cols = parts[0].w->cols,
        .output = LODE_GEMV_GLU,
        .per_unit = 2,
        .n_used = n_used,
        .n_units = n_used * ((parts[0].w->rows + LODE_GEMV_TILE - 1) / LODE_GEMV_TILE),
        .act = in->p.experts.act,
        .weigh_input = in->p.experts.weigh_input,
        .route = address(&in->in[1]),
        .y_stride = y_stride};
    if (!has_rounded_gemv(common_act(parts, 2)) || parts[0].w->rows != parts[1].w->rows || !set_copies(o, n, c, a))
        return false;
    set_input(o, c, a);
    for (int i = 0; i < 2; i++)
        a->parts[i] = lode_cuda_gemv_part(o, &parts[i], 0);
    a->parts[0].y = y;
    return true;
}

/* The sum of their down, from x. */
static bool set_experts_out(const struct op *o, const struct chain *c, const struct lode_part *down, lode_dev x,
                            uint64_t x_stride, struct lode_cuda_gemv_args *a) {
    const struct lode_instr *in = c->mul;
    const struct lode_value *y = result_of(c->add ? c->add : in);
    const uint32_t n_used = in->in[1].width / 2;
    const enum lode_dtype act = common_act(down, 1);
    uint32_t grid, shared;
    *a = (struct lode_cuda_gemv_args){.n_parts = 1,
                                      .cols = down->w->cols,
                                      .output = LODE_GEMV_SUM,
                                      .per_unit = n_used,
                                      .n_used = n_used,
                                      .n_units = (down->w->rows + LODE_GEMV_TILE - 1) / LODE_GEMV_TILE,
                                      .weigh_input = in->p.experts.weigh_input,
                                      .route = address(&in->in[1]),
                                      .x = x,
                                      .x_stride = x_stride,
                                      .n_x = n_used,
                                      .input = LODE_GEMV_ROUND};
    if (!has_rounded_gemv(act))
        return false;
    set_residual(c, a);
    a->parts[0] = lode_cuda_gemv_part(o, down, 0);
    a->parts[0].y = address(y);
    return !overlap(y, &in->in[1], o->n) && lay_out(o, a, act == LODE_A32, &grid, &shared);
}

static int run_chosen_experts(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *in = c->mul;
    const struct lode_part *parts = in->parts, *down = in->op == LODE_OP_EXPERTS ? &parts[2] : &parts[0];
    const struct lode_value *y = result_of(in);
    struct lode_cuda_gemv_args first, second;
    if (in->op == LODE_OP_EXPERTS_IN)
        return !overlap(y, input_of(c), o->n) && !overlap(y, &in->in[1], o->n) &&
                       set_experts_in(o, n, c, address(y), parts[0].w->rows * sizeof(float), &first)
                   ? run_gemv(o, n, c, &first, common_act(parts, 2))
                   : 0;
    if (in->op == LODE_OP_EXPERTS_OUT)
        return !writes_what_it_reads(o, c, result_of(c->add ? c->add : in)) &&
                       set_experts_out(o, c, down, address(input_of(c)), down->w->cols * sizeof(float), &second)
                   ? run_gemv(o, n, c, &second, common_act(down, 1))
                   : 0;
    if (!set_experts_in(o, n, c, o->r->gate, o->r->ff_stride, &first) ||
        !set_experts_out(o, c, down, o->r->gate, o->r->ff_stride, &second))
        return 0;
    const struct chain none = {.n = n}; /* between the two, nothing to fetch */
    const int rc = run_gemv(o, n, &none, &first, common_act(parts, 2));
    return rc <= 0 ? rc : run_gemv(o, n, c, &second, common_act(down, 1));
}

/* ---- queries, keys and values ---- */

struct turned { /* a norm and a rotation on the way to `last`, from `first` */
    const struct lode_instr *norm, *rope;
    const struct lode_value *first, *last;
};

static bool take(struct turned *t, const struct lode_instr *in, uint32_t dim) {
    if (!same_place(result_of(in), t->first))
        return false;
    if (in->op == LODE_OP_ROPE && !t->rope && !t->norm && in->p.rope.head_dim == dim &&
        in->p.rope.n_pairs <= 128 && in->p.rope.n_pairs > 0)
        t->rope = in;
    else if (in->op == LODE_OP_RMS_NORM && !t->norm && in->p.rms_norm.group == dim)
        t->norm = in;
    else
        return false;
    t->first = &in->in[0];
    return true;
}

static int run_prepare(const struct op *o, uint32_t n) {
    uint32_t put = 0;
    while (put < n && (o->in[put].op == LODE_OP_RMS_NORM || o->in[put].op == LODE_OP_ROPE))
        put++;
    if (!is_next(o, put, n, LODE_OP_KV_PUT) || !is_next(o, put + 1, n, LODE_OP_ATTENTION))
        return 0;
    const struct lode_instr *kv = &o->in[put], *att = &o->in[put + 1];
    const struct lode_kv_layer *l = lode_kv_layer(o->step->segments[0].kv, kv->p.kv_put.layer);
    const struct lode_value *v = &kv->in[1];
    struct turned q = {.first = &att->in[0], .last = &att->in[0]},
                  k = {.first = &kv->in[0], .last = &kv->in[0]};
    for (uint32_t i = put; i-- > 0;) /* from the last one back */
        if (!take(&q, &o->in[i], l->head_dim) && !take(&k, &o->in[i], l->head_dim))
            return 0;
    const uint32_t rows = o->step->n_rows, dim = l->head_dim, n_heads = att->p.attention.n_heads;
    const struct lode_value *table = q.rope ? &q.rope->in[1] : k.rope ? &k.rope->in[1] : NULL;
    if (dim > 512 || q.first->width != n_heads * dim || k.first->width != l->n_heads * dim ||
        (q.rope && k.rope && q.rope->in[1].data != k.rope->in[1].data) ||
        (!same_place(q.first, q.last) && overlap(q.last, q.first, rows)) ||
        overlap(q.last, k.first, rows) || overlap(q.last, v, rows) ||
        (!same_place(k.first, k.last) && overlap(k.last, k.first, rows)) ||
        overlap(k.last, q.first, rows) || overlap(k.last, v, rows) || overlap(k.last, q.last, rows))
        return 0;
    struct lode_cuda_prepare_args a = {
        .step = o->r->step,
        .q = lode_cuda_mat(q.first),
        .k = lode_cuda_mat(k.first),
        .v = lode_cuda_mat(v),
        .q_out = lode_cuda_mat(q.last),
        .layer = kv->p.kv_put.layer,
        .n_heads = n_heads,
        .n_kv_heads = l->n_heads,
        .head_dim = dim,
        .head_dim_v = l->head_dim_v,
        .norms_q = q.norm != NULL,
        .norms_k = k.norm != NULL,
        .norm_q = q.norm ? lode_cuda_weight(o, q.norm->parts[0].w) : 0,
        .norm_k = k.norm ? lode_cuda_weight(o, k.norm->parts[0].w) : 0,
        .eps_q = q.norm ? q.norm->p.rms_norm.eps : 0,
        .eps_k = k.norm ? k.norm->p.rms_norm.eps : 0,
        .pairs_q = q.rope ? q.rope->p.rope.n_pairs : 0,
        .pairs_k = k.rope ? k.rope->p.rope.n_pairs : 0,
        .kind_q = q.rope && q.rope->p.rope.pairs,
        .kind_k = k.rope && k.rope->p.rope.pairs};
    if (table)
        a.table = lode_cuda_mat(table);
    if (!read_later(o, put + 2, n, k.last) && !read_later(o, put + 2, n, q.last) &&
        !overlap(result_of(att), q.first, rows) && !overlap(result_of(att), k.first, rows) &&
        !overlap(result_of(att), v, rows)) {
        const int decoded = lode_cuda_run_decode(o, att, &a);
        if (decoded != 0)
            return decoded < 0 ? decoded : (int)put + 2;
    }
    if (read_later(o, put + 1, n, k.last))
        a.k_out = lode_cuda_mat(k.last);
    LODE_TRY(lode_cuda_run_kernel(o, o->r->c->kernels.prepare, rows,
                                  (n_heads + 2 * l->n_heads + 7) / 8, 1, 256, 8 * dim * 4, &a));
    return (int)put + 1;
}

/* Whether gemv.cu, which rounds x in every block of threads, is the slower one for a single row. */
/* One row that is better rounded by itself. */
static bool is_long(const struct op *o, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    const struct lode_operand *w = mul->op == LODE_OP_LINEAR ? mul->parts[0].w : NULL;
    return w && c->quant && !c->norm && lode_cuda_tuned(o->r->c, LODE_TUNING_alone, w->type, w->cols) &&
           common_act(mul->parts, mul->n_parts) == LODE_A256;
}

int lode_cuda_run_fused(const struct op *o, uint32_t n) {
    const enum lode_op op = o->in->op;
    if (op == LODE_OP_RMS_NORM || op == LODE_OP_ROPE) {
        const int rc = o->step->n_segments ? run_prepare(o, n) : 0;
        if (rc != 0)
            return rc;
    }
    struct chain c;
    if (o->n == 0 ||
        (op != LODE_OP_RMS_NORM && op != LODE_OP_QUANT && op != LODE_OP_LINEAR &&
         !is_experts(op)) ||
        !find_chain(o, n, &c))
        return 0;
    if (o->n > LODE_FEW_ROWS)
        return run_many(o, n, &c);
    if (is_fast(o, &c))
        return run_few_fast(o, n, &c);
    if (o->n > 1 && c.mul->op != LODE_OP_LINEAR)
        return 0;
    const int rc = o->n > 1 || is_long(o, &c)       ? run_few(o, n, &c)
                   : c.mul->op == LODE_OP_LINEAR ? run_product(o, n, &c)
                                                 : run_chosen_experts(o, n, &c);
    return rc > 0 ? (int)c.n : rc;
}
