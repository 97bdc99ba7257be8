/* fast.c - products of --numerics tensor: 16-bit weights (of packed ones, with --numerics fast: fast_packed.c) and rows of x rounded to
 * their type, on the tensor cores (kernels/products/fast.cuh).  One row has its bits whatever the number of rows is, so that
 * choosing kernels by it, here, changes nothing. */
#include "backend/cuda/run.h"

/* What w's products have in common with others that run as one: a type of floats, or that of the rounded rows that
 * packed weights do not read here; LODE_NONE: they are exact. */
static enum lode_dtype family_of(const struct op *o, const struct lode_operand *w, enum lode_dtype x) {
    if (!o->r->o.tensor)
        return LODE_NONE;
    if (lode_cuda_is_packed(w->type))
        return x == LODE_F32 ? lode_dtypes[w->type].act : LODE_NONE; /* as lode_cuda_takes_floats said */
    /* whole rows of 16 bytes: what both the kernels and Hopper's copies read */
    const bool halves = (w->type == LODE_F16 || w->type == LODE_BF16) && w->cols % 8 == 0;
    return halves && lode_cuda_has_fast(o->r->c) ? w->type : LODE_NONE;
}

uint32_t lode_cuda_fast_parts(const struct op *o, const struct lode_part *parts, uint32_t n, enum lode_dtype x) {
    const enum lode_dtype family = family_of(o, parts[0].w, x);
    uint32_t same = 0;
    while (family != LODE_NONE && same < n && same < LODE_CUDA_PARTS && family_of(o, parts[same].w, x) == family)
        same++;
    return same;
}

/* Bytes of LODE_FAST_TILE rows, in panels, and their factors. */
uint64_t lode_cuda_fast_tile(uint32_t cols) {
    return (uint64_t)lode_cuda_up(cols, 64) * LODE_FAST_PANEL + LODE_FAST_TILE * sizeof(float);
}

static const struct lode_cuda_fast_kernels *kernels_of(const struct op *o, uint32_t type) {
    return &o->r->c->kernels.fast[type == LODE_BF16];
}

/* ---- a few rows ---- */

/* Rows of x, rounded, to the scratch, as a's products in so many groups of eight read them. */
static int round_x(const struct op *o, struct lode_cuda_gemv_args *a, struct lode_cuda_fast_x_args *x, uint32_t groups) {
    x->groups = groups;
    LODE_TRY(lode_cuda_run_kernel(o, kernels_of(o, a->parts[0].type)->few_x, a->n_x, 1, 1, 512,
                                  a->input == LODE_GEMV_NORM ? a->cols * 4 : 0, x));
    a->x = o->r->scratch;
    return 0;
}

int lode_cuda_run_few_fast(const struct op *o, struct lode_cuda_few_args *f, bool streams, uint64_t x_stride,
                           uint64_t x_out_stride) {
    struct lode_cuda_gemv_args *a = &f->a;
    const struct lode_cuda *c = o->r->c;
    struct lode_cuda_fast_x_args x = {.x = {a->x, x_stride},
                                      .x_out = {a->x_out, x_out_stride},
                                      .norm = a->norm,
                                      .eps = a->eps,
                                      .y = o->r->scratch,
                                      .cols = a->cols,
                                      .n_x = a->n_x,
                                      .input = a->input,
                                      .paired = streams};
    if (lode_cuda_is_packed(a->parts[0].type))
        return lode_cuda_run_few_packed(o, f, &x);
    if (streams) {
        if (a->n_x > 1)
            LODE_TRY(round_x(o, a, &x, lode_cuda_groups_of(a->n_x)));
        return lode_cuda_run_stream_fast(o, f);
    }
    const struct lode_cuda_fast_kernels *k = kernels_of(o, a->parts[0].type);
    const uint32_t room = lode_cuda_room(c), most = (uint32_t)c->multiprocessors;
    const uint32_t wanted = lode_cuda_up(a->n_units * a->per_unit, LODE_CUDA_GEMV_TILES), blocks = most > wanted ? most : wanted;
    const uint32_t grid = a->n_units < blocks ? a->n_units : blocks, own = lode_cuda_up(a->n_units, grid) * a->per_unit;
    const uint32_t one_size = 4 * a->cols + 32 * lode_cuda_up(a->cols, 16); /* floats, and as they are rounded */
    const bool one = a->n_x == 1 && one_size + LODE_FEW_WARPS * 512 <= room;
    const uint32_t groups = lode_cuda_groups_of(a->n_x);
    f->tiles = own < LODE_FEW_WARPS ? own : LODE_FEW_WARPS;
    a->x_at = one ? one_size : 0;
    if (!one)
        LODE_TRY(round_x(o, a, &x, groups));
    return lode_cuda_run_kernel(o, k->few[lode_cuda_few_size(one ? 0 : groups)], grid, 1, 1, 512, a->x_at + f->tiles * groups * 512, f);
}

static int run_few(const struct op *o, const struct lode_part *parts, uint32_t n_parts, struct lode_cuda_mat x,
                   uint32_t n_x, const struct lode_cuda_norm *norm) {
    const struct lode_operand *w = parts[0].w;
    struct lode_cuda_few_args f = {.a = {.x = x.data,
                                         .n_x = n_x,
                                         .cols = w->cols,
                                         .n_parts = n_parts,
                                         .per_unit = 1,
                                         .input = LODE_GEMV_AS_IS,
                                         .output = LODE_GEMV_STORE}};
    if (norm) {
        f.a.input = LODE_GEMV_NORM;
        f.a.norm = norm->weight;
        f.a.eps = norm->eps;
        f.a.x_out = norm->copy.data;
    }
    for (uint32_t i = 0; i < n_parts; i++) {
        f.a.parts[i] = lode_cuda_gemv_part(o, &parts[i], f.a.n_units);
        f.y_stride[i] = (uint32_t)parts[i].out.stride;
        f.a.n_units += lode_cuda_up(parts[i].w->rows, LODE_GEMV_TILE);
    }
    return lode_cuda_run_few_fast(o, &f, false, x.stride, norm ? norm->copy.stride : 0);
}

/* ---- many ---- */

/* How the part's matrix lies, for copies of half a tile's rows by a panel (gate and up fill a half each); false: the driver
 * doesn't take it. */
static bool map_of(const struct op *o, const struct lode_part *p, struct lode_cuda_map *map) {
    const uint64_t sizes[2] = {p->w->cols, p->w->rows}, strides[1] = {lode_cuda_row_size(p->w->type, p->w->cols)};
    const uint32_t box[2] = {64, LODE_FAST_TILE / 2}, steps[2] = {1, 1};
    return o->r->c->cu.tensor_map(map, p->w->type == LODE_F16 ? LODE_CU_MAP_F16 : LODE_CU_MAP_BF16, 2,
                                  (void *)(uintptr_t)lode_cuda_weight(o, p->w), sizes, strides, box, steps, 0,
                                  LODE_CU_MAP_SWIZZLE_128, LODE_CU_MAP_PROMOTE_256, 0) == 0;
}

static int multiply(const struct op *o, const struct lode_cuda_fast_kernels *k, bool wide,
                    const struct lode_cuda_fast_args *f) {
    enum { X = LODE_FAST_CLUSTER_X, W = LODE_FAST_CLUSTER_W }; /* whole clusters */
    return wide ? lode_cuda_run_kernel(o, k->wide, lode_cuda_up(f->x_tiles, X) * X, lode_cuda_up(f->w_tiles, W) * W, 1, LODE_FAST_THREADS,
                                       LODE_FAST_SHARED, f)
                : lode_cuda_run_kernel(o, k->tile, f->x_tiles, f->w_tiles, 1, 256, LODE_FAST_TILE_SHARED, f);
}

/* The parts as tiles of w; false: not all by Hopper's kernel. */
static bool lay_out_tiles(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                          struct lode_cuda_fast_args *f) {
    const bool gated = f->end.output == LODE_GEMV_GLU;
    bool wide = kernels_of(o, parts[0].w->type)->wide != NULL;
    for (uint32_t i = 0; i < n_parts; i++) {
        f->g.parts[i] = lode_cuda_part(o, &parts[i], gated ? 0 : f->w_tiles);
        f->w_tiles += lode_cuda_up(parts[i].w->rows, LODE_FAST_TILE);
        wide = wide && map_of(o, &parts[i], &f->maps[i]);
    }
    if (gated) /* half of a tile is gate's, half up's */
        f->w_tiles = lode_cuda_up(parts[0].w->rows, LODE_FAST_TILE / 2);
    return wide;
}

int lode_cuda_run_fast(const struct op *o, const struct lode_part *parts, uint32_t n_parts, struct lode_cuda_mat x,
                       uint32_t n_x, const struct lode_cuda_norm *norm, const struct lode_cuda_after *after) {
    const struct lode_operand *w = parts[0].w;
    const bool packed = lode_cuda_is_packed(w->type);
    const struct lode_cuda_fast_kernels *k = kernels_of(o, w->type);
    void *const round = packed ? o->r->c->kernels.packed.x : k->x;
    const uint64_t tile = lode_cuda_fast_tile(w->cols);
    const uint32_t most = (uint32_t)(LODE_CUDA_SCRATCH / tile) * LODE_FAST_TILE; /* rows at once */
    struct lode_cuda_fast_args f = {.g = {.x = {o->r->scratch, tile}, .cols = w->cols, .n_parts = n_parts, .x_div = 1}};
    if (after)
        f.end = after->end;
    if (n_x <= LODE_FEW_ROWS && !after)
        return run_few(o, parts, n_parts, x, n_x, norm);
    if (most == 0)
        return lode_fail(o->err, LODE_ERR_UNSUPPORTED, "--numerics fast", "rows of %u numbers are too long", w->cols);
    const bool wide = !packed && lay_out_tiles(o, parts, n_parts, &f);
    if (after && (packed ? f.end.output == LODE_GEMV_GLU && !lode_cuda_can_gate(o, o->r->c->kernels.packed.gated, parts, n_x) : !wide))
        return 0;
    struct lode_cuda_mat y[LODE_CUDA_PARTS];
    for (uint32_t i = 0; i < n_parts; i++)
        y[i] = after ? after->y : lode_cuda_mat(&parts[i].out);
    struct lode_cuda_fast_x_args xa = {.x = x, .y = o->r->scratch, .tile_size = tile, .cols = w->cols,
                                       .input = norm ? LODE_GEMV_NORM : LODE_GEMV_AS_IS};
    if (norm) {
        xa.norm = norm->weight;
        xa.eps = norm->eps;
        xa.x_out = norm->copy;
    }
    for (uint32_t first = 0; first < n_x; first += most) {
        xa.n_x = f.g.n_x = n_x - first < most ? n_x - first : most;
        f.x_tiles = lode_cuda_up(f.g.n_x, LODE_FAST_TILE);
        for (uint32_t i = 0; i < n_parts; i++) {
            f.g.parts[i].y = y[i].data;
            f.g.parts[i].y_stride = y[i].stride;
        }
        LODE_TRY(lode_cuda_run_kernel(o, round, xa.n_x, 1, 1, 512, norm ? w->cols * 4 : 0, &xa));
        LODE_TRY(packed ? lode_cuda_multiply_packed(o, parts, n_parts, y, tile, xa.n_x, &f.end)
                        : multiply(o, k, wide, &f));
        xa.x.data += most * xa.x.stride;
        if (xa.x_out.data)
            xa.x_out.data += most * xa.x_out.stride;
        if (f.end.residual)
            f.end.residual += most * f.end.residual_stride;
        for (uint32_t i = 0; i < n_parts; i++)
            y[i].data += most * y[i].stride;
    }
    return 1;
}

/* ---- rows that are rounded where they are made ---- */

uint64_t lode_cuda_fast_size(uint32_t cols, uint32_t n_x) { return lode_cuda_up(n_x, LODE_FAST_TILE) * lode_cuda_fast_tile(cols); }

bool lode_cuda_fast_tiles(const struct op *o, const struct lode_part *p, uint32_t n_x, uint64_t used, struct lode_cuda_tiles *x) {
    struct lode_cuda_map map;
    const bool takes = p->w->type == LODE_BF16 && p->w->cols % 64 == 0 && kernels_of(o, LODE_BF16)->wide && map_of(o, p, &map);
    *x = (struct lode_cuda_tiles){.data = o->r->scratch + used, .size = lode_cuda_fast_tile(p->w->cols), .kind = LODE_TILES_PANELS,
                                  .rows = LODE_FAST_TILE};
    return takes && used + lode_cuda_fast_size(p->w->cols, n_x) <= LODE_CUDA_SCRATCH;
}

int lode_cuda_run_fast_rounded(const struct op *o, const struct lode_part *p, const struct lode_cuda_tiles *x, uint32_t n_x,
                               const struct lode_cuda_after *after) {
    const struct lode_cuda_mat y = after ? after->y : lode_cuda_mat(&p->out);
    struct lode_cuda_fast_args f = {.g = {.x = {x->data, x->size}, .n_x = n_x, .cols = p->w->cols, .n_parts = 1, .x_div = 1},
                                    .x_tiles = lode_cuda_up(n_x, LODE_FAST_TILE)};
    if (after)
        f.end = after->end;
    const bool wide = lay_out_tiles(o, p, 1, &f);
    f.g.parts[0].y = y.data;
    f.g.parts[0].y_stride = y.stride;
    return multiply(o, kernels_of(o, LODE_BF16), wide, &f);
}
