/* few_mixed.cu - products of a few rows (few.cuh) with Q6_K and either Q4_K or Q5_K, which files mix: kernels that know two
 * types are shorter and have registers for them. */
#include "few.cuh"

FEW(q4_q6, Q4_K_Q6_K)
FEW(q5_q6, Q5_K_Q6_K)
