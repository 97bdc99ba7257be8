/* few.cuh - products of a few rows (up to 32) with quantised weights, and what comes after them.
 *
 * As in gemv.cuh a warp's item is 16 rows of weights by 256 numbers, but the eight columns of the
 * tensor cores are eight rows of x: a weight is unpacked once for all of them.  C times eight
 * columns are computed at a time.
 *
 * Weights come into shared memory by asynchronous copies, a ring of items for each warp, so that
 * what is on its way needs no registers; no warp waits for another's.  x was put in the order in
 * which threads want it (few_x): every load is whole lines.
 *
 * An item's exact sums are added to its tile's sums in ascending order of blocks, as the definition
 * says.  Where several warps share a tile, each waits for the block before its own.
 */
#ifndef LODE_CUDA_FEW_CUH
#define LODE_CUDA_FEW_CUH

#include "gemv.cuh"
#include "items.cuh"

enum { FEW_WARPS = LODE_FEW_WARPS, FEW_THREADS = 32 * FEW_WARPS, FEW_ACC = 128 /* floats of a tile's sums, a group of columns */ };

/* Where things lie in a block of x: 256 numbers of eight rows. */
enum {
    X_FACTORS = 2048, /* A256: m, bytes of (two columns, group, column) */
    X_SUMS = 2112,    /* A256: the sixteen sums' low bytes, then high, as an mma takes them */
    X_SCALES = 2368,  /* A256: d of each column */
    X_BLOCKS = 2048,  /* A32: (d, sum) of (block, column) */
};

/* A tile of rows of a part. */
struct __align__(16) few_tile {
    const uint8_t *w;
    uint32_t stride;
    uint16_t type;
    uint8_t rows, part;
};

/* By one instruction, where reading what is asked for would be one after the other. */
DEVICE struct few_tile read_tile(const struct few_tile *t) {
    static_assert(sizeof *t == 16, "a read");
    const uint4 v = *(const uint4 *)t;
    return {(const uint8_t *)(v.x | (uint64_t)v.y << 32), v.z, (uint16_t)v.w, (uint8_t)(v.w >> 16), (uint8_t)(v.w >> 24)};
}

/* ---- an item on its way to shared memory ---- */

/* N pieces a row; a warp copies 32 of them at a time. */
template <class T, int I>
DEVICE void copy_plane(const struct few_tile &t, uint32_t nb, uint32_t b, uint8_t *slot) {
    typedef plane<T, I> P;
    constexpr uint32_t BYTES = P::BYTES, PIECE = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : 4,
                       N = BYTES < PIECE ? 1 : BYTES / PIECE, ALL = 16 * N, STRIDE = P::STRIDE;
    if constexpr (BYTES != 0) {
        const uint32_t lane = threadIdx.x % 32;
        /* of less than four bytes, those four that they lie in */
        const uint32_t from = (nb * (256 / planes<T>::NUMBERS) * plane_before<T, I>::SIZE + b * BYTES) & ~3u;
        const uint8_t *w = t.w + from;
        slot += P::AT;
        if (32 % N || t.rows < 16) {
#pragma unroll 1
            for (uint32_t k = lane; k < ALL; k += 32) {
                const uint32_t row = k / N, piece = k % N * PIECE;
                copy_async<PIECE>(slot + row * STRIDE + piece,
                                  w + (size_t)(row < t.rows ? row : t.rows - 1) * t.stride + piece);
            }
        } else if (ALL >= 32 || lane < ALL) {
            const uint32_t row = lane / N, piece = lane % N * PIECE, next = 32 / N * t.stride;
            w += row * t.stride + piece;
            slot += row * STRIDE + piece;
#pragma unroll
            for (uint32_t i = 0; i < (ALL + 31) / 32; i++)
                copy_async<PIECE>(slot + i * (32 / N) * STRIDE, w + i * (size_t)next);
        }
    }
}
/* nb: items of a row.  BLOCK: that of the types that a kernel knows; OWN_TYPES: shared.h's LODE_CUDA_OWN_LIST, of blocks of 32. */
enum { OWN_TYPES = 1 };
template <int BLOCK>
DEVICE void copy_item(const struct few_tile &t, uint32_t nb, uint32_t b, uint8_t *slot) {
    switch (t.type) {
#define COPY_BY(kernel, name, dtype)                                                               \
    case LODE_##dtype:                                                                             \
        if constexpr (BLOCK == (kernel)) {                                                         \
            copy_plane<struct name, 0>(t, nb, b, slot);                                            \
            copy_plane<struct name, 1>(t, nb, b, slot);                                            \
            copy_plane<struct name, 2>(t, nb, b, slot);                                            \
            copy_plane<struct name, 3>(t, nb, b, slot);                                            \
        }                                                                                          \
        break;
#define COPY(name, dtype, block, ...) COPY_BY(block, name, dtype)
        LODE_CUDA_QUANT_LIST(COPY)
#undef COPY
#define COPY(name, dtype, block, ...) COPY_BY(OWN_TYPES, name, dtype)
        LODE_CUDA_OWN_LIST(COPY)
#undef COPY
#undef COPY_BY
    }
}

/* ---- whose turn it is ---- */

struct few_item {
    const uint8_t *slot, *x; /* x: of the block */
    float4 *acc;             /* the tile's sums, this thread's of each group of columns */
    uint32_t *turns;         /* of the tile, by group of columns; NULL: the warp has it alone */
    uint32_t b;              /* the tile's turn says so when it is this item's */
};
/* For await_turn: a number that depends on all of these. */
DEVICE uint32_t bits_of(float a, float b, float c = 0, float d = 0) {
    return lode_f32_bits(a) ^ lode_f32_bits(b) ^ lode_f32_bits(c) ^ lode_f32_bits(d);
}
/* made: bits of all that is made before the turn.  In a turn the other warps of the tile wait for this one, and what can be
 * made before, compilers would leave until after the wait: so its address depends on it, but by threadIdx.y, which is 0. */
DEVICE void await_turn(const struct few_item &w, int c, uint32_t made) {
    if (!w.turns || w.b == 0)
        return;
    const uint32_t at = shared_address(w.turns + c) + (made & threadIdx.y);
    uint32_t n;
    do
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(n) : "r"(at) : "memory");
    while (n != w.b);
}
DEVICE void end_turn(const struct few_item &w, int c) {
    if (!w.turns)
        return;
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(
                         shared_address(w.turns + c)),
                     "r"(w.b + 1)
                     : "memory");
}
DEVICE float4 sums_so_far(const struct few_item &w, int c) {
    return w.b ? w.acc[32 * c] : make_float4(0, 0, 0, 0);
}

/* ---- an item ---- */

DEVICE uint4 read16(const uint8_t *p) { return *(const uint4 *)p; }
DEVICE uint2 read8(const uint8_t *p) { return *(const uint2 *)p; }

/* Numbers of a block of x by that of types. */
static constexpr __device__ int x_block(int block) { return block == 256 ? 256 : 32; }

/* What an item needs of x first, on its way before the weights are looked at: all of one group of columns; of more the
 * codes of groups 0 and 1 and the factors, as registers are too few. */
template <int BLOCK, int C> struct few_x_first {
    enum { ALL = BLOCK == 32 || C == 1, N = BLOCK == 256 ? C : 1, PAIRS = ALL ? 4 : 1 };
    uint4 codes[N][PAIRS], m[N];
    uint2 sums[N];
    float2 d[N];
};
template <int BLOCK, int C>
DEVICE void read_first(struct few_x_first<BLOCK, C> &v, const uint8_t *x) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (int c = 0; c < v.N; c++) {
        const uint8_t *from = x + c * LODE_FEW_X256;
#pragma unroll
        for (int p = 0; p < v.PAIRS; p++)
            v.codes[c][p] = read16(from + 512 * p + 16 * lane);
        if (BLOCK == 256)
            v.m[c] = read16(from + X_FACTORS + 16 * (lane % 4));
        if (BLOCK == 256 && v.ALL)
            v.sums[c] = read8(from + X_SUMS + 8 * lane), v.d[c] = *(const float2 *)(from + X_SCALES + 8 * (lane % 4));
    }
}

/* Group g's dots with two columns and rows r and r + 8, times scales and factors: m's low bytes. */
template <class T>
DEVICE void add_group(int isum[4], const uint32_t w[4], uint32_t x0, uint32_t x1, uint32_t m,
                      const struct row_scales z[2], int g) {
    const T *const type = NULL;
    const int by[2] = {(int)(m & 255), (int)(m >> 8 & 255)};
    if constexpr (T::GROUP == 16) {
        int lo[4] = {}, hi[4] = {};
        mma_ss(lo, w[0], w[1], x0);
        mma_ss(hi, w[2], w[3], x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += by[e % 2] * (scale_of(type, z[e / 2], 2 * g) * lo[e] +
                                    scale_of(type, z[e / 2], 2 * g + 1) * hi[e]);
    } else {
        int dot[4] = {};
        mma_bytes(dot, w[0], w[1], w[2], w[3], x0, x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += scale_of(type, z[e / 2], g) * by[e % 2] * dot[e];
    }
}
DEVICE uint32_t pair_factors(uint4 m, int p) { return p == 0 ? m.x : p == 1 ? m.y : p == 2 ? m.z : m.w; }

template <class T, int C>
DEVICE void few_item_256(const struct few_item &w, struct few_x_first<256, C> &x) {
    const T *const type = NULL;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const struct row_scales z[2] = {scales_of(type, w.slot, r, w.b),
                                    scales_of(type, w.slot, r + 8, w.b)};
    int isum[C][4] = {};
    uint2 sums[C];
    float2 dx[C];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[4], v[4];
        uint4 next[C];
#pragma unroll
        for (int c = 0; c < C && !x.ALL; c++) { /* on their way while these are used */
            const uint8_t *from = w.x + c * LODE_FEW_X256;
            if (p < 3)
                next[c] = read16(from + 512 * (p + 1) + 16 * lane);
            else
                sums[c] = read8(from + X_SUMS + 8 * lane), dx[c] = *(const float2 *)(from + X_SCALES + 8 * q);
        }
        pair_words(type, w.slot, p, u, v);
#pragma unroll
        for (int c = 0; c < C; c++) {
            const uint4 a = x.codes[c][x.ALL ? p : 0];
            const uint32_t m = pair_factors(x.m[c], p);
            add_group<T>(isum[c], u, a.x, a.y, m, z, 2 * p);
            add_group<T>(isum[c], v, a.z, a.w, m >> 16, z, 2 * p + 1);
            if (!x.ALL)
                x.codes[c][0] = next[c];
        }
    }
    constexpr int SOME = C < 2 ? C : 2; /* groups of columns a turn */
#pragma unroll
    for (int first = 0; first < C; first += SOME) {
        float by[SOME][4], by_min[SOME][4], sum[SOME][4], min[SOME][4];
        uint32_t made = 0;
#pragma unroll
        for (int k = 0; k < SOME; k++) {
            const int c = first + k;
            const float2 d = x.ALL ? x.d[c] : dx[c];
            int side[4] = {};
            if (T::HAS_M || T::OFFSET) {
                const uint2 s = x.ALL ? x.sums[c] : sums[c];
                int low[4] = {}, high[4] = {};
                mma_su(low, z[0].own, z[1].own, s.x);
                mma_ss(high, z[0].own, z[1].own, s.y);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    side[e] = high[e] * 256 + low[e];
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float by_x = e % 2 ? d.y : d.x;
                by[k][e] = z[e / 2].d.x * by_x, sum[k][e] = (float)(isum[c][e] - T::OFFSET * side[e]);
                by_min[k][e] = T::HAS_M ? z[e / 2].d.y * by_x : 0, min[k][e] = T::HAS_M ? (float)side[e] : 0;
                if (C < 4) /* of four groups registers are too few */
                    made ^= bits_of(by[k][e], sum[k][e], by_min[k][e], min[k][e]);
            }
        }
        await_turn(w, first, made);
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
        end_turn(w, first);
    }
}

template <class T, int C>
DEVICE void few_item_32(const struct few_item &w, struct few_x_first<32, C> &first) {
    const T *const type = NULL;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
#pragma unroll 1
    for (int c = 0; c < C; c++) {
        const uint8_t *x = w.x + c * LODE_FEW_X32;
        int dot[8][4] = {};
        if (c)
            read_first<32, C>(first, x);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t u[4], v[4];
            pair_words(type, w.slot, p, u, v);
            const uint4 a = first.codes[0][p];
            mma_bytes(dot[2 * p], u[0], u[1], u[2], u[3], a.x, a.y);
            mma_bytes(dot[2 * p + 1], v[0], v[1], v[2], v[3], a.z, a.w);
        }
        float by[8][4], sum[8][4];
        uint32_t made = 0;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint4 m = read16(x + X_BLOCKS + 64 * k + 16 * q); /* d, sum; d, sum */
            const float2 d[2] = {block_scale<T>(w.slot, r, k), block_scale<T>(w.slot, r + 8, k)};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                by[k][e] = d[e / 2].x * lode_bits_f32(e % 2 ? m.z : m.x);
                sum[k][e] = (float)(dot[k][e] - T::OFFSET * (int)(e % 2 ? m.w : m.y));
                made ^= bits_of(by[k][e], sum[k][e]);
            }
        }
        await_turn(w, c, made);
        const float4 so_far = sums_so_far(w, c);
        float v[4] = {so_far.x, so_far.y, so_far.z, so_far.w};
#pragma unroll
        for (int k = 0; k < 8; k++) {
#pragma unroll
            for (int e = 0; e < 4; e++)
                v[e] = fmaf(by[k][e], sum[k][e], v[e]);
            if (T::HAS_M) { /* registers are too few to make these before the turn too */
                const uint4 m = read16(x + X_BLOCKS + 64 * k + 16 * q);
                const float d[2] = {block_scale<T>(w.slot, r, k).y, block_scale<T>(w.slot, r + 8, k).y};
#pragma unroll
                for (int e = 0; e < 4; e++)
                    v[e] = fmaf(d[e / 2] * lode_bits_f32(e % 2 ? m.z : m.x), (float)(int)(e % 2 ? m.w : m.y), v[e]);
            }
        }
        w.acc[32 * c] = make_float4(v[0], v[1], v[2], v[3]);
        end_turn(w, c);
    }
}

template <int BLOCK, int C>
DEVICE void few_item(const struct few_item &w, struct few_x_first<x_block(BLOCK), C> &x, uint32_t type) {
    switch (type) {
#define ITEM_BY(kernel, name, dtype)                                                               \
    case LODE_##dtype:                                                                             \
        if constexpr (BLOCK == (kernel)) {                                                         \
            if constexpr (BLOCK == 256)                                                            \
                few_item_256<struct name, C>(w, x);                                                   \
            else                                                                                   \
                few_item_32<struct name, C>(w, x);                                                    \
        }                                                                                          \
        break;
#define ITEM(name, dtype, block, ...) ITEM_BY(block, name, dtype)
        LODE_CUDA_QUANT_LIST(ITEM)
#undef ITEM
#define ITEM(name, dtype, block, ...) ITEM_BY(OWN_TYPES, name, dtype)
        LODE_CUDA_OWN_LIST(ITEM)
#undef ITEM
#undef ITEM_BY
    }
}

/* ---- what comes after ---- */

/* Row r of a unit whose first row is `first` of part `part`, of row x; value(k): the sum of its tile k. */
template <class F>
DEVICE void few_finish(const struct lode_cuda_few_args &f, uint32_t part, uint32_t first, uint32_t r,
                       uint32_t x, F value) {
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t i = first + r;
    auto biased = [&](uint32_t p, float v) {
        return a.parts[p].bias ? v + at<const float>(a.parts[p].bias)[i] : v;
    };
    float v = biased(part, value(0));
    if (a.output == LODE_GEMV_GLU)
        v = glu_of(a.act, v, biased(1, value(1)));
    if (a.residual) {
        const float y = at<const float>(a.residual + x * f.residual_stride)[i];
        v = with_residual(a, v, y);
    }
    at<float>(a.parts[part].y + x * f.y_stride[part])[i] = v;
}

/* ---- all of it ---- */

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

/* What an item is to the walk below: its type's BLOCK, C groups of columns of X_BLOCK bytes an item; what of x is
 * asked for first; a result of row x. */
template <int B, int COLUMNS> struct exact_items {
    enum { BLOCK = B, C = COLUMNS, X_BLOCK = COLUMNS * (B == 256 ? LODE_FEW_X256 : LODE_FEW_X32) };
    typedef struct few_x_first<x_block(B), COLUMNS> first;
    static DEVICE_MEMBER void read(first &v, const uint8_t *x) { read_first<x_block(B), COLUMNS>(v, x); }
    static DEVICE_MEMBER void item(const struct few_item &w, first &x, uint32_t type) {
        few_item<B, COLUMNS>(w, x, type);
    }
    static DEVICE_MEMBER float result(const struct lode_cuda_gemv_args &, uint32_t, float v) { return v; }
};

template <class K> DEVICE void few(const struct lode_cuda_few_args &f) {
    constexpr int C = K::C;
    __shared__ struct few_tile tiles[LODE_GEMV_TILES];
    __shared__ uint32_t first_row[LODE_GEMV_TILES];
    __shared__ uint32_t turns[FEW_WARPS * C];
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = a.cols / 256;
    const uint32_t n_tiles = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x * a.per_unit;
    float *acc = row_mem;
    uint8_t *ring = (uint8_t *)row_mem + f.tiles * C * FEW_ACC * sizeof(float) +
                    (size_t)warp * f.depth * f.slot_size;
    let_next_come();
    if (threadIdx.x < n_tiles) {
        const struct tile t = tile_at(a, blockIdx.x + threadIdx.x / a.per_unit * gridDim.x,
                                      threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = {t.w, t.stride, (uint16_t)t.type, (uint8_t)t.rows, (uint8_t)t.part};
        first_row[threadIdx.x] = t.first;
    }
    if (threadIdx.x < FEW_WARPS * C)
        turns[threadIdx.x] = 0;
    __syncthreads();
    struct few_walk ahead, now;
    walk_pass(ahead, 0, n_tiles, f.tiles);
    uint32_t to = 0, from = 0; /* slots of the ring */
    auto ask = [&]() {                   /* for the next item */
        while (ahead.some && ahead.b >= steps)
            walk_pass(ahead, ahead.first + f.tiles, n_tiles, f.tiles);
        if (ahead.some) {
            const struct few_tile t = read_tile(&tiles[ahead.first + ahead.tile]);
            copy_item<K::BLOCK>(t, steps, ahead.b, ring + to);
            to = to + f.slot_size < f.depth * f.slot_size ? to + f.slot_size : 0;
            walk_on(ahead);
        }
        copies_end_group();
    };
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < f.depth; i++)
        ask();
    wait_for_last();
    for (walk_pass(now, 0, n_tiles, f.tiles); now.some;
         walk_pass(now, now.first + f.tiles, n_tiles, f.tiles)) {
        const bool alone = now.some == FEW_WARPS;
#pragma unroll 1
        for (; now.b < steps; walk_on(now)) {
            typename K::first first;
            K::read(first, at<const uint8_t>(a.x) + (size_t)now.b * K::X_BLOCK);
            ask();
            if (f.depth == 2)
                copies_wait<1>();
            else if (f.depth == 3)
                copies_wait<2>();
            else
                copies_wait<3>();
            __syncwarp();
            const struct few_item w = {ring + from,
                                       at<const uint8_t>(a.x) + (size_t)now.b * K::X_BLOCK,
                                       (float4 *)(acc + now.tile * C * FEW_ACC) + lane,
                                       alone ? NULL : turns + now.tile * C, now.b};
            K::item(w, first, tiles[now.first + now.tile].type);
            __syncwarp();
            from = from + f.slot_size < f.depth * f.slot_size ? from + f.slot_size : 0;
        }
        __syncthreads();
        if (threadIdx.x < FEW_WARPS * C)
            turns[threadIdx.x] = 0;
        for (uint32_t i = threadIdx.x; i < now.some / a.per_unit * TILE_ROWS * 8 * C;
             i += FEW_THREADS) {
            const uint32_t r = i % TILE_ROWS, x = i / TILE_ROWS % (8 * C),
                           u = i / (TILE_ROWS * 8 * C) * a.per_unit;
            const struct few_tile &t = tiles[now.first + u];
            if (x < a.n_x && r < t.rows)
                few_finish(f, t.part, first_row[now.first + u], r, x, [&](uint32_t k) {
                    return K::result(a, x, acc[((u + k) * C + x / 8) * FEW_ACC + 16 * (r % 8) +
                                               x % 8 / 2 * 4 + r / 8 * 2 + x % 2]);
                });
        }
        __syncthreads();
    }
}

/* A kernel: of types whose BLOCK is `block`. */
#define FEW(name, block, columns)                                                                  \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1)                                   \
        few_##name##_##columns(const __grid_constant__ struct lode_cuda_few_args a) {              \
        few<struct exact_items<block, columns>>(a);                                                \
    }

#endif
