/* attention_long.cu - attention of heads of more than 256 numbers in --numerics tensor: latent attention, whose values are the beginning of
 * its keys, and others; any step.  The arithmetic is attention_fast.cuh's.
 *
 * A block of threads has 16 or 32 query rows (tokens by heads) of a head of keys and walks the pages that they see.  Its eight warps share a
 * page's scores out by keys and its values by numbers, as decode_fast.cu's do, for a warp's registers would not hold all numbers of sixteen rows;
 * in between each of a tile of sixteen rows has all of their weights.  Or a block has every n-th chain, and what each leaves is joined.
 *
 * Pages come by asynchronous copies to slots of shared memory, one or two, as there is room: a page is one item of them where values are in the
 * keys, else keys are one and values the next. */
#include "fast_rows.cuh"

#if __CUDA_ARCH__ >= 800

enum { LONG_THREADS = LODE_ATT_LONG_THREADS, LONG_WARPS = LONG_THREADS / 32, LONG_DIM = LODE_ATT_LONG_DIM, LONG_DIM_V = LODE_ATT_LONG_DIM_V };
enum { LD_S = LODE_ATT_LONG_SCORES };

extern __shared__ __align__(16) uint8_t long_mem[];

/* What warps of a block of ROWS query rows have: which sixteen rows, and which part of those rows' work. */
template <int ROWS> struct share {
    enum { TILES = ROWS / ROW_TILE, PARTS = LONG_WARPS / TILES, KEYS = PAGE / PARTS, GROUPS = LONG_DIM_V / 16 / PARTS, STEPS = (LONG_DIM / 16 + PARTS - 1) / PARTS };
    static DEVICE_MEMBER uint32_t tile() { return threadIdx.x / 32 / PARTS; }
    static DEVICE_MEMBER uint32_t part() { return threadIdx.x / 32 % PARTS; }
};
/* Sums of a warp's numbers: 16 (part + PARTS g) and those that follow, of each g. */
template <int ROWS> struct long_sums {
    float y[share<ROWS>::GROUPS][2][4];
};
/* f(g, number) for those that there are. */
template <int ROWS, class F> DEVICE void each_group(uint32_t dim_v, F f) {
    typedef share<ROWS> mine;
#pragma unroll
    for (int g = 0; g < mine::GROUPS; g++) {
        const uint32_t first = 16 * (mine::part() + g * mine::PARTS);
        if (first >= dim_v)
            break;
        f(g, first);
    }
}

/* The block's queries, rounded: q has (tile, step, lane).  A warp reads its part of the steps once, and all of a tile find the rows' largest
 * numbers together in `most`, (ROWS), zeros before. */
template <class T, int ROWS>
DEVICE void put_queries(struct own_rows &own, const struct lode_cuda_att_args &a, uint4 *q, uint32_t *most, uint32_t steps) {
    typedef share<ROWS> mine;
    const uint32_t lane = threadIdx.x % 32;
    float2 v[mine::STEPS][2][2];
    uint32_t largest[2] = {};
#pragma unroll
    for (int k = 0; k < mine::STEPS; k++) {
        const uint32_t s = mine::part() + k * mine::PARTS;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const bool here = s < steps && own.q[i];
            const float *const from = own.q[i] + 16 * s + lane % 4 * 2;
            v[k][i][0] = here ? *(const float2 *)from : make_float2(0, 0);
            v[k][i][1] = here ? *(const float2 *)(from + 8) : make_float2(0, 0);
        }
    }
    if (T::SCALED) {
#pragma unroll
        for (int k = 0; k < mine::STEPS; k++)
#pragma unroll
            for (int i = 0; i < 2; i++)
                largest[i] = most_of(make_float4(v[k][i][0].x, v[k][i][0].y, v[k][i][1].x, v[k][i][1].y), largest[i]);
#pragma unroll
        for (int i = 0; i < 2; i++)
            atomicMax(&most[mine::tile() * ROW_TILE + lane / 4 + 8 * i], largest[i]);
        __syncthreads();
    }
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float2 f = factors_of<T>(most[mine::tile() * ROW_TILE + lane / 4 + 8 * i]);
        factor[i] = f.x;
        own.scale[i] = a.scale * f.y;
    }
#pragma unroll
    for (int k = 0; k < mine::STEPS; k++) {
        const uint32_t s = mine::part() + k * mine::PARTS;
        if (s < steps)
            q[(mine::tile() * steps + s) * 32 + lane] =
                make_uint4(pair_16<T>(v[k][0][0].x, v[k][0][0].y, factor[0]), pair_16<T>(v[k][1][0].x, v[k][1][0].y, factor[1]),
                           pair_16<T>(v[k][0][1].x, v[k][0][1].y, factor[0]), pair_16<T>(v[k][1][1].x, v[k][1][1].y, factor[1]));
    }
}

/* The warp's keys of a page by its sixteen rows, to `scores`, (ROWS, LD_S). */
template <class T, int ROWS> DEVICE void score(float *scores, const uint4 *q, uint32_t keys, uint32_t ld, uint32_t steps) {
    typedef share<ROWS> mine;
    const uint32_t lane = threadIdx.x % 32;
    float c[2][4] = {}; /* of eight keys there is one tile, by two steps at a time */
    q += mine::tile() * steps * 32 + lane;
    keys += mine::part() * mine::KEYS * ld;
    if constexpr (mine::KEYS == 16) {
#pragma unroll 4
        for (uint32_t s = 0; s < steps; s++)
            score_step<T>(c[0], c[1], q[32 * s], keys, ld, 0, s);
    } else {
        const uint32_t at = keys + lane % 8 * ld + lane / 8 * 16;
        const auto step = [&](uint4 x, uint32_t k0, uint32_t k1) { mma_fast<T>(c[0], make_uint2(x.x, x.z), make_uint2(x.y, x.w), make_uint2(k0, k1)); };
        uint32_t s = 0;
#pragma unroll 2
        for (; s + 2 <= steps; s += 2) {
            uint32_t k[4];
            load_pieces(k, at + 32 * s);
            step(q[32 * s], k[0], k[1]);
            step(q[32 * (s + 1)], k[2], k[3]);
        }
        if (s < steps) {
            uint32_t k[4];
            load_pieces(k, keys + lane % 8 * ld + lane / 8 % 2 * 16 + 32 * s);
            step(q[32 * s], k[0], k[1]);
        }
    }
    scores += (mine::tile() * ROW_TILE + lane / 4) * LD_S + mine::part() * mine::KEYS + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < mine::KEYS / 8; t++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(float2 *)(scores + 8 * i * LD_S + 8 * t) = make_float2(c[t][2 * i], c[t][2 * i + 1]);
}
/* What mma.sync leaves a thread of all of a page's scores of its warp's rows. */
template <int ROWS> DEVICE void read_scores(float (&c)[KEY_TILES][4], const float *scores) {
    const uint32_t lane = threadIdx.x % 32;
    scores += (share<ROWS>::tile() * ROW_TILE + lane / 4) * LD_S + lane % 4 * 2;
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float2 two = *(const float2 *)(scores + 8 * i * LD_S + 8 * t);
            c[t][2 * i] = two.x, c[t][2 * i + 1] = two.y;
        }
}

/* A page's values to the warp's numbers of a chain; first: of the chain, to sums of 0. */
template <class T, int ROWS>
DEVICE void mix(struct long_sums<ROWS> &c, const struct weights &w, bool first, uint32_t values, uint32_t ld, uint32_t dim_v) {
    typedef share<ROWS> mine;
    uint32_t at[PAGE / 16]; /* of a step's keys: groups are as far apart as compilers know */
#pragma unroll
    for (int s = 0; s < PAGE / 16; s++)
        at[s] = values_at(values, ld, mine::part(), s);
    each_group<ROWS>(dim_v, [&](int g, uint32_t) {
        if (!first)
            shrink(c.y[g], w);
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++)
            mix_step<T>(c.y[g][0], c.y[g][1], w, s, at[s] + g * (32 * mine::PARTS));
    });
}

/* Rows' sums so far, and their largest scores and totals, which all warps of a tile have. */
template <int ROWS> struct all_sums {
    struct long_sums<ROWS> o;
    struct { float max[2], total[2]; } ml;
};
/* A chain, of whose first page rows see `seen`, to them. */
template <int ROWS>
DEVICE void add_chain(struct all_sums<ROWS> &all, const struct own_rows &own, uint32_t page, const struct sight &seen, const struct weights &w,
                      const struct long_sums<ROWS> &c, uint32_t dim_v) {
    const struct merging m = begin_merge(all.ml, own, page, seen, w);
    each_group<ROWS>(dim_v, [&](int g, uint32_t) {
        merge(all.o.y[g][0], m, c.y[g][0]);
        merge(all.o.y[g][1], m, c.y[g][1]);
    });
}
/* To where row i's numbers lie. */
template <int ROWS> DEVICE void put_row(float *to, const struct long_sums<ROWS> &c, int i, uint32_t dim_v, const struct ending *end) {
    each_group<ROWS>(dim_v, [&](int g, uint32_t first) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 v = make_float2(c.y[g][h][2 * i], c.y[g][h][2 * i + 1]);
            if (end)
                v = make_float2(ended(v.x, *end), ended(v.y, *end));
            *(float2 *)(to + first + 8 * h + threadIdx.x % 4 * 2) = v;
        }
    });
}
/* A chain as it is, for those that join. */
template <int ROWS>
DEVICE void leave(const struct lode_cuda_att_args &a, const struct own_rows &own, uint32_t page, const struct sight &seen, const struct weights &w,
                  const struct long_sums<ROWS> &c) {
    const size_t n_parts = (size_t)a.n_rows * a.n_heads * a.max_pages;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (seen.n[i] == 0)
            continue;
        const uint32_t z = page - own.from[i] / PAGE;
        const size_t part = ((size_t)(own.row[i] - a.first_row) * a.n_heads + own.head[i]) * a.max_pages + z;
        if (share<ROWS>::part() == 0 && threadIdx.x % 4 == 0)
            ((float2 *)(at<float>(a.scratch) + n_parts * a.head_dim_v))[part] = make_float2(w.max[i], w.total[i]);
        put_row<ROWS>(at<float>(a.scratch) + part * a.head_dim_v, c, i, a.head_dim_v, NULL);
    }
}
template <int ROWS> DEVICE void store(const struct lode_cuda_att_args &a, const struct own_rows &own, const struct all_sums<ROWS> &all) {
    const float *sinks = at<const float>(a.sinks);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (own.last[i] < own.from[i])
            continue;
        const struct ending end = ending_of(all.ml.max[i], all.ml.total[i], sinks ? sinks + own.head[i] : NULL);
        put_row<ROWS>(row_at<float>(a.y, own.row[i]) + own.head[i] * a.head_dim_v, all.o, i, a.head_dim_v, &end);
    }
}

/* PARTS: of every n-th chain, by itself.  LATENT: heads are latent ones of as many numbers as there can be, which are those of nearly all models. */
template <class T, int ROWS, bool PARTS, bool LATENT> DEVICE void attend(const struct lode_cuda_att_long_args &f) {
    const struct lode_cuda_att_args &a = f.att;
    const uint32_t dim = LATENT ? LONG_DIM : a.head_dim, dim_v = LATENT ? LONG_DIM_V : a.head_dim_v;
    const uint32_t steps = dim / 16, slots = f.slots, tid = threadIdx.x;
    __shared__ uint32_t most[ROWS];
    static_assert(sizeof most <= LODE_ATT_LONG_OWN, "attention_shared.h");
    uint4 *const q = (uint4 *)long_mem;
    float *const scores = (float *)(long_mem + ROWS * 2 * dim);
    uint8_t *const slot = (uint8_t *)(scores + ROWS * LD_S);
    let_next_come();
    if (tid < ROWS)
        most[tid] = 0;
    struct rows_of t;
    uint32_t segment;
    /* the step was there before the first launch: its places can be found while the last one runs */
    if (!find_rows<ROWS>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s = at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const bool latent = LATENT || view.v_in_k;
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group); /* that any row sees */
    const uint32_t from = oldest / PAGE;
    struct page_walk p(t.last / PAGE - from + 1, a.chains, PARTS ? blockIdx.z : 0, PARTS ? gridDim.z : 1);
    if (!p.more())
        return;
    const size_t k_at = view.k + (size_t)t.head * PAGE * view.k_stride, v_at = view.v + (size_t)t.head * PAGE * view.v_stride;
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim), ld_v = latent ? ld : LODE_ATT_FAST_STRIDE(dim_v);
    /* Items of the walk in order: those that are asked for are up to `slots` ahead of those that are used. */
    struct page_walk next = p;
    bool next_values = false;
    uint32_t asked = 0, used = 0;
    const auto in_slot = [&](uint32_t i) { return slot + (slots > 1 ? i % 2 : 0) * f.slot_size; };
    const auto ask = [&] {
        if (next.more()) {
            const uint32_t page = from + next.page, lo = oldest > page * PAGE ? oldest - page * PAGE : 0, hi = min(t.last - page * PAGE + 1, (uint32_t)PAGE);
            const uint32_t stride = next_values ? view.v_stride : view.k_stride, pieces = (next_values ? dim_v : dim) / 8;
            const uint8_t *const rows = page_of(view, page) + (next_values ? v_at : k_at);
            uint8_t *const to = in_slot(asked);
            const uint32_t to_ld = next_values ? ld_v : ld;
            const uint32_t rest = LONG_THREADS % pieces, whole = LONG_THREADS / pieces; /* from a thread's copy to its next, without dividing */
            uint32_t j = tid / pieces, c = tid % pieces;
#pragma unroll 6
            for (; j < PAGE; j += whole) {
                const bool there = j - lo < hi - lo;
                copy_16_or_zero(to + j * to_ld + 16 * c, rows + (there ? j * stride + 16 * c : 0), there);
                c += rest;
                if (c >= pieces)
                    c -= pieces, j++;
            }
            asked++;
            if (latent || next_values)
                next.next();
            next_values = !latent && !next_values;
        }
        copies_end_group();
    };
    const auto arrived = [&] { /* for all threads, the next item: where it lies */
        if (slots > 1)
            copies_wait<1>();
        else
            copies_wait<0>();
        __syncthreads();
        return shared_address(in_slot(used++));
    };
    const auto is_old = [&] { return next.more() && (from + next.page + 1) * PAGE <= s.pos; }; /* of no row of this step */
    uint32_t ahead = 0;
    while (ahead < slots && is_old())
        ask(), ahead++;
    wait_for_last();
    for (; ahead < slots; ahead++)
        ask();
    struct own_rows own;
    find_own(own, a, t, share<ROWS>::tile());
    __syncthreads();
    put_queries<T, ROWS>(own, a, q, most, steps);
    struct all_sums<ROWS> all;
    if constexpr (!PARTS) {
#pragma unroll
        for (int g = 0; g < share<ROWS>::GROUPS; g++)
            begin_sums(all.o.y[g]);
        all.ml.max[0] = all.ml.max[1] = all.ml.total[0] = all.ml.total[1] = 0;
    }
    struct long_sums<ROWS> c;
    struct weights w;
#pragma unroll 1
    for (; p.more(); p.next()) {
        const uint32_t page = from + p.page;
        const struct sight seen = sight_of(own, page * PAGE);
        const bool any = __any_sync(0xffffffffu, (seen.n[0] | seen.n[1]) != 0);
        const uint32_t keys = arrived();
        score<T, ROWS>(scores, q, keys, ld, steps);
        __syncthreads();
        if (!latent)
            ask();
        if (p.begins()) {
            begin_chain(w);
#pragma unroll
            for (int g = 0; g < share<ROWS>::GROUPS; g++)
                begin_sums(c.y[g]);
        }
        if (any) {
            float x[KEY_TILES][4];
            read_scores<ROWS>(x, scores);
            weigh<2>(w, x, own.scale, a.cap, seen, __all_sync(0xffffffffu, seen.n[0] == PAGE && seen.n[1] == PAGE));
            round_weights<T, 2>(w, x);
        }
        const uint32_t values = latent ? keys : arrived();
        if (any)
            mix<T, ROWS>(c, w, p.begins(), values, ld_v, dim_v);
        const uint32_t first = from + p.chain;
        const struct sight of = sight_of(own, first * PAGE);
        if (p.ends() && __any_sync(0xffffffffu, (of.n[0] | of.n[1]) != 0)) {
            if constexpr (PARTS)
                leave<ROWS>(a, own, first, of, w, c);
            else
                add_chain<ROWS>(all, own, first, of, w, c, dim_v);
        }
        __syncthreads(); /* the slot and the scores are read by nobody any more */
        ask();
    }
    if constexpr (!PARTS)
        store<ROWS>(a, own, all);
}

/* attend_long_KEPT_ROWS; .._parts_.., of every n-th chain (blockIdx.z); .._latent_.., of latent heads of as many numbers as there can be.  blockIdx:
 * head of keys, tile of rows. */
#define LONG_AS(name, type, rows, parts, latent)                                                         \
    extern "C" __global__ void __launch_bounds__(LONG_THREADS, 1)                                        \
        name##_##type##_##rows(const __grid_constant__ struct lode_cuda_att_long_args a) {               \
        attend<struct type, rows, parts, latent>(a);                                                     \
    }
#define LONG_OF(type, rows)                                                                              \
    LONG_AS(attend_long, type, rows, false, false) LONG_AS(attend_long_parts, type, rows, true, false)   \
    LONG_AS(attend_latent, type, rows, false, true) LONG_AS(attend_latent_parts, type, rows, true, true)
LONG_OF(f16, 16)
LONG_OF(f16, 32)
LONG_OF(bf16, 16)
LONG_OF(bf16, 32)

#endif
