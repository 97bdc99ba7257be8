/* gemv_float.cu - products of one row with float weights, and what comes before and after them in a
 * layer.
 *
 * The definition's sixteen lanes are chains over the whole row, so a row of weights cannot be cut:
 * eight threads have two lanes each, a warp four rows.  x lies in shared memory; the weights are
 * asked for ahead, into the second cache far and into registers near.  Those of small matrices
 * (routers) come into shared memory while the launch before still runs: a block of threads has one
 * unit of them.  Where rows are multiples of sixteen numbers gemv_near.cu is quicker. */
#include "gemv.cuh"
#include "mul.cuh"

enum { FLOAT_THREADS = 512, FLOAT_WARPS = FLOAT_THREADS / 32, WARP_ROWS = LODE_FLOAT_ROWS, AHEAD = 2048 /* bytes of a row */ };

/* The tree of the sixteen lanes, two in each of eight threads. */
DEVICE float join_row(float2 acc) {
    for (int d = 4; d; d /= 2) {
        acc.x += __shfl_down_sync(0xffffffffu, acc.x, d, 8);
        acc.y += __shfl_down_sync(0xffffffffu, acc.y, d, 8);
    }
    return acc.x + acc.y;
}

/* A row in shared memory with x, both of floats: the sum, in the first of its eight threads. */
template <class T> DEVICE float dot_near_row(const uint8_t *row, const float *x, uint32_t cols) {
    enum { SIZE = sizeof(typename T::type) };
    const uint32_t t = threadIdx.x % 8;
    float2 acc = make_float2(0, 0);
    auto add = [&](uint32_t k) {
        const float2 p = pair_of<T>::widen(*(const typename pair_of<T>::raw *)(row + k * SIZE)),
                     z = *(const float2 *)(x + k);
        acc.x = fmaf(p.x, z.x, acc.x);
        if (k + 1 < cols)
            acc.y = fmaf(p.y, z.y, acc.y);
    };
    uint32_t k = 2 * t;
#pragma unroll 1
    for (; k + 7 * 16 + 1 < cols; k += 8 * 16)
#pragma unroll
        for (int u = 0; u < 8; u++)
            add(k + 16 * u);
#pragma unroll 1
    for (; k < cols; k += 16)
        add(k);
    __syncwarp();
    return join_row(acc);
}

/* Row `row` (this thread's of the warp's four) with x: the sum, in the first of its eight threads.
 */
template <class T>
DEVICE float dot_row(const uint8_t *row, const float *x, uint32_t cols, bool fetched) {
    enum { SIZE = sizeof(typename T::type), DEEP = 32 / SIZE, STEP = 16 * DEEP };
    const uint32_t t = threadIdx.x % 8, bytes = cols * SIZE & ~15u;
    const uint8_t *w = row + 2 * t * SIZE;
    float2 acc = make_float2(0, 0);
    typename pair_of<T>::raw next[DEEP];
    if (t == 0 && !fetched)
        fetch_ahead(row, bytes < AHEAD ? bytes : AHEAD);
    if (STEP <= cols)
#pragma unroll
        for (int u = 0; u < DEEP; u++)
            next[u] = pair_of<T>::load(w + 16 * u * SIZE);
    uint32_t k = 0;
    for (; k + STEP <= cols; k += STEP) {
        typename pair_of<T>::raw v[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; u++)
            v[u] = next[u];
        if (t == 0 && k * SIZE + AHEAD < bytes) {
            const uint32_t left = bytes - (k * SIZE + AHEAD);
            fetch_ahead(row + k * SIZE + AHEAD, left < STEP * SIZE ? left : STEP * SIZE);
        }
        if (k + 2 * STEP <= cols) /* on their way while these are used */
#pragma unroll
            for (int u = 0; u < DEEP; u++)
                next[u] = pair_of<T>::load(w + (size_t)(k + STEP + 16 * u) * SIZE);
#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            const float2 p = pair_of<T>::widen(v[u]), z = *(const float2 *)(x + k + 16 * u + 2 * t);
            acc.x = fmaf(p.x, z.x, acc.x);
            acc.y = fmaf(p.y, z.y, acc.y);
        }
    }
    for (; k + 2 * t < cols; k += 16) { /* the end of the row */
        const float2 p = pair_of<T>::widen(pair_of<T>::load(w + (size_t)k * SIZE));
        acc.x = fmaf(p.x, x[k + 2 * t], acc.x);
        if (k + 2 * t + 1 < cols)
            acc.y = fmaf(p.y, x[k + 2 * t + 1], acc.y);
    }
    __syncwarp();
    return join_row(acc);
}

/* The block's rows of t to shared memory, and the norm's weights, on their way while the launch
 * before still runs. */
DEVICE void stage_rows(const struct lode_cuda_gemv_args &a, const struct tile &t) {
    const uint32_t pieces = t.stride / 16;
    keep_norm(a);
    for (uint32_t i = threadIdx.x; i < t.rows * pieces; i += FLOAT_THREADS)
        copy_async<16>((uint8_t *)row_mem + a.rows_at + i / pieces * (t.stride + LODE_ROWS_APART) +
                           i % pieces * 16,
                       t.w + i / pieces * t.stride + i % pieces * 16);
    copies_end_group();
}

/* Units of four rows of one part, or of gate and up; warp by warp. */
template <class T> DEVICE void gemv_rows(const struct lode_cuda_gemv_args &a) {
    const uint32_t warp = threadIdx.x / 32, r = threadIdx.x / 8 % WARP_ROWS;
    const uint32_t first = warp * gridDim.x + blockIdx.x;
    let_next_come();
    if (a.rows_at)
        stage_rows(a, tile_at(a, blockIdx.x, 0, WARP_ROWS));
    else
        fetch_norm(a);
    for (uint32_t k = 0; k < a.per_unit && first < a.n_units && !a.rows_at; k++) {
        const struct tile t = tile_at(a, first, k, WARP_ROWS);
        const uint32_t bytes = t.stride & ~15u;
        if (threadIdx.x % 8 == 0 && r < t.rows)
            fetch_ahead(t.w + r * t.stride, bytes < AHEAD ? bytes : AHEAD);
    }
    wait_for_last();
    copies_wait<0>(); /* stage_rows'; barriers follow */
    if (a.input == LODE_GEMV_NORM)
        load_normed(a, a.rows_at && a.norm ? (const float4 *)(row_mem + a.cols)
                                           : at<const float4>(a.norm));
    else
        load_floats(at<const float>(a.x), a.cols);
    __syncthreads();
    for (uint32_t unit = first; unit < a.n_units; unit += gridDim.x * FLOAT_WARPS) {
        float v = 0;
#pragma unroll
        for (uint32_t k = 0; k < 2; k++) {
            if (k >= a.per_unit)
                break;
            const struct tile u = tile_at(a, unit, k, WARP_ROWS);
            const uint32_t row = r < u.rows ? r : u.rows - 1;
            const float sum =
                a.rows_at ? dot_near_row<T>((const uint8_t *)row_mem + a.rows_at +
                                                row * (u.stride + LODE_ROWS_APART),
                                            row_mem, a.cols)
                          : dot_row<T>(u.w + row * u.stride, row_mem, a.cols, unit == first);
            if (r < u.rows)
                v = k ? glu_of(a.act, v, biased(u, r, sum)) : biased(u, r, sum);
        }
        const struct tile t = tile_at(a, unit, 0, WARP_ROWS); /* not kept in registers meanwhile */
        if (threadIdx.x % 8 == 0 && r < t.rows)
            end_row(a, t, r, v, residual_of(a, t, r));
    }
}

#define GEMV_FLOAT(name, type)                                                                     \
    extern "C" __global__ void __launch_bounds__(FLOAT_THREADS, 2)                                  \
        gemv_##name(const __grid_constant__ struct lode_cuda_gemv_args a) {                        \
        gemv_rows<struct name>(a);                                                                 \
    }
LODE_CUDA_FLOAT_LIST(GEMV_FLOAT)
