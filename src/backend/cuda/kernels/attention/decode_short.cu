/* decode_short.cu - attention of one row a sequence, or few of some, that see few pages of keys and values in f16 or bf16;
 * the definition is at the head of backend/cpu/attention.c.
 *
 * So little is read here that a launch takes as long as its instructions do one after the other, most of which run once and come
 * from far.  So a block of threads has one query head and all its pages, 256 threads each, and few instructions: heads
 * stay in a warp's registers while they are normed and turned, four threads are a key, each warp that has values finds all
 * weights for itself, so that between queries and results two barriers lie, and sizes are known when compiling.
 *
 * Keys and values are on their way to shared memory before the launch before has ended: what is in the cache was there
 * before the step, all but the keys and values of its own rows. */
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "decode.cuh"

enum { PAGE_THREADS = LODE_SHORT_THREADS, PAGES = LODE_SHORT_PAGES };
static_assert((int)PAGES <= (int)LODE_CUDA_NEAR_PAGES, "shared.h");

extern __shared__ __align__(16) uint8_t short_mem[];

template <bool HALF> DEVICE float widened(uint32_t bits) { return HALF ? f16_f32((uint16_t)bits) : lode_bits_f32(bits << 16); }

/* A warp's n numbers in 16 bits, to two places. */
template <bool HALF, int U> DEVICE void put_halves_twice(const float (&x)[U], uint8_t *y, uint8_t *z, uint32_t n) {
#pragma unroll
    for (int u = 0; u < U; u++) {
        const uint32_t c = threadIdx.x % 32 + 32 * u;
        if (c >= n)
            break;
        const uint16_t h = HALF ? f32_f16(x[u]) : f32_bf16(x[u]);
        ((uint16_t *)y)[c] = h, ((uint16_t *)z)[c] = h;
    }
}

/* ---- pages ---- */

/* Scores of n keys for q (dim), to s: eight keys a warp, thread 8 j + k has lanes 4 j to 4 j + 3 of its k-th. */
template <int DIM, bool HALF>
DEVICE void score(float *s, const float *q, const struct lode_cuda_att_args &a, const uint8_t *keys, uint32_t pitch, uint32_t n, uint32_t dim) {
    const uint32_t warp = page_thread<PAGE_THREADS>() / 32, lane = threadIdx.x % 32, key = 8 * warp + lane % 8, j = lane / 8;
    if (8 * warp >= n)
        return;
    const uint8_t *k = keys + key * pitch + 8 * j;
    const float4 *y = (const float4 *)q + j;
    float acc[4] = {};
#pragma unroll 8
    for (uint32_t m = 0; m < (DIM ? DIM : dim) / 16; m++) {
        const uint2 v = *(const uint2 *)(k + 32 * m);
        const float4 w = y[4 * m];
        acc[0] = fmaf(w.x, widened<HALF>(v.x & 0xffff), acc[0]), acc[1] = fmaf(w.y, widened<HALF>(v.x >> 16), acc[1]);
        acc[2] = fmaf(w.z, widened<HALF>(v.y & 0xffff), acc[2]), acc[3] = fmaf(w.w, widened<HALF>(v.y >> 16), acc[3]);
    }
    /* the tree of the sixteen lanes */
#pragma unroll
    for (int w = 16; w >= 8; w /= 2)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[i] += __shfl_xor_sync(0xffffffffu, acc[i], w);
    const float v = ((acc[0] + acc[2]) + (acc[1] + acc[3])) * a.scale;
    if (j == 0)
        s[key] = a.cap > 0 ? a.cap * lode_tanhf(v / a.cap) : v;
}

/* A page's weights exp(s - max) to e, by a warp for itself; the largest score and the weights' total. */
DEVICE float2 soften(float *e, const float *s, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32;
    const float s0 = lane < n ? s[lane] : -INFINITY, s1 = lane + 32 < n ? s[lane + 32] : -INFINITY;
    float max = s0 > -INFINITY ? s0 : -INFINITY;
    max = s1 > max ? s1 : max;
    max = warp_max(max, 32);
    const float e0 = lane < n ? exp_below(s0 - max) : 0, e1 = lane + 32 < n ? exp_below(s1 - max) : 0;
    e[lane] = e0, e[lane + 32] = e1;
    __syncwarp();
    float total = e0 + __shfl_down_sync(0xffffffffu, e0, 16); /* lane t of the definition: e[t], e[t + 16] and so on */
    total += e1;
    total += __shfl_down_sync(0xffffffffu, e1, 16);
    return make_float2(max, __shfl_sync(0xffffffffu, join_lanes(total), 0));
}

/* Column c of n values, weighed by e. */
template <bool HALF> DEVICE float mix(const float *e, const uint8_t *values, uint32_t pitch, uint32_t n) {
    enum { AT_ONCE = 8 };
    float y = 0;
#pragma unroll 1
    for (uint32_t j = 0; j < n; j += AT_ONCE, values += AT_ONCE * pitch) {
        const float4 w[2] = {*(const float4 *)(e + j), *(const float4 *)(e + j + 4)};
        const float *each = (const float *)w;
        float v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            v[u] = widened<HALF>(*(const uint16_t *)(values + u * pitch));
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            y = j + u < n ? fmaf(each[u], v[u], y) : y;
    }
    return y;
}

/* What a warp prepares: a page's 0th is the query (of the last page, where it is asked for), 1 + 2 i and 2 + 2 i are key and
 * value i of the step's own that the page has, every n-th of them the same warp's. */
template <int DIM, bool HALF>
DEVICE void prepare_several(const struct lode_cuda_prepare_args &own, const struct seen &w, const struct page_of &p, uint32_t z, uint32_t row,
                            uint32_t head, uint32_t head_k, const struct head_weights &weights, float *q, uint8_t *keys, uint8_t *values) {
    enum { U = DIM / 32, WARPS = PAGE_THREADS / 32 };
    const uint32_t lane = threadIdx.x % 32, start = (w.first + z) * PAGE + (z ? 0 : w.lo);
#pragma unroll 1
    for (uint32_t i = page_thread<PAGE_THREADS>() / 32 + (z + 1 < w.n_pages); i <= 2 * (p.n - p.old); i += WARPS) {
        const uint32_t which = i == 0 ? 0 : i % 2 ? 1 : 2, j = i ? p.old + (i - 1) / 2 : p.n - 1;
        const uint32_t back = w.pos - (start + j); /* rows of a sequence follow one another */
        float x[U];
        prepare_head<DIM, U>(x, own_head_of(own, which, row - back, head, head_k), row_at<const float2>(own.table, row - back), weights, DIM,
                             NULL);
        if (which == 0) {
#pragma unroll
            for (int u = 0; u < U; u++)
                q[lane + 32 * u] = x[u];
            continue;
        }
        put_halves<HALF, U>(x, which == 1 ? keys + j * LODE_SHORT_KEY_PITCH(DIM) : values + j * 2 * DIM, DIM);
        if (back == 0) /* the same bytes by all blocks that share the head */
            put_halves<HALF, U>(x, (uint8_t *)(which == 1 ? p.k + j * w.k_stride : p.v + j * w.v_stride), DIM);
    }
}

/* SEVERAL: all rows' queries, keys and values are to be prepared, and a row may see others of the step. */
template <int DIM, bool HALF, bool SEVERAL> DEVICE void attend(const struct lode_cuda_short_args &args) {
    enum { U = DIM ? DIM / 32 : 8, PIECES = DIM / 8 };
    __shared__ float2 ml[PAGES];
    const struct lode_cuda_att_args &a = args.decode.att;
    const struct lode_cuda_prepare_args &own = args.decode.heads;
    const bool prepares = args.decode.prepares;
    const uint32_t t = page_thread<PAGE_THREADS>(), warp = t / 32, lane = threadIdx.x % 32, z = threadIdx.x / PAGE_THREADS;
    const uint32_t row = a.first_row + blockIdx.y, head = blockIdx.x, head_k = over(head, args.group);
    const uint32_t dim = DIM ? DIM : a.head_dim, dim_v = DIM ? DIM : a.head_dim_v;
    const uint32_t k_pitch = LODE_SHORT_KEY_PITCH(dim), v_pitch = 2 * dim_v, page_bytes = LODE_SHORT_PAGE(dim, dim_v);
    float *q = (float *)short_mem; /* (dim), and as much room */
    uint8_t *keys = short_mem + 8 * dim + z * page_bytes, *values = keys + PAGE * k_pitch;
    float *s = (float *)(values + PAGE * v_pitch), *e = s + PAGE + PAGE * warp;
    let_next_come();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head_k);
    const lode_dev near = w.near[z]; /* asked for before it is known that the first page seen is the table's */
    const bool here = z < w.n_pages, last = z + 1 == w.n_pages;
    struct page_of p;
    if (here) {
        p = page_at(w, z, w.first ? page_base(w, z) : at<const uint8_t>(near));
        ask_rows<PAGE_THREADS, PIECES>(keys, k_pitch, p.k, w.k_stride, 0, p.old, args.k_pieces);
        ask_rows<PAGE_THREADS, PIECES>(values, v_pitch, p.v, w.v_stride, 0, p.old, args.v_pieces);
    }
    struct own_head h;
    struct head_weights weights;
    const bool mine = !SEVERAL && prepares && last && warp < 3; /* the last page's first warps: query, key, value */
    if (mine) {
        h = own_head_of(own, warp, row, head, head_k);
        weights = read_weights(h.normed ? h.norm : NULL, dim);
    }
    if constexpr (SEVERAL) {
        const uint32_t first = warp + !last;
        weights = read_weights(first == 0 ? at<const float>(own.norms_q ? own.norm_q : 0)
                               : first % 2 ? at<const float>(own.norms_k ? own.norm_k : 0) : NULL, dim);
    }
    wait_for_last();
    if constexpr (SEVERAL) {
        if (here)
            prepare_several<DIM, HALF>(own, w, p, z, row, head, head_k, weights, q, keys, values);
    } else if (mine) {
        float x[U];
        prepare_head<DIM, U>(x, h, row_at<const float2>(own.table, row), weights, warp == 2 ? dim_v : dim, q + (warp == 1 ? dim : 0));
        if (warp == 0) {
#pragma unroll
            for (int u = 0; u < U; u++)
                if (lane + 32 * u < dim)
                    q[lane + 32 * u] = x[u];
        } else if (warp == 1) { /* the same bytes by all blocks that share the head, each of which reads its own */
            put_halves_twice<HALF, U>(x, (uint8_t *)(p.k + p.own * w.k_stride), keys + p.own * k_pitch, dim);
        } else {
            put_halves_twice<HALF, U>(x, (uint8_t *)(p.v + p.own * w.v_stride), values + p.own * v_pitch, dim_v);
        }
    } else if (!prepares && here) {
        ask_rows<PAGE_THREADS, PIECES>(keys, k_pitch, p.k, w.k_stride, p.old, p.n, args.k_pieces);
        ask_rows<PAGE_THREADS, PIECES>(values, v_pitch, p.v, w.v_stride, p.old, p.n, args.v_pieces);
        if (last && t < dim)
            q[t] = row_at<const float>(a.q, row)[head * dim + t];
    }
    copies_end_group();
    copies_wait<0>();
    __syncthreads();
    const bool sums = here && 32 * warp < dim_v; /* whole warps */
    float2 of_page;
    float y = 0;
    if (here) {
        score<DIM, HALF>(s, q, a, keys, k_pitch, p.n, dim);
        page_sync<PAGE_THREADS>();
    }
    if (sums) {
        of_page = soften(e, s, p.n);
        y = mix<HALF>(e, values + 2 * (t < dim_v ? t : 0), v_pitch, p.n);
    }
    if (w.n_pages > 1) {
        if (sums) {
            if (t == 0)
                ml[z] = of_page;
            ((float *)keys)[t] = y; /* all scores are there */
        }
        __syncthreads();
        if (z || !sums)
            return;
        y = join_pages<PAGES>(ml, (const float *)keys + t, page_bytes / 4, w.n_pages, &of_page.x, &of_page.y);
    }
    if (sums && z == 0 && t < dim_v)
        row_at<float>(a.y, row)[head * dim_v + t] =
            finish(of_page.x, of_page.y, y, a.sinks ? at<const float>(a.sinks) + head : NULL);
}

/* blockIdx: query head, row */
#define SHORT(name, dim, half, several)                                                            \
    KERNEL(PAGE_THREADS * PAGES) name(const __grid_constant__ struct lode_cuda_short_args a) {     \
        attend<dim, half, several>(a);                                                             \
    }
SHORT(decode_short_f16, 0, true, false)
SHORT(decode_short_f16_64, 64, true, false)
SHORT(decode_short_f16_128, 128, true, false)
SHORT(decode_short_bf16, 0, false, false)
SHORT(decode_short_bf16_64, 64, false, false)
SHORT(decode_short_bf16_128, 128, false, false)
SHORT(decode_several_f16_64, 64, true, true)
SHORT(decode_several_f16_128, 128, true, true)
SHORT(decode_several_bf16_64, 64, false, true)
SHORT(decode_several_bf16_128, 128, false, true)
