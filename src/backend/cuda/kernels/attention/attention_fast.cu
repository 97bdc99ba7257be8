/* attention_fast.cu - attention of steps of many rows in --numerics tensor; the arithmetic is attention_fast.cuh's.
 *
 * A block of threads takes 64 query rows (tokens by heads) of one head of keys, a warp sixteen of them, and walks
 * the pages that they see: values come by asynchronous copies while scores are made, the next page's keys while
 * values are mixed.  Or, where there are few such blocks, a block has every n-th chain, and decode_merge or decode_join add up what
 * each leaves in the scratch.  PACKED: keys and values are kept in Q8_0, come as they are kept and are widened (widen.cuh) to one place
 * that they share. */
#include "fast_rows.cuh"

#if __CUDA_ARCH__ >= 800

extern __shared__ __align__(16) uint8_t fast_mem[];

/* The page's scores of a warp. */
template <class T, int DIM>
DEVICE void score(float (&c)[KEY_TILES][4], const uint4 *q, uint32_t keys, uint32_t dim) {
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim);
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[t][e] = 0;
#pragma unroll(DIM > 128 ? 2 : DIM / 16)
    for (uint32_t s = 0; s < DIM / 16; s++) {
        if (16 * s >= dim)
            break;
        const uint4 step = q[s * 32 + threadIdx.x % 32];
#pragma unroll
        for (int p = 0; p < KEY_TILES / 2; p++)
            score_step<T>(c[2 * p], c[2 * p + 1], step, keys, ld, p, s);
    }
}

/* The page's values mixed; put(t, part) takes numbers 8 t + 2 q and the next of both rows. */
template <class T, int DIM, class F>
DEVICE void mix(const struct weights &w, uint32_t values, uint32_t dim, F put) {
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim);
#pragma unroll
    for (int g = 0; g < DIM / 16; g += 2) {
        float part[4][4] = {};
        if (16 * g >= dim)
            break;
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++) {
            mix_step<T>(part[0], part[1], w, s, values_at(values, ld, g, s));
            if (16 * g + 16 < dim)
                mix_step<T>(part[2], part[3], w, s, values_at(values, ld, g + 1, s));
        }
        put(2 * g, part[0]);
        put(2 * g + 1, part[1]);
        if (16 * g + 16 < dim) {
            put(2 * g + 2, part[2]);
            put(2 * g + 3, part[3]);
        }
    }
}

/* A page that is a chain to the sums so far. */
template <class T, int DIM>
DEVICE void add(struct sums<T, DIM> &o, const struct own_rows &own, uint32_t page, const struct sight &seen,
                const struct weights &w, uint32_t values, uint32_t dim) {
    const struct merging m = begin_merge(o, own, page, seen, w);
    mix<T, DIM>(w, values, dim, [&](int n, const float(&part)[4]) { merge(o.y[n], m, part); });
}

/* A page to the sums of a chain of several. */
template <class T, int TILES> DEVICE void mix_chain(float (&y)[TILES][4], const struct weights &w, uint32_t values, uint32_t dim) {
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim);
    shrink(y, w);
#pragma unroll
    for (int g = 0; g < TILES / 2; g++) {
        if (16 * g >= dim)
            break;
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++)
            mix_step<T>(y[2 * g], y[2 * g + 1], w, s, values_at(values, ld, g, s));
    }
}
/* A chain, of whose first page rows see `seen`, to the sums so far. */
template <class T, int DIM>
DEVICE void add_chain(struct sums<T, DIM> &o, const struct own_rows &own, uint32_t page, const struct sight &seen, const struct weights &w,
                      const float (&y)[DIM / 8][4]) {
    const struct merging m = begin_merge(o, own, page, seen, w);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++)
        merge(o.y[n], m, y[n]);
}
/* What a block of threads makes of its rows' pages, which are a chain each, or of chains of several; of every n-th chain, by itself. */
enum made { OF_PAGES, OF_CHAINS, PARTS_OF_CHAINS };
template <class T, bool PACKED, int DIM, enum made MADE> DEVICE void attend(const struct lode_cuda_att_args &a) {
    constexpr bool PARTS = MADE == PARTS_OF_CHAINS, CHAINS = MADE != OF_PAGES;
    const uint32_t dim = a.head_dim, dim_v = a.head_dim_v, warp = threadIdx.x / 32;
    /* PACKED: keys, then values, as they are kept behind where both are as halves */
    uint8_t *k = fast_mem + FAST_WARPS * LODE_ATT_FAST_QUERIES(dim), *v = PACKED ? k : k + PAGE * LODE_ATT_FAST_STRIDE(dim);
    uint8_t *const packed = k + PAGE * LODE_ATT_FAST_STRIDE(max(dim, dim_v));
    uint4 *q = (uint4 *)(fast_mem + warp * LODE_ATT_FAST_QUERIES(dim));
    static_assert(LODE_ATT_FAST_ROWS == FAST_WARPS * ROW_TILE, "");
    begin();
    struct rows_of t;
    uint32_t segment;
    if (PARTS)
        find_some_rows(a, t, LODE_ATT_FAST_ROWS, &segment);
    else if (!find_rows<LODE_ATT_FAST_ROWS>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group); /* that any row sees */
    const uint32_t from = oldest / PAGE;
    struct page_walk p(t.last / PAGE - from + 1, CHAINS ? a.chains : LODE_ATT_NO_CHAINS, PARTS ? blockIdx.z : 0, PARTS ? gridDim.z : 1);
    if (!p.more())
        return;
    const auto base_of = [&](const struct page_walk &of) { return page_of(view, from + of.page); };
    const size_t k_at = view.k + (size_t)t.head * PAGE * view.k_stride;
    const size_t v_at = view.v + (size_t)t.head * PAGE * view.v_stride;
    const auto lo_of = [&](uint32_t n) { return oldest > n * PAGE ? oldest - n * PAGE : 0; };
    const auto hi_of = [&](uint32_t n) { return min(t.last - n * PAGE + 1, (uint32_t)PAGE); };
    const auto ask = [&](uint8_t *to, const uint8_t *rows, uint32_t stride, uint32_t n, uint32_t width) {
        const uint32_t lo = lo_of(n);
        if constexpr (PACKED)
            ask_packed<FAST_THREADS>(threadIdx.x, packed, rows, hi_of(n) * stride);
        else
            ask_rows(to, rows, stride, lo, hi_of(n) - lo, width, PAGE);
        copies_end_group();
    };
    const auto arrived = [&](uint8_t *to, uint32_t n, uint32_t width) { /* for all threads, that nobody reads what was there before */
        copies_wait<0>();
        __syncthreads();
        if constexpr (PACKED) {
            widen_rows<FAST_THREADS>(threadIdx.x, to, packed, lo_of(n), hi_of(n) - lo_of(n), width);
            __syncthreads();
        }
    };
    const uint8_t *base = base_of(p);
    ask(k, base + k_at, view.k_stride, from + p.page, dim);
    struct own_rows own;
    find_own(own, a, t, warp);
    if (warp * ROW_TILE < t.n) {
        round_queries<T>(own, a, [&](uint32_t s, uint4 v) { q[s * 32 + threadIdx.x % 32] = v; });
        __syncwarp();
    }
    struct sums<T, DIM> o;
#pragma unroll
    for (int i = 0; i < DIM / 2; i++)
        o.y[i / 4][i % 4] = 0;
    o.max[0] = o.max[1] = o.total[0] = o.total[1] = 0;
    float c[CHAINS ? DIM / 8 : 1][4];
    struct weights w;
#pragma unroll 1
    while (p.more()) {
        const uint32_t page = from + p.page;
        const struct sight seen = sight_of(own, page * PAGE);
        const bool any = __any_sync(0xffffffffu, (seen.n[0] | seen.n[1]) != 0);
        struct page_walk then = p;
        then.next();
        const uint8_t *const next = then.more() ? base_of(then) : NULL; /* before copies that it would wait for */
        arrived(k, page, dim); /* values are read by nobody any more */
        ask(v, base + v_at, view.v_stride, page, dim_v);
        if (p.begins()) {
            begin_chain(w);
            if constexpr (CHAINS)
                begin_sums(c);
        }
        if (any) {
            float s[KEY_TILES][4];
            score<T, DIM>(s, q, shared_address(k), dim);
            weigh<2>(w, s, own.scale, a.cap, seen, __all_sync(0xffffffffu, seen.n[0] == PAGE && seen.n[1] == PAGE));
            round_weights<T, 2>(w, s);
        }
        arrived(v, page, dim_v); /* keys are read by nobody any more */
        if (next) {
            base = next;
            ask(k, base + k_at, view.k_stride, from + then.page, dim);
        }
        if constexpr (CHAINS) {
            if (any)
                mix_chain<T>(c, w, shared_address(v), dim_v);
            const uint32_t first = from + p.chain;
            const struct sight of = sight_of(own, first * PAGE);
            if (p.ends() && __any_sync(0xffffffffu, (of.n[0] | of.n[1]) != 0)) {
                if constexpr (PARTS)
                    leave_rows(a, own, first, of, w, c);
                else
                    add_chain(o, own, first, of, w, c);
            }
        } else if (any) {
            add<T, DIM>(o, own, page, seen, w, shared_address(v), dim_v);
        }
        p = then;
    }
    if constexpr (!PARTS)
        store(a, own, o, 0);
}

/* attend_fast_KEPT_DIM, where no chain has more than a page; attend_deep_KEPT_DIM, where some have; attend_parts_KEPT_DIM, of every n-th
 * chain by itself (blockIdx.z, from the first that any row of the tile sees on). */
#define ATTEND_AS(name, type, packed, dim, blocks, made)                                                 \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, blocks)                                   \
        name##_##dim(const __grid_constant__ struct lode_cuda_att_args a) {                              \
        attend<struct type, packed, dim, made>(a);                                                       \
    }
#define ATTEND(name, type, packed, dim, blocks, of_chains)                                               \
    ATTEND_AS(attend_fast_##name, type, packed, dim, blocks, OF_PAGES)                                   \
    ATTEND_AS(attend_deep_##name, type, packed, dim, of_chains, OF_CHAINS)                               \
    ATTEND_AS(attend_parts_##name, type, packed, dim, blocks, PARTS_OF_CHAINS)
#define ATTENDS(name, type, packed)                                                                      \
    ATTEND(name, type, packed, 64, 4, 4) ATTEND(name, type, packed, 128, 3, 2) ATTEND(name, type, packed, 256, 2, 2)
ATTENDS(f16, f16, false)
ATTENDS(bf16, bf16, false)
ATTENDS(q8_0, f16, true)

#endif
