/* chosen.cuh - what products of the experts that one row has chosen have in common (chosen_in.cu, chosen_out.cu, chosen_in_32.cu,
 * chosen_out_32.cu): the route, barriers of rows on their way to slots of shared memory, kernels' names.
 *
 * There is little to read, so what a launch takes is what has to be done one after the other.  All that a block of threads reads is
 * asked for at once, as soon as the experts are known.  Threads share out rows' blocks (chosen_256.cuh, chosen_32.cuh); the pairs that the
 * definition adds go to shared memory, and one thread a row adds them in ascending order. */
#ifndef LODE_CUDA_CHOSEN_CUH
#define LODE_CUDA_CHOSEN_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "chosen_shared.h"
#include "backend/cuda/kernels/products/gemv_x.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

enum { CHOSEN_THREADS = 32 * LODE_CHOSEN_WARPS };

/* On Hopper whole rows come by bulk copies: who asks for pieces of 16 bytes is held up by what is on its way.  Only chosen_in.cu exchanges
 * pieces and asks for them so. */
#if __CUDA_ARCH__ >= 900
enum { IN_BULK = true };
#else
enum { IN_BULK = false };
#endif
/* What a warp has asked for a slot has a barrier of its own. */
DEVICE uint32_t barrier_of(uint32_t slot, uint32_t warp) {
    __shared__ uint64_t barriers[LODE_CHOSEN_SLOTS][LODE_CHOSEN_WARPS];
    return shared_address(&barriers[slot][warp]);
}
/* The warp's, of so many slots. */
DEVICE void make_barriers(uint32_t slots) {
    const uint32_t lane = threadIdx.x % 32;
    if (lane < slots)
        barrier_init(barrier_of(lane, threadIdx.x / 32), 1);
    barriers_made();
    __syncwarp();
}

/* The route: thread i of a warp has the i-th expert and its weight (the last one's where there is none).  Not by way of the
 * first cache: see chosen_shared.h's `known`. */
struct route_of {
    int expert;
    float weight;
};
DEVICE struct route_of read_route(const struct lode_cuda_gemv_args &a) {
    const uint32_t lane = threadIdx.x % 32, i = lane < a.n_used ? lane : a.n_used - 1;
    int2 v;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(a.route + 8 * i));
    return {v.x, lode_bits_f32((uint32_t)v.y)};
}

/* Waits until all copies have come but those of the last n groups. */
DEVICE void wait_but(uint32_t n) {
    switch (n) {
    case 0:
        copies_wait<0>();
        break;
    case 1:
        copies_wait<1>();
        break;
    case 2:
        copies_wait<2>();
        break;
    default:
        copies_wait<3>();
    }
    __syncwarp();
}
static_assert(LODE_CHOSEN_SLOTS == 4, "wait_but");

/* The definition's sum over pairs, two of n fours, AHEAD of which are read at once. */
template <int AHEAD> DEVICE float sum_of_pairs(const float4 *p, uint32_t n) {
    float acc = 0;
#pragma unroll(AHEAD)
    for (uint32_t i = 0; i < n; i++) {
        const float4 v = p[i];
        acc = fmaf(v.x, v.y, acc);
        acc = fmaf(v.z, v.w, acc);
    }
    return acc;
}

/* name_SUFFIX: f<type>(its arguments). */
#define CHOSEN(name, f, args, suffix, type)                                                        \
    extern "C" __global__ void __launch_bounds__(CHOSEN_THREADS, 1)                                \
        name##_##suffix(const __grid_constant__ struct args s) {                                   \
        f<type>(s);                                                                                \
    }

#endif
