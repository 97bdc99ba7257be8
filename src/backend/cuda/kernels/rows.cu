/* rows.cu - ops that treat every row by itself: the definitions are backend/cpu/rows.c and
 * kern/row_scalar.c, act_scalar.c, quant_scalar.c, kv_scalar.c.  blockIdx.x is the row. */
#include "blocks.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "graph/op.h"
#include "tensor/dtype.h"
#pragma pop_macro("inline")

enum { ROW_THREADS = 256 };

/* ---- embedding ---- */

DEVICE uint32_t embedded(const struct lode_cuda_embed_args &a) {
    const struct lode_cuda_row &r = step_row(a.step, blockIdx.x);
    return a.by == LODE_BY_TOKEN ? (uint32_t)r.token : a.by == LODE_BY_POSITION ? r.pos : r.part;
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
                    v = d.x * (float)q;                                                            \
                    if (name::HAS_M)                                                               \
                        v = v + d.y;                                                               \
                }                                                                                  \
                y[group_start<struct name>(b, second ? c.g1 : c.g0) + i % 16] =                    \
                    scaled(v, a.scale);                                                            \
            }                                                                                      \
        }                                                                                          \
    }
LODE_CUDA_QUANT_LIST(EMBED_QUANT)

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

/* ---- norms: one block of threads a group of a row (blockIdx.y) ---- */

extern __shared__ float row_mem[];

/* n numbers into shared memory, four loads on their way at a time. */
DEVICE void load_row(const float *x, uint32_t n) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        row_mem[i] = x[i];
}

/* The sixteen lanes' sum over row_mem's n numbers, each joining its lane by f; given to all threads. */
template <class F> DEVICE float lanes_sum(uint32_t n, float *result, F f) {
    __syncthreads();
    if (threadIdx.x < 32) {
        const uint32_t l = threadIdx.x % 16;
        float acc = 0;
        uint32_t i = l;
        for (; i + 15 * 16 < n; i += 16 * 16) { /* the loads of sixteen numbers before their sums */
            float v[16];
#pragma unroll
            for (int u = 0; u < 16; u++)
                v[u] = row_mem[i + 16 * u];
#pragma unroll
            for (int u = 0; u < 16; u++)
                acc = f(v[u], acc);
        }
        for (; i < n; i += 16)
            acc = f(row_mem[i], acc);
        acc = join_lanes(acc);
        if (threadIdx.x == 0)
            *result = acc;
    }
    __syncthreads();
    return *result;
}

KERNEL(1024) rms_norm(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    __shared__ float sum;
    const float *x = row_at<const float>(a.a, blockIdx.x) + blockIdx.y * a.group;
    float *y = row_at<float>(a.y, blockIdx.x) + blockIdx.y * a.group;
    const float *w = at<const float>(a.w);
    load_row(x, a.group);
    const float dot = lanes_sum(a.group, &sum, [](float v, float acc) {
        return fmaf(v, v, acc);
    });
    const float root = sqrtf(dot / (float)a.group + a.eps);
    for (uint32_t i = threadIdx.x; i < a.group; i += blockDim.x)
        y[i] = w ? row_mem[i] / root * w[i] : row_mem[i] / root;
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

/* ---- activations to 8 bits: a warp a block ---- */

DEVICE int round_even(float v) { return (int)((v + 0x1.8p23f) - 0x1.8p23f); }
DEVICE uint32_t warp_max(uint32_t v, int width) {
    for (int w = width / 2; w; w /= 2) {
        const uint32_t o = __shfl_xor_sync(0xffffffffu, v, w);
        v = o > v ? o : v;
    }
    return v;
}
DEVICE uint32_t magnitude(float v) { return lode_f32_bits(v) & 0x7fffffff; }
#define TINY 0x1p-100f

KERNEL(ROW_THREADS) quant_a32(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const uint32_t lane = threadIdx.x % 32, b = blockIdx.y * 8 + threadIdx.x / 32;
    if (b >= a.width / 32)
        return;
    const float x = row_at<const float>(a.a, blockIdx.x)[b * 32 + lane];
    uint8_t *y = row_at<uint8_t>(a.y, blockIdx.x) + b * 40;
    const uint32_t bits = warp_max(magnitude(x), 32);
    const float max = lode_bits_f32(bits);
    float d = 0;
    int q = 0;
    if (bits >= 0x7f800000) {
        d = lode_bits_f32(0x7fc00000);
    } else if (max >= TINY) {
        const float inverse = 127.0f / max;
        d = max / 127.0f;
        q = round_even(x * inverse);
    }
    int sum = q;
    for (int w = 16; w; w /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, w);
    y[8 + lane] = (uint8_t)q;
    if (lane == 0) {
        *(float *)y = d;
        *(int *)(y + 4) = sum;
    }
}

KERNEL(ROW_THREADS) quant_a256(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const uint32_t lane = threadIdx.x % 32, b = blockIdx.y * 8 + threadIdx.x / 32;
    if (b >= a.width / 256)
        return;
    const float4 *in = (const float4 *)(row_at<const float>(a.a, blockIdx.x) + b * 256 + lane * 8);
    const float4 u = in[0], v = in[1];
    const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
    uint8_t *y = row_at<uint8_t>(a.y, blockIdx.x) + (size_t)b * 304;
    uint32_t bits = 0;
    for (int i = 0; i < 8; i++) {
        const uint32_t m = magnitude(x[i]);
        bits = m > bits ? m : bits;
    }
    bits = warp_max(bits, 4); /* of 32 numbers: four threads */
    const float part = lode_bits_f32(bits);
    for (int w = 16; w > 2; w /= 2) {
        const uint32_t o = __shfl_xor_sync(0xffffffffu, bits, w);
        bits = o > bits ? o : bits;
    }
    const float max = lode_bits_f32(bits);
    float d = 0;
    int mul = 1, q[8] = {0}, sum = 0;
    if (bits < 0x7f800000 && max >= TINY) {
        const float inverse = 127.0f * 16 / max, to_m = 16 / max;
        d = max / (127.0f * 16);
        const float m = ceilf(part * to_m);
        mul = (uint8_t)(m < 1 ? 1 : m > 16 ? 16 : m);
        const float by = inverse / (float)mul;
        for (int i = 0; i < 8; i++) {
            q[i] = round_even(x[i] * by);
            sum += q[i];
        }
    } else if (bits >= 0x7f800000) {
        d = lode_bits_f32(0x7fc00000);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    uint32_t packed[2];
    for (int i = 0; i < 2; i++)
        packed[i] = (uint32_t)(q[4 * i] & 255) | (uint32_t)(q[4 * i + 1] & 255) << 8 |
                    (uint32_t)(q[4 * i + 2] & 255) << 16 | (uint32_t)(q[4 * i + 3] & 255) << 24;
    *(uint2 *)(y + 48 + lane * 8) = make_uint2(packed[0], packed[1]);
    if (lane % 2 == 0)
        *(int16_t *)(y + 16 + lane) = (int16_t)(mul * sum);
    if (lane % 4 == 0)
        y[4 + lane / 4] = (uint8_t)mul;
    if (lane == 0) {
        *(float *)y = d;
        *(uint32_t *)(y + 12) = 0;
    }
}

/* ---- number by number ---- */

#define EACH(i, n)                                                                                 \
    for (uint32_t i = blockIdx.y * ROW_THREADS + threadIdx.x; i < (n); i += gridDim.y * ROW_THREADS)

KERNEL(ROW_THREADS) add(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x), *z = row_at<const float>(a.b, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = a.scale == 1.0f ? x[i] + z[i] : fmaf(a.scale, z[i], x[i]);
}

DEVICE float glu_of(uint32_t kind, float gate, float up) {
    switch (kind) {
    case LODE_GLU_SILU: return lode_siluf(gate) * up;
    case LODE_GLU_GELU: return lode_geluf(gate) * up;
    case LODE_GLU_CLAMPED: return lode_clampedf(gate, up);
    case LODE_GLU_SIGMOID: return up / (1.0f + lode_expf(-gate));
    default: return gate * up;
    }
}

KERNEL(ROW_THREADS) glu(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x), *z = row_at<const float>(a.b, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = glu_of(a.kind, x[i], z[i]);
}

KERNEL(ROW_THREADS) act(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = a.kind == LODE_ACT_GELU ? lode_geluf(x[i])
               : a.kind == LODE_ACT_GELU_ERF ? lode_gelu_erff(x[i]) : lode_relu2f(x[i]);
}

KERNEL(ROW_THREADS) row_gate(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    const float factor = 1.0f / (1.0f + lode_expf(-*row_at<const float>(a.b, blockIdx.x)));
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.width)
        y[i] = x[i] * factor;
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

KERNEL(ROW_THREADS) cut(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    const uint32_t width = a.width / a.n, whole = a.width_a / a.n;
    EACH(i, a.width)
        y[i] = x[i / width * whole + a.first + i % width];
}

KERNEL(ROW_THREADS) join(const __grid_constant__ struct lode_cuda_row_args a) {
    begin();
    const float *x = row_at<const float>(a.a, blockIdx.x), *z = row_at<const float>(a.b, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    const uint32_t wa = a.width_a / a.n, wb = a.width_b / a.n, w = wa + wb;
    EACH(i, a.width)
        y[i] = i % w < wa ? x[i / w * wa + i % w] : z[i / w * wb + i % w - wa];
}

/* ---- positions ---- */

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

/* ---- experts, around their products ---- */

enum { ROUTE_MOST = 1024, USED_MOST = 64 };

/* kern/softmax_scalar.c over n numbers, by one warp: s becomes exp(s - max). */
DEVICE void softmax_warp(float *s, uint32_t n, float *sum) {
    const uint32_t l = threadIdx.x % 16;
    float max = -INFINITY, total = 0;
    for (uint32_t i = l; i < n; i += 16)
        max = s[i] > max ? s[i] : max;
    max = join_max(max);
    if (threadIdx.x < 16)
        for (uint32_t i = l; i < n; i += 16) {
            s[i] = lode_expf(s[i] - max);
            total += s[i];
        }
    __syncwarp();
    *sum = join_lanes(__shfl_sync(0xffffffffu, total, l));
}

DEVICE void drop_groups(float *choice, const struct lode_cuda_route_args &a) {
    const uint32_t size = a.n / a.n_groups;
    float score[64];
    for (uint32_t g = 0; g < a.n_groups; g++) {
        float best = -INFINITY, second = -INFINITY;
        for (uint32_t i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > best) {
                second = best;
                best = choice[i];
            } else if (choice[i] > second) {
                second = choice[i];
            }
        }
        score[g] = a.bias ? best + second : best;
    }
    for (uint32_t g = 0; g < a.n_groups; g++) {
        uint32_t better = 0;
        for (uint32_t h = 0; h < a.n_groups; h++)
            better += score[h] > score[g] || (score[h] == score[g] && h < g);
        for (uint32_t i = g * size; better >= a.n_groups_used && i < (g + 1) * size; i++)
            choice[i] = -INFINITY;
    }
}

/* The n_used largest, ties to the smaller id; marks them in `taken`. */
DEVICE void choose(const float *choice, uint8_t *taken, uint32_t n, uint32_t n_used) {
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t i = threadIdx.x; i < n; i += 32)
            if (!taken[i] && (best == UINT32_MAX || choice[i] > choice[best]))
                best = i;
        for (int w = 16; w; w /= 2) {
            const uint32_t o = __shfl_xor_sync(0xffffffffu, best, w);
            if (o != UINT32_MAX &&
                (best == UINT32_MAX || choice[o] > choice[best] ||
                 (choice[o] == choice[best] && o < best)))
                best = o;
        }
        if (threadIdx.x == 0)
            taken[best] = 1;
        __syncwarp();
    }
}

DEVICE void mix_sparsely(float *choice, const float *logits, uint32_t n, uint32_t n_used,
                         const uint32_t *ids, float *w) {
    const float far = 2 * 0.01f;
    for (uint32_t k = 0; k < n_used; k++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < n; i++)
            best = choice[i] > choice[best] ? i : best;
        const float m = choice[best];
        float sum = 0;
        for (uint32_t i = 0; i < n; i++) {
            const float size = fabsf(logits[i]) > m ? fabsf(logits[i]) : m;
            if (choice[i] > -INFINITY && !((m - choice[i]) / size > far))
                sum += lode_expf(choice[i] - m);
        }
        for (uint32_t j = 0; j < n_used; j++)
            if (ids[j] == best)
                w[j] = 1 / sum;
        choice[best] = -INFINITY;
    }
}

/* One warp a row: backend/cpu/route.c. */
KERNEL(32) route(const __grid_constant__ struct lode_cuda_route_args a) {
    begin();
    __shared__ float scores[ROUTE_MOST], choice[ROUTE_MOST], w[USED_MOST];
    __shared__ uint32_t ids[USED_MOST];
    __shared__ uint8_t taken[ROUTE_MOST];
    const float *logits = row_at<const float>(a.x, blockIdx.x), *bias = at<const float>(a.bias);
    float *y = row_at<float>(a.y, blockIdx.x);
    float sum = 0;
    for (uint32_t i = threadIdx.x; i < a.n; i += 32) {
        scores[i] = logits[i];
        taken[i] = 0;
    }
    __syncwarp();
    if (a.gating == LODE_GATE_SOFTMAX) {
        softmax_warp(scores, a.n, &sum);
        for (uint32_t i = threadIdx.x; i < a.n; i += 32)
            scores[i] /= sum;
    } else if (a.gating == LODE_GATE_SIGMOID) {
        for (uint32_t i = threadIdx.x; i < a.n; i += 32)
            scores[i] = 1.0f / (1.0f + lode_expf(-scores[i]));
    }
    for (uint32_t i = threadIdx.x; i < a.n; i += 32)
        choice[i] = bias ? scores[i] + bias[i] : scores[i];
    __syncwarp();
    if (a.n_groups > 1 && threadIdx.x == 0)
        drop_groups(choice, a);
    __syncwarp();
    choose(choice, taken, a.n, a.n_used);
    if (threadIdx.x == 0) {
        uint32_t k = 0;
        for (uint32_t i = 0; i < a.n; i++)
            if (taken[i]) {
                ids[k] = i;
                w[k++] = scores[i];
            }
    }
    __syncwarp();
    if (a.gating == LODE_GATE_SPARSEMIXER) {
        if (threadIdx.x == 0)
            mix_sparsely(choice, logits, a.n, a.n_used, ids, w);
    } else if (a.gating == LODE_GATE_SOFTMAX_TOP) {
        softmax_warp(w, a.n_used, &sum);
        __syncwarp();
        for (uint32_t k = threadIdx.x; k < a.n_used; k += 32)
            w[k] /= sum;
    } else if (a.normalise) {
        sum = 0;
        for (uint32_t k = 0; k < a.n_used; k++)
            sum += w[k];
        __syncwarp();
        for (uint32_t k = threadIdx.x; k < a.n_used; k += 32)
            w[k] /= sum;
    }
    __syncwarp();
    for (uint32_t k = threadIdx.x; k < a.n_used; k += 32) {
        ((int *)y)[2 * k] = (int)ids[k];
        y[2 * k + 1] = w[k] * a.scale;
    }
}

KERNEL(ROW_THREADS) moe_act(const __grid_constant__ struct lode_cuda_moe_act_args a) {
    begin();
    const uint32_t pair = blockIdx.x;
    const float weight = row_at<const float>(a.route, pair / a.n_used)[2 * (pair % a.n_used) + 1];
    const float *gate = (const float *)(a.gate + pair * a.stride);
    const float *up = (const float *)(a.up + pair * a.stride);
    float *y = (float *)(a.y + pair * a.stride);
    EACH(i, a.n)
        y[i] = a.weigh_input ? glu_of(a.act, gate[i] * weight, up[i] * weight)
                             : glu_of(a.act, gate[i], up[i]);
}

KERNEL(ROW_THREADS) moe_sum(const __grid_constant__ struct lode_cuda_moe_sum_args a) {
    begin();
    const float *route = row_at<const float>(a.route, blockIdx.x);
    float *y = row_at<float>(a.y, blockIdx.x);
    EACH(i, a.n) {
        float sum = 0;
        for (uint32_t k = 0; k < a.n_used; k++)
            sum = fmaf(a.weigh_input ? 1.0f : route[2 * k + 1],
                       ((const float *)(a.down + (blockIdx.x * a.n_used + k) * a.stride))[i], sum);
        y[i] = sum;
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
