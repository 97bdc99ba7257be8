/* walk_ring.cuh - pages on their way to decode_walk.cu's warps: which come, and the slots of shared memory that they come to. */
#ifndef LODE_CUDA_WALK_RING_CUH
#define LODE_CUDA_WALK_RING_CUH

#include "copies.cuh"
#include "walk_page.cuh"

DEVICE uint32_t rows_from(uint32_t first, uint32_t n) {
    return n > first ? (n - first < ROWS ? n - first : ROWS) : 0;
}

/* Pages of a sequence, every n-th. */
struct way {
    uint32_t z, every;    /* number of the page that comes, and from one to the next */
    uint32_t entry, step; /* the same of its entry among the sequence's pages */
    const uint8_t *base;  /* where it is */
};
DEVICE void look_up(struct way &n, const struct seen &w) {
    if (n.z < w.n_pages)
        n.base = at<const uint8_t>(w.pages[n.entry]);
}
DEVICE struct way way_from(const struct seen &w, uint32_t first, uint32_t every) {
    struct way n = {first, every, (w.first + first) % w.n_entries, every % w.n_entries, NULL};
    look_up(n, w);
    return n;
}
/* The page that comes; of no rows where there is none.  The one after it is looked up. */
DEVICE struct page_of next_page(struct way &n, const struct seen &w) {
    struct page_of p = {};
    if (n.z < w.n_pages)
        p = page_at(w, n.z, n.base);
    n.z += n.every;
    n.entry += n.step;
    n.entry -= n.entry >= w.n_entries ? w.n_entries : 0;
    look_up(n, w);
    return p;
}

/* A warp's slots and its pair's.  Part i of a page is 16 rows: of keys, of the warp's half of the page; of values, of every
 * 32 those whose turn it is. */
template <int TYPE, int DIM> struct ring {
    const struct lode_cuda_att_args &a;
    const struct seen &w;
    uint32_t slots; /* the pair's, in shared memory: (2, SLOTS, slot_size) */
    uint32_t slot_size, lane, half;
    uint32_t now;                 /* the slot whose rows were asked for longest ago */
    const uint8_t *own_k, *own_v; /* the row's own key and value as stored, or NULL */

    DEVICE_MEMBER uint32_t dim(bool values) { return dim_of<DIM>(values ? a.head_dim_v : a.head_dim); }
    DEVICE_MEMBER uint32_t stride(bool values) { return DIM ? 2 * DIM : values ? w.v_stride : w.k_stride; }
    DEVICE_MEMBER uint32_t slot_of(uint32_t warp, uint32_t i) { return slots + (warp * SLOTS + i) * slot_size; }
    DEVICE_MEMBER uint32_t first_of(bool values, uint32_t i) { return values ? i * 2 * ROWS + half * ROWS : half * HALF + i * ROWS; }

    /* Asks for a part of a page, to slot i: a group of copies, though there may be none. */
    DEVICE_MEMBER void ask(const struct page_of &p, bool values, uint32_t part, uint32_t i) {
        const uint32_t first = first_of(values, part), n = rows_from(first, p.n), step = stride(values), size = dim(values);
        const uint8_t *from = (values ? p.v : p.k) + first * step;
        const struct layout r = layout_of<TYPE>(values, size);
        uint32_t to = slot_of(half, i);
        if (TYPE == LODE_Q8_0) { /* rows are no multiple of 16 bytes */
            const uint32_t skew = (uint32_t)(uintptr_t)from % 16;
            if (n)
#pragma unroll 2
                for (uint32_t b = 16 * lane; b < skew + n * step; b += 16 * 32)
                    copy_async_at<16>(to + b, from - skew + b);
        } else if (DIM && n == ROWS) { /* one row after the other, there and here */
            constexpr uint32_t PIECES = DIM ? DIM / 8 : 2, SOME = 32 / PIECES;
            const uint32_t j = lane / PIECES, c = lane % PIECES * 16;
            from += 16 * lane;
            to += j * r.stride;
#pragma unroll
            for (uint32_t k = 0; k < ROWS / SOME; k++)
                copy_async_at<16>(to + k * SOME * r.stride + (c ^ ((j + k * SOME) & r.mask) * 16), from + k * 512);
        } else {
            const uint32_t pieces = size / 8, rows = 32 / pieces, c = lane % pieces * 16;
            uint32_t j = lane < rows * pieces ? lane / pieces : ROWS;
            from += c + j * step;
            to += j * r.stride;
#pragma unroll 4
            for (; j < n; j += rows, from += rows * step, to += rows * r.stride)
                copy_async_at<16>(to + (c ^ (j & r.mask) * 16), from);
        }
        copies_end_group();
    }
    /* Of what was asked for the first, when all but the last `later` groups are there: the slot of page p's part i. */
    template <int LATER> DEVICE_MEMBER uint32_t take(const struct page_of &p, bool values, uint32_t i) {
        const uint32_t own_at = p.own - first_of(values, i), slot = now;
        copies_wait<LATER>();
        __syncwarp();
        if (own_at < ROWS) /* which came as it was before the step */
            put_own(p, values, own_at, slot_of(half, slot) + skew_of(p, values));
        now = now + 1 == SLOTS ? 0 : now + 1;
        return slot;
    }
    DEVICE_MEMBER void put_own(const struct page_of &p, bool values, uint32_t own_at, uint32_t slot) {
        const struct layout r = layout_of<TYPE>(values, dim(values));
        const uint8_t *mine = values ? own_v : own_k;
        if (!mine)
            mine = (values ? p.v : p.k) + p.own * stride(values);
#pragma unroll 1
        for (uint32_t b = 2 * lane; b < r.bytes; b += 64)
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(slot + own_at * r.stride + (b ^ (own_at & r.mask) * 16)),
                         "h"(*(const uint16_t *)(mine + b))
                         : "memory");
        __syncwarp();
    }
    /* So many bytes into a slot its rows begin; ROWS of them are a multiple of 16 bytes. */
    DEVICE_MEMBER uint32_t skew_of(const struct page_of &p, bool values) {
        return TYPE == LODE_Q8_0 ? (uint32_t)(uintptr_t)(values ? p.v : p.k) % 16 : 0;
    }
};

/* Both warps of a pair have come here, and what they wrote before is there. */
DEVICE void pair_meets() { asm volatile("bar.sync %0, 64;" ::"r"(1 + threadIdx.x / 64) : "memory"); }

#endif
