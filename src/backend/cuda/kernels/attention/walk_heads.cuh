/* walk_heads.cuh - what a step's products leave for decode_walk.cu's warps: queries, and the row's own key and value, on their way to
 * shared memory and into the cache. */
#ifndef LODE_CUDA_WALK_HEADS_CUH
#define LODE_CUDA_WALK_HEADS_CUH

#include "decode.cuh"
#include "own_head.cuh"
#include "walk_page.cuh"

/* A head of keys' part in a row, of up to G of its query heads: a warp has those from its number on, and after them, where its pair
 * gets to the row's own page, that page's key (the pair's first warp) or value. */
template <int G, int TYPE, int DIM> struct walk_heads {
    enum { QUERIES = (G + WARPS - 1) / WARPS, OWN = QUERIES, U = DIM ? DIM / 32 : 8 };
    const struct lode_cuda_decode_args &d;
    uint32_t row, head, first_head, n_q, warp, half;
    bool last_too; /* the pair gets to the row's own page */
    struct head_weights weights, own_weights;
    struct turns turns;
    float x[OWN + 1][U];

    DEVICE_MEMBER uint32_t dim_at(uint32_t u) const { return dim_of<DIM>(u == OWN && half ? d.att.head_dim_v : d.att.head_dim); }
    DEVICE_MEMBER uint32_t query_at(uint32_t u) const { return warp + u * WARPS; }
    /* Of no numbers where there is none. */
    DEVICE_MEMBER struct own_head head_at(uint32_t u) const {
        const uint32_t g = query_at(u);
        struct own_head h = {};
        if (u == OWN ? last_too : g < n_q && d.prepares)
            h = own_head_of(d.heads, u < OWN ? 0 : 1 + half, row, first_head + g, head);
        else if (u < OWN && g < n_q)
            h.from = row_at<const float>(d.att.q, row) + (first_head + g) * dim_at(u);
        return h;
    }
    /* What was there before the products. */
    DEVICE_MEMBER void ask_weights() {
        weights = own_weights = {};
        if (d.prepares)
            weights = weights_of(d.heads, false);
        if (last_too && half == 0)
            own_weights = weights_of(d.heads, true);
    }
    DEVICE_MEMBER void ask() {
#pragma unroll
        for (uint32_t u = 0; u <= OWN; u++) {
            const struct own_head h = head_at(u);
#pragma unroll
            for (int i = 0; i < U; i++)
                x[u][i] = 0;
            if (h.from)
                ask_head<DIM, U>(x[u], h, dim_at(u));
        }
        turns = {};
        if (d.prepares)
            turns = ask_turns<DIM>(row_at<const float2>(d.heads.table, row), max(d.heads.pairs_q, d.heads.pairs_k));
    }
    /* Queries, normed and turned, to q (G, dim) in shared memory; the key or value to `own` and to where the cache has it.
     * room: (dim) in shared memory.  Whether there was one.  In one place, as code that runs once comes from far. */
    DEVICE_MEMBER bool put(float *q, uint8_t *own, float *room, const struct seen &w) {
#pragma unroll 1
        for (uint32_t u = 0;;) {
            const uint32_t g = query_at(u), n = dim_at(u);
            float *at = u == OWN ? room : q + g * n;
            if (u == OWN || g < G) {
                make_head<DIM, U>(x[0], head_at(u), turns, weights, n, at);
                __syncwarp(); /* it may have been read */
                if (u < OWN || TYPE == LODE_Q8_0)
#pragma unroll
                    for (int i = 0; i < U; i++)
                        if (threadIdx.x % 32 + 32 * i < n)
                            at[threadIdx.x % 32 + 32 * i] = x[0][i];
            }
            if (u++ == OWN) {
                const struct page_of last = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
                __syncwarp();
                put_own(own, at, n);
                put_own((uint8_t *)(half ? last.v + last.own * w.v_stride : last.k + last.own * w.k_stride), at, n);
                return true;
            }
            if (u == OWN && !last_too)
                return false;
#pragma unroll
            for (int k = 0; k < OWN; k++)
#pragma unroll
                for (int i = 0; i < U; i++)
                    x[k][i] = x[k + 1][i];
            if (u == OWN)
                weights = own_weights;
        }
    }
    DEVICE_MEMBER void put_own(uint8_t *y, const float *at, uint32_t n) const {
        if (TYPE == LODE_Q8_0)
            put_row(y, at, n, TYPE);
        else
            put_halves<TYPE == LODE_F16, U>(x[0], y, n);
    }
};

#endif
