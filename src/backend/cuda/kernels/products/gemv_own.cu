/* gemv_own.cu - products of one row with lode's own types, and with blocks of several 32. */
#include "gemv.cuh"
#include "parts.cuh"

LODE_CUDA_U_LIST(DTYPE_OF)
LODE_CUDA_U8_LIST(DTYPE_OF)
LODE_CUDA_PART_LIST(DTYPE_OF)

GEMV(u, 32, u2, u3, u4, u5, u6, u8, u4g32, u8g32)
GEMV(parts, 32, q1_0, q2_0, nvfp4, nvfp4g)
