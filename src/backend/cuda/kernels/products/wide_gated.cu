/* wide_gated.cu - gate and up of many rows in --numerics fast, multiplied where they are stored: for the types that feed
 * forward layers of most files are made of.  Kernels of their own, as who brings rows has few registers. */
#include "gated.h"
#include "wide_fast.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WIDE_GATED(name, type)                                                                     \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        wide_gated_##name(const __grid_constant__ struct lode_cuda_packed_args a) {                \
        wide_fast<struct name, 128, true>(a);                                                      \
    }
LODE_CUDA_GATED_LIST(WIDE_GATED)

#endif
