/* wgmma_peak.cu - what the tensor cores of a Hopper GPU give for BF16 from shared memory, nothing loaded, of zeros and of
 * random numbers, for a second each: with random ones the board's power sets the clock.
 *
 *     nvcc -gencode arch=compute_90a,code=sm_90a -std=c++17 -O3 -Isrc -o wgmma_peak bench/wgmma_peak.cu && ./wgmma_peak
 */
#include "backend/cuda/kernels/wgmma.cuh"

#include <chrono>
#include <cstdio>

enum { THREADS = 256, STAGE = 64 /* numbers of K */, COLUMNS = 256, SHARED = 160 << 10 };

static __device__ float uniform(uint32_t &s) {
    s = s * 1664525 + 1013904223;
    return (s >> 8) * (1.0f / (1 << 24)) + 1e-7f;
}

/* Two warpgroups of 64 rows each; `n` stages of 4 products. */
__global__ void __launch_bounds__(THREADS, 1) multiply(float *out, bool random, int n) {
    extern __shared__ __align__(1024) uint8_t bytes[];
    uint8_t *m = bytes + (-shared_address(bytes) & 1023);
    uint32_t s = threadIdx.x * 2654435761u + blockIdx.x * 97 + 1;
    for (int i = threadIdx.x; i < SHARED / 2; i += THREADS) {
        const float v = random ? sqrtf(-2 * logf(uniform(s))) * cosf(6.2831853f * uniform(s)) : 0;
        ((uint16_t *)m)[i] = (uint16_t)(__float_as_uint(v) >> 16);
    }
    stored_for_wgmma();
    __syncthreads();
    float d[COLUMNS / 2] = {};
    for (int k = 0; k < n; k++) {
        const uint64_t a = panel_at(m + k % 2 * 16384 + threadIdx.x / 128 * 8192), b = panel_at(m + 32768 + k % 4 * 32768);
        wgmma_begin();
        for (int i = 0; i < STAGE / 16; i++)
            asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES128 "}, %128, %129, 1, 1, 1, 0, 0;"
                         : D128(d)
                         : "l"(a + i * PANEL_STEP), "l"(b + i * PANEL_STEP));
        wgmma_end();
        wgmma_wait<0>();
    }
    float sum = 0;
    for (int i = 0; i < COLUMNS / 2; i++)
        sum += d[i];
    out[blockIdx.x * THREADS + threadIdx.x] = sum;
}

int main() {
    float *out;
    int blocks;
    const int n = 400000;
    cudaDeviceGetAttribute(&blocks, cudaDevAttrMultiProcessorCount, 0);
    cudaMalloc(&out, sizeof(float) * THREADS * blocks);
    cudaFuncSetAttribute(multiply, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED + 1024);
    for (int i = 0; i < 8; i++) {
        const bool random = i >= 4;
        const auto start = std::chrono::steady_clock::now();
        multiply<<<blocks, THREADS, SHARED + 1024>>>(out, random, n);
        const cudaError_t rc = cudaDeviceSynchronize();
        if (rc != cudaSuccess) {
            fprintf(stderr, "wgmma_peak: %s; it needs a Hopper GPU\n", cudaGetErrorString(rc));
            return 1;
        }
        const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        printf("%s: %.2f s, %.0f TFLOP/s\n", random ? "random" : "zeros", s,
               blocks * 2.0 * n * STAGE * 64 * COLUMNS * 2 / s / 1e12);
    }
    return 0;
}
