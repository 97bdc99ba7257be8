/* experts.cu - mixtures of experts around their products: the definitions are backend/cpu/route.c
 * and experts.c. */
#include "route.cuh"

/* A block of threads a row. */
KERNEL(ROW_THREADS) route(const __grid_constant__ struct lode_cuda_route_args a) {
    begin();
    route_row(a, row_at<const float>(a.x, blockIdx.x), row_at<float>(a.y, blockIdx.x));
}
/* The same by as few threads as route_quick needs. */
KERNEL(ROW_THREADS) route_few(const __grid_constant__ struct lode_cuda_route_args a) {
    begin();
    route_quick(a, row_at<const float>(a.x, blockIdx.x), row_at<float>(a.y, blockIdx.x));
}

KERNEL(ROW_THREADS) moe_act(const __grid_constant__ struct lode_cuda_moe_act_args a) {
    begin();
    const uint32_t pair = blockIdx.x;
    const float weight = row_at<const float>(a.route, pair / a.n_used)[2 * (pair % a.n_used) + 1];
    const float *gate = (const float *)(a.gate + pair * a.stride);
    const float *up = (const float *)(a.up + pair * a.stride);
    float *y = (float *)(a.y + pair * a.stride);
    EACH(i, a.n)
    y[i] = a.weigh_input ? glu_of(a.act, gate[i] * weight, up[i] * weight)
                         : glu_of(a.act, gate[i], up[i]);
}

KERNEL(ROW_THREADS) moe_sum(const __grid_constant__ struct lode_cuda_moe_sum_args a) {
    begin();
    const float *route = row_at<const float>(a.route, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.n) {
        float sum = 0;
        for (uint32_t k = 0; k < a.n_used; k++)
            sum = fmaf(a.weigh_input ? 1.0f : route[2 * k + 1],
                       ((const float *)(a.down + (blockIdx.x * a.n_used + k) * a.stride))[i], sum);
        y[i] = sum;
    }
}
