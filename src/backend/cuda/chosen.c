/* chosen.c - which experts that one row has chosen are computed by kernels/experts/chosen_in.cu and chosen_out.cu, and how they lie in shared memory. */
#include "backend/cuda/fuse.h"

#include "backend/cuda/kernels/experts/chosen_shared.h"

/* Of gate and up, of down; NULL: there is none for the type. */
static void *kernel_of(const struct op *o, uint32_t type, bool out) {
    const struct lode_cuda_kernels *k = &o->r->c->kernels;
    return type == LODE_Q4_K   ? out ? k->chosen_out_q4_k : k->chosen_in_q4_k
           : type == LODE_Q5_K ? out ? k->chosen_out_q5_k : k->chosen_in_q5_k
           : type == LODE_Q6_K ? out ? k->chosen_out_q6_k : k->chosen_in_q6_k
                               : NULL;
}

/* Units of n rows, `most` of which a thread each can add at once: the warps of a block of threads, and what each has.  false:
 * not enough room for units to be asked for while others are computed. */
static bool lay_out_units(const struct op *o, struct lode_cuda_chosen_in_args *s, uint32_t n, uint32_t most, uint32_t x,
                          uint32_t *grid, uint32_t *warps) {
    const uint32_t room = lode_cuda_room(o->r->c), all = (uint32_t)o->r->c->multiprocessors;
    const uint32_t pairs = n * LODE_STREAM_K_PAIRS(s->a.cols);
    *grid = s->a.n_units < all ? s->a.n_units : all;
    s->pitch = s->a.parts[0].w_stride;
    s->slot_size = n * s->pitch;
    s->own_at = lode_cuda_up(x, 128) * 128;
    for (*warps = LODE_CHOSEN_WARPS; *warps >= LODE_CHOSEN_WARPS * 2 / 3; *warps -= LODE_CHOSEN_WARPS / 3) {
        const uint32_t own = lode_cuda_up(s->a.n_units, *grid * *warps), each = s->own_at < room ? (room - s->own_at) / *warps : 0;
        s->batch = own < most ? own : most;
        s->slots = own < LODE_CHOSEN_SLOTS ? own : LODE_CHOSEN_SLOTS;
        while (s->batch > 1 && s->slots * s->slot_size + s->batch * pairs > each)
            s->batch--;
        while (s->slots > 0 && s->slots * s->slot_size + s->batch * pairs > each)
            s->slots--;
        s->own = s->slots * s->slot_size + s->batch * pairs;
        if (s->slots >= 2 || s->slots == own)
            return true;
    }
    return false;
}

int lode_cuda_run_chosen_in(const struct op *o, const struct lode_cuda_gemv_args *a, const struct op *choice) {
    const struct lode_cuda_gemv_part *p = a->parts;
    struct lode_cuda_chosen_in_args s = {.a = *a, .nb = lode_cuda_divisor(a->cols / 256)};
    void *const kernel = kernel_of(o, p[0].type, false);
    uint32_t grid, warps, each = 1;
    if (!kernel || p[1].type != p[0].type || a->input == LODE_GEMV_NORM || a->n_used > LODE_CHOSEN_USED)
        return 0;
    while (2 * each * (a->cols / 128) < 32 && p[0].rows % (2 * each) == 0) /* a warp has halves for all its threads */
        each *= 2;
    s.each = lode_cuda_divisor(each), s.per = lode_cuda_divisor(p[0].rows / each);
    s.a.n_units = a->n_used * s.per.by;
    s.chooses = choice != NULL;
    s.choice_at = LODE_CHOSEN_X(a->cols);
    if (!lay_out_units(o, &s, 2 * each, 32 / each, s.choice_at + (choice ? LODE_QUICK_CHOICE : 0), &grid, &warps) ||
        (choice && !lode_cuda_route_args(choice, 32 * warps, &s.choice)))
        return 0;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, grid, 1, 1, 32 * warps, s.own_at + warps * s.own, &s));
    return 1;
}

/* Turns of as many rows as there are threads for, shared out evenly: bytes of shared memory; 0: not enough room for the next turn's while one
 * is computed. */
static uint32_t lay_out_turns(const struct op *o, struct lode_cuda_chosen_out_args *s) {
    const struct lode_cuda_gemv_part *p = s->a.parts;
    const uint32_t room = lode_cuda_room(o->r->c), all = (uint32_t)o->r->c->multiprocessors;
    const uint32_t halves = s->a.n_used * (s->a.cols / 128), fit = 32 * LODE_CHOSEN_WARPS / halves;
    const bool odd = p->w_stride / 16 % 2;
    s->pitch = odd ? p->w_stride : p->w_stride + 16;
    s->slots_at = lode_cuda_up(s->a.n_used * LODE_CHOSEN_X(s->a.cols), 128) * 128;
    for (uint32_t most = fit ? fit : 1; most; most--) {
        const uint32_t turns = lode_cuda_up(p->rows, all * most);
        most = lode_cuda_up(p->rows, all * turns);
        const uint32_t all_rows = most * s->a.n_used, beside = s->slots_at + all_rows * LODE_STREAM_K_PAIRS(s->a.cols);
        s->slot_size = all_rows * s->pitch;
        s->slots = turns < LODE_CHOSEN_SLOTS ? turns : LODE_CHOSEN_SLOTS;
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
    struct lode_cuda_chosen_out_args s = {.a = *a, .nb = lode_cuda_divisor(a->cols / 256), .known = known};
    void *const kernel = kernel_of(o, a->parts[0].type, true);
    if (!kernel || a->input != LODE_GEMV_ROUND || a->n_used > LODE_CHOSEN_USED)
        return 0;
    const uint32_t shared = lay_out_turns(o, &s);
    if (!shared)
        return 0;
    const uint32_t all = (uint32_t)o->r->c->multiprocessors, grid = s.a.n_units < all ? s.a.n_units : all;
    LODE_TRY(lode_cuda_run_kernel(o, kernel, grid, 1, 1, 32 * LODE_CHOSEN_WARPS, shared, &s));
    return 1;
}
