/* wide.c - products of many rows on Hopper's warpgroups (kernels/products/wide_exact.cuh): x is normed and rounded where that is
 * still to be done and spread, in as many tiles as the scratch holds, once for all parts; these are multiplied, and what
 * comes after is done where results are stored. */
#include "backend/cuda/run.h"

enum { GATED_ROWS = 128 }; /* of x, of a tile of gate and up */


/* Spread tiles of n rows of `cols` numbers rounded to `act`; where they lie: the scratch's beginning, if nothing else is said. */
struct spread {
    enum lode_dtype act;
    uint32_t cols, n;
    uint64_t size; /* bytes of one */
    lode_dev at;
};
static uint64_t row_size(enum lode_dtype act, uint32_t cols) {
    return act == LODE_A256 ? (uint64_t)(cols / 256) * (512 + 72) : (uint64_t)lode_cuda_up(cols, 128) * (128 + 32);
}
static struct spread spread_of(const struct op *o, const struct lode_operand *w, uint32_t n) {
    const enum lode_dtype act = lode_dtypes[w->type].act;
    return (struct spread){act, w->cols, n, row_size(act, w->cols) * n, o->r->scratch};
}

static bool by_256(const struct spread *s) { return s->act == LODE_A256; }

/* Of a row: a warp a block of 256 or four of 32, of which a head's row may have one or two. */
struct spread_grid {
    uint32_t blocks, warps; /* blocks of threads, warps of one */
};
static struct spread_grid grid_of(const struct spread *s) {
    const uint32_t n = by_256(s) ? s->cols / 256 : lode_cuda_up(s->cols, 128), warps = n < 8 ? n : 8;
    return (struct spread_grid){lode_cuda_up(n, warps), warps};
}
static struct lode_cuda_spread_args to_spread(const struct spread *s, struct lode_cuda_spread_args a) {
    a.y = s->at;
    a.tile_size = s->size;
    a.cols = s->cols;
    a.tile = s->n;
    return a;
}
/* Rounded rows, to the first `tiles` of them; of so many heads, 1 where rows have none. */
static int spread(const struct op *o, const struct spread *s, struct lode_cuda_spread_args a, uint32_t tiles, uint32_t heads) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const int wide = s->n == 128;
    const struct spread_grid g = grid_of(s);
    a = to_spread(s, a);
    return lode_cuda_run_kernel(o, by_256(s) ? k->spread_256[wide] : k->spread_32[wide], tiles * s->n, g.blocks, heads, 32 * g.warps, 0, &a);
}
/* Floats, n rows of them. */
static int spread_floats(const struct op *o, const struct spread *s, const struct lode_cuda_wide_x *x, uint32_t first,
                         uint32_t n) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const int wide = s->n == 128;
    struct lode_cuda_fast_x_args a = {.x = {x->x.data + first * x->x.stride, x->x.stride}, .y = s->at,
                                      .tile_size = s->size, .cols = s->cols, .n_x = n, .input = LODE_GEMV_ROUND};
    if (x->norm) {
        a.input = LODE_GEMV_NORM;
        a.norm = x->norm->weight;
        a.eps = x->norm->eps;
        a.x_out = x->norm->copy;
        if (a.x_out.data)
            a.x_out.data += first * a.x_out.stride;
    }
    /* a row a block of threads; of more rows than run at once each takes longer, and as many again run */
    enum { AT_ONCE = 4, THREADS = 512 };
    const uint32_t rows = lode_cuda_up(n, s->n) * s->n, threads = rows > AT_ONCE * (uint32_t)o->r->c->multiprocessors ? THREADS / 2 : THREADS;
    return lode_cuda_run_kernel(o, by_256(s) ? k->spread_floats_256[wide] : k->spread_floats_32[wide], rows, 1, 1, threads,
                                x->norm ? s->cols * 4 : 0, &a);
}

static int launch(const struct op *o, void *kernel, const struct lode_cuda_packed_args *a, uint32_t units) {
    const uint32_t most = (uint32_t)o->r->c->multiprocessors;
    return lode_cuda_run_kernel(o, kernel, units < most ? units : most, 1, 1, LODE_WIDE_THREADS, LODE_WIDE_SHARED, a);
}
/* Units of tiles of 128 rows that are better halved: what a last turn of all multiprocessors has, where twice as many still
 * are one. */
static uint32_t halved(uint32_t units, uint32_t most) { return 2 * (units % most) <= most ? units % most : 0; }

/* kernels: of w's type, for tiles of 64 rows (NULL: there is none) and of 128. */
static int multiply(const struct op *o, void *const kernels[2], const struct spread *s, struct lode_cuda_packed_args *a,
                    uint32_t x_tiles, uint32_t w_tiles) {
    const uint32_t units = x_tiles * w_tiles;
    const uint32_t last = s->n == 128 && kernels[0] ? halved(units, (uint32_t)o->r->c->multiprocessors) : 0;
    a->g.x = (struct lode_cuda_mat){s->at, s->size};
    a->g.w_tiles = w_tiles;
    if (last == 0)
        return launch(o, kernels[s->n == 128], a, units);
    if (units > last) {
        a->g.n_units = units - last;
        LODE_TRY(launch(o, kernels[1], a, units - last));
        a->g.beside = 1;
    }
    a->g.first_unit = units - last;
    a->g.n_units = last;
    a->g.halved = 1;
    return launch(o, kernels[0], a, 2 * last);
}

/* Rows of a tile of x, 64 or 128, for the fewest turns of all multiprocessors; those of 64 take some tenths of the time of
 * those of 128.  halves: the last units may be halved. */
static uint32_t tile_rows(const struct op *o, const struct lode_operand *w, uint32_t w_tiles, uint32_t n_x, bool halves) {
    const uint32_t tenths = lode_cuda_tuned(o->r->c, LODE_TUNING_tile, w->type, w->cols);
    const uint32_t most = (uint32_t)o->r->c->multiprocessors, units = w_tiles * lode_cuda_up(n_x, 128);
    const uint32_t last = halves ? halved(units, most) : 0;
    const uint32_t with_128 = 10 * lode_cuda_up(units - last, most) + (last ? tenths : 0);
    return units > last && with_128 <= tenths * lode_cuda_up(w_tiles * lode_cuda_up(n_x, 64), most) ? 128 : 64;
}
/* The same for a product by itself: what is less than a tile of w is brought word by word but by the kernel that brings it ahead. */
static uint32_t best_rows(const struct op *o, const struct lode_operand *w, uint32_t w_tiles, uint32_t n_x) {
    return w->rows % LODE_WIDE_W ? 64 : tile_rows(o, w, w_tiles, n_x, true);
}
uint32_t lode_cuda_wide_rows(const struct op *o, const struct lode_operand *w, uint32_t w_tiles, uint32_t n_x) {
    return tile_rows(o, w, w_tiles, n_x, false);
}

uint32_t lode_cuda_wide_parts(const struct op *o, const struct lode_part *parts, uint32_t n) {
    const enum lode_dtype act = lode_dtypes[parts[0].w->type].act;
    uint32_t same = 0;
    while (same < n && same < LODE_CUDA_PARTS && o->r->c->kernels.wide[parts[same].w->type][0] &&
           lode_dtypes[parts[same].w->type].act == act)
        same++;
    return same;
}

bool lode_cuda_can_gate(const struct op *o, void *const *kernels, const struct lode_part parts[2], uint32_t n_x) {
    const struct lode_operand *gate = parts[0].w, *up = parts[1].w;
    return kernels[gate->type] && gate->type == up->type && gate->rows == up->rows &&
           gate->rows % (LODE_WIDE_W / 2) == 0 && !parts[0].bias && !parts[1].bias &&
           lode_cuda_wide_rows(o, gate, gate->rows / (LODE_WIDE_W / 2), n_x) == GATED_ROWS;
}

/* Runs of one type, of n spread rows; y: (n_parts), of their first.  A few tiles of another type, a V of Q6_K, go to the
 * multiprocessors that the last turn of those before leaves. */
static int multiply_parts(const struct op *o, const struct spread *s, const struct lode_part *parts, uint32_t n_parts,
                          const struct lode_cuda_mat *y, uint32_t n, const struct lode_cuda_fast_end *end) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    for (uint32_t p = 0; p < n_parts;) {
        const enum lode_dtype type = parts[p].w->type;
        struct lode_cuda_packed_args a = {.g = {.n_x = n, .cols = s->cols, .x_div = 1, .beside = p > 0}, .end = *end};
        const bool ahead = s->n == 64 && parts[p].w->rows % LODE_WIDE_W;
        void *kernels[2] = {ahead ? k->wide_ahead[type] : k->wide[type][0], k->wide[type][1]};
        uint32_t tiles = 0;
        for (; p < n_parts && parts[p].w->type == type; p++) {
            struct lode_cuda_part *part = &a.g.parts[a.g.n_parts++];
            *part = lode_cuda_part(o, &parts[p], tiles);
            part->y = y[p].data;
            part->y_stride = y[p].stride;
            tiles += lode_cuda_up(part->rows, LODE_WIDE_W);
        }
        if (a.end.output == LODE_GEMV_GLU) { /* half a tile of each; the second part has none of its own */
            tiles = a.g.parts[0].rows / (LODE_WIDE_W / 2);
            a.g.n_parts = 1;
            kernels[0] = NULL;
            kernels[1] = (a.end.tiles.kind == LODE_TILES_NONE ? k->wide_glu : k->wide_glu_rounded)[type];
        }
        LODE_TRY(multiply(o, kernels, s, &a, lode_cuda_up(n, s->n), tiles));
    }
    return 0;
}

int lode_cuda_run_wide(const struct op *o, const struct lode_part *parts, uint32_t n_parts,
                       const struct lode_cuda_wide_x *x, uint32_t n_x, const struct lode_cuda_after *after) {
    const struct lode_operand *w = parts[0].w;
    const bool gated = after && after->end.output == LODE_GEMV_GLU;
    uint32_t tiles = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        tiles += lode_cuda_up(parts[i].w->rows, LODE_WIDE_W);
    const struct spread s = spread_of(o, w, gated ? GATED_ROWS : best_rows(o, w, tiles, n_x));
    const uint32_t most = (uint32_t)(LODE_CUDA_SCRATCH / s.size) * s.n; /* rows at once */
    if (most == 0 || (gated && !lode_cuda_can_gate(o, o->r->c->kernels.wide_glu, parts, n_x)))
        return 0;
    struct lode_cuda_mat y[LODE_CUDA_PARTS];
    struct lode_cuda_fast_end end = {0};
    for (uint32_t i = 0; i < n_parts; i++)
        y[i] = after ? after->y : lode_cuda_mat(&parts[i].out);
    if (after)
        end = after->end;
    for (uint32_t first = 0; first < n_x; first += most) {
        const uint32_t some = n_x - first < most ? n_x - first : most;
        if (x->floats)
            LODE_TRY(spread_floats(o, &s, x, first, some));
        else
            LODE_TRY(spread(o, &s, (struct lode_cuda_spread_args){.x = {x->x.data + first * x->x.stride, x->x.stride},
                                                                  .n_x = some, .x_div = 1}, lode_cuda_up(some, s.n), 1));
        LODE_TRY(multiply_parts(o, &s, parts, n_parts, y, some, &end));
        for (uint32_t i = 0; i < n_parts; i++)
            y[i].data += some * y[i].stride;
        if (end.residual)
            end.residual += some * end.residual_stride;
    }
    return 1;
}

/* ---- rows that are rounded where they are made ---- */

uint64_t lode_cuda_wide_gated_size(const struct lode_operand *gate, uint32_t n_x) {
    return row_size(lode_dtypes[gate->type].act, gate->cols) * lode_cuda_up(n_x, GATED_ROWS) * GATED_ROWS;
}

bool lode_cuda_wide_tiles(const struct op *o, const struct lode_part *p, uint32_t n_x, uint64_t used, struct lode_cuda_tiles *x) {
    const struct spread s = spread_of(o, p->w, best_rows(o, p->w, lode_cuda_up(p->w->rows, LODE_WIDE_W), n_x));
    *x = (struct lode_cuda_tiles){.data = s.at + used, .size = s.size, .kind = LODE_TILES_SPREAD, .rows = s.n};
    return s.act == LODE_A32 && used + lode_cuda_up(n_x, s.n) * s.size <= LODE_CUDA_SCRATCH;
}

int lode_cuda_run_wide_rounded(const struct op *o, const struct lode_part *p, const struct lode_cuda_tiles *x, uint32_t n_x,
                               const struct lode_cuda_after *after) {
    const struct lode_cuda_mat y = after ? after->y : lode_cuda_mat(&p->out);
    const struct lode_cuda_fast_end end = after ? after->end : (struct lode_cuda_fast_end){0};
    struct spread s = spread_of(o, p->w, x->rows);
    s.at = x->data;
    return multiply_parts(o, &s, p, 1, &y, n_x, &end);
}

/* ---- heads, each with rows of its own ---- */

int lode_cuda_run_wide_heads(const struct op *o, const struct lode_part *p, uint32_t head_rows, struct lode_cuda_gemm_args g) {
    const uint32_t n_heads = p->w->rows / head_rows, w_tiles = p->w->rows / LODE_WIDE_W, n_x = g.n_x;
    void *const *kernels = o->r->c->kernels.wide[p->w->type];
    if (!kernels[0] || head_rows % LODE_WIDE_W)
        return 0;
    g.head_tiles = lode_cuda_divisor(head_rows / LODE_WIDE_W);
    const struct spread s = spread_of(o, p->w, best_rows(o, p->w, w_tiles, n_x));
    const uint32_t most = (uint32_t)(LODE_CUDA_SCRATCH / (n_heads * s.size)) * s.n; /* rows at once, of all heads */
    struct lode_cuda_spread_args sa = {.x = g.x, .x_div = 1, .x_head = g.x_head};
    if (most == 0)
        return 0;
    g.parts[0] = lode_cuda_part(o, p, 0);
    g.n_parts = 1;
    for (uint32_t first = 0; first < n_x; first += most) {
        const uint32_t some = n_x - first < most ? n_x - first : most, x_tiles = lode_cuda_up(some, s.n);
        sa.n_x = g.n_x = some;
        sa.y_head = g.x_head = (uint32_t)(x_tiles * s.size);
        LODE_TRY(spread(o, &s, sa, x_tiles, n_heads));
        LODE_TRY(multiply(o, kernels, &s, &(struct lode_cuda_packed_args){.g = g}, x_tiles, w_tiles));
        sa.x.data += some * sa.x.stride;
        g.parts[0].y += some * g.parts[0].y_stride;
    }
    return 1;
}

/* ---- rows sorted by expert ---- */

bool lode_cuda_takes_wide_sorted(const struct op *o, const struct lode_operand *w, uint32_t x_tiles) {
    return o->r->c->kernels.wide_ahead[w->type] && x_tiles * spread_of(o, w, LODE_GEMM_TILE_X).size <= o->r->scratch_size;
}

/* Gate and up of pairs, where they meet, are rounded and spread. */
static int spread_met(const struct op *o, const struct spread *s, const struct lode_cuda_expert_product *e,
                      struct lode_cuda_spread_args to, uint32_t tiles) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const struct lode_cuda_spread_met_args a = {.to = to_spread(s, to),
                                                .route = e->call->route,
                                                .up = e->up,
                                                .n_used = e->call->n_used,
                                                .act = o->in->p.experts.act,
                                                .weigh_input = o->in->p.experts.weigh_input};
    const struct spread_grid g = grid_of(s);
    return lode_cuda_run_kernel(o, by_256(s) ? k->spread_met_256 : k->spread_met_32, tiles * s->n, g.blocks, 1, 32 * g.warps, 0, &a);
}

int lode_cuda_run_wide_sorted(const struct op *o, const struct lode_cuda_expert_product *e, struct lode_cuda_gemm_args g, uint32_t x_tiles,
                              uint32_t w_tiles) {
    const struct lode_operand *w = e->parts[0].w;
    if (!lode_cuda_takes_wide_sorted(o, w, x_tiles))
        return 0;
    const struct spread s = spread_of(o, w, LODE_GEMM_TILE_X);
    const struct lode_cuda_spread_args sa = {.x = g.x, .tiles = g.tiles, .list = g.list, .x_div = g.x_div};
    struct lode_cuda_packed_args a = {.g = g};
    LODE_TRY(e->up ? spread_met(o, &s, e, sa, x_tiles) : spread(o, &s, sa, x_tiles, 1));
    LODE_TRY(multiply(o, (void *const[2]){o->r->c->kernels.wide_ahead[w->type], NULL}, &s, &a, x_tiles, w_tiles));
    return 1;
}
