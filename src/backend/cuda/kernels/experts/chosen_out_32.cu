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

template <class T> struct down_32 {
    struct first {};
    static DEVICE_MEMBER uint32_t pairs_size(uint32_t cols) { return pairs_of<T>::size(cols); }
    static DEVICE_MEMBER struct first begin(const struct lode_cuda_chosen_out_args &) { return {}; }
    static DEVICE_MEMBER void round(const struct lode_cuda_chosen_out_args &s, uint8_t *x, struct first) { round_rows<T>(s, x); }
    static DEVICE_MEMBER void put(const struct lode_cuda_chosen_out_args &s, const struct turns &t, const uint8_t *x, uint8_t *pairs, uint32_t n) {
        put_pairs<T>(s, t, x, pairs, n);
    }
    static DEVICE_MEMBER float add(const uint8_t *pairs, uint32_t nb) { return add_blocks<T>(pairs, nb); }
};

#define DOWN(suffix, type) CHOSEN(chosen_out, take_turns, lode_cuda_chosen_out_args, suffix, down_32<struct suffix>)
LODE_CHOSEN_32_LIST(DOWN)
