/* warpgroups.cuh - blocks of threads whose warpgroups have roles (Hopper): one brings what the others multiply, through rings in shared
 * memory. */
#ifndef LODE_CUDA_WARPGROUPS_CUH
#define LODE_CUDA_WARPGROUPS_CUH

#include "wgmma.cuh"

/* A place in a ring, and the parity of its turn. */
struct ring {
    uint32_t at, parity;
};
template <int N> DEVICE void next_of(struct ring &r) {
    if (++r.at == N)
        r.at = 0, r.parity ^= 1;
}
/* A warp has done with a place; empty: its barrier, or that one's shared address. */
template <class B> DEVICE void release(B empty) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(empty);
}

/* The two warpgroups that multiply take turns with the tensor cores: at the same time each would have half
 * of them, both would end together, and nobody would use them while both add up. */
DEVICE void begin_turns() { /* the first is warpgroup 0's */
    if (threadIdx.x >= 128)
        asm volatile("bar.arrive 1, 256;" ::: "memory");
}
DEVICE void await_turn() { asm volatile("bar.sync %0, 256;" ::"r"(1 + threadIdx.x / 128) : "memory"); }
DEVICE void give_turn() { asm volatile("bar.arrive %0, 256;" ::"r"(2 - threadIdx.x / 128) : "memory"); }
/* All threads of one of the two have come here. */
DEVICE void group_sync() { asm volatile("bar.sync %0, 128;" ::"r"(3 + threadIdx.x / 128) : "memory"); }

#endif
