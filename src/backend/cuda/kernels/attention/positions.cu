/* positions.cu - what depends on where a token stands: rotary angles, temperatures, its place in
 * the cache. */
#include "backend/cuda/kernels/rows_shared.h"
#include "own_head.cuh"

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

/* blockIdx.y: eight (head, k or v) at a time, a warp each, with so many numbers of a thread on their way at a time: a store might change
 * what is read behind it, for all that the compiler knows. */
enum { PUT_AHEAD = 8 };
KERNEL(ROW_THREADS) kv_put(const __grid_constant__ struct lode_cuda_put_args a) {
    let_next_come();
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t item = blockIdx.y * 8 + threadIdx.x / 32, head = item / 2;
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const struct lode_cuda_view &view = at<const struct lode_cuda_view>(r.views)[a.layer];
    const bool value = item % 2;
    if (head >= a.n_heads || (value && view.v_in_k))
        return;
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[r.pos / 64 % view.n_entries]);
    const uint32_t stride = value ? view.v_stride : view.k_stride;
    uint8_t *y = page + (value ? view.v : view.k) + (size_t)(head * 64 + r.pos % 64) * stride;
    const uint32_t type = value ? view.type_v : view.type_k, n = value ? a.head_dim_v : a.head_dim;
    const float *x = value ? row_at<const float>(a.v, blockIdx.x) + head * n : row_at<const float>(a.k, blockIdx.x) + head * n;
    wait_for_last();
    for (uint32_t first = 0; first < n; first += 32 * PUT_AHEAD) {
        float v[PUT_AHEAD];
#pragma unroll
        for (int u = 0; u < PUT_AHEAD; u++)
            v[u] = first + lane + 32 * u < n ? x[first + lane + 32 * u] : 0;
        const uint32_t bytes = type == LODE_F32 ? 4 * first : type == LODE_Q8_0 ? first / 32 * 34 : 2 * first;
        put_numbers(v, y + bytes, n - first, type);
    }
}

/* ---- all that comes between the products and attention ---- */

/* A warp has a head of the queries, of the keys or of the values at a time, gridDim.y blocks of warps a row; blockIdx.x: the
 * row.  Heads of DIM numbers, or where that is 0 of up to 512. */
template <int DIM> DEVICE void prepare_row(const struct lode_cuda_prepare_args &a) {
    enum { U = DIM ? DIM / 32 : 16 };
    let_next_come();
    const uint32_t lane = threadIdx.x % 32, row = blockIdx.x, dim = DIM ? DIM : a.head_dim, dim_v = DIM ? DIM : a.head_dim_v;
    const uint32_t keys = a.n_heads, values = keys + a.n_kv_heads, n = values + a.n_kv_heads;
    float *room = row_mem + threadIdx.x / 32 * (dim > dim_v ? dim : dim_v);
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct lode_cuda_row &r = step_row(a.step, row);
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(r.views)[a.layer];
    const uint32_t entry = r.pos / 64;
    uint8_t *page = at<uint8_t>(at<const lode_dev>(view.pages)[entry < view.n_entries ? entry : entry % view.n_entries]);
    const struct head_weights weights_q = read_weights(a.norms_q ? at<const float>(a.norm_q) : NULL, dim);
    const struct head_weights weights_k = read_weights(a.norms_k ? at<const float>(a.norm_k) : NULL, dim);
    const float2 *table = row_at<const float2>(a.table, row);
    wait_for_last();
#pragma unroll 1
    for (uint32_t i = blockIdx.y * (ROW_THREADS / 32) + threadIdx.x / 32; i < n; i += ROW_THREADS / 32 * gridDim.y) {
        const uint32_t which = i < keys ? 0 : i < values ? 1 : 2, head = i - (which == 0 ? 0 : which == 1 ? keys : values);
        const uint32_t size = which == 2 ? dim_v : dim;
        const struct own_head h = own_head_of(a, which, row, head, head);
        struct head_weights weights;
#pragma unroll
        for (int u = 0; u < WEIGHTS_AHEAD; u++)
            weights.of[u] = which ? weights_k.of[u] : weights_q.of[u];
        float x[U];
        prepare_head<DIM, U>(x, h, table, weights, size, room);
        __syncwarp(); /* all have read what may be written over */
        float *out = which == 0 ? row_at<float>(a.q_out, row) + head * dim
                     : which == 1 && a.k_out.data ? row_at<float>(a.k_out, row) + head * dim : NULL;
#pragma unroll
        for (int u = 0; u < U; u++)
            if (out && lane + 32 * u < size)
                out[lane + 32 * u] = x[u];
        if (which == 0 || (which == 2 && view.v_in_k))
            continue;
        const uint32_t type = which == 1 ? view.type_k : view.type_v, at_row = head * 64 + r.pos % 64;
        uint8_t *y = page + (which == 1 ? view.k + (size_t)at_row * view.k_stride : view.v + (size_t)at_row * view.v_stride);
        if (type == LODE_F16) {
            put_halves<true, U>(x, y, size);
        } else if (type == LODE_BF16) {
            put_halves<false, U>(x, y, size);
        } else {
            __syncwarp(); /* room may still be read */
#pragma unroll
            for (int u = 0; u < U; u++)
                if (lane + 32 * u < size)
                    room[lane + 32 * u] = x[u];
            __syncwarp();
            put_row(y, room, size, type);
        }
    }
}
extern "C" __global__ void __launch_bounds__(ROW_THREADS, 3) prepare(const __grid_constant__ struct lode_cuda_prepare_args a) { prepare_row<0>(a); }
KERNEL(ROW_THREADS) prepare_64(const __grid_constant__ struct lode_cuda_prepare_args a) { prepare_row<64>(a); }
KERNEL(ROW_THREADS) prepare_128(const __grid_constant__ struct lode_cuda_prepare_args a) { prepare_row<128>(a); }
