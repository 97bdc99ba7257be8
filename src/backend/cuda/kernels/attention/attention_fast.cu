/* attention_fast.cu - attention of steps of many rows in --numerics tensor; the arithmetic is attention_fast.cuh's.
 *
 * A block of threads takes 64 query rows (tokens by heads) of one head of keys, a warp sixteen of them, and walks
 * the pages that they see: values come by asynchronous copies while scores are made, the next page's keys while
 * values are mixed.  Or, where there are few such blocks, a block does one page, and attention_merge adds up what
 * they leave in the scratch. */
#include "attention_fast.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

#if __CUDA_ARCH__ >= 800

extern __shared__ __align__(16) uint8_t fast_mem[];

/* The two rows of a thread. */
struct own_rows {
    const float *q[2]; /* NULL: there is none */
    uint32_t head[2], row[2];        /* of all heads; of the step */
    uint32_t from[2], last[2];       /* what it sees */
    float scale[2];                  /* of its scores: what undoes the rounded queries' factor too */
};
DEVICE void find_own(struct own_rows &o, const struct lode_cuda_att_args &a, const struct rows_of &t) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = threadIdx.x / 32 * ROW_TILE + threadIdx.x % 32 / 4 + 8 * i, n = t.first + r;
        const uint32_t token = n / t.group, pos = t.pos + token;
        const bool here = r < t.n;
        o.row[i] = t.first_row + token;
        o.head[i] = t.head * t.group + n % t.group;
        o.q[i] = here ? row_at<const float>(a.q, o.row[i]) + o.head[i] * a.head_dim : NULL;
        o.from[i] = first_seen(a, pos);
        o.last[i] = a.both_ways ? t.last : pos;
    }
}

/* A warp's queries, rounded, to `to`: (steps, lane) pieces of sixteen bytes. */
template <class T> DEVICE void round_queries(struct own_rows &o, uint4 *to, const struct lode_cuda_att_args &a) {
    const uint32_t lane = threadIdx.x % 32;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t most = 0;
        if (T::SCALED && o.q[i])
#pragma unroll 4
            for (uint32_t c = lane % 4 * 4; c < a.head_dim; c += 16) {
                const float4 v = *(const float4 *)(o.q[i] + c);
                most = max(max(most, lode_f32_bits(v.x) & 0x7fffffff), lode_f32_bits(v.y) & 0x7fffffff);
                most = max(max(most, lode_f32_bits(v.z) & 0x7fffffff), lode_f32_bits(v.w) & 0x7fffffff);
            }
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float2 f = factors_of<T>(most);
        factor[i] = f.x;
        o.scale[i] = a.scale * f.y;
    }
#pragma unroll 2
    for (uint32_t s = 0; s < a.head_dim / 16; s++)
        to[s * 32 + lane] = query_step<T>(o.q, factor, s);
    __syncwarp();
}

DEVICE struct sight sight_of(const struct own_rows &o, uint32_t start) {
    struct sight s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t lo = o.from[i] > start ? o.from[i] - start : 0;
        const uint32_t hi = o.last[i] < start ? 0 : min(o.last[i] - start + 1, (uint32_t)PAGE);
        s.lo[i] = lo;
        s.n[i] = o.q[i] && lo < hi ? hi - lo : 0;
    }
    return s;
}

/* DIM: at most so many numbers of a key, of a value.  y: numbers 8 t + 2 q and the next of both rows. */
template <class T, int DIM> struct sums {
    float y[DIM / 8][4], max[2], total[2];
};

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
            mix_step<T>(part[0], part[1], w, values, ld, g, s);
            if (16 * g + 16 < dim)
                mix_step<T>(part[2], part[3], w, values, ld, g + 1, s);
        }
        put(2 * g, part[0]);
        put(2 * g + 1, part[1]);
        if (16 * g + 16 < dim) {
            put(2 * g + 2, part[2]);
            put(2 * g + 3, part[3]);
        }
    }
}

/* What becomes of a row's sums so far (old) and of the page's (now); neither where the row does not see it. */
struct merging {
    float old[2], now[2];
    bool seen[2], first[2];
};
template <class T, int DIM>
DEVICE void merge(struct sums<T, DIM> &o, const struct merging &m, bool plain, int t, const float (&part)[4]) {
    if (plain) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            o.y[t][e] = fmaf(m.now[e / 2], part[e], o.y[t][e] * m.old[e / 2]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float v = fmaf(m.now[e / 2], part[e], o.y[t][e] * m.old[e / 2]);
            o.y[t][e] = m.first[e / 2] ? part[e] : m.seen[e / 2] ? v : o.y[t][e];
        }
    }
}

/* A page to the sums so far. */
template <class T, int DIM>
DEVICE void add(struct sums<T, DIM> &o, const struct own_rows &own, uint32_t page, const struct sight &seen,
                const struct weights &w, uint32_t values, uint32_t dim) {
    struct merging m;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        m.seen[i] = seen.n[i] != 0;
        m.first[i] = m.seen[i] && page == own.from[i] / PAGE;
        const float top = w.max[i] > o.max[i] ? w.max[i] : o.max[i];
        m.old[i] = exp_below(o.max[i] - top);
        m.now[i] = exp_below(w.max[i] - top);
        const float total = fmaf(w.total[i], m.now[i], o.total[i] * m.old[i]);
        o.total[i] = m.first[i] ? w.total[i] : m.seen[i] ? total : o.total[i];
        o.max[i] = m.first[i] ? w.max[i] : m.seen[i] ? top : o.max[i];
    }
    const bool plain = __all_sync(0xffffffffu, m.seen[0] && m.seen[1] && !m.first[0] && !m.first[1]);
    mix<T, DIM>(w, values, dim, [&](int n, const float(&part)[4]) { merge<T, DIM>(o, m, plain, n, part); });
}

/* A thread's numbers of row `row` as fast_x would leave them for a product with BF16 weights; first: of the head. */
template <class T, int DIM>
DEVICE void store_rounded(const struct lode_cuda_att_args &a, uint32_t row, uint32_t first, const struct ending &end,
                          const struct sums<T, DIM> &o, int i) {
    const uint32_t r = row % LODE_FAST_TILE, q = threadIdx.x % 4;
    uint8_t *tile = row_at<uint8_t>(a.y, row / LODE_FAST_TILE);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
        const uint32_t piece = first / 8 + n;
        if (8 * n < a.head_dim_v)
            *(uint32_t *)(tile + (size_t)(piece / 8) * LODE_FAST_PANEL + in_panel(r, piece % 8) + 4 * q) =
                pair_16<bf16>(ended(o.y[n][2 * i], end), ended(o.y[n][2 * i + 1], end), 1);
    }
    if (first == 0 && q == 0)
        ((float *)(tile + a.y.stride) - LODE_FAST_TILE)[r] = 1;
}
template <class T, int DIM>
DEVICE void store(const struct lode_cuda_att_args &a, const struct own_rows &own, const struct sums<T, DIM> &o) {
    const float *sinks = at<const float>(a.sinks);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (!own.q[i])
            continue;
        const struct ending end = ending_of(o.max[i], o.total[i], sinks ? sinks + own.head[i] : NULL);
        const uint32_t first = own.head[i] * a.head_dim_v;
        if (a.rounded) {
            store_rounded<T, DIM>(a, own.row[i], first, end, o, i);
            continue;
        }
        float *y = row_at<float>(a.y, own.row[i]) + first + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
            if (8 * n < a.head_dim_v)
                *(float2 *)(y + 8 * n) = make_float2(ended(o.y[n][2 * i], end), ended(o.y[n][2 * i + 1], end));
    }
}

/* A page as it is, for attention_merge. */
template <class T, int DIM>
DEVICE void leave(const struct lode_cuda_att_args &a, const struct own_rows &own, uint32_t page,
                  const struct sight &seen, const struct weights &w, uint32_t values) {
    float *to[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t z = page - own.from[i] / PAGE; /* of its own pages, so that merge need not know the tile */
        const size_t part = ((size_t)own.row[i] * a.n_heads + own.head[i]) * a.max_pages + z;
        to[i] = seen.n[i] ? at<float>(a.scratch) + part * (a.head_dim_v + 2) : NULL;
        if (to[i] && threadIdx.x % 4 == 0)
            *(float2 *)to[i] = make_float2(w.max[i], w.total[i]);
    }
    mix<T, DIM>(w, values, a.head_dim_v, [&](int n, const float(&part)[4]) {
#pragma unroll
        for (int i = 0; i < 2; i++)
            if (to[i])
                *(float2 *)(to[i] + 2 + 8 * n + threadIdx.x % 4 * 2) = make_float2(part[2 * i], part[2 * i + 1]);
    });
}

template <class T, int DIM, bool ONE_PAGE> DEVICE void attend(const struct lode_cuda_att_args &a) {
    const uint32_t dim = a.head_dim, dim_v = a.head_dim_v, warp = threadIdx.x / 32;
    uint8_t *k = fast_mem + FAST_WARPS * LODE_ATT_FAST_QUERIES(dim), *v = k + PAGE * LODE_ATT_FAST_STRIDE(dim);
    uint4 *q = (uint4 *)(fast_mem + warp * LODE_ATT_FAST_QUERIES(dim));
    static_assert(LODE_ATT_FAST_ROWS == FAST_WARPS * ROW_TILE, "");
    begin();
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<LODE_ATT_FAST_ROWS>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group); /* that any row sees */
    uint32_t page = oldest / PAGE + (ONE_PAGE ? blockIdx.z : 0);
    const uint32_t last_page = ONE_PAGE ? page : t.last / PAGE;
    if (page > t.last / PAGE)
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
    if (warp * ROW_TILE < t.n)
        round_queries<T>(own, q, a);
    struct sums<T, DIM> o;
#pragma unroll
    for (int i = 0; i < DIM / 2; i++)
        o.y[i / 4][i % 4] = 0;
    o.max[0] = o.max[1] = o.total[0] = o.total[1] = 0;
#pragma unroll 1
    for (; page <= last_page; page++) {
        const struct sight seen = sight_of(own, page * PAGE);
        const bool any = __any_sync(0xffffffffu, (seen.n[0] | seen.n[1]) != 0);
        struct weights w;
        copies_wait<0>();
        __syncthreads(); /* the keys are there, values are read by nobody any more */
        ask(v, base + v_at, view.v_stride, page, dim_v);
        if (any) {
            float c[KEY_TILES][4];
            score<T, DIM>(c, q, shared_address(k), dim);
            weigh<T, 2>(w, c, own.scale, a.cap, seen,
                     __all_sync(0xffffffffu, seen.n[0] == PAGE && seen.n[1] == PAGE));
        }
        copies_wait<0>();
        __syncthreads(); /* the values are there, keys are read by nobody any more */
        if (page < last_page) {
            base = base_of(page + 1);
            ask(k, base + k_at, view.k_stride, page + 1, dim);
        }
        if (!any)
            continue;
        if constexpr (ONE_PAGE)
            leave<T, DIM>(a, own, page, seen, w, shared_address(v));
        else
            add<T, DIM>(o, own, page, seen, w, shared_address(v), dim_v);
    }
    if constexpr (!ONE_PAGE)
        store<T, DIM>(a, own, o);
}

/* attend_TYPE_DIM, and of one page each (blockIdx.z, from the first that any row of the tile sees on). */
#define ATTEND(type, dim, blocks)                                                                  \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, blocks)                             \
        attend_fast_##type##_##dim(const __grid_constant__ struct lode_cuda_att_args a) {          \
        attend<struct type, dim, false>(a);                                                        \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(FAST_THREADS, blocks)                             \
        attend_page_##type##_##dim(const __grid_constant__ struct lode_cuda_att_args a) {          \
        attend<struct type, dim, true>(a);                                                         \
    }
#define ATTENDS(type) ATTEND(type, 64, 4) ATTEND(type, 128, 3) ATTEND(type, 256, 2)
ATTENDS(f16)
ATTENDS(bf16)

#endif
