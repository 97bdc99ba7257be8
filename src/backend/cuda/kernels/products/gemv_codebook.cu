/* gemv_codebook.cu - products of one row with quantised weights where some are of codebook types: any mix of blocks of 256. */
#define CODEBOOK_NEAR
#include "codebook.cuh"
#include "gemv.cuh"

LODE_CUDA_CODEBOOK_LIST(DTYPE_OF)

/* By all threads, which have to meet before they read it. */
template <class E, int N> DEVICE void bring(E (&to)[N], const E (&from)[N]) {
    for (uint32_t i = threadIdx.x; i < sizeof to / 16; i += blockDim.x)
        ((uint4 *)to)[i] = __ldg((const uint4 *)from + i);
}
DEVICE void bring_grid(uint32_t type) {
    switch (type) {
    case LODE_IQ1_S: case LODE_IQ1_M: bring(grid_iq1, far_iq1); break;
    case LODE_IQ2_XXS: bring(grid_iq2_xxs, far_iq2_xxs); break;
    case LODE_IQ2_XS: bring(grid_iq2_xs, far_iq2_xs); break;
    case LODE_IQ2_S: bring(grid_iq2_s, far_iq2_s); break;
    case LODE_IQ3_XXS: bring(grid_iq3_xxs, far_iq3_xxs); break;
    case LODE_IQ3_S: bring(grid_iq3_s, far_iq3_s); break;
    }
}

typedef types_of<256, struct tq1_0, struct tq2_0, struct iq2_xxs, struct iq2_xs, struct iq2_s, struct iq3_xxs, struct iq3_s, struct iq1_s, struct iq1_m,
                 struct q2_k, struct q3_k, struct q4_k, struct q5_k, struct q6_k, struct iq4_xs> all_types;

extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 1)
    gemv_codebook(const __grid_constant__ struct lode_cuda_gemv_args a) {
    let_next_come();
    for (uint32_t i = 0; i < a.n_parts; i++)
        if (i == 0 || a.parts[i].type != a.parts[i - 1].type)
            bring_grid(a.parts[i].type);
    gemv<all_types>(a); /* whose threads meet before they read weights */
}
