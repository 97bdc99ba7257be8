/* recur.cu - layers that carry a state from token to token: the definitions are backend/cpu/recur.c
 * and kern/recur_body.h.
 *
 * A segment's state and the checkpoint that the step leaves are blocks of device memory (store/state.h);
 * a.at is where in a block this layer's part lies. */
#include "common.cuh"

#define DEVICE_METHOD __device__ __forceinline__

#define DMATH DEVICE
#define DMATH_STATIC DEVICE
#include "base/dmath_body.h"

DEVICE const struct lode_cuda_segment &segment_of(lode_dev step, uint32_t i) {
    return at<const struct lode_cuda_segment>(step_at(step)->segments)[i];
}

/* ---- convolution: blockIdx = columns, rows of the segment, segment ---- */

enum { CONV_THREADS = 128, MAX_TAPS = 8 };

KERNEL(CONV_THREADS) conv(const __grid_constant__ struct lode_cuda_recur_args a) {
    begin();
    const struct lode_cuda_segment &seg = segment_of(a.step, blockIdx.z);
    const uint32_t c = blockIdx.x * CONV_THREADS + threadIdx.x;
    const uint32_t first = blockIdx.y * LODE_CUDA_CONV_ROWS, inputs = a.taps - 1;
    if (c >= a.width || first >= seg.n_rows)
        return;
    const uint32_t end = seg.n_rows - first < LODE_CUDA_CONV_ROWS ? seg.n_rows : first + LODE_CUDA_CONV_ROWS;
    float *before = at<float>(seg.state + a.at) + c;
    /* input i of the segment's rows and the `inputs` before them */
    const auto input = [&](uint32_t i) {
        return i < inputs ? before[(size_t)i * a.width]
                          : row_at<const float>(a.x, seg.first_row + i - inputs)[c];
    };
    /* newest last, so that what there is of them does not depend on how many taps there are */
    float x[MAX_TAPS], w[MAX_TAPS];
    const float *taps = (const float *)(a.w + c * a.w_stride);
#pragma unroll
    for (uint32_t t = 0; t < MAX_TAPS; t++) {
        const bool there = t + a.taps >= MAX_TAPS;
        w[t] = there ? taps[t + a.taps - MAX_TAPS] : 0.0f;
        x[t] = there && t + 1 < MAX_TAPS ? input(first + t + a.taps - MAX_TAPS) : 0.0f;
    }
    for (uint32_t r = first; r < end; r++) {
        float sum = 0;
        x[MAX_TAPS - 1] = input(r + inputs);
#pragma unroll
        for (uint32_t t = 0; t < MAX_TAPS; t++)
            if (t + a.taps >= MAX_TAPS)
                sum = fmaf(w[t], x[t], sum);
        row_at<float>(a.y, seg.first_row + r)[c] = a.silu ? lode_siluf(sum) : sum;
#pragma unroll
        for (uint32_t t = 0; t + 1 < MAX_TAPS; t++)
            x[t] = x[t + 1];
    }
    if (blockIdx.y)
        return;
    /* the first rows' thread, which alone has read what was before, writes what is kept */
    if (seg.mark != UINT32_MAX)
        for (uint32_t i = 0; i < inputs; i++)
            at<float>(seg.state_mark + a.at)[(size_t)i * a.width + c] = input(seg.mark + i);
    for (uint32_t i = 0; i < inputs; i++) /* ascending: what is read lies behind what is written */
        before[(size_t)i * a.width] = input(seg.n_rows + i);
}

/* ---- delta rule ---- */

KERNEL(128) delta_gates(const __grid_constant__ struct lode_cuda_recur_args a) {
    begin();
    const uint32_t h = blockIdx.y * 128 + threadIdx.x;
    if (h >= a.n_heads)
        return;
    const float *in = row_at<const float>(a.x, blockIdx.x);
    float *out = row_at<float>(a.y, blockIdx.x);
    const double x = (double)in[2 * h] + (double)at<const float>(a.bias)[h];
    const double softplus = x > 30 ? x : lode_log(1 + lode_exp(x));
    const float beta = 1.0f / (1.0f + lode_expf(-in[2 * h + 1]));
    out[2 * h] = (float)lode_exp((double)at<const float>(a.w)[h] * softplus);
    out[2 * h + 1] = beta;
}

/* A column's dim_k numbers: in registers, or where they lie. */
template <uint32_t DIM> struct column {
    float v[DIM];
    DEVICE_METHOD void load(const float *s) {
#pragma unroll
        for (uint32_t i = 0; i < DIM; i++)
            v[i] = s[(size_t)i * 16];
    }
    DEVICE_METHOD void store(float *s) const {
#pragma unroll
        for (uint32_t i = 0; i < DIM; i++)
            s[(size_t)i * 16] = v[i];
    }
    /* f(number, i) for all, in order */
    template <class F> DEVICE_METHOD void each(F f) {
#pragma unroll
        for (uint32_t i = 0; i < DIM; i++)
            f(v[i], i);
    }
};
template <> struct column<0> {
    float *s;
    uint32_t dim;
    DEVICE_METHOD void load(float *at) { s = at; }
    DEVICE_METHOD void store(float *at) const {
        for (uint32_t i = 0; at != s && i < dim; i++)
            at[(size_t)i * 16] = s[(size_t)i * 16];
    }
    template <class F> DEVICE_METHOD void each(F f) {
        for (uint32_t i = 0; i < dim; i++)
            f(s[(size_t)i * 16], i);
    }
};

/* blockIdx = columns of all heads, segment; a thread has a column.  The keys of this token and the
 * next, and the queries of this one and the last, lie in shared memory. */
template <uint32_t DIM> DEVICE void delta_rule(const struct lode_cuda_recur_args &a, column<DIM> &col) {
    extern __shared__ float mem[]; /* (2 keys, 2 queries) */
    const uint32_t dim_k = DIM ? DIM : a.dim_k, threads = blockDim.x;
    const struct lode_cuda_segment &seg = segment_of(a.step, blockIdx.y);
    const uint32_t per_head = (a.dim_v + threads - 1) / threads, head = blockIdx.x / per_head;
    const uint32_t mine = blockIdx.x % per_head * threads + threadIdx.x; /* the column */
    const uint32_t key_head = a.tiled ? head % a.n_k_heads : head / (a.n_heads / a.n_k_heads);
    /* (dim_v / 16, dim_k, 16) of each head */
    const size_t place = (size_t)head * dim_k * a.dim_v + (size_t)(mine / 16) * dim_k * 16 + mine % 16;
    float *s = at<float>(seg.state + a.at) + place;
    const uint32_t q_at = key_head * dim_k, k_at = (a.n_k_heads + key_head) * dim_k;
    const uint32_t v_at = 2 * a.n_k_heads * dim_k + head * a.dim_v + mine;
    const auto row = [&](uint32_t r) { return row_at<const float>(a.x, seg.first_row + r); };
    float m = 0;
    for (uint32_t i = threadIdx.x; i < dim_k; i += threads)
        mem[i] = row(0)[k_at + i];
    __syncthreads();
    if (mine < a.dim_v) {
        col.load(s);
        col.each([&](float &x, uint32_t i) { m = fmaf(x, mem[i], m); });
    }
    for (uint32_t r = 0; r < seg.n_rows; r++) {
        float *key = mem + r % 2 * dim_k, *next = mem + (r + 1) % 2 * dim_k;
        float *query = mem + (2 + r % 2) * dim_k;
        for (uint32_t i = threadIdx.x; i < dim_k; i += threads) {
            query[i] = row(r)[q_at + i];
            next[i] = r + 1 < seg.n_rows ? row(r + 1)[k_at + i] : 0.0f; /* of the last: not used */
        }
        __syncthreads();
        if (mine < a.dim_v) {
            const float *gates = row_at<const float>(a.gates, seg.first_row + r) + 2 * head;
            const float decay = gates[0], d = fmaf(-decay, m, row(r)[v_at]) * gates[1];
            float sum = 0;
            m = 0;
            col.each([&](float &x, uint32_t i) {
                x = fmaf(key[i], d, x * decay);
                sum = fmaf(x, query[i], sum);
                m = fmaf(x, next[i], m);
            });
            row_at<float>(a.y, seg.first_row + r)[head * a.dim_v + mine] = sum;
            if (r + 1 == seg.mark)
                col.store(at<float>(seg.state_mark + a.at) + place);
        }
        __syncthreads(); /* before this token's key is overwritten */
    }
    if (mine < a.dim_v)
        col.store(s);
}

#define DELTA(name, dim)                                                                           \
    KERNEL(64) name(const __grid_constant__ struct lode_cuda_recur_args a) {                       \
        begin();                                                                                   \
        column<dim> c;                                                                             \
        delta_rule<dim>(a, c);                                                                     \
    }
DELTA(delta_64, 64)
DELTA(delta_128, 128)

KERNEL(64) delta_any(const __grid_constant__ struct lode_cuda_recur_args a) {
    begin();
    column<0> c = {NULL, a.dim_k};
    delta_rule<0>(a, c);
}
