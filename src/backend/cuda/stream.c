/* stream.c - which products of one row are computed by gemv_stream.cu, and how they lie in shared memory. */
#include "backend/cuda/run.h"

#include "backend/cuda/kernels/stream_shared.h"

enum {
    WARPS_FOR_X = 8, /* of a block of threads, at least: all of them read, norm and round x */
    LEAST_SLOTS = 2,
    /* Bytes of a block of threads, all that there is: rings of half of it, so that two launches follow each other on a
     * multiprocessor, were slower (bench/notes/cuda.md). */
    SHARED = 219 << 10,
};

/* Bytes of a slot, and of a warp beside its ring; of x. */
struct needs {
    uint32_t slot, own, x;
};
static struct needs needs_of(const struct lode_cuda_gemv_args *a, uint32_t type) {
    if (type != LODE_Q8_0)
        return (struct needs){LODE_STREAM_SLOT, 0, a->cols * 4};
    const uint32_t blocks = (a->cols / 32 + 7) & ~7u;
    return (struct needs){LODE_STREAM_Q8_SLOT, LODE_STREAM_Q8_OWN,
                          40 * blocks + (a->input == LODE_GEMV_NORM ? a->cols * 4 : 0)};
}
static uint32_t ring_at(const struct needs *n) { return (n->x + 127) & ~127u; }
static uint32_t room(const struct op *o) {
    const uint32_t most = (uint32_t)(o->r->c->shared_max - LODE_CUDA_OWN_SHARED);
    return most < SHARED ? most : SHARED;
}

uint32_t lode_cuda_streams(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a) {
    const struct lode_cuda *c = o->r->c;
    const enum lode_dtype type = parts[0].w->type;
    const bool floats = type != LODE_Q8_0;
    const struct needs n = needs_of(a, type);
    if (!c->kernels.stream[type] || a->cols % 4 || ring_at(&n) + n.own + LEAST_SLOTS * n.slot > room(o))
        return 0;
    /* Routers: gemv_float.cu has all their rows in shared memory at once. */
    if (floats && a->n_parts == 1 && parts[0].w->rows <= 4 * (uint32_t)c->multiprocessors)
        return 0;
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (parts[i].w->type != type || lode_cuda_row_size(type, a->cols) % 16)
            return 0;
    return floats ? LODE_STREAM_ROWS : LODE_STREAM_Q8_ROWS;
}

int lode_cuda_run_stream(const struct op *o, const struct lode_cuda_gemv_args *a) {
    const struct lode_cuda *c = o->r->c;
    const uint32_t all = (uint32_t)c->multiprocessors, type = a->parts[0].type, grid = a->n_units < all ? a->n_units : all;
    const struct needs n = needs_of(a, type);
    struct lode_cuda_stream_args s = {.a = *a, .ring_at = ring_at(&n)};
    s.a.x_at = type == LODE_Q8_0 && a->input == LODE_GEMV_NORM ? a->cols * 4 : 0;
    /* As few turns as there can be, and no more warps than make those: the fewer, the larger their rings. */
    const uint32_t own = (a->n_units + grid - 1) / grid, left = room(o) - s.ring_at,
                   fit = left / (n.own + LEAST_SLOTS * n.slot), most = fit < LODE_STREAM_WARPS ? fit : LODE_STREAM_WARPS,
                   turns = (own + most - 1) / most, warps = (own + turns - 1) / turns;
    const uint32_t slots = (left / warps - n.own) / n.slot;
    s.slots = slots < LODE_STREAM_SLOTS ? slots : LODE_STREAM_SLOTS;
    const uint32_t threads = 32 * (warps < WARPS_FOR_X ? WARPS_FOR_X : warps);
    s.warps = warps;
    return lode_cuda_run_kernel(o, c->kernels.stream[type], grid, 1, 1, threads,
                                s.ring_at + warps * (n.own + s.slots * n.slot), &s);
}
