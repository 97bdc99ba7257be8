/* router.cu - one row's router and the choice that it leads to, on Hopper: a norm, a product with few rows of floats, and which
 * experts the row goes to.
 *
 * By launches of their own each would wait for the one before, and its result would go to memory and back.  Eight blocks
 * of threads of a cluster have the rows in their shared memory before x is there; what they make goes to the first one's, which
 * chooses. */
#include "chosen_shared.h"
#include "near_rows.cuh"
#include "route.cuh"
#include "wgmma.cuh"

#if __CUDA_ARCH__ >= 900

enum { ROUTER_THREADS = LODE_ROUTER_THREADS, BLOCKS = LODE_ROUTER_BLOCKS };

template <class T> DEVICE void router(const struct lode_cuda_router_args &s) {
    __shared__ float logits[LODE_ROUTER_EXPERTS];
    const struct lode_cuda_gemv_args &a = s.a;
    const struct lode_cuda_gemv_part &part = a.parts[0];
    const uint32_t each = part.rows / BLOCKS, first = blockIdx.x * each, pieces = part.w_stride / 16;
    const uint32_t pitch = part.w_stride + LODE_ROWS_APART, row = threadIdx.x / 8;
    uint8_t *rows = (uint8_t *)row_mem + a.rows_at;
    let_next_come();
    keep_norm(a);
    for (uint32_t i = threadIdx.x; i < each * pieces; i += ROUTER_THREADS)
        copy_async<16>(rows + i / pieces * pitch + i % pieces * 16,
                       at<const uint8_t>(part.w) + (size_t)(first + i / pieces) * part.w_stride + i % pieces * 16);
    copies_end_group();
    cluster_sync(); /* all are there to be written to */
    wait_for_last();
    copies_wait<0>(); /* barriers follow */
    if (a.input == LODE_GEMV_NORM)
        load_normed(a, a.norm ? (const float4 *)(row_mem + a.cols) : NULL);
    else
        load_floats(at<const float>(a.x), a.cols);
    __syncthreads();
    if (threadIdx.x / 32 * 4 < each) { /* whole warps: of four rows */
        const uint32_t r = first + (row < each ? row : 0);
        float v = dot_near_row<T>(rows + (r - first) * pitch, row_mem, a.cols);
        if (threadIdx.x % 8 == 0 && row < each) {
            if (part.bias)
                v += at<const float>(part.bias)[r];
            put_at(logits + r, 0, v);
            at<float>(part.y)[r] = v;
        }
    }
    cluster_sync();
    if (blockIdx.x == 0)
        route_row<ROUTER_THREADS, LODE_ROUTER_EXPERTS>(s.route, logits, at<float>(s.route.y.data));
}

#define ROUTER(name, type)                                                                                              \
    extern "C" __global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(ROUTER_THREADS, 1)                      \
        router_##name(const __grid_constant__ struct lode_cuda_router_args s) {                                         \
        router<struct name>(s);                                                                                         \
    }
LODE_CUDA_FLOAT_LIST(ROUTER)

#endif
