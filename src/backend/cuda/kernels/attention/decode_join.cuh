/* decode_join.cuh - what the kernels that join pages share: which numbers a block of threads, or a warp, joins; and what each page's part
 * is multiplied by, as decode_join.cu and decode_join_once.cu find it. */
#ifndef LODE_CUDA_DECODE_JOIN_CUH
#define LODE_CUDA_DECODE_JOIN_CUH

#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "decode.cuh"

enum { COLS = LODE_JOIN_COLS };

/* Numbers c0 and on, `cols` of them, of a head of a row: n pages have left parts of them, head_dim_v floats apart, and (max, total). */
struct joined {
    uint32_t row, head, c0, cols, n;
    const float *of;
    const float2 *ml;
};
/* piece: head and which COLS of its numbers; at_row: of those that attention had.  blockIdx says both where a block has one. */
DEVICE struct joined joined_at(const struct lode_cuda_att_args &a, uint32_t piece, uint32_t at_row) {
    const uint32_t pieces = (a.head_dim_v + COLS - 1) / COLS;
    struct joined j = {.row = a.first_row + at_row, .head = piece / pieces, .c0 = piece % pieces * COLS};
    j.cols = a.head_dim_v - j.c0 < COLS ? a.head_dim_v - j.c0 : COLS;
    const struct lode_cuda_row &r = step_row(a.step, j.row);
    j.n = parts_of(a, r.pos);
    j.of = head_parts_of(a, at_row, j.head).of + j.c0;
    j.ml = head_parts_of(a, at_row, j.head).ml;
    return j;
}

/* A thread's page z, of PAGES that as many threads have: its factors to m (round_mem in decode_join.cu says which).  so_far: the largest
 * score of those before, and then of these too.  ONCE: there are none before, these threads are all of the block, and nobody asks which
 * sums are kept as they are. */
template <int PAGES, bool ONCE, class M> DEVICE void find_factors(M &m, float2 ml, uint32_t z, bool here, float &so_far) {
    const uint32_t tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const bool first = z == 0, none_before = ONCE || z < PAGES;
    float most = here ? ml.x : -INFINITY;
#pragma unroll
    for (int w = 1; w < 32; w *= 2) { /* the largest up to here */
        const float v = __shfl_up_sync(0xffffffffu, most, w);
        if (lane >= (uint32_t)w)
            most = v > most ? v : most;
    }
    if (lane == 31)
        m.largest[warp] = most;
    float last = __shfl_up_sync(0xffffffffu, most, 1);
    if (ONCE)
        __syncthreads();
    else
        asm volatile("bar.sync 1, %0;" ::"n"(PAGES) : "memory");
    const float start = none_before ? -INFINITY : so_far;
    float before = start, all = start;
#pragma unroll
    for (uint32_t k = 0; k < PAGES / 32; k++) {
        const float v = m.largest[k];
        before = k < warp && v > before ? v : before;
        all = v > all ? v : all;
    }
    last = lane == 0 ? before : before > last ? before : last;
    most = before > most ? before : most;
    so_far = all;
    const float kept = !here ? 1 : first ? 0 : exp_below(last - most);
    const uint32_t same = ONCE ? 0 : __ballot_sync(0xffffffffu, kept == 1);
    m.kept[tid] = kept;
    m.by[tid] = !here ? -0.0f : first ? 1 : exp_below(ml.x - most);
    m.totals[tid] = here ? ml.y : 0;
    if constexpr (!ONCE)
        if (lane == 0)
            m.same[warp] = same;
}

#endif
