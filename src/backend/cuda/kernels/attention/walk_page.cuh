/* walk_page.cuh - what decode_walk.cu's warps make of rows in shared memory: scores of keys, weights, sums of values.
 *
 * Four threads are a key, each with four of the sixteen lanes of up to four query heads; a thread has
 * two keys at once, so that what it reads of the queries serves both.  Neighbouring threads are keys, as what they read of
 * the queries is then the same and comes in half as many turns.  What they read of keys lies in the same place of their
 * rows, which are padded or in panels, so that it is in different banks. */
#ifndef LODE_CUDA_WALK_PAGE_CUH
#define LODE_CUDA_WALK_PAGE_CUH

#include "attention_shared.h"
#include "decode.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"

enum { WARPS = LODE_WALK_WARPS, SLOTS = LODE_WALK_SLOTS, BLOCKS = LODE_WALK_BLOCKS, ROWS = LODE_WALK_ROWS };
enum { PAIRS = WARPS / 2, PARTS = PAGE / 2 / ROWS, HALF = PAGE / 2 }; /* a warp's slots of a page's keys, or values */
static_assert(PARTS * ROWS == HALF && ROWS == 16, "a slot's rows are eight threads' two keys");

/* n floats, a multiple of 4, or 1 or 2 */
template <int n> DEVICE void load_floats(float *y, uint32_t p) {
    if (n >= 4) {
#pragma unroll
        for (int i = 0; i + 4 <= n; i += 4) {
            const float4 v = load4(p + 4 * i);
            y[i] = v.x, y[i + 1] = v.y, y[i + 2] = v.z, y[i + 3] = v.w;
        }
    } else if (n == 2) {
        const uint2 v = load2(p);
        y[0] = lode_bits_f32(v.x), y[1] = lode_bits_f32(v.y);
    } else {
        y[0] = load_float(p);
    }
}

/* N numbers of a row from n on, N being 2 or 4 and n a multiple of it. */
template <int TYPE, int N> DEVICE void some(float (&y)[N], uint32_t row, uint32_t n) {
    if (TYPE == LODE_Q8_0) {
        const uint32_t block = row + n / 32 * 34, p = block + 2 + n % 32;
        const float d = f16_f32((uint16_t)load_half(block));
        /* 0x4b0000xx is 2^23 + xx; bytes are xx - 128 */
        const uint32_t q = (load_half(p) | (N == 4 ? load_half(p + 2) << 16 : 0)) ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < N; i++)
            y[i] = (lode_bits_f32(__byte_perm(q, 0x4b000000, 0x7440 + i)) - (0x1p23f + 128)) * d;
    } else {
        const uint32_t at = row + 2 * n;
        const uint2 v = N == 4 ? load2(at) : make_uint2(load1(at), 0);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t w = i < 2 ? v.x : v.y;
            y[i] = TYPE == LODE_F16 ? f16_f32((uint16_t)(w >> 16 * (i % 2)))
                                    : lode_bits_f32(i % 2 ? w & 0xffff0000u : w << 16);
        }
    }
}

/* Rows in a slot: so many bytes, and from one to the next. */
struct layout {
    uint32_t bytes, stride;
};
template <int TYPE> DEVICE struct layout layout_of(bool values, uint32_t dim) {
    if (TYPE == LODE_Q8_0)
        return {dim / 32 * 34, dim / 32 * 34};
    return {2 * dim, values ? 2 * dim : LODE_WALK_KEY_STRIDE(dim)};
}
/* Numbers of a head, known when compiling where DIM is not 0. */
template <int DIM> DEVICE uint32_t dim_of(uint32_t dim) { return DIM ? DIM : dim; }

/* Scores of a slot's 16 keys for HEADS query heads, to s: key's at s + key * ld. */
template <int HEADS, int TYPE, int DIM>
DEVICE void score(float *s, uint32_t ld, uint32_t q, uint32_t n, uint32_t slot) {
    constexpr bool KNOWN = DIM != 0;
    static_assert(!KNOWN || TYPE != LODE_Q8_0, "rows of 2 bytes a number");
    constexpr int UNROLLED = KNOWN ? 4 : 2;
    const uint32_t dim = dim_of<DIM>(n), stride = KNOWN ? 128 : layout_of<TYPE>(false, dim).stride;
    const uint32_t lane = threadIdx.x % 32, t = lane / 8, b = lane % 8;
    uint32_t row[2], at[2][4]; /* of a panel: four addresses of a row's 128 bytes */
    float acc[HEADS][2][4]; /* of keys b + 8 (i ^ t / 2): a partner then wants what the other has in a fixed place */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        row[i] = slot + (b + 8 * (i ^ t / 2)) * stride;
#pragma unroll
        for (int m = 0; m < 4; m++)
            at[i][m] = row[i] + ((8 * t + 32 * m) ^ 16 * b);
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int l = 0; l < 4; l++)
                acc[g][i][l] = 0;
    }
#pragma unroll UNROLLED
    for (uint32_t m = 0; m < dim / 16; m++) {
        const uint32_t c = 4 * t + 16 * m;
        float4 x[HEADS];
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            x[g] = load4(q + 4 * (g * dim + c));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float y[4];
            if (KNOWN)
                some<TYPE>(y, at[i][m % 4] + m / 4 * (128 * ROWS), 0);
            else
                some<TYPE>(y, row[i], c);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                acc[g][i][0] = fmaf(x[g].x, y[0], acc[g][i][0]);
                acc[g][i][1] = fmaf(x[g].y, y[1], acc[g][i][1]);
                acc[g][i][2] = fmaf(x[g].z, y[2], acc[g][i][2]);
                acc[g][i][3] = fmaf(x[g].w, y[3], acc[g][i][3]);
            }
        }
    }
    /* the tree of lanes: + 8 is t ^ 2, + 4 t ^ 1, + 2 and + 1 are within; t has key b + 8 (t / 2) */
    s += (b + 8 * (t / 2)) * ld;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        float v[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const float near = acc[g][0][l] + __shfl_xor_sync(0xffffffffu, acc[g][1][l], 16);
            v[l] = near + __shfl_xor_sync(0xffffffffu, near, 8);
        }
        if (t % 2 == 0)
            s[g] = (v[0] + v[2]) + (v[1] + v[3]);
    }
}

/* HEADS heads' scores of a page, key's at s + key * ld, of which n are there, to their weights; largest and total to
 * ml (heads, max_pages) of the first n_q. */
template <int HEADS>
DEVICE void weigh(const struct lode_cuda_att_args &a, float *s, uint32_t ld, uint32_t n, float2 *ml, uint32_t n_q) {
    const uint32_t lane = threadIdx.x % 32;
    float e[HEADS][2], scale = a.scale;
#pragma unroll
    for (int g = 0; g < HEADS; g++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            e[g][h] = s[(lane + 32 * h) * ld + g];
    if (a.cap > 0) {
        scale = 1;
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                e[g][h] = a.cap * lode_tanhf(e[g][h] * a.scale / a.cap);
    }
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        float max = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            e[g][h] *= scale;
            if (lane + 32 * h < n)
                max = e[g][h] > max ? e[g][h] : max;
        }
#pragma unroll
        for (int w = 1; w < 32; w *= 2) {
            const float o = __shfl_xor_sync(0xffffffffu, max, w);
            max = o > max ? o : max;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float v = exp_below(e[g][h] - max);
            e[g][h] = lane + 32 * h < n ? v : 0.0f;
            s[(lane + 32 * h) * ld + g] = e[g][h];
        }
        /* key's lane is key % 16: a thread and its partner have its four keys in turn; what is not there adds 0 */
        const float o0 = __shfl_xor_sync(0xffffffffu, e[g][0], 16), o1 = __shfl_xor_sync(0xffffffffu, e[g][1], 16);
        float total = e[g][0] + o0;
        total += lane < 16 ? e[g][1] : o1;
        total += lane < 16 ? o1 : e[g][1];
#pragma unroll
        for (int w = 8; w > 0; w /= 2)
            total += __shfl_xor_sync(0xffffffffu, total, w);
        if (lane == 0 && g < (int)n_q)
            ml[(size_t)g * a.max_pages] = make_float2(max, total);
    }
}

/* n rows of values, `stride` bytes apart, by their weights at e, ld bytes apart: two numbers from c on. */
template <int HEADS, int TYPE>
DEVICE void mix(float (&y)[HEADS][2], uint32_t e, uint32_t ld, uint32_t slot, uint32_t stride, uint32_t n, uint32_t c) {
    const auto row = [&](uint32_t j) {
        float x[2], w[HEADS];
        some<TYPE>(x, slot + j * stride, c);
        load_floats<HEADS>(w, e + j * ld);
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            y[g][0] = fmaf(w[g], x[0], y[g][0]), y[g][1] = fmaf(w[g], x[1], y[g][1]);
    };
    if (n == ROWS)
#pragma unroll
        for (uint32_t j = 0; j < ROWS; j++)
            row(j);
    else
#pragma unroll 1
        for (uint32_t j = 0; j < n; j++)
            row(j);
}

#endif
