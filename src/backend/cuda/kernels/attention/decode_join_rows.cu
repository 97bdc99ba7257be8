/* decode_join_rows.cu - decode_merge (decode.cu) for some pages, or chains of them, of several rows: a warp has 32 numbers of a head and
 * finds what their sums and parts are multiplied by itself.  No barriers and few registers, so that many run at once: of one row, which has no
 * more blocks of threads than there are multiprocessors, it takes longer than decode_join.cu. */
#include "decode_join.cuh"

/* A page in a warp's shared memory: its part, and what the sums so far and the part are multiplied by, largest score, weights' total; the
 * last two come from the scratch. */
struct joined_page {
    float part[COLS], kept, by;
    float2 ml;
};
static_assert(sizeof(struct joined_page) == LODE_JOIN_ROWS_PAGE, "attention_shared.h");

/* Factors of n pages, as many of them a thread as make all: the same numbers as decode_join.cu's.  The largest score. */
DEVICE float find_factors_by_warp(struct joined_page *m, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32, each = (n + 31) / 32, first = each * lane, end = min(first + each, n);
    float most = -INFINITY;
#pragma unroll 1
    for (uint32_t z = first; z < end; z++)
        most = m[z].ml.x > most ? m[z].ml.x : most;
#pragma unroll
    for (uint32_t w = 1; w < 32; w *= 2) { /* the largest up to here */
        const float v = __shfl_up_sync(0xffffffffu, most, w);
        if (lane >= w)
            most = v > most ? v : most;
    }
    float last = __shfl_up_sync(0xffffffffu, most, 1);
    last = lane == 0 ? -INFINITY : last;
#pragma unroll 1
    for (uint32_t z = first; z < end; z++) {
        const float max = m[z].ml.x, top = max > last ? max : last;
        m[z].kept = z == 0 ? 0 : exp_below(last - top);
        m[z].by = z == 0 ? 1 : exp_below(max - top);
        last = top;
    }
    return __shfl_sync(0xffffffffu, most, 31);
}

/* Warps, head by head 32 numbers each; blockIdx.y: row. */
KERNEL(LODE_JOIN_ROWS_THREADS) decode_join_rows(const __grid_constant__ struct lode_cuda_att_args a) {
    extern __shared__ __align__(16) uint8_t join_bytes[];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, c = lane % 8 * 4;
    const struct joined j = joined_at(a, blockIdx.x * (blockDim.x / 32) + warp, blockIdx.y);
    struct joined_page *const m = (struct joined_page *)join_bytes + warp * a.max_pages;
    if (j.head >= a.n_heads)
        return;
    wait_for_last();
    for (uint32_t z = lane; z < j.n; z += 32) /* factors come of it, after a long way: before the parts */
        copy_async<8>(&m[z].ml, j.ml + z);
    copies_end_group();
#pragma unroll 4
    for (uint32_t z = lane / 8; z < j.n; z += 4)
        if (c < j.cols)
            copy_async<16>(&m[z].part[c], j.of + (size_t)z * a.head_dim_v + c);
    copies_end_group();
    let_next_come(); /* whose copies would stand before these */
    copies_wait<1>();
    __syncwarp();
    const float most = find_factors_by_warp(m, j.n);
    copies_wait<0>();
    __syncwarp();
    float sum = m[0].part[lane], total = m[0].ml.y;
#pragma unroll 4
    for (uint32_t z = 1; z < j.n; z++) {
        const float4 f = *(const float4 *)&m[z].kept;
        total = fmaf(f.w, f.y, total * f.x);
        sum = fmaf(f.y, m[z].part[lane], sum * f.x);
    }
    const float *sink = a.sinks ? at<const float>(a.sinks) + j.head : NULL;
    if (lane < j.cols)
        row_at<float>(a.y, j.row)[j.head * a.head_dim_v + j.c0 + lane] = finish(most, total, sum, sink);
}
