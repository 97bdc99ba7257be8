/* attention_fast.cu - attention of steps of many rows in --numerics tensor; the arithmetic is attention_fast.cuh's.
 *
 * A block of threads takes 64 query rows (tokens by heads) of one head of keys, a warp sixteen of them, and walks
 * the pages that they see: values come by asynchronous copies while scores are made, the next page's keys while
 * values are mixed.  Or, where there are few such blocks, a block has every n-th page, and decode_merge or decode_join add up what
 * each leaves in the scratch. */
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

/* A page to the sums so far. */
template <class T, int DIM>
DEVICE void add(struct sums<T, DIM> &o, const struct own_rows &own, uint32_t page, const struct sight &seen,
                const struct weights &w, uint32_t values, uint32_t dim) {
    const struct merging m = begin_merge(o, own, page, seen, w);
    mix<T, DIM>(w, values, dim, [&](int n, const float(&part)[4]) { merge(o.y[n], m, part); });
}

/* A page as it is, for decode_merge and decode_join. */
template <class T, int DIM>
DEVICE void leave(const struct lode_cuda_att_args &a, const struct own_rows &own, uint32_t page,
                  const struct sight &seen, const struct weights &w, uint32_t values) {
    const size_t n_parts = (size_t)a.n_rows * a.n_heads * a.max_pages;
    float *to[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t z = page - own.from[i] / PAGE; /* of its own pages, so that merge need not know the tile */
        const size_t part = ((size_t)(own.row[i] - a.first_row) * a.n_heads + own.head[i]) * a.max_pages + z;
        to[i] = seen.n[i] ? at<float>(a.scratch) + part * a.head_dim_v : NULL;
        if (to[i] && threadIdx.x % 4 == 0)
            ((float2 *)(at<float>(a.scratch) + n_parts * a.head_dim_v))[part] = make_float2(w.max[i], w.total[i]);
    }
    mix<T, DIM>(w, values, a.head_dim_v, [&](int n, const float(&part)[4]) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (to[i])
                *(float2 *)(to[i] + 8 * n + threadIdx.x % 4 * 2) = make_float2(part[2 * i], part[2 * i + 1]);
    });
}

/* The block's rows of those that parts are of. */
DEVICE void find_some_rows(const struct lode_cuda_att_args &a, struct rows_of &t, uint32_t *segment) {
    const struct lode_cuda_row &first = step_row(a.step, a.first_row);
    t.group = a.n_heads / a.n_kv_heads;
    t.first = blockIdx.y * LODE_ATT_FAST_ROWS;
    t.n = min(a.n_rows * t.group - t.first, (uint32_t)LODE_ATT_FAST_ROWS);
    t.head = blockIdx.x, t.pos = first.pos, t.first_row = a.first_row;
    t.last = t.pos + (t.first + t.n - 1) / t.group;
    *segment = first.segment;
}

/* PARTS: every n-th page, by itself. */
template <class T, int DIM, bool PARTS> DEVICE void attend(const struct lode_cuda_att_args &a) {
    const uint32_t dim = a.head_dim, dim_v = a.head_dim_v, warp = threadIdx.x / 32;
    uint8_t *k = fast_mem + FAST_WARPS * LODE_ATT_FAST_QUERIES(dim), *v = k + PAGE * LODE_ATT_FAST_STRIDE(dim);
    uint4 *q = (uint4 *)(fast_mem + warp * LODE_ATT_FAST_QUERIES(dim));
    static_assert(LODE_ATT_FAST_ROWS == FAST_WARPS * ROW_TILE, "");
    begin();
    struct rows_of t;
    uint32_t segment;
    if (PARTS)
        find_some_rows(a, t, &segment);
    else if (!find_rows<LODE_ATT_FAST_ROWS>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group); /* that any row sees */
    const uint32_t last_page = t.last / PAGE, every = PARTS ? gridDim.z : 1;
    uint32_t page = oldest / PAGE + (PARTS ? blockIdx.z : 0);
    if (page > last_page)
        return;
    const auto base_of = [&](uint32_t n) {
        return at<const uint8_t>(at<const lode_dev>(view.pages)[n % view.n_entries]);
    };
    const size_t k_at = view.k + (size_t)t.head * PAGE * view.k_stride;
    const size_t v_at = view.v + (size_t)t.head * PAGE * view.v_stride;
    const auto ask = [&](uint8_t *to, const uint8_t *rows, uint32_t stride, uint32_t n, uint32_t width) {
        const uint32_t lo = oldest > n * PAGE ? oldest - n * PAGE : 0;
        ask_rows(to, rows, stride, lo, min(t.last - n * PAGE + 1, (uint32_t)PAGE) - lo, width, PAGE);
        copies_end_group();
    };
    const uint8_t *base = base_of(page);
    ask(k, base + k_at, view.k_stride, page, dim);
    struct own_rows own;
    find_own(own, a, t);
    if (warp * ROW_TILE < t.n) {
        round_queries<T>(own, a, [&](uint32_t s, uint4 v) { q[s * 32 + threadIdx.x % 32] = v; });
        __syncwarp();
    }
    struct sums<T, DIM> o;
#pragma unroll
    for (int i = 0; i < DIM / 2; i++)
        o.y[i / 4][i % 4] = 0;
    o.max[0] = o.max[1] = o.total[0] = o.total[1] = 0;
#pragma unroll 1
    for (; page <= last_page; page += every) {
        const struct sight seen = sight_of(own, page * PAGE);
        const bool any = __any_sync(0xffffffffu, (seen.n[0] | seen.n[1]) != 0);
        const uint8_t *const next = page + every <= last_page ? base_of(page + every) : NULL; /* before copies that it would wait for */
        struct weights w;
        copies_wait<0>();
        __syncthreads(); /* the keys are there, values are read by nobody any more */
        ask(v, base + v_at, view.v_stride, page, dim_v);
        if (any) {
            float c[KEY_TILES][4];
            score<T, DIM>(c, q, shared_address(k), dim);
            weigh<2>(w, c, own.scale, a.cap, seen, __all_sync(0xffffffffu, seen.n[0] == PAGE && seen.n[1] == PAGE));
            round_weights<T, 2>(w, c);
        }
        copies_wait<0>();
        __syncthreads(); /* the values are there, keys are read by nobody any more */
        if (next) {
            base = next;
            ask(k, base + k_at, view.k_stride, page + every, dim);
        }
        if (!any)
            continue;
        if constexpr (PARTS)
            leave<T, DIM>(a, own, page, seen, w, shared_address(v));
        else
            add<T, DIM>(o, own, page, seen, w, shared_address(v), dim_v);
    }
    if constexpr (!PARTS)
        store<T, DIM>(a, own, o);
}

/* attend_TYPE_DIM, and of every n-th page by itself (blockIdx.z, from the first that any row of the tile sees on). */
#define ATTEND(type, dim, blocks)                                                                  \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, blocks)                             \
        attend_fast_##type##_##dim(const __grid_constant__ struct lode_cuda_att_args a) {          \
        attend<struct type, dim, false>(a);                                                        \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, blocks)                             \
        attend_parts_##type##_##dim(const __grid_constant__ struct lode_cuda_att_args a) {          \
        attend<struct type, dim, true>(a);                                                         \
    }
#define ATTENDS(type) ATTEND(type, 64, 4) ATTEND(type, 128, 3) ATTEND(type, 256, 2)
ATTENDS(f16)
ATTENDS(bf16)

#endif
