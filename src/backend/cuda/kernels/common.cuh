/* common.cuh - what kernels share: the scalar definitions of kern/, compiled for the device.
 *
 * The CPU's scalar kernels are the definition, order included (kern/kern.h), and these kernels give
 * its bits: they are compiled without contraction (-fmad=false), with IEEE division and square root
 * and with subnormals, and take exp, tanh, rounding and the reading of blocks from the very same
 * headers.  Only those of attention_fast.cuh, fast.cuh and fast_items.cuh (--numerics tensor and fast) do not. */
#ifndef LODE_CUDA_COMMON_CUH
#define LODE_CUDA_COMMON_CUH

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "backend/cuda/kernels/shared.h"

/* C headers of kern/ and base/ as device code. */
#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "base/half.h"
#include "kern/expf.h"
#pragma pop_macro("inline")

#define DEVICE static __device__ __forceinline__
#define DEVICE_MEMBER __device__ __forceinline__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

/* The first thing that a kernel does: lets the next one's blocks come while this one's still run, and
 * waits until the one before has ended and what it wrote can be seen.  What a kernel before may have
 * written must be read by plain loads, never as constant (__ldg).
 *
 * A kernel that works before it waits may read there what no launch of its step writes: weights, and of the step and the cache what
 * was there when the step's first launch began (lode_cuda_send_step).  The one before it may itself still wait, and so on. */
DEVICE void let_next_come() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void wait_for_last() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void begin() {
    let_next_come();
    wait_for_last();
}

/* Exact where the target holds the value; the hardware's conversions are those of base/half.c but for
 * the payload of NaNs. */
DEVICE float f16_f32(uint16_t h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEVICE uint16_t f32_f16(float f) {
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return h;
}
DEVICE uint16_t f32_bf16(float f) {
    const uint32_t bits = lode_f32_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* In shared memory. */
DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
/* A number that is the same for all threads of a warp, which the compiler then knows: it stays in registers of the warp's own, and nobody
 * finds it anew.  All of them call it. */
DEVICE uint32_t of_warp(uint32_t v) { return __shfl_sync(0xffffffffu, v, 0); }

template <typename T> DEVICE T *at(lode_dev p) { return (T *)p; }
template <typename T> DEVICE T *row_at(const struct lode_cuda_mat &m, uint32_t r) {
    return (T *)(m.data + r * m.stride);
}
/* Tile i of rows that are rounded where they are made. */
DEVICE uint8_t *rounded_tile(const struct lode_cuda_tiles &t, uint32_t i) { return (uint8_t *)(t.data + i * t.size); }
DEVICE const struct lode_cuda_step *step_at(lode_dev p) {
    return at<const struct lode_cuda_step>(p);
}
DEVICE const struct lode_cuda_row &step_row(lode_dev p, uint32_t r) {
    return at<const struct lode_cuda_row>(p + sizeof(struct lode_cuda_step))[r];
}

/* The tree of the sixteen lanes over the low or high half of a warp: thread l % 16 has lane l. */
DEVICE float join_lanes(float v) {
    for (int w = 8; w; w /= 2)
        v += __shfl_down_sync(0xffffffffu, v, w, 16);
    return __shfl_sync(0xffffffffu, v, 0, 16);
}

/* As kern/softmax_scalar.c's: the maximum of sixteen lanes, NaN never chosen. */
DEVICE float join_max(float v) {
    for (int w = 8; w; w /= 2) {
        const float o = __shfl_down_sync(0xffffffffu, v, w, 16);
        v = o > v ? o : v;
    }
    return __shfl_sync(0xffffffffu, v, 0, 16);
}

/* The largest of `width` neighbouring threads of a warp, a power of two, in all of them; of floats NaN is never chosen where another
 * thread has a number. */
template <class T> DEVICE T warp_max(T v, int width) {
#pragma unroll
    for (int w = width / 2; w; w /= 2) {
        const T o = __shfl_xor_sync(0xffffffffu, v, w);
        v = o > v ? o : v;
    }
    return v;
}
/* Of all its threads. */
DEVICE uint32_t max_of_warp(uint32_t v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_max_sync(0xffffffffu, v);
#else
    return warp_max(v, 32);
#endif
}

/* n / d.by, for n < 2^32 / by: what part was rounded up by, less than 1, adds n / 2^32, which is less than 1 / by. */
DEVICE uint32_t over(uint32_t n, const struct lode_cuda_divisor &d) { return d.part ? __umulhi(n, d.part) : n; }

DEVICE int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }

#endif
