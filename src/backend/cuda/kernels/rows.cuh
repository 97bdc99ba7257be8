/* rows.cuh - what kernels share that treat rows by themselves: the sixteen lanes' sum over a row in
 * shared memory, quotients, what an RMS norm divides by, rounding to 8 bits, gated activations. */
#ifndef LODE_CUDA_ROWS_CUH
#define LODE_CUDA_ROWS_CUH

#include "backend/cuda/kernels/products/blocks.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "graph/op.h"
#include "tensor/dtype.h"
#pragma pop_macro("inline")

enum { ROW_THREADS = 256 };

#define EACH(i, n)                                                                                 \
    for (uint32_t i = blockIdx.y * ROW_THREADS + threadIdx.x; i < (n); i += gridDim.y * ROW_THREADS)

extern __shared__ __align__(16) float row_mem[];

/* n numbers into shared memory, four loads on their way at a time. */
DEVICE void load_row(const float *x, uint32_t n) {
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        row_mem[i] = x[i];
}

/* The sixteen lanes' sum over row_mem's n numbers, each joining its lane by f; given to all
 * threads. */
template <class F> DEVICE float lanes_sum(uint32_t n, float *result, F f) {
    __syncthreads();
    if (threadIdx.x < 32) {
        const uint32_t l = threadIdx.x % 16;
        float acc = 0, next[16]; /* sixteen numbers are read while those before are summed */
        uint32_t i = l;
        auto read = [&](uint32_t from) {
            if (from + 15 * 16 < n)
#pragma unroll
                for (int u = 0; u < 16; u++)
                    next[u] = row_mem[from + 16 * u];
        };
        read(i);
#pragma unroll 1
        for (; i + 15 * 16 < n; i += 16 * 16) {
            float v[16];
#pragma unroll
            for (int u = 0; u < 16; u++)
                v[u] = next[u];
            read(i + 16 * 16);
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

/* ---- quotients ---- */

/* What several numbers are divided by.  With y = 1 / by correctly rounded, two steps of q + (x - by q) y from
 * q = x y give the correctly rounded quotient where nothing over- or underflows (Markstein, "Computation of
 * elementary functions on the IBM RISC System/6000", 1990: the first leaves less than an ulp, the second is his
 * theorem), in half of the instructions that a division of its own takes. */
struct divisor {
    float by, y;
    bool plain;
};
/* How far |v| is above 2^-60, which for numbers up to 2^60 is at most PLAIN: far from both ends. */
enum { PLAIN = 0x3c000000 };
DEVICE uint32_t above_least(float v) { return (lode_f32_bits(v) & 0x7fffffff) - 0x21800000u; }
DEVICE bool is_plain(float v) { return above_least(v) <= PLAIN; }
DEVICE struct divisor divisor_of(float by) { return {by, 1.0f / by, is_plain(by)}; }
DEVICE float quotient(float x, const struct divisor &d) {
    float q = x * d.y;
    q = fmaf(fmaf(-d.by, q, x), d.y, q);
    return fmaf(fmaf(-d.by, q, x), d.y, q);
}
/* Of a plain number, correctly rounded: what the compiler makes of 1 / by, without its question where by lies. */
DEVICE float plain_reciprocal(float by) {
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(by));
    return fmaf(fmaf(-by, r, 1.0f), r, r);
}
/* Where nothing else is known; in one place, as it is long. */
static __device__ __noinline__ float any_quotient(float x, float by) { return x / by; }
DEVICE float divided_one(float x, const struct divisor &d) {
    return d.plain && is_plain(x) ? quotient(x, d) : any_quotient(x, d.by);
}
template <int N> DEVICE void divide(float (&v)[N], const struct divisor &d) {
    uint32_t worst = 0; /* is_plain of all, by one comparison */
#pragma unroll
    for (int i = 0; i < N; i++) {
        const uint32_t above = above_least(v[i]);
        worst = above > worst ? above : worst;
    }
    if (d.plain && worst <= PLAIN) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = quotient(v[i], d);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = any_quotient(v[i], d.by);
    }
}
DEVICE float4 divided(float4 v, const struct divisor &d) {
    float x[4] = {v.x, v.y, v.z, v.w};
    divide(x, d);
    return make_float4(x[0], x[1], x[2], x[3]);
}

/* ---- an RMS norm ---- */

/* Numbers 4 i and on of a row to where those of each of the definition's sixteen lanes stand together, `pitch` apart, so that four are
 * read at a time. */
DEVICE void put_four(float *lanes, uint32_t pitch, uint32_t i, float4 v) {
    float *to = lanes + i % 4 * 4 * pitch + i / 4;
    to[0] = v.x, to[pitch] = v.y, to[2 * pitch] = v.z, to[3 * pitch] = v.w;
}
/* What the norm of `cols` numbers divides by, which lie so in row_mem, in n times 256 of them: behind the row are zeros, whose squares
 * change no sum of squares.  Begins and ends with a barrier. */
DEVICE struct divisor root_of_lanes(uint32_t pitch, uint32_t n, uint32_t cols, float eps) {
    __shared__ float sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float4 *p = (const float4 *)(row_mem + threadIdx.x % 16 * pitch);
        float4 next[4] = {p[0], p[1], p[2], p[3]};
        float acc = 0;
#pragma unroll 1
        for (; n; n--) {
            float4 v[4];
            p += 4;
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = next[i], next[i] = n > 1 ? p[i] : next[i];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc = fmaf(v[i].x, v[i].x, acc);
                acc = fmaf(v[i].y, v[i].y, acc);
                acc = fmaf(v[i].z, v[i].z, acc);
                acc = fmaf(v[i].w, v[i].w, acc);
            }
        }
        acc = join_lanes(acc);
        if (threadIdx.x == 0)
            sum = acc;
    }
    __syncthreads();
    return divisor_of(sqrtf(sum / (float)cols + eps));
}
DEVICE void times(float4 &v, float4 u) { v.x *= u.x, v.y *= u.y, v.z *= u.z, v.w *= u.w; }

/* ---- rounding to 8 bits (kern/quant_scalar.c) ---- */

DEVICE int round_even(float v) { return (int)((v + 0x1.8p23f) - 0x1.8p23f); }
/* Four numbers of up to 127 rounded, as bytes: those that end the sums' bits.  No conversion, which a multiprocessor does
 * for few threads at a time. */
DEVICE uint32_t round_bytes(float a, float b, float c, float d) {
    const float by = 0x1.8p23f;
    const uint32_t low = __byte_perm(lode_f32_bits(a + by), lode_f32_bits(b + by), 0x0040),
                   high = __byte_perm(lode_f32_bits(c + by), lode_f32_bits(d + by), 0x0040);
    return __byte_perm(low, high, 0x5410);
}
DEVICE int sum_bytes(uint32_t v, int sum) { return __dp4a((int)v, 0x01010101, sum); }
DEVICE uint32_t sum_of_warp(uint32_t v) {
#if __CUDA_ARCH__ >= 800
    return __reduce_add_sync(0xffffffffu, v);
#else
    for (uint32_t k = 1; k < 32; k *= 2)
        v += __shfl_xor_sync(0xffffffffu, v, k);
    return v;
#endif
}
DEVICE uint32_t magnitude(float v) { return lode_f32_bits(v) & 0x7fffffff; }
DEVICE uint32_t most_of(float4 v, uint32_t m) {
    m = max(m, magnitude(v.x)), m = max(m, magnitude(v.y));
    return max(max(m, magnitude(v.z)), magnitude(v.w));
}
#define TINY 0x1p-100f

/* Numbers 8 lane .. 8 lane + 7 of a block of 256, rounded by a warp. */
struct rounded_256 {
    float d;
    int mul, sum; /* sum: of the sixteen numbers of two neighbouring threads, times mul */
    uint2 q;      /* this thread's eight */
};
/* What a block's largest number, and that of a group of 32, make of it. */
struct scales_256 {
    float d, by; /* by: what the group's numbers are multiplied by */
    int mul;
};
template <class F> DEVICE struct scales_256 scales_of(float inverse, float to_m, float d, float part, F divide_by) {
    const float m = ceilf(part * to_m), times = m < 1 ? 1 : m > 16 ? 16 : m;
    return {d, divide_by(inverse, times), (int)times};
}
static __device__ __noinline__ struct scales_256 any_scales(float max, float part) {
    return scales_of(127.0f * 16 / max, 16 / max, max / (127.0f * 16), part, [](float x, float by) { return x / by; });
}
DEVICE struct scales_256 plain_scales(float max, float part) {
    const struct divisor by_max = {max, plain_reciprocal(max), true}, by_2032 = {127.0f * 16, 1.0f / (127.0f * 16), true};
    return scales_of(quotient(127.0f * 16, by_max), 16 * by_max.y, quotient(max, by_2032), part, [](float x, float by) {
        return quotient(x, {by, plain_reciprocal(by), true}); /* by: 1 to 16 */
    });
}
DEVICE struct rounded_256 round_256(const float x[8]) {
    uint32_t bits = 0;
    for (int i = 0; i < 8; i++) {
        const uint32_t m = magnitude(x[i]);
        bits = m > bits ? m : bits;
    }
    bits = warp_max(bits, 4); /* of 32 numbers: four threads */
    const float part = lode_bits_f32(bits);
    bits = max_of_warp(bits);
    const float max = lode_bits_f32(bits);
    struct rounded_256 r = {0, 1, 0, {0, 0}};
    int sum = 0;
    if (bits < 0x7f800000 && max >= TINY) {
        const struct scales_256 s = is_plain(max) ? plain_scales(max, part) : any_scales(max, part);
        r.d = s.d, r.mul = s.mul;
        r.q.x = round_bytes(x[0] * s.by, x[1] * s.by, x[2] * s.by, x[3] * s.by);
        r.q.y = round_bytes(x[4] * s.by, x[5] * s.by, x[6] * s.by, x[7] * s.by);
        sum = sum_bytes(r.q.y, sum_bytes(r.q.x, 0));
    } else if (bits >= 0x7f800000) {
        r.d = lode_bits_f32(0x7fc00000);
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    r.sum = r.mul * sum;
    return r;
}
/* As a block of A256 (tensor/block.h). */
DEVICE void put_a256(uint8_t *y, const struct rounded_256 &r) {
    const uint32_t lane = threadIdx.x % 32;
    *(uint2 *)(y + 48 + lane * 8) = r.q;
    if (lane % 2 == 0)
        *(int16_t *)(y + 16 + lane) = (int16_t)r.sum;
    if (lane % 4 == 0)
        y[4 + lane / 4] = (uint8_t)r.mul;
    if (lane == 0) {
        *(float *)y = r.d;
        *(uint32_t *)(y + 12) = 0;
    }
}
DEVICE struct rounded_256 get_a256(const uint8_t *y) {
    const uint32_t lane = threadIdx.x % 32;
    return {*(const float *)y, y[4 + lane / 4], *(const int16_t *)(y + 16 + lane / 2 * 2),
            *(const uint2 *)(y + 48 + lane * 8)};
}
DEVICE void round_a256(uint8_t *y, const float x[8]) { put_a256(y, round_256(x)); }

/* Numbers 4 (lane % 8) .. + 3 of a block of 32, by eight neighbouring threads. */
struct rounded {
    float d;
    int sum;
    uint32_t q; /* this thread's four */
};
/* What the largest magnitude of a block of 32 makes of it. */
struct scale_32 {
    float d, by; /* by: what numbers are multiplied by */
    bool codes;  /* or all are 0 */
};
DEVICE struct scale_32 scale_32_of(uint32_t most) {
    const float max = lode_bits_f32(most);
    if (most >= 0x7f800000)
        return {lode_bits_f32(0x7fc00000), 0, false};
    if (max < TINY)
        return {0, 0, false};
    return {max / 127.0f, 127.0f / max, true};
}
DEVICE uint32_t codes_32(const struct scale_32 &s, float4 x) {
    return s.codes ? round_bytes(x.x * s.by, x.y * s.by, x.z * s.by, x.w * s.by) : 0;
}
DEVICE struct rounded round_a32(float4 x) {
    const struct scale_32 s = scale_32_of(warp_max(most_of(x, 0), 8));
    struct rounded r = {s.d, 0, codes_32(s, x)};
    r.sum = sum_bytes(r.q, 0);
    for (int w = 4; w; w /= 2)
        r.sum += __shfl_xor_sync(0xffffffffu, r.sum, w);
    return r;
}

/* As a block of A32, by the same eight. */
DEVICE void put_a32(uint8_t *y, const struct rounded &r) {
    const uint32_t k = threadIdx.x % 8;
    *(uint32_t *)(y + 8 + 4 * k) = r.q;
    if (k == 0) {
        *(float *)y = r.d;
        *(int *)(y + 4) = r.sum;
    }
}

/* ---- residuals ---- */

/* A product's result v, or a norm's, with what is added to it; a says how: lode_cuda_gemv_args, lode_cuda_fast_end, lode_cuda_row_args,
 * lode_cuda_row_sum. */
template <class A> DEVICE float with_residual(const A &a, float v, float r) {
    return a.scale == 1.0f ? r + v : a.product_first ? fmaf(a.scale, r, v) : fmaf(a.scale, v, r);
}
template <class A> DEVICE float4 with_residuals(const A &a, float4 v, float4 r) {
    return make_float4(with_residual(a, v.x, r.x), with_residual(a, v.y, r.y), with_residual(a, v.z, r.z), with_residual(a, v.w, r.w));
}

/* ---- gated activations ---- */

DEVICE float glu_of(uint32_t kind, float gate, float up) {
    switch (kind) {
    case LODE_GLU_SILU:
        return lode_siluf(gate) * up;
    case LODE_GLU_GELU:
        return lode_geluf(gate) * up;
    case LODE_GLU_CLAMPED:
        return lode_clampedf(gate, up);
    case LODE_GLU_SIGMOID:
        return up / (1.0f + lode_expf(-gate));
    default:
        return gate * up;
    }
}
/* What gate and up of a pair are multiplied by before they meet; a: lode_cuda_few_pairs_args, lode_cuda_spread_met_args. */
template <class A> DEVICE float weight_before(const A &a, uint32_t pair) {
    return a.weigh_input ? row_at<const float>(a.route, pair / a.n_used)[2 * (pair % a.n_used) + 1] : 1;
}
/* Of four numbers of gate and of up, each times `by`; times 1 changes nothing. */
DEVICE float4 glu_of_weighed(uint32_t kind, float4 gate, float4 up, float by) {
    return make_float4(glu_of(kind, gate.x * by, up.x * by), glu_of(kind, gate.y * by, up.y * by), glu_of(kind, gate.z * by, up.z * by),
                       glu_of(kind, gate.w * by, up.w * by));
}
/* glu_of where code must be short: only what most models have is at hand, as the others' code is long. */
static __device__ __noinline__ float other_glu(uint32_t kind, float gate, float up) { return glu_of(kind, gate, up); }
DEVICE float short_glu_of(uint32_t kind, float gate, float up) {
    return kind == LODE_GLU_SILU ? lode_siluf(gate) * up : other_glu(kind, gate, up);
}
/* Of four numbers side by side, in one place. */
static __device__ __noinline__ float4 glu_of_four(uint32_t kind, float4 gate, float4 up) {
    return make_float4(short_glu_of(kind, gate.x, up.x), short_glu_of(kind, gate.y, up.y), short_glu_of(kind, gate.z, up.z),
                       short_glu_of(kind, gate.w, up.w));
}

#endif
