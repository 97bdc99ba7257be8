/* mul_job.cuh - the products of mul.cuh as kernels: LINEAR, HEADS, and those of EXPERTS. */
#ifndef LODE_CUDA_MUL_JOB_CUH
#define LODE_CUDA_MUL_JOB_CUH

#include "backend/cuda/kernels/experts/experts_shared.h"
#include "mul.cuh"
#include "backend/cuda/kernels/rows.cuh"

/* The tile that this block of threads computes. */
template <int NX>
DEVICE void find_tile(struct mul_job &job, const struct lode_cuda_mul_args &a, uint32_t rows) {
    uint32_t tile = blockIdx.x, p = 0, head = 0;
    while (p + 1 < a.n_parts && tile >= a.parts[p + 1].first_tile)
        p++;
    const struct lode_cuda_part &part = a.parts[p];
    tile -= part.first_tile;
    uint32_t first = tile * rows, limit = part.rows;
    if (a.head_rows) { /* no tile has rows of two heads */
        const uint32_t tiles = (a.head_rows + rows - 1) / rows;
        head = tile / tiles;
        first = head * a.head_rows + tile % tiles * rows;
        limit = (head + 1) * a.head_rows;
    }
    job.w = at<const uint8_t>(part.w) + first * part.w_stride;
    job.w_stride = part.w_stride;
    job.bias = part.bias ? at<const float>(part.bias) + first : NULL;
    job.rows = limit - first < rows ? limit - first : rows;
    job.cols = a.cols;
#pragma unroll
    for (int j = 0; j < NX; j++) {
        const uint32_t r = blockIdx.y * NX + j;
        const bool wanted = r < a.n_x;
        job.x[j] = row_at<const uint8_t>(a.x, wanted ? r : a.n_x - 1) + (size_t)head * a.x_head;
        job.y[j] = wanted ? (float *)(part.y + r * part.y_stride + (size_t)head * a.y_head) + first : NULL;
    }
}

/* One pair of a row and an expert; blockIdx.y: the pair, blockIdx.z: which product. */
DEVICE void find_expert(struct mul_job &job, const struct lode_cuda_moe_args &a, uint32_t rows) {
    const uint32_t pair = blockIdx.y, kind = blockIdx.z, first = blockIdx.x * rows;
    const int expert = row_at<const int>(a.route, pair / a.n_used)[2 * (pair % a.n_used)];
    job.w = at<const uint8_t>(a.w[kind]) + (size_t)expert * a.expert_size + first * a.w_stride;
    job.w_stride = a.w_stride;
    job.bias = a.bias[kind] ? at<const float>(a.bias[kind]) + (size_t)expert * a.rows + first : NULL;
    job.rows = a.rows - first < rows ? a.rows - first : rows;
    job.cols = a.cols;
    job.x[0] = row_at<const uint8_t>(a.x, pair / a.x_div);
    job.y[0] = (float *)(a.y[kind] + pair * a.y_stride) + first;
}

/* A head's numbers, at most LODE_ROUNDED_HEAD, rounded where they are read: 8 neighbouring threads have 32 of them, or a warp 256. */
struct rounded_x {
    __align__(16) uint8_t of[LODE_ROUNDED_HEAD / 32 * 40];
};
static_assert(LODE_ROUNDED_HEAD <= 4 * MUL_THREADS && LODE_ROUNDED_HEAD % 256 == 0 && LODE_ROUNDED_HEAD / 256 * 304 <= sizeof(struct rounded_x),
              "products_shared.h");
template <class T> DEVICE const uint8_t *round_x(struct rounded_x *to, const uint8_t *x, uint32_t cols) {
    const uint32_t per = T::BLOCK == 256 ? 8 : 4, first = threadIdx.x * per; /* a thread's numbers */
    const bool here = first < cols;
    const float4 *from = (const float4 *)x + (here ? first / 4 : 0);
    if constexpr (T::BLOCK == 256) {
        if (here) { /* whole warps */
            const float4 u = from[0], v = from[1];
            const float eight[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
            round_a256(to->of + first / 256 * 304, eight);
        }
    } else {
        const struct rounded r = round_a32(from[0]);
        if (here)
            put_a32(to->of + first / 32 * 40, r);
    }
    __syncthreads();
    return to->of;
}

#define MUL_QUANT(name, NX)                                                                        \
    KERNEL(MUL_THREADS)                                                                            \
    mul_##name##_##NX(const __grid_constant__ struct lode_cuda_mul_args a) {                       \
        begin();                                                                                    \
        __shared__ struct mul_stage<struct name, NX> stage[2];                                     \
        __shared__ float acc[32];                                                                  \
        struct mul_job job;                                                                        \
        find_tile<NX>(job, a, tile_rows<NX>::N);                                                   \
        if (NX == 1) {                                                                             \
            __shared__ struct rounded_x x;                                                         \
            if (a.rounds)                                                                          \
                job.x[0] = round_x<struct name>(&x, job.x[0], a.cols);                             \
        }                                                                                          \
        mul_quant<struct name, NX>(job, stage, acc);                                               \
    }
#define MUL_FLOAT(name, NX)                                                                        \
    KERNEL(MUL_THREADS)                                                                            \
    mul_##name##_##NX(const __grid_constant__ struct lode_cuda_mul_args a) {                       \
        begin();                                                                                    \
        __shared__ struct float_stage<NX> stage;                                                   \
        struct mul_job job;                                                                        \
        find_tile<NX>(job, a, FLOAT_ROWS);                                                         \
        mul_float<struct name, NX>(job, &stage);                                                   \
    }
/* All products of a type with rounded activations, of a type with floats. */
#define MUL_QUANTS(name, type, block, ...)                                                         \
    MUL_QUANT(name, 1)                                                                             \
    MUL_QUANT(name, 2)                                                                             \
    MUL_QUANT(name, 4)                                                                             \
    MUL_QUANT(name, 8)                                                                             \
    KERNEL(MUL_THREADS) moe_##name(const __grid_constant__ struct lode_cuda_moe_args a) {          \
        begin();                                                                                    \
        __shared__ struct mul_stage<struct name, 1> stage[2];                                      \
        __shared__ float acc[32];                                                                  \
        struct mul_job job;                                                                        \
        find_expert(job, a, tile_rows<1>::N);                                                      \
        mul_quant<struct name, 1>(job, stage, acc);                                                \
    }
#define MUL_FLOATS(name, ...)                                                                      \
    MUL_FLOAT(name, 1)                                                                             \
    MUL_FLOAT(name, 2)                                                                             \
    MUL_FLOAT(name, 4)                                                                             \
    MUL_FLOAT(name, 8)                                                                             \
    KERNEL(MUL_THREADS) moe_##name(const __grid_constant__ struct lode_cuda_moe_args a) {          \
        begin();                                                                                    \
        __shared__ struct float_stage<1> stage;                                                    \
        struct mul_job job;                                                                        \
        find_expert(job, a, FLOAT_ROWS);                                                           \
        mul_float<struct name, 1>(job, &stage);                                                    \
    }

#endif
