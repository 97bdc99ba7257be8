/* fp8.cuh - 8-bit floats: kern/fp8.h's tables, computed. */
#ifndef LODE_CUDA_FP8_CUH
#define LODE_CUDA_FP8_CUH

#include "backend/cuda/kernels/common.cuh"

#include "kern/fp8.h"

DEVICE float e4m3_of(uint32_t c) { return FP8_E4M3((int)c); }
DEVICE float e5m2_of(uint32_t c) { return FP8_E5M2((int)c); }

#endif
