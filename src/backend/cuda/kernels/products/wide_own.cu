/* wide_own.cu - products of many rows with lode's own types and with blocks of several 32 on Hopper's warpgroups (wide_exact.cuh). */
#include "wide_exact.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

LODE_CUDA_OWN_LIST(WIDE)

#endif
