/* experts.cu - mixtures of experts around their products: the definitions are backend/cpu/route.c
 * and experts.c. */
#include "route.cuh"
#include "backend/cuda/kernels/products/columns.cuh"

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

/* ---- pairs by expert ---- */

/* Pairs, and tiles by kind.  Tiles of many columns come first, so that all multiprocessors have as much to do at the end. */
enum { PAIRS, TILES, COUNTS = TILES + COLUMN_KINDS };
struct group_counts { uint32_t of[COUNTS]; };
/* The sum of this lane's and of all before it. */
DEVICE struct group_counts up_to_here(struct group_counts v) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t w = 1; w < 32; w *= 2)
#pragma unroll
        for (int i = 0; i < COUNTS; i++) {
            const uint32_t n = __shfl_up_sync(0xffffffffu, v.of[i], w);
            v.of[i] += lane >= w ? n : 0;
        }
    return v;
}

/* Sorts the (row, place) pairs by expert and lists tiles of pairs of one expert.  One block of threads.  tiles: their number (and three
 * words of nothing), then each. */
enum { GROUP_THREADS = 1024 };
KERNEL(GROUP_THREADS) group_pairs(const __grid_constant__ struct lode_cuda_group_args a) {
    __shared__ uint32_t count[LODE_GROUP_EXPERTS];
    __shared__ struct group_counts before[GROUP_THREADS / 32]; /* of the warp's experts, then of all warps' up to it */
    begin();
    const uint32_t e = threadIdx.x;
    count[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += GROUP_THREADS)
        atomicAdd(&count[row_at<const int>(a.route, i / a.n_used)[2 * (i % a.n_used)]], 1u);
    __syncthreads();
    const uint32_t n = count[e], full = n / a.tile, rest = n % a.tile;
    struct group_counts own;
    own.of[PAIRS] = n;
#pragma unroll
    for (uint32_t k = 0; k < COLUMN_KINDS; k++)
        own.of[TILES + k] = (column_kind(a.tile) == k ? full : 0) + (rest && column_kind(rest) == k);
    const struct group_counts in_warp = up_to_here(own);
    if (e % 32 == 31)
        before[e / 32] = in_warp;
    __syncthreads();
    if (e < 32)
        before[e] = up_to_here(before[e]);
    __syncthreads();
    const struct group_counts none = {}, warps = e < 32 ? none : before[e / 32 - 1], &all = before[GROUP_THREADS / 32 - 1];
    const uint32_t begin_pair = warps.of[PAIRS] + in_warp.of[PAIRS] - n;
    struct lode_cuda_gemm_tile *const tiles = at<struct lode_cuda_gemm_tile>(a.tiles) + 1;
    uint32_t first[COLUMN_KINDS], so_far = 0;
#pragma unroll
    for (uint32_t k = 0; k < COLUMN_KINDS; so_far += all.of[TILES + k], k++)
        first[k] = so_far + warps.of[TILES + k] + in_warp.of[TILES + k] - own.of[TILES + k];
    if (e == 0)
        *at<uint32_t>(a.tiles) = so_far;
    for (uint32_t t = 0; t < full; t++)
        tiles[first[column_kind(a.tile)]++] = {e, begin_pair + t * a.tile, a.tile, 0};
    if (rest)
        tiles[first[column_kind(rest)]] = {e, begin_pair + full * a.tile, rest, 0};
    count[e] = begin_pair;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += GROUP_THREADS)
        at<uint32_t>(a.list)[atomicAdd(
            &count[row_at<const int>(a.route, i / a.n_used)[2 * (i % a.n_used)]], 1u)] = i;
}
