/* positions.cu - what depends on where a token stands: rotary angles, temperatures, its place in
 * the cache. */
#include "heads.cuh"

#define DMATH DEVICE
#define DMATH_STATIC DEVICE
#include "base/dmath_body.h"

KERNEL(ROW_THREADS) temperature(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    const double steps = (double)((step_row(a.step, blockIdx.x).pos + 1ull) / a.n);
    const float factor = (float)(1 + (double)a.scale * lode_log(1 + steps));
    EACH(i, a.width)
    y[i] = x[i] * factor;
}

KERNEL(ROW_THREADS) rope_table(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[r.segment];
    const struct lode_cuda_rope &rope = at<const struct lode_cuda_rope>(s.ropes)[a.kind];
    const double *freq = at<const double>(rope.freq);
    float2 *y = row_at<float2>(a.y, blockIdx.x);
    EACH(i, a.n) {
        double sn, cn;
        lode_sincos((double)r.pos * freq[i], &sn, &cn);
        y[i] = make_float2((float)(cn * rope.scale), (float)(sn * rope.scale));
    }
}

/* blockIdx.y: the head.  kind: pairs come as (2i, 2i + 1).  n: pairs; group: numbers of a head. */
KERNEL(ROW_THREADS) rope(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x) + blockIdx.y * a.group;
    float *y = row_at<float>(a.y, blockIdx.x) + blockIdx.y * a.group;
    const float2 *cs = a.b.data ? row_at<const float2>(a.b, blockIdx.x) : NULL;
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        row_mem[i] = x[i]; /* y may be x */
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x) {
        const float p = row_mem[a.kind ? 2 * i : i], q = row_mem[a.kind ? 2 * i + 1 : i + a.n];
        if (cs) {
            const float2 t = cs[i];
            y[i] = fmaf(p, t.x, -(q * t.y));
            y[i + a.n] = fmaf(p, t.y, q * t.x);
        } else {
            y[i] = p;
            y[i + a.n] = q;
        }
    }
    for (uint32_t i = 2 * a.n + threadIdx.x; i < a.group; i += blockDim.x)
        y[i] = row_mem[i];
}

/* ---- keys and values ---- */

/* blockIdx.y: eight (head, k or v) at a time, a warp each. */
KERNEL(ROW_THREADS) kv_put(const __grid_constant__ struct lode_cuda_put_args a) {
    begin();
    const uint32_t item = blockIdx.y * 8 + threadIdx.x / 32, head = item / 2;
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_view &view = at<const struct lode_cuda_view>(r.views)[a.layer];
    const bool value = item % 2;
    if (head >= a.n_heads || (value && view.v_in_k))
        return;
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[r.pos / 64 % view.n_entries]);
    const uint32_t stride = value ? view.v_stride : view.k_stride;
    uint8_t *y = page + (value ? view.v : view.k) + (size_t)(head * 64 + r.pos % 64) * stride;
    if (value)
        put_row(y, row_at<const float>(a.v, blockIdx.x) + head * a.head_dim_v, a.head_dim_v,
                view.type_v);
    else
        put_row(y, row_at<const float>(a.k, blockIdx.x) + head * a.head_dim, a.head_dim,
                view.type_k);
}

/* ---- all that comes between the products and attention ---- */

/* A warp has one head of the queries, of the keys or of the values; blockIdx.x: the row. */
KERNEL(ROW_THREADS) prepare(const __grid_constant__ struct lode_cuda_prepare_args a) {
    let_next_come();
    const uint32_t lane = threadIdx.x % 32, dim = a.head_dim;
    uint32_t head = blockIdx.y * (ROW_THREADS / 32) + threadIdx.x / 32;
    float *x = row_mem + threadIdx.x / 32 * dim;
    const float2 *table = row_at<const float2>(a.table, blockIdx.x);
    /* the step was there before the first launch: its places can be found while the last one runs
     */
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(r.views)[a.layer];
    const uint32_t entry = r.pos / 64;
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[entry < view.n_entries ? entry : entry % view.n_entries]);
    const bool query = head < a.n_heads, value = head >= a.n_heads + a.n_kv_heads, normed = query ? a.norms_q : a.norms_k;
    const float *norm = at<const float>(query ? a.norm_q : a.norm_k);
    const uint32_t pairs = query ? a.pairs_q : a.pairs_k;
    const struct head_weights weights = read_weights(normed ? norm : NULL, dim);
    wait_for_last();
    if (head >= a.n_heads + 2 * a.n_kv_heads)
        return;
    head -= query ? 0 : value ? a.n_heads + a.n_kv_heads : a.n_heads;
    const uint32_t at_row = head * 64 + r.pos % 64; /* of keys, values */
    if (value) {
        if (!view.v_in_k)
            put_row(page + view.v + (size_t)at_row * view.v_stride,
                    row_at<const float>(a.v, blockIdx.x) + head * a.head_dim_v, a.head_dim_v,
                    view.type_v);
        return;
    }
    const struct turns turns = read_turns(table, pairs);
    const float *in = row_at<const float>(query ? a.q : a.k, blockIdx.x) + head * dim;
#pragma unroll 4
    for (uint32_t i = lane; i < dim; i += 32)
        x[i] = in[i];
    __syncwarp();
    if (normed)
        norm_warp(x, dim, norm, weights, query ? a.eps_q : a.eps_k);
    if (pairs)
        turn_warp(x, pairs, query ? a.kind_q : a.kind_k, turns);
    if (!query)
        put_row(page + view.k + (size_t)at_row * view.k_stride, x, dim, view.type_k);
    if (query || a.k_out.data) {
        float *out = row_at<float>(query ? a.q_out : a.k_out, blockIdx.x) + head * dim;
        for (uint32_t i = lane; i < dim; i += 32)
            out[i] = x[i];
    }
}
