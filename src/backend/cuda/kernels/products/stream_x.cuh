/* stream_x.cuh - x of a product of one row with Q4_K, Q5_K or Q6_K (gemv_stream_k.cu), in shared memory: read, normed,
 * rounded, by every block of threads for itself.
 *
 * Halves of blocks of A256, each with its scale and its multipliers; then sums of sixteen, times their multipliers, of
 * each half.  Eight threads with eight halves have all banks. */
#ifndef LODE_CUDA_STREAM_X_CUH
#define LODE_CUDA_STREAM_X_CUH

#include "gemv_x.cuh"
#include "stream_shared.h"

enum { HALF_X = LODE_STREAM_K_HALF }; /* bytes from one half to the next: an odd number of 16 */

struct half_head { /* behind a half's codes */
    float d;
    uint8_t m[4];
    uint32_t pad[2];
};
DEVICE void put_x(uint8_t *x, uint32_t cols, uint32_t b, const struct rounded_256 &r) {
    const uint32_t lane = threadIdx.x % 32, half = 2 * b + lane / 16, i = lane % 16;
    uint8_t *to = x + half * HALF_X;
    *(uint2 *)(to + 8 * i) = r.q;
    struct half_head *head = (struct half_head *)(to + 128);
    if (i == 0)
        head->d = r.d;
    if (i % 4 == 0)
        head->m[i / 4] = (uint8_t)r.mul;
    if (i % 2 == 0)
        *(int16_t *)(x + cols / 128 * HALF_X + half * 16 + i) = (int16_t)r.sum;
}

/* Weights of the norm of a warp's first block, read before x is there. */
struct early_weights { float4 w[2]; };
DEVICE struct early_weights read_weights(const struct lode_cuda_gemv_args &a) {
    struct early_weights early;
    const uint32_t b = threadIdx.x / 32;
    const bool there = a.input == LODE_GEMV_NORM && a.norm && b < a.cols / 256;
#pragma unroll
    for (uint32_t k = 0; k < 2; k++)
        early.w[k] = there ? at<const float4>(a.norm)[b * 64 + threadIdx.x % 32 * 2 + k] : make_float4(1, 1, 1, 1);
    return early;
}
DEVICE void round_block(const struct lode_cuda_gemv_args &a, uint8_t *x, uint32_t b, float4 u, float4 v) {
    const float numbers[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
    const struct rounded_256 r = round_256(numbers);
    put_x(x, a.cols, b, r);
    if (a.q_out && blockIdx.x == 0)
        put_a256(at<uint8_t>(a.q_out) + b * 304, r);
}
/* A thread's eight numbers of block b, divided and times the norm's weights. */
DEVICE void norm_eight(const struct lode_cuda_gemv_args &a, const struct divisor &root, const float4 w[2], uint32_t b, float4 u[2]) {
    float v[8] = {u[0].x, u[0].y, u[0].z, u[0].w, u[1].x, u[1].y, u[1].z, u[1].w};
    divide(v, root);
    if (a.norm) {
        v[0] *= w[0].x, v[1] *= w[0].y, v[2] *= w[0].z, v[3] *= w[0].w;
        v[4] *= w[1].x, v[5] *= w[1].y, v[6] *= w[1].z, v[7] *= w[1].w;
    }
    u[0] = make_float4(v[0], v[1], v[2], v[3]), u[1] = make_float4(v[4], v[5], v[6], v[7]);
    if (a.x_out && blockIdx.x == 0)
        at<float4>(a.x_out)[b * 64 + threadIdx.x % 32 * 2] = u[0], at<float4>(a.x_out)[b * 64 + threadIdx.x % 32 * 2 + 1] = u[1];
}

/* All of x.  meanwhile(): when a warp's first blocks are asked for, which would have to wait for all that is asked for there; the
 * others are on their way while those are rounded. */
template <class F>
DEVICE void make_x(const struct lode_cuda_gemv_args &a, const struct early_weights &early, uint8_t *x, F meanwhile) {
    enum { AHEAD = 4 }; /* blocks of a warp */
    const uint32_t warp = threadIdx.x / 32, n = a.cols / 256, from = threadIdx.x % 32 * 2, step = n_warps();
    const bool norm = a.input == LODE_GEMV_NORM, as_is = a.input == LODE_GEMV_AS_IS;
    if (as_is) {
        const uint8_t *p = at<const uint8_t>(a.x);
        struct rounded_256 r[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            r[i] = get_a256(p + (warp + i * step < n ? warp + i * step : 0) * 304);
        meanwhile();
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (warp + i * step < n)
                put_x(x, a.cols, warp + i * step, r[i]);
#pragma unroll 1
        for (uint32_t b = warp + AHEAD * step; b < n; b += step)
            put_x(x, a.cols, b, get_a256(p + b * 304));
        __syncthreads();
        return;
    }
    const float4 *numbers = at<const float4>(a.x) + from, *w = at<const float4>(a.norm) + from;
    float4 first[AHEAD][2];
    const bool one = n <= step; /* block a warp, which stays in registers */
    auto read = [&](float4 u[2], uint32_t b) { u[0] = numbers[b * 64], u[1] = numbers[b * 64 + 1]; };
    if (warp < n)
        read(first[0], warp);
    if (!one)
#pragma unroll
        for (uint32_t i = 1; i < AHEAD; i++)
            if (warp + i * step < n)
                read(first[i], warp + i * step);
    meanwhile();
    struct divisor root = {1, 1, true};
    if (norm) {
        if (warp < n)
            put_numbers(a.cols, warp, first[0]);
        if (!one) {
#pragma unroll
            for (uint32_t i = 1; i < AHEAD; i++)
                if (warp + i * step < n)
                    put_numbers(a.cols, warp + i * step, first[i]);
#pragma unroll 1
            for (uint32_t b = warp + AHEAD * step; b < n; b += step) {
                float4 u[2];
                read(u, b);
                put_numbers(a.cols, b, u);
            }
        }
        root = root_of(a.cols, a.eps);
    }
    float4 next_w[2] = {early.w[0], early.w[1]};
#pragma unroll 1
    for (uint32_t b = warp; b < n; b += step) {
        float4 u[2] = {first[0][0], first[0][1]}, wu[2] = {next_w[0], next_w[1]};
        if (norm && !one)
            get_numbers(a.cols, b, u);
        if (!norm && !one) { /* those that are on their way move up */
#pragma unroll
            for (uint32_t i = 0; i + 1 < AHEAD; i++)
                first[i][0] = first[i + 1][0], first[i][1] = first[i + 1][1];
            if (b + AHEAD * step < n)
                read(first[AHEAD - 1], b + AHEAD * step);
        }
        if (norm && a.norm && b + step < n)
            next_w[0] = w[(b + step) * 64], next_w[1] = w[(b + step) * 64 + 1];
        if (norm)
            norm_eight(a, root, wu, b, u);
        round_block(a, x, b, u[0], u[1]);
    }
    __syncthreads();
}

#endif
