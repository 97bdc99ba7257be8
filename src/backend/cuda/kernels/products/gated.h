/* gated.h - types of weights that wide_glu.cu and wide_gated.cu have kernels for: X(suffix, type); those whose blocks are of 32. */
#ifndef LODE_CUDA_GATED_H
#define LODE_CUDA_GATED_H

#define LODE_CUDA_GATED_32_LIST(X) X(q4_0, Q4_0) X(q8_0, Q8_0)
#define LODE_CUDA_GATED_LIST(X) LODE_CUDA_GATED_32_LIST(X) X(q4_k, Q4_K) X(q5_k, Q5_K) X(q6_k, Q6_K)

#endif
