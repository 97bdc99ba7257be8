/* few.cu - products of a few rows with quantised weights (few.cuh), and their x. */
#include "few.cuh"
#include "few_put.cuh"

FEW(a256, 256)
FEW(a32, 32)

/* A row of n blocks to shared memory, as root_of reads it: two blocks of a warp on their way at a time. */
DEVICE void put_rows(const float4 *row, uint32_t n, uint32_t cols) {
    const uint32_t from = threadIdx.x % 32 * 2;
#pragma unroll 1
    for (uint32_t b = threadIdx.x / 32; b < n; b += 2 * FEW_WARPS) {
        const uint32_t c = b + FEW_WARPS;
        float4 v[2][2];
        v[0][0] = row[64 * b + from], v[0][1] = row[64 * b + from + 1];
        if (c < n)
            v[1][0] = row[64 * c + from], v[1][1] = row[64 * c + from + 1];
        put_numbers(cols, b, v[0]);
        if (c < n)
            put_numbers(cols, c, v[1]);
    }
}

/* blockIdx: column, share of its blocks.  Columns that are no row of x are zeros. */
template <int BLOCK> DEVICE void few_x(const struct lode_cuda_few_x_args &a) {
    __shared__ __align__(16) uint8_t blocks[FEW_WARPS][304];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, column = blockIdx.x % 8;
    const uint32_t size = x_bytes(BLOCK), n = a.cols / 256;
    const bool here = blockIdx.x < a.n_x;
    const uint8_t *row = row_at<const uint8_t>(a.x, here ? blockIdx.x : 0);
    struct divisor root = {1, 1, true};
    const float4 *const norm = a.input == LODE_GEMV_NORM ? at<const float4>(a.norm) : NULL;
    const uint32_t first = blockIdx.y + gridDim.y * warp;
    let_next_come();
    float4 early[2] = {}; /* the weights of the warp's first block, asked for before x is there */
    auto weights = [&](uint32_t b, float4 w[2]) {
        w[0] = norm[64 * b + at_of<BLOCK>(lane, 0)], w[1] = norm[64 * b + at_of<BLOCK>(lane, 1)];
    };
    if (norm && first < n)
        weights(first, early);
    wait_for_last();
    if (here && a.input == LODE_GEMV_NORM) {
        put_rows((const float4 *)row, n, a.cols);
        root = root_of(a.cols, a.eps);
    }
    auto numbers = [&](uint32_t b, float4 v[2]) { /* a thread's eight of block b */
        const uint32_t i[2] = {64 * b + at_of<BLOCK>(lane, 0), 64 * b + at_of<BLOCK>(lane, 1)};
        if (a.input != LODE_GEMV_NORM) {
            v[0] = ((const float4 *)row)[i[0]], v[1] = ((const float4 *)row)[i[1]];
            return;
        }
        float4 w[2] = {early[0], early[1]};
        if (norm && b != first)
            weights(b, w);
#pragma unroll
        for (int k = 0; k < 2; k++) {
            v[k] = divided(four_numbers(a.cols, i[k]), root);
            if (norm)
                times(v[k], w[k]);
            if (a.x_out.data)
                row_at<float4>(a.x_out, blockIdx.x)[i[k]] = v[k];
        }
    };
    for (uint32_t b = first; b < n; b += gridDim.y * FEW_WARPS)
        put_block<BLOCK>(at<uint8_t>(a.y) + ((size_t)b * a.groups + blockIdx.x / 8) * size, column, b, blocks[warp], here,
                         a.input == LODE_GEMV_AS_IS ? row : NULL, numbers);
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS)
few_x256(const __grid_constant__ struct lode_cuda_few_x_args a) {
    few_x<256>(a);
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS)
few_x32(const __grid_constant__ struct lode_cuda_few_x_args a) {
    few_x<32>(a);
}
