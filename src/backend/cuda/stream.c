/* stream.c - which products of one row are computed by gemv_stream.cu and gemv_stream_k.cu, which of up to sixteen by
 * gemv_stream_fast.cu, and how they lie in shared memory. */
#include "backend/cuda/run.h"

#include "backend/cuda/kernels/products/stream_shared.h"

enum {
    WARPS_FOR_X = 8, /* of a block of threads, at least: all of them read, norm and round x */
    LEAST_SLOTS = 2,
    /* Bytes of a block of threads, all that there is: rings of half of it, so that two launches follow each other on a
     * multiprocessor, were slower (bench/notes/cuda.md) .. */
    SHARED = 219 << 10,
    /* .. but where there is so little to read that setting up takes longer: bytes of weights for each multiprocessor. */
    SHARED_OF_SMALL = 110 << 10,
    SMALL = 28 << 10,
    SMALL_OF_FLOATS = 64 << 10, /* and of Q8_0: up to which fewer threads are quicker with x */
    LARGE = 300 << 10, /* of K-quants, from which on a slot is asked for before x, which then comes later */
};

/* A warp's rows, and numbers of one in a slot; bytes of a slot, beside it, and of a warp beside its ring; of x, and of what lies
 * before it. */
struct needs {
    uint32_t rows, chunk, slot, head, own, x, x_at;
};
/* Bytes beside a slot; 0: not one of those that gemv_stream_k.cu knows. */
static uint32_t k_heads(uint32_t type) {
    return type == LODE_Q4_K   ? LODE_STREAM_Q4_K_HEADS
           : type == LODE_Q5_K ? LODE_STREAM_Q5_K_HEADS
           : type == LODE_Q6_K ? LODE_STREAM_Q6_K_HEADS
                               : 0;
}
/* type: the one that takes most. */
static struct needs needs_of(const struct lode_cuda_gemv_args *a, uint32_t type) {
    const bool norm = a->input == LODE_GEMV_NORM;
    if (k_heads(type))
        return (struct needs){.rows = LODE_STREAM_K_ROWS, .chunk = LODE_STREAM_K_BLOCKS * 256, .slot = LODE_STREAM_K_SLOT,
                              .head = k_heads(type), .own = LODE_STREAM_K_OWN,
                              .x = a->cols / 128 * (LODE_STREAM_K_HALF + 16), .x_at = norm ? LODE_LANES_SIZE(a->cols) : 0};
    if (type == LODE_Q8_0)
        return (struct needs){.rows = LODE_STREAM_Q8_ROWS, .chunk = LODE_STREAM_CHUNK, .slot = LODE_STREAM_Q8_SLOT,
                              .head = LODE_STREAM_Q8_HEADS, .own = LODE_STREAM_Q8_OWN,
                              .x = 40 * ((a->cols / 32 + 7) & ~7u), .x_at = norm ? a->cols * 4 : 0};
    return (struct needs){.rows = LODE_STREAM_ROWS, .chunk = LODE_STREAM_CHUNK / lode_dtypes[type].bytes, .slot = LODE_STREAM_SLOT,
                          .x = a->cols * 4};
}
/* Where rings may begin, by ALIGN / 16 places; what a ring of n slots takes with what stands beside it. */
static uint32_t ring_at(const struct needs *n) { return (n->x_at + n->x + 127) & ~127u; }
enum { FOR_ALIGNMENT = LODE_STREAM_ALIGN - 16 };
static uint32_t ring_size(const struct needs *n, uint32_t slots) { return n->own + slots * (n->slot + n->head); }
static uint32_t room(const struct op *o) {
    const uint32_t most = lode_cuda_room(o->r->c);
    return (most < SHARED ? most : SHARED) - FOR_ALIGNMENT;
}
static bool fits(const struct op *o, const struct needs *n) { return ring_at(n) + ring_size(n, LEAST_SLOTS) <= room(o); }
static uint32_t larger(uint32_t type, uint32_t other) { return k_heads(other) > k_heads(type) ? other : type; }

uint32_t lode_cuda_streams(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a) {
    const struct lode_cuda *c = o->r->c;
    uint32_t type = parts[0].w->type;
    const bool k = k_heads(type), floats = !k && type != LODE_Q8_0;
    if (!c->kernels.stream[type] || !c->cu.tensor_map || a->n_parts > LODE_STREAM_PARTS || a->cols % (k ? 256 : 4))
        return 0;
    /* Routers: gemv_near.cu and gemv_float.cu have all their rows in shared memory at once. */
    if (floats && lode_cuda_router_rows(parts, a->n_parts) <= LODE_FLOAT_ROWS * (uint32_t)c->multiprocessors)
        return 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct lode_operand *w = parts[i].w;
        if (k ? !k_heads(w->type) || w->rows % LODE_STREAM_K_ROWS : w->type != type || lode_cuda_row_size(type, a->cols) % 16)
            return 0;
        type = larger(type, w->type);
    }
    const struct needs n = needs_of(a, type);
    return fits(o, &n) ? n.rows : 0;
}

/* Bytes that the warps of a unit leave for one to add. */
static uint32_t pairs_of(const struct lode_cuda_gemv_args *a) {
    return LODE_STREAM_K_ROWS * LODE_STREAM_K_PAIRS(a->cols);
}

/* Warps of a unit, where its units leave some without one: each has some of its chunks.  own: units of a block of
 * threads. */
static uint32_t split_of(const struct lode_cuda_gemv_args *a, uint32_t own, uint32_t at_most, const struct needs *n,
                         uint32_t left) {
    const uint32_t chunks = (a->cols / 256 + LODE_STREAM_K_BLOCKS - 1) / LODE_STREAM_K_BLOCKS;
    uint32_t split = at_most / own < chunks ? at_most / own : chunks;
    if (a->per_unit > 1 || split < 2)
        return 1;
    while (split > 1 && own * (pairs_of(a) + split * ring_size(n, LEAST_SLOTS)) > left)
        split--;
    return split;
}

/* How each plane of a part's rows lies, for copies of what a chunk has of it in a warp's rows: lines, or less than one. */
static int map_planes(const struct op *o, const struct lode_cuda_gemv_part *p, uint32_t cols, const struct needs *n,
                      struct lode_cuda_map maps[LODE_STREAM_MAPS]) {
    const struct lode_cuda_layout *l = &lode_cuda_layouts[p->type];
    const uint32_t block = lode_dtypes[p->type].block, of_row = cols / block, blocks = n->chunk / block;
    uint64_t from = p->w;
    for (uint32_t i = 0; i < l->n; i++) {
        const uint32_t size = l->plain ? lode_dtypes[p->type].bytes : l->plane[i].size, chunk = size * blocks,
                       line = chunk < LODE_STREAM_LINE ? chunk : LODE_STREAM_LINE;
        const uint64_t sizes[3] = {line / 4, p->rows, (of_row * size + line - 1) / line}, strides[2] = {p->w_stride, line};
        const uint32_t box[3] = {line / 4, n->rows, chunk / line}, steps[3] = {1, 1, 1};
        const struct lode_cu *cu = &o->r->c->cu;
        LODE_TRY(lode_cu_check(cu,
                               cu->tensor_map(maps + i, LODE_CU_MAP_U32, 3, (void *)(uintptr_t)from, sizes, strides, box, steps, 0,
                                              line == LODE_STREAM_LINE ? LODE_CU_MAP_SWIZZLE_128 : 0, LODE_CU_MAP_PROMOTE_128, 0),
                               "how weights lie", o->err));
        from += of_row * size;
    }
    return 0;
}

struct launch {
    uint32_t grid, threads, shared;
};
/* What a takes, of which n says what the type that takes most needs. */
static int lay_out(const struct op *o, const struct lode_cuda_gemv_args *a, const struct needs *n, bool k,
                   struct lode_cuda_stream_args *s, struct launch *l) {
    const struct lode_cuda *c = o->r->c;
    const uint32_t all = (uint32_t)c->multiprocessors, most_blocks = a->n_units < all ? a->n_units : all;
    const uint32_t own = (a->n_units + most_blocks - 1) / most_blocks;
    /* Of K-quants no more blocks than have `own` units: the last ones would have one less, which saves nothing, and begin when the last block
     * of the launch before is done. */
    const uint32_t grid = k ? (a->n_units + own - 1) / own : most_blocks;
    uint64_t size = 0;
    for (uint32_t i = 0; i < a->n_parts; i++)
        size += (uint64_t)a->parts[i].rows * a->parts[i].w_stride;
    *s = (struct lode_cuda_stream_args){.a = *a, .ring_at = ring_at(n), .slot_size = n->slot, .head_size = n->head, .own = n->own};
    s->a.x_at = n->x_at;
    const bool small = k && size <= (uint64_t)SMALL * all && SHARED_OF_SMALL <= room(o) &&
                       s->ring_at + FOR_ALIGNMENT + LODE_STREAM_WARPS / 2 * ring_size(n, LEAST_SLOTS) <= SHARED_OF_SMALL;
    const uint32_t at_most = small ? LODE_STREAM_WARPS / 2 : LODE_STREAM_WARPS;
    uint32_t left = (small ? SHARED_OF_SMALL - FOR_ALIGNMENT : room(o)) - s->ring_at;
    const uint32_t split = k ? split_of(a, own, at_most, n, left) : 1;
    s->split = lode_cuda_divisor(split);
    if (split > 1) {
        s->stage_at = s->ring_at;
        s->ring_at += own * pairs_of(a);
        left -= own * pairs_of(a);
        s->warps = own * split;
    } else {
        /* As few turns as there can be, and no more warps than make those: the fewer, the larger their rings. */
        const uint32_t fit = left / ring_size(n, LEAST_SLOTS), most = fit < at_most ? fit : at_most,
                       turns = (own + most - 1) / most;
        s->warps = (own + turns - 1) / turns;
    }
    const uint32_t slots = (left / s->warps - n->own) / (n->slot + n->head);
    s->slots = slots < LODE_STREAM_SLOTS ? slots : LODE_STREAM_SLOTS;
    /* What stands before x it waits for; what does not is asked for when the launch before has ended.  Of what is but a chunk a warp, as
     * output is, all has come by then; where x is normed that was not measured. */
    const bool one_chunk = a->per_unit * own * split <= s->warps && lode_cuda_up(a->cols, n->chunk) <= split;
    s->early = !k ? (s->slots - 1) / 2 : small ? s->slots - 1 : size >= (uint64_t)LARGE * all || (one_chunk && a->input != LODE_GEMV_NORM);
    s->heads_at = s->warps * s->slots * n->slot;
    s->own_at = s->heads_at + s->warps * s->slots * n->head;
    for (uint32_t i = 0; i < a->n_parts; i++)
        LODE_TRY(map_planes(o, &a->parts[i], a->cols, n, s->maps[i]));
    const uint32_t for_x = a->n_x > 1 ? s->warps : size > (uint64_t)(k ? SMALL : SMALL_OF_FLOATS) * all ? LODE_STREAM_WARPS : WARPS_FOR_X;
    *l = (struct launch){grid, 32 * (s->warps < for_x ? for_x : s->warps), s->ring_at + FOR_ALIGNMENT + s->warps * ring_size(n, s->slots)};
    return 0;
}

int lode_cuda_run_stream(const struct op *o, const struct lode_cuda_gemv_args *a) {
    uint32_t type = a->parts[0].type;
    for (uint32_t i = 0; i < a->n_parts; i++)
        type = larger(type, a->parts[i].type);
    const struct needs n = needs_of(a, type);
    struct lode_cuda_stream_args s;
    struct launch l;
    LODE_TRY(lay_out(o, a, &n, k_heads(type), &s, &l));
    return lode_cuda_run_product(o, a, o->r->c->kernels.stream[type], l.grid, l.threads, l.shared, &s);
}

/* ---- on the tensor cores ---- */

/* Of more rows than one, slots that x comes to (x_ring.cuh): as many as it has, or there is room for beside the rings of weights. */
static uint32_t x_slots(const struct op *o, const struct lode_cuda_gemv_args *a) {
    const uint32_t half = room(o) / 2, most = half < LODE_STREAM_X_ROOM ? half : LODE_STREAM_X_ROOM;
    const uint32_t slots = most / LODE_STREAM_X_SLOT(lode_cuda_groups_of(a->n_x)), all = lode_cuda_up(a->cols, LODE_STREAM_CHUNK / 2);
    return slots < 1 ? 1 : slots < all ? slots : all;
}
/* One row lies there rounded, behind it as it was where it is normed or has a factor. */
static struct needs fast_needs(const struct op *o, const struct lode_cuda_gemv_args *a, uint32_t type) {
    const bool twice = a->n_x == 1 && (a->input == LODE_GEMV_NORM || type == LODE_F16);
    return (struct needs){.rows = LODE_STREAM_ROWS, .chunk = LODE_STREAM_CHUNK / 2, .slot = LODE_STREAM_SLOT,
                          .x = a->n_x == 1 ? 2 * ((a->cols + 15) & ~15u) : x_slots(o, a) * LODE_STREAM_X_SLOT(lode_cuda_groups_of(a->n_x)),
                          .x_at = twice ? 4 * a->cols : 0};
}
static void *fast_kernel(const struct op *o, const struct lode_cuda_gemv_args *a, uint32_t type) {
    const uint32_t size = lode_cuda_few_size(a->n_x > 1 ? lode_cuda_groups_of(a->n_x) : 0);
    return a->n_x > LODE_STREAM_FEW ? NULL : o->r->c->kernels.fast[type == LODE_BF16].stream[size];
}

uint32_t lode_cuda_streams_fast(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a) {
    const uint32_t type = parts[0].w->type;
    const struct needs n = fast_needs(o, a, type);
    return !lode_cuda_is_packed(type) && fast_kernel(o, a, type) && a->n_parts <= LODE_STREAM_PARTS && fits(o, &n) ? n.rows : 0;
}

int lode_cuda_run_stream_fast(const struct op *o, const struct lode_cuda_few_args *f) {
    const struct lode_cuda_gemv_args *a = &f->a;
    const struct needs n = fast_needs(o, a, a->parts[0].type);
    struct lode_cuda_stream_few_args s = {.residual_stride = f->residual_stride, .x_slots = lode_cuda_divisor(x_slots(o, a))};
    struct launch l;
    for (uint32_t i = 0; i < a->n_parts; i++)
        s.y_stride[i] = f->y_stride[i];
    LODE_TRY(lay_out(o, a, &n, false, &s.s, &l));
    return lode_cuda_run_product(o, a, fast_kernel(o, a, a->parts[0].type), l.grid, l.threads, l.shared, &s);
}
