/* wide_glu.cu - gate and up of many rows, multiplied where they are stored: for the types that feed forward layers of most
 * files are made of.  Kernels of their own, as who brings rows has few registers. */
#include "gated.h"
#include "wide_exact.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WIDE_GLU_AS(kernel, name, leaves)                                                          \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        kernel##_##name(const __grid_constant__ struct lode_cuda_packed_args a) {                  \
        wide<struct name, 128, leaves>(a);                                                         \
    }
#define WIDE_GLU(name, type) WIDE_GLU_AS(wide_glu, name, GATED_RESULTS)
#define WIDE_GLU_ROUNDED(name, type) WIDE_GLU_AS(wide_glu_rounded, name, GATED_ROUNDED)
LODE_CUDA_GATED_LIST(WIDE_GLU)
LODE_CUDA_GATED_32_LIST(WIDE_GLU_ROUNDED)

#endif
