/* few.cuh - products of a few rows (up to 32) with quantised weights, and what comes after them.
 *
 * As in gemv.cuh a warp's item is 16 rows of weights by 256 numbers, but the eight columns of the
 * tensor cores are eight rows of x: a weight is unpacked once for all of them.  C times eight
 * columns are computed at a time.
 *
 * Weights come into shared memory by asynchronous copies, a ring of items for each warp, so that
 * what is on its way needs no registers; no warp waits for another's.  A warp stays with a tile, so that the next item's
 * place is a step from this one's.
 *
 * An item's exact sums are added to its tile's sums in ascending order of blocks, as the definition
 * says.  Where several warps share a tile, each waits for the block before its own.
 */
#ifndef LODE_CUDA_FEW_CUH
#define LODE_CUDA_FEW_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "few_x.cuh"
#include "gemv.cuh"

enum { FEW_WARPS = LODE_FEW_WARPS, FEW_THREADS = 32 * FEW_WARPS, FEW_ACC = LODE_FEW_SUMS / 4 /* floats of a tile's sums, a group of columns */ };

/* Warps of a block of threads: known where there is room for all, else as many as there is room for. */
DEVICE uint32_t few_warps() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    return FEW_WARPS;
#else
    return blockDim.x / 32;
#endif
}

/* ---- whose turn it is ---- */

/* Whose turn it is words say, or barriers of two warps: a turn's end is no fence then, which would wait for the x that is on its way,
 * and the one whose turn it is sleeps until then.  A barrier is the waiting warp's own, but for warp 0 (__syncthreads has that), and
 * only where an item has one turn and no warp may be a part ahead of another: in the last part before all meet.  With more columns than
 * eight of x in the memory, and blocks of 32, words are as quick or quicker. */
static constexpr __device__ bool has_barriers(int block, int columns) {
    return block == 256 && (columns == 1 || x_is_shared(block, columns));
}

enum : uint32_t { ALONE = ~0u };
struct few_item {
    const uint8_t *slot;
    struct few_x_at x, next;       /* of the block; where x is in the memory, of the warp's next item's */
    const struct x_ring *ring; /* where x is shared */
    float4 *acc;                   /* the tile's sums, this thread's of each group of columns */
    uint32_t turn;                 /* shared address of the tile's turns, words by group of columns; ALONE: the warp has the tile */
    uint32_t b, steps;             /* the tile's turn says so when it is this item's; blocks of the tile */
    uint32_t step;                 /* from a warp's block of the tile to its next */
    uint32_t own, after;           /* barriers: this warp's, and that of the one that has block b + 1; 0: a word tells */
    bool first;                    /* this is the warp's first thread */
};
DEVICE void await_word(uint32_t at, uint32_t b) {
    uint32_t n;
    do
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(n) : "r"(at) : "memory");
    while (n != b);
}
DEVICE void end_word(uint32_t at, uint32_t b, bool first) {
    __syncwarp();
    if (first)
        asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at), "r"(b + 1) : "memory");
}
template <bool BARRIERS> DEVICE void await_turn(const struct few_item &w, int c) {
    if (w.turn == ALONE || !w.b)
        return;
    if (BARRIERS && w.own)
        asm volatile("bar.sync %0, 64;" ::"r"(w.own) : "memory");
    else
        await_word(w.turn + 4 * c, w.b);
}
template <bool BARRIERS> DEVICE void end_turn(const struct few_item &w, int c) {
    if (w.turn == ALONE || (BARRIERS && w.b + 1 == w.steps))
        return;
    if (BARRIERS && w.after)
        asm volatile("bar.arrive %0, 64;" ::"r"(w.after) : "memory");
    else
        end_word(w.turn + 4 * c, w.b, w.first);
}
/* Where the sum of a tile's row r and of row x lies, from `first`, where those of x's group of eight begin. */
DEVICE uint32_t sum_at(uint32_t first, uint32_t r, uint32_t x) { return first + 16 * (r % 8) + x % 8 / 2 * 4 + r / 8 * 2 + x % 2; }
DEVICE float4 sums_so_far(const struct few_item &w, int c) {
    return w.b ? w.acc[32 * c] : make_float4(0, 0, 0, 0);
}

/* ---- an item ---- */

DEVICE int byte_of(uint32_t v, int i) { return (int)__byte_perm(v, 0, 0x4440 + i); }

/* scale_of by one instruction where scales are bytes: the byte, and its sign in all others. */
template <class T> DEVICE int byte_scale(const T *, const struct row_scales &z, int g) {
    int s;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(s) : "r"(z.s[g / 4]), "r"(0x8880 + 0x1111 * (g % 4)));
    return s;
}
DEVICE int byte_scale(const struct iq4_xs *type, const struct row_scales &z, int g) { return scale_of(type, z, g); }

/* Group g's dots with two columns and rows r and r + 8, times scales and factors: m's low bytes. */
template <class T>
DEVICE void add_group(int isum[4], const uint32_t w[4], uint32_t x0, uint32_t x1, uint32_t m,
                      const struct row_scales z[2], int g) {
    const T *const type = NULL;
    const int by[2] = {byte_of(m, 0), byte_of(m, 1)};
    if constexpr (T::GROUP == 16) {
        int lo[4] = {}, hi[4] = {};
        mma_ss(lo, w[0], w[1], x0);
        mma_ss(hi, w[2], w[3], x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += by[e % 2] * (byte_scale(type, z[e / 2], 2 * g) * lo[e] +
                                    byte_scale(type, z[e / 2], 2 * g + 1) * hi[e]);
    } else {
        int dot[4] = {};
        mma_bytes(dot, w[0], w[1], w[2], w[3], x0, x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += byte_scale(type, z[e / 2], g) * by[e % 2] * dot[e];
    }
}
DEVICE uint32_t pair_factors(uint4 m, int p) { return p == 0 ? m.x : p == 1 ? m.y : p == 2 ? m.z : m.w; }

template <class T, int C>
DEVICE void few_item_256(const struct few_item &w, struct few_x_first<256, C> &x) {
    constexpr bool SHARED = x_is_shared(256, C), AHEAD = !SHARED && !x.ALL; /* codes are read a pair of groups ahead */
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
    const struct row_scales z[2] = {scales_of(type, w.slot, r, w.b),
                                    scales_of(type, w.slot, r + 8, w.b)};
    int isum[C][4] = {};
    uint4 sums[C];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[4], v[4];
        uint4 next[C];
#pragma unroll
        for (int c = 0; c < C && AHEAD; c++) { /* on their way while these are used */
            const struct few_x_at from = w.x.by(c * LODE_FEW_X256);
            if (p < 3)
                next[c] = read16(from.p + 512 * (p + 1));
            else
                sums[c] = read16(from.p + X_SUMS);
        }
        pair_words(type, w.slot, p, u, v);
#pragma unroll
        for (int c = 0; c < C; c++) {
            const struct few_x_at from = w.x.by(c * LODE_FEW_X256);
            const uint4 a = SHARED ? read16(from.p + 512 * p) : x.codes[c][x.ALL ? p : 0];
            const uint32_t m = SHARED ? word_at(from.m + X_FACTORS + 4 * p) : pair_factors(x.m[c], p);
            add_group<T>(isum[c], u, a.x, a.y, m, z, 2 * p);
            add_group<T>(isum[c], v, a.z, a.w, m >> 16, z, 2 * p + 1);
            if (AHEAD)
                x.codes[c][0] = next[c];
        }
    }
    constexpr int SOME = SHARED || C < 2 ? C : 2; /* groups of columns a turn: of x in the memory registers are too few for more */
#pragma unroll
    for (int first = 0; first < C; first += SOME) {
        float by[SOME][4], by_min[SOME][4], sum[SOME][4], min[SOME][4];
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            const int c = first + k;
            const uint4 s = SHARED ? read16(w.x.by(c * LODE_FEW_X256).p + X_SUMS) : x.ALL ? x.sums[c] : sums[c];
            int side[4] = {};
            if (T::HAS_M || T::OFFSET) {
                int low[4] = {}, high[4] = {};
                mma_su(low, z[0].own, z[1].own, s.x);
                mma_ss(high, z[0].own, z[1].own, s.y);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    side[e] = high[e] * 256 + low[e];
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float by_x = lode_bits_f32(e % 2 ? s.w : s.z);
                by[k][e] = z[e / 2].d.x * by_x, sum[k][e] = (float)(isum[c][e] - T::OFFSET * side[e]);
                by_min[k][e] = T::HAS_M ? z[e / 2].d.y * by_x : 0, min[k][e] = T::HAS_M ? (float)side[e] : 0;
            }
        }
        if (!SHARED && first == 0) /* nothing of it is used any more */
            read_first(x, w.next);
        if (SHARED)
            x_ring_leave(*w.ring, w.b, w.step, LODE_FEW_WARPS); /* one in `step` of the tile's blocks is its own */
        await_turn<has_barriers(256, C)>(w, first);
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            const float4 so_far = sums_so_far(w, first + k);
            float v[4] = {so_far.x, so_far.y, so_far.z, so_far.w};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                v[e] = fmaf(by[k][e], sum[k][e], v[e]);
                if (T::HAS_M)
                    v[e] = fmaf(-by_min[k][e], min[k][e], v[e]);
            }
            w.acc[32 * (first + k)] = make_float4(v[0], v[1], v[2], v[3]);
        }
        end_turn<has_barriers(256, C)>(w, first);
    }
}

template <class T, int C>
DEVICE void few_item_32(const struct few_item &w, struct few_x_first<32, C> &first) {
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
#pragma unroll 1
    for (int c = 0; c < C; c++) {
        const uint8_t *const x = w.x.m + c * LODE_FEW_X32 + X_BLOCKS; /* d, sum; d, sum */
        int dot[8][4] = {};
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t u[4], v[4];
            pair_words(type, w.slot, p, u, v);
            const uint4 a = first.codes[0][p];
            mma_bytes(dot[2 * p], u[0], u[1], u[2], u[3], a.x, a.y);
            mma_bytes(dot[2 * p + 1], v[0], v[1], v[2], v[3], a.z, a.w);
        }
        float by[8][4], sum[8][4];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint4 m = read16(x + 64 * k);
            const float2 d[2] = {block_scale<T>(w.slot, r, k), block_scale<T>(w.slot, r + 8, k)};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                by[k][e] = d[e / 2].x * lode_bits_f32(e % 2 ? m.z : m.x);
                sum[k][e] = (float)(dot[k][e] - T::OFFSET * (int)(e % 2 ? m.w : m.y));
            }
        }
        await_turn<has_barriers(32, C)>(w, c);
        const float4 so_far = sums_so_far(w, c);
        float v[4] = {so_far.x, so_far.y, so_far.z, so_far.w};
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = fmaf(by[k][e], sum[k][e], v[e]);
            if (T::HAS_M) { /* registers are too few to make these before the turn too */
                const uint4 m = read16(x + 64 * k);
                const float d[2] = {block_scale<T>(w.slot, r, k).y, block_scale<T>(w.slot, r + 8, k).y};
#pragma unroll
                for (int e = 0; e < 4; e++)
                    v[e] = fmaf(d[e / 2] * lode_bits_f32(e % 2 ? m.z : m.x), (float)(int)(e % 2 ? m.w : m.y), v[e]);
            }
        }
        w.acc[32 * c] = make_float4(v[0], v[1], v[2], v[3]);
        end_turn<has_barriers(32, C)>(w, c);
        read_first<32, C>(first, c + 1 < C ? w.x.by((c + 1) * LODE_FEW_X32) : w.next);
    }
}

template <int TYPES, int C>
DEVICE void few_item(const struct few_item &w, struct few_x_first<x_block(TYPES), C> &x, uint32_t type) {
    of_type<TYPES>(type, [&](auto *t) {
        typedef typename type_at<decltype(t)>::type T;
        if constexpr (x_block(TYPES) == 256)
            few_item_256<T, C>(w, x);
        else
            few_item_32<T, C>(w, x);
    });
}

/* ---- what comes after ---- */

/* What is added to row i of row x's result, where something is. */
DEVICE float few_residual(const struct lode_cuda_few_args &f, uint32_t i, uint32_t x) {
    return f.a.residual ? at<const float>(f.a.residual + x * f.residual_stride)[i] : 0;
}
/* Row i of part `part`, of row x; value(k): the sum of its unit's tile k. */
template <class F>
DEVICE void few_finish(const struct lode_cuda_few_args &f, uint32_t part, uint32_t i, uint32_t x, float residual, F value) {
    const struct lode_cuda_gemv_args &a = f.a;
    auto biased = [&](uint32_t p, float v) {
        return a.parts[p].bias ? v + at<const float>(a.parts[p].bias)[i] : v;
    };
    float v = biased(part, value(0));
    if (a.output == LODE_GEMV_GLU)
        v = glu_of(a.act, v, biased(1, value(1)));
    if (a.residual)
        v = with_residual(a, v, residual);
    at<float>(a.parts[part].y + x * f.y_stride[part])[i] = v;
}

/* ---- all of it ---- */

/* A warp's way through the items of its block of threads.  Of the tiles whose sums are kept at once, parts of 16, 8, 4, 2 and 1, as many
 * as there are: of each part a warp has one tile, and of that every (warps / tiles)-th block. */
struct few_way {
    uint32_t first, some; /* tiles before those that are kept, and of them */
    uint32_t at, log;     /* of those, tiles before the part, and of it, 1 << log */
    uint32_t b;
    DEVICE_MEMBER uint32_t size() const { return 1u << log; }
    DEVICE_MEMBER uint32_t tile(uint32_t warp) const { return at + (warp & (size() - 1)); }
    DEVICE_MEMBER uint32_t step() const { return few_warps() >> log; }
};
DEVICE void way_part(struct few_way &w, uint32_t at, uint32_t warp) {
    w.at = at, w.log = 31 - __clz(w.some - at), w.b = warp >> w.log;
}
DEVICE void way_begin(struct few_way &w, uint32_t first, uint32_t n_tiles, uint32_t most, uint32_t warp) {
    w.first = first;
    w.some = first >= n_tiles ? 0 : n_tiles - first < most ? n_tiles - first : most;
    if (w.some)
        way_part(w, 0, warp);
}

/* What an item is to the walk below: the types that it knows, C groups of columns of X_BLOCK bytes an item, whether its turns may be told
 * by barriers; what of x is asked for first; a result of row x. */
template <int KNOWN, int COLUMNS> struct exact_items {
    enum {
        TYPES = KNOWN,
        C = COLUMNS,
        X_BLOCK = COLUMNS * x_bytes(x_block(KNOWN)),
        BARRIERS = has_barriers(x_block(KNOWN), COLUMNS),
        X_SHARED = x_is_shared(x_block(KNOWN), COLUMNS),
    };
    typedef struct few_x_first<x_block(KNOWN), COLUMNS> first;
    static DEVICE_MEMBER void read(first &v, const struct few_x_at &x) { read_first<x_block(KNOWN), COLUMNS>(v, x); }
    static DEVICE_MEMBER void item(const struct few_item &w, first &x, uint32_t type) { few_item<KNOWN, COLUMNS>(w, x, type); }
    static DEVICE_MEMBER float result(const struct lode_cuda_gemv_args &, uint32_t, float v) { return v; }
};

/* The i-th result of a block of threads: row r of the unit whose first tile is `tile`, of row x. */
struct few_place { uint32_t r, x, tile; };
template <int C> DEVICE struct few_place few_place_of(const struct lode_cuda_gemv_args &a, uint32_t i) {
    return {i % TILE_ROWS, i / TILE_ROWS % (8 * C), i / (TILE_ROWS * 8 * C) * a.per_unit};
}

/* A thread's number in its warp, which stays in a register. */
DEVICE uint32_t own_lane() {
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

template <class K> DEVICE void few(const struct lode_cuda_few_args &f) {
    constexpr int C = K::C;
    __shared__ struct few_tile tiles[LODE_GEMV_TILES];
    __shared__ uint32_t first_row[LODE_GEMV_TILES];
    __shared__ uint32_t turns[FEW_WARPS * C];
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t warp = of_warp(threadIdx.x / 32), lane = own_lane(), steps = a.cols / 256;
    const uint32_t n_tiles = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x * a.per_unit;
    float *acc = row_mem;
    const uint32_t ring_size = f.depth * f.slot_size;
    uint8_t *const rings = (uint8_t *)row_mem + f.tiles * C * FEW_ACC * sizeof(float), *const ring = rings + (size_t)warp * ring_size;
    struct x_ring xs = {at<const uint8_t>(a.x), rings + (size_t)few_warps() * ring_size, f.x_slots, steps, K::X_BLOCK, K::X_BLOCK};
    let_next_come();
    if (threadIdx.x < n_tiles) {
        const struct tile t = tile_at(a, blockIdx.x + threadIdx.x / a.per_unit * gridDim.x,
                                      threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = {t.w, t.stride, (uint16_t)t.type, (uint8_t)t.rows, (uint8_t)t.part};
        first_row[threadIdx.x] = t.first;
    }
    if (threadIdx.x < FEW_WARPS * C)
        turns[threadIdx.x] = 0;
    if (K::X_SHARED)
        x_ring_begin(xs);
    __syncthreads();
    struct few_way ahead, now;
    way_begin(ahead, 0, n_tiles, f.tiles, warp);
    const uint32_t ring_at = of_warp(shared_address(ring));
    uint32_t to = 0, from = 0; /* slots of the ring */
    struct few_tile next;
    auto find = [&]() { /* the next part's tile; parts with fewer blocks than it has warps have none for some */
        while (ahead.some && ahead.b >= steps)
            if (ahead.at + ahead.size() < ahead.some)
                way_part(ahead, ahead.at + ahead.size(), warp);
            else
                way_begin(ahead, ahead.first + f.tiles, n_tiles, f.tiles, warp);
        if (ahead.some)
            next = read_tile(&tiles[ahead.first + ahead.tile(warp)]);
    };
    auto ask = [&]() { /* for the next item */
        if (ahead.some) {
            copy_item<K::TYPES>(next, steps, ahead.b, ring_at + to, lane);
            to = next_slot(to, f.slot_size, ring_size);
            ahead.b += ahead.step();
            if (ahead.b >= steps)
                find();
        }
        copies_end_group();
    };
    find();
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < f.depth; i++)
        ask();
    const struct few_x_at x = x_places(at<const uint8_t>(a.x), lane);
    typename K::first first;
    wait_for_last();
    if (K::X_SHARED) {
        xs.total = steps * (xs.all() ? 1 : n_tiles / f.tiles * __popc(f.tiles) + __popc(n_tiles % f.tiles));
        if (warp == 0)
            x_ring_fill(xs);
    }
#pragma unroll 1
    for (way_begin(now, 0, n_tiles, f.tiles, warp); now.some; way_begin(now, now.first + f.tiles, n_tiles, f.tiles, warp)) {
#pragma unroll 1
        for (;;) {
            const uint32_t tile = now.tile(warp), type = tiles[now.first + tile].type, step = now.step();
            const uint32_t turn = step == 1 ? ALONE : shared_address(turns + tile * C);
            const bool barriers = K::BARRIERS && now.at + now.size() >= now.some;
            float4 *const sums = (float4 *)(acc + tile * C * FEW_ACC) + lane;
            if (!K::X_SHARED && now.b < steps)
                K::read(first, x.by((size_t)now.b * K::X_BLOCK));
#pragma unroll 1
            for (; now.b < steps; now.b += step) {
                ask();
                await_oldest(f.depth);
                const uint32_t next_b = now.b + step < steps ? now.b + step : now.b;
                const struct few_item w = {ring + from,
                                           K::X_SHARED ? x_places(x_ring_await(xs, now.b), lane) : x.by((size_t)now.b * K::X_BLOCK),
                                           x.by((size_t)next_b * K::X_BLOCK), &xs,
                                           sums, turn, now.b, steps, step, barriers ? warp : 0,
                                           barriers ? (warp + now.size()) & (few_warps() - 1) : 0, lane == 0};
                K::item(w, first, type);
                __syncwarp();
                from = next_slot(from, f.slot_size, ring_size);
            }
            if (!xs.all())
                xs.first += steps;
            if (now.at + now.size() >= now.some)
                break;
            way_part(now, now.at + now.size(), warp);
        }
        const uint32_t results = now.some / a.per_unit * TILE_ROWS * 8 * C;
        auto residual_of = [&](uint32_t i) {
            const struct few_place p = few_place_of<C>(a, i);
            const uint32_t u = now.first + p.tile;
            return i < results && p.x < a.n_x && p.r < tiles[u].rows ? few_residual(f, first_row[u] + p.r, p.x) : 0;
        };
        float residual = residual_of(threadIdx.x); /* on its way while others are at their items */
        __syncthreads();
        if (threadIdx.x < FEW_WARPS * C)
            turns[threadIdx.x] = 0;
        for (uint32_t i = threadIdx.x; i < results; i += 32 * few_warps()) {
            const struct few_place p = few_place_of<C>(a, i);
            const struct few_tile &t = tiles[now.first + p.tile];
            if (p.x < a.n_x && p.r < t.rows)
                few_finish(f, t.part, first_row[now.first + p.tile] + p.r, p.x, residual, [&](uint32_t k) {
                    return K::result(a, p.x, acc[sum_at(((p.tile + k) * C + p.x / 8) * FEW_ACC, p.r, p.x)]);
                });
            residual = residual_of(i + 32 * few_warps());
        }
        __syncthreads();
    }
}

/* Kernels of some types: of one, two and four groups of columns. */
#define FEW_OF(name, types, columns)                                                               \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1)                                   \
        few_##name##_##columns(const __grid_constant__ struct lode_cuda_few_args a) {              \
        few<struct exact_items<types, columns>>(a);                                                \
    }
#define FEW(name, types) FEW_OF(name, types, 1) FEW_OF(name, types, 2) FEW_OF(name, types, 4)

#endif
