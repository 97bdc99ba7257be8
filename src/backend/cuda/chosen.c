/* chosen.c - which experts that one row has chosen are computed by kernels/experts/chosen_in.cu and chosen_out.cu, of types of blocks of 32 by
 * chosen_in_32.cu and chosen_out_32.cu, and how they lie in shared memory. */
#include "backend/cuda/fuse.h"

#include "backend/cuda/kernels/experts/chosen_shared.h"

enum {
    OF_TURN_32 = 6,     /* blocks of 32 that a thread has of a turn of down: each turn ends with a chain that all wait for */
    LEAST_WARPS_32 = 4, /* of a block of threads with gate and up */
};

static bool is_by_32(const struct lode_cuda_gemv_part *p) { return lode_dtypes[p->type].act == LODE_A32; }
/* Bytes of a row of x, rounded; of a row's pairs. */
static uint32_t x_size(const struct lode_cuda_gemv_args *a) {
    return is_by_32(a->parts) ? LODE_CHOSEN_X32(a->cols) : LODE_CHOSEN_X256(a->cols);
}
static uint32_t pairs_size(const struct lode_cuda_gemv_args *a) {
    return is_by_32(a->parts) ? LODE_CHOSEN_PAIRS32(a->cols, lode_cuda_layouts[a->parts[0].type].adds_twice) : LODE_CHOSEN_PAIRS256(a->cols);
}
static uint32_t multiprocessors(const struct op *o) { return (uint32_t)o->r->c->multiprocessors; }
static uint32_t less(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* ---- gate and up ---- */

/* Warps of a block of threads, as many as leave each of them room for units that are asked for while others are computed: two slots, or
 * one for each of its units; by steps down to `least`; 0: there is no room.  batch: units whose pairs lie beside the slots, `pairs` bytes each. */
static uint32_t lay_out_units(const struct op *o, struct lode_cuda_chosen_in_args *s, uint32_t batch, uint32_t pairs, uint32_t least,
                              uint32_t step) {
    const uint32_t room = lode_cuda_room(o->r->c), grid = less(s->a.n_units, multiprocessors(o));
    for (uint32_t warps = LODE_CHOSEN_WARPS; warps >= least; warps -= step) {
        const uint32_t own = lode_cuda_up(s->a.n_units, grid * warps), each = s->own_at < room ? (room - s->own_at) / warps : 0;
        s->batch = less(own, batch);
        s->slots = less(own, LODE_CHOSEN_SLOTS);
        while (s->batch > 1 && s->slots * s->slot_size + s->batch * pairs > each)
            s->batch--;
        while (s->slots > 0 && s->slots * s->slot_size + s->batch * pairs > each)
            s->slots--;
        s->own = s->slots * s->slot_size + s->batch * pairs;
        if (s->slots >= 2 || s->slots == own)
            return warps;
    }
    return 0;
}

/* Units of so many rows of both. */
static void set_units(struct lode_cuda_chosen_in_args *s, uint32_t each, uint32_t pitch) {
    s->each = lode_cuda_divisor(each), s->per = lode_cuda_divisor(s->a.parts[0].rows / each);
    s->a.n_units = s->a.n_used * s->per.by;
    s->pitch = pitch;
    s->slot_size = 2 * each * pitch;
}
/* The warps of chosen_in.cu, whose units have halves of blocks for all threads of one. */
static uint32_t lay_out_halves(const struct op *o, struct lode_cuda_chosen_in_args *s) {
    uint32_t each = 1;
    while (2 * each * (s->a.cols / 128) < 32 && s->a.parts[0].rows % (2 * each) == 0)
        each *= 2;
    set_units(s, each, s->a.parts[0].w_stride);
    return lay_out_units(o, s, 32 / each, 2 * each * pairs_size(&s->a), LODE_CHOSEN_WARPS * 2 / 3, LODE_CHOSEN_WARPS / 3);
}
/* Those of chosen_in_32.cu.  Eight threads have two blocks of each of a unit's rows, which lie so that these are in all banks. */
static uint32_t lay_out_blocks(const struct op *o, struct lode_cuda_chosen_in_args *s) {
    uint32_t pieces = s->a.parts[0].w_stride / 16;
    while (pieces % 4 != 2)
        pieces++;
    if (s->a.parts[0].rows % LODE_CHOSEN_EACH_32)
        return 0;
    set_units(s, LODE_CHOSEN_EACH_32, 16 * pieces);
    return lay_out_units(o, s, 0, 0, LEAST_WARPS_32, 2);
}

int lode_cuda_run_chosen_in(const struct op *o, const struct lode_cuda_gemv_args *a, const struct op *choice) {
    const struct lode_cuda_gemv_part *p = a->parts;
    struct lode_cuda_chosen_in_args s = {.a = *a, .nb = lode_cuda_divisor(a->cols / (is_by_32(p) ? 32 : 256)), .chooses = choice != NULL};
    void *const kernel = o->r->c->kernels.chosen_in[p[0].type];
    if (!kernel || p[1].type != p[0].type || a->input == LODE_GEMV_NORM || a->n_used > LODE_CHOSEN_USED)
        return 0;
    s.choice_at = lode_cuda_up(x_size(a), 16) * 16;
    s.own_at = lode_cuda_up(s.choice_at + (choice ? LODE_QUICK_CHOICE : 0), 128) * 128;
    const uint32_t warps = is_by_32(p) ? lay_out_blocks(o, &s) : lay_out_halves(o, &s);
    if (!warps || (choice && !lode_cuda_route_args(choice, 32 * warps, &s.choice)))
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, less(s.a.n_units, multiprocessors(o)), 1, 1, 32 * warps, s.own_at + warps * s.own, &s));
    return 1;
}

/* ---- down ---- */

/* Turns of as many rows as there are threads for, shared out evenly: bytes of shared memory; 0: not enough room for the next turn's while one
 * is computed. */
static uint32_t lay_out_turns(const struct op *o, struct lode_cuda_chosen_out_args *s) {
    const struct lode_cuda_gemv_part *p = s->a.parts;
    const uint32_t room = lode_cuda_room(o->r->c), all = multiprocessors(o);
    const uint32_t items = s->a.n_used * s->nb.by * (is_by_32(p) ? 1 : 2), fit = 32 * LODE_CHOSEN_WARPS * (is_by_32(p) ? OF_TURN_32 : 1) / items;
    const bool odd = p->w_stride / 16 % 2;
    s->pitch = odd ? p->w_stride : p->w_stride + 16;
    s->slots_at = lode_cuda_up(s->a.n_used * x_size(&s->a), 128) * 128;
    for (uint32_t most = fit ? fit : 1; most; most--) {
        const uint32_t turns = lode_cuda_up(p->rows, all * most);
        most = lode_cuda_up(p->rows, all * turns);
        const uint32_t all_rows = most * s->a.n_used, beside = s->slots_at + all_rows * pairs_size(&s->a);
        s->slot_size = all_rows * s->pitch;
        s->slots = less(turns, LODE_CHOSEN_SLOTS);
        while (s->slots && beside + s->slots * s->slot_size > room)
            s->slots--;
        if (s->slots < 2 && s->slots < turns)
            continue;
        s->together = odd ? most : 1;
        s->copies = all_rows / s->together;
        s->rows = lode_cuda_divisor(most), s->of_expert = lode_cuda_divisor(most / s->together);
        s->a.n_units = lode_cuda_up(p->rows, most);
        return beside + s->slots * s->slot_size;
    }
    return 0;
}

int lode_cuda_run_chosen_out(const struct op *o, const struct lode_cuda_gemv_args *a, bool known) {
    const bool by32 = is_by_32(a->parts);
    struct lode_cuda_chosen_out_args s = {.a = *a, .nb = lode_cuda_divisor(a->cols / (by32 ? 32 : 256)),
                                          .pieces = lode_cuda_divisor(lode_cuda_up(a->cols, 128)), .known = known};
    void *const kernel = o->r->c->kernels.chosen_out[a->parts[0].type];
    if (!kernel || a->input != LODE_GEMV_ROUND || a->n_used > LODE_CHOSEN_USED)
        return 0;
    const uint32_t shared = lay_out_turns(o, &s);
    if (!shared)
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, less(s.a.n_units, multiprocessors(o)), 1, 1, 32 * LODE_CHOSEN_WARPS, shared, &s));
    return 1;
}
