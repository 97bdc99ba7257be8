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

template <int TYPE> struct down_256 {
    typedef struct eight first;
    static DEVICE_MEMBER uint32_t pairs_size(uint32_t cols) { return LODE_STREAM_K_PAIRS(cols); }
    static DEVICE_MEMBER struct eight begin(const struct lode_cuda_chosen_out_args &s) {
        const uint32_t warp = threadIdx.x / 32;
        return eight_at(s, warp < s.a.n_used * s.nb.by ? warp : 0);
    }
    static DEVICE_MEMBER void round(const struct lode_cuda_chosen_out_args &s, uint8_t *x, struct eight numbers) { round_rows(s, x, numbers); }
    static DEVICE_MEMBER void put(const struct lode_cuda_chosen_out_args &s, const struct turns &t, const uint8_t *x, uint8_t *pairs, uint32_t n) {
        put_pairs<TYPE>(s, t, x, pairs, n);
    }
    static DEVICE_MEMBER float add(const uint8_t *pairs, uint32_t nb) { return add_pairs(pairs, nb); }
};

#define DOWN(suffix, type) CHOSEN(chosen_out, take_turns, lode_cuda_chosen_out_args, suffix, down_256<LODE_##type>)
LODE_CHOSEN_256_LIST(DOWN)
