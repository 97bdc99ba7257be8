/* chosen_256.cuh - rows of Q4_K, Q5_K or Q6_K of chosen experts, in shared memory: a half of a block by a thread (half_blocks.cuh). */
#ifndef LODE_CUDA_CHOSEN_256_CUH
#define LODE_CUDA_CHOSEN_256_CUH

#include "chosen.cuh"
#include "backend/cuda/kernels/products/half_blocks.cuh"

/* A row as it lies on the device: 128 bytes of codes a block, behind all of them the top bits, then 16 bytes a block: of Q4_K and
 * Q5_K d, dmin and scales, of Q6_K scales, behind which its d's come last. */
template <int TYPE> struct row_of {
    enum { TOP = TYPE == LODE_Q6_K ? 64 : TYPE == LODE_Q5_K ? 32 : 0, PIECES = 8 + TOP / 16 + 1 }; /* 16 bytes, of a block */
};

/* Half `half` of the row at `row` by that of x: its pairs, to `pairs` where `here` says so.  By all threads of a warp: two
 * neighbours have a block.  TURNED: its pieces lie as chosen_in.cu's ask_row puts them. */
template <int TYPE, bool TURNED>
DEVICE void put_half(const uint8_t *row, const uint8_t *x, uint32_t nb, uint32_t half, uint8_t *pairs, bool here) {
    const uint32_t h = half & 1, b = half / 2;
    const uint8_t *after = row + nb * 128;
    const struct half_of o = {row + half * 64, x + half * HALF_X, x + 2 * nb * HALF_X + half * 16, h, TURNED ? half / 2 & 3 : 0};
    struct half_sums v;
    uint32_t d; /* two halves: of the codes, of the minima */
    if (TYPE == LODE_Q6_K) {
        v = q6_k_half(o, *(const uint2 *)(after + nb * 64 + b * 16 + 8 * h), after + half * 32, TURNED ? b / 2 & 1 : 0);
        d = *(const uint16_t *)(after + nb * 80 + b * 2);
    } else {
        const uint4 head = *(const uint4 *)(after + nb * row_of<TYPE>::TOP + b * 16);
        v = TYPE == LODE_Q5_K ? q5_k_half(o, head, after + b * 32, 0) : q4_k_half(o, head);
        d = head.x;
    }
    const struct half_pair pair = half_pair_of(o, v, d);
    if (here)
        pair.put(pairs + b * 16, h);
}

/* The definition's sum over a row's pairs. */
DEVICE float add_pairs(const uint8_t *pairs, uint32_t nb) { return sum_of_pairs<2>((const float4 *)pairs, nb); }

#endif
