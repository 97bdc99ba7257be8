/* decode_join_once.cu - decode_join.cu's work where one row has no more pages, or chains of them, than a block has threads, and little
 * else is done between attention and the next product.
 *
 * What counts here is not the sum but the launch.  A block has one warp a quarter of a multiprocessor and at most 32 registers a thread,
 * which is what decode_fast.cu's four blocks leave, and little code; so its blocks are there while attention still runs, and they let the
 * next launch's blocks come before they wait themselves.  decode_join.cu's come when attention's go, and the next launch's when those do.
 * They take more shared memory than they use (LODE_JOIN_ONCE_ROOM): with less, ten of them share a multiprocessor that has nothing else,
 * and the next launch's block waits there for the last. */
#include "decode_join.cuh"

enum {
    PAGES = LODE_JOIN_ONCE_PAGES,
    TOGETHER = 4,           /* pages read at a time, while those before are added */
    ROOM = PAGES + TOGETHER, /* some that are read, and not added */
    PIECES = COLS / 4,
};
struct once_mem {
    float part[ROOM][COLS];
    float kept[ROOM], by[ROOM], totals[ROOM]; /* round_mem's (decode_join.cu) */
    float largest[PAGES / 32];
};

/* At most 32 registers: as if sixteen blocks shared a multiprocessor. */
extern "C" __global__ void __launch_bounds__(PAGES, 16) decode_join_once(const __grid_constant__ struct lode_cuda_att_args a) {
    __shared__ __align__(16) struct once_mem m;
    __shared__ float total;
    const struct joined j = joined_at(a, blockIdx.x, blockIdx.y);
    const uint32_t tid = threadIdx.x, lane = tid % 32, warp = tid / 32, up_to = (j.n + TOGETHER - 1) / TOGETHER * TOGETHER;
    const uint32_t c = tid % PIECES * 4;
    const float *from = j.of + (size_t)(tid / PIECES) * a.head_dim_v + c;
    float *to = &m.part[tid / PIECES][c];
    const bool here = tid < j.n;
    let_next_come();
    wait_for_last();
    float2 ml = make_float2(-INFINITY, 0);
    if (here)
        ml = j.ml[tid];
#pragma unroll 1
    for (uint32_t z = tid / PIECES; z < up_to; z += PAGES / PIECES) {
        if (z >= j.n)
            *(float4 *)to = make_float4(0, 0, 0, 0);
        else if (c < j.cols)
            copy_async<16>(to, from);
        to += PAGES / PIECES * COLS, from += PAGES / PIECES * a.head_dim_v;
    }
    copies_end_group();
    float most = -INFINITY;
    find_factors<PAGES, true>(m, ml, tid, here, most);
    copies_wait<0>();
    __syncthreads();
    if (warp > 1)
        return;
    /* a warp has a number of each page a thread, another one the weights' totals */
    const float *v = warp == 0 ? &m.part[0][lane] : m.totals;
    const uint32_t apart = warp == 0 ? COLS : 1;
    float sum = -0.0f; /* to which the first page adds itself */
    float4 next_by = *(const float4 *)m.by, next_kept = *(const float4 *)m.kept;
    float next[TOGETHER] = {v[0], v[apart], v[2 * apart], v[3 * apart]};
#pragma unroll 1
    for (uint32_t z = TOGETHER; z < up_to + TOGETHER; z += TOGETHER) {
        v += TOGETHER * apart;
        const float4 by = next_by, kept = next_kept;
        const float now[TOGETHER] = {next[0], next[1], next[2], next[3]};
        next_by = *(const float4 *)(m.by + z), next_kept = *(const float4 *)(m.kept + z);
        next[0] = v[0], next[1] = v[apart], next[2] = v[2 * apart], next[3] = v[3 * apart];
        sum = fmaf(by.x, now[0], sum * kept.x);
        sum = fmaf(by.y, now[1], sum * kept.y);
        sum = fmaf(by.z, now[2], sum * kept.z);
        sum = fmaf(by.w, now[3], sum * kept.w);
    }
    if (tid == 32)
        total = sum;
    asm volatile("bar.sync 1, 64;" ::: "memory"); /* of the two */
    if (warp)
        return;
    const float *sink = a.sinks ? at<const float>(a.sinks) + j.head : NULL;
    if (lane < j.cols)
        row_at<float>(a.y, j.row)[j.head * a.head_dim_v + j.c0 + lane] = finish(most, total, sum, sink);
}
