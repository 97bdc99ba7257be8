/* route.cuh - which experts a row goes to, and with what weight; the definition is backend/cpu/route.c. */
#ifndef LODE_CUDA_ROUTE_CUH
#define LODE_CUDA_ROUTE_CUH

#include "rows.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "backend/route_groups.h"
#include "backend/sparse_mix.h"
#pragma pop_macro("inline")

enum { USED_MOST = 64 };

/* kern/softmax_scalar.c over n numbers, by one warp: s becomes exp(s - max). */
DEVICE void softmax_warp(float *s, uint32_t n, float *sum) {
    const uint32_t l = threadIdx.x % 16;
    float max = -INFINITY, total = 0;
    for (uint32_t i = l; i < n; i += 16)
        max = s[i] > max ? s[i] : max;
    max = join_max(max);
    if (threadIdx.x < 16)
        for (uint32_t i = l; i < n; i += 16) {
            s[i] = lode_expf(s[i] - max);
            total += s[i];
        }
    __syncwarp();
    *sum = join_lanes(__shfl_sync(0xffffffffu, total, l));
}

/* The same by a block of threads, with more than a lane a thread at work: from s to e.  Every warp finds the largest
 * number by itself. */
template <int THREADS>
DEVICE void softmax_block(float *e, const float *s, uint32_t n, float *sum) {
    const uint32_t lane = threadIdx.x % 32;
    float max = -INFINITY, total = 0;
    for (uint32_t i = lane; i < n; i += 32)
        max = s[i] > max ? s[i] : max;
    __syncwarp();
    max = warp_max(max, 32);
    for (uint32_t i = threadIdx.x; i < n; i += THREADS)
        e[i] = lode_expf(s[i] - max);
    __syncthreads();
    if (threadIdx.x < 32) { /* both halves the same sixteen lanes */
        for (uint32_t i = lane % 16; i < n; i += 16)
            total += e[i];
        __syncwarp();
        total = join_lanes(total);
        if (lane == 0)
            *sum = total;
    }
    __syncthreads();
}

/* How many experts from number `from` to before `to`, by fours, are chosen before expert i: larger ones, and equal ones of a
 * smaller id; behind the last there are three numbers that nobody chooses. */
DEVICE uint32_t better_than(const float *choice, uint32_t i, uint32_t from, uint32_t to) {
    const float own = choice[i];
    uint32_t better = 0;
#pragma unroll 4
    for (uint32_t j = from; j < to; j += 4) {
        const float4 v = *(const float4 *)(choice + j);
        better += v.x > own || (v.x == own && j < i);
        better += v.y > own || (v.y == own && j + 1 < i);
        better += v.z > own || (v.z == own && j + 2 < i);
        better += v.w > own || (v.w == own && j + 3 < i);
    }
    return better;
}
/* A bit for each of the n_used largest, ties to the smaller id: several neighbouring threads an expert. */
template <int THREADS> DEVICE void find_chosen(uint32_t *chosen, const float *choice, uint32_t n, uint32_t n_used) {
    uint32_t parts = 1;
    while (parts < 8 && 2 * parts * n <= THREADS)
        parts *= 2;
    const uint32_t size = ((n + parts - 1) / parts + 3) & ~3u, part = threadIdx.x % parts;
    const uint32_t from = part * size < n ? part * size : n, to = from + size < n ? from + size : n;
    for (uint32_t i = threadIdx.x / parts; i - threadIdx.x % 32 / parts < n; i += THREADS / parts) { /* whole warps */
        uint32_t better = better_than(choice, i < n ? i : 0, from, to);
        for (uint32_t k = 1; k < parts; k *= 2)
            better += __shfl_xor_sync(0xffffffffu, better, k);
        if (i < n && part == 0 && better < n_used)
            atomicOr(&chosen[i / 32], 1u << i % 32);
    }
}

/* A row's logits, of at most MOST experts, to its pairs y, by a block of THREADS threads: backend/cpu/route.c. */
template <int THREADS, int MOST>
DEVICE void route_row(const struct lode_cuda_route_args &a, const float *logits, float *y) {
    __shared__ float scores[MOST], w[USED_MOST];
    __shared__ __align__(16) float choice[MOST + 4];
    __shared__ uint32_t ids[USED_MOST], chosen[MOST / 32]; /* chosen: a bit an expert */
    const float *bias = at<const float>(a.bias);
    float sum = 0;
    const bool first_warp = threadIdx.x < 32;
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        scores[i] = logits[i];
    if (threadIdx.x < USED_MOST)
        ids[threadIdx.x] = 0, w[threadIdx.x] = 0;
    if (threadIdx.x < MOST / 32)
        chosen[threadIdx.x] = 0;
    __syncthreads();
    if (a.gating == LODE_GATE_SOFTMAX) {
        __shared__ float all;
        softmax_block<THREADS>(choice, scores, a.n, &all);
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            scores[i] = choice[i] / all;
    } else if (a.gating == LODE_GATE_SIGMOID) {
        for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
            scores[i] = 1.0f / (1.0f + lode_expf(-scores[i]));
    }
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS)
        choice[i] = bias ? scores[i] + bias[i] : scores[i];
    if (threadIdx.x < 4)
        choice[a.n + threadIdx.x] = -INFINITY;
    __syncthreads();
    if (a.n_groups > 1 && threadIdx.x == 0)
        lode_drop_groups(choice, a.n, a.n_groups, a.n_groups_used, bias != NULL);
    __syncthreads();
    find_chosen<THREADS>(chosen, choice, a.n, a.n_used);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += THREADS) {
        if (!(chosen[i / 32] >> i % 32 & 1))
            continue;
        uint32_t k = __popc(chosen[i / 32] & ((1u << i % 32) - 1)); /* in ascending order of ids */
        for (uint32_t j = 0; j < i / 32; j++)
            k += __popc(chosen[j]);
        if (k < a.n_used) /* more of them only among NaNs */
            ids[k] = i, w[k] = scores[i];
    }
    __syncthreads();
    if (!first_warp)
        return;
    if (a.gating == LODE_GATE_SPARSEMIXER) {
        if (threadIdx.x == 0)
            lode_mix_sparsely(choice, logits, a.n, a.n_used, ids, w);
    } else if (a.gating == LODE_GATE_SOFTMAX_TOP) {
        softmax_warp(w, a.n_used, &sum);
        __syncwarp();
        for (uint32_t k = threadIdx.x; k < a.n_used; k += 32)
            w[k] /= sum;
    } else if (a.normalise) {
        sum = 0;
        for (uint32_t k = 0; k < a.n_used; k++)
            sum += w[k];
        __syncwarp();
        for (uint32_t k = threadIdx.x; k < a.n_used; k += 32)
            w[k] /= sum;
    }
    __syncwarp();
    for (uint32_t k = threadIdx.x; k < a.n_used; k += 32) {
        ((int *)y)[2 * k] = (int)ids[k];
        y[2 * k + 1] = w[k] * a.scale;
    }
}

#endif
