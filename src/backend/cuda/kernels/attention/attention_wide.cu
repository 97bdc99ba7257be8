/* attention_wide.cu - attention_fast.cu on Hopper's warpgroups: steps of many rows in --numerics tensor, heads of 64, 128 or 256 numbers,
 * scores without a cap.
 *
 * A block of threads has 64 query rows (tokens by heads) of a head of keys for each of its warpgroups that multiply, and walks
 * the pages that they see (wide_walk.cuh); another warpgroup has pages brought, keys and values each to a ring of panels (wgmma.cuh).
 * With two warpgroups one has the tensor cores while the other weighs.
 *
 * Sums of 256 numbers are more than a warpgroup's registers hold: there both have the same 64 rows, make all of their scores and have half of
 * the values' numbers each.
 *
 * Pages of 16 bits are panels as they are copied.  Those of Q8_0 are widened to halves on their way, once for all rows of the block
 * (widen_pages.cuh); from there on they are pages of F16. */
#include "wide_walk.cuh"
#include "widen_pages.cuh"
#include "backend/cuda/kernels/products/spread.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { SLOTS = LODE_ATT_WIDE_SLOTS };

template <int DIM, int GROUPS> struct wide_mem;
/* What each of GROUPS warpgroups that multiply has: SPLIT, half of the values' numbers of the same rows, or all VALUES of its own. */
template <int D, int GROUPS> struct work_of {
    typedef struct wide_mem<D, GROUPS> mem;
    enum { SPLIT = D > 128, TILES = SPLIT ? 1 : GROUPS, ROWS = TILES * GROUP_ROWS };
    enum { DIM = D, VALUES = SPLIT ? DIM / GROUPS : DIM, SLOTS = LODE_ATT_WIDE_SLOTS, TURNS = GROUPS > 1, ONE = 0 };
    static DEVICE_MEMBER uint32_t tile() { return SPLIT ? 0 : threadIdx.x / GROUP_THREADS; }
    static DEVICE_MEMBER uint32_t first_value() { return SPLIT ? threadIdx.x / GROUP_THREADS * VALUES : 0; }
};

template <int DIM, int GROUPS> struct __align__(1024) wide_mem {
    enum { SIZE = PAGE * 2 * DIM, TILES = work_of<DIM, GROUPS>::TILES, SHARED = LODE_ATT_WIDE_SHARED(DIM, TILES) };
    uint8_t q[TILES][GROUP_ROWS * 2 * DIM];
    uint8_t k[SLOTS][SIZE], v[SLOTS][SIZE];
    uint64_t k_full[SLOTS], k_empty[SLOTS], v_full[SLOTS], v_empty[SLOTS];
};
template <int DIM, int GROUPS> struct __align__(1024) widened_mem {
    enum { SHARED = LODE_ATT_WIDE_Q8_0_SHARED(DIM, GROUPS) };
    struct wide_mem<DIM, GROUPS> wide; /* where it is without stages: nobody else need know */
    struct page_stages<DIM> stages;
};

/* What pages are kept as, and for it: what is multiplied; a block's shared memory; registers of those that bring and of those that multiply,
 * where two warpgroups do. */
template <class T> struct pages_as { /* as they are multiplied */
    typedef T number;
    template <int DIM, int GROUPS> using mem = wide_mem<DIM, GROUPS>;
    enum { WIDENED = 0, KEPT = 24, TAKEN = 240 };
};
template <> struct pages_as<struct q8_0> {
    typedef f16 number;
    template <int DIM, int GROUPS> using mem = widened_mem<DIM, GROUPS>;
    enum { WIDENED = 1, KEPT = 56, TAKEN = 224 }; /* 40 would not do for a pair's 17 words and what becomes of them */
};

/* m: where wide_mem lies in shared memory. */
template <int DIM, int GROUPS>
DEVICE void bring_pages(uint32_t m, const struct lode_cuda_att_wide_args &f, const struct rows_of &t, const struct lode_cuda_view &view,
                        const struct pages_of &pages) {
    typedef struct wide_mem<DIM, GROUPS> mem;
    const size_t k_at = view.k + (size_t)t.head * mem::SIZE, v_at = view.v + (size_t)t.head * mem::SIZE;
    struct ring r = {0, 1};
#pragma unroll 1
    for (struct page_walk p = pages.walk(); p.more(); p.next(), next_of<SLOTS>(r)) {
        const uint8_t *base = page_of(view, pages.from + p.page);
        const uint32_t k_full = m + AT(k_full) + 8 * r.at, v_full = m + AT(v_full) + 8 * r.at;
        barrier_wait(m + AT(k_empty) + 8 * r.at, r.parity);
        ask_panels<DIM>(m + AT(k) + r.at * mem::SIZE, &f.rows, base + k_at, k_full);
        barrier_wait(m + AT(v_empty) + 8 * r.at, r.parity);
        ask_panels<DIM>(m + AT(v) + r.at * mem::SIZE, &f.rows, base + v_at, v_full);
    }
}

/* By all threads of the warpgroup that brings. */
template <int DIM, int GROUPS>
DEVICE void bring_widened_pages(uint32_t m, const struct rows_of &t, const struct lode_cuda_view &view, const struct pages_of &pages) {
    typedef struct widened_mem<DIM, GROUPS> mem;
    const bool values = party() == 1;
    const struct lode_cuda_view here = view; /* not read anew for each page: that would keep all threads waiting */
    const size_t rows_at = (values ? here.v : here.k) + (size_t)t.head * page_stages<DIM>::SIZE;
    const struct panel_ring ring = {m + (values ? AT(wide.v) : AT(wide.k)), m + (values ? AT(wide.v_full) : AT(wide.k_full)),
                                    m + (values ? AT(wide.v_empty) : AT(wide.k_empty))};
    bring_widened<DIM, SLOTS>(m + AT(stages), ring, pages.walk(), rows_at, [&](uint32_t page) { return page_of(here, pages.from + page); });
}

/* What a warpgroup's rows have come to, rounded to blocks of 32 as a product of many rows reads them: by way of the shared memory that their
 * queries had, in panels of floats, half of a head's numbers at a time and a thread a block of 32.  first: the warpgroup's first row, of the n
 * from t.first on. */
template <class T, int DIM>
DEVICE void store_spread(const struct lode_cuda_att_args &a, const struct own_rows &own, const struct sums<T, DIM> &o, uint32_t mem,
                         const struct rows_of &t, uint32_t first) {
    enum { HALF = DIM / 2, FLOATS = GROUP_ROWS * 128 };
    const uint32_t thread = threadIdx.x % GROUP_THREADS, r = thread % GROUP_ROWS, n = t.first + first + r;
    const uint32_t block = (t.head * t.group + n % t.group) * (DIM / 32) + thread / GROUP_ROWS;
    const float *sinks = at<const float>(a.sinks);
    struct ending end[2];
#pragma unroll
    for (int i = 0; i < 2; i++)
        end[i] = ending_of(o.max[i], o.total[i], sinks ? sinks + own.head[i] : NULL);
    const auto put = [&](int half) {
#pragma unroll
        for (int k = 0; k < HALF / 8; k++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const uint32_t row = thread / 32 * ROW_TILE + thread % 32 / 4 + 8 * i, in = 8 * k % 32 + thread % 4 * 2;
                const float(&y)[4] = o.y[half * (HALF / 8) + k];
                store2(mem + k / 4 * FLOATS + in_panel(row, in / 4) + in % 4 * 4,
                       make_float2(ended(y[2 * i], end[i]), ended(y[2 * i + 1], end[i])));
            }
    };
#pragma unroll 1
    for (uint32_t half = 0; half < 2; half++) {
        group_sync(); /* queries, or the first half, are read by nobody any more */
        if (half == 0)
            put(0);
        else
            put(1);
        group_sync();
        if (thread < 2 * HALF && first + r < t.n)
            round_block_32(spread_block_in(a.tiles, t.first_row + n / t.group, block + half * (HALF / 32)),
                        mem + thread / GROUP_ROWS * FLOATS, r);
    }
}

template <class PAGES, int DIM, int GROUPS> DEVICE void attend(const struct lode_cuda_att_wide_args &f) {
    enum { MULTIPLIERS = GROUPS * GROUP_THREADS };
    typedef struct work_of<DIM, GROUPS> work;
    typedef struct pages_as<PAGES> kept;
    typedef typename kept::number T;
    typedef struct wide_mem<DIM, GROUPS> mem;
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    const uint32_t m = (shared_address(wide_bytes) + 1023) & ~1023u;
    typedef typename kept::template mem<DIM, GROUPS> all;
    static_assert(sizeof(all) + 1024 <= all::SHARED, "attention_shared.h");
    static_assert(kept::KEPT + 2 * kept::TAKEN <= 3 * 168, "384 threads begin with 168 registers each: who asks for more waits for ever");
    const struct lode_cuda_att_args &a = f.att;
    if (threadIdx.x == 0) {
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(m + AT(k_full) + 8 * i, 1), barrier_init(m + AT(v_full) + 8 * i, 1);
            barrier_init(m + AT(k_empty) + 8 * i, MULTIPLIERS / 32), barrier_init(m + AT(v_empty) + 8 * i, MULTIPLIERS / 32);
        }
        if constexpr (kept::WIDENED)
            init_stages<DIM>(m + (uint32_t)offsetof(all, stages));
        barriers_made();
    }
    __syncthreads();
    begin();
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<work::ROWS>(a, t, &segment))
        return;
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group);
    const struct pages_of pages = {oldest / PAGE, t.last / PAGE, oldest, t.last, a.chains};
    if (threadIdx.x >= MULTIPLIERS) {
        if (GROUPS > 1)
            keep_registers<kept::KEPT>();
        const struct lode_cuda_segment &s = at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
        const struct lode_cuda_view &view = at<const struct lode_cuda_view>(s.views)[a.layer];
        if constexpr (kept::WIDENED)
            bring_widened_pages<DIM, GROUPS>(m, t, view, pages);
        else if (threadIdx.x == MULTIPLIERS)
            bring_pages<DIM, GROUPS>(m, f, t, view, pages);
        return;
    }
    if (GROUPS > 1) {
        take_registers<kept::TAKEN>();
        begin_turns();
    }
    struct walker<T, work> w = {m, pages};
    const uint32_t above = work::tile() * GROUP_ROWS;
    find_own(w.own, a, t, above / ROW_TILE + threadIdx.x % GROUP_THREADS / 32);
    w.put_queries(a);
    walk_pages(w, a, t, above);
    if constexpr (!work::SPLIT)
        if (a.tiles.kind == LODE_TILES_SPREAD) {
            store_spread(a, w.own, w.o, w.queries(), t, above);
            return;
        }
    store(a, w.own, w.o, work::first_value());
}

/* attend_wide_PAGES_DIM_GROUPS: heads of DIM numbers, by so many warpgroups that multiply. */
#define ATTEND(pages, dim, groups)                                                                       \
    extern "C" __global__ void __launch_bounds__((groups + 1) * GROUP_THREADS, 1)                          \
        attend_wide_##pages##_##dim##_##groups(const __grid_constant__ struct lode_cuda_att_wide_args f) { \
        attend<struct pages, dim, groups>(f);                                                            \
    }
#define ATTENDS(pages) ATTEND(pages, 64, 1) ATTEND(pages, 64, 2) ATTEND(pages, 128, 1) ATTEND(pages, 128, 2)
ATTENDS(f16)
ATTENDS(bf16)
ATTENDS(q8_0)
ATTEND(f16, 256, 2)
ATTEND(bf16, 256, 2)

#endif
