/* wide_exact.cuh - products of many rows on Hopper's warpgroups, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads has 128 rows of w and N of x.  Two warpgroups multiply, 64 rows of w each: while the
 * tensor cores work for one, the other unpacks or adds up (wide_256.cuh, wide_32.cuh).  A third brings what they
 * need, items of weights as few.cuh has them (items.cuh), which every warp unpacks into its own registers, and x
 * (wide_x.cuh); of experts' pairs weights come further ahead, and no more columns are multiplied than there are
 * (wide_ahead.cuh).
 *
 * Where gate and up are multiplied with each other a tile has 64 rows of both, of each sixteen eight of gate and the
 * same eight of up: so a thread has both.  Those of blocks of 32 may leave what they give rounded (wide_round.cuh).
 */
#ifndef LODE_CUDA_WIDE_EXACT_CUH
#define LODE_CUDA_WIDE_EXACT_CUH

#include "wide_256.cuh"
#include "wide_32.cuh"
#include "wide_ahead.cuh"
#include "wide_round.cuh"
#include "wide_store.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Unit u of those of a launch; of all tiles of x and of w those of x come first, of an expert's pairs those of w: whoever works at the same
 * time has that expert's weights and its pairs' x from the second cache.  other: as w, of the second part. */
template <bool GATED> struct exact_unit : wide_job {
    enum { PAIRED = GATED };
    const uint8_t *other;
};
template <int N, bool AHEAD, bool GATED>
DEVICE void find_exact_unit(struct exact_unit<GATED> &job, const struct lode_cuda_gemm_args &a, uint32_t u,
                            uint32_t x_tiles) {
    job.half = a.halved ? (int)(u % 2) : -1;
    u = a.first_unit + (a.halved ? u / 2 : u);
    const bool sorted = AHEAD && a.tiles;
    const uint32_t by = sorted ? a.w_tiles : x_tiles, over = u / by, rest = u - over * by, spread = sorted ? over : rest,
                   x_tile = a.halved ? 2 * spread + job.half : spread;
    find_job(job, a, GATED ? W_ROWS / 2 : W_ROWS, N, x_tile, sorted ? rest : over);
    if (!a.tiles && job.first_x >= a.n_x) /* the second half of a tile with rows in the first alone */
        job.x_rows = 0;
    job.other = GATED ? at<const uint8_t>(a.parts[1].w) + (job.w - at<const uint8_t>(a.parts[0].w)) : NULL;
    job.x = at<const uint8_t>(a.x.data) + spread * a.x.stride + job.x_at;
}

/* Where rows of x that are sorted by expert have their results, lane l's l, 32 + l, ..: asked for before they are multiplied. */
template <int N> struct sorted_rows { uint32_t of[N / 32]; };
template <int N> DEVICE void find_rows(struct sorted_rows<N> &rows, const struct wide_job &job) {
    EVERY(i, N / 32)
        rows.of[i] = job.list && job.x_rows ? y_row(job, 32 * i + threadIdx.x % 32) : 0;
}
template <int N>
DEVICE void store_sorted(const struct wide_job &job, const struct seat &at, const float (&acc)[N / 2], const struct sorted_rows<N> &rows) {
    const struct results_place p = {job.y, NULL, job.y_stride, 0, job.w_rows, job.x_rows};
    const bool by_8 = goes_by_8(p);
    EVERY(t, N / 8) {
        if (8 * t >= job.x_rows)
            return;
        EVERY(h, 2) {
            const struct pair_place place = pair_at(p, 8 * t + at.column, at.row + 8 * h);
            const float2 two = exchanged(acc[4 * t + 2 * h], acc[4 * t + 2 * h + 1], at.row);
            const uint32_t row = __shfl_sync(0xffffffffu, rows.of[t / 4], place.x % 32);
            store_pair(p.y + row * p.y_stride, by_8, place, two);
        }
    }
}
template <int N> DEVICE void add_bias(const struct wide_job &job, const struct seat &at, float (&acc)[N / 2]) {
    if (!job.bias)
        return;
    const float bias[2] = {at.row < job.w_rows ? job.bias[at.row] : 0, at.row + 8 < job.w_rows ? job.bias[at.row + 8] : 0};
    EVERY(e, N / 2)
        acc[e] += bias[e % 4 / 2];
}
template <class T, int N, bool AHEAD>
DEVICE void store_unit(const struct exact_unit<false> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                       float (&acc)[N / 2], const struct sorted_rows<N> &rows) {
    add_bias<N>(job, at, acc);
    if (AHEAD && f.g.tiles) {
        store_sorted<N>(job, at, acc, rows);
        return;
    }
    struct results_place p = {job.y + job.first_x * job.y_stride, NULL, job.y_stride, f.end.residual_stride, job.w_rows,
                              job.x_rows};
    if (f.end.output == LODE_GEMV_ADD) /* of one part */
        p.residual = (const uint8_t *)f.end.residual + job.first_x * p.residual_stride +
                     (job.y - (const uint8_t *)f.g.parts[0].y);
    p.y += between_heads(f.g, (uint32_t)(job.y - (const uint8_t *)f.g.parts[0].y) / (W_ROWS * sizeof(float)));
    store_results<N, T::BLOCK == 256 ? 8 : 4>(p, f.end, acc, at.row); /* of blocks of 32 more spill */
}
/* Gate and up, which have no biases, multiplied with each other. */
template <class T, int N, bool AHEAD>
DEVICE void store_unit(const struct exact_unit<true> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                       const float (&acc)[N / 2], const struct sorted_rows<N> &) {
    store_gated<N>({job.y + job.first_x * job.y_stride, NULL, job.y_stride, 0, job.w_rows, job.x_rows}, f.end.act, at.row,
                   [&](int i) { return acc[i]; });
}

/* What a launch leaves: results; those of gate and up multiplied with each other; these rounded (wide_round.cuh). */
enum leaves { RESULTS, GATED_RESULTS, GATED_ROUNDED };
/* AHEAD: for pairs of experts and other tiles of 64 rows of x with few rows, or of w with fewer than 128 (wide_ahead.cuh). */
template <class T, int N, enum leaves LEAVES, bool AHEAD = false> DEVICE void wide(const struct lode_cuda_packed_args &f) {
    constexpr bool GATED = LEAVES != RESULTS, ROUNDED = LEAVES == GATED_ROUNDED;
    const struct lode_cuda_gemm_args &a = f.g;
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    typedef struct wide_mem<T, N, AHEAD> mem;
    mem *m = (mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + (ROUNDED ? gated_floats<N>::SIZE : 0) + 1024 <= LODE_WIDE_SHARED, "products_shared.h");
    if (threadIdx.x == 0)
        make_barriers(m, AHEAD ? W_COPIERS : COPIERS);
    __syncthreads();
    const bool begins = !a.beside && !a.tiles && threadIdx.x >= MULTIPLIERS; /* those who copy, with weights, which are there before */
    if (!begins) {
        if (!a.beside)
            wait_for_last();
        let_next_come(); /* after the wait: who comes beside reads x before it waits */
    }
    const uint32_t tile = a.halved ? 2 * N : N, x_tiles = a.tiles ? *at<const uint32_t>(a.tiles) : (a.n_x + tile - 1) / tile,
                   all = a.n_units ? a.n_units : x_tiles * a.w_tiles, units = a.halved ? 2 * all : all;
    struct exact_unit<GATED> job;
    job.nb = a.cols / T::BLOCK;
    job.items = (a.cols + ITEM - 1) / ITEM;
    if (threadIdx.x >= MULTIPLIERS) {
        bool x_waits = begins && threadIdx.x == MULTIPLIERS;
        const auto find = [&](uint32_t u) -> const struct exact_unit<GATED> & {
            find_exact_unit<N, AHEAD>(job, a, u, x_tiles);
            return job;
        };
        if constexpr (AHEAD) {
            keep_registers<KEPT_AHEAD>();
            if (x_waits)
                wait_for_last();
            bring_ahead(m, units, find);
        } else {
            struct ring w = {0, 1}, x = {0, 1};
            keep_registers<KEPT>();
            for (uint32_t u = blockIdx.x; u < units; u += gridDim.x)
                bring_all<T, N>(m, find(u), w, x, x_waits);
        }
    } else {
        struct ring w = {0, 0}, x = {0, 0};
        const struct seat at = seat_of(threadIdx.x);
        take_registers<AHEAD ? TAKEN_AHEAD : TAKEN>();
        if (T::BLOCK == 256 && blockIdx.x < units)
            begin_turns();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            find_exact_unit<N, AHEAD>(job, a, u, x_tiles);
            struct sorted_rows<N> rows;
            float acc[N / 2];
            if (AHEAD)
                find_rows<N>(rows, job);
            EVERY(e, N / 2)
                acc[e] = 0;
            by_columns<N, AHEAD>(job.x_rows, [&](auto c) {
                if constexpr (T::BLOCK == 256)
                    multiply_256<T, N, c.N, GATED, AHEAD>(m, job, at, acc, w, x, u + gridDim.x >= units);
                else
                    multiply_32<T, N, c.N, AHEAD>(m, job, at, acc, w, x);
            });
            if constexpr (ROUNDED)
                round_gated<N>(f.end.tiles, job, f.end.act, at, shared_address(m + 1), [&](int i) { return acc[i]; });
            else
                store_unit<T, N, AHEAD>(job, f, at, acc, rows);
        }
    }
    if (a.beside) /* who waits for this launch waits for that one too */
        wait_for_last();
}

#define WIDE_KERNEL(kernel, name, ...)                                                             \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        kernel(const __grid_constant__ struct lode_cuda_packed_args a) {                           \
        wide<struct name, __VA_ARGS__>(a);                                                         \
    }
/* The kernels of a type, for tiles of 64 and of 128 rows of x. */
#define WIDE(name, type, block, ...)                                                               \
    WIDE_KERNEL(wide_##name##_64, name, 64, RESULTS)                                               \
    WIDE_KERNEL(wide_##name##_128, name, 128, RESULTS)

#endif
#endif
