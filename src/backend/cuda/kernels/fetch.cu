/* fetch.cu - bytes from the host's memory: a piece a thread, so that all are on their way together.  The next launch's blocks do not
 * come before it has ended: some kernels look at pages before they wait. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/fetch.h"

KERNEL(LODE_FETCH_THREADS) fetch(const __grid_constant__ struct lode_cuda_fetch_args a) {
    wait_for_last();
    const uint32_t i = blockIdx.x * LODE_FETCH_THREADS + threadIdx.x;
    uint4 v;
    if (i >= a.n)
        return;
    /* volatile: the host has written there since it was read last */
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at<const uint4>(a.from) + i));
    at<uint4>(a.to)[i] = v;
}
