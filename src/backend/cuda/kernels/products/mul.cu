/* mul.cu - products of a few rows (mul_job.cuh) with weights that the fused kernels know too. */
#include "backend/cuda/kernels/planes.h"
#include "mul_job.cuh"

LODE_CUDA_QUANT_LIST(MUL_QUANTS)
LODE_CUDA_FLOAT_LIST(MUL_FLOATS)
