/* fuse_row.c - products of one row: gemv.cu, gemv_codebook.cu, gemv_own.cu, gemv_float.cu, gemv_near.cu, gemv_stream.cu, gemv_stream_k.cu. */
#include "backend/cuda/fuse.h"

static uint32_t n_of_family(const struct lode_cuda_gemv_args *a, enum lode_cuda_family family) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_parts; i++)
        n += lode_cuda_layouts[a->parts[i].type].family == family;
    return n;
}
static bool all_of(const struct lode_cuda_gemv_args *a, uint32_t type, uint32_t other) {
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].type != type && a->parts[i].type != other)
            return false;
    return true;
}
/* Kernels that know few types are faster (gemv.cuh, types_of): for those that most files are made of.  NULL: none knows
 * all of these. */
static void *gemv_kernel(const struct lode_cuda_kernels *k, const struct lode_cuda_gemv_args *a, bool by32) {
    const bool common = n_of_family(a, LODE_CUDA_COMMON) == a->n_parts;
    if (by32)
        return all_of(a, LODE_Q8_0, LODE_Q8_0)                ? k->gemv_only_q8_0
               : common                                       ? k->gemv_a32
               : n_of_family(a, LODE_CUDA_U) == a->n_parts    ? k->gemv_u
               : n_of_family(a, LODE_CUDA_PART) == a->n_parts ? k->gemv_parts
                                                              : NULL;
    return !common                           ? k->gemv_codebook
           : all_of(a, LODE_Q4_K, LODE_Q6_K) ? k->gemv_only_q4_k
           : all_of(a, LODE_Q5_K, LODE_Q6_K) ? k->gemv_only_q5_k
                                             : k->gemv_a256;
}

bool lode_cuda_lay_out_gemv(const struct op *o, struct lode_cuda_gemv_args *a, bool by32, uint32_t *grid,
                            uint32_t *shared) {
    const struct lode_cuda *c = o->r->c;
    const uint32_t nb = a->cols / (by32 ? 32 : 256), nb8 = (nb + 7) & ~7u;
    bool min = !by32;
    uint32_t tile = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        min |= lode_cuda_layouts[a->parts[i].type].adds_twice;
        tile = a->parts[i].w_stride > tile ? a->parts[i].w_stride : tile;
    }
    a->ld =
        4 * ((min ? by32 ? nb8 : nb : nb8 / 2) | 1); /* an odd number of 16 bytes: no bank twice */
    *grid = a->n_units < (uint32_t)c->multiprocessors ? a->n_units : (uint32_t)c->multiprocessors;
    const uint64_t x = (uint64_t)a->n_x * (by32 ? nb8 * 40 : nb * 304);
    /* x as it comes, and the norm's weights behind it */
    const uint64_t floats = a->input == LODE_GEMV_AS_IS ? 0 : (a->n_x + (a->input == LODE_GEMV_NORM)) * a->cols * 4ull;
    const uint64_t unit = (uint64_t)a->per_unit * LODE_GEMV_TILE * 4 * (a->ld + 1);
    const uint64_t most = lode_cuda_room(c) - (n_of_family(a, LODE_CUDA_CODEBOOK) ? LODE_CODEBOOK_GRIDS : 0);
    const uint32_t own = (a->n_units + *grid - 1) / *grid;
    const uint64_t enough = LODE_CUDA_GEMV_BUDGET < most ? LODE_CUDA_GEMV_BUDGET : most;
    const uint64_t room = x + unit <= enough && x + floats <= enough ? enough : most;
    if (!gemv_kernel(&c->kernels, a, by32) || x + unit > room || x + floats > room ||
        (uint64_t)own * a->per_unit > LODE_CUDA_GEMV_TILES)
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
        if (lode_cuda_is_experts(o->in[i].op))
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

int lode_cuda_run_gemv(const struct op *o, uint32_t n, const struct chain *c, struct lode_cuda_gemv_args *a,
                       enum lode_dtype act) {
    uint32_t grid = 0, shared = 0;
    if (!lode_cuda_lay_out_gemv(o, a, act == LODE_A32, &grid, &shared))
        return 0;
    set_next(o, n, c, grid, a);
    LODE_TRY(lode_cuda_run_kernel(o, gemv_kernel(&o->r->c->kernels, a, act == LODE_A32), grid, 1, 1, 512,
                                  shared, a));
    return 1;
}

/* Bytes of shared memory that a product of floats takes at most. */
static uint32_t floats_room(const struct lode_cuda *c) {
    const uint32_t room = lode_cuda_room(c);
    return LODE_CUDA_GEMV_BUDGET < room ? LODE_CUDA_GEMV_BUDGET : room;
}

/* Bytes of shared memory for x of a product of floats; with the norm's weights and the rows of a
 * block where there is one unit for each, and room. */
static uint32_t lay_out_rows(const struct op *o, struct lode_cuda_gemv_args *a) {
    const uint32_t stride = a->parts[0].w_stride,
                   rows_at = a->cols * 4 * (a->input == LODE_GEMV_NORM ? 2 : 1);
    const uint32_t with_rows = rows_at + 4 * (stride + LODE_ROWS_APART);
    if (a->n_units > (uint32_t)o->r->c->multiprocessors || a->n_parts > 1 || a->per_unit > 1 ||
        stride % 16 || rows_at % 16 || with_rows > floats_room(o->r->c))
        return a->cols * 4;
    a->rows_at = rows_at;
    return with_rows;
}

/* Of floats: rows of a block of gemv_near.cu, as few as let all blocks of the first part run at once, as a power of two; or -1. */
static int near_rows(const struct op *o, const struct chain *c) {
    const struct lode_operand *w = c->mul->parts[0].w;
    const uint32_t most = (uint32_t)o->r->c->multiprocessors, rows = lode_cuda_router_rows(c->mul->parts, c->mul->n_parts);
    int i = 0;
    while (i < LODE_NEAR_SIZES && rows > most << i)
        i++;
    return !c->glu && i < LODE_NEAR_SIZES && w->cols % LODE_NEAR_STEP == 0 && w->cols <= LODE_NEAR_COLS &&
                   LODE_NEAR_SHARED(w->cols, 1u << i) <= lode_cuda_room(o->r->c) ? i : -1;
}

/* Whether it is better rounded by itself: few.cu. */
static bool is_long(const struct op *o, const struct chain *c, enum lode_dtype act) {
    const struct lode_operand *w = c->mul->parts[0].w;
    return act == LODE_A256 && c->quant && !c->norm && lode_cuda_all_few(c->mul->parts, c->mul->n_parts) &&
           lode_cuda_tuned(o->r->c, LODE_TUNING_alone, w->type, w->cols);
}

int lode_cuda_run_one_row(const struct op *o, uint32_t n, const struct chain *c) {
    const struct lode_part *parts = c->mul->parts;
    const uint32_t n_parts = c->mul->n_parts;
    const enum lode_dtype act = lode_cuda_common_act(parts, n_parts);
    struct lode_cuda_gemv_args a = {.n_parts = n_parts, .cols = parts[0].w->cols, .per_unit = 1};
    if (act == LODE_NONE || n_parts > LODE_CUDA_PARTS || (act == LODE_F32 && c->quant) ||
        !lode_cuda_set_copies(o, n, c, &a))
        return 0;
    if (act == LODE_F32 && a.cols * 4 > floats_room(o->r->c))
        return 0;
    lode_cuda_set_input(o, c, &a);
    const uint32_t streams = lode_cuda_streams(o, parts, &a);
    if (!streams && is_long(o, c, act))
        return lode_cuda_run_few_rows(o, n, c);
    const int near = act == LODE_F32 && !streams ? near_rows(o, c) : -1;
    const uint32_t tile = streams ? streams : near >= 0 ? 1u << near : act == LODE_F32 ? LODE_FLOAT_ROWS : LODE_GEMV_TILE;
    if (!lode_cuda_set_parts(o, c, tile, &a))
        return 0;
    if (streams) {
        LODE_TRY(lode_cuda_run_stream(o, &a));
        return 1;
    }
    if (act != LODE_F32)
        return lode_cuda_run_gemv(o, n, c, &a, act);
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    const enum lode_dtype type = parts[0].w->type;
    if (near >= 0) {
        LODE_TRY(lode_cuda_run_kernel(o, k->near[type][near], a.n_units, 1, 1, LODE_NEAR_THREADS, LODE_NEAR_SHARED(a.cols, tile), &a));
        return 1;
    }
    const uint32_t most = 2 * (uint32_t)o->r->c->multiprocessors, grid = a.n_units < most ? a.n_units : most;
    const uint32_t shared = lay_out_rows(o, &a);
    LODE_TRY(lode_cuda_run_kernel(o, k->gemv[type], grid, 1, 1, 512, shared, &a));
    return 1;
}
