/* gemv_fast.cu - products of one row and of a few (up to 32) with 16-bit weights in --numerics tensor (fast.cuh),
 * and what comes before and after them in a layer.
 *
 * A warp's item is 16 rows of weights by a slice of K, which it reads past shared memory: half an item in
 * registers while the other half is multiplied, the next one's first half asked for before this one is done.
 * Slices of a tile are added in ascending order, each warp waiting for the slice before its own (few.cuh).
 *
 * One row is normed and rounded by every block of threads and lies in shared memory; of the instruction's eight
 * columns it is the first.  A few come from few_fast_x, C times eight columns. */
#include "fast.cuh"

#if __CUDA_ARCH__ >= 800

enum { HALF_STEPS = LODE_FAST_SLICE / 32 };

/* A thread's numbers of eight steps of rows r and r + 8. */
struct half_item {
    uint2 u[HALF_STEPS], v[HALF_STEPS];
};
/* Where an item's rows are, from this thread's first number of the slice on. */
struct item_rows {
    const uint8_t *u, *v;
    uint32_t left; /* numbers of K from the slice's first on */
};
DEVICE struct item_rows rows_of(const struct few_tile &t, uint32_t cols, uint32_t b) {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, k = b * LODE_FAST_SLICE;
    const uint8_t *w = t.w + (k + lane % 4 * 4) * 2;
    return {w + (size_t)(r < t.rows ? r : t.rows - 1) * t.stride,
            w + (size_t)(r + 8 < t.rows ? r + 8 : t.rows - 1) * t.stride, cols - k};
}
DEVICE void load_half(struct half_item &h, const struct item_rows &w, uint32_t half) {
    const uint32_t first = half * HALF_STEPS * 16 + threadIdx.x % 4 * 4;
    struct reads_now in;
#pragma unroll
    for (uint32_t k = 0; k < HALF_STEPS; k++) {
        const bool there = first + 16 * k < w.left;
        h.u[k] = there ? in.load8(w.u + (half * HALF_STEPS + k) * 32) : make_uint2(0, 0);
        h.v[k] = there ? in.load8(w.v + (half * HALF_STEPS + k) * 32) : make_uint2(0, 0);
    }
}

/* C 0: one row, x its numbers; else as few_fast_x leaves them, from the slice on. */
template <class T, int C, int N>
DEVICE void multiply_half(float (&d)[N][4], const struct half_item &h, const struct item_rows &w,
                          const uint2 *x, uint32_t half) {
    const uint32_t lane = threadIdx.x % 32, steps = (w.left + 15) / 16;
#pragma unroll
    for (int c = 0; c < N; c++) {
        uint2 z[HALF_STEPS];
#pragma unroll
        for (uint32_t i = 0; i < HALF_STEPS; i++) {
            const uint32_t k = half * HALF_STEPS + i;
            z[i] = make_uint2(0, 0);
            if (k < steps && (C || lane < 4))
                z[i] = C ? x[(k * C + c) * 32 + lane] : x[k * 4 + lane];
        }
#pragma unroll
        for (uint32_t i = 0; i < HALF_STEPS; i++)
            if (half * HALF_STEPS + i < steps)
                mma_fast<T>(d[c], h.u[i], h.v[i], z[i]);
    }
}

/* The one row into shared memory, rounded; what undoes its factor. */
template <class T> DEVICE float load_one(const struct lode_cuda_gemv_args &a, uint2 *to) {
    if (a.input == LODE_GEMV_NORM)
        load_normed(a, at<const float4>(a.norm));
    else
        load_floats(at<const float>(a.x), a.cols);
    __syncthreads();
    const float4 *x = (const float4 *)row_mem;
    float2 factors = make_float2(1, 1);
    if (T::SCALED) {
        uint32_t most = 0;
        for (uint32_t i = threadIdx.x; i < a.cols / 4; i += GEMV_THREADS)
            most = most_of(x[i], most);
        factors = factors_of<T>(block_max(most));
    }
    for (uint32_t i = threadIdx.x; i < (a.cols + 15) / 16 * 4; i += GEMV_THREADS) {
        const float4 v = i < a.cols / 4 ? x[i] : make_float4(0, 0, 0, 0);
        to[i] = make_uint2(pair_16<T>(v.x, v.y, factors.x), pair_16<T>(v.z, v.w, factors.x));
    }
    __syncthreads();
    return factors.y;
}

/* A warp's way through the items of its block of threads: the tiles of a pass block by block of x, every
 * FEW_WARPS-th item. */
struct few_walk {
    uint32_t first, some; /* tiles before the pass, and of it */
    uint32_t tile, b;     /* tile: of the pass */
    uint32_t tiles, blocks; /* to the next item */
};
DEVICE void walk_pass(struct few_walk &w, uint32_t first, uint32_t n_tiles, uint32_t most) {
    w.first = first;
    w.some = first >= n_tiles ? 0 : n_tiles - first < most ? n_tiles - first : most;
    if (w.some == 0)
        return;
    w.tile = threadIdx.x / 32 % w.some, w.b = threadIdx.x / 32 / w.some;
    w.tiles = FEW_WARPS % w.some, w.blocks = FEW_WARPS / w.some;
}
DEVICE void walk_on(struct few_walk &w) {
    w.tile += w.tiles;
    w.b += w.blocks;
    if (w.tile >= w.some)
        w.tile -= w.some, w.b++;
}

/* Shared memory: one row's floats and its rounded numbers (f.a.x_at bytes in all), then sums of f.tiles tiles. */
template <class T, int C> DEVICE void few_fast(const struct lode_cuda_few_args &f) {
    enum { N = C ? C : 1 };
    __shared__ struct few_tile tiles[LODE_GEMV_TILES];
    __shared__ uint32_t first_row[LODE_GEMV_TILES];
    __shared__ uint32_t turns[FEW_WARPS * N];
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t lane = threadIdx.x % 32, slices = (a.cols + LODE_FAST_SLICE - 1) / LODE_FAST_SLICE;
    const uint32_t n_tiles = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x * a.per_unit;
    float *acc = row_mem + a.x_at / sizeof(float);
    let_next_come();
    if (C == 0)
        fetch_norm(a);
    if (threadIdx.x < n_tiles) {
        const struct tile t = tile_at(a, blockIdx.x + threadIdx.x / a.per_unit * gridDim.x,
                                      threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = {t.w, t.stride, (uint16_t)t.type, (uint8_t)t.rows, (uint8_t)t.part};
        first_row[threadIdx.x] = t.first;
    }
    if (threadIdx.x < FEW_WARPS * N)
        turns[threadIdx.x] = 0;
    __syncthreads();
    struct few_walk now, next;
    struct half_item one, two;
    struct item_rows w = {NULL, NULL, 0}, w_next = w;
    walk_pass(now, 0, n_tiles, f.tiles);
    const bool any = now.some && now.b < slices; /* else this warp has nothing in the first pass */
    if (any) {
        w_next = rows_of(tiles[now.first + now.tile], a.cols, now.b);
        load_half(one, w_next, 0);
    }
    bool loaded = any;
    wait_for_last();
    const uint2 *x = C ? at<const uint2>(a.x) : (const uint2 *)(row_mem + a.cols);
    float undo = 1;
    if (C == 0)
        undo = load_one<T>(a, (uint2 *)(row_mem + a.cols));
    const float *factors = C ? (const float *)(x + (size_t)(a.cols + 15) / 16 * C * 32) : NULL;
    for (; now.some; walk_pass(now, now.first + f.tiles, n_tiles, f.tiles)) {
#pragma unroll 1
        while (now.b < slices) {
            float d[N][4];
#pragma unroll
            for (int i = 0; i < 4 * N; i++)
                d[i / 4][i % 4] = 0;
            if (!loaded) { /* the first of a pass */
                w_next = rows_of(tiles[now.first + now.tile], a.cols, now.b);
                load_half(one, w_next, 0);
            }
            w = w_next;
            load_half(two, w, 1);
            const uint2 *slice = x + (size_t)now.b * (LODE_FAST_SLICE / 16) * (C ? C * 32 : 4);
            multiply_half<T, C, N>(d, one, w, slice, 0);
            next = now;
            walk_on(next);
            loaded = next.b < slices;
            if (loaded) {
                w_next = rows_of(tiles[next.first + next.tile], a.cols, next.b);
                load_half(one, w_next, 0);
            }
            multiply_half<T, C, N>(d, two, w, slice, 1);
#pragma unroll
            for (int c = 0; c < N; c++) {
                const uint32_t turn = shared_address(turns + now.tile * N + c);
                float4 *const sums = (float4 *)(acc + now.tile * N * FEW_ACC) + lane + 32 * c;
                if (now.b)
                    await_word(turn, now.b);
                const float4 v = now.b ? *sums : make_float4(0, 0, 0, 0);
                *sums = make_float4(v.x + d[c][0], v.y + d[c][1], v.z + d[c][2], v.w + d[c][3]);
                end_word(turn, now.b, lane == 0);
            }
            now = next;
        }
        __syncthreads();
        if (threadIdx.x < FEW_WARPS * N)
            turns[threadIdx.x] = 0;
        const uint32_t columns = C ? 8 * C : 1;
        for (uint32_t i = threadIdx.x; i < now.some / a.per_unit * TILE_ROWS * columns; i += GEMV_THREADS) {
            const uint32_t r = i % TILE_ROWS, z = i / TILE_ROWS % columns,
                           u = i / (TILE_ROWS * columns) * a.per_unit;
            const struct few_tile &t = tiles[now.first + u];
            if (z < a.n_x && r < t.rows)
                few_finish(f, t.part, first_row[now.first + u] + r, z, few_residual(f, first_row[now.first + u] + r, z), [&](uint32_t k) {
                    return acc[sum_at(((u + k) * N + z / 8) * FEW_ACC, r, z)] *
                           (C ? factors[z] : undo);
                });
        }
        __syncthreads();
    }
}

#define FEW_FAST_OF(name, columns)                                                                 \
    extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 1)                                  \
        few_fast_##name##_##columns(const __grid_constant__ struct lode_cuda_few_args f) {         \
        few_fast<struct name, columns>(f);                                                         \
    }
#define FEW_FAST(name) FEW_FAST_OF(name, 0) FEW_FAST_OF(name, 1) FEW_FAST_OF(name, 2) FEW_FAST_OF(name, 4)
FEW_FAST(f16)
FEW_FAST(bf16)

#endif
