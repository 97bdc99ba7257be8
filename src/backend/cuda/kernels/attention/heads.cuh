/* heads.cuh - what a warp does to one head of queries, keys or values: norm, rotation, the cache's
 * entry. */
#ifndef LODE_CUDA_HEADS_CUH
#define LODE_CUDA_HEADS_CUH

#include "backend/cuda/kernels/rows.cuh"

enum { WEIGHTS_AHEAD = 4 };

/* A thread's first weights of a norm of n numbers; w may be NULL. */
struct head_weights {
    float of[WEIGHTS_AHEAD];
};
DEVICE struct head_weights read_weights(const float *w, uint32_t n) {
    struct head_weights own;
#pragma unroll
    for (int u = 0; u < WEIGHTS_AHEAD; u++) {
        const uint32_t i = threadIdx.x % 32 + 32 * u;
        own.of[u] = w && i < n ? w[i] : 0;
    }
    return own;
}

/* A warp's row of n numbers in shared memory, normed. */
DEVICE void norm_warp(float *x, uint32_t n, const float *w, const struct head_weights &own, float eps) {
    const uint32_t lane = threadIdx.x % 32;
    float acc = 0;
    for (uint32_t i = threadIdx.x % 16; i < n; i += 16)
        acc = fmaf(x[i], x[i], acc);
    const struct divisor root = divisor_of(sqrtf(join_lanes(acc) / (float)n + eps));
    __syncwarp();
    auto norm = [&](uint32_t i, float weight) {
        const float v = divided_one(x[i], root);
        x[i] = w ? v * weight : v;
    };
#pragma unroll
    for (int u = 0; u < WEIGHTS_AHEAD; u++)
        if (lane + 32 * u < n)
            norm(lane + 32 * u, own.of[u]);
    for (uint32_t i = lane + 32 * WEIGHTS_AHEAD; i < n; i += 32)
        norm(i, w ? w[i] : 0);
    __syncwarp();
}
/* The weights are on their way while the numbers are summed. */
DEVICE void norm_warp(float *x, uint32_t n, const float *w, float eps) { norm_warp(x, n, w, read_weights(w, n), eps); }

enum { PAIRS_MOST = 128 };

/* A thread's entries of a row's table. */
struct turns {
    float2 of[PAIRS_MOST / 32];
};
template <int MOST = PAIRS_MOST> DEVICE struct turns read_turns(const float2 *table, uint32_t n_pairs) {
    struct turns t = {};
#pragma unroll
    for (int u = 0; u < MOST / 32; u++) {
        const uint32_t i = 32 * u + threadIdx.x % 32;
        t.of[u] = i < n_pairs ? table[i] : make_float2(0, 0);
    }
    return t;
}

/* As rope's; all pairs are read before any is written. */
DEVICE void turn_warp(float *x, uint32_t n_pairs, uint32_t kind, const struct turns &turns) {
    float2 v[PAIRS_MOST / 32];
#pragma unroll
    for (int u = 0; u < PAIRS_MOST / 32; u++) {
        const uint32_t i = 32 * u + threadIdx.x % 32;
        if (i >= n_pairs)
            break;
        const float2 t = turns.of[u];
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

/* A warp's 32 numbers as a block of Q8_0, at one place or two. */
DEVICE void put_block(uint8_t *blk, uint8_t *other, float v) {
    const uint32_t lane = threadIdx.x % 32, bits = warp_max(magnitude(v), 32);
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
    if (other) {
        other[2 + lane] = (uint8_t)q;
        if (lane == 0)
            *(uint16_t *)other = h;
    }
}

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
        for (uint32_t b = 0; b < n / 32; b++)
            put_block(y + 34 * b, NULL, x[32 * b + lane]);
}

#endif
