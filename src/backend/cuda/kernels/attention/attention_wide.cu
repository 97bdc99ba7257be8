/* attention_wide.cu - attention_fast.cu on Hopper's warpgroups: steps of many rows in --numerics tensor, heads of 64, 128 or 256 numbers,
 * scores without a cap.
 *
 * A block of threads has 64 query rows (tokens by heads) of a head of keys for each of its warpgroups that multiply, and walks
 * the pages that they see; another warpgroup has pages brought, keys and values each to a ring of panels (wgmma.cuh).  While
 * a page's values are mixed the next one's scores are made and weighed: a stage is a page's scores and the values of the page before.
 * With two warpgroups one has the tensor cores while the other weighs.
 *
 * Sums of 256 numbers are more than a warpgroup's registers hold: there both have the same 64 rows, make all of their scores and have half of
 * the values' numbers each.
 *
 * Pages of 16 bits are panels as they are copied.  Those of Q8_0 are widened to halves on their way, once for all rows of the block
 * (widen_pages.cuh); from there on they are pages of F16.
 *
 * wgmma's results are those of mma.sync, thread by thread, so all but the products are fast_rows.cuh's lines.  A chain's sums are the
 * products' own registers. */
#include "fast_rows.cuh"
#include "panels.cuh"
#include "widen_pages.cuh"
#include "backend/cuda/kernels/products/spread.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { GROUP_ROWS = 64, GROUP_THREADS = 128, SLOTS = LODE_ATT_WIDE_SLOTS };

/* What each of GROUPS warpgroups that multiply has: SPLIT, half of the values' numbers of the same rows, or all VALUES of its own. */
template <int DIM, int GROUPS> struct work_of {
    enum { SPLIT = DIM > 128, TILES = SPLIT ? 1 : GROUPS, VALUES = SPLIT ? DIM / GROUPS : DIM, ROWS = TILES * GROUP_ROWS };
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

DEVICE void scores_step(f16, float (&d)[32], uint32_t q, uint32_t k, int add) { wgmma_low_f16(d, q, k, add); }
DEVICE void scores_step(bf16, float (&d)[32], uint32_t q, uint32_t k, int add) { wgmma_low_bf16(d, q, k, add); }
template <int N> DEVICE void values_step(f16, float (&d)[N], const uint32_t (&p)[4], uint32_t v, int add) { wgmma_turned_f16(d, p, v, add); }
template <int N> DEVICE void values_step(bf16, float (&d)[N], const uint32_t (&p)[4], uint32_t v, int add) { wgmma_turned_bf16(d, p, v, add); }

/* ---- what a block of threads sees ---- */

struct pages_of {
    uint32_t from, last;     /* pages, of the block's rows */
    uint32_t oldest, newest; /* positions */
    uint32_t apart;          /* from a page of a chain to its next */
    DEVICE_MEMBER uint32_t n() const { return last - from + 1; }
    DEVICE_MEMBER struct page_walk walk() const { return {n(), apart, 0, 1}; }
    DEVICE_MEMBER uint32_t lo(uint32_t page) const { return oldest > page * PAGE ? oldest - page * PAGE : 0; }
    DEVICE_MEMBER uint32_t hi(uint32_t page) const { return min(newest - page * PAGE + 1, (uint32_t)PAGE); }
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

/* ---- a warpgroup's way through the pages ---- */

template <class T, int DIM, int GROUPS> struct walker {
    typedef struct wide_mem<DIM, GROUPS> mem;
    typedef struct work_of<DIM, GROUPS> work;
    enum { VALUES = work::VALUES };
    const uint32_t m;
    const struct pages_of pages;
    struct own_rows own;
    uint32_t whole_from, whole_last; /* pages that all rows of the warp see whole, up to before the second */
    uint32_t plain_from;             /* from here on a page is the first of none of them */
    struct ring k, v;                /* of the stage: the page's keys, the values of the page before */
    struct sums<T, VALUES> o;

    DEVICE_MEMBER uint32_t queries() { return m + AT(q) + work::tile() * (GROUP_ROWS * 2 * DIM); }
    DEVICE_MEMBER void put_queries(const struct lode_cuda_att_args &a) {
        const uint32_t row = threadIdx.x % GROUP_THREADS / 32 * ROW_TILE + threadIdx.x % 32 / 4, to = queries() + threadIdx.x % 4 * 4;
        round_queries<T>(own, a, [&](uint32_t s, uint4 step) {
            const uint32_t word[4] = {step.x, step.y, step.z, step.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
                store1(to + s / 4 * PANEL + in_panel(row + i % 2 * 8, 2 * s % 8 + i / 2), word[i]);
        });
        stored_for_wgmma();
        group_sync();
        uint32_t from = 0, first = 0, last = ~0u;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            from = max(from, (own.from[i] + PAGE - 1) / PAGE);
            first = max(first, own.from[i] / PAGE);
            last = min(last, (own.last[i] + 1) / PAGE); /* where there is no row, 0 */
        }
        whole_from = __reduce_max_sync(0xffffffffu, from);
        plain_from = __reduce_max_sync(0xffffffffu, first) + 1;
        whole_last = __reduce_min_sync(0xffffffffu, last);
    }

    DEVICE_MEMBER void await_keys() { barrier_wait(m + AT(k_full) + 8 * k.at, k.parity); }
    DEVICE_MEMBER void await_values() { barrier_wait(m + AT(v_full) + 8 * v.at, v.parity); }
    DEVICE_MEMBER void leave_keys() {
        release(m + AT(k_empty) + 8 * k.at);
        next_of<SLOTS>(k);
    }
    DEVICE_MEMBER void leave_values() {
        release(m + AT(v_empty) + 8 * v.at);
        next_of<SLOTS>(v);
    }
    static DEVICE_MEMBER void take_turn() {
        if (GROUPS > 1)
            await_turn();
    }
    static DEVICE_MEMBER void end_turn() {
        if (GROUPS > 1)
            give_turn();
    }
    /* Stage i of pages.n() and one more has the scores of the i-th page of the order and the values of the one before. */
    DEVICE_MEMBER bool has_scores(uint32_t i) { return i < pages.n(); }
    static DEVICE_MEMBER bool has_values(uint32_t i) { return i > 0; }
    /* Nobody awaits a turn after the last stage's. */
    DEVICE_MEMBER void end_turn_of(uint32_t i) {
        if (threadIdx.x < GROUP_THREADS || has_scores(i))
            end_turn();
    }
    /* A stage that the warpgroup's rows see nothing of. */
    DEVICE_MEMBER void pass(uint32_t i) {
        if (has_scores(i))
            await_keys();
        if (has_values(i))
            await_values();
        take_turn();
        end_turn_of(i);
        if (has_scores(i))
            leave_keys();
        if (has_values(i))
            leave_values();
    }

    /* A page's scores: thread 4 r + q of a warp has those of rows r and r + 8 as mma.sync leaves them. */
    DEVICE_MEMBER void begin_scores(float (&s)[KEY_TILES * 4]) {
        const uint32_t rows = of_warp(panel_low(queries())), keys = of_warp(panel_low(m + AT(k) + k.at * mem::SIZE));
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < DIM / 16; i++) {
            const uint32_t in = i / 4 * PANEL_ROWS(PAGE) + i % 4 * PANEL_STEP;
            scores_step(T(), s, rows + in, keys + in, i != 0);
        }
        wgmma_end();
    }
    DEVICE_MEMBER void begin_values(float (&part)[VALUES / 2], const struct weights &w, bool begins) {
        const uint32_t values = of_warp(turned_panels_low(m + AT(v) + v.at * mem::SIZE + work::first_value() / 64 * PANEL, PANEL));
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < PAGE / 16; i++)
            values_step(T(), part, w.p[i], values + i * PANEL_ROWS(16), i != 0 || !begins);
        wgmma_end();
    }
    /* Zeros where a page's values are not seen by any of the block's rows: there may be anything, and weights of 0 would not do. */
    DEVICE_MEMBER void clear_unseen(uint32_t page) {
        const uint32_t lo = pages.lo(page), hi = pages.hi(page);
        if (lo == 0 && hi == PAGE)
            return;
#pragma unroll 1
        for (uint32_t i = threadIdx.x % GROUP_THREADS; i < PAGE * DIM / 8; i += GROUP_THREADS) {
            const uint32_t row = i % PAGE, piece = i / PAGE;
            if (row < lo || row >= hi)
                store4(m + AT(v) + v.at * mem::SIZE + piece / 8 * PANEL + in_panel(row, piece % 8), make_float4(0, 0, 0, 0));
        }
        stored_for_wgmma();
        group_sync();
    }
    DEVICE_MEMBER void weigh_page(struct weights &w, float (&s)[KEY_TILES * 4], uint32_t page) {
        weigh<2>(w, (float(&)[KEY_TILES][4])s, own.scale, 0, sight_of(own, page * PAGE), page >= whole_from && page < whole_last);
    }
    /* ptxas moves a wait for products before whatever does not depend on them, and what was to be done meanwhile behind it; not before a
     * store, which here depends on all weights.  It is never made: no total is below 0. */
    DEVICE_MEMBER void keep_before_wait(const struct weights &w) {
        asm volatile("{ .reg .pred p; setp.lt.f32 p, %1, 0f00000000; @p st.shared.f32 [%0], %1; }" ::"r"(m), "f"(w.total[0] + w.total[1]) : "memory");
    }
    /* The weights of s are a product's, once no product reads those of another page: what writes a product's registers while it runs makes
     * ptxas wait behind each. */
    static DEVICE_MEMBER void take_weights(struct weights &w, const struct weights &from, float (&s)[KEY_TILES * 4]) {
        asm volatile("" : D32(s)); /* not before this */
        round_weights<T, 2>(w, (const float(&)[KEY_TILES][4])s);
#pragma unroll
        for (int i = 0; i < 2; i++)
            w.max[i] = from.max[i], w.total[i] = from.total[i];
    }
    /* A chain, whose first page is `page`, to the sums so far. */
    DEVICE_MEMBER void add(const struct weights &w, const float (&part)[VALUES / 2], uint32_t page) {
        struct merging g;
        if (page < plain_from || page >= whole_last) {
            g = begin_merge(o, own, page, sight_of(own, page * PAGE), w);
#pragma unroll
            for (int t = 0; t < VALUES / 8; t++)
                merge(o.y[t], g, (const float(&)[4])part[4 * t]);
            return;
        }
        g.plain = g.seen[0] = g.seen[1] = true, g.first[0] = g.first[1] = false;
        merge_row(g, 0, o.max[0], o.total[0], w);
        merge_row(g, 1, o.max[1], o.total[1], w);
        if (__all_sync(0xffffffffu, g.old[0] == 1 && g.old[1] == 1)) { /* as most pages of many are for all rows of a warp */
#pragma unroll
            for (int e = 0; e < VALUES / 2; e++)
                o.y[e / 4][e % 4] = fmaf(g.now[e % 4 / 2], part[e], o.y[e / 4][e % 4]);
            return;
        }
#pragma unroll
        for (int t = 0; t < VALUES / 8; t++)
            merge(o.y[t], g, (const float(&)[4])part[4 * t]);
    }

    /* Stage i with the first page that is seen, which has no values before it. */
    DEVICE_MEMBER void score_first(uint32_t i, float (&s)[KEY_TILES * 4]) {
        await_keys();
        if (has_values(i))
            await_values();
        take_turn();
        begin_scores(s);
        wgmma_wait<0>(s);
        end_turn();
        leave_keys();
        if (has_values(i))
            leave_values();
    }
    /* Stage i with the values of the last page that is seen. */
    DEVICE_MEMBER void mix_last(uint32_t i, float (&part)[VALUES / 2], const struct weights &w, bool begins) {
        take_turn();
        begin_values(part, w, begins);
        wgmma_wait<0>(part);
        end_turn_of(i);
        if (has_scores(i))
            leave_keys();
        leave_values();
    }
    /* The `n` pages from the first-th of the order on are those that the warpgroup's rows see. */
    DEVICE_MEMBER void walk(uint32_t first, uint32_t n) {
        struct weights w, next;
        float s[KEY_TILES * 4], part[VALUES / 2];
        struct page_walk p = pages.walk();
        uint32_t i = 0;
#pragma unroll 1
        for (; i < first; i++, p.next())
            pass(i);
        if (n > 0) {
            score_first(i, s);
            begin_chain(next);
            weigh_page(next, s, pages.from + p.page);
            take_weights(w, next, s);
            uint32_t page = p.page, chain = p.chain; /* whose weights w are */
            p.next();
#pragma unroll 1
            for (i++; i < first + n; i++) {
                await_keys();
                await_values();
                clear_unseen(pages.from + page);
                take_turn();
                begin_scores(s);
                begin_values(part, w, page == chain);
                wgmma_wait<1>(s);
                end_turn();
                leave_keys();
                if (p.begins())
                    begin_chain(next);
                weigh_page(next, s, pages.from + p.page);
                keep_before_wait(next);
                wgmma_wait<0>(part);
                leave_values();
                if (p.begins())
                    add(w, part, pages.from + chain);
                else
                    shrink((float(&)[VALUES / 8][4])part, next);
                take_weights(w, next, s);
                page = p.page, chain = p.chain;
                p.next();
            }
            if (has_scores(i))
                await_keys();
            await_values();
            clear_unseen(pages.from + page);
            mix_last(i, part, w, page == chain);
            add(w, part, pages.from + chain);
            i++;
        }
#pragma unroll 1
        for (; i <= pages.n(); i++)
            pass(i);
    }
};

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
    struct walker<T, DIM, GROUPS> w = {m, pages};
    const uint32_t above = work::tile() * GROUP_ROWS, mine = t.n > above ? min(t.n - above, (uint32_t)GROUP_ROWS) : 0;
    find_own(w.own, a, t, above / ROW_TILE + threadIdx.x % GROUP_THREADS / 32);
    w.put_queries(a);
    const uint32_t token = (t.first + above) / t.group, last_token = (t.first + above + mine - 1) / t.group;
    const uint32_t from = first_seen(a, t.pos + token) / PAGE, last = a.both_ways ? pages.last : (t.pos + last_token) / PAGE;
    if (mine == 0)
        w.walk(0, 0);
    else if (pages.n() > pages.apart) /* pages that the rows don't see may be between those that they see; of so many that is nothing */
        w.walk(0, pages.n());
    else
        w.walk(from - pages.from, last - from + 1);
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
