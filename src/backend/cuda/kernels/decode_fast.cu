/* decode_fast.cu - attention of steps that have one row a sequence in --numerics fast; the arithmetic is
 * attention_fast.cuh's.
 *
 * A block of threads takes up to sixteen query heads of a head of keys, page z and then every n-th.  Its four warps
 * share a page's scores out by keys and its values by numbers; in between each has all the weights, so that they are
 * made by the code that prompts have.  What a page gives goes to the scratch as decode.cu leaves it, and decode_merge
 * or decode_join add the pages up; with one page, the result itself.
 *
 * Keys and values of the first page are asked for before the launch before has ended: what is in the cache was there
 * before the step, all but the row's own key and value. */
#include "attention_fast.cuh"
#include "decode.cuh"

#if __CUDA_ARCH__ >= 800

enum { HEADS = LODE_DECODE_FAST_HEADS, LD_S = LODE_DECODE_FAST_SCORES };

extern __shared__ __align__(16) uint8_t decode_mem[];

/* A warp stores n numbers in one place, and in another one where there is one: put_row's bits. */
template <class T> DEVICE void put_halves(uint8_t *y, uint8_t *also, const float *x, uint32_t n) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32) {
        const uint16_t v = T::SCALED ? f32_f16(x[i]) : f32_bf16(x[i]);
        ((uint16_t *)y)[i] = v;
        if (also)
            ((uint16_t *)also)[i] = v;
    }
}
/* The row's own key and value to where they are kept, by two warps, and where this is the page that waits in shared memory
 * (k, v; NULL: it is not) into it; key: room for one. */
template <class T>
DEVICE void put_own(const struct lode_cuda_prepare_args &a, float *key, const struct page_of &p, const struct seen &w,
                    uint32_t head, uint32_t row, uint8_t *k, uint8_t *v) {
    const uint32_t warp = threadIdx.x / 32;
    if (warp == 2)
        put_halves<T>((uint8_t *)p.v + p.own * w.v_stride, v, own_value(a, head, row), a.head_dim_v);
    if (warp == 3) {
        prepare_key(a, key, head, row);
        put_halves<T>((uint8_t *)p.k + p.own * w.k_stride, k, key, a.head_dim);
    }
}

/* n queries from x on (n, dim), rounded, to `to`: (steps, lane) pieces of sixteen bytes; what undoes their factors to
 * undo (HEADS). */
template <class T> DEVICE void round_queries(uint4 *to, float2 *factors, const float *x, uint32_t n, uint32_t dim) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t g = warp; g < HEADS; g += FAST_WARPS) {
        uint32_t most = 0;
        if (T::SCALED && g < n)
            for (uint32_t c = lane; c < dim; c += 32)
                most = max(most, lode_f32_bits(x[g * dim + c]) & 0x7fffffff);
        most = warp_max(most, 32);
        if (lane == 0)
            factors[g] = factors_of<T>(most);
    }
    __syncthreads();
    const float *q[2];
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t g = lane / 4 + 8 * i;
        q[i] = g < n ? x + g * dim : NULL;
        factor[i] = factors[g].x;
    }
    for (uint32_t s = warp; s < dim / 16; s += FAST_WARPS)
        to[s * 32 + lane] = query_step<T>(q, factor, s);
}

/* Where the page's results go: numbers of the block's heads `stride` floats apart. */
struct results {
    float *y;
    float2 *ml; /* (heads, max_pages); NULL: y are to be finished */
    size_t stride;
};
template <class T, int ROWS>
DEVICE void mix(const struct lode_cuda_att_args &a, const struct results &to, const struct weights &w, uint32_t values,
                uint32_t n_q, uint32_t first_head) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, ld = LODE_ATT_FAST_STRIDE(a.head_dim_v);
    if (to.ml && warp == 0 && lane % 4 == 0)
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (lane / 4 + 8 * i < n_q)
                to.ml[(size_t)(lane / 4 + 8 * i) * a.max_pages] = make_float2(w.max[i], w.total[i]);
    struct ending end[ROWS];
    if (!to.ml)
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint32_t head = first_head + min(lane / 4 + 8 * i, n_q - 1);
            end[i] = ending_of(w.max[i], w.total[i], a.sinks ? at<const float>(a.sinks) + head : NULL);
        }
#pragma unroll 2
    for (uint32_t g = warp; g < a.head_dim_v / 16; g += FAST_WARPS) {
        float y[2][4] = {};
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++)
            mix_step<T>(y[0], y[1], w, values, ld, g, s);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const uint32_t head = lane / 4 + 8 * i;
            if (head >= n_q)
                continue;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 v = make_float2(y[h][2 * i], y[h][2 * i + 1]);
                if (!to.ml)
                    v = make_float2(ended(v.x, end[i]), ended(v.y, end[i]));
                *(float2 *)(to.y + head * to.stride + 16 * g + 8 * h + lane % 4 * 2) = v;
            }
        }
    }
}

/* Page z of those that the row sees, from its first key on: keys count by their place in the page, as in prompts. */
struct whole_page {
    const uint8_t *k, *v;
    uint32_t lo, n, own; /* seen: n from lo on */
};
DEVICE struct whole_page whole_page_at(const struct seen &w, uint32_t z) {
    const struct page_of p = page_at(w, z, page_base(w, z));
    const uint32_t lo = z ? 0 : w.lo;
    return {p.k - lo * w.k_stride, p.v - lo * w.v_stride, lo, p.n, p.own < PAGE ? lo + p.own : (uint32_t)PAGE};
}

/* ROWS: 1 where a head of keys has up to eight query heads. */
template <class T, int ROWS> DEVICE void decode(const struct lode_cuda_decode_args &d) {
    __shared__ float2 factors[HEADS];
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + HEADS - 1) / HEADS;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * HEADS, first_head = head * group + some;
    const uint32_t n_q = min(group - some, (uint32_t)HEADS), dim = a.head_dim, dim_v = a.head_dim_v;
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim);
    uint4 *q = (uint4 *)decode_mem;
    uint8_t *k = decode_mem + LODE_ATT_FAST_QUERIES(dim), *v = k + PAGE * ld;
    float *s = (float *)(v + PAGE * LODE_ATT_FAST_STRIDE(dim_v)); /* (HEADS, LD_S) */
    float *x = s + HEADS * LD_S;                                  /* (HEADS, dim), and a key */
    let_next_come();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head);
    const bool here = blockIdx.z < w.n_pages;
    struct whole_page p;
    if (here) {
        p = whole_page_at(w, blockIdx.z);
        ask_rows(k, p.k, w.k_stride, p.lo, p.n, dim, p.own);
        ask_rows(v, p.v, w.v_stride, p.lo, p.n, dim_v, p.own);
    }
    wait_for_last();
    if (!here)
        return;
    const float *queries = row_at<const float>(d.prepares ? d.heads.q : a.q, row) + first_head * dim;
    for (uint32_t i = threadIdx.x; i < n_q * dim; i += FAST_THREADS)
        x[i] = queries[i];
    __syncthreads();
    if (d.prepares) {
        prepare_queries(d.heads, x, n_q, read_turns(row_at<const float2>(d.heads.table, row), d.heads.pairs_q),
                        weights_of(d.heads, false));
        if ((w.n_pages - 1 - blockIdx.z) % gridDim.z == 0) { /* the block that gets to the row's own page */
            const struct page_of last = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
            const bool waits = p.own < PAGE;
            put_own<T>(d.heads, x + HEADS * dim, last, w, head, row, waits ? k + p.own * ld : NULL,
                    waits ? v + p.own * LODE_ATT_FAST_STRIDE(dim_v) : NULL);
        }
        __syncthreads();
    } else if (p.own < PAGE) { /* what was left out */
        if (threadIdx.x < dim / 8)
            copy_async<16>(k + p.own * ld + 16 * threadIdx.x, p.k + p.own * w.k_stride + 16 * threadIdx.x);
        if (threadIdx.x < dim_v / 8)
            copy_async<16>(v + p.own * LODE_ATT_FAST_STRIDE(dim_v) + 16 * threadIdx.x,
                           p.v + p.own * w.v_stride + 16 * threadIdx.x);
    }
    round_queries<T>(q, factors, x, n_q, dim);
    copies_wait<0>();
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
#pragma unroll 1
    for (uint32_t z = blockIdx.z; z < w.n_pages; z += gridDim.z) {
        const uint32_t next = z + gridDim.z;
        const uint32_t lo = p.lo, n = p.n;
        copies_wait<1>(); /* keys, and values that were asked for later are on their way */
        __syncthreads();
        float t[2][4] = {};
#pragma unroll 4
        for (uint32_t i = 0; i < dim / 16; i++)
            score_step<T>(t[0], t[1], q[i * 32 + lane], shared_address(k), ld, warp, i);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                *(float2 *)(s + (lane / 4 + 8 * i) * LD_S + 16 * warp + 8 * h + lane % 4 * 2) =
                    make_float2(t[h][2 * i], t[h][2 * i + 1]);
        __syncthreads(); /* all scores are there, keys are read by nobody any more */
        if (next < w.n_pages) {
            p = whole_page_at(w, next);
            ask_rows(k, p.k, w.k_stride, p.lo, p.n, dim, PAGE);
        }
        copies_end_group();
        float c[KEY_TILES][4], scale[2];
        struct sight seen;
        struct weights e;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            scale[i] = a.scale * factors[lane / 4 + 8 * i].y;
            seen.lo[i] = lo, seen.n[i] = n;
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; tile++) {
                const float2 two = *(const float2 *)(s + (lane / 4 + 8 * i) * LD_S + 8 * tile + lane % 4 * 2);
                c[tile][2 * i] = two.x, c[tile][2 * i + 1] = two.y;
            }
        }
        weigh<T, ROWS>(e, c, scale, a.cap, seen, n == PAGE);
        copies_wait<1>();
        __syncthreads(); /* the values are there */
        struct results to = {row_at<float>(a.y, row) + first_head * dim_v, NULL, dim_v};
        if (a.max_pages > 1) {
            const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + z;
            to.y = at<float>(a.scratch) + part * dim_v;
            to.ml = (float2 *)(at<float>(a.scratch) + n_parts * dim_v) + part;
            to.stride = (size_t)a.max_pages * dim_v;
        }
        mix<T, ROWS>(a, to, e, shared_address(v), n_q, first_head);
        __syncthreads(); /* values are read by nobody any more */
        if (next < w.n_pages)
            ask_rows(v, p.v, w.v_stride, p.lo, p.n, dim_v, PAGE);
        copies_end_group();
    }
}

/* decode_fast_TYPE_HEADS: of up to so many query heads of a head of keys at a time; blockIdx: head of keys and which of
 * those, row, first page. */
#define DECODE(type, heads)                                                                        \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, LODE_DECODE_FAST_BLOCKS)             \
        decode_fast_##type##_##heads(const __grid_constant__ struct lode_cuda_decode_args a) {      \
        decode<struct type, heads / 8>(a);                                                         \
    }
DECODE(f16, 8)
DECODE(f16, 16)
DECODE(bf16, 8)
DECODE(bf16, 16)

#endif
