/* walk_ring.cuh - pages on their way to decode_walk.cu's warps: which come, and the slots of shared memory that they come to. */
#ifndef LODE_CUDA_WALK_RING_CUH
#define LODE_CUDA_WALK_RING_CUH

#include "backend/cuda/kernels/copies.cuh"
#include "walk_page.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

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

/* A warp's slots and its pair's.  Of a page it has four parts of 16 rows: two of keys, of the warp's half of the page, and two of
 * values, of every 32 those whose turn it is. */
template <int TYPE, int DIM> struct ring {
    const struct lode_cuda_att_args &a;
    const struct seen &w;
    const struct lode_cuda_map *rows; /* of all memory */
    uint32_t slots; /* the pair's, in shared memory: (2, SLOTS, slot_size) */
    uint32_t slot_size, lane, half;
    uint32_t arrived;             /* the warp's barriers in shared memory: of two parts of keys, and of values */
    uint32_t now, parity;         /* the slot whose rows were asked for longest ago, and of the page's phases */
    const uint8_t *own_k, *own_v; /* the row's own key and value as stored, or NULL */
    uint64_t policy;              /* of bulk copies (keeps) */

    DEVICE_MEMBER uint32_t dim(bool values) { return dim_of<DIM>(values ? a.head_dim_v : a.head_dim); }
    DEVICE_MEMBER uint32_t stride(bool values) { return DIM ? 2 * DIM : values ? w.v_stride : w.k_stride; }
    /* On Hopper rows come by bulk copies where it needs few of them: those leave a multiprocessor's other reads alone, which have to
     * wait for all copies of 16 bytes that were asked for before. */
    static constexpr DEVICE_MEMBER bool in_bulk() {
#if __CUDA_ARCH__ >= 900
        return TYPE == LODE_Q8_0 || DIM;
#else
        return false;
#endif
    }
    /* A launch of one row reads a page once, one of several rows of a sequence as often as there are rows. */
    static DEVICE_MEMBER uint64_t keeps() {
#if __CUDA_ARCH__ >= 900
        return gridDim.y == 1 ? read_once() : read_again();
#else
        return 0;
#endif
    }
    DEVICE_MEMBER uint32_t arrived_at(uint32_t part) { return arrived + 8 * part; }
    DEVICE_MEMBER uint32_t slot_of(uint32_t warp, uint32_t i) { return slots + (warp * SLOTS + i) * slot_size; }
    static DEVICE_MEMBER bool of_values(uint32_t part) { return part >= PARTS; }
    DEVICE_MEMBER uint32_t first_of(uint32_t part) {
        return of_values(part) ? (part - PARTS) * 2 * ROWS + half * ROWS : half * HALF + part * ROWS;
    }

    /* Asks for a part of a page, to slot i: a phase of the part's barrier, or a group of copies, though there may be nothing. */
    DEVICE_MEMBER void ask(const struct page_of &p, uint32_t part, uint32_t i) {
        const bool values = of_values(part);
        const uint32_t first = first_of(part), n = rows_from(first, p.n), step = stride(values);
        const uint8_t *from = (values ? p.v : p.k) + first * step;
        const uint32_t to = slot_of(half, i);
        const uint32_t skew = TYPE == LODE_Q8_0 ? (uint32_t)(uintptr_t)from % 16 : 0; /* rows are no multiple of 16 bytes */
#if __CUDA_ARCH__ >= 900
        if constexpr (in_bulk()) {
            const uint32_t barrier = arrived_at(part);
            if (!elected())
                return;
            if (n == 0) {
                barrier_arrive_expect(barrier, 0);
            } else if (DIM && !values) { /* all sixteen, whether they are there or not: values follow keys in a page */
                barrier_arrive_expect(barrier, ROWS * 2 * DIM);
                bulk_panels<2 * LODE_WALK_PANELS>(to, rows, from, barrier, policy);
            } else {
                const uint32_t bytes = (skew + n * step + 15) / 16 * 16;
                barrier_arrive_expect(barrier, bytes);
                bulk_copy(to, from - skew, bytes, barrier, policy);
            }
            return;
        }
#endif
        if (TYPE == LODE_Q8_0) {
            if (n)
#pragma unroll 2
                for (uint32_t b = 16 * lane; b < skew + n * step; b += 16 * 32)
                    copy_async_at<16>(to + b, from - skew + b);
        } else {
            const uint32_t pieces = dim(values) / 8, rows = 32 / pieces, c = lane % pieces * 16;
#pragma unroll 4
            for (uint32_t j = lane < rows * pieces ? lane / pieces : ROWS; j < n; j += rows)
                copy_async_at<16>(to + at_in_slot(values, j, c), from + j * step + c);
        }
        copies_end_group();
    }
    /* Where byte b of row j lies in a slot. */
    DEVICE_MEMBER uint32_t at_in_slot(bool values, uint32_t j, uint32_t b) {
        if (DIM && !values)
            return b / 128 * (128 * ROWS) + in_panel(j, b % 128 / 16) + b % 16;
        return j * layout_of<TYPE>(values, dim(values)).stride + b;
    }
    /* Of what was asked for the first, when it is there: the slot of page p's part.  Two parts were asked for later, but one later
     * than the last one. */
    DEVICE_MEMBER uint32_t take(const struct page_of &p, uint32_t part) {
        const bool values = of_values(part);
        const uint32_t own_at = p.own - first_of(part), slot = now;
        if (in_bulk()) {
#if __CUDA_ARCH__ >= 900
            barrier_wait(arrived_at(part), parity);
            parity ^= part + 1 == 2 * PARTS;
#endif
        } else if (part + 1 == 2 * PARTS) {
            copies_wait<1>();
        } else {
            copies_wait<2>();
        }
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
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(slot + at_in_slot(values, own_at, b)),
                         "h"(*(const uint16_t *)(mine + b))
                         : "memory");
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the slot is a copy's again some time */
#endif
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
