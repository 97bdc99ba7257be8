/* wide_round.cuh - gated products of many rows, rounded and spread where they are made (spread.cuh): the product of what they give finds
 * them as it wants them, and no launch before it reads floats again. */
#ifndef LODE_CUDA_WIDE_ROUND_CUH
#define LODE_CUDA_WIDE_ROUND_CUH

#include "spread.cuh"
#include "wide.cuh"
#include "wide_store.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Bytes of shared memory for N rows of x by the two warpgroups' 32 rows of gate and up. */
template <int N> struct gated_floats { enum { GROUP = N * 32 * sizeof(float), SIZE = 2 * GROUP }; };

/* store_gated, to tiles: a warpgroup's 32 rows of gate and up are a block of each row of x.  Its numbers are eight threads' of each of the four
 * warps and come to one by shared memory, a thread a row; there they lie as a panel does, so that no two threads of a warp want the
 * same bank, neither of those that write nor of those that read. */
template <int N, class F>
DEVICE void round_gated(const struct lode_cuda_tiles &to, const struct gemm_job &job, uint32_t act, const struct seat &at, uint32_t floats,
                        F value) {
    static_assert(N == 128, "a thread a row");
    const uint32_t group = threadIdx.x / 128, r = threadIdx.x % 128, of = gated_row(at.row) % 32,
                   panel = floats + group * gated_floats<N>::GROUP;
    group_sync(); /* those of the tile before have been read */
    gate_results<N>(act, value, [&](int t, float v0, float v1) {
        const uint32_t x = 8 * t + at.column;
        store_float(panel + in_panel(x, of / 4) + of % 4 * 4, v0);
        store_float(panel + in_panel(x + 1, of / 4) + of % 4 * 4, v1);
    });
    group_sync();
    if (r < job.x_rows)
        round_block_32(spread_block_in(to, job.first_x + r, job.first / 32 + group), panel, r);
}

#endif
#endif
