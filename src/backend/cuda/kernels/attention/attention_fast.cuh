/* attention_fast.cuh - attention in --numerics tensor: what prompts (attention_fast.cu) and steps of one row a
 * sequence (decode_fast.cu, decode_short_fast.cu) compute alike, so that a row has the same bits in both.
 *
 * The definition is that of backend/cpu/attention.c, but chain by chain, not page by page, and for what a chain gives.  A chain is every
 * n-th page from one of the first n on, of layers with a window or chunks a page (page_walk); n is LODE_ATT_CHAINS by the model's heads of
 * keys.  Of a chain's pages, in ascending order, with m' the largest of their scores so far:
 *
 *     scores   queries are rounded to the keys' type (Q8_0's is halves here, its values' too: widen.cuh), halves times a power of
 *              two for each row and head (as rows of x that meet F16 weights, halves.cuh); sixteen numbers at a time, in
 *              ascending order, are added to one float by the tensor cores (fast.cuh says how)
 *     weights  e = 2^(log2(e) fma(s, scale, -m')) by the hardware's ex2.approx
 *     l'       what it was by e^(m' before - m'), by the same instruction, to which is added: four threads' sums of keys 8 t + 2 q and
 *              8 t + 2 q + 1 in ascending order, joined as (0 + 1) + (2 + 3)
 *     o'       what it was by the same, to which the tensor cores add e rounded to the values' type by the values, sixteen keys at a
 *              time, in ascending order; what a row does not see weighs 0, which changes no sum
 *
 * Chains are merged by the definition's own lines.  There are so many that four warps of each of a hundred and more multiprocessors have one
 * of a row's, and so few that joining what they leave is little beside reading many pages.
 *
 * A warp has sixteen query rows (tokens by heads) of one head of keys; thread 4 r + q has of rows r and r + 8 keys 8 t + 2 q and the next,
 * for each t, as mma.sync leaves them.  Values that are infinite or NaN (beyond halves' 65504) also spoil rows that do not see them but are
 * computed with others that do.
 *
 * Rows of keys and values lie 16 bytes further apart in shared memory than they are long: an odd number of 16 bytes, so
 * the eight rows that ldmatrix reads at once are in different banks. */
#ifndef LODE_CUDA_ATTENTION_FAST_CUH
#define LODE_CUDA_ATTENTION_FAST_CUH

#include "attention.cuh"
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "backend/cuda/kernels/halves.cuh"
#include "widen.cuh"

enum { FAST_THREADS = LODE_ATT_FAST_THREADS, FAST_WARPS = FAST_THREADS / 32, ROW_TILE = 16, KEY_TILES = PAGE / 8 };

/* Pages 0 to n - 1 in the order in which they are added up, chain by chain: here every `every`-th chain from `first` on, whose pages are
 * `apart` from each other. */
struct page_walk {
    uint32_t n, apart, every;
    uint32_t chain, page;
    DEVICE_MEMBER page_walk(uint32_t n, uint32_t apart, uint32_t first, uint32_t every)
        : n(n), apart(apart), every(every), chain(first), page(first < apart ? first : n) {}
    DEVICE_MEMBER bool more() const { return page < n; }
    DEVICE_MEMBER bool begins() const { return page == chain; }
    DEVICE_MEMBER bool ends() const { return page + apart >= n; }
    DEVICE_MEMBER void next() {
        page += apart;
        if (page >= n) {
            chain += every;
            page = chain < apart ? chain : n;
        }
    }
};

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

/* The same of Q8_0, by THREADS threads, of which t is one: `bytes` of a page's rows, a multiple of four, as they are; then halves of rows lo
 * to lo + n - 1, zeros of the others, when those bytes are there for all. */
template <uint32_t THREADS> DEVICE void ask_packed(uint32_t t, uint8_t *to, const uint8_t *page, uint32_t bytes) {
    for (uint32_t i = 16 * t; i + 16 <= bytes; i += 16 * THREADS)
        copy_async<16>(to + i, page + i);
    const uint32_t rest = bytes & ~15u;
    if (rest + 4 * t < bytes)
        copy_async<4>(to + rest + 4 * t, page + rest + 4 * t);
}
template <uint32_t THREADS> DEVICE void widen_rows(uint32_t t, uint8_t *to, const uint8_t *packed, uint32_t lo, uint32_t n, uint32_t dim) {
    const uint32_t pairs = dim / WIDEN_NUMBERS, ld = LODE_ATT_FAST_STRIDE(dim);
#pragma unroll 1
    for (uint32_t i = t; i < PAGE * pairs; i += THREADS) {
        const uint32_t row = i / pairs, *const from = (const uint32_t *)(packed + i * WIDEN_BYTES);
        uint4 *const halves = (uint4 *)(to + row * ld + i % pairs * (2 * WIDEN_NUMBERS));
        if (row - lo < n)
            widen_pair([&](uint32_t k) { return from[k]; }, [&](uint32_t k, uint4 v) { halves[k] = v; });
        else
            for (uint32_t k = 0; k < WIDEN_PIECES; k++)
                halves[k] = make_uint4(0, 0, 0, 0);
    }
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

#define LOG2_E 1.44269504088896341f
DEVICE float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
/* What a thread's two rows see of a page: keys lo .. lo + n - 1. */
struct sight {
    uint32_t lo[2], n[2];
};

/* A page's weights, rounded: for step k of sixteen keys p[k], in the order of an mma's rows; m' and l' of the rows' chains with it, and
 * what the sums before it are multiplied by. */
struct weights {
    uint32_t p[PAGE / 16][4];
    float max[2], total[2], old[2]; /* old: 1 for all of the warp's rows unless it `grew` */
    bool grew;
};
/* Before a chain's first page. */
DEVICE void begin_chain(struct weights &w) {
    w.max[0] = w.max[1] = -INFINITY;
    w.total[0] = w.total[1] = 0;
    w.old[0] = w.old[1] = 1;
}
/* c: scores, which become their weights as floats; w: of the chain's page before, then of this one; scale: the rows'; whole: all rows of the
 * warp see all keys.  ROWS 1: there are no rows r + 8. */
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
    float most[2], total[2];
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        float m = -INFINITY;
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++)
            m = fmaxf(m, fmaxf(c[t][2 * i], c[t][2 * i + 1]));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
        const float before = w.max[i];
        w.max[i] = fmaxf(m * scale[i], before);
        most[i] = w.max[i] > -INFINITY ? w.max[i] : 0; /* where nothing is seen all weights are 0 */
        w.old[i] = power_of_2((before - most[i]) * LOG2_E);
        total[i] = 0;
    }
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float a = power_of_2(fmaf(c[t][2 * i], scale[i], -most[i]) * LOG2_E);
            const float b = power_of_2(fmaf(c[t][2 * i + 1], scale[i], -most[i]) * LOG2_E);
            total[i] += a;
            total[i] += b;
            c[t][2 * i] = a, c[t][2 * i + 1] = b;
        }
    w.grew = __any_sync(0xffffffffu, w.old[0] != 1 || (ROWS > 1 && w.old[1] != 1)); /* as a chain's first page does, and few of many others */
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 1);
        total[i] += __shfl_xor_sync(0xffffffffu, total[i], 2);
        w.total[i] = fmaf(w.total[i], w.old[i], total[i]);
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

/* A chain's sums, a tile of eight numbers each, before its first page; before a page that may have a larger score than those before. */
template <int TILES> DEVICE void begin_sums(float (&y)[TILES][4]) {
#pragma unroll
    for (int i = 0; i < 4 * TILES; i++)
        y[i / 4][i % 4] = 0;
}
template <int TILES> DEVICE void shrink(float (&y)[TILES][4], const struct weights &w) {
    if (w.grew)
#pragma unroll
        for (int i = 0; i < 4 * TILES; i++)
            y[i / 4][i % 4] *= w.old[i % 4 / 2];
}

/* What load_turned reads of a page at `values` for one step of sixteen keys: numbers 16 pair and those that follow. */
DEVICE uint32_t values_at(uint32_t values, uint32_t ld, uint32_t pair, int step) {
    const uint32_t lane = threadIdx.x % 32;
    return values + (16 * step + lane % 16) * ld + 32 * pair + lane / 16 * 16;
}
/* A step's values, read from `from`: numbers 2 q and the next of both rows are added to y0, those 8 further to y1. */
template <class T> DEVICE void mix_step(float (&y0)[4], float (&y1)[4], const struct weights &w, int step, uint32_t from) {
    uint32_t v[4];
    load_turned(v, from);
    mma_fast<T>(y0, make_uint2(w.p[step][0], w.p[step][2]), make_uint2(w.p[step][1], w.p[step][3]),
                make_uint2(v[0], v[1]));
    mma_fast<T>(y1, make_uint2(w.p[step][0], w.p[step][2]), make_uint2(w.p[step][1], w.p[step][3]),
                make_uint2(v[2], v[3]));
}

#endif
