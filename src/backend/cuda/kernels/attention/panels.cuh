/* panels.cuh - pages of keys and values on their way to shared memory as panels (wgmma.cuh): what attention_wide.cu and decode_ring.cu
 * share. */
#ifndef LODE_CUDA_PANELS_CUH
#define LODE_CUDA_PANELS_CUH

#include "attention.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/warpgroups.cuh"

#include <stddef.h>

enum { PANEL = PAGE * 128 };

/* Where a member of `mem`, what a block has in shared memory, lies in it. */
#define AT(member) ((uint32_t)offsetof(mem, member))

/* A page's keys or values of a head of DIM numbers, from `from` on; the phase of `full` waits for them.  policy: nothing, or read_once's,
 * where a launch has each page once. */
template <int DIM, class... P>
DEVICE void ask_panels(uint32_t to, const struct lode_cuda_map *map, const uint8_t *from, uint32_t full, P... policy) {
    barrier_arrive_expect(full, PAGE * 2 * DIM);
    bulk_panels<2 * DIM>(to, map, from, full, policy...);
}

#endif
