/* rows.cu - ops that treat every row by itself: the definitions are backend/cpu/rows.c and
 * kern/row_scalar.c, act_scalar.c, quant_scalar.c, kv_scalar.c.  blockIdx.x is the row. */
#include "backend/cuda/kernels/rows_shared.h"
#include "backend/cuda/kernels/products/products_shared.h"
#include "rows.cuh"
#include "unite.h"

#include "backend/cuda/kernels/products/codebook.cuh"
#include "backend/cuda/kernels/products/packed.cuh"
#include "backend/cuda/kernels/products/parts.cuh"

/* ---- embedding ---- */

DEVICE uint32_t embedded(const struct lode_cuda_embed_args &a) {
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    const int32_t token = r.token < 0 ? at<const int32_t>(a.step)[r.token] : r.token; /* draw.h */
    return a.by == LODE_BY_TOKEN ? (uint32_t)token : a.by == LODE_BY_POSITION ? r.pos : r.part;
}
DEVICE float scaled(float v, float scale) { return scale != 1.0f ? v * scale : v; }

#define EMBED_QUANT(name, type, block, ...)                                                        \
    KERNEL(ROW_THREADS) embed_##name(const __grid_constant__ struct lode_cuda_embed_args a) {      \
        begin();                                                                                    \
        const uint8_t *row = at<const uint8_t>(a.w) + embedded(a) * a.w_stride;                    \
        const uint32_t nb = a.cols / block;                                                        \
        float *y = row_at<float>(a.y, blockIdx.x);                                                 \
        for (uint32_t u = threadIdx.x; u < a.cols / 32; u += ROW_THREADS) {                        \
            const uint32_t b = u / (block / 32);                                                   \
            struct chunk c;                                                                        \
            name::chunk_at(c, row, nb, b, (int)(u % (block / 32)));                                \
            const float2 d = name::scale_at(row, nb, b);                                           \
            for (int i = 0; i < 32; i++) {                                                         \
                const bool second = i >= 16;                                                       \
                const int q = (int)(int8_t)(c.q[i / 4] >> (i % 4 * 8)) - name::OFFSET;             \
                float v;                                                                           \
                if (block == 256) {                                                                \
                    v = d.x * (float)(second ? c.s1 : c.s0) * (float)q;                            \
                    if (name::HAS_M)                                                               \
                        v = v - d.y * (float)(second ? c.n1 : c.n0);                               \
                } else {                                                                           \
                    v = (terms_of<struct name>::HALVES && second ? d.y : d.x) * (float)q;                      \
                    if (name::HAS_M)                                                               \
                        v = v + d.y;                                                               \
                }                                                                                  \
                y[group_start<struct name>(b, second ? c.g1 : c.g0) + i % 16] =                    \
                    scaled(v, a.scale);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
LODE_CUDA_QUANT_LIST(EMBED_QUANT)
LODE_CUDA_CODEBOOK_LIST(EMBED_QUANT)
#define EMBED_U(name, type, block, ...) EMBED_QUANT(name, type, 32)
LODE_CUDA_U_LIST(EMBED_U)
LODE_CUDA_U8_LIST(EMBED_U)
LODE_CUDA_PART_LIST(EMBED_U)

#define EMBED_FLOAT(name, number, widen)                                                           \
    KERNEL(ROW_THREADS) embed_##name(const __grid_constant__ struct lode_cuda_embed_args a) {      \
        begin();                                                                                    \
        const number *row = (const number *)(a.w + embedded(a) * a.w_stride);                      \
        float *y = row_at<float>(a.y, blockIdx.x);                                                 \
        for (uint32_t i = threadIdx.x; i < a.cols; i += ROW_THREADS)                               \
            y[i] = scaled(widen(row[i]), a.scale);                                                 \
    }
EMBED_FLOAT(f32, float, )
EMBED_FLOAT(f16, uint16_t, f16_f32)
EMBED_FLOAT(bf16, uint16_t, lode_bf16_f32)

#define EMBED_PACKED(name, type)                                                                   \
    KERNEL(ROW_THREADS) embed_##name(const __grid_constant__ struct lode_cuda_embed_args a) {      \
        begin();                                                                                   \
        const uint8_t *row = at<const uint8_t>(a.w) + embedded(a) * a.w_stride;                    \
        float *y = row_at<float>(a.y, blockIdx.x);                                                 \
        for (uint32_t i = 2 * threadIdx.x; i < a.cols; i += 2 * ROW_THREADS) {                     \
            const float2 v = name::pair(row, i);                                                   \
            y[i] = scaled(v.x, a.scale);                                                           \
            y[i + 1] = scaled(v.y, a.scale);                                                       \
        }                                                                                          \
    }
LODE_CUDA_PACKED_LIST(EMBED_PACKED)

KERNEL(ROW_THREADS) gather(const __grid_constant__ struct lode_cuda_gather_args a) {
    begin();
    const uint32_t *order = at<const uint32_t>(a.order);
    const float *x = row_at<const float>(a.x, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    for (uint32_t i = threadIdx.x; i < a.width; i += ROW_THREADS)
        y[i] = x[order[i]];
}

/* ---- norms: one block of threads a group of a row (blockIdx.y) ---- */

/* Of fours of numbers, up to LODE_NORM_COLS, all at addresses of fours.  What one row takes is what has to be done one after the other: so
 * its weights are asked for before x is there, then all of x and of what it meets after at once, and they stay in registers until the sum
 * is known.  A block has then read all that it may write over: y may be where x or b is. */
KERNEL(LODE_NORM_THREADS) rms_norm(const __grid_constant__ struct lode_cuda_row_args a) {
    enum { FOURS = LODE_NORM_FOURS };
    let_next_come();
    const uint32_t n = a.group / 4, whole = (n + 63) & ~63u, pitch = LODE_LANE_PITCH(4 * whole), t = threadIdx.x, step = blockDim.x;
    const uint32_t first = blockIdx.y * n + t;
    const float4 *weights = at<const float4>(a.w) + t;
    float4 w[FOURS], x[FOURS], r[FOURS];
#pragma unroll
    for (uint32_t u = 0; u < FOURS; u++)
        w[u] = a.w && t + u * step < n ? weights[u * step] : make_float4(1, 1, 1, 1);
    wait_for_last();
    const float4 *from = row_at<const float4>(a.a, blockIdx.x) + first, *added = row_at<const float4>(a.b, blockIdx.x) + first;
#pragma unroll
    for (uint32_t u = 0; u < FOURS; u++)
        x[u] = t + u * step < n ? from[u * step] : make_float4(0, 0, 0, 0);
    if (a.b.data)
#pragma unroll
        for (uint32_t u = 0; u < FOURS; u++)
            if (t + u * step < n)
                r[u] = added[u * step];
#pragma unroll
    for (uint32_t u = 0; u < FOURS; u++)
        if (t + u * step < whole)
            put_four(row_mem + u * (step / 4), pitch, t, x[u]); /* step is a multiple of 32 */
    const struct divisor root = root_of_lanes(pitch, whole / 64, a.group, a.eps);
    float4 *y = row_at<float4>(a.y, blockIdx.x) + first;
#pragma unroll
    for (uint32_t u = 0; u < FOURS; u++)
        if (t + u * step < n) {
            float4 v = divided(x[u], root);
            times(v, w[u]);
            y[u * step] = !a.b.data ? v : a.gates ? glu_of_four(a.kind, r[u], v) : with_residuals(a, v, r[u]);
        }
}

/* Of any other numbers. */
KERNEL(1024) rms_norm_any(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    __shared__ float sum;
    const float *x = row_at<const float>(a.a, blockIdx.x) + blockIdx.y * a.group;
    const float *b = row_at<const float>(a.b, blockIdx.x) + blockIdx.y * a.group;
    float *y = row_at<float>(a.y, blockIdx.x) + blockIdx.y * a.group;
    const float *w = at<const float>(a.w);
    load_row(x, a.group);
    const float dot = lanes_sum(a.group, &sum, [](float v, float acc) {
        return fmaf(v, v, acc);
    });
    const float root = sqrtf(dot / (float)a.group + a.eps);
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x) {
        const float v = w ? row_mem[i] / root * w[i] : row_mem[i] / root;
        y[i] = !a.b.data ? v : a.gates ? short_glu_of(a.kind, b[i], v) : with_residual(a, v, b[i]);
    }
}

KERNEL(1024) layer_norm(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    __shared__ float sum;
    const float *x = row_at<const float>(a.a, blockIdx.x) + blockIdx.y * a.group;
    float *y = row_at<float>(a.y, blockIdx.x) + blockIdx.y * a.group;
    const float *w = at<const float>(a.w), *b = at<const float>(a.bias);
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        row_mem[i] = x[i];
    const float mean = lanes_sum(a.group, &sum, [](float v, float acc) {
        return acc + v;
    }) / (float)a.group;
    __syncthreads();
    const float square = lanes_sum(a.group, &sum, [mean](float v, float acc) {
        const float d = v - mean;
        return fmaf(d, d, acc);
    });
    const float root = sqrtf(square / (float)a.group + a.eps);
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        y[i] = fmaf((row_mem[i] - mean) / root, w ? w[i] : 1.0f, b ? b[i] : -0.0f);
}

KERNEL(ROW_THREADS) l2_norm(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    __shared__ float sum;
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    const uint32_t first = blockIdx.y * a.group;
    if (first >= a.n) { /* the numbers that are passed on */
        if (x != y)
            for (uint32_t i = a.n + threadIdx.x; i < a.width; i += blockDim.x)
                y[i] = x[i];
        return;
    }
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        row_mem[i] = x[first + i];
    const float dot = lanes_sum(a.group, &sum, [](float v, float acc) {
        return fmaf(v, v, acc);
    });
    const float scale = (first < a.first ? a.scale : 1.0f) / sqrtf(dot + a.eps);
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        y[first + i] = row_mem[i] * scale;
}

/* ---- activations to 8 bits ---- */

KERNEL(ROW_THREADS) quant_a32(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const uint32_t b = blockIdx.y * (ROW_THREADS / 8) + threadIdx.x / 8, k = threadIdx.x % 8;
    const bool here = b < a.width / 32;
    const float *x = row_at<const float>(a.a, blockIdx.x) + (here ? b * 32 + 4 * k : 0);
    const struct rounded r = round_a32(make_float4(x[0], x[1], x[2], x[3]));
    if (here)
        put_a32(row_at<uint8_t>(a.y, blockIdx.x) + b * 40, r);
}

KERNEL(ROW_THREADS) quant_a256(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const uint32_t lane = threadIdx.x % 32, b = blockIdx.y * 8 + threadIdx.x / 32;
    if (b >= a.width / 256)
        return;
    const float4 *in = (const float4 *)(row_at<const float>(a.a, blockIdx.x) + b * 256 + lane * 8);
    const float4 u = in[0], v = in[1];
    const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
    round_a256(row_at<uint8_t>(a.y, blockIdx.x) + (size_t)b * 304, x);
}

/* ---- number by number ---- */

KERNEL(ROW_THREADS) add(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x), *z = row_at<const float>(a.b, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = a.scale == 1.0f ? x[i] + z[i] : fmaf(a.scale, z[i], x[i]);
}

KERNEL(ROW_THREADS) glu(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x), *z = row_at<const float>(a.b, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = glu_of(a.kind, x[a.n ? i / a.group * a.n + a.first + i % a.group : i], z[i]);
}

KERNEL(ROW_THREADS) act(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = a.kind == LODE_ACT_GELU ? lode_geluf(x[i])
               : a.kind == LODE_ACT_GELU_ERF ? lode_gelu_erff(x[i]) : lode_relu2f(x[i]);
}

/* A thread has all of its numbers on their way before it makes the gate. */
KERNEL(ROW_THREADS) row_gate(const __grid_constant__ struct lode_cuda_row_gate_args a) {
    enum { NUMBERS = LODE_GATE_NUMBERS, SUMS = LODE_GATE_SUMS };
    begin();
    const uint32_t first = blockIdx.y * ROW_THREADS + threadIdx.x, step = gridDim.y * ROW_THREADS;
    const float gate = *row_at<const float>(a.gate, blockIdx.x), *x = row_at<const float>(a.x, blockIdx.x);
    float v[NUMBERS], to[SUMS][NUMBERS];
#pragma unroll
    for (uint32_t u = 0; u < NUMBERS; u++) {
        const uint32_t i = first + u * step;
        v[u] = i < a.width ? x[i] : 0;
#pragma unroll
        for (uint32_t k = 0; k < SUMS; k++)
            to[k][u] = k < a.n_sums && i < a.width ? row_at<const float>(a.sums[k].to, blockIdx.x)[i] : 0;
    }
    const float factor = 1.0f / (1.0f + lode_expf(-gate));
    float *y = row_at<float>(a.y, blockIdx.x);
#pragma unroll
    for (uint32_t u = 0; u < NUMBERS; u++) {
        float sum = v[u] * factor;
#pragma unroll
        for (uint32_t k = 0; k < SUMS; k++)
            sum = k < a.n_sums ? with_residual(a.sums[k], sum, to[k][u]) : sum;
        if (first + u * step < a.width)
            y[first + u * step] = sum;
    }
}

KERNEL(ROW_THREADS) scale(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = x[i] * a.scale;
}

KERNEL(ROW_THREADS) softcap(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = a.scale * lode_tanhf(x[i] / a.scale);
}

/* Rows first .. of src, or those of the step's list (pick). */
KERNEL(ROW_THREADS) pick(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const uint32_t r = at<const uint32_t>(step_at(a.step)->out_rows)[blockIdx.x];
    const float *x = row_at<const float>(a.a, r);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = x[i];
}

/* A row of n numbers, or fours of them, that lie at at(i), to y. */
template <class T, class F> DEVICE void copy_row(T *y, uint32_t n, F at) {
    enum { AT_ONCE = 4 };
    const uint32_t step = gridDim.y * ROW_THREADS;
    for (uint32_t first = blockIdx.y * ROW_THREADS + threadIdx.x; first < n; first += AT_ONCE * step) {
        T v[AT_ONCE];
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (first + u * step < n)
                v[u] = *at(first + u * step);
#pragma unroll
        for (uint32_t u = 0; u < AT_ONCE; u++)
            if (first + u * step < n)
                y[first + u * step] = v[u];
    }
}

/* by.part 0: there are numbers that `over` is not for. */
DEVICE uint32_t head_at(uint32_t i, const struct lode_cuda_divisor &by) { return by.part ? over(i, by) : i / by.by; }
/* a.head: of y; a.group: of a head of a; with a.first, in fours where a.kind says so, and a.width is, too. */
template <class T> DEVICE void cut_row(const struct lode_cuda_row_args &a) {
    const T *x = row_at<const T>(a.a, blockIdx.x) + a.first;
    copy_row(row_at<T>(a.y, blockIdx.x), a.width, [&](uint32_t i) {
        const uint32_t head = head_at(i, a.head);
        return x + head * a.group + (i - head * a.head.by);
    });
}
KERNEL(ROW_THREADS) cut(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    if (a.kind)
        cut_row<float4>(a);
    else
        cut_row<float>(a);
}

template <class T> DEVICE void join_row(const struct lode_cuda_row_args &a) {
    const T *x = row_at<const T>(a.a, blockIdx.x), *z = row_at<const T>(a.b, blockIdx.x);
    copy_row(row_at<T>(a.y, blockIdx.x), a.width, [&](uint32_t i) {
        const uint32_t head = head_at(i, a.head), k = i - head * a.head.by;
        return k < a.group ? x + head * a.group + k : z + head * (a.head.by - a.group) + (k - a.group);
    });
}
KERNEL(ROW_THREADS) join(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    if (a.kind)
        join_row<float4>(a);
    else
        join_row<float>(a);
}

/* What ranks have of a row to where that is in the whole; what experts have made side by side, and back. */
KERNEL(ROW_THREADS) unite(const __grid_constant__ struct lode_cuda_unite_args a) {
    begin();
    const char *x = row_at<const char>(a.x, blockIdx.x) + blockIdx.z * a.x_rank;
    char *y = row_at<char>(a.y, blockIdx.x) + blockIdx.z * a.y_rank;
    EACH(i, a.width * a.n_heads) {
        const uint32_t head = i / a.width, k = i % a.width;
        ((float *)(y + head * a.y_head))[k] = ((const float *)(x + head * a.x_head))[k];
    }
}

/* ---- weights to planes: a block of threads a row ---- */

KERNEL(ROW_THREADS) repack(const __grid_constant__ struct lode_cuda_repack_args a) {
    begin();
    for (unsigned long long r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const uint8_t *src = at<const uint8_t>(a.src) + r * a.blocks * a.block_size;
        uint8_t *dst = at<uint8_t>(a.dst) + r * a.dst_stride;
        for (uint32_t p = 0; p < a.n_planes; p++) {
            for (uint32_t i = threadIdx.x; i < a.blocks * a.size[p]; i += blockDim.x)
                dst[i] = src[(size_t)(i / a.size[p]) * a.block_size + a.offset[p] + i % a.size[p]];
            dst += (size_t)a.blocks * a.size[p];
        }
    }
}
