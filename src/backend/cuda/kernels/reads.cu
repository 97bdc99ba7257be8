/* reads.cu - what the memory gives: all of some bytes read once, by as many loads at a time as a multiprocessor can
 * have on their way. */
#include "backend/cuda/kernels/rows_shared.h"
#include "backend/cuda/kernels/common.cuh"

enum { AT_ONCE = 8 };

/* Past the first cache; volatile, as nobody wants what is read. */
DEVICE uint4 load(const uint4 *p) {
    uint4 v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

KERNEL(LODE_READS_THREADS) reads(const __grid_constant__ struct lode_cuda_reads_args a) {
    begin();
    const uint4 *at = (const uint4 *)a.at;
    const unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    uint32_t all = 0;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += AT_ONCE * stride) {
        uint4 v[AT_ONCE];
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            v[k] = i + k * stride < a.n ? load(at + i + k * stride) : make_uint4(0, 0, 0, 0);
        #pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            all ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    if (all == 1 && a.n % 2) /* never, but the compiler does not know how many there are */
        *(uint32_t *)a.at = all;
}
