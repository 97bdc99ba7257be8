/* mul_packed.cu - products of a few rows with lode's own types, codebook types and those that are floats as they lie
 * (mul_job.cuh). */
#include "codebook.cuh"
#include "mul_job.cuh"
#include "packed.cuh"

LODE_CUDA_CODEBOOK_LIST(MUL_QUANTS)
LODE_CUDA_U_LIST(MUL_QUANTS)
LODE_CUDA_U8_LIST(MUL_QUANTS)
LODE_CUDA_PACKED_LIST(MUL_FLOATS)
