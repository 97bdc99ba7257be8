/* wide_fast.cu - products of many rows with packed weights in --numerics fast (fast.cuh), on Hopper's warpgroups.
 *
 * As in wide.cu, every warp unpacks its 16 rows of an item into its own registers, here as halves
 * (fast_items.cuh), and a third warpgroup brings items and x, which comes rounded, in panels (fast_x).  An item is a
 * slice: its 16 products of 16 numbers of K are added up by the tensor cores, then to the result, by the row's
 * factor of that item. */
#include "fast_items.cuh"
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

/* Unit u of all tiles of x and of w: those of x first.  factors: of its rows of x. */
struct fast_unit : wide_job {
    const float *factors;
};
template <int N>
DEVICE void find_fast_unit(struct fast_unit &job, const struct lode_cuda_gemm_args &a, uint32_t u, uint32_t x_tiles) {
    const uint32_t x_tile = u % x_tiles, row = x_tile % (TILE / N) * N;
    find_job(job, a, W_ROWS, N, x_tile, u / x_tiles);
    const uint8_t *tile = at<const uint8_t>(a.x.data) + x_tile / (TILE / N) * a.x.stride;
    job.x = tile + row * 128;
    job.factors = (const float *)(tile + (size_t)(a.cols / STEP) * PANEL) + row;
}

template <class T, int N> DEVICE void bring_all(struct wide_mem<T, N> *m, const struct fast_unit &job, struct ring &w,
                                                struct ring &x) {
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
DEVICE void multiply(struct wide_mem<T, N> *m, const struct fast_unit &job, const struct seat &at, float (&acc)[N / 2],
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

template <int N> DEVICE void store(const struct fast_unit &job, const struct seat &at, const float (&acc)[N / 2]) {
    const float bias[2] = {job.bias && at.row < job.w_rows ? job.bias[at.row] : 0,
                           job.bias && at.row + 8 < job.w_rows ? job.bias[at.row + 8] : 0};
    EVERY(i, N / 4) {
        const uint32_t x = i / 2 * 8 + at.column + i % 2;
        if (x >= job.x_rows)
            continue;
        float *y = (float *)(job.y + y_row(job, x) * job.y_stride);
        const float factor = job.factors[x];
        EVERY(h, 2) {
            const float v = acc[i / 2 * 4 + 2 * h + i % 2] * factor;
            if (at.row + 8 * h < job.w_rows)
                y[at.row + 8 * h] = job.bias ? v + bias[h] : v;
        }
    }
}

template <class T, int N> DEVICE void wide_fast(const struct lode_cuda_gemm_args &a) {
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    typedef struct wide_mem<T, N> mem;
    mem *m = (mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + 1024 <= LODE_WIDE_SHARED, "shared.h");
    if (threadIdx.x == 0) {
        for (int i = 0; i < mem::PARTS; i++) {
            barrier_init(&m->x_full[i], 1);
            barrier_init(&m->x_empty[i], MULTIPLIERS / 32);
        }
        for (int i = 0; i < ITEMS; i++) {
            barrier_init(&m->w_full[i], COPIERS);
            barrier_init(&m->w_empty[i], MULTIPLIERS / 32);
        }
        barriers_made();
    }
    begin();
    __syncthreads();
    const uint32_t x_tiles = a.tiles ? *at<const uint32_t>(a.tiles) : (a.n_x + N - 1) / N, units = x_tiles * a.w_tiles;
    struct fast_unit job;
    job.nb = a.cols / T::BLOCK;
    job.items = a.cols / ITEM;
    if (threadIdx.x >= MULTIPLIERS) {
        struct ring w = {0, 1}, x = {0, 1};
        keep_registers<KEPT>();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            find_fast_unit<N>(job, a, u, x_tiles);
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
            find_fast_unit<N>(job, a, u, x_tiles);
            multiply<T, N>(m, job, at, acc, w, x, u + gridDim.x >= units);
            store<N>(job, at, acc);
        }
    }
}

#define WIDE_FAST_OF(name, n)                                                                      \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        wide_fast_##name##_##n(const __grid_constant__ struct lode_cuda_gemm_args a) {             \
        wide_fast<struct name, n>(a);                                                              \
    }
#define WIDE_FAST(name, type, block, ...) WIDE_FAST_OF(name, 64) WIDE_FAST_OF(name, 128)
LODE_CUDA_QUANT_LIST(WIDE_FAST)

#endif
