/* chosen_turns.cuh - rows of down on their way to slots of shared memory: turns of some rows of all experts (chosen_out.cu, chosen_out_32.cu). */
#ifndef LODE_CUDA_CHOSEN_TURNS_CUH
#define LODE_CUDA_CHOSEN_TURNS_CUH

#include "chosen.cuh"

/* s.slots turns' rows, expert by expert.  On Hopper what a warp has asked for a slot has a barrier of its own. */
struct turns {
    uint8_t *slots;
    unsigned long long matrix; /* lane i's: down of expert i */
    uint32_t asked, fill;      /* the next turn, to the next slot */
    uint32_t slot, parity;     /* which is used next */
};
DEVICE uint32_t rows_of(const struct lode_cuda_chosen_out_args &s, uint32_t turn) {
    const uint32_t left = s.a.parts[0].rows - turn * s.rows.by;
    return left < s.rows.by ? left : s.rows.by;
}

/* Copy j of a turn: rows `first` and on of expert `expert`, of those of the turn; `size` bytes. */
struct copy_of {
    uint32_t expert, first, size;
};
DEVICE struct copy_of copy_at(const struct lode_cuda_chosen_out_args &s, uint32_t j, uint32_t n) {
    const uint32_t expert = over(j, s.of_expert), first = (j - expert * s.of_expert.by) * s.together, left = first < n ? n - first : 0;
    return {expert, first, (left < s.together ? left : s.together) * s.a.parts[0].w_stride};
}
/* All that comes next, where there is something. */
DEVICE void ask_next(struct turns &t, const struct lode_cuda_chosen_out_args &s) {
    const uint32_t warp = threadIdx.x / 32, n = t.asked < s.a.n_units ? rows_of(s, t.asked) : 0;
    if (n) {
        const uint32_t to = shared_address(t.slots + t.fill * s.slot_size), barrier = barrier_of(t.fill, warp);
        uint32_t bytes = 0;
#pragma unroll 1
        for (uint32_t j = warp; j < s.copies; j += LODE_CHOSEN_WARPS) {
            const struct copy_of c = copy_at(s, j, n);
            const uint32_t at = to + (c.expert * s.rows.by + c.first) * s.pitch;
            const void *from = (const void *)(__shfl_sync(0xffffffffu, t.matrix, c.expert) +
                                              (size_t)(t.asked * s.rows.by + c.first) * s.a.parts[0].w_stride);
            bytes += c.size;
            if (!IN_BULK)
                for (uint32_t p = 16 * (threadIdx.x % 32); p < c.size; p += 512)
                    copy_async_at<16>(at + p, (const uint8_t *)from + p);
            else if (c.size && elected())
                bulk_copy(at, from, c.size, barrier);
        }
        if (IN_BULK && elected())
            barrier_arrive_expect(barrier, bytes); /* after them: it is the only arrival that the barrier waits for */
    }
    if (!IN_BULK)
        copies_end_group();
    t.asked += gridDim.x;
    t.fill = t.fill + 1 == s.slots ? 0 : t.fill + 1;
}
DEVICE void use_next(struct turns &t, const struct lode_cuda_chosen_out_args &s) {
    if (++t.slot == s.slots)
        t.slot = 0, t.parity ^= 1;
}

/* The weighed sum, by KIND:
 *
 *     pairs_size(cols)     bytes of a row's pairs
 *     first                what a thread has asked for of x, which begin(s) gives, before round(s, x, first) puts all rows there, rounded
 *     put(s, t, x, pairs, n)   the pairs of a turn's n rows
 *     add(pairs, nb)       a row's sum */
template <class KIND> DEVICE void take_turns(const struct lode_cuda_chosen_out_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const struct lode_cuda_gemv_part &part = a.parts[0];
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, warp = threadIdx.x / 32, most = s.rows.by, pitch = KIND::pairs_size(a.cols);
    uint8_t *x = (uint8_t *)row_mem, *pairs = x + s.slots_at + s.slots * s.slot_size;
    if (IN_BULK)
        make_barriers(s.slots);
    let_next_come();
    if (!s.known)
        wait_for_last();
    const uint32_t own = lane < a.n_used ? lane : a.n_used - 1; /* of the experts */
    const struct route_of route = read_route(a);
    const float weight = a.weigh_input ? 1.0f : route.weight;
    struct turns t = {x + s.slots_at, part.w + route.expert * part.expert_size, blockIdx.x, 0, 0, 0};
#pragma unroll 1
    for (uint32_t i = 0; i < s.slots; i++)
        ask_next(t, s);
    if (s.known)
        wait_for_last();
    const typename KIND::first numbers = KIND::begin(s);
    const uint32_t first = blockIdx.x * most + warp; /* this warp's first row */
    const float residual = a.residual && warp < most && first < part.rows ? at<const float>(a.residual)[first] : 0;
    KIND::round(s, x, numbers);
#pragma unroll 1
    for (uint32_t turn = blockIdx.x; turn < a.n_units; turn += gridDim.x) {
        const uint32_t n = rows_of(s, turn);
        if (!IN_BULK)
            wait_but(s.slots - 1);
        __syncthreads(); /* x is there, and the pairs before are read */
        KIND::put(s, t, x, pairs, n);
        use_next(t, s);
        __syncthreads(); /* the pairs are there, and the slot is free */
        if (turn + gridDim.x < a.n_units)
            ask_next(t, s);
#pragma unroll 1
        for (uint32_t r = warp; r < n; r += LODE_CHOSEN_WARPS) { /* a thread an expert, then all threads their sum */
            const uint32_t row = turn * most + r;
            float bias = 0, sum = 0;
            if (part.bias) /* on its way meanwhile */
                bias = at<const float>(part.bias)[(size_t)route.expert * part.rows + row];
            float v = KIND::add(pairs + (own * most + r) * pitch, nb);
            if (part.bias)
                v += bias;
#pragma unroll 4
            for (uint32_t k = 0; k < a.n_used; k++)
                sum = fmaf(__shfl_sync(0xffffffffu, weight, k), __shfl_sync(0xffffffffu, v, k), sum);
            if (lane)
                continue;
            if (a.residual)
                sum = with_residual(a, sum, row == first ? residual : at<const float>(a.residual)[row]);
            at<float>(part.y)[row] = sum;
        }
    }
}

#endif
