/* stream.c - which products of one row are computed by gemv_stream.cu and gemv_stream_k.cu, and how they lie in shared
 * memory. */
#include "backend/cuda/run.h"

#include "backend/cuda/kernels/stream_shared.h"

enum {
    WARPS_FOR_X = 8, /* of a block of threads, at least: all of them read, norm and round x */
    LEAST_SLOTS = 2,
    /* Bytes of a block of threads, all that there is: rings of half of it, so that two launches follow each other on a
     * multiprocessor, were slower (bench/notes/cuda.md) .. */
    SHARED = 219 << 10,
    /* .. but where there is so little to read that setting up takes longer: bytes of weights for each multiprocessor. */
    SHARED_OF_SMALL = 110 << 10,
    SMALL = 28 << 10,
};

/* Bytes of a slot, and of a warp beside its ring; of x, and of what lies before it. */
struct needs {
    uint32_t slot, own, x, x_at;
};
/* Bytes of a slot; 0: not one of those that gemv_stream_k.cu knows. */
static uint32_t k_slot(uint32_t type) {
    return type == LODE_Q4_K   ? LODE_STREAM_Q4_K_SLOT
           : type == LODE_Q5_K ? LODE_STREAM_Q5_K_SLOT
           : type == LODE_Q6_K ? LODE_STREAM_Q6_K_SLOT
                               : 0;
}
/* type: the one whose slots are the largest. */
static struct needs needs_of(const struct lode_cuda_gemv_args *a, uint32_t type) {
    const bool norm = a->input == LODE_GEMV_NORM;
    if (k_slot(type))
        return (struct needs){k_slot(type), LODE_STREAM_K_OWN, a->cols / 128 * (LODE_STREAM_K_HALF + 16),
                              norm ? LODE_LANES_SIZE(a->cols) : 0};
    if (type == LODE_Q8_0)
        return (struct needs){LODE_STREAM_Q8_SLOT, LODE_STREAM_Q8_OWN, 40 * ((a->cols / 32 + 7) & ~7u),
                              norm ? a->cols * 4 : 0};
    return (struct needs){LODE_STREAM_SLOT, 0, a->cols * 4, 0};
}
static uint32_t ring_at(const struct needs *n) { return (n->x_at + n->x + 127) & ~127u; }
static uint32_t room(const struct op *o) {
    const uint32_t most = lode_cuda_room(o->r->c);
    return most < SHARED ? most : SHARED;
}
static bool fits(const struct op *o, const struct needs *n) {
    return ring_at(n) + n->own + LEAST_SLOTS * n->slot <= room(o);
}
static uint32_t larger(uint32_t type, uint32_t other) { return k_slot(other) > k_slot(type) ? other : type; }

uint32_t lode_cuda_streams(const struct op *o, const struct lode_part *parts, const struct lode_cuda_gemv_args *a) {
    const struct lode_cuda *c = o->r->c;
    uint32_t type = parts[0].w->type;
    const bool k = k_slot(type), floats = !k && type != LODE_Q8_0;
    if (!c->kernels.stream[type] || a->cols % (k ? 256 : 4))
        return 0;
    /* Routers: gemv_float.cu has all their rows in shared memory at once. */
    if (floats && a->n_parts == 1 && parts[0].w->rows <= 4 * (uint32_t)c->multiprocessors)
        return 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct lode_operand *w = parts[i].w;
        if (k ? !k_slot(w->type) || w->rows % LODE_STREAM_K_ROWS
              : w->type != type || lode_cuda_row_size(type, a->cols) % 16)
            return 0;
        type = larger(type, w->type);
    }
    const struct needs n = needs_of(a, type);
    return !fits(o, &n) ? 0 : k ? LODE_STREAM_K_ROWS : floats ? LODE_STREAM_ROWS : LODE_STREAM_Q8_ROWS;
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
    while (split > 1 && own * (pairs_of(a) + split * (n->own + LEAST_SLOTS * n->slot)) > left)
        split--;
    return split;
}

int lode_cuda_run_stream(const struct op *o, const struct lode_cuda_gemv_args *a) {
    const struct lode_cuda *c = o->r->c;
    const uint32_t all = (uint32_t)c->multiprocessors, grid = a->n_units < all ? a->n_units : all;
    uint32_t type = a->parts[0].type;
    uint64_t size = 0;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        type = larger(type, a->parts[i].type);
        size += (uint64_t)a->parts[i].rows * a->parts[i].w_stride;
    }
    const struct needs n = needs_of(a, type);
    struct lode_cuda_stream_args s = {.a = *a, .ring_at = ring_at(&n), .slot_size = n.slot, .own = n.own};
    s.a.x_at = n.x_at;
    const bool k = k_slot(type),
               small = k && size <= (uint64_t)SMALL * all && SHARED_OF_SMALL <= room(o) &&
                       s.ring_at + LODE_STREAM_WARPS / 2 * (n.own + LEAST_SLOTS * n.slot) <= SHARED_OF_SMALL;
    const uint32_t own = (a->n_units + grid - 1) / grid, at_most = small ? LODE_STREAM_WARPS / 2 : LODE_STREAM_WARPS;
    uint32_t left = (small ? SHARED_OF_SMALL : room(o)) - s.ring_at;
    s.split = k ? split_of(a, own, at_most, &n, left) : 1;
    if (s.split > 1) {
        s.stage_at = s.ring_at;
        s.ring_at += own * pairs_of(a);
        left -= own * pairs_of(a);
        s.warps = own * s.split;
    } else {
        /* As few turns as there can be, and no more warps than make those: the fewer, the larger their rings. */
        const uint32_t fit = left / (n.own + LEAST_SLOTS * n.slot), most = fit < at_most ? fit : at_most,
                       turns = (own + most - 1) / most;
        s.warps = (own + turns - 1) / turns;
    }
    const uint32_t slots = (left / s.warps - n.own) / n.slot;
    s.slots = slots < LODE_STREAM_SLOTS ? slots : LODE_STREAM_SLOTS;
    /* what stands before x it waits for; what does not is asked for when the launch before has ended */
    s.early = !k ? (s.slots - 1) / 2 : small ? s.slots - 1 : 0;
    const uint32_t for_x = k && !small ? LODE_STREAM_WARPS : WARPS_FOR_X,
                   threads = 32 * (s.warps < for_x ? for_x : s.warps),
                   shared = s.ring_at + s.warps * (n.own + s.slots * n.slot);
    return lode_cuda_run_product(o, a, c->kernels.stream[type], grid, threads, shared, &s);
}
