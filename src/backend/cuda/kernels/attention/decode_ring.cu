/* decode_ring.cu - decode_fast.cu on Hopper: heads of 64 or 128 numbers, scores without a cap, no more blocks of threads than there are
 * multiprocessors.
 *
 * A warp has a page by itself: scores and weights stay in its registers.  A block of threads has every n-th page; its last warp has them
 * brought for the others, keys and values each to a ring of panels (wgmma.cuh), as far ahead as there is room.  It does not wait for the
 * launch before: what is in the cache was there before the step, all but the row's own key and value, which are put into their page
 * when that has come.  What pages give goes to the scratch as decode_fast.cu leaves it. */
#include "fast_heads.cuh"
#include "panels.cuh"

#if __CUDA_ARCH__ >= 900

enum { WARPS = LODE_DECODE_RING_WARPS, PAGE_THREADS = 32 * WARPS, THREADS = PAGE_THREADS + 32 };

/* Shared memory, from a multiple of 1024 on: slots of keys, of values; then what is small. */
template <int DIM, int HEADS> struct ring_mem {
    enum { SLOT = PAGE * 2 * DIM };
    uint8_t q[HEADS * LODE_ATT_FAST_STRIDE(DIM)];
    uint8_t own[2][2 * DIM]; /* the row's own key and value as stored */
    float undo[HEADS];
    float room[(HEADS + 2) * DIM];
    uint64_t k_full[LODE_DECODE_RING_SLOTS], k_empty[LODE_DECODE_RING_SLOTS], v_full[LODE_DECODE_RING_SLOTS], v_empty[LODE_DECODE_RING_SLOTS];
};

/* Pages z, z + every and so on, by one warp; slots are a multiple of the warps that have pages, so each of them has its own: who waits for a
 * slot knows that its last page has come.  small: where ring_mem lies. */
template <int DIM, int HEADS>
DEVICE void bring_pages(uint32_t m, uint32_t small, uint32_t slots, const struct lode_cuda_map *map, const struct seen &w, uint32_t z, uint32_t every) {
    typedef struct ring_mem<DIM, HEADS> mem;
    struct ring r = {0, 1};
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t policy = read_once();
#pragma unroll 1
    for (; z < w.n_pages; z += 32 * every) {
        const uint32_t mine = z + lane * every, n = min((w.n_pages - z + every - 1) / every, 32u);
        const uint64_t base = mine < w.n_pages ? (uint64_t)(uintptr_t)page_base(w, mine) : 0;
#pragma unroll 1
        for (uint32_t k = 0; k < n; k++) {
            const uint8_t *page = at<const uint8_t>(__shfl_sync(0xffffffffu, base, k));
            const uint32_t k_full = small + AT(k_full) + 8 * r.at, v_full = small + AT(v_full) + 8 * r.at;
            barrier_wait(small + AT(k_empty) + 8 * r.at, r.parity);
            if (elected())
                ask_panels<DIM>(m + r.at * mem::SLOT, map, page + w.k, k_full, policy);
            barrier_wait(small + AT(v_empty) + 8 * r.at, r.parity);
            if (elected())
                ask_panels<DIM>(m + (slots + r.at) * mem::SLOT, map, page + w.v, v_full, policy);
            if (++r.at == slots)
                r.at = 0, r.parity ^= 1;
        }
    }
}

/* Scores of a page's keys, in panels, for 8 ROWS queries at `q`, by a warp. */
template <class T, int ROWS, int DIM> DEVICE void score_panels(float (&c)[KEY_TILES][4], uint32_t q, uint32_t keys) {
    const uint32_t lane = threadIdx.x % 32, ld = LODE_ATT_FAST_STRIDE(DIM), rows = lane % 8 * ld + lane / 8 * 16;
    const uint32_t pieces = keys + in_panel(lane % 8, lane / 8);
#pragma unroll
    for (int t = 0; t < KEY_TILES; t++)
#pragma unroll
        for (int e = 0; e < 4; e++)
            c[t][e] = 0;
#pragma unroll
    for (int i = 0; i < DIM / 16; i += 2) {
        uint32_t x[ROWS][4];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            load_pieces(x[r], q + 8 * r * ld + rows + 32 * i);
#pragma unroll
        for (int t = 0; t < KEY_TILES; t++) {
            uint32_t k[4];
            load_pieces(k, (pieces ^ i % 4 / 2 * 64) + i / 4 * PANEL + t * 8 * 128);
#pragma unroll
            for (int s = 0; s < 2; s++)
                mma_fast<T>(c[t], make_uint2(x[0][2 * s], x[0][2 * s + 1]),
                            ROWS > 1 ? make_uint2(x[ROWS - 1][2 * s], x[ROWS - 1][2 * s + 1]) : make_uint2(0, 0), make_uint2(k[2 * s], k[2 * s + 1]));
        }
    }
}
/* Values of a page, in panels, mixed: heads `apart` floats from each other at `to`, n of them. */
template <class T, int ROWS, int DIM> DEVICE void mix_panels(const struct weights &w, uint32_t values, float *to, size_t apart, uint32_t n) {
    const uint32_t lane = threadIdx.x % 32, pieces = values + in_panel(lane % 16, lane / 16);
#pragma unroll 4
    for (int g = 0; g < DIM / 16; g++) {
        float y[2][4] = {};
#pragma unroll
        for (int s = 0; s < PAGE / 16; s++) {
            uint32_t v[4];
            load_turned(v, (pieces ^ g % 4 * 32) + g / 4 * PANEL + s * 16 * 128);
#pragma unroll
            for (int h = 0; h < 2; h++)
                mma_fast<T>(y[h], make_uint2(w.p[s][0], w.p[s][2]), make_uint2(w.p[s][1], w.p[s][3]), make_uint2(v[2 * h], v[2 * h + 1]));
        }
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (lane / 4 + 8 * i < n)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(float2 *)(to + (lane / 4 + 8 * i) * apart + 16 * g + 8 * h + lane % 4 * 2) = make_float2(y[h][2 * i], y[h][2 * i + 1]);
    }
}

/* A row of a page in panels. */
template <int DIM> DEVICE void put_row(uint32_t page, uint32_t row, uint32_t from) {
    const uint32_t c = threadIdx.x % 32;
    if (c < DIM / 8)
        store4(page + c / 8 * PANEL + in_panel(row, c % 8), load4(from + 16 * c));
}
/* Zeros where values are not lo .. lo + n - 1: there may be anything, and weights of 0 would not do. */
template <int DIM> DEVICE void clear_unseen(uint32_t page, uint32_t lo, uint32_t n) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x % 32; i < PAGE * DIM / 8; i += 32) {
        const uint32_t row = i / (DIM / 8), c = i % (DIM / 8);
        if (row - lo >= n)
            store4(page + c / 8 * PANEL + in_panel(row, c % 8), make_float4(0, 0, 0, 0));
    }
}

template <class T, int ROWS, int DIM> DEVICE void decode(const struct lode_cuda_ring_decode_args &f) {
    enum { HEADS = 8 * ROWS, U = DIM / 32 };
    typedef struct ring_mem<DIM, HEADS> mem;
    extern __shared__ __align__(1024) uint8_t ring_bytes[];
    const struct lode_cuda_decode_args &d = f.decode;
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t slots = f.slots, m = (shared_address(ring_bytes) + 1023) & ~1023u, small = m + 2 * slots * mem::SLOT;
    mem &s = *(mem *)(ring_bytes + (small - shared_address(ring_bytes)));
    static_assert(sizeof(mem) <= LODE_DECODE_RING_SMALL(HEADS, DIM), "attention_shared.h");
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y, first = blockIdx.z, every = gridDim.z;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + HEADS - 1) / HEADS;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * HEADS, first_head = head * group + some;
    const uint32_t n_q = min(group - some, (uint32_t)HEADS);
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    let_next_come();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < slots; i++) {
            barrier_init(&s.k_full[i], 1), barrier_init(&s.v_full[i], 1);
            barrier_init(&s.k_empty[i], 1), barrier_init(&s.v_empty[i], 1);
        }
        barriers_made();
    }
    __syncthreads();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head);
    if (warp == WARPS) {
        bring_pages<DIM, HEADS>(m, small, slots, &f.rows, w, first, every);
        return;
    }
    const bool here = first < w.n_pages, own = here && (w.n_pages - 1 - first) % every == 0; /* who gets to the row's own page */
    const struct page_of last = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
    const struct queries to = {row, head, first_head, here ? n_q : 0, s.q, s.undo, s.room};
    auto put = [&](uint32_t, bool value, const float(&x)[U]) {
        put_halves<T::SCALED, U>(x, (uint8_t *)(value ? last.v + last.own * w.v_stride : last.k + last.own * w.k_stride), DIM);
        put_halves<T::SCALED, U>(x, s.own[value], DIM);
    };
    if (d.prepares)
        make_queries<T, DIM, true>(d, to, {own, 0}, warp, WARPS, put);
    else
        make_queries<T, DIM, false>(d, to, {own, 0}, warp, WARPS, put);
    if (!d.prepares && own && warp < 2 && lane < DIM / 8)
        ((uint4 *)s.own[warp])[lane] = ((const uint4 *)(warp ? last.v + last.own * w.v_stride : last.k + last.own * w.k_stride))[lane];
    page_sync<PAGE_THREADS>();
    struct ring r = {warp, 0};
#pragma unroll 1
    for (uint32_t z = first + warp * every; z < w.n_pages; z += WARPS * every) {
        const uint32_t k = m + r.at * mem::SLOT, v = m + (slots + r.at) * mem::SLOT, lo = z ? 0 : w.lo, own_row = w.pos % PAGE;
        const bool ends = z + 1 == w.n_pages;
        struct sight seen;
        seen.lo[0] = seen.lo[1] = lo;
        seen.n[0] = seen.n[1] = (ends ? own_row + 1 : (uint32_t)PAGE) - lo;
        float c[KEY_TILES][4], scale[2];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            scale[i] = a.scale * s.undo[lane / 4 + 8 * i];
        barrier_wait(small + AT(k_full) + 8 * r.at, r.parity);
        if (ends) {
            put_row<DIM>(k, own_row, small + AT(own[0]));
            stored_for_wgmma(); /* the slot is a copy's again some time */
            __syncwarp();
        }
        score_panels<T, ROWS, DIM>(c, small + AT(q), k);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(small + AT(k_empty) + 8 * r.at);
        struct weights e;
        weigh<ROWS>(e, c, scale, 0, seen, seen.n[0] == PAGE);
        round_weights<T, ROWS>(e, c);
        const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + z;
        if (lane % 4 == 0)
#pragma unroll
            for (int i = 0; i < ROWS; i++)
                if (lane / 4 + 8 * i < n_q)
                    ((float2 *)(at<float>(a.scratch) + n_parts * DIM))[part + (size_t)(lane / 4 + 8 * i) * a.max_pages] = make_float2(e.max[i], e.total[i]);
        barrier_wait(small + AT(v_full) + 8 * r.at, r.parity);
        if (ends || lo) {
            if (ends)
                put_row<DIM>(v, own_row, small + AT(own[1]));
            clear_unseen<DIM>(v, lo, seen.n[0]);
            stored_for_wgmma();
            __syncwarp();
        }
        mix_panels<T, ROWS, DIM>(e, v, at<float>(a.scratch) + part * DIM, (size_t)a.max_pages * DIM, n_q);
        __syncwarp();
        if (lane == 0)
            barrier_arrive(small + AT(v_empty) + 8 * r.at);
        r.at += WARPS;
        if (r.at >= slots)
            r.at -= slots, r.parity ^= 1;
    }
}

/* decode_ring_TYPE_DIM_HEADS: heads of DIM numbers, up to so many query heads of a head of keys at a time; blockIdx: head of keys and which of
 * those, row, first page. */
#define DECODE(type, dim, heads)                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                             \
        decode_ring_##type##_##dim##_##heads(const __grid_constant__ struct lode_cuda_ring_decode_args f) { \
        decode<struct type, heads / 8, dim>(f);                                                          \
    }
#define DECODES(type) DECODE(type, 64, 8) DECODE(type, 64, 16) DECODE(type, 128, 8) DECODE(type, 128, 16)
DECODES(f16)
DECODES(bf16)

#endif
