/* latent.cu - latent attention between its products: what a token keeps, and its queries.
 *
 * A token's row (c, r) is normed and turned and goes to the cache.  Of a head of queries the first numbers are rounded for the product that
 * takes them into the latent space, and the others, turned, go to where they stand beside that product's result. */
#include "own_head.cuh"

/* ---- a token's row ---- */

enum { ROW_EACH = LODE_LATENT_NUMBERS / 32 }; /* numbers of a thread: t + 32 u */

/* norm_here's sum and quotients, of the first n numbers. */
DEVICE void norm_first(float (&x)[ROW_EACH], uint32_t n, const float (&weights)[ROW_EACH], float eps) {
    const uint32_t lane = threadIdx.x % 32;
    float acc = 0, v[ROW_EACH];
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++) { /* behind them zeros, whose squares change nothing */
        const float own = lane + 32 * u < n ? x[u] : 0, other = __shfl_down_sync(0xffffffffu, own, 16);
        acc = fmaf(own, own, acc);
        acc = fmaf(other, other, acc);
    }
    acc = __shfl_sync(0xffffffffu, join_lanes(acc), 0);
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++)
        v[u] = lane + 32 * u < n ? x[u] : 1;
    divide(v, divisor_of(sqrtf(acc / (float)n + eps)));
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++)
        x[u] = lane + 32 * u < n ? v[u] * weights[u] : x[u];
}

/* All of it is asked for at once; then it is in a warp's registers.  room: for all of its numbers, where pairs are turned. */
DEVICE void keep_row(const struct lode_cuda_latent_args &a, uint32_t row, float *room) {
    const uint32_t lane = threadIdx.x % 32, n = a.rank + 2 * a.pairs;
    /* the step and weights were there before the first launch */
    const struct lode_cuda_row &r = step_row(a.step, row);
    const struct lode_cuda_view &view = at<const struct lode_cuda_view>(r.views)[a.layer];
    const uint32_t entry = r.pos / 64, n_entries = view.n_entries, type = view.type_k;
    uint8_t *y = at<uint8_t>(at<const lode_dev>(view.pages)[entry < n_entries ? entry : entry % n_entries]) + view.k +
                 (size_t)(r.pos % 64) * view.k_stride;
    float weights[ROW_EACH], x[ROW_EACH];
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++)
        weights[u] = a.norm && lane + 32 * u < a.rank ? at<const float>(a.norm)[lane + 32 * u] : 1;
    wait_for_last();
    const float *c = row_at<const float>(a.c, row), *turned = row_at<const float>(a.r, row);
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++) {
        const uint32_t i = lane + 32 * u;
        x[u] = i < a.rank ? c[i] : i < n ? turned[i - a.rank] : 0;
    }
    const struct turns turns = read_turns(row_at<const float2>(a.table, row), a.pairs);
    norm_first(x, a.rank, weights, a.eps);
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++)
        if (lane + 32 * u < n)
            room[lane + 32 * u] = x[u];
    __syncwarp();
    turn_warp(room + a.rank, a.pairs, a.kind, turns);
#pragma unroll
    for (int u = 0; u < ROW_EACH; u++)
        x[u] = lane + 32 * u < n ? room[lane + 32 * u] : 0;
    put_numbers(x, y, n, type);
}

/* ---- queries ---- */

/* Numbers 128 i and on of a head, i = 0 .. 1, rounded in blocks of 32; those from n on are not there. */
DEVICE void round_some(uint8_t *y, const float *x, uint32_t n) {
    const uint32_t at = threadIdx.x % 32 * 4;
    float4 v[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        v[i] = at + 128 * i < n ? *(const float4 *)(x + at + 128 * i) : make_float4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const struct rounded r = round_a32(v[i]);
        if (at + 128 * i < n)
            put_a32(y + (at + 128 * i) / 32 * 40, r);
    }
}

/* A pair of a head and its turn, and where it goes. */
struct turned_pair {
    float2 of, by;
};
DEVICE struct turned_pair ask_pair(const float *x, const float2 *table, uint32_t i, uint32_t pairs, uint32_t kind) {
    return {make_float2(x[kind ? 2 * i : i], x[kind ? 2 * i + 1 : i + pairs]), table[i]};
}
DEVICE void put_pair(float *y, uint32_t i, uint32_t pairs, const struct turned_pair &p) {
    y[i] = fmaf(p.of.x, p.by.x, -(p.of.y * p.by.y));
    y[i + pairs] = fmaf(p.of.x, p.by.y, p.of.y * p.by.x);
}

/* By a warp; the pairs are on their way while the rest is rounded. */
DEVICE void place_query(const struct lode_cuda_latent_args &a, uint32_t row, uint32_t head) {
    const float *x = row_at<const float>(a.q, row) + head * a.head, *turns = x + a.rope_at;
    const float2 *table = row_at<const float2>(a.table, row);
    float *y = row_at<float>(a.turned, row) + head * a.turned_head;
    uint32_t i = threadIdx.x % 32;
    struct turned_pair p = {};
    if (i < a.pairs)
        p = ask_pair(turns, table, i, a.pairs, a.kind_q);
    if (a.rounded.data) {
        uint8_t *rounded = row_at<uint8_t>(a.rounded, row) + head * (a.plain / 32) * 40;
        for (uint32_t first = 0; first < a.plain; first += 256)
            round_some(rounded + first / 32 * 40, x + a.plain_at + first, a.plain - first);
    }
    if (i < a.pairs)
        put_pair(y, i, a.pairs, p);
    for (i += 32; i < a.pairs; i += 32)
        put_pair(y, i, a.pairs, ask_pair(turns, table, i, a.pairs, a.kind_q));
}

/* blockIdx.x: the row, of which a warp has what is kept and the others a head each. */
KERNEL(32 * LODE_LATENT_WARPS) latent(const __grid_constant__ struct lode_cuda_latent_args a) {
    __shared__ float room[LODE_LATENT_NUMBERS];
    let_next_come();
    const uint32_t item = blockIdx.y * LODE_LATENT_WARPS + threadIdx.x / 32;
    if (item == 0) {
        keep_row(a, blockIdx.x, room);
        return;
    }
    wait_for_last();
    if (item <= a.n_heads)
        place_query(a, blockIdx.x, item - 1);
}
