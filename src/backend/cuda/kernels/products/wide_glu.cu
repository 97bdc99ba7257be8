/* wide_glu.cu - gate and up of many rows, multiplied where they are stored: for the types that feed forward layers of most
 * files are made of.  Kernels of their own, as who brings rows has few registers. */
#include "gated.h"
#include "wide_exact.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WIDE_GLU(name, type) WIDE_KERNEL(wide_glu_##name, name, 128, GATED_RESULTS)
#define WIDE_GLU_ROUNDED(name, type) WIDE_KERNEL(wide_glu_rounded_##name, name, 128, GATED_ROUNDED)
LODE_CUDA_GATED_LIST(WIDE_GLU)
LODE_CUDA_GATED_32_LIST(WIDE_GLU_ROUNDED)

#endif
