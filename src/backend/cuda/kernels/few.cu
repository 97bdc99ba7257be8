/* few.cu - products of a few rows with quantised weights (few.cuh), and their x. */
#include "few.cuh"

FEW(a256, 256)
FEW(a32, 32)

/* The word of a column's codes that has numbers 4 i and on of a block of 256. */
DEVICE uint32_t *code_word(uint8_t *y, uint32_t column, uint32_t i) {
    const uint32_t g = i / 8, k = i % 8;
    return (uint32_t *)(y + g / 2 * 512 + (4 * column + k % 4) * 16 + g % 2 * 8 + k / 4 * 4);
}

/* A block (kern.h's A256) to its column of y; by a warp. */
DEVICE void put_a256(uint8_t *y, uint32_t column, const uint8_t *block) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = lane; i < 64; i += 32)
        *code_word(y, column, i) = word_at(block + 48 + 4 * i);
    if (lane < 8)
        y[X_FACTORS + column / 2 * 16 + lane * 2 + column % 2] = block[4 + lane];
    if (lane < 4) {
        const uint2 v = *(const uint2 *)(block + 16 + 8 * lane);
        *(uint2 *)(y + X_SUMS + 16 * (4 * column + lane)) =
            make_uint2(__byte_perm(v.x, v.y, 0x6420), __byte_perm(v.x, v.y, 0x7531));
    }
    if (lane < 8) /* threads r, and 4 r + q has columns 2 q and 2 q + 1 */
        *(uint32_t *)(y + X_SUMS + 16 * (4 * lane + column / 2) + 8 + column % 2 * 4) = word_at(block);
}
/* Block k of eight: this thread's word of codes, and by its first thread what belongs to it. */
DEVICE void put_a32(uint8_t *y, uint32_t column, uint32_t k, uint32_t word, struct rounded r) {
    *code_word(y, column, 8 * k + word) = r.q;
    if (word == 0)
        *(uint2 *)(y + X_BLOCKS + 64 * k + column / 2 * 16 + column % 2 * 8) =
            make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
}

/* Which of a block's 64 times four numbers a thread has, first and second. */
template <int BLOCK> DEVICE uint32_t at_of(uint32_t lane, uint32_t k) { return BLOCK == 256 ? 2 * lane + k : lane + 32 * k; }
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
    const uint32_t size = BLOCK == 256 ? LODE_FEW_X256 : LODE_FEW_X32, n = a.cols / 256;
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
    for (uint32_t b = first; b < n; b += gridDim.y * FEW_WARPS) {
        uint8_t *y = at<uint8_t>(a.y) + ((size_t)b * a.groups + blockIdx.x / 8) * size;
        if constexpr (BLOCK == 256) {
            const uint8_t *block = blocks[warp];
            if (!here) {
                for (uint32_t i = lane; i < 304 / 4; i += 32)
                    ((uint32_t *)blocks[warp])[i] = 0;
            } else if (a.input == LODE_GEMV_AS_IS) {
                block = row + (size_t)b * 304;
            } else {
                float4 v[2];
                numbers(b, v);
                const float z[8] = {v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w};
                round_a256(blocks[warp], z);
            }
            __syncwarp();
            put_a256(y, column, block);
            __syncwarp();
        } else {
            float4 v[2];
            if (here && a.input != LODE_GEMV_AS_IS)
                numbers(b, v);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const uint32_t k = lane / 8 + 4 * half, i = lane % 8;
                struct rounded r = {0, 0, 0};
                if (here && a.input == LODE_GEMV_AS_IS) {
                    const uint8_t *block = row + (size_t)(8 * b + k) * 40;
                    r = {*(const float *)block, *(const int *)(block + 4), word_at(block + 8 + 4 * i)};
                } else if (here) {
                    r = round_a32(v[half]);
                }
                put_a32(y, column, k, i, r);
            }
        }
    }
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS)
few_x256(const __grid_constant__ struct lode_cuda_few_x_args a) {
    few_x<256>(a);
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS)
few_x32(const __grid_constant__ struct lode_cuda_few_x_args a) {
    few_x<32>(a);
}
