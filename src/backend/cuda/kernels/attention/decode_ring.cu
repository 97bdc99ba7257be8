/* decode_ring.cu - decode_fast.cu on Hopper: heads of 64 or 128 numbers, scores without a cap, no more blocks of threads than there are
 * multiprocessors.
 *
 * A warp has a chain by itself: scores, weights and sums stay in its registers.  Its pages come to slots of panels (wgmma.cuh) that are its
 * own, keys and values each to the one that those of a page before have left.  The first ones, as many as there are slots, another
 * warp asks for, for all: neither they nor it wait for the launch before, as what is in the cache was there before the step, all but the row's own
 * key and value, which are put into their page when that has come.  What chains give goes to the scratch as decode_fast.cu leaves it. */
#include "fast_heads.cuh"
#include "fast_panels.cuh"

#if __CUDA_ARCH__ >= 900

enum { WARPS = LODE_DECODE_RING_WARPS, PAGES = LODE_DECODE_RING_PAGES };

/* Shared memory, from a multiple of 1024 on: each warp's pages, of each its keys and then its values; then what is small. */
template <int DIM, int HEADS> struct ring_mem {
    enum { SLOT = PAGE * 2 * DIM };
    uint8_t q[HEADS * LODE_ATT_FAST_STRIDE(DIM)];
    uint8_t own[2][2 * DIM]; /* the row's own key and value as stored */
    float undo[HEADS];
    float room[(HEADS + 2) * DIM];
    uint64_t full[WARPS][PAGES][2];
};

/* A warp's places for n pages: the first one's keys, their barrier; behind both those of its values, then the next page's. */
struct places {
    uint32_t slots, full, n;
};
/* Keys or values of the page at `page` on their way to place i. */
template <int DIM>
DEVICE void ask(const struct places &to, uint32_t i, bool values, const struct lode_cuda_map *map, const struct seen &w, const uint8_t *page, uint64_t policy) {
    const uint32_t at = 2 * i + values;
    ask_panels<DIM>(to.slots + at * (PAGE * 2 * DIM), map, page + (values ? w.v : w.k), to.full + 8 * at, policy);
}
/* A walk's first pages, by one thread. */
template <int DIM> DEVICE void ask_first(const struct places &to, const struct lode_cuda_map *map, const struct seen &w, struct page_walk p) {
    const uint64_t policy = read_once();
    const uint8_t *page[PAGES]; /* all found before any is asked for: who reads memory waits for all copies that were asked for before */
#pragma unroll
    for (uint32_t i = 0; i < PAGES; i++, p.next())
        page[i] = p.more() && i < to.n ? page_base(w, p.page) : NULL;
#pragma unroll
    for (uint32_t i = 0; i < PAGES; i++)
        if (page[i])
            for (int values = 0; values < 2; values++)
                ask<DIM>(to, i, values, map, w, page[i], policy);
}

/* The sums to heads `apart` floats from each other at `to`, n of them. */
template <int ROWS, int DIM> DEVICE void leave(const float (&y)[DIM / 8][4], float *to, size_t apart, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        if (lane / 4 + 8 * i < n)
#pragma unroll
            for (int t = 0; t < DIM / 8; t++)
                *(float2 *)(to + (lane / 4 + 8 * i) * apart + 8 * t + lane % 4 * 2) = make_float2(y[t][2 * i], y[t][2 * i + 1]);
}

/* A row of a page in panels. */
template <int DIM> DEVICE void put_row(uint32_t page, uint32_t row, uint32_t from) {
    const uint32_t c = threadIdx.x % 32;
    if (c < DIM / 8)
        store4(page + c / 8 * PANEL + in_panel(row, c % 8), load4(from + 16 * c));
}
template <class T, int ROWS, int DIM> DEVICE void decode(const struct lode_cuda_ring_decode_args &f) {
    enum { HEADS = 8 * ROWS, U = DIM / 32 };
    typedef struct ring_mem<DIM, HEADS> mem;
    extern __shared__ __align__(1024) uint8_t ring_bytes[];
    const struct lode_cuda_decode_args &d = f.decode;
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warps = blockDim.x / 32 - 1, m = (shared_address(ring_bytes) + 1023) & ~1023u,
                   small = m + warps * f.pages * 2 * mem::SLOT;
    mem &s = *(mem *)(ring_bytes + (small - shared_address(ring_bytes)));
    static_assert(sizeof(mem) <= LODE_DECODE_RING_SMALL(HEADS, DIM), "attention_shared.h");
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + HEADS - 1) / HEADS;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * HEADS, first_head = head * group + some;
    const uint32_t n_q = min(group - some, (uint32_t)HEADS);
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    let_next_come();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < warps * PAGES * 2; i++)
            barrier_init(small + AT(full) + 8 * i, 1);
        barriers_made();
    }
    __syncthreads();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head);
    const auto places_of = [&](uint32_t of) {
        return (struct places){m + of * f.pages * 2 * (uint32_t)mem::SLOT, small + (uint32_t)AT(full) + of * PAGES * 16, f.pages};
    };
    const auto walk_of = [&](uint32_t of) { return page_walk(w.n_pages, a.chains, blockIdx.z + of * gridDim.z, warps * gridDim.z); };
    if (warp == warps) {
        if (lane < warps)
            ask_first<DIM>(places_of(lane), &f.rows, w, walk_of(lane));
        return;
    }
    const uint32_t last_page = w.n_pages - 1;
    const struct page_of last = page_at(w, last_page, page_base(w, last_page));
    const bool own = last_page % a.chains % gridDim.z == blockIdx.z; /* who gets to the row's own page */
    const struct queries to = {row, head, first_head, blockIdx.z < w.n_pages ? n_q : 0, s.q, s.undo, s.room};
    auto put = [&](uint32_t, bool value, const float(&x)[U]) {
        put_halves<T::SCALED, U>(x, (uint8_t *)(value ? last.v + last.own * w.v_stride : last.k + last.own * w.k_stride), DIM);
        put_halves<T::SCALED, U>(x, s.own[value], DIM);
    };
    if (d.prepares)
        make_queries<T, DIM, true>(d, to, {own, 0}, warp, warps, put);
    else
        make_queries<T, DIM, false>(d, to, {own, 0}, warp, warps, put);
    if (!d.prepares && own && warp == 0 && lane < DIM / 4) {
        const uint32_t value = lane / (DIM / 8), c = lane % (DIM / 8);
        ((uint4 *)s.own[value])[c] = ((const uint4 *)(value ? last.v + last.own * w.v_stride : last.k + last.own * w.k_stride))[c];
    }
    asm volatile("bar.sync 1, %0;" ::"r"(32 * warps) : "memory");
    const struct places places = places_of(warp);
    const uint64_t policy = read_once();
    struct page_walk p = walk_of(warp), then = p; /* then: what comes to the place that is looked at */
    for (uint32_t i = 0; i < places.n; i++)
        then.next();
    const uint8_t *base = then.more() ? page_base(w, then.page) : NULL;
    struct ring r = {0, 0};
    float y[DIM / 8][4], scale[2];
    struct weights e;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
        scale[i] = a.scale * s.undo[lane / 4 + 8 * i];
#pragma unroll 1
    for (; p.more(); p.next()) {
        const uint32_t lo = p.page ? 0 : w.lo, own_row = w.pos % PAGE;
        const bool is_last = p.page == last_page;
        struct sight seen;
        seen.lo[0] = seen.lo[1] = lo;
        seen.n[0] = seen.n[1] = (is_last ? own_row + 1 : (uint32_t)PAGE) - lo;
        float c[KEY_TILES][4];
        const uint32_t keys = places.slots + r.at * 2 * mem::SLOT, values = keys + mem::SLOT, full = places.full + 16 * r.at;
        barrier_wait(full, r.parity);
        if (is_last) {
            put_row<DIM>(keys, own_row, small + AT(own[0]));
            stored_for_wgmma(); /* the slot is a copy's again some time */
            __syncwarp();
        }
        score_panels<T, ROWS, DIM>(c, small + AT(q), keys);
        __syncwarp();
        if (base && elected())
            ask<DIM>(places, r.at, false, &f.rows, w, base, policy);
        if (p.begins()) {
            begin_chain(e);
            begin_sums(y);
        }
        weigh<ROWS>(e, c, scale, 0, seen, seen.n[0] == PAGE);
        round_weights<T, ROWS>(e, c);
        barrier_wait(full + 8, r.parity);
        if (is_last || lo) {
            if (is_last)
                put_row<DIM>(values, own_row, small + AT(own[1]));
            clear_unseen<DIM>(values, lo, seen.n[0]);
            stored_for_wgmma();
            __syncwarp();
        }
        mix_panels<T, DIM>(y, e, values);
        __syncwarp();
        if (base) {
            if (elected())
                ask<DIM>(places, r.at, true, &f.rows, w, base, policy);
            then.next(); /* where that lies is found a page before it is asked for */
            base = then.more() ? page_base(w, then.page) : NULL;
        }
        if (++r.at == places.n)
            r.at = 0, r.parity ^= 1;
        if (!p.ends())
            continue;
        const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + p.chain;
        if (lane % 4 == 0)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (lane / 4 + 8 * i < n_q)
                    ((float2 *)(at<float>(a.scratch) + n_parts * DIM))[part + (size_t)(lane / 4 + 8 * i) * a.max_pages] = make_float2(e.max[i], e.total[i]);
        leave<ROWS, DIM>(y, at<float>(a.scratch) + part * DIM, (size_t)a.max_pages * DIM, n_q);
    }
}

/* decode_ring_TYPE_DIM_HEADS: heads of DIM numbers, up to so many query heads of a head of keys at a time; blockIdx: head of keys and which of
 * those, row, first chain; threads: a warp for each chain at a time. */
#define DECODE(type, dim, heads)                                                                         \
    extern "C" __global__ void __launch_bounds__(32 * WARPS + 32, 1)                                     \
        decode_ring_##type##_##dim##_##heads(const __grid_constant__ struct lode_cuda_ring_decode_args f) { \
        decode<struct type, heads / 8, dim>(f);                                                          \
    }
#define DECODES(type) DECODE(type, 64, 8) DECODE(type, 64, 16) DECODE(type, 128, 8) DECODE(type, 128, 16)
DECODES(f16)
DECODES(bf16)

#endif
