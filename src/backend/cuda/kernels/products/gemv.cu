/* gemv.cu - products of one row with quantised weights: any mix of types that share their activations'; and
 * for what most files are made of, kernels that know only that. */
#include "gemv.cuh"

GEMV(a32, 32, q4_0, q4_1, q5_0, q5_1, q8_0, iq4_nl, mxfp4)
GEMV(a256, 256, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_xs)
GEMV(only_q8_0, 32, q8_0)
GEMV(only_q4_k, 256, q4_k, q6_k)
GEMV(only_q5_k, 256, q5_k, q6_k)
