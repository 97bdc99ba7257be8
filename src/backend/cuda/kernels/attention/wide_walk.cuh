/* wide_walk.cuh - a warpgroup's way through pages of panels (Hopper): what attention_wide.cu and attention_latent.cu share.
 *
 * A stage is a page's scores and the values of the page before: while these are mixed, those are made and weighed.
 *
 * wgmma's results are those of mma.sync, thread by thread, so all but the products are fast_rows.cuh's lines.  A chain's sums are the
 * products' own registers. */
#ifndef LODE_CUDA_WIDE_WALK_CUH
#define LODE_CUDA_WIDE_WALK_CUH

#include "fast_rows.cuh"
#include "panels.cuh"

enum { GROUP_ROWS = 64, GROUP_THREADS = 128 };

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

/* ---- a warpgroup's way through the pages ---- */

/* WORK says what the warpgroup does of it:
 *
 *     mem             what the block has in shared memory: q, k, v and the rings' barriers
 *     DIM             numbers of a key
 *     VALUES          of a value that it mixes, from first_value() on
 *     SLOTS           pages of each ring
 *     TURNS           two warpgroups take turns
 *     ONE             values lie in the keys' slots, which are then kept until they have been mixed: mem has neither v nor its barriers
 *     tile()          which 64 of the block's rows it has */
template <class T, class WORK> struct walker {
    typedef typename WORK::mem mem;
    enum { DIM = WORK::DIM, VALUES = WORK::VALUES, SLOTS = WORK::SLOTS };
    const uint32_t m;
    const struct pages_of pages;
    struct own_rows own;
    uint32_t whole_from, whole_last; /* pages that all rows of the warp see whole, up to before the second */
    uint32_t plain_from;             /* from here on a page is the first of none of them */
    struct ring k, v;                /* of the stage: the page's keys, the values of the page before */
    struct sums<T, VALUES> o;

    DEVICE_MEMBER uint32_t queries() { return m + AT(q) + WORK::tile() * (GROUP_ROWS * 2 * DIM); }
    DEVICE_MEMBER void put_queries(const struct lode_cuda_att_args &a) {
        const uint32_t row = threadIdx.x % GROUP_THREADS / 32 * ROW_TILE + threadIdx.x % 32 / 4, to = queries() + threadIdx.x % 4 * 4;
        round_queries<T, DIM <= 256 ? 2 : 12>(own, a, [&](uint32_t s, uint4 step) {
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
    DEVICE_MEMBER void await_values() {
        if constexpr (!WORK::ONE)
            barrier_wait(m + AT(v_full) + 8 * v.at, v.parity);
    }
    DEVICE_MEMBER void leave_keys() {
        if (!WORK::ONE)
            release(m + AT(k_empty) + 8 * k.at);
        next_of<SLOTS>(k);
    }
    DEVICE_MEMBER void leave_values() {
        if constexpr (WORK::ONE)
            release(m + AT(k_empty) + 8 * v.at);
        else
            release(m + AT(v_empty) + 8 * v.at);
        next_of<SLOTS>(v);
    }
    DEVICE_MEMBER uint32_t values_slot() {
        if constexpr (WORK::ONE)
            return m + AT(k) + v.at * mem::SIZE;
        else
            return m + AT(v) + v.at * mem::SIZE;
    }
    static DEVICE_MEMBER void take_turn() {
        if (WORK::TURNS)
            await_turn();
    }
    static DEVICE_MEMBER void end_turn() {
        if (WORK::TURNS)
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
        const uint32_t values = of_warp(turned_panels_low(values_slot() + WORK::first_value() / 64 * PANEL, PANEL));
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < PAGE / 16; i++)
            values_step(T(), part, w.p[i], values + i * PANEL_ROWS(16), i != 0 || !begins);
        wgmma_end();
    }
    /* Zeros where a page's values are not seen by any of the block's rows: there may be anything, and weights of 0 would not do.  (Where keys are
     * there too, the other warpgroup may still make scores of them, which nobody sees.) */
    DEVICE_MEMBER void clear_unseen(uint32_t page) {
        const uint32_t lo = pages.lo(page), hi = pages.hi(page);
        if (lo == 0 && hi == PAGE)
            return;
#pragma unroll 1
        for (uint32_t i = threadIdx.x % GROUP_THREADS; i < PAGE * DIM / 8; i += GROUP_THREADS) {
            const uint32_t row = i % PAGE, piece = i / PAGE;
            if (row < lo || row >= hi)
                store4(values_slot() + piece / 8 * PANEL + in_panel(row, piece % 8), make_float4(0, 0, 0, 0));
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
                if constexpr (WORK::ONE) { /* values first, by all at once, so that the next page can come while scores are made */
                    clear_unseen(pages.from + page);
                    begin_values(part, w, page == chain);
                    wgmma_wait<0>(part);
                    leave_values();
                    if (p.begins()) {
                        add(w, part, pages.from + chain);
                        begin_chain(next);
                    }
                    await_keys();
                    take_turn();
                    begin_scores(s);
                    wgmma_wait<0>(s);
                    end_turn();
                    leave_keys();
                    weigh_page(next, s, pages.from + p.page);
                    if (!p.begins())
                        shrink((float(&)[VALUES / 8][4])part, next);
                } else {
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
                }
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

/* All that the block's rows, of which the warpgroup has those from `above` on, come to. */
template <class WALKER> DEVICE void walk_pages(WALKER &w, const struct lode_cuda_att_args &a, const struct rows_of &t, uint32_t above) {
    const uint32_t mine = t.n > above ? min(t.n - above, (uint32_t)GROUP_ROWS) : 0;
    const uint32_t token = (t.first + above) / t.group, last_token = (t.first + above + mine - 1) / t.group;
    const uint32_t from = first_seen(a, t.pos + token) / PAGE, last = a.both_ways ? w.pages.last : (t.pos + last_token) / PAGE;
    if (mine == 0)
        w.walk(0, 0);
    else if (w.pages.n() > w.pages.apart) /* pages that the rows don't see may be between those that they see; of so many that is nothing */
        w.walk(0, w.pages.n());
    else
        w.walk(from - w.pages.from, last - from + 1);
}

#endif
