/* fuse_few.c - products of up to LODE_FEW_ROWS rows, and of some more in pieces: few.cu, few_mixed.cu, few_own.cu; and gemv_stream_fast.cu,
 * gemv_fast.cu and few_fast.cu with --numerics tensor and fast. */
#include "backend/cuda/fuse.h"

/* few.cuh's planes. */
uint32_t lode_cuda_few_slot(enum lode_dtype type) {
    const struct lode_cuda_layout *l = &lode_cuda_layouts[type];
    uint32_t size = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        const uint32_t bytes = l->plane[i].size * (256 / l->block);
        size += LODE_GEMV_TILE * (bytes >= 16 ? bytes | 16 : (bytes + 3) & ~3u);
    }
    return size;
}

uint32_t lode_cuda_few_warps(const struct op *o, uint32_t tiles, uint32_t sums, uint32_t slot_size) {
    const uint32_t least = o->r->c->major == 9 ? LODE_FEW_WARPS : LODE_FEW_WARPS / 4; /* few.cuh's few_warps */
    uint32_t warps = LODE_FEW_WARPS;
    while (warps >= least && (tiles < warps ? tiles : warps) * sums + 2 * warps * slot_size > lode_cuda_room(o->r->c))
        warps /= 2;
    return warps >= least ? warps : 0;
}

uint32_t lode_cuda_few_depth(const struct op *o, uint32_t room, uint32_t items, enum lode_dtype type, uint32_t cols) {
    const uint32_t depth = room / items, most = lode_cuda_tuned(o->r->c, LODE_TUNING_depth, type, cols);
    return depth < most ? depth : most;
}

/* Of x's ring a block of threads has room for as many blocks as there are when each warp has room for two items; but for one at least. */
static uint32_t x_slots(uint32_t room, uint32_t items, uint32_t x_block, uint32_t blocks) {
    const uint32_t n = room > 2 * items ? (room - 2 * items) / x_block : 0, most = blocks < LODE_X_SLOTS ? blocks : LODE_X_SLOTS;
    return n < 1 ? 1 : n < most ? n : most;
}

bool lode_cuda_lay_out_few(const struct op *o, uint32_t columns, uint32_t x_block, struct lode_cuda_few_args *f,
                           struct lode_cuda_few_launch *l) {
    const uint32_t room = lode_cuda_room(o->r->c), sums = columns * LODE_FEW_SUMS;
    for (uint32_t i = 0; i < f->a.n_parts; i++) {
        const uint32_t size = lode_cuda_few_slot(f->a.parts[i].type);
        f->slot_size = size > f->slot_size ? size : f->slot_size;
    }
    const uint32_t most = (uint32_t)o->r->c->multiprocessors,
                   wanted = (f->a.n_units * f->a.per_unit + LODE_CUDA_GEMV_TILES - 1) / LODE_CUDA_GEMV_TILES,
                   blocks = most > wanted ? most : wanted;
    l->grid = f->a.n_units < blocks ? f->a.n_units : blocks;
    const uint32_t own = (f->a.n_units + l->grid - 1) / l->grid * f->a.per_unit; /* tiles of a block */
    l->warps = lode_cuda_few_warps(o, own, sums, f->slot_size);
    if (!l->warps || own > LODE_CUDA_GEMV_TILES)
        return false;
    f->tiles = own < l->warps ? own : l->warps;
    const uint32_t items = l->warps * f->slot_size, left = room - f->tiles * sums,
                   x = x_block * (x_block ? x_slots(left, items, x_block, f->a.cols / 256) : 0);
    f->x_slots = lode_cuda_divisor(x_block ? x / x_block : 0);
    f->depth = lode_cuda_few_depth(o, x < left ? left - x : 0, items, f->a.parts[0].type, f->a.cols);
    l->shared = f->tiles * sums + x + f->depth * items;
    return f->depth >= 2;
}

static void set_strides(const struct chain *c, struct lode_cuda_few_args *f) {
    for (uint32_t i = 0; i < c->mul->n_parts; i++)
        f->y_stride[i] = (uint32_t)c->mul->parts[i].out.stride;
    if (c->glu || c->add)
        f->y_stride[0] = (uint32_t)result_of(c->glu ? c->glu : c->add)->stride;
    f->residual_stride = c->add ? (uint32_t)residual_of(c)->stride : 0;
}

/* Bytes of a block of 256 numbers of x. */
static uint32_t x_block(bool by32, uint32_t columns) { return columns * (by32 ? LODE_FEW_X32 : LODE_FEW_X256); }

enum lode_cuda_few_kind lode_cuda_few_kind(const struct lode_part *parts, uint32_t n) {
    bool q4_q6 = true, q5_q6 = true;
    for (uint32_t i = 0; i < n; i++) {
        const enum lode_dtype type = parts[i].w->type;
        q4_q6 &= type == LODE_Q4_K || type == LODE_Q6_K;
        q5_q6 &= type == LODE_Q5_K || type == LODE_Q6_K;
    }
    if (lode_cuda_layouts[parts[0].w->type].family != LODE_CUDA_COMMON)
        return LODE_CUDA_FEW_OWN;
    if (lode_cuda_common_act(parts, n) == LODE_A32)
        return LODE_CUDA_FEW_A32;
    return q4_q6 ? LODE_CUDA_FEW_Q4_Q6 : q5_q6 ? LODE_CUDA_FEW_Q5_Q6 : LODE_CUDA_FEW_A256;
}

/* A piece of a chain's rows: n from `first` on, of which f says what is theirs all. */
static int run_piece(const struct op *o, const struct chain *c, struct lode_cuda_few_args f, uint32_t first, uint32_t n) {
    const struct lode_cuda *cuda = o->r->c;
    const struct lode_cuda_kernels *k = &cuda->kernels;
    const struct lode_instr *mul = c->mul;
    const uint32_t cols = f.a.cols, columns = lode_cuda_groups_of(n);
    const bool by32 = lode_cuda_common_act(mul->parts, mul->n_parts) == LODE_A32;
    const bool in_ring = cuda->major == 9 && !by32 && columns >= LODE_FEW_X_SHARED;
    struct lode_cuda_few_launch l;
    if (!lode_cuda_lay_out_few(o, columns, in_ring ? x_block(by32, columns) : 0, &f, &l))
        return 0;
    struct lode_cuda_few_x_args x = {
        .x = lode_cuda_mat(input_of(c)),
        .x_out = {f.a.x_out, f.a.x_out ? result_of(c->norm)->stride : 0},
        .norm = c->norm ? lode_cuda_weight(o, c->norm->parts[0].w) : 0,
        .eps = c->norm ? c->norm->p.rms_norm.eps : 0,
        .y = f.a.x,
        .cols = cols,
        .n_x = n,
        .groups = columns,
        .input = c->norm ? LODE_GEMV_NORM : c->quant ? LODE_GEMV_ROUND : LODE_GEMV_AS_IS};
    x.x.data += first * x.x.stride;
    x.x_out.data += first * x.x_out.stride;
    f.a.residual += (uint64_t)first * f.residual_stride;
    for (uint32_t i = 0; i < f.a.n_parts; i++)
        f.a.parts[i].y += (uint64_t)first * f.y_stride[i];
    f.a.n_x = n;
    enum { EACH = 8 }; /* blocks that one of threads rounds: the fewer multiprocessors are at it, the more products begin at once */
    LODE_TRY(lode_cuda_run_kernel(o, by32 ? k->few_x32 : k->few_x256, 8 * columns,
                                  lode_cuda_up(cols / 256, EACH), 1, 512,
                                  c->norm ? LODE_LANES_SIZE(cols) : 0, &x));
    void *const kernel[][3] = {
        [LODE_CUDA_FEW_A256] = {k->few_a256_1, k->few_a256_2, k->few_a256_4},
        [LODE_CUDA_FEW_A32] = {k->few_a32_1, k->few_a32_2, k->few_a32_4},
        [LODE_CUDA_FEW_OWN] = {k->few_own_1, k->few_own_2, k->few_own_4},
        [LODE_CUDA_FEW_Q4_Q6] = {k->few_q4_q6_1, k->few_q4_q6_2, k->few_q4_q6_4},
        [LODE_CUDA_FEW_Q5_Q6] = {k->few_q5_q6_1, k->few_q5_q6_2, k->few_q5_q6_4},
    };
    LODE_TRY(lode_cuda_run_product(o, &f.a, kernel[lode_cuda_few_kind(mul->parts, mul->n_parts)][columns / 2], l.grid, 32 * l.warps,
                                   l.shared, &f));
    return 1;
}

int lode_cuda_run_few_rows(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    const uint32_t cols = mul->parts[0].w->cols, most = o->n < LODE_FEW_ROWS ? o->n : LODE_FEW_ROWS;
    const enum lode_dtype act = lode_cuda_common_act(mul->parts, mul->n_parts);
    struct lode_cuda_few_args f = {.a = {.n_parts = mul->n_parts, .cols = cols, .per_unit = 1, .x = o->r->scratch}};
    if (!lode_dtype_is_rounded(act) || !lode_cuda_all_few(mul->parts, mul->n_parts) ||
        mul->n_parts > LODE_CUDA_PARTS || cols % 256 ||
        (uint64_t)cols / 256 * x_block(act == LODE_A32, lode_cuda_groups_of(most)) > LODE_CUDA_SCRATCH ||
        (c->norm && LODE_LANES_SIZE(cols) > lode_cuda_room(o->r->c)) || !lode_cuda_set_copies(o, n, c, &f.a) ||
        f.a.q_out || !lode_cuda_set_parts(o, c, LODE_GEMV_TILE, &f.a))
        return 0;
    set_strides(c, &f);
    for (uint32_t first = 0; first < o->n; first += LODE_FEW_ROWS) { /* what there is room for of the first there is of all */
        const int rc = run_piece(o, c, f, first, o->n - first < LODE_FEW_ROWS ? o->n - first : LODE_FEW_ROWS);
        if (rc <= 0)
            return rc;
    }
    return 1;
}

/* Up to LODE_FEW_ROWS rows: all of the chain. */
int lode_cuda_run_few_rows_fast(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_instr *mul = c->mul;
    struct lode_cuda_few_args f = {
        .a = {.n_parts = mul->n_parts, .cols = mul->parts[0].w->cols, .per_unit = 1}};
    if ((c->norm && f.a.cols * 4 > lode_cuda_room(o->r->c)) ||
        !lode_cuda_set_copies(o, n, c, &f.a))
        return 0;
    lode_cuda_set_input(o, c, &f.a);
    f.a.n_x = o->n;
    const uint32_t streams = lode_cuda_streams_fast(o, mul->parts, &f.a);
    if (!lode_cuda_set_parts(o, c, streams ? streams : LODE_GEMV_TILE, &f.a))
        return 0;
    set_strides(c, &f);
    LODE_TRY(lode_cuda_run_few_fast(o, &f, streams > 0, input_of(c)->stride, f.a.x_out ? result_of(c->norm)->stride : 0));
    return (int)c->n;
}
