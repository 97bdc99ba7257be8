/* stream.cuh - rows of weights on their way through shared memory: Hopper's bulk copies.
 *
 * What a matrix's definition sums is a chain over a whole row, so rows cannot be cut, and of a matrix of 4096 rows a
 * multiprocessor has 31: too few threads to keep as many bytes asked for as memory takes to be busy (50 KB for
 * each multiprocessor).  So a warp has four rows at a time and a ring of slots for chunks of them.  One of its threads
 * fills the ring ahead, with the rows that come next too, and begins before the launch before has ended:
 * weights wait for nobody.  Warps wait for their own chunks only, never for each other.
 *
 *     kind W: what a chunk is, how it is copied and what becomes of it
 *         ROWS, CHUNK             of a warp at a time; numbers of a row in a chunk
 *         copy(s, ring, barrier)  asks for the chunk that the ring says, of which its barrier is told; by one thread
 *         begin(), chunk(), end() the sum of row(), in the thread for which finishes() is true
 *
 * Tensor maps bring a chunk of all rows by one instruction; a bulk copy for each row of it made 0.93 of their bytes a second.
 */
#ifndef LODE_CUDA_STREAM_CUH
#define LODE_CUDA_STREAM_CUH

#include "backend/cuda/kernels/products/stream_shared.h"
#include "gemv_x.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

/* Rows of one part that a warp has at a time; n of them exist. */
struct stream_rows {
    uint32_t n, part, first, type;
};
/* Those of a unit; k: of gate and up. */
template <class W>
DEVICE struct stream_rows stream_rows_at(const struct lode_cuda_gemv_args &a, uint32_t unit, uint32_t k) {
    uint32_t p = k;
    if (a.output != LODE_GEMV_GLU)
        while (p + 1 < a.n_parts && unit >= a.parts[p + 1].first_unit)
            p++;
    const struct lode_cuda_gemv_part &part = a.parts[p];
    const uint32_t first = (unit - (a.output == LODE_GEMV_GLU ? 0 : part.first_unit)) * W::ROWS,
                   left = part.rows - first;
    return {left < W::ROWS ? left : W::ROWS, p, first, part.type};
}

/* A warp's ring: what is asked for next and into which slot, and which slot is used next. */
struct stream_ring {
    uint8_t *slots, *heads, *own; /* heads: what stands beside slots; own: what the warp has beside its ring */
    uint32_t to, heads_to, barriers; /* shared addresses: of slots and heads; of a barrier for each, which waits for its bytes */
    uint32_t n, fill, slot, parity;
    uint32_t unit, k, from;
    uint32_t begin, end; /* columns of this warp */
    struct stream_rows rows;
};
/* Where 16-byte piece c of a row lies in a slot of ROWS rows of lines: a panel whose rows these are. */
template <uint32_t ROWS> DEVICE uint32_t in_lines(uint32_t row, uint32_t c) { return in_panel(c / 8 * ROWS + row, c % 8); }

/* A chunk of rows of floats of so many bytes each. */
template <int SIZE> DEVICE void copy_floats(const struct lode_cuda_stream_args &s, const struct stream_ring &ring, uint32_t barrier) {
    barrier_arrive_expect(barrier, LODE_STREAM_SLOT);
    bulk_lines(ring.to + ring.fill * LODE_STREAM_SLOT, &s.maps[ring.rows.part][0], ring.from * SIZE / LODE_STREAM_LINE,
               ring.rows.first, barrier);
}

/* Asks for the next chunk of all that this warp has to do, where there is one. */
template <class W>
DEVICE void stream_ask(struct stream_ring &ring, const struct lode_cuda_stream_args &s, uint32_t step) {
    if (ring.unit >= s.a.n_units)
        return;
    if (elected())
        W::copy(s, ring, ring.barriers + ring.fill * 8);
    if (++ring.fill == ring.n)
        ring.fill = 0;
    ring.from += W::CHUNK;
    if (ring.from < ring.end)
        return;
    ring.from = ring.begin;
    if (++ring.k == s.a.per_unit)
        ring.k = 0, ring.unit += step;
    if (ring.unit < s.a.n_units)
        ring.rows = stream_rows_at<W>(s.a, ring.unit, ring.k);
}

/* This warp's first unit, and how far the next is; which of a unit's warps it is. */
DEVICE uint32_t stream_first(const struct lode_cuda_stream_args &s) {
    const uint32_t warp = of_warp(threadIdx.x / 32);
    return warp < s.warps ? over(warp, s.split) * gridDim.x + blockIdx.x : s.a.n_units;
}
DEVICE uint32_t stream_step(const struct lode_cuda_stream_args &s) { return gridDim.x * over(s.warps, s.split); }
DEVICE uint32_t stream_share(const struct lode_cuda_stream_args &s) {
    const uint32_t warp = of_warp(threadIdx.x / 32);
    return warp - over(warp, s.split) * s.split.by;
}
template <class W>
DEVICE void stream_asks(struct stream_ring &ring, const struct lode_cuda_stream_args &s, uint32_t step, uint32_t n) {
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++)
        stream_ask<W>(ring, s, step);
}
/* The warp's ring, nothing asked for. */
template <class W>
DEVICE struct stream_ring stream_ring_of(const struct lode_cuda_stream_args &s, uint32_t first) {
    __shared__ uint64_t barriers[LODE_STREAM_WARPS * LODE_STREAM_SLOTS];
    const uint32_t warp = threadIdx.x / 32;
    struct stream_ring ring;
    uint8_t *at = (uint8_t *)row_mem + s.ring_at;
    at += -shared_address(at) % LODE_STREAM_ALIGN;
    ring.slots = at + warp * s.slots * s.slot_size;
    ring.heads = at + s.heads_at + warp * s.slots * s.head_size;
    ring.own = at + s.own_at + warp * s.own;
    ring.to = of_warp(shared_address(ring.slots));
    ring.heads_to = of_warp(shared_address(ring.heads));
    ring.barriers = of_warp(shared_address(barriers + warp * LODE_STREAM_SLOTS));
    ring.n = s.slots;
    ring.fill = ring.slot = ring.parity = ring.k = 0;
    ring.unit = of_warp(first);
    const uint32_t chunks = (s.a.cols + W::CHUNK - 1) / W::CHUNK, share = stream_share(s);
    ring.from = ring.begin = over(share * chunks, s.split) * W::CHUNK;
    ring.end = share + 1 == s.split.by ? s.a.cols : over((share + 1) * chunks, s.split) * W::CHUNK;
    if (threadIdx.x % 32 < s.slots)
        barrier_init(barriers + warp * LODE_STREAM_SLOTS + threadIdx.x % 32, 1);
    barriers_made();
    __syncwarp();
    if (first < s.a.n_units)
        ring.rows = stream_rows_at<W>(s.a, first, 0);
    return ring;
}
/* The same with s.early slots asked for. */
template <class W>
DEVICE struct stream_ring stream_begin(const struct lode_cuda_stream_args &s, uint32_t first, uint32_t step) {
    struct stream_ring ring = stream_ring_of<W>(s, first);
    stream_asks<W>(ring, s, step, s.early);
    return ring;
}
/* Asks for the others but one, when x is asked for: x would have to wait for all that stands before it. */
template <class W>
DEVICE void stream_fill(struct stream_ring &ring, const struct lode_cuda_stream_args &s, uint32_t step) {
    stream_asks<W>(ring, s, step, s.slots - 1 - s.early);
}
/* Both with the wait for the launch before and x(), which asks for x, in between: in one place, as code that runs once comes
 * from far. */
template <class W, class F>
DEVICE auto stream_fill_around(struct stream_ring &ring, const struct lode_cuda_stream_args &s, uint32_t step, F x) {
    decltype(x()) asked;
#pragma unroll 1
    for (uint32_t i = 0, n = s.early; i < 2; i++, n = s.slots - 1 - s.early) {
        if (i) {
            wait_for_last();
            asked = x();
        }
        stream_asks<W>(ring, s, step, n);
    }
    return asked;
}

/* The warp's units, from `first` on every step-th: sums, and what comes after them. */
template <class W>
DEVICE void stream_units(struct stream_ring &ring, const struct lode_cuda_stream_args &s, W &kind, uint32_t first,
                         uint32_t step) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t r = kind.row();
#pragma unroll 1
    for (uint32_t unit = first; unit < a.n_units; unit += step) {
        float v = 0, residual = 0;
#pragma unroll 1
        for (uint32_t k = 0; k < a.per_unit; k++) {
            const struct stream_rows rows = stream_rows_at<W>(a, unit, k);
            const bool mine = kind.finishes() && r < rows.n;
            if (a.residual && mine) /* on its way while the sum is made */
                residual = at<const float>(a.residual)[rows.first + r];
            kind.begin();
#pragma unroll 1
            for (uint32_t from = ring.begin; from < ring.end; from += W::CHUNK) {
                __syncwarp(); /* the slot before is free */
                stream_ask<W>(ring, s, step);
                barrier_wait(ring.barriers + ring.slot * 8, ring.parity);
                kind.chunk(ring.slots + ring.slot * s.slot_size, ring.heads + ring.slot * s.head_size, from, a.cols, rows.type);
                if (++ring.slot == ring.n)
                    ring.slot = 0, ring.parity ^= 1;
            }
            float sum = kind.end(a.cols);
            if (!mine)
                continue;
            const struct lode_cuda_gemv_part &part = a.parts[rows.part];
            if (part.bias)
                sum += at<const float>(part.bias)[rows.first + r];
            v = k ? short_glu_of(a.act, v, sum) : sum;
            if (k + 1 < a.per_unit)
                continue;
            if (a.residual)
                v = with_residual(a, v, residual);
            at<float>(a.output == LODE_GEMV_GLU ? a.parts[0].y : part.y)[rows.first + r] = v;
        }
    }
}

/* ---- the norm before ---- */

/* A norm's weights, read while the launch before still runs: a thread's first four times four numbers, where
 * there are so many. */
struct early_norm {
    float4 w[4];
};
DEVICE struct early_norm read_norm(const struct lode_cuda_gemv_args &a) {
    struct early_norm early;
#pragma unroll
    for (int i = 0; i < 4; i++)
        early.w[i] = a.input == LODE_GEMV_NORM && a.norm && threadIdx.x + i * blockDim.x < a.cols / 4
                         ? at<const float4>(a.norm)[threadIdx.x + i * blockDim.x]
                         : make_float4(1, 1, 1, 1);
    return early;
}
/* A thread's first numbers of a row of x, of 4 n: asked for before the rest of the ring is, which they would have to wait for. */
struct first_floats {
    enum { N = 4 };
    float4 v[N];
};
DEVICE struct first_floats ask_floats(const struct lode_cuda_gemv_args &a, uint32_t n) {
    struct first_floats x;
#pragma unroll
    for (int u = 0; u < first_floats::N; u++) {
        const uint32_t i = threadIdx.x + u * blockDim.x;
        x.v[u] = at<const float4>(a.x)[i < n ? i : n - 1];
    }
    return x;
}
/* The whole row to row_mem. */
DEVICE void put_floats(const struct lode_cuda_gemv_args &a, const struct first_floats &x) {
    const uint32_t n = a.cols / 4;
#pragma unroll
    for (int u = 0; u < first_floats::N; u++)
        if (threadIdx.x + u * blockDim.x < n)
            ((float4 *)row_mem)[threadIdx.x + u * blockDim.x] = x.v[u];
#pragma unroll 4
    for (uint32_t i = threadIdx.x + first_floats::N * blockDim.x; i < n; i += blockDim.x)
        ((float4 *)row_mem)[i] = at<const float4>(a.x)[i];
}
/* f(i, numbers 4 i and on of x, normed) by whole warps; where i is beyond the row, what f gets is anything. */
template <class F>
DEVICE void each_normed(const struct lode_cuda_gemv_args &a, const struct early_norm &early, const struct first_floats &x, F f) {
    put_floats(a, x);
    const struct divisor root = norm_root(a.eps, a.cols);
    const uint32_t n = a.cols / 4, lane = threadIdx.x % 32;
    auto one = [&](uint32_t i, float4 u) {
        float4 v = divided(((const float4 *)row_mem)[i < n ? i : n - 1], root);
        if (a.norm)
            times(v, u);
        if (a.x_out && blockIdx.x == 0 && i < n)
            at<float4>(a.x_out)[i] = v;
        f(i, v);
    };
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (threadIdx.x - lane + i * blockDim.x < n)
            one(threadIdx.x + i * blockDim.x, early.w[i]);
#pragma unroll 1
    for (uint32_t i = threadIdx.x + 4 * blockDim.x; i - lane < n; i += blockDim.x)
        one(i, a.norm && i < n ? at<const float4>(a.norm)[i] : make_float4(1, 1, 1, 1));
}

#endif
