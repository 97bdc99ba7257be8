/* gemv_x.cuh - x of a product of one row: read, normed, rounded, in shared memory; a block of threads makes the whole
 * of it for itself.  One thread follows another's result all the way, so what counts is how many instructions stand
 * in a row: a launch of a small model takes as long as these do. */
#ifndef LODE_CUDA_GEMV_X_CUH
#define LODE_CUDA_GEMV_X_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "backend/cuda/kernels/rows.cuh"

DEVICE uint32_t n_warps() { return blockDim.x / 32; }

/* ---- x ---- */

/* x in shared memory.  A256: its blocks as they are.  A32: the numbers, then (d, sum) of each
 * block. */
DEVICE uint32_t x_blocks(uint32_t cols) { return (cols / 32 + 7) & ~7u; }
template <int BLOCK> DEVICE uint32_t x_size(uint32_t cols) {
    return BLOCK == 256 ? cols / 256 * 304 : x_blocks(cols) * 40;
}

/* n floats to row_mem, their loads on their way together. */
DEVICE void load_floats(const float *x, uint32_t n) {
    enum { TOGETHER = 4 }; /* said in so many words: a compiler puts each store before the next load, as they might overlap */
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < n / 4; i += TOGETHER * blockDim.x) {
        float4 v[TOGETHER];
#pragma unroll
        for (uint32_t u = 0; u < TOGETHER; u++)
            if (i + u * blockDim.x < n / 4)
                v[u] = ((const float4 *)x)[i + u * blockDim.x];
#pragma unroll
        for (uint32_t u = 0; u < TOGETHER; u++)
            if (i + u * blockDim.x < n / 4)
                ((float4 *)row_mem)[i + u * blockDim.x] = v[u];
    }
}
/* As many rows of x as there are, `stride` bytes apart. */
DEVICE void load_rows(const struct lode_cuda_gemv_args &a) {
    const uint32_t each = a.cols / 4;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < a.n_x * each; i += blockDim.x)
        ((float4 *)row_mem)[i] = at<const float4>(a.x + i / each * a.x_stride)[i % each];
}

/* What the RMS norm of x, which is in row_mem, divides by. */
DEVICE struct divisor norm_root(float eps, uint32_t cols) {
    __shared__ float sum;
    const float dot = lanes_sum(cols, &sum, [](float v, float acc) { return fmaf(v, v, acc); });
    return divisor_of(sqrtf(dot / (float)cols + eps));
}
/* x into row_mem, and that. */
DEVICE struct divisor norm_root(const float *x, float eps, uint32_t cols) {
    load_floats(x, cols);
    return norm_root(eps, cols);
}
/* x before its norm, for root_of: the numbers of each of the definition's sixteen lanes stand together, so that four are read at a
 * time. */
DEVICE void put_numbers(uint32_t cols, uint32_t b, const float4 v[2]) {
    const uint32_t lane = threadIdx.x % 32, pitch = LODE_LANE_PITCH(cols);
    float *to = row_mem + lane % 2 * 8 * pitch + b * 16 + lane / 2;
    to[0] = v[0].x, to[pitch] = v[0].y, to[2 * pitch] = v[0].z, to[3 * pitch] = v[0].w;
    to[4 * pitch] = v[1].x, to[5 * pitch] = v[1].y, to[6 * pitch] = v[1].z, to[7 * pitch] = v[1].w;
}
DEVICE void get_numbers(uint32_t cols, uint32_t b, float4 v[2]) {
    const uint32_t lane = threadIdx.x % 32, pitch = LODE_LANE_PITCH(cols);
    const float *p = row_mem + lane % 2 * 8 * pitch + b * 16 + lane / 2;
    v[0] = make_float4(p[0], p[pitch], p[2 * pitch], p[3 * pitch]);
    v[1] = make_float4(p[4 * pitch], p[5 * pitch], p[6 * pitch], p[7 * pitch]);
}
/* Numbers 4 i and on. */
DEVICE float4 four_numbers(uint32_t cols, uint32_t i) {
    const uint32_t pitch = LODE_LANE_PITCH(cols);
    const float *p = row_mem + i % 4 * 4 * pitch + i / 4;
    return make_float4(p[0], p[pitch], p[2 * pitch], p[3 * pitch]);
}
/* What the norm divides by: norm_root's number.  Of rows that are no whole 256 numbers zeros follow. */
DEVICE struct divisor root_of(uint32_t cols, float eps) { return root_of_lanes(LODE_LANE_PITCH(cols), (cols + 255) / 256, cols, eps); }

/* Numbers 4 i and on of row_mem, normed; w: NULL or their weights. */
DEVICE float4 normed_by(uint32_t i, const struct divisor &root, const float4 *w) {
    float4 v = divided(((const float4 *)row_mem)[i], root);
    if (w)
        times(v, *w);
    return v;
}
/* w: NULL or all weights. */
DEVICE float4 normed(uint32_t i, const struct divisor &root, const float4 *w) { return normed_by(i, root, w ? w + i : NULL); }
/* The norm's weights, on their way while the launch before still runs. */
DEVICE void fetch_norm(const struct lode_cuda_gemv_args &a) {
    if (a.input == LODE_GEMV_NORM && a.norm && threadIdx.x < a.cols / 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm + 128 * threadIdx.x));
}
/* The RMS norm of x, in row_mem; w: its weights, NULL for none. */
DEVICE void load_normed(const struct lode_cuda_gemv_args &a, const float4 *w) {
    const struct divisor root = norm_root(at<const float>(a.x), a.eps, a.cols);
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < a.cols / 4; i += blockDim.x) {
        const float4 v = normed(i, root, w);
        ((float4 *)row_mem)[i] = v;
        if (a.x_out && blockIdx.x == 0)
            at<float4>(a.x_out)[i] = v;
    }
}

/* Floats, four_at(i) the four from 4 i on, rounded.  Loops are kept short: instructions come from memory. */
template <int BLOCK, class F>
DEVICE void round_floats(uint8_t *to, uint32_t cols, uint32_t n_x, F four_at) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (BLOCK == 256) {
#pragma unroll 1
        for (uint32_t b = warp; b < cols / 256 * n_x; b += n_warps()) {
            const float4 u = four_at(b * 64 + 2 * lane), v = four_at(b * 64 + 2 * lane + 1);
            const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
            round_a256(to + (size_t)b * 304, x);
        }
    } else {
        const uint32_t each = cols / 32;
#pragma unroll 1
        for (uint32_t first = warp * 4; first < each * n_x; first += n_warps() * 4) {
            const uint32_t b = first + lane / 8, k = lane % 8;
            const bool here = b < each * n_x;
            const struct rounded r = round_a32(four_at((here ? b : 0) * 8 + k));
            if (!here)
                continue;
            uint8_t *row = to + b / each * x_size<BLOCK>(cols);
            *(uint32_t *)(row + 32 * (b % each) + 4 * k) = r.q;
            if (k == 0)
                *(uint2 *)(row + 32 * x_blocks(cols) + 8 * (b % each)) =
                    make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
        }
    }
}

/* The norm's weights on their way into row_mem behind x, which may still be made. */
DEVICE void keep_norm(const struct lode_cuda_gemv_args &a) {
    if (a.input == LODE_GEMV_NORM && a.norm)
        for (uint32_t i = threadIdx.x; i < a.cols / 4; i += blockDim.x)
            copy_async<16>((float4 *)row_mem + a.cols / 4 + i, at<const float4>(a.norm) + i);
    copies_end_group();
}

/* Rounded rows between global memory and x in shared memory. */
template <int BLOCK> DEVICE uint2 *word_of(uint8_t *x, uint32_t cols, uint32_t i) {
    if constexpr (BLOCK == 256)
        return (uint2 *)x + i;
    const uint32_t b = i / 5, k = i % 5;
    return (uint2 *)(k ? x + 32 * b + 8 * (k - 1) : x + 32 * x_blocks(cols) + 8 * b);
}
template <int BLOCK> DEVICE uint32_t n_words(uint32_t cols) {
    return BLOCK == 256 ? cols / 256 * 38 : cols / 32 * 5;
}

/* x to shared memory as the weights want it; row_mem is free again afterwards. */
template <int BLOCK> DEVICE void read_x(const struct lode_cuda_gemv_args &a, uint8_t *to) {
    if (a.input == LODE_GEMV_AS_IS) {
        for (uint32_t i = threadIdx.x; i < n_words<BLOCK>(a.cols); i += blockDim.x)
            *word_of<BLOCK>(to, a.cols, i) = at<const uint2>(a.x)[i];
        __syncthreads();
        return;
    }
    if (a.input == LODE_GEMV_NORM) {
        copies_wait<0>(); /* the norm's weights; norm_root has barriers */
        const struct divisor root = norm_root(at<const float>(a.x), a.eps, a.cols);
        const float4 *w = a.norm ? (const float4 *)(row_mem + a.cols) : NULL; /* keep_norm's */
        round_floats<BLOCK>(to, a.cols, 1, [&](uint32_t i) {
            const float4 v = normed(i, root, w);
            if (a.x_out && blockIdx.x == 0)
                at<float4>(a.x_out)[i] = v;
            return v;
        });
    } else {
        load_rows(a);
        __syncthreads();
        round_floats<BLOCK>(to, a.cols, a.n_x, [](uint32_t i) { return ((const float4 *)row_mem)[i]; });
    }
    __syncthreads();
    if (a.q_out && blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < n_words<BLOCK>(a.cols); i += blockDim.x)
            at<uint2>(a.q_out)[i] = *word_of<BLOCK>(to, a.cols, i);
}

#endif
