/* chosen_out.cu - the weighed sum of the chosen experts' down, of one row, in Q4_K, Q5_K and Q6_K.
 *
 * A block of threads takes turns of some rows of all experts.  It shares out their halves of blocks, so that each thread has one or few; a warp a
 * row then ends them. */
#include "chosen_256.cuh"
#include "chosen_turns.cuh"

/* ---- x ---- */

/* A thread's numbers of block j of all rows of x. */
struct eight { float4 u, v; };
DEVICE struct eight eight_at(const struct lode_cuda_chosen_out_args &s, uint32_t j) {
    const uint32_t row = over(j, s.nb), b = j - row * s.nb.by;
    const float4 *p = at<const float4>(s.a.x + row * s.a.x_stride) + b * 64 + threadIdx.x % 32 * 2;
    return {p[0], p[1]};
}
/* All rows, rounded: a warp a block, the next one on its way meanwhile. */
DEVICE void round_rows(const struct lode_cuda_chosen_out_args &s, uint8_t *x, struct eight next) {
    const uint32_t nb = s.nb.by, n = s.a.n_used * nb;
#pragma unroll 1
    for (uint32_t j = threadIdx.x / 32; j < n;) {
        const uint32_t row = over(j, s.nb), b = j - row * nb;
        const float numbers[8] = {next.u.x, next.u.y, next.u.z, next.u.w, next.v.x, next.v.y, next.v.z, next.v.w};
        if ((j += LODE_CHOSEN_WARPS) < n)
            next = eight_at(s, j);
        put_x(x + row * LODE_CHOSEN_X256(s.a.cols), s.a.cols, b, round_256(numbers));
    }
}

/* ---- products ---- */

/* The pairs of a turn's n rows, whose rows lie in the slot: neighbours have rows side by side, whose pieces have all banks. */
template <int TYPE>
DEVICE void put_pairs(const struct lode_cuda_chosen_out_args &s, const struct turns &t, const uint8_t *x, uint8_t *pairs, uint32_t n) {
    const uint32_t nb = s.nb.by, most = s.rows.by, all = 2 * most * nb * s.a.n_used, pitch = LODE_STREAM_K_PAIRS(s.a.cols);
    const uint8_t *rows = t.slots + t.slot * s.slot_size;
#pragma unroll 1
    for (uint32_t h = threadIdx.x; h - threadIdx.x % 32 < all; h += CHOSEN_THREADS) { /* whole warps */
        const uint32_t q = over(h / 2, s.rows), e = over(q, s.nb);
        const bool here = h < all && h / 2 - q * most < n;
        const uint32_t r = here ? h / 2 - q * most : 0, b = here ? q - e * nb : 0, i = here ? e : 0;
        if (IN_BULK)
            barrier_wait(barrier_of(t.slot, (s.together == 1 ? i * most + r : i) % LODE_CHOSEN_WARPS), t.parity);
        put_half<TYPE, false>(rows + (i * most + r) * s.pitch, x + i * LODE_CHOSEN_X256(s.a.cols), nb, 2 * b + h % 2,
                              pairs + (i * most + r) * pitch, here);
    }
}

template <int TYPE> DEVICE void down(const struct lode_cuda_chosen_out_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const struct lode_cuda_gemv_part &part = a.parts[0];
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, warp = threadIdx.x / 32, most = s.rows.by, pitch = LODE_STREAM_K_PAIRS(a.cols);
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
    const struct eight numbers = eight_at(s, warp < a.n_used * nb ? warp : 0);
    const uint32_t first = blockIdx.x * most + warp; /* this warp's first row */
    const float residual = a.residual && warp < most && first < part.rows ? at<const float>(a.residual)[first] : 0;
    round_rows(s, x, numbers);
#pragma unroll 1
    for (uint32_t turn = blockIdx.x; turn < a.n_units; turn += gridDim.x) {
        const uint32_t n = rows_of(s, turn);
        if (!IN_BULK)
            wait_but(s.slots - 1);
        __syncthreads(); /* x is there, and the pairs before are read */
        put_pairs<TYPE>(s, t, x, pairs, n);
        use_next(t, s);
        __syncthreads(); /* the pairs are there, and the slot is free */
        if (turn + gridDim.x < a.n_units)
            ask_next(t, s);
#pragma unroll 1
        for (uint32_t r = warp; r < n; r += LODE_CHOSEN_WARPS) { /* a thread an expert, then all threads their sum */
            const uint32_t row = turn * most + r;
            float v = add_pairs(pairs + (own * most + r) * pitch, nb);
            if (part.bias)
                v += at<const float>(part.bias)[(size_t)route.expert * part.rows + row];
            float sum = 0;
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

#define DOWN(suffix, type) CHOSEN(chosen_out, down, lode_cuda_chosen_out_args, suffix, LODE_##type)
LODE_CHOSEN_256_LIST(DOWN)
