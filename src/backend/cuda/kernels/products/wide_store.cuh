/* wide_store.cuh - what becomes of a warpgroup's results in products of many rows: factors and biases of --numerics fast, the
 * residual, the gated product, and the way to memory, eight bytes at a time. */
#ifndef LODE_CUDA_WIDE_STORE_CUH
#define LODE_CUDA_WIDE_STORE_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/rows.cuh"

/* Results of N rows of x as wgmma leaves them (wgmma.cuh), finished: as they would be stored with nothing after
 * them.  row: the thread's first of w. */
template <int N>
DEVICE void finish_results(float (&v)[N / 2], const float *factors, const float *bias, uint32_t row, uint32_t w_rows) {
    const float b[2] = {bias && row < w_rows ? bias[row] : 0, bias && row + 8 < w_rows ? bias[row + 8] : 0};
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
        const float2 f = *(const float2 *)(factors + 8 * t + threadIdx.x % 4 * 2);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float y = v[4 * t + i] * (i % 2 ? f.y : f.x);
            v[4 * t + i] = bias ? y + b[i / 2] : y;
        }
    }
}

struct results_place { /* of a tile's first row of w and of x */
    uint8_t *y;
    const uint8_t *residual; /* NULL: there is none */
    unsigned long long y_stride, residual_stride;
    uint32_t w_rows, x_rows; /* that there are */
};

/* A thread has row `row` of w by rows x and x + 1 of x.  Threads of neighbouring rows exchange one for the other, so that
 * each has two rows of w, from `row` on, by row x. */
struct pair_place {
    uint32_t x, row;
    bool here, whole; /* whether there is the first, and the second as well */
};
DEVICE struct pair_place pair_at(const struct results_place &p, uint32_t x, uint32_t row) {
    struct pair_place at = {x + (row & 1), row & ~1u, false, false};
    at.here = at.x < p.x_rows && at.row < p.w_rows;
    at.whole = at.here && at.row + 1 < p.w_rows;
    return at;
}
DEVICE float2 exchanged(float v0, float v1, uint32_t row) {
    const bool odd = row & 1;
    const float other = __shfl_xor_sync(0xffffffffu, odd ? v0 : v1, 4);
    return odd ? make_float2(other, v1) : make_float2(v0, other);
}
DEVICE bool goes_by_8(const struct results_place &p) {
    return (((uintptr_t)p.y | (uintptr_t)p.residual | p.y_stride | p.residual_stride) & 7) == 0;
}
DEVICE float2 residual_at(const struct results_place &p, bool by_8, const struct pair_place &at) {
    const float *r = (const float *)(p.residual + at.x * p.residual_stride) + at.row;
    if (by_8 && at.whole)
        return *(const float2 *)r;
    return make_float2(at.here ? r[0] : 0, at.whole ? r[1] : 0);
}
/* of_row: where the row of x has its results. */
DEVICE void store_pair(uint8_t *of_row, bool by_8, const struct pair_place &at, float2 v) {
    float *y = (float *)of_row + at.row;
    if (by_8 && at.whole) {
        *(float2 *)y = v;
    } else {
        if (at.here)
            y[0] = v.x;
        if (at.whole)
            y[1] = v.y;
    }
}

/* A residual may lie where results go: MOST tiles of it are read before anything is stored, or each would wait for the
 * one before. */
template <int N, int MOST = 8>
DEVICE void store_results(const struct results_place &p, const struct lode_cuda_fast_end &end, const float (&v)[N / 2],
                          uint32_t row) {
    enum { TILES = N / 8, AT_ONCE = TILES < MOST ? TILES : MOST };
    const bool by_8 = goes_by_8(p);
    const uint32_t column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int t0 = 0; t0 < TILES; t0 += AT_ONCE) {
        float2 r[AT_ONCE][2];
        if (p.residual)
#pragma unroll
            for (int i = 0; i < 2 * AT_ONCE; i++)
                r[i / 2][i % 2] = residual_at(p, by_8, pair_at(p, 8 * (t0 + i / 2) + column, row + i % 2 * 8));
#pragma unroll
        for (int i = 0; i < 2 * AT_ONCE; i++) {
            const int t = t0 + i / 2, h = i % 2;
            float2 two = exchanged(v[4 * t + 2 * h], v[4 * t + 2 * h + 1], row);
            if (p.residual)
                two = make_float2(with_residual(end, two.x, r[i / 2][h].x), with_residual(end, two.y, r[i / 2][h].y));
            const struct pair_place at = pair_at(p, 8 * t + column, row + 8 * h);
            store_pair(p.y + at.x * p.y_stride, by_8, at, two);
        }
    }
}

/* silu without a branch, so that many of them overlap: what a division comes to where neither x nor 1 + e^-x is near
 * an end.  False: they are, and y is nothing. */
DEVICE bool quick_silu(float x, float *y) {
    const float by = 1.0f + lode_expf(-x);
    *y = quotient(x, {by, plain_reciprocal(by), true});
    return is_plain(by) && is_plain(x);
}

/* The gated products of a tile that has both rows of gate and up in a thread (wide.cuh, PAIRED); value(i): result i of the
 * thread's; put(t, v0, v1) takes those of its two columns of each eight.  All of it is code that runs once a tile, which comes from
 * memory as it runs: so what hardly happens is out of the way, and what does has no branches. */
template <int N, class F, class P> DEVICE void gate_results(uint32_t act, F value, P put) {
    enum { AT_ONCE = 2 };
#pragma unroll
    for (int t0 = 0; t0 < N / 8; t0 += AT_ONCE) {
        float v[2 * AT_ONCE];
        bool quick = act == LODE_GLU_SILU;
#pragma unroll
        for (int i = 0; i < 2 * AT_ONCE; i++) {
            const int at = 4 * (t0 + i / 2) + i % 2;
            quick = quick_silu(value(at), &v[i]) && quick;
            v[i] *= value(at + 2);
        }
        if (!quick)
#pragma unroll
            for (int i = 0; i < 2 * AT_ONCE; i++) {
                const int at = 4 * (t0 + i / 2) + i % 2;
                v[i] = other_glu(act, value(at), value(at + 2));
            }
#pragma unroll
        for (int t = 0; t < AT_ONCE; t++)
            put(t0 + t, v[2 * t], v[2 * t + 1]);
    }
}
/* Which row of gate, and of up, tile row `row` is, the thread's first. */
DEVICE uint32_t gated_row(uint32_t row) { return row / 16 * 8 + row % 8; }
template <int N, class F>
DEVICE void store_gated(const struct results_place &p, uint32_t act, uint32_t row, F value) {
    const uint32_t of = gated_row(row), column = threadIdx.x % 4 * 2;
    const bool by_8 = goes_by_8(p);
    gate_results<N>(act, value, [&](int t, float v0, float v1) {
        const struct pair_place at = pair_at(p, 8 * t + column, of);
        store_pair(p.y + at.x * p.y_stride, by_8, at, exchanged(v0, v1, of));
    });
}

#endif
