/* x_ring.cuh - rows of x in shared memory, brought in bulk, block by block of K, for all warps of a block of threads, on Hopper.
 *
 * Warps go through all blocks in ascending order, some times: once for each of their passes.  Where there is room for all, they come once;
 * else the n-th that is met comes to slot n % slots, when those who share the one before it have left that: they count, and the last of
 * them asks for the next. */
#ifndef LODE_CUDA_X_RING_CUH
#define LODE_CUDA_X_RING_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

struct x_ring {
    const uint8_t *x;
    uint8_t *slots;
    struct lode_cuda_divisor size; /* slots */
    uint32_t steps, block, last;   /* x's blocks; bytes of one, and of the last */
    uint32_t total;                /* that come */
    uint32_t first;                /* n of the pass's first; 0 where all are there */
    DEVICE_MEMBER bool all() const { return size.by == steps; }
};
struct x_slot {
    uint64_t full;
    uint32_t round, left; /* which time it has been asked for; those who have met it */
};
DEVICE struct x_slot *x_slot(uint32_t i) {
    __shared__ struct x_slot slots[LODE_X_SLOTS];
    return slots + i;
}
/* Before all threads meet. */
DEVICE void x_ring_begin(const struct x_ring &r) {
    if (threadIdx.x < r.size.by) {
        barrier_init(&x_slot(threadIdx.x)->full, 1);
        x_slot(threadIdx.x)->round = x_slot(threadIdx.x)->left = 0;
        barriers_made();
    }
}
DEVICE void x_ring_ask(const struct x_ring &r, uint32_t slot, uint32_t b) {
    const uint32_t barrier = shared_address(&x_slot(slot)->full), bytes = b + 1 < r.steps ? r.block : r.last;
    barrier_arrive_expect(barrier, bytes);
    bulk_copy(shared_address(r.slots + slot * r.block), r.x + (size_t)b * r.block, bytes, barrier);
}
/* What comes first, when x is there, in order: by one warp. */
DEVICE void x_ring_fill(const struct x_ring &r) {
    if (elected())
#pragma unroll 1
        for (uint32_t i = 0; i < r.size.by; i++)
            x_ring_ask(r, i, i);
}
/* The pass's block b. */
DEVICE const uint8_t *x_ring_await(const struct x_ring &r, uint32_t b) {
    const uint32_t n = r.first + b, round = over(n, r.size), at = n - round * r.size.by;
    struct x_slot *const slot = x_slot(at);
    if (!r.all())
        while (*(volatile uint32_t *)&slot->round != round) /* else one phase of the barrier might be taken for another */
            ;
    barrier_wait(&slot->full, round & 1);
    return r.slots + at * r.block;
}
/* A warp has no more to read of block b: `share` of `whole`, which all who read it are. */
DEVICE void x_ring_leave(const struct x_ring &r, uint32_t b, uint32_t share, uint32_t whole) {
    if (r.all())
        return;
    __syncwarp();
    const uint32_t n = r.first + b, round = over(n, r.size), at = n - round * r.size.by, next = n + r.size.by;
    struct x_slot *const slot = x_slot(at);
    if (elected() && atomicAdd(&slot->left, share) + share == whole && next < r.total) {
        slot->left = 0;
        *(volatile uint32_t *)&slot->round = round + 1;
        x_ring_ask(r, at, next % r.steps);
    }
}

#endif
