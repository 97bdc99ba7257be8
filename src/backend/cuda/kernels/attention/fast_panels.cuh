/* fast_panels.cuh - a page in panels (panels.cuh) by a warp, in attention_fast.cuh's arithmetic: what decode_ring.cu and parts_ring.cu
 * share. */
#ifndef LODE_CUDA_FAST_PANELS_CUH
#define LODE_CUDA_FAST_PANELS_CUH

#include "attention_fast.cuh"
#include "panels.cuh"

/* Scores of a page's keys, in panels, for 8 ROWS queries at `q`, by a warp. */
template <class T, int ROWS, int DIM> DEVICE void score_panels(float (&c)[KEY_TILES][4], uint32_t q, uint32_t keys) {
    const uint32_t lane = threadIdx.x % 32, ld = LODE_ATT_FAST_STRIDE(DIM);
    const uint32_t queries = q + (ROWS == 1 ? lane % 8 * ld + lane / 8 * 16 : lane % 16 * ld + lane / 16 * 16);
    const uint32_t pieces = keys + in_panel(lane % 8, lane / 8);
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[t][e] = 0;
#pragma unroll
    for (int i = 0; i < DIM / 16; i += 2) {
        uint32_t x[2][4] = {}; /* of two steps, in the registers that products take: rows r and r + 8, then their next eight numbers */
        if (ROWS == 1) {
            uint32_t v[4];
            load_pieces(v, queries + 32 * i);
            x[0][0] = v[0], x[0][2] = v[1], x[1][0] = v[2], x[1][2] = v[3];
        } else {
            load_pieces(x[0], queries + 32 * i);
            load_pieces(x[1], queries + 32 * i + 32);
        }
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) {
            uint32_t k[4];
            load_pieces(k, (pieces ^ i % 4 / 2 * 64) + i / 4 * PANEL + t * 8 * 128);
#pragma unroll
            for (int s = 0; s < 2; s++)
                mma_fast<T>(c[t], make_uint2(x[s][0], x[s][2]), make_uint2(x[s][1], x[s][3]), make_uint2(k[2 * s], k[2 * s + 1]));
        }
    }
}
/* Values of a page, in panels, to a chain's sums. */
template <class T, int DIM> DEVICE void mix_panels(float (&y)[DIM / 8][4], const struct weights &w, uint32_t values) {
    const uint32_t lane = threadIdx.x % 32, pieces = values + in_panel(lane % 16, lane / 16);
    shrink(y, w);
#pragma unroll
    for (int g = 0; g < DIM / 16; g++)
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++)
            mix_step<T>(y[2 * g], y[2 * g + 1], w, s, (pieces ^ g % 4 * 32) + g / 4 * PANEL + s * 16 * 128);
}
/* Zeros where values are not lo .. lo + n - 1: there may be anything, and weights of 0 would not do. */
template <int DIM> DEVICE void clear_unseen(uint32_t page, uint32_t lo, uint32_t n) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < PAGE * DIM / 8; i += 32) {
        const uint32_t row = i / (DIM / 8), c = i % (DIM / 8);
        if (row - lo >= n)
            store4(page + c / 8 * PANEL + in_panel(row, c % 8), make_float4(0, 0, 0, 0));
    }
}

#endif
