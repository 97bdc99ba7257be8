/* near_rows.cuh - rows of float weights in shared memory, with a row of x: the definition's sixteen lanes by eight threads,
 * two in each. */
#ifndef LODE_CUDA_NEAR_ROWS_CUH
#define LODE_CUDA_NEAR_ROWS_CUH

#include "gemv.cuh"
#include "mul.cuh"

/* The tree of the sixteen lanes, two in each of eight threads. */
DEVICE float join_row(float2 acc) {
    for (int d = 4; d; d /= 2) {
        acc.x += __shfl_down_sync(0xffffffffu, acc.x, d, 8);
        acc.y += __shfl_down_sync(0xffffffffu, acc.y, d, 8);
    }
    return acc.x + acc.y;
}

/* A row in shared memory with x, both of floats: the sum, in the first of its eight threads. */
template <class T> DEVICE float dot_near_row(const uint8_t *row, const float *x, uint32_t cols) {
    enum { SIZE = sizeof(typename T::type) };
    const uint32_t t = threadIdx.x % 8;
    float2 acc = make_float2(0, 0);
    auto add = [&](uint32_t k) {
        const float2 p = pair_of<T>::widen(*(const typename pair_of<T>::raw *)(row + k * SIZE)),
                     z = *(const float2 *)(x + k);
        acc.x = fmaf(p.x, z.x, acc.x);
        if (k + 1 < cols)
            acc.y = fmaf(p.y, z.y, acc.y);
    };
    uint32_t k = 2 * t;
#pragma unroll 1
    for (; k + 7 * 16 + 1 < cols; k += 8 * 16)
#pragma unroll
        for (int u = 0; u < 8; u++)
            add(k + 16 * u);
#pragma unroll 1
    for (; k < cols; k += 16)
        add(k);
    __syncwarp();
    return join_row(acc);
}

#endif
