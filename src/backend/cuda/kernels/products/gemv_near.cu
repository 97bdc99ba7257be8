/* gemv_near.cu - products of one row with few rows of float weights, multiples of sixteen numbers, as routers are.
 *
 * What such a product takes is what has to be done one after the other.  So a block of threads has few rows, which are in its shared
 * memory before x is there; the numbers of each of the definition's sixteen lanes stand together, four a read, and a thread has
 * a lane of a row. */
#include "gemv.cuh"
#include "mul.cuh"

enum { THREADS = LODE_NEAR_THREADS, AT_ONCE = LODE_NEAR_COLS / (4 * THREADS) /* times four numbers of x */ };
static_assert(AT_ONCE * 4 * THREADS == LODE_NEAR_COLS, "no rest");

/* v for numbers from `cols` on to whole 256, of which sums are made: zeros of x, zeros below of weights, whose products change no sum, not even
 * one of -0. */
DEVICE void fill_up(float *lanes, uint32_t cols, float v) {
    const uint32_t pitch = LODE_LANE_PITCH(cols);
#pragma unroll 1
    for (uint32_t i = cols / 4 + threadIdx.x; i < (cols + 255) / 256 * 64; i += THREADS)
        put_four(lanes, pitch, i, make_float4(v, v, v, v));
}

/* n rows of weights, of ROWS, to 16 lanes each: of 32 bits by copies, of 16 bits widened. */
template <class T, int ROWS> DEVICE void keep_rows(float *to, const uint8_t *w, uint32_t stride, uint32_t n, uint32_t cols) {
    enum { SIZE = sizeof(typename T::type) };
    const uint32_t pitch = LODE_LANE_PITCH(cols), size = 16 * pitch;
    float *lanes = to;
    if constexpr (SIZE == 4) {
#pragma unroll 1
        for (uint32_t r = 0; r < n; r++, w += stride, lanes += size)
#pragma unroll 4
            for (uint32_t i = threadIdx.x; i < cols; i += THREADS)
                copy_async<4>(lanes + i % 16 * pitch + i / 16, w + (size_t)i * SIZE);
    } else {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < cols / 4; i += THREADS) {
            typename pair_of<T>::raw v[ROWS][2]; /* read before any is stored: a compiler would not, as they might overlap */
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++)
#pragma unroll
                for (uint32_t k = 0; k < 2; k++)
                    if (r < n)
                        v[r][k] = pair_of<T>::load(w + (size_t)r * stride + (size_t)(4 * i + 2 * k) * SIZE);
#pragma unroll
            for (uint32_t r = 0; r < ROWS; r++)
                if (r < n) {
                    const float2 a = pair_of<T>::widen(v[r][0]), b = pair_of<T>::widen(v[r][1]);
                    put_four(lanes + r * size, pitch, i, make_float4(a.x, a.y, b.x, b.y));
                }
        }
    }
    copies_end_group();
    if (cols % 256)
#pragma unroll 1
        for (uint32_t r = 0; r < n; r++)
            fill_up(to + r * size, cols, -0.0f);
}

/* x to row_mem's lanes, normed where that is asked for, by the norm's weights: w, and the thread's first four; the normed row to a.x_out as
 * well, by the first block.  Ends with a barrier. */
DEVICE void make_x(const struct lode_cuda_gemv_args &a, const float4 *w, float4 first) {
    const uint32_t pitch = LODE_LANE_PITCH(a.cols), n = a.cols / 4;
    float4 v[AT_ONCE];
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++)
        if (threadIdx.x + u * THREADS < n)
            v[u] = at<const float4>(a.x)[threadIdx.x + u * THREADS];
#pragma unroll
    for (uint32_t u = 0; u < AT_ONCE; u++)
        if (threadIdx.x + u * THREADS < n)
            put_four(row_mem, pitch, threadIdx.x + u * THREADS, v[u]);
    if (a.cols % 256)
        fill_up(row_mem, a.cols, 0);
    if (a.input == LODE_GEMV_NORM) {
        const struct divisor root = root_of(a.cols, a.eps); /* begins with a barrier, and ends with one */
        auto norm = [&](uint32_t i, float4 x, float4 weight) {
            float4 u = divided(x, root);
            if (a.norm)
                times(u, weight);
            put_four(row_mem, pitch, i, u);
            if (a.x_out && blockIdx.x == 0)
                at<float4>(a.x_out)[i] = u;
        };
        if (threadIdx.x < n)
            norm(threadIdx.x, v[0], first);
#pragma unroll 1
        for (uint32_t i = threadIdx.x + THREADS; i < n; i += THREADS) /* in one place, as code that runs once comes from far */
            norm(i, four_numbers(a.cols, i), a.norm ? w[i] : first);
    }
    __syncthreads();
}

/* A row's lanes with x's: the sum, by sixteen neighbouring threads. */
DEVICE float dot_lanes(const float *lanes, uint32_t cols) {
    enum { AT_ONCE = 4 };
    const uint32_t from = threadIdx.x % 16 * LODE_LANE_PITCH(cols);
    const float4 *p = (const float4 *)(lanes + from), *z = (const float4 *)(row_mem + from);
    float4 w[AT_ONCE], x[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; i++)
        w[i] = p[i], x[i] = z[i];
    float acc = 0;
#pragma unroll 1
    for (uint32_t n = (cols + 64 * AT_ONCE - 1) / (64 * AT_ONCE); n; n--) {
        float4 v[AT_ONCE], y[AT_ONCE];
        p += AT_ONCE, z += AT_ONCE;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) { /* the next ones are read while these are added */
            v[i] = w[i], y[i] = x[i];
            if (n > 1)
                w[i] = p[i], x[i] = z[i];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            acc = fmaf(v[i].x, y[i].x, acc), acc = fmaf(v[i].y, y[i].y, acc);
            acc = fmaf(v[i].z, y[i].z, acc), acc = fmaf(v[i].w, y[i].w, acc);
        }
    }
    return join_lanes(acc);
}

template <class T, int ROWS> DEVICE void near(const struct lode_cuda_gemv_args &a) {
    const struct tile t = tile_at(a, blockIdx.x, 0, ROWS);
    const uint32_t r = threadIdx.x / 16, size = 16 * LODE_LANE_PITCH(a.cols);
    float *rows = row_mem + size, *norm = rows + ROWS * size;
    const bool weighs = a.input == LODE_GEMV_NORM && a.norm;
    let_next_come();
    const float4 first = weighs && threadIdx.x < a.cols / 4 ? at<const float4>(a.norm)[threadIdx.x] : make_float4(1, 1, 1, 1);
    if (weighs)
        for (uint32_t i = threadIdx.x + THREADS; i < a.cols / 4; i += THREADS)
            copy_async<16>(norm + 4 * i, at<const float4>(a.norm) + i);
    keep_rows<T, ROWS>(rows, t.w, t.stride, t.rows, a.cols);
    wait_for_last();
    copies_wait<0>();
    const bool mine = r < t.rows && threadIdx.x % 16 == 0;
    const float residual = mine ? residual_of(a, t, r) : 0;
    make_x(a, (const float4 *)norm, first);
    if (threadIdx.x < (16 * ROWS + 31) / 32 * 32) { /* whole warps */
        const float v = dot_lanes(rows + (r < t.rows ? r : 0) * size, a.cols);
        if (mine)
            end_row(a, t, r, biased(t, r, v), residual);
    }
}

/* near_TYPE_ROWS; blockIdx: so many rows after the others. */
#define NEAR_OF(name, rows)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                       \
        near_##name##_##rows(const __grid_constant__ struct lode_cuda_gemv_args a) {               \
        near<struct name, rows>(a);                                                                \
    }
#define NEAR(name, type) NEAR_OF(name, 1) NEAR_OF(name, 2) NEAR_OF(name, 4)
LODE_CUDA_FLOAT_LIST(NEAR)
