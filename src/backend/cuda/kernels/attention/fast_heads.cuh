/* fast_heads.cuh - a row's queries of a head of keys on their way to the tensor cores (attention_fast.cuh), with the row's own key and
 * value: a warp has a head in registers while it is normed, turned and rounded. */
#ifndef LODE_CUDA_FAST_HEADS_CUH
#define LODE_CUDA_FAST_HEADS_CUH

#include "attention_fast.cuh"
#include "decode.cuh"

/* A warp's query of n numbers, rounded, to `to`; what undoes its factor. */
template <class T, int U> DEVICE float put_query(const float (&x)[U], uint16_t *to, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t most = 0;
    if (T::SCALED)
#pragma unroll
        for (int u = 0; u < U; u++)
            most = max(most, lane + 32 * u < n ? magnitude(x[u]) : 0);
    const float2 factors = factors_of<T>(T::SCALED ? max_of_warp(most) : 0);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (lane + 32 * u < n)
            to[lane + 32 * u] = (uint16_t)pair_16<T>(x[u], 0, factors.x);
    return factors.y;
}

/* The queries of a block of threads, and where they go: rows of 16-bit numbers, what undoes their factors, and room for as many heads
 * and two more. */
struct queries {
    uint32_t row, head_k, first, n; /* n query heads from `first` on */
    uint8_t *to;
    float *undo, *room;
};
/* Keys and values of the step's own that are made here, if its heads are (PREPARES): those of n rows of the sequence that follow
 * one another, of which the first is `back` before the queries'. */
struct own_keys {
    uint32_t n, back;
};
/* Waits for the launch before, then each of `warps` warps has every n-th head; put(i, value, x): a warp's, key or value of the i-th of
 * those rows. */
template <class T, int DIM, bool PREPARES, class F>
DEVICE void make_queries(const struct lode_cuda_decode_args &d, const struct queries &q, const struct own_keys &own, uint32_t warp,
                         uint32_t warps, F put) {
    enum { U = DIM ? DIM / 32 : 8 };
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t dim = DIM ? DIM : a.head_dim, dim_v = DIM ? DIM : a.head_dim_v, lane = threadIdx.x % 32;
    const uint32_t tasks = q.n + (PREPARES ? 2 * own.n : 0);
    struct own_head h;
    struct head_weights weights;
    bool waits = true;
#pragma unroll 1
    for (uint32_t i = warp; waits || i < tasks; i += warps) {
        const uint32_t of = i < q.n ? 0 : i - q.n, row = i < q.n ? q.row : q.row - own.back + of / 2, which = i < q.n ? 0 : 1 + of % 2;
        if (PREPARES && i < tasks) {
            h = own_head_of(d.heads, which, row, q.first + i, q.head_k);
            weights = read_weights(h.normed ? h.norm : NULL, dim);
        }
        if (waits) { /* weights are there before */
            wait_for_last();
            waits = false;
            if (i >= tasks)
                break;
        }
        float x[U];
        if (PREPARES) {
            prepare_head<DIM, U>(x, h, row_at<const float2>(d.heads.table, row), weights, which == 2 ? dim_v : dim, q.room + i * dim);
        } else {
            const float *from = row_at<const float>(a.q, row) + (q.first + i) * dim;
#pragma unroll
            for (int u = 0; u < U; u++)
                x[u] = lane + 32 * u < dim ? from[lane + 32 * u] : 0;
        }
        if (which) {
            put(of / 2, which == 2, x);
            continue;
        }
        const float factor = put_query<T, U>(x, (uint16_t *)(q.to + i * LODE_ATT_FAST_STRIDE(dim)), dim);
        if (lane == 0)
            q.undo[i] = factor;
    }
}

/* Keys `ld` bytes apart from `keys` on; at: what load_pieces reads of the t-th eight of them, of numbers 16 i to 16 i + 31. */
struct keys_in_rows {
    uint32_t first, ld;
    DEVICE_MEMBER keys_in_rows(uint32_t keys, uint32_t ld) : first(keys + threadIdx.x % 8 * ld + threadIdx.x % 32 / 8 * 16), ld(ld) {}
    DEVICE_MEMBER uint32_t at(int t, uint32_t i) const { return first + 8 * t * ld + 32 * i; }
};
/* To scores those of TILES times eight keys for 8 ROWS queries at `q`, by a warp. */
template <class T, int ROWS, int TILES, int DIM>
DEVICE void score_keys(float (&c)[TILES][4], uint32_t q, uint32_t n, const struct keys_in_rows &keys) {
    const uint32_t dim = DIM ? DIM : n, ld = LODE_ATT_FAST_STRIDE(dim), lane = threadIdx.x % 32, piece = lane % 8 * ld + lane / 8 * 16;
#pragma unroll 4
    for (uint32_t i = 0; i < dim / 16; i += 2) { /* behind a row's end there is anything, which is not used */
        uint32_t x[ROWS][4], k[TILES][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            load_pieces(x[r], q + 8 * r * ld + piece + 32 * i);
#pragma unroll
        for (int t = 0; t < TILES; t++)
            load_pieces(k[t], keys.at(t, i));
#pragma unroll
        for (int s = 0; s < 2; s++)
            if (s == 0 || DIM || 16 * (i + 1) < dim)
#pragma unroll
                for (int t = 0; t < TILES; t++)
                    mma_fast<T>(c[t], make_uint2(x[0][2 * s], x[0][2 * s + 1]),
                                ROWS > 1 ? make_uint2(x[ROWS - 1][2 * s], x[ROWS - 1][2 * s + 1]) : make_uint2(0, 0),
                                make_uint2(k[t][2 * s], k[t][2 * s + 1]));
    }
}

#endif
