/* chosen_out_32.cu - the weighed sum of the chosen experts' down, of one row, in types of blocks of 32.
 *
 * A block of threads takes turns of some rows of all experts, as chosen_out.cu does.  A thread keeps its row of each expert, as to find a block is
 * much beside what there is to it: neighbours have a block of rows side by side, whose pieces have all banks, and the same numbers of x.  A
 * warp a row then ends them. */
#include "chosen_32.cuh"
#include "chosen_turns.cuh"

/* All rows of x, rounded: a warp four blocks at a time, of which some are on their way together. */
template <class T> DEVICE void round_rows(const struct lode_cuda_chosen_out_args &s, uint8_t *x) {
    enum { TOGETHER = 4 };
    const uint32_t nb = s.nb.by, warp = threadIdx.x / 32, n = s.a.n_used * s.pieces.by;
#pragma unroll 1
    for (uint32_t first = warp; first < n; first += TOGETHER * LODE_CHOSEN_WARPS) {
        float4 v[TOGETHER];
        uint32_t row[TOGETHER], b[TOGETHER];
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++) {
            const uint32_t j = first + i * LODE_CHOSEN_WARPS < n ? first + i * LODE_CHOSEN_WARPS : first;
            row[i] = over(j, s.pieces), b[i] = block_from(4 * (j - row[i] * s.pieces.by));
            v[i] = four_numbers_of(at<const float>(s.a.x + row[i] * s.a.x_stride), nb, b[i]);
        }
#pragma unroll
        for (uint32_t i = 0; i < TOGETHER; i++)
            if (first + i * LODE_CHOSEN_WARPS < n)
                put_block<T>(x + row[i] * LODE_CHOSEN_X32(s.a.cols), nb, b[i], round_a32(v[i]));
    }
}

/* The pairs of a turn's n rows, whose rows lie in the slot. */
template <class T>
DEVICE void put_pairs(const struct lode_cuda_chosen_out_args &s, const struct turns &t, const uint8_t *x, uint8_t *pairs, uint32_t n) {
    const struct codes_of<T> codes;
    const uint32_t nb = s.nb.by, most = s.rows.by, step = over(CHOSEN_THREADS, s.rows), pitch = pairs_of<T>::size(s.a.cols);
    const uint32_t first = over(threadIdx.x, s.rows), r = threadIdx.x - first * most; /* of all experts' blocks; row */
    uint32_t i = over(first, s.nb), b = first - i * nb;
    if (r >= n || first >= step)
        return;
#pragma unroll 1
    while (i < s.a.n_used) {
        const uint32_t own = i * most + r;
        const uint8_t *row = t.slots + t.slot * s.slot_size + own * s.pitch, *xi = x + i * LODE_CHOSEN_X32(s.a.cols);
        if (IN_BULK)
            barrier_wait(barrier_of(t.slot, (s.together == 1 ? own : i) % LODE_CHOSEN_WARPS), t.parity);
#pragma unroll 1
        for (; b < nb; b += step) {
            struct pairs_of<T> p;
            p.set(codes, row, xi, nb, b);
            p.put(pairs + own * pitch, b);
        }
        for (; b >= nb; b -= nb)
            i++;
    }
}

template <class T> DEVICE void down(const struct lode_cuda_chosen_out_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const struct lode_cuda_gemv_part &part = a.parts[0];
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, warp = threadIdx.x / 32, most = s.rows.by, pitch = pairs_of<T>::size(a.cols);
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
    const uint32_t first = blockIdx.x * most + warp; /* this warp's first row */
    const float residual = a.residual && warp < most && first < part.rows ? at<const float>(a.residual)[first] : 0;
    round_rows<T>(s, x);
#pragma unroll 1
    for (uint32_t turn = blockIdx.x; turn < a.n_units; turn += gridDim.x) {
        const uint32_t n = rows_of(s, turn);
        if (!IN_BULK)
            wait_but(s.slots - 1);
        __syncthreads(); /* x is there, and the pairs before are read */
        put_pairs<T>(s, t, x, pairs, n);
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
            float v = add_blocks<T>(pairs + (own * most + r) * pitch, nb);
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

#define DOWN(suffix, type) CHOSEN(chosen_out, down, lode_cuda_chosen_out_args, suffix, struct suffix)
LODE_CHOSEN_32_LIST(DOWN)
