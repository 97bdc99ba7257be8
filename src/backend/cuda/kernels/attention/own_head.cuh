/* own_head.cuh - a query, key or value of the step's own on its way from the products: normed and turned by a warp that has it in
 * registers. */
#ifndef LODE_CUDA_OWN_HEAD_CUH
#define LODE_CUDA_OWN_HEAD_CUH

#include "attention_shared.h"
#include "heads.cuh"

/* A query, key or value as the products left it, and what becomes of it. */
struct own_head {
    const float *from;
    const float *norm; /* weights, or NULL */
    uint32_t normed, pairs, kind;
    float eps;
};
DEVICE const float *own_value(const struct lode_cuda_prepare_args &a, uint32_t head, uint32_t row) {
    return row_at<const float>(a.v, row) + head * a.head_dim_v;
}
/* Of queries, keys, values: 0, 1, 2. */
DEVICE struct own_head own_head_of(const struct lode_cuda_prepare_args &a, uint32_t which, uint32_t row, uint32_t head, uint32_t head_k) {
    if (which == 2)
        return {own_value(a, head_k, row), NULL, 0, 0, 0, 0};
    const bool key = which == 1;
    return {key ? row_at<const float>(a.k, row) + head_k * a.head_dim : row_at<const float>(a.q, row) + head * a.q_apart,
            at<const float>(key ? a.norm_k : a.norm_q), key ? a.norms_k : a.norms_q, key ? a.pairs_k : a.pairs_q,
            key ? a.kind_k : a.kind_q, key ? a.eps_k : a.eps_q};
}

/* norm_warp (heads.cuh) of numbers in registers: thread t has t + 32 u. */
template <int U> DEVICE void norm_here(float (&x)[U], const struct own_head &h, const struct head_weights &weights) {
    float acc = 0;
#pragma unroll
    for (int u = 0; u < U; u++) { /* lane t % 16 of the definition: t and t + 16 in turns */
        const float other = __shfl_down_sync(0xffffffffu, x[u], 16);
        acc = fmaf(x[u], x[u], acc);
        acc = fmaf(other, other, acc);
    }
    acc = __shfl_sync(0xffffffffu, join_lanes(acc), 0);
    const struct divisor root = divisor_of(sqrtf(acc / (float)(32 * U) + h.eps));
#pragma unroll
    for (int u = 0; u < U; u++) {
        x[u] = divided_one(x[u], root);
        x[u] = h.norm ? x[u] * weights.of[u] : x[u];
    }
}

template <int DIM> DEVICE bool turns_here(const struct own_head &h) {
    return DIM && LODE_TURNS_IN_REGISTERS(DIM, h.pairs, h.normed, h.kind);
}
/* A warp's head on its way to registers, for make_head. */
template <int DIM, int U> DEVICE void ask_head(float (&x)[U], const struct own_head &h, uint32_t dim) {
    const uint32_t lane = threadIdx.x % 32;
    if (turns_here<DIM>(h) && h.kind) { /* neighbours are a pair, whose results lie half a head apart */
#pragma unroll
        for (int u = 0; u < U / 2; u++) {
            const float2 v = ((const float2 *)h.from)[lane + 32 * u];
            x[u] = v.x, x[u + U / 2] = v.y;
        }
    } else {
#pragma unroll
        for (int u = 0; u < U; u++)
            x[u] = lane + 32 * u < dim ? h.from[lane + 32 * u] : 0;
    }
}
template <int DIM> DEVICE struct turns ask_turns(const float2 *table, uint32_t n_pairs) {
    return read_turns<DIM ? DIM / 2 : PAIRS_MOST>(table, n_pairs);
}
/* It normed and turned: thread t gets numbers t + 32 u of it.  room: (dim) in shared memory, for what is turned, but not
 * LODE_TURNS_IN_REGISTERS, or normed where sizes are not known. */
template <int DIM, int U>
DEVICE void make_head(float (&x)[U], const struct own_head &h, const struct turns &turns, const struct head_weights &weights, uint32_t dim,
                      float *room) {
    const uint32_t lane = threadIdx.x % 32;
    if (turns_here<DIM>(h) || (!h.pairs && (DIM || !h.normed))) {
        if (h.normed)
            norm_here<U>(x, h, weights);
        if (h.pairs)
#pragma unroll
            for (int u = 0; u < U / 2; u++) {
                const float p = x[u], q = x[u + U / 2];
                const float2 t = turns.of[u < PAIRS_MOST / 32 ? u : 0];
                x[u] = fmaf(p, t.x, -(q * t.y)), x[u + U / 2] = fmaf(p, t.y, q * t.x);
            }
        return;
    }
#pragma unroll
    for (int u = 0; u < U; u++)
        if (lane + 32 * u < dim)
            room[lane + 32 * u] = x[u];
    __syncwarp();
    if (h.normed)
        norm_warp(room, dim, h.norm, weights, h.eps);
    if (h.pairs)
        turn_warp(room, h.pairs, h.kind, turns);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (lane + 32 * u < dim)
            x[u] = room[lane + 32 * u];
}
/* Both. */
template <int DIM, int U>
DEVICE void prepare_head(float (&x)[U], const struct own_head &h, const float2 *table, const struct head_weights &weights, uint32_t dim,
                         float *room) {
    ask_head<DIM, U>(x, h, dim);
    make_head<DIM, U>(x, h, ask_turns<DIM>(table, h.pairs), weights, dim, room);
}

/* A warp's n numbers in 16 bits. */
template <bool HALF, int U> DEVICE void put_halves(const float (&x)[U], uint8_t *y, uint32_t n) {
#pragma unroll
    for (int u = 0; u < U; u++)
        if (threadIdx.x % 32 + 32 * u < n)
            ((uint16_t *)y)[threadIdx.x % 32 + 32 * u] = HALF ? f32_f16(x[u]) : f32_bf16(x[u]);
}

/* .. as blocks of Q8_0, and the same to `other`, if it is not NULL. */
template <int U> DEVICE void put_blocks(const float (&x)[U], uint8_t *y, uint8_t *other, uint32_t n) {
#pragma unroll
    for (int u = 0; u < U; u++)
        if (32 * u < n)
            put_block(y + 34 * u, other ? other + 34 * u : NULL, x[u]);
}
/* .. as the cache has them. */
template <int U> DEVICE void put_numbers(const float (&x)[U], uint8_t *y, uint32_t n, uint32_t type) {
    if (type == LODE_F16)
        put_halves<true>(x, y, n);
    else if (type == LODE_BF16)
        put_halves<false>(x, y, n);
    else if (type == LODE_Q8_0)
        put_blocks(x, y, NULL, n);
    else
#pragma unroll
        for (int u = 0; u < U; u++)
            if (threadIdx.x % 32 + 32 * u < n)
                ((float *)y)[threadIdx.x % 32 + 32 * u] = x[u];
}

#endif
