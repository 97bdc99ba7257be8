/* decode_walk.cu - attention of steps that have one row a sequence, or few rows of some, over many pages; the definition is
 * at the head of backend/cpu/attention.c.  With few pages decode.cu is quicker; its decode_merge or
 * decode_join add up what the pages give.
 *
 * Two warps take a page of a head of keys, and then every n-th, by themselves: each scores half of its keys, then
 * finds half of the query heads' weights and has half of the values' numbers (of at most 64 all, for half of the
 * heads).  They wait for nobody but each other.  Neighbouring pages go to different blocks of threads, so that all have
 * as many, give or take one.  Keys and values come by asynchronous copies into a ring of slots of 16 rows that each warp
 * keeps ahead of what the two compute, from before the launch before has ended on: what is in the cache was there before
 * the step, all but the row's own key and value, which are put into their slot later.  What is asked for after many copies
 * comes after them: so queries, and the row's own key and value, are asked for when a first part of the page was. */
#include "walk_heads.cuh"
#include "walk_ring.cuh"

extern __shared__ __align__(1024) uint8_t walk_mem[];

/* Page p's values for HEADS heads, by their weights at s, numbers c and c + 1 of each; to (n_q, max_pages, dim_v) at
 * `to`.  Of the page after it rows are asked for. */
template <int HEADS, int TYPE, int DIM>
DEVICE void values(struct ring<TYPE, DIM> &r, const struct page_of &p, const struct page_of &next, uint32_t s, uint32_t ld,
                   uint32_t c, uint32_t n_q, float *to) {
    const uint32_t dim = r.dim(true), stride = layout_of<TYPE>(true, dim).stride, skew = r.skew_of(p, true);
    float y[HEADS][2];
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        y[g][0] = y[g][1] = 0;
    uint32_t slot = 0;
#pragma unroll
    for (uint32_t i = 0; i <= PARTS; i++) {
        const uint32_t used = slot;
        if (i < PARTS)
            slot = r.take(p, PARTS + i);
        pair_meets();
        if (i)
            r.ask(next, i, used);
        if (i == PARTS)
            break;
        if (c < dim)
#pragma unroll 1
            for (uint32_t of = 0; of < 2; of++) { /* both warps' slots */
                const uint32_t first = (2 * i + of) * ROWS;
                mix<HEADS, TYPE>(y, s + first * ld, ld, r.slot_of(of, slot) + skew, stride, rows_from(first, p.n), c);
            }
    }
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        if (g < (int)n_q && c < dim)
            *(float2 *)(to + (size_t)g * r.a.max_pages * dim + c) = make_float2(y[g][0], y[g][1]);
}

template <int G, int TYPE, int DIM> DEVICE void walk(const struct lode_cuda_walk_args &args) {
    static_assert(SLOTS == 3 && PARTS == 2, "a part of keys or values is asked for when the one before the last was used");
    __shared__ uint64_t arrived[WARPS][2 * PARTS];
    const struct lode_cuda_decode_args &d = args.decode;
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warp = threadIdx.x / 32, pair = warp / 2, half = warp % 2, lane = threadIdx.x % 32;
    const uint32_t at_row = blockIdx.y, row = a.first_row + at_row;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + G - 1) / G;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * G, first_head = head * group + some;
    const uint32_t n_q = group - some < G ? group - some : G;
    const uint32_t dim = dim_of<DIM>(a.head_dim), dim_v = dim_of<DIM>(a.head_dim_v), larger = dim > dim_v ? dim : dim_v;
    const uint32_t n_scores = LODE_WALK_SCORES(G, larger);
    float *q = (float *)walk_mem;                              /* (G, dim) */
    uint8_t *own = (uint8_t *)(q + G * dim);                   /* (2, larger) of 16 bits */
    float *s = (float *)(own + 4 * larger) + pair * n_scores;  /* (PAGE, G), and room for the row's own key and value before */
    const uint8_t *slots = walk_mem + LODE_WALK_SLOTS_AT(G, dim, larger) + (size_t)pair * 2 * SLOTS * args.slot_size;
    let_next_come();
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        for (int i = 0; i < 2 * PARTS; i++)
            barrier_init(&arrived[warp][i], 1);
        barriers_made();
    }
    __syncwarp();
#endif
    const struct seen w = seen_by(a, row, head);
    const uint32_t every = gridDim.z * PAIRS, mine = pair * gridDim.z + blockIdx.z;
    struct way on = way_from(w, mine, every);
    struct page_of p = next_page(on, w);
    struct ring<TYPE, DIM> r = {a,    w,    &args.rows, shared_address(slots), args.slot_size, lane,
                                half, shared_address(arrived[warp]), 0, 0, NULL, NULL, ring<TYPE, DIM>::keeps()};
    struct walk_heads<G, TYPE, DIM> heads = {d, row, head, first_head, n_q, warp, half, d.prepares && (w.n_pages - 1) % every == mine};
    heads.ask_weights();
    uint32_t asked = 0;
#pragma unroll 1
    for (; asked < args.early; asked++)
        r.ask(p, asked, asked);
    wait_for_last();
    heads.ask();
#pragma unroll 1
    for (; asked < SLOTS; asked++)
        r.ask(p, asked, asked);
    if (heads.put(q, own + half * 2 * larger, s + half * n_scores / 2, w))
        r.own_k = own, r.own_v = own + 2 * larger;
    __syncthreads();
    enum { MINE = G > 1 ? G / 2 : 1, HEADS = G < 4 ? G : 4 }; /* heads whose weights a warp finds, and whose scores it makes at once */
    const uint32_t g0 = G > 1 ? half * MINE : 0, n_mine = n_q > g0 ? n_q - g0 : 0;
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
#pragma unroll 1
    for (uint32_t z = mine; z < w.n_pages; z += every) {
        const struct page_of next = next_page(on, w);
#pragma unroll
        for (uint32_t i = 0; i < PARTS; i++) {
            const uint32_t slot = r.take(p, i);
#pragma unroll 1
            for (int g = 0; g < G; g += HEADS)
                score<HEADS, TYPE, DIM>(s + (half * HALF + i * ROWS) * G + g, G, shared_address(q + g * dim), dim,
                                        r.slot_of(half, slot) + r.skew_of(p, false));
            __syncwarp();
            struct page_of from = p;
            if (i)
                from = next;
            r.ask(from, i ? 0 : 2 * PARTS - 1, slot);
        }
        pair_meets();
        const size_t part = ((size_t)at_row * a.n_heads + first_head) * a.max_pages + z, part0 = part + (size_t)g0 * a.max_pages;
        float *parts_at = at<float>(a.scratch);
        if (G > 1 || half == 0)
            weigh<MINE>(a, s + g0, G, p.n, (float2 *)(parts_at + n_parts * dim_v) + part0, n_mine);
        if (G > 1 && dim_v <= 64)
            values<MINE, TYPE, DIM>(r, p, next, shared_address(s + g0), 4 * G, 2 * lane, n_mine, parts_at + part0 * dim_v);
        else
            values<G, TYPE, DIM>(r, p, next, shared_address(s), 4 * G, 64 * half + 2 * lane, n_q, parts_at + part * dim_v);
        p = next;
    }
}

/* walk_TYPE_G: up to G query heads at a time of a head of keys; blockIdx: head of keys and which of its query
 * heads, row, which pages.  Values have at most 128 numbers.  walk_TYPE_DIM_G: of heads of DIM numbers, whose rows follow one
 * another in their pages. */
#define WALK(name, TYPE, DIM, G)                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)                               \
        name(const __grid_constant__ struct lode_cuda_walk_args a) {                               \
        walk<G, LODE_##TYPE, DIM>(a);                                                              \
    }
#define WALKS(name, TYPE, DIM) WALK(name##_1, TYPE, DIM, 1) WALK(name##_2, TYPE, DIM, 2) WALK(name##_4, TYPE, DIM, 4) WALK(name##_8, TYPE, DIM, 8)
WALKS(walk_f16, F16, 0)
WALKS(walk_bf16, BF16, 0)
WALKS(walk_q8_0, Q8_0, 0)
WALKS(walk_f16_128, F16, 128)
WALKS(walk_bf16_128, BF16, 128)
