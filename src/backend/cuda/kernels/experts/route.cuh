/* route.cuh - which experts a row goes to, and with what weight; the definition is backend/cpu/route.c. */
#ifndef LODE_CUDA_ROUTE_CUH
#define LODE_CUDA_ROUTE_CUH

#include "backend/cuda/kernels/experts/experts_shared.h"
#include "backend/cuda/kernels/rows.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "backend/route_groups.h"
#include "backend/sparse_mix.h"
#pragma pop_macro("inline")

enum { USED_MOST = 64, EXPERTS_MOST = 1024 };

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
DEVICE void softmax_block(float *e, const float *s, uint32_t n, float *sum) {
    const uint32_t lane = threadIdx.x % 32;
    float max = -INFINITY, total = 0;
    for (uint32_t i = lane; i < n; i += 32)
        max = s[i] > max ? s[i] : max;
    __syncwarp();
    max = warp_max(max, 32);
    for (uint32_t i = threadIdx.x; i < n; i += ROW_THREADS)
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
DEVICE void find_chosen(uint32_t *chosen, const float *choice, uint32_t n, uint32_t n_used) {
    uint32_t parts = 1;
    while (parts < 8 && 2 * parts * n <= ROW_THREADS)
        parts *= 2;
    const uint32_t size = ((n + parts - 1) / parts + 3) & ~3u, part = threadIdx.x % parts;
    const uint32_t from = part * size < n ? part * size : n, to = from + size < n ? from + size : n;
    for (uint32_t i = threadIdx.x / parts; i - threadIdx.x % 32 / parts < n; i += ROW_THREADS / parts) { /* whole warps */
        uint32_t better = better_than(choice, i < n ? i : 0, from, to);
        for (uint32_t k = 1; k < parts; k *= 2)
            better += __shfl_xor_sync(0xffffffffu, better, k);
        if (i < n && part == 0 && better < n_used)
            atomicOr(&chosen[i / 32], 1u << i % 32);
    }
}

/* A row's logits to its pairs y, by a block of threads: backend/cpu/route.c. */
DEVICE void route_row(const struct lode_cuda_route_args &a, const float *logits, float *y) {
    __shared__ float scores[EXPERTS_MOST], w[USED_MOST];
    __shared__ __align__(16) float choice[EXPERTS_MOST + 4];
    __shared__ uint32_t ids[USED_MOST], chosen[EXPERTS_MOST / 32]; /* chosen: a bit an expert */
    const float *bias = at<const float>(a.bias);
    float sum = 0;
    const bool first_warp = threadIdx.x < 32;
    for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS)
        scores[i] = logits[i];
    if (threadIdx.x < USED_MOST)
        ids[threadIdx.x] = 0, w[threadIdx.x] = 0;
    if (threadIdx.x < EXPERTS_MOST / 32)
        chosen[threadIdx.x] = 0;
    __syncthreads();
    if (a.gating == LODE_GATE_SOFTMAX) {
        __shared__ float all;
        softmax_block(choice, scores, a.n, &all);
        for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS)
            scores[i] = choice[i] / all;
    } else if (a.gating == LODE_GATE_SIGMOID) {
        for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS)
            scores[i] = 1.0f / (1.0f + lode_expf(-scores[i]));
    }
    for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS)
        choice[i] = bias ? scores[i] + bias[i] : scores[i];
    if (threadIdx.x < 4)
        choice[a.n + threadIdx.x] = -INFINITY;
    __syncthreads();
    if (a.n_groups > 1 && threadIdx.x == 0)
        lode_drop_groups(choice, a.n, a.n_groups, a.n_groups_used, bias != NULL);
    __syncthreads();
    find_chosen(chosen, choice, a.n, a.n_used);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += ROW_THREADS) {
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

/* ---- the same of most models: no groups, up to LODE_QUICK_EXPERTS experts, of which up to LODE_QUICK_USED are used ----
 *
 * What it takes is what has to be done one after the other, and instructions that come from far as they run once: a thread has an
 * expert, each warp finds the largest logit and the total for itself. */

/* Integers in the order of numbers: equal ones are equal, zeros too; less than all others are NaNs. */
DEVICE int key_of(float v) {
    const int bits = (int)lode_f32_bits(v + 0.0f);
    return v != v ? INT32_MIN : bits < 0 ? bits ^ 0x7fffffff : bits;
}
/* Of the four keys at `keys` those above t. */
DEVICE uint32_t above(const int *keys, int t) {
    const int4 v = *(const int4 *)keys;
    return (v.x > t) + (v.y > t) + (v.z > t) + (v.w > t);
}

/* What a choice needs in shared memory, and what it leaves there: who is chosen, in ascending order of ids, with their scores. */
struct quick_choice {
    int keys[LODE_QUICK_EXPERTS];
    float exps[LODE_QUICK_EXPERTS];
    uint32_t chosen[32]; /* a bit a thread */
    uint32_t ids[LODE_QUICK_USED];
    float w[LODE_QUICK_USED];
};
static_assert(sizeof(struct quick_choice) == LODE_QUICK_CHOICE, "LODE_QUICK_CHOICE");

/* Experts that are chosen before expert i: larger ones, and equal ones of a smaller id, which are above what is one less.  Of every four keys
 * in turn by one of `parts` neighbouring threads, which add up what they found. */
DEVICE uint32_t quick_rank(const int *keys, uint32_t n, uint32_t i, uint32_t part, uint32_t parts) {
    const int own = keys[i];
    const bool number = own != INT32_MIN; /* nobody is chosen before a NaN */
    const int equal = number ? own - 1 : INT32_MAX, larger = number ? own : INT32_MAX;
    uint32_t better = 0;
    if (part == 0 && number) { /* of its own four */
        const int4 v = *(const int4 *)(keys + (i & ~3u));
        better = (v.x == own && i % 4 > 0) + (v.y == own && i % 4 > 1) + (v.z == own && i % 4 > 2);
    }
#pragma unroll 2
    for (uint32_t j = 4 * part; j < n; j += 4 * parts)
        better += above(keys + j, j < (i & ~3u) ? equal : larger);
#pragma unroll 1
    for (uint32_t k = 1; k < parts; k *= 2)
        better += __shfl_xor_sync(0xffffffffu, better, k);
    return better;
}

/* The choice, to *q, by all threads of a block, 1 << a.part_bits of which are an expert's; ends with a barrier. */
DEVICE void choose_quick(const struct lode_cuda_route_args &a, const float *logits, struct quick_choice *q) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, parts = 1u << a.part_bits;
    const uint32_t i = threadIdx.x >> a.part_bits, part = threadIdx.x & (parts - 1);
    const bool works = warp * 32 >> a.part_bits < a.n, here = i < a.n, first = part == 0; /* works: of whole warps */
    const float bias = a.bias && here ? at<const float>(a.bias)[i] : 0;
    float score = 0;
    if (works) {
        score = here ? logits[i] : 0;
        float max = -INFINITY;
        if (a.gating == LODE_GATE_SOFTMAX) {
#pragma unroll 4
            for (uint32_t k = lane; k < a.n; k += 32) {
                const float v = logits[k];
                max = v > max ? v : max;
            }
            __syncwarp();
            max = warp_max(max, 32);
        }
        if (a.gating != LODE_GATE_SOFTMAX_TOP) {
            const bool sigmoid = a.gating == LODE_GATE_SIGMOID;
            score = lode_expf(sigmoid ? -score : score - max);
            score = sigmoid ? 1.0f / (1.0f + score) : score;
        }
    }
    if (threadIdx.x < LODE_QUICK_USED)
        q->ids[threadIdx.x] = 0, q->w[threadIdx.x] = 0;
    if (a.gating == LODE_GATE_SOFTMAX) {
        if (here && first)
            q->exps[i] = score;
        __syncthreads();
        if (works) {
            float total = 0;
#pragma unroll 4
            for (uint32_t k = lane % 16; k < a.n; k += 16)
                total += q->exps[k];
            __syncwarp();
            score /= join_lanes(total);
        }
    }
    if (i < LODE_QUICK_EXPERTS && first)
        q->keys[i] = here ? key_of(a.bias ? score + bias : score) : INT32_MIN;
    __syncthreads();
    bool mine = false;
    if (works) {
        mine = quick_rank(q->keys, a.n, here ? i : 0, part, parts) < a.n_used && here && first;
        const uint32_t bits = __ballot_sync(0xffffffffu, mine);
        if (lane == 0)
            q->chosen[warp] = bits;
    }
    __syncthreads();
    if (works) {
        const uint32_t before = sum_of_warp(lane < warp ? __popc(q->chosen[lane]) : 0);
        const uint32_t k = before + __popc(q->chosen[warp] & ((1u << lane) - 1));
        if (mine && k < a.n_used) /* more of them only among NaNs */
            q->ids[k] = i, q->w[k] = score;
    }
    __syncthreads();
}

/* The weight of the lane-th that is chosen, by a warp. */
DEVICE float quick_weight(const struct lode_cuda_route_args &a, const struct quick_choice *q) {
    const uint32_t lane = threadIdx.x % 32;
    float own = q->w[lane], sum = 1;
    if (a.gating == LODE_GATE_SOFTMAX_TOP) { /* softmax_warp, its numbers in registers */
        float max = -INFINITY, exps[2], total = 0;
        for (uint32_t i = lane % 16; i < a.n_used; i += 16)
            max = q->w[i] > max ? q->w[i] : max;
        __syncwarp();
        max = join_max(max);
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            exps[k] = lode_expf(q->w[lane % 16 + 16 * k] - max);
            if (lane % 16 + 16 * k < a.n_used)
                total += exps[k];
        }
        own = (lane < 16 ? exps[0] : exps[1]) / join_lanes(total);
    } else if (a.normalise) {
        sum = 0;
#pragma unroll 8
        for (uint32_t k = 0; k < a.n_used; k++)
            sum += q->w[k];
        own /= sum;
    }
    return own * a.scale;
}

/* The row's pairs, by a warp. */
DEVICE void put_choice(const struct lode_cuda_route_args &a, const struct quick_choice *q, float *y) {
    const uint32_t lane = threadIdx.x % 32;
    const float weight = quick_weight(a, q);
    if (lane < a.n_used)
        *(int2 *)(y + 2 * lane) = make_int2((int)q->ids[lane], (int)lode_f32_bits(weight));
}

/* A row's logits to its pairs y. */
DEVICE void route_quick(const struct lode_cuda_route_args &a, const float *logits, float *y) {
    __shared__ __align__(16) struct quick_choice q;
    choose_quick(a, logits, &q);
    if (threadIdx.x < 32)
        put_choice(a, &q, y);
}

#endif
