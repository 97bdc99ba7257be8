/* attention_fast.cuh - attention in --numerics tensor: what prompts (attention_fast.cu) and steps of one row a
 * sequence (decode_fast.cu, decode_short_fast.cu) compute alike, so that a row has the same bits in both.
 *
 * The definition is that of backend/cpu/attention.c, page by page, but for what a page gives:
 *
 *     scores   queries are rounded to the keys' type, halves times a power of two for each row and head (as rows
 *              of x that meet F16 weights, halves.cuh); sixteen numbers at a time, in ascending order, are added to
 *              one float by the tensor cores (fast.cuh says how)
 *     weights  e = 2^(log2(e) fma(s, scale, -m')) by the hardware's ex2.approx
 *     l'       four threads' sums of keys 8 t + 2 q and 8 t + 2 q + 1 in ascending order, joined as (0 + 1) + (2 + 3)
 *     o'       e rounded to the values' type by the values, sixteen keys at a time, in ascending order; what a row
 *              does not see weighs 0
 *
 * Pages are merged by the definition's own lines.  A warp has sixteen query rows (tokens by heads) of one head of
 * keys; thread 4 r + q has of rows r and r + 8 keys 8 t + 2 q and the next, for each t, as mma.sync leaves them.
 * Values that are infinite or NaN (beyond halves' 65504) spoil those rows as well that share a page with them and see
 * it in part.
 *
 * Rows of keys and values lie 16 bytes further apart in shared memory than they are long: an odd number of 16 bytes, so
 * the eight rows that ldmatrix reads at once are in different banks. */
#ifndef LODE_CUDA_ATTENTION_FAST_CUH
#define LODE_CUDA_ATTENTION_FAST_CUH

#include "attention.cuh"
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "backend/cuda/kernels/halves.cuh"

enum { FAST_THREADS = LODE_ATT_FAST_THREADS, FAST_WARPS = FAST_THREADS / 32, ROW_TILE = 16, KEY_TILES = PAGE / 8 };

/* ---- keys and values to shared memory ---- */

/* A page's rows of dim numbers, zeros where they are not lo .. lo + n - 1, but for row `skip`. */
DEVICE void ask_rows(uint8_t *to, const uint8_t *page, uint32_t stride, uint32_t lo, uint32_t n, uint32_t dim,
                     uint32_t skip) {
    const uint32_t pieces = dim / 8, some = FAST_THREADS / pieces, ld = LODE_ATT_FAST_STRIDE(dim);
    const uint32_t c = threadIdx.x % pieces * 16;
    uint32_t j = threadIdx.x < some * pieces ? threadIdx.x / pieces : PAGE;
#pragma unroll 4
    for (; j < PAGE; j += some)
        if (j != skip)
            copy_16_or_zero(to + j * ld + c, page + (j - lo < n ? j * stride + c : 0), j - lo < n);
}

/* ---- scores ---- */

/* Sixteen rows of queries, a step of sixteen numbers: what a thread holds of it. */
template <class T> DEVICE uint4 query_step(const float *(&q)[2], const float (&factor)[2], uint32_t step) {
    uint32_t v[2][2] = {};
    const uint32_t c = 16 * step + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2; i++)
        if (q[i]) {
            const float2 a = *(const float2 *)(q[i] + c), b = *(const float2 *)(q[i] + c + 8);
            v[i][0] = pair_16<T>(a.x, a.y, factor[i]);
            v[i][1] = pair_16<T>(b.x, b.y, factor[i]);
        }
    return make_uint4(v[0][0], v[1][0], v[0][1], v[1][1]);
}

/* Keys 16 pair .. 16 pair + 15 of a page at `keys`, by one step of queries: tiles 2 pair and 2 pair + 1. */
template <class T>
DEVICE void score_step(float (&c0)[4], float (&c1)[4], uint4 q, uint32_t keys, uint32_t ld, uint32_t pair,
                       uint32_t step) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t k[4];
    load_pieces(k, keys + (16 * pair + lane / 16 * 8 + lane % 8) * ld + 32 * step + lane / 8 % 2 * 16);
    mma_fast<T>(c0, make_uint2(q.x, q.z), make_uint2(q.y, q.w), make_uint2(k[0], k[1]));
    mma_fast<T>(c1, make_uint2(q.x, q.z), make_uint2(q.y, q.w), make_uint2(k[2], k[3]));
}

/* ---- weights ---- */

DEVICE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* What a thread's two rows see of a page: keys lo .. lo + n - 1. */
struct sight {
    uint32_t lo[2], n[2];
};

/* A page's weights, rounded: for step k of sixteen keys p[k], in the order of an mma's rows; m' and l' of the rows. */
struct weights {
    uint32_t p[PAGE / 16][4];
    float max[2], total[2];
};
/* c: scores, which become their weights as floats; scale: the rows'; whole: all rows of the warp see all keys.  ROWS 1: there are no rows
 * r + 8. */
template <int ROWS>
DEVICE void weigh(struct weights &w, float (&c)[KEY_TILES][4], const float (&row_scale)[2], float cap,
                  const struct sight &seen, bool whole) {
    const uint32_t first = threadIdx.x % 4 * 2;
    float scale[2] = {row_scale[0], row_scale[1]};
    if (cap > 0) {
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
            for (int e = 0; e < 2 * ROWS; e++)
                c[t][e] = cap * lode_tanhf(c[t][e] * scale[e / 2] / cap);
        scale[0] = scale[1] = 1;
    }
    if (!whole)
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
            for (int e = 0; e < 2 * ROWS; e++)
                c[t][e] = 8 * t + first + e % 2 - seen.lo[e / 2] < seen.n[e / 2] ? c[t][e] : -INFINITY;
    float most[2];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float m = -INFINITY;
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++)
            m = fmaxf(m, fmaxf(c[t][2 * i], c[t][2 * i + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        w.max[i] = m * scale[i];
        most[i] = m > -INFINITY ? w.max[i] : 0; /* where nothing is seen all weights are 0 */
        w.total[i] = 0;
    }
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float a = power_of_2(fmaf(c[t][2 * i], scale[i], -most[i]) * 1.44269504088896341f);
            const float b = power_of_2(fmaf(c[t][2 * i + 1], scale[i], -most[i]) * 1.44269504088896341f);
            w.total[i] += a;
            w.total[i] += b;
            c[t][2 * i] = a, c[t][2 * i + 1] = b;
        }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        w.total[i] += __shfl_xor_sync(0xffffffffu, w.total[i], 1);
        w.total[i] += __shfl_xor_sync(0xffffffffu, w.total[i], 2);
    }
}

template <class T, int ROWS> DEVICE void round_weights(struct weights &w, const float (&c)[KEY_TILES][4]) {
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            w.p[t / 2][t % 2 * 2 + i] = i < ROWS ? rounded_pair<T>(c[t][2 * i], c[t][2 * i + 1]) : 0;
}

/* What finish (attention.cuh) does to all numbers of a row, found once. */
struct ending {
    float old, by;
};
DEVICE struct ending ending_of(float m, float l, const float *sink) {
    struct ending e = {1, 0};
    if (sink) {
        const float top = m > *sink ? m : *sink;
        e.old = lode_expf(m - top);
        l = fmaf(1.0f, lode_expf(*sink - top), l * e.old);
    }
    e.by = 1.0f / l;
    return e;
}
DEVICE float ended(float o, const struct ending &e) { return o * e.old * e.by; }

/* ---- values ---- */

/* What load_turned reads of a page at `values` for one step of sixteen keys: numbers 16 pair and those that follow. */
DEVICE uint32_t values_at(uint32_t values, uint32_t ld, uint32_t pair, int step) {
    const uint32_t lane = threadIdx.x % 32;
    return values + (16 * step + lane % 16) * ld + 32 * pair + lane / 16 * 16;
}
/* A step's values, read from `from`: numbers 2 q and the next of both rows to y0, those 8 further to y1. */
template <class T> DEVICE void mix_step(float (&y0)[4], float (&y1)[4], const struct weights &w, int step, uint32_t from) {
    uint32_t v[4];
    load_turned(v, from);
    mma_fast<T>(y0, make_uint2(w.p[step][0], w.p[step][2]), make_uint2(w.p[step][1], w.p[step][3]),
                make_uint2(v[0], v[1]));
    mma_fast<T>(y1, make_uint2(w.p[step][0], w.p[step][2]), make_uint2(w.p[step][1], w.p[step][3]),
                make_uint2(v[2], v[3]));
}

#endif
