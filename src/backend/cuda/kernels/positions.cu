/* positions.cu - what depends on where a token stands: rotary angles, temperatures, its place in the cache. */
#include "rows.cuh"

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

/* A warp stores n numbers. */
DEVICE void put_row(uint8_t *y, const float *x, uint32_t n, uint32_t type) {
    const uint32_t lane = threadIdx.x % 32;
    if (type == LODE_F32)
        for (uint32_t i = lane; i < n; i += 32)
            ((float *)y)[i] = x[i];
    else if (type == LODE_F16)
        for (uint32_t i = lane; i < n; i += 32)
            ((uint16_t *)y)[i] = f32_f16(x[i]);
    else if (type == LODE_BF16)
        for (uint32_t i = lane; i < n; i += 32)
            ((uint16_t *)y)[i] = f32_bf16(x[i]);
    else /* Q8_0 */
        for (uint32_t b = 0; b < n / 32; b++) {
            const float v = x[32 * b + lane];
            const uint32_t bits = warp_max(magnitude(v), 32);
            uint8_t *blk = y + 34 * b;
            const float d = lode_bits_f32(bits) / 127.0f;
            uint16_t h = bits >= 0x7f800000 ? 0x7e00 : f32_f16(d < 65504.0f ? d : 65504.0f);
            int q = 0;
            if (bits < 0x7f800000 && h) {
                const float s = v * (1.0f / f16_f32(h));
                q = round_even(s < -127 ? -127 : s > 127 ? 127 : s);
            }
            blk[2 + lane] = (uint8_t)q;
            if (lane == 0)
                *(uint16_t *)blk = h;
        }
}

/* blockIdx.y: eight (head, k or v) at a time, a warp each. */
KERNEL(ROW_THREADS) kv_put(const __grid_constant__ struct lode_cuda_put_args a) {
    begin();
    const uint32_t item = blockIdx.y * 8 + threadIdx.x / 32, head = item / 2;
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[r.segment];
    const struct lode_cuda_view &view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const bool value = item % 2;
    if (head >= a.n_heads || (value && view.v_in_k))
        return;
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[r.pos / 64 % view.n_entries]);
    const uint32_t stride = value ? view.v_stride : view.k_stride;
    uint8_t *y = page + (value ? view.v : view.k) + (size_t)(head * 64 + r.pos % 64) * stride;
    if (value)
        put_row(y, row_at<const float>(a.v, blockIdx.x) + head * a.head_dim_v, a.head_dim_v, view.type_v);
    else
        put_row(y, row_at<const float>(a.k, blockIdx.x) + head * a.head_dim, a.head_dim, view.type_k);
}

/* ---- all that comes between the products and attention ---- */

/* A warp's row of n numbers in shared memory, normed. */
DEVICE void norm_warp(float *x, uint32_t n, const float *w, float eps) {
    float acc = 0;
    for (uint32_t i = threadIdx.x % 16; i < n; i += 16)
        acc = fmaf(x[i], x[i], acc);
    const float root = sqrtf(join_lanes(acc) / (float)n + eps);
    __syncwarp();
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32)
        x[i] = w ? x[i] / root * w[i] : x[i] / root;
    __syncwarp();
}

enum { PAIRS_MOST = 128 };

/* As rope's; all pairs are read before any is written. */
DEVICE void turn_warp(float *x, uint32_t n_pairs, uint32_t kind, const float2 *table) {
    float2 v[PAIRS_MOST / 32];
#pragma unroll
    for (int u = 0; u < PAIRS_MOST / 32; u++) {
        const uint32_t i = 32 * u + threadIdx.x % 32;
        if (i >= n_pairs)
            break;
        const float2 t = table[i];
        const float p = x[kind ? 2 * i : i], q = x[kind ? 2 * i + 1 : i + n_pairs];
        v[u] = make_float2(fmaf(p, t.x, -(q * t.y)), fmaf(p, t.y, q * t.x));
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < PAIRS_MOST / 32; u++) {
        const uint32_t i = 32 * u + threadIdx.x % 32;
        if (i >= n_pairs)
            break;
        x[i] = v[u].x;
        x[i + n_pairs] = v[u].y;
    }
    __syncwarp();
}

/* A warp has one head of the queries, of the keys or of the values; blockIdx.x: the row. */
KERNEL(ROW_THREADS) prepare(const __grid_constant__ struct lode_cuda_prepare_args a) {
    let_next_come();
    const uint32_t lane = threadIdx.x % 32, dim = a.head_dim;
    uint32_t head = blockIdx.y * (ROW_THREADS / 32) + threadIdx.x / 32;
    float *x = row_mem + threadIdx.x / 32 * dim;
    const float2 *table = row_at<const float2>(a.table, blockIdx.x);
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[r.segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[r.pos / 64 % view.n_entries]);
    const uint32_t slot = r.pos % 64;
    wait_for_last();
    if (head >= a.n_heads + 2 * a.n_kv_heads)
        return;
    if (head < a.n_heads) {
        const float *in = row_at<const float>(a.q, blockIdx.x) + head * dim;
        float *out = row_at<float>(a.q_out, blockIdx.x) + head * dim;
        for (uint32_t i = lane; i < dim; i += 32)
            x[i] = in[i];
        __syncwarp();
        if (a.norms_q)
            norm_warp(x, dim, at<const float>(a.norm_q), a.eps_q);
        if (a.pairs_q)
            turn_warp(x, a.pairs_q, a.kind_q, table);
        for (uint32_t i = lane; i < dim; i += 32)
            out[i] = x[i];
        return;
    }
    head -= a.n_heads;
    const bool value = head >= a.n_kv_heads;
    head -= value ? a.n_kv_heads : 0;
    const uint32_t at_row = head * 64 + slot;
    if (value) {
        if (!view.v_in_k)
            put_row(page + view.v + (size_t)at_row * view.v_stride,
                    row_at<const float>(a.v, blockIdx.x) + head * a.head_dim_v, a.head_dim_v, view.type_v);
        return;
    }
    const float *in = row_at<const float>(a.k, blockIdx.x) + head * dim;
    for (uint32_t i = lane; i < dim; i += 32)
        x[i] = in[i];
    __syncwarp();
    if (a.norms_k)
        norm_warp(x, dim, at<const float>(a.norm_k), a.eps_k);
    if (a.pairs_k)
        turn_warp(x, a.pairs_k, a.kind_k, table);
    put_row(page + view.k + (size_t)at_row * view.k_stride, x, dim, view.type_k);
    if (a.k_out.data) {
        float *out = row_at<float>(a.k_out, blockIdx.x) + head * dim;
        for (uint32_t i = lane; i < dim; i += 32)
            out[i] = x[i];
    }
}
