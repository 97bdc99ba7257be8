/* gemm_float.cu - products of many rows with float weights, bit for bit kern/mul_float_scalar.c's.
 *
 * The definition has sixteen lanes, number k in lane k % 16, so a result needs sixteen
 * accumulators.  A block of threads has 64 rows of w by 32 of x; sixteen threads are a lane, each
 * with 16 rows of w by 8 of x in registers: 6 loads of 16 bytes from shared memory for 128
 * multiply-adds.  Lanes are joined at the end, through the memory that the panels had. */
#include "backend/cuda/kernels/planes.h"
#include "gemm.cuh"
#include "mul.cuh"

enum {
    LANES_W = 64,
    LANES_X = 32,
    LANES_K = 64, /* numbers of K at a time: a multiple of 16 */
    LANES_THREADS = 256,
    /* Rows of k apart: both lanes of a warp read other banks. */
    LD_W = LANES_W + 16,
    LD_X = LANES_X + 16,
};

struct lanes_mem {
    union {
        struct {
            float w[2][LANES_K][LD_W], x[2][LANES_K][LD_X];
        };
        float join[128][128]; /* (accumulator, thread) */
    };
};
static_assert(sizeof(struct lanes_mem) <= LODE_GEMM_FLOAT_SHARED && (int)LANES_THREADS == LODE_GEMM_THREADS * LODE_GEMM_TILE_X, "products_shared.h");

/* Eight neighbouring weights. */
template <class T> struct eight_of { uint4 v; };
template <> struct eight_of<f32> { float4 v[2]; };
template <class T> DEVICE void load_eight(struct eight_of<T> &e, const uint8_t *p) {
    e.v = __ldg((const uint4 *)p);
}
template <>
__device__ __forceinline__ void load_eight<f32>(struct eight_of<f32> &e, const uint8_t *p) {
    e.v[0] = __ldg((const float4 *)p), e.v[1] = __ldg((const float4 *)p + 1);
}
template <class T> DEVICE void widen_eight(const struct eight_of<T> &e, float f[8]) {
    const uint32_t v[4] = {e.v.x, e.v.y, e.v.z, e.v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 p = pair_of<T>::widen(v[i]);
        f[2 * i] = p.x, f[2 * i + 1] = p.y;
    }
}
template <>
__device__ __forceinline__ void widen_eight<f32>(const struct eight_of<f32> &e, float f[8]) {
    f[0] = e.v[0].x, f[1] = e.v[0].y, f[2] = e.v[0].z, f[3] = e.v[0].w;
    f[4] = e.v[1].x, f[5] = e.v[1].y, f[6] = e.v[1].z, f[7] = e.v[1].w;
}

/* What a thread brings of a step: 8 numbers of two rows of w, of one of x. */
template <class T> struct brought {
    struct eight_of<T> w[2];
    float4 x[2];
};
template <class T>
DEVICE void bring(struct brought<T> &b, const uint8_t *const w[2], const float *x, uint32_t k) {
    const uint32_t first = k + threadIdx.x / 32 * 8;
#pragma unroll
    for (int i = 0; i < 2; i++)
        load_eight<T>(b.w[i], w[i] + (size_t)first * sizeof(typename T::type));
    b.x[0] = *(const float4 *)(x + first), b.x[1] = *(const float4 *)(x + first + 4);
}
template <class T> DEVICE void put(struct lanes_mem *m, const struct brought<T> &b, int to) {
    const uint32_t r = threadIdx.x % 32, k = threadIdx.x / 32 * 8;
    const float x[8] = {b.x[0].x, b.x[0].y, b.x[0].z, b.x[0].w,
                        b.x[1].x, b.x[1].y, b.x[1].z, b.x[1].w};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float w[8];
        widen_eight<T>(b.w[i], w);
#pragma unroll
        for (int e = 0; e < 8; e++)
            m->w[to][k + e][r + 32 * i] = w[e];
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        m->x[to][k + e][r] = x[e];
}

/* A thread's rows: 16 i + 4 row .. + 3 of w (i < 4), of x 16 i + 4 column .. + 3 (i < 2). */
DEVICE void multiply(const struct lanes_mem *m, int from, uint32_t lane, uint32_t row,
                     uint32_t column, float (&acc)[16][8]) {
#pragma unroll
    for (uint32_t k = 0; k < LANES_K; k += 16) {
        float w[16], x[8];
#pragma unroll
        for (int i = 0; i < 4; i++)
            *(float4 *)&w[4 * i] = *(const float4 *)&m->w[from][k + lane][16 * i + 4 * row];
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float4 *)&x[4 * i] = *(const float4 *)&m->x[from][k + lane][16 * i + 4 * column];
#pragma unroll
        for (int i = 0; i < 16; i++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                acc[i][j] = fmaf(w[i], x[j], acc[i][j]);
    }
}

template <class T> DEVICE void gemm_lanes(const struct lode_cuda_gemm_args &a) {
    extern __shared__ __align__(16) uint8_t lanes_bytes[];
    struct lanes_mem *m = (struct lanes_mem *)lanes_bytes;
    const uint32_t t = threadIdx.x, lane = t / 16, row = t % 4, column = t / 4 % 4;
    /* a quarter of the tile that gemm.cu has */
    const uint32_t w0 = blockIdx.z / 2 * LANES_W, x0 = blockIdx.z % 2 * LANES_X;
    struct gemm_job job;
    begin();
    if (!find_job(job, a, LODE_GEMM_TILE_W, LODE_GEMM_TILE_X, blockIdx.x, blockIdx.y) || w0 >= job.w_rows ||
        x0 >= job.x_rows)
        return;
    const uint8_t *w[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = w0 + t % 32 + 32 * i;
        w[i] = job.w + (r < job.w_rows ? r : job.w_rows - 1) * job.w_stride;
    }
    const float *x = row_at<const float>(a.x, y_row(job, x0 + t % 32) / job.x_div) + job.x_at / sizeof(float);
    float acc[16][8];
#pragma unroll
    for (int i = 0; i < 16; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            acc[i][j] = 0;
    struct brought<T> next;
    bring<T>(next, w, x, 0);
    put<T>(m, next, 0);
    __syncthreads();
    int now = 0;
    for (uint32_t k = 0; k < a.cols; k += LANES_K, now ^= 1) {
        const bool more = k + LANES_K < a.cols;
        if (more)
            bring<T>(next, w, x, k + LANES_K);
        __syncwarp(); /* what is asked for stays before the products: ptxas would put it behind them, to have registers, and halve the speed */
        multiply(m, now, lane, row, column, acc);
        if (more)
            put<T>(m, next, now ^ 1);
        __syncthreads();
    }
#pragma unroll 1
    for (uint32_t half = 8; half; half /= 2) { /* the lanes' tree */
        if (lane >= half && lane < 2 * half)
#pragma unroll
            for (int i = 0; i < 128; i++)
                m->join[i][t - half * 16] = acc[i / 8][i % 8];
        __syncthreads();
        if (lane < half)
#pragma unroll
            for (int i = 0; i < 128; i++)
                acc[i / 8][i % 8] += m->join[i][t];
        __syncthreads();
    }
    if (lane)
        return;
    job.y += between_heads(a, blockIdx.y);
#pragma unroll
    for (int j = 0; j < 8; j++) {
        const uint32_t i_x = x0 + j / 4 * 16 + 4 * column + j % 4;
        if (i_x >= job.x_rows)
            continue;
        float *y = (float *)(job.y + y_row(job, i_x) * job.y_stride);
#pragma unroll
        for (int i = 0; i < 16; i++) {
            const uint32_t r = w0 + i / 4 * 16 + 4 * row + i % 4;
            if (r < job.w_rows)
                y[r] = job.bias ? acc[i][j] + job.bias[r] : acc[i][j];
        }
    }
}

/* As gemm.cu's, four blocks (blockIdx.z) for a tile.  a.cols is a multiple of 64. */
#define GEMM_FLOAT(name, type)                                                                     \
    extern "C" __global__ void __launch_bounds__(LANES_THREADS, 1)                                 \
        gemm_##name(const __grid_constant__ struct lode_cuda_gemm_args a) {                        \
        gemm_lanes<struct name>(a);                                                                \
    }
LODE_CUDA_FLOAT_LIST(GEMM_FLOAT)
