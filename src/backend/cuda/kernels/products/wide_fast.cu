/* wide_fast.cu - products of many rows with packed weights in --numerics fast, of every type with planes. */
#include "wide_fast.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WIDE_FAST_OF(name, n)                                                                      \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        wide_fast_##name##_##n(const __grid_constant__ struct lode_cuda_packed_args a) {           \
        wide_fast<struct name, n, false>(a);                                                       \
    }
#define WIDE_FAST(name, type, block, ...) WIDE_FAST_OF(name, 64) WIDE_FAST_OF(name, 128)
LODE_CUDA_QUANT_LIST(WIDE_FAST)

#endif
