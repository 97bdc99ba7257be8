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

#endif
