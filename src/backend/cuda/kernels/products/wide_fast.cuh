/* wide_fast.cuh - products of many rows with packed weights in --numerics fast (fast.cuh), on Hopper's warpgroups.
 *
 * As in wide.cu, every warp unpacks its 16 rows of an item into its own registers, here as halves
 * (fast_items.cuh), and a third warpgroup brings items and x, which comes rounded, in panels (fast_x).  An item is a
 * slice: its 16 products of 16 numbers of K are added up by the tensor cores, then to the result, by the row's
 * factor of that item.  Where gate and up are multiplied with each other a tile has 64 rows of both, of each sixteen eight
 * of gate and the same eight of up: so a thread has both. */
#ifndef LODE_CUDA_WIDE_FAST_CUH
#define LODE_CUDA_WIDE_FAST_CUH

#include "fast_items.cuh"
#include "wide_store.cuh"
#include "wide.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { TILE = LODE_FAST_TILE, PANEL = LODE_FAST_PANEL, STEP = 64 /* numbers of a panel */ };
static_assert(ITEM == LODE_FAST_SLICE, "an item is a slice");

/* x comes in parts of 128 numbers, two panels of which N rows are this tile's. */
template <class T, int N> struct __align__(1024) wide_mem {
    enum { PARTS = N == 64 ? 8 : 4, HALF = N * 128 };
    uint8_t x[PARTS][2 * HALF];
    uint8_t w[ITEMS][W_ROWS / 16][item_of<T>::SIZE];
    uint64_t x_full[PARTS], x_empty[PARTS], w_full[ITEMS], w_empty[ITEMS];
};

/* Unit u of all tiles of x and of w: those of x first.  factors: of its rows of x; other: as w, of the second part. */
template <bool GATED> struct fast_unit : wide_job {
    enum { PAIRED = GATED };
    const float *factors;
    const uint8_t *other;
};
template <int N, bool GATED>
DEVICE void find_fast_unit(struct fast_unit<GATED> &job, const struct lode_cuda_packed_args &f, uint32_t u, uint32_t x_tiles) {
    const struct lode_cuda_gemm_args &a = f.g;
    const uint32_t x_tile = u % x_tiles, row = x_tile % (TILE / N) * N;
    find_job(job, a, GATED ? W_ROWS / 2 : W_ROWS, N, x_tile, u / x_tiles);
    job.other = GATED ? at<const uint8_t>(a.parts[1].w) + (job.w - at<const uint8_t>(a.parts[0].w)) : NULL;
    const uint8_t *tile = at<const uint8_t>(a.x.data) + x_tile / (TILE / N) * a.x.stride;
    job.x = tile + row * 128;
    job.factors = (const float *)(tile + (size_t)(a.cols / STEP) * PANEL) + row;
}

template <class T, int N, bool GATED>
DEVICE void bring_all(struct wide_mem<T, N> *m, const struct fast_unit<GATED> &job, struct ring &w, struct ring &x) {
    typedef struct wide_mem<T, N> mem;
    for (uint32_t b = 0; b < job.items; b++, next_of<ITEMS>(w)) {
        barrier_wait(&m->w_empty[w.at], w.parity);
        bring_item<T>(m->w[w.at], job, b);
        barrier_arrive_copied(&m->w_full[w.at]);
        for (uint32_t i = 0; threadIdx.x == MULTIPLIERS && i < 2; i++, next_of<mem::PARTS>(x)) {
            const uint8_t *from = job.x + (size_t)(4 * b + 2 * i) * PANEL;
            uint64_t *full = &m->x_full[x.at];
            barrier_wait(&m->x_empty[x.at], x.parity);
            barrier_expect(full, 2 * mem::HALF);
            bulk_copy(m->x[x.at], from, mem::HALF, full);
            bulk_copy(m->x[x.at] + mem::HALF, from + PANEL, mem::HALF, full);
            barrier_arrive(full);
        }
        __syncwarp();
    }
}

/* Steps from `from` on, n of an item's sixteen; x: panels of the part that they are in. */
template <int N, int FROM, int COUNT>
DEVICE void begin_steps(float (&d)[N / 2], const uint32_t (&h)[16][4], uint64_t x) {
    wgmma_begin();
#pragma unroll
    for (int k = FROM; k < FROM + COUNT; k++)
        wgmma_f16(d, h[k], x + k % 8 / 4 * (N * 128 >> 4) + k % 4 * PANEL_STEP, k != 0);
    wgmma_end();
}

/* last: there is no tile after this. */
template <class T, int N>
DEVICE void multiply(struct wide_mem<T, N> *m, const struct wide_job &job, const struct seat &at, float (&acc)[N / 2],
                     struct ring &w, struct ring &x, bool last) {
    typedef struct wide_mem<T, N> mem;
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
#pragma unroll 1
    for (uint32_t b = 0; b < job.items; b++, next_of<ITEMS>(w)) {
        uint32_t h[16][4];
        float d[N / 2];
        const uint8_t *slot = m->w[w.at][at.warp];
        barrier_wait(&m->w_full[w.at], w.parity);
        const struct fast_row<T> z[2] = {fast_row_of(type, slot, r, b), fast_row_of(type, slot, r + 8, b)};
#pragma unroll
        for (int p = 0; p < 4; p++)
            fast_pair<T>(h + 4 * p, slot, p, z);
        release(&m->w_empty[w.at]);
        const uint32_t first = x.at;
        await_turn();
        barrier_wait(&m->x_full[x.at], x.parity);
        begin_steps<N, 0, 8>(d, h, panel_at(m->x[x.at]));
        next_of<mem::PARTS>(x);
        barrier_wait(&m->x_full[x.at], x.parity);
        begin_steps<N, 8, 4>(d, h, panel_at(m->x[x.at]));
        begin_steps<N, 12, 4>(d, h, panel_at(m->x[x.at]));
        wgmma_wait<1>(); /* the other one begins while the last of these are made */
        if (threadIdx.x < 128 || !last || b + 1 < job.items) /* nobody awaits a turn after the last */
            give_turn();
        release(&m->x_empty[first]);
        wgmma_wait<0>(d);
        release(&m->x_empty[x.at]);
        next_of<mem::PARTS>(x);
        EVERY(e, N / 2)
            acc[e] = fmaf(z[e % 4 / 2].undo, d[e], acc[e]);
    }
}

/* Gate and up, which have no biases, multiplied with each other. */
template <int N>
DEVICE void store_results_of(const struct fast_unit<true> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                             const float (&acc)[N / 2]) {
    store_gated<N>({job.y + job.first_x * job.y_stride, NULL, job.y_stride, 0, job.w_rows, job.x_rows}, f.end.act, at.row,
                   [&](int i) { return acc[i] * job.factors[i / 4 * 8 + at.column + i % 2]; });
}

template <int N>
DEVICE void store_results_of(const struct fast_unit<false> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                             float (&acc)[N / 2]) {
    struct results_place p = {job.y + job.first_x * job.y_stride, NULL, job.y_stride, f.end.residual_stride, job.w_rows,
                              job.x_rows};
    if (f.end.output == LODE_GEMV_ADD) /* of one part */
        p.residual = (const uint8_t *)f.end.residual + job.first_x * p.residual_stride +
                     (job.y - (const uint8_t *)f.g.parts[0].y);
    finish_results<N>(acc, job.factors, job.bias, at.row, job.w_rows);
    store_results<N>(p, f.end, acc, at.row);
}

template <class T, int N, bool GATED> DEVICE void wide_fast(const struct lode_cuda_packed_args &f) {
    const struct lode_cuda_gemm_args &a = f.g;
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    typedef struct wide_mem<T, N> mem;
    mem *m = (mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + 1024 <= LODE_WIDE_SHARED, "products_shared.h");
    if (threadIdx.x == 0)
        make_barriers(m, COPIERS);
    begin();
    __syncthreads();
    const uint32_t x_tiles = a.tiles ? *at<const uint32_t>(a.tiles) : (a.n_x + N - 1) / N, units = x_tiles * a.w_tiles;
    struct fast_unit<GATED> job;
    job.nb = a.cols / T::BLOCK;
    job.items = a.cols / ITEM;
    if (threadIdx.x >= MULTIPLIERS) {
        struct ring w = {0, 1}, x = {0, 1};
        keep_registers<KEPT>();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            find_fast_unit<N>(job, f, u, x_tiles);
            bring_all<T, N>(m, job, w, x);
        }
    } else {
        struct ring w = {0, 0}, x = {0, 0};
        const struct seat at = seat_of(threadIdx.x);
        take_registers<TAKEN>();
        if (blockIdx.x < units)
            begin_turns();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            float acc[N / 2];
            EVERY(e, N / 2)
                acc[e] = 0;
            find_fast_unit<N>(job, f, u, x_tiles);
            multiply<T, N>(m, job, at, acc, w, x, u + gridDim.x >= units);
            store_results_of<N>(job, f, at, acc);
        }
    }
}

#endif
#endif
