/* decode_fast.cu - attention of steps that have one row a sequence in --numerics tensor; the arithmetic is
 * attention_fast.cuh's.
 *
 * A block of threads takes up to sixteen query heads of a head of keys, chain z and then every n-th.  Its four warps
 * share a page's scores out by keys and its values by numbers; in between each has all the weights, so that they are
 * made by the code that prompts have.  What a chain gives goes to the scratch as decode.cu leaves it of a page, and decode_merge
 * or decode_join add the chains up; with one page, the result itself.
 *
 * Keys and values of the first page are asked for before the launch before has ended: what is in the cache was there
 * before the step, all but the row's own key and value.
 *
 * PACKED: they are kept in Q8_0, come as they are kept and are widened (widen.cuh) to one place that they share; the next page's are
 * asked for as soon as they have been. */
#include "fast_heads.cuh"

#if __CUDA_ARCH__ >= 800

enum { LD_S = LODE_DECODE_FAST_SCORES };

extern __shared__ __align__(16) uint8_t decode_mem[];

/* Where a chain's results go: numbers of the block's heads `stride` floats apart. */
struct results {
    float *y;
    float2 *ml; /* (heads, max_pages); NULL: y are to be finished */
    size_t stride;
};
/* A warp's numbers of them: 16 (warp + 4 g) and those that follow, of each g. */
template <int DIM> struct chain_sums {
    enum { GROUPS = (DIM ? DIM : 256) / 16 / FAST_WARPS };
    float y[GROUPS][2][4];
};
/* A page to them. */
template <class T, int DIM> DEVICE void mix(struct chain_sums<DIM> &c, const struct weights &w, uint32_t values, uint32_t dim_v) {
    const uint32_t warp = threadIdx.x / 32, ld = LODE_ATT_FAST_STRIDE(dim_v);
#pragma unroll
    for (int i = 0; i < c.GROUPS; i++) {
        const uint32_t g = warp + i * FAST_WARPS;
        if (!DIM && g >= dim_v / 16)
            break;
        shrink(c.y[i], w);
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++)
            mix_step<T>(c.y[i][0], c.y[i][1], w, s, values_at(values, ld, g, s));
    }
}
template <int ROWS, int DIM>
DEVICE void leave(const struct lode_cuda_att_args &a, const struct results &to, const struct weights &w, const struct chain_sums<DIM> &c,
                  uint32_t n_q, uint32_t first_head) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, dim_v = DIM ? DIM : a.head_dim_v;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const uint32_t head = lane / 4 + 8 * i;
        if (head >= n_q)
            continue;
        struct ending end = {1, 1};
        if (!to.ml)
            end = ending_of(w.max[i], w.total[i], a.sinks ? at<const float>(a.sinks) + first_head + head : NULL);
        else if (warp == 0 && lane % 4 == 0)
            to.ml[(size_t)head * a.max_pages] = make_float2(w.max[i], w.total[i]);
#pragma unroll
        for (int k = 0; k < c.GROUPS; k++) {
            const uint32_t g = warp + k * FAST_WARPS;
            if (!DIM && g >= dim_v / 16)
                break;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                float2 v = make_float2(c.y[k][h][2 * i], c.y[k][h][2 * i + 1]);
                if (!to.ml)
                    v = make_float2(ended(v.x, end), ended(v.y, end));
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
DEVICE struct whole_page whole_page_at(const struct seen &w, uint32_t z, const uint8_t *base) {
    const struct page_of p = page_at(w, z, base);
    const uint32_t lo = z ? 0 : w.lo;
    return {p.k - lo * w.k_stride, p.v - lo * w.v_stride, lo, p.n, p.own < PAGE ? lo + p.own : (uint32_t)PAGE};
}

/* PACKED: see above.  ROWS: 1 where a head of keys has up to eight query heads; DIM: 0, or how many numbers heads have. */
template <class T, bool PACKED, int ROWS, int DIM> DEVICE void decode(const struct lode_cuda_decode_args &d) {
    enum { U = DIM ? DIM / 32 : 8, HEADS = 8 * ROWS };
    __shared__ float undo[HEADS];
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + HEADS - 1) / HEADS;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * HEADS, first_head = head * group + some;
    const uint32_t n_q = min(group - some, (uint32_t)HEADS), dim = DIM ? DIM : a.head_dim, dim_v = DIM ? DIM : a.head_dim_v;
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim), ld_v = LODE_ATT_FAST_STRIDE(dim_v);
    /* PACKED: keys, and values, as they are kept behind where both are as halves */
    uint8_t *q = decode_mem, *k = q + HEADS * ld, *v = PACKED ? k : k + PAGE * ld;
    uint8_t *const packed_k = v + PAGE * max(ld, ld_v), *const packed_v = packed_k + PAGE * (dim / WIDEN_NUMBERS) * WIDEN_BYTES;
    float *s = (float *)(PACKED ? packed_v + PAGE * (dim_v / WIDEN_NUMBERS) * WIDEN_BYTES : v + PAGE * ld_v); /* (HEADS, LD_S) */
    let_next_come();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head);
    struct page_walk walk(w.n_pages, a.chains, blockIdx.z, gridDim.z);
    const bool here = walk.more();
    /* where the next page lies is found a page before it's asked for: who reads memory waits for all copies that were asked for before */
    const uint8_t *base = NULL;
    const auto look_up = [&](uint32_t z) {
        if (z < w.n_pages)
            base = page_base(w, z);
    };
    /* A page's keys or values on their way, but row `skip`; halves of them, when all threads have come here. */
    const auto ask = [&](bool value, const struct whole_page &of, uint32_t skip) {
        const uint32_t stride = value ? w.v_stride : w.k_stride;
        if constexpr (PACKED)
            ask_packed<FAST_THREADS>(threadIdx.x, value ? packed_v : packed_k, value ? of.v : of.k, min(of.lo + of.n, skip) * stride); /* the last */
        else
            ask_rows(value ? v : k, value ? of.v : of.k, stride, of.lo, of.n, value ? dim_v : dim, skip);
    };
    const auto arrived = [&](bool value, const struct whole_page &of) {
        copies_wait<1>(); /* what was asked for later is on its way */
        __syncthreads();
        if constexpr (PACKED) {
            widen_rows<FAST_THREADS>(threadIdx.x, k, value ? packed_v : packed_k, of.lo, of.n, value ? dim_v : dim);
            __syncthreads();
        }
    };
    struct page_walk then = walk;
    struct whole_page p = {};
    if (here) {
        look_up(walk.page);
        p = whole_page_at(w, walk.page, base);
        then.next();
        look_up(then.page);
        ask(false, p, p.own); /* which may not be there yet */
        copies_end_group();
        ask(true, p, p.own);
        copies_end_group();
    }
    const bool own = here && (w.n_pages - 1) % a.chains % gridDim.z == blockIdx.z; /* the block that gets to the row's own page */
    const struct queries to = {row, head, first_head, here ? n_q : 0, q, undo, s + HEADS * LD_S};
    auto put = [&](uint32_t, bool value, const float(&x)[U]) {
        const struct page_of last = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
        const uint32_t n = value ? dim_v : dim, stride = value ? w.v_stride : w.k_stride;
        uint8_t *const kept = (uint8_t *)(value ? last.v : last.k) + last.own * stride, *here = NULL;
        if (p.own < PAGE) /* the page that waits */
            here = PACKED ? (value ? packed_v : packed_k) + p.own * stride : value ? v + p.own * ld_v : k + p.own * ld;
        if constexpr (PACKED)
            return put_blocks<U>(x, kept, here, n);
        put_halves<T::SCALED, U>(x, kept, n);
        if (here)
            put_halves<T::SCALED, U>(x, here, n);
    };
    if (d.prepares)
        make_queries<T, DIM, true>(d, to, {own, 0}, warp, FAST_WARPS, put);
    else
        make_queries<T, DIM, false>(d, to, {own, 0}, warp, FAST_WARPS, put);
    if (!here)
        return;
    if (!d.prepares && p.own < PAGE) { /* what was left out */
        if (PACKED) {
            const uint32_t at_k = p.own * w.k_stride + 4 * threadIdx.x, at_v = p.own * w.v_stride + 4 * threadIdx.x;
            if (4 * threadIdx.x < w.k_stride)
                copy_async<4>(packed_k + at_k, p.k + at_k);
            if (4 * threadIdx.x < w.v_stride)
                copy_async<4>(packed_v + at_v, p.v + at_v);
        }
        if (!PACKED && threadIdx.x < dim / 8)
            copy_async<16>(k + p.own * ld + 16 * threadIdx.x, p.k + p.own * w.k_stride + 16 * threadIdx.x);
        if (!PACKED && threadIdx.x < dim_v / 8)
            copy_async<16>(v + p.own * ld_v + 16 * threadIdx.x, p.v + p.own * w.v_stride + 16 * threadIdx.x);
        copies_end_group();
        copies_wait<0>();
    }
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    struct chain_sums<DIM> sums;
    struct weights e;
#pragma unroll 1
    for (; walk.more(); walk = then, then.next()) {
        const struct whole_page now = p;
        const bool more = then.more();
        const auto ask_next_keys = [&] {
            if (more) {
                struct page_walk later = then;
                later.next();
                p = whole_page_at(w, then.page, base);
                look_up(later.page);
                ask(false, p, PAGE);
            }
            copies_end_group();
        };
        const auto ask_next_values = [&] {
            if (more)
                ask(true, p, PAGE);
            copies_end_group();
        };
        arrived(false, now);
        if (PACKED) /* what they were widened from is free */
            ask_next_keys();
        float t[2][4] = {};
        score_keys<T, ROWS, 2, DIM>(t, shared_address(q), dim, keys_in_rows(shared_address(k + 16 * warp * ld), ld));
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                *(float2 *)(s + (lane / 4 + 8 * i) * LD_S + 16 * warp + 8 * h + lane % 4 * 2) =
                    make_float2(t[h][2 * i], t[h][2 * i + 1]);
        __syncthreads(); /* all scores are there, keys are read by nobody any more */
        if (!PACKED)
            ask_next_keys();
        float c[KEY_TILES][4], scale[2];
        struct sight seen;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            scale[i] = a.scale * undo[lane / 4 + 8 * i];
            seen.lo[i] = now.lo, seen.n[i] = now.n;
#pragma unroll
            for (int tile = 0; tile < KEY_TILES; tile++) {
                const float2 two = *(const float2 *)(s + (lane / 4 + 8 * i) * LD_S + 8 * tile + lane % 4 * 2);
                c[tile][2 * i] = two.x, c[tile][2 * i + 1] = two.y;
            }
        }
        if (walk.begins()) {
            begin_chain(e);
#pragma unroll
            for (int i = 0; i < sums.GROUPS; i++)
                begin_sums(sums.y[i]);
        }
        weigh<ROWS>(e, c, scale, a.cap, seen, now.n == PAGE);
        round_weights<T, ROWS>(e, c);
        arrived(true, now);
        if (PACKED)
            ask_next_values();
        mix<T>(sums, e, shared_address(v), dim_v);
        __syncthreads(); /* values are read by nobody any more */
        if (!PACKED)
            ask_next_values();
        if (!walk.ends())
            continue;
        struct results of = {row_at<float>(a.y, row) + first_head * dim_v, NULL, dim_v};
        if (a.max_pages > 1) {
            const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + walk.chain;
            of.y = at<float>(a.scratch) + part * dim_v;
            of.ml = (float2 *)(at<float>(a.scratch) + n_parts * dim_v) + part;
            of.stride = (size_t)a.max_pages * dim_v;
        }
        leave<ROWS>(a, of, e, sums, n_q, first_head);
    }
}

/* decode_fast_KEPT_HEADS: of up to so many query heads of a head of keys at a time; _DIM: of heads of so many numbers; blockIdx: head of
 * keys and which of those, row, first page. */
#define DECODE(name, type, packed, heads, dim)                                                     \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, LODE_DECODE_FAST_BLOCKS)             \
        decode_fast_##name(const __grid_constant__ struct lode_cuda_decode_args a) {                \
        decode<struct type, packed, heads / 8, dim>(a);                                            \
    }
#define DECODES(name, type, packed)                                                                \
    DECODE(name##_8, type, packed, 8, 0) DECODE(name##_16, type, packed, 16, 0)                     \
    DECODE(name##_8_128, type, packed, 8, 128) DECODE(name##_8_64, type, packed, 8, 64)
DECODES(f16, f16, false)
DECODES(bf16, bf16, false)
DECODES(q8_0, f16, true)

#endif
