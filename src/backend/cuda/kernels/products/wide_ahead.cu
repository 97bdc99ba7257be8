/* wide_ahead.cu - products of the pairs of experts on Hopper's warpgroups (wide_exact.cuh), and of weights that are not tiles of 128 rows:
 * weights come ahead (wide_ahead.cuh). */
#include "wide_exact.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WIDE_AHEAD(name, type, block, ...) WIDE_KERNEL(wide_ahead_##name, name, 64, RESULTS, true)
LODE_CUDA_QUANT_LIST(WIDE_AHEAD)
LODE_CUDA_OWN_LIST(WIDE_AHEAD)

#endif
