/* mul_packed.cu - products of a few rows with types that no fused kernel of few rows knows, and those that are floats as they lie
 * (mul_job.cuh). */
#include "codebook.cuh"
#include "mul_job.cuh"
#include "packed.cuh"
#include "parts.cuh"

LODE_CUDA_CODEBOOK_LIST(MUL_QUANTS)
LODE_CUDA_U_LIST(MUL_QUANTS)
LODE_CUDA_U8_LIST(MUL_QUANTS)
LODE_CUDA_PART_LIST(MUL_QUANTS)
LODE_CUDA_PACKED_LIST(MUL_FLOATS)
