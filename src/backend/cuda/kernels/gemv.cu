/* gemv.cu - products of one row with quantised weights: any mix of types that share their activations'. */
#include "gemv.cuh"

extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 1)
gemv_a32(const __grid_constant__ struct lode_cuda_gemv_args a) {
    gemv<32>(a);
}
extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 1)
gemv_a256(const __grid_constant__ struct lode_cuda_gemv_args a) {
    gemv<256>(a);
}
