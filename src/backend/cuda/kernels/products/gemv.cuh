/* gemv.cuh - products of one row with quantised weights, and what comes before and after them in a
 * layer.
 *
 * The tensor cores take 16 rows of weights by 32 numbers at a time against eight columns.  One row
 * of x would use one column of the eight, so the columns are used for something else: each holds
 * the numbers of one group of a block (zeros elsewhere), and what comes out are the dot products of
 * eight groups apart, as the scales want them.  Which numbers of a group meet in which step does
 * not matter: integer sums are exact. So threads read 16 bytes of weights each, as they lie, and
 * unpack them in registers.
 *
 * A warp's item is 16 rows by 256 numbers, two of them at a time; the warps of a block share all
 * items of its tiles, and there is one block a multiprocessor, whose registers let a warp wait for
 * two items.  The pairs (d_w d_x, isum), (dmin d_x, msum) that the definition adds go to shared
 * memory, the stage, where one thread a row adds them in ascending order when all of them are
 * there.
 *
 * While the launch before still runs, the first tiles are already on their way to the second cache.
 *
 * A launch of a small model is a few thousand cycles of instructions that wait for each other, at five cycles each,
 * and of code that runs once: hence kernels of few types (types_of), and whatever can be had before x is.
 */
#ifndef LODE_CUDA_GEMV_CUH
#define LODE_CUDA_GEMV_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/planes.h"
#include "gemv_x.cuh"
#include "mma.cuh"

enum {
    GEMV_THREADS = 512,
    GEMV_WARPS = GEMV_THREADS / 32,
    TILE_ROWS = LODE_GEMV_TILE,
    LODE_GEMV_TILES = 128, /* of a block of threads, at most: fuse_row.c */
};

/* ---- which weights ---- */

struct tile {
    const uint8_t *w;
    uint32_t stride, rows, type;
    uint32_t part, slot, first; /* slot: of the chosen experts; first: row of the part */
    float weight;               /* of the expert */
    float *y;                   /* of its first row */
    const float *bias;          /* of that; may be NULL */
};

/* Tile k of a unit; tiles of `rows` rows. */
DEVICE struct tile tile_at(const struct lode_cuda_gemv_args &a, uint32_t unit, uint32_t k,
                           uint32_t rows) {
    struct tile t;
    uint32_t i = unit, p = 0;
    t.slot = 0;
    if (a.output == LODE_GEMV_GLU) {
        p = k;
        if (a.n_used) {
            const uint32_t n = (a.parts[0].rows + rows - 1) / rows;
            t.slot = unit / n;
            i = unit % n;
        }
    } else if (a.output == LODE_GEMV_SUM) {
        t.slot = k;
    } else {
        while (p + 1 < a.n_parts && unit >= a.parts[p + 1].first_unit)
            p++;
        i -= a.parts[p].first_unit;
    }
    const struct lode_cuda_gemv_part &part = a.parts[p];
    t.part = p;
    t.first = i * rows;
    t.rows = part.rows - t.first < rows ? part.rows - t.first : rows;
    t.stride = part.w_stride;
    t.type = part.type;
    t.w = at<const uint8_t>(part.w) + (size_t)t.first * t.stride;
    t.weight = 1;
    t.y = (float *)(part.y + t.slot * a.y_stride) + t.first;
    t.bias = part.bias ? at<const float>(part.bias) + t.first : NULL;
    if (a.n_used) {
        const int expert = at<const int>(a.route)[2 * t.slot];
        t.weight = at<const float>(a.route)[2 * t.slot + 1];
        t.w += expert * part.expert_size;
        t.bias = part.bias ? t.bias + (size_t)expert * part.rows : NULL;
    }
    return t;
}

/* ---- types ---- */

template <class T> struct dtype_of;
#define DTYPE_OF(name, dtype, ...)                                                                 \
    template <> struct dtype_of<struct name> { enum { VALUE = LODE_##dtype }; };
LODE_CUDA_QUANT_LIST(DTYPE_OF)

/* The types that a kernel knows, all of blocks of `block` numbers.  Kernels of few types are short, and short code is
 * fast: what runs once a launch comes from memory. */
template <int block, class... T> struct types_of {
    enum { BLOCK = block };
    template <class F> static DEVICE_MEMBER void with(uint32_t type, F f) {
        (void)((type == (uint32_t)dtype_of<T>::VALUE && (f(T()), true)) || ...);
    }
    static DEVICE_MEMBER bool adds_twice(uint32_t type) { /* of types of blocks of 32 */
        return ((terms_of<T>::TWO && type == (uint32_t)dtype_of<T>::VALUE) || ...);
    }
};

/* ---- an item: 16 rows by 256 numbers ---- */

/* What a thread reads of it: of a block of 256 its chunks q and q + 4, of eight blocks of 32 the blocks q and q + 4
 * with the scales of blocks 2 q and 2 q + 1; of rows r and r + 8. */
template <class T> struct item_words {
    struct chunk c[2][2];           /* (row, chunk) */
    struct pair_of_scales s[2][2];  /* blocks of 256 */
    float2 d[2][2];                 /* blocks of 256: only d[0][0], of row r for even q, r + 8 for odd ones */
};
template <class T, class R>
DEVICE void read_item(struct item_words<T> &v, R &in, const struct tile &t, uint32_t nb, uint32_t b) {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint8_t *row[2] = {t.w + (r < t.rows ? r : t.rows - 1) * t.stride,
                             t.w + (r + 8 < t.rows ? r + 8 : t.rows - 1) * t.stride};
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            if constexpr (T::BLOCK == 256) {
                T::chunk_at(v.c[i][h], in, row[i], nb, b, (int)q + 4 * h);
            } else {
                const uint32_t k = 8 * b + q + 4 * h;
                T::chunk_at(v.c[i][h], in, row[i], nb, k < nb ? k : nb - 1, 0);
            }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            if constexpr (T::BLOCK == 256) {
                if (e == 0 || T::GROUP == 16)
                    v.s[i][e] = pair_at((const T *)0, in, row[i], nb, b, e, (int)q);
            } else {
                const uint32_t k = 8 * b + 2 * q + e;
                v.d[i][e] = T::scale_at(in, row[i], nb, k < nb ? k : nb - 1);
            }
    if constexpr (T::BLOCK == 256)
        v.d[0][0] = T::scale_at(in, q & 1 ? row[1] : row[0], nb, b);
}

template <class T>
DEVICE void sum_256(const struct item_words<T> &v, uint32_t b, const uint8_t *x, float *stage, uint32_t ld) {
    constexpr bool BY16 = T::GROUP == 16;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    x += (size_t)b * 304;
    int acc[2][4] =
        {}; /* column: of groups of 32, 2 (g % 4) + g / 4; of 16, a set for each h, q + 4 half */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t g = (uint32_t)(half ? v.c[0][h].g1 : v.c[0][h].g0);
            const uint32_t column = BY16 ? q + 4 * half : 2 * (g / 2 % 4) + g / 8;
            const uint32_t mask = column == r ? 0xffffffffu : 0; /* r: the column, as mma sees x */
            const uint4 z = *(const uint4 *)(x + 48 + 16 * g);
            const uint32_t *u = v.c[0][h].q + 4 * half, *l = v.c[1][h].q + 4 * half;
            mma_bytes(acc[BY16 ? h : 0], u[0], l[0], u[1], l[1], z.x & mask, z.y & mask);
            mma_bytes(acc[BY16 ? h : 1], u[2], l[2], u[3], l[3], z.z & mask, z.w & mask);
        }
    int isum[2] = {0, 0}, msum[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            if constexpr (BY16) {
                const int g = first_group((const T *)0, h, (int)q), m = x[4 + g / 2];
                const uint32_t sums = *(const uint32_t *)(x + 16 + 2 * g);
                const int z0 = (int16_t)sums, z1 = (int)sums >> 16;
                const struct pair_of_scales &p = v.s[i][h];
                isum[i] += m * (p.s0 * acc[h][2 * i] + p.s1 * acc[h][2 * i + 1]) -
                           T::OFFSET * (p.s0 * z0 + p.s1 * z1);
                msum[i] += p.n0 * z0 + p.n1 * z1;
            } else { /* h: group q, then q + 4 */
                const struct pair_of_scales &p = v.s[i][0];
                const uint32_t g = q + 4 * h, sums = *(const uint32_t *)(x + 16 + 4 * g);
                isum[i] += (h ? p.s1 : p.s0) * x[4 + g] * (acc[0][2 * i + h] + acc[1][2 * i + h]);
                msum[i] += (h ? p.n1 : p.n0) * ((int16_t)sums + ((int)sums >> 16));
            }
        }
    /* a quad has both rows' parts: even threads end with row r, odd ones with r + 8 */
    const bool odd = q & 1;
    int sum = (odd ? isum[1] : isum[0]) + __shfl_xor_sync(0xffffffffu, odd ? isum[0] : isum[1], 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    int min = 0;
    if (T::HAS_M) {
        min = (odd ? msum[1] : msum[0]) + __shfl_xor_sync(0xffffffffu, odd ? msum[0] : msum[1], 1);
        min += __shfl_xor_sync(0xffffffffu, min, 2);
    }
    const float dx = *(const float *)x;
    if (q < 2)
        *(float4 *)(stage + (r + 8 * q) * ld + 4 * b) =
            make_float4(v.d[0][0].x * dx, (float)sum, -(v.d[0][0].y * dx), (float)min);
}

/* Eight blocks of 32, 8 b and on; column: the block.  Two sums take turns; where halves have scales, each is one's. */
template <class T>
DEVICE void sum_32(const struct item_words<T> &v, uint32_t cols, uint32_t b, const uint8_t *x, float *stage,
                   uint32_t ld) {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint32_t own = 8 * b + 2 * q; /* this thread's results: blocks own and own + 1 */
    constexpr bool HALVES = terms_of<T>::HALVES;
    int acc[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t mask = q + 4 * h == r ? 0xffffffffu : 0;
        const uint4 *z = (const uint4 *)(x + 32 * (8 * b + q + 4 * h));
        const uint4 z0 = z[0], z1 = z[1];
        const uint32_t *u = v.c[0][h].q, *l = v.c[1][h].q;
        mma_bytes(acc[0], u[0], l[0], u[1], l[1], z0.x & mask, z0.y & mask);
        mma_bytes(acc[HALVES ? 0 : 1], u[2], l[2], u[3], l[3], z0.z & mask, z0.w & mask);
        mma_bytes(acc[HALVES ? 1 : 0], u[4], l[4], u[5], l[5], z1.x & mask, z1.y & mask);
        mma_bytes(acc[1], u[6], l[6], u[7], l[7], z1.z & mask, z1.w & mask);
    }
    const uint4 head = *(const uint4 *)(x + 32 * x_blocks(cols) + 8 * own); /* d, sum; d, sum */
    const float dx[2] = {lode_bits_f32(head.x), lode_bits_f32(head.z)};
    const int sum[2] = {(int)head.y, (int)head.w};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float *to = stage + (r + 8 * i) * ld;
        float first[2];
#pragma unroll
        for (int e = 0; e < 2; e++)
            first[e] = (float)(acc[0][2 * i + e] + (HALVES ? 0 : acc[1][2 * i + e]) - T::OFFSET * sum[e]);
        if (HALVES || T::HAS_M) {
#pragma unroll
            for (int e = 0; e < 2; e++)
                *(float4 *)(to + 4 * (own + e)) = make_float4(v.d[i][e].x * dx[e], first[e], v.d[i][e].y * dx[e],
                                                              HALVES ? (float)acc[1][2 * i + e] : (float)sum[e]);
        } else {
            *(float4 *)(to + 2 * own) =
                make_float4(v.d[i][0].x * dx[0], first[0], v.d[i][1].x * dx[1], first[1]);
        }
    }
}

struct work { /* an item and what it needs */
    struct tile t;
    uint32_t b;
    const uint8_t *x;
    float *stage;
};
template <class T, class R> DEVICE void item_by(const struct work &w, R &in, uint32_t cols, uint32_t ld) {
    struct item_words<T> v;
    read_item<T>(v, in, w.t, cols / T::BLOCK, w.b);
    if constexpr (T::BLOCK == 256)
        sum_256<T>(v, w.b, w.x, w.stage, ld);
    else
        sum_32<T>(v, cols, w.b, w.x, w.stage, ld);
}
template <class T> DEVICE void item(const struct work &w, uint32_t cols, uint32_t ld) {
    struct reads_now in;
    item_by<T>(w, in, cols, ld);
}
/* One, in two steps. */
template <class S> DEVICE void begin_item(struct kept_words &kept, const struct work &w, uint32_t cols) {
    S::with(w.t.type, [&](auto type) {
        typedef decltype(type) T;
        struct item_words<T> v;
        struct reads_to_keep in = {kept};
        read_item<T>(v, in, w.t, cols / T::BLOCK, w.b);
    });
}
template <class S>
DEVICE void end_item(const struct kept_words &kept, const struct work &w, uint32_t cols, uint32_t ld) {
    S::with(w.t.type, [&](auto type) {
        struct reads_kept in = {kept};
        item_by<decltype(type)>(w, in, cols, ld);
    });
}
/* u, and where `both` says so v, of the same type: then all their loads are on their way together. */
template <class S>
DEVICE void items(const struct work &u, const struct work &v, bool both, uint32_t cols, uint32_t ld) {
    S::with(u.t.type, [&](auto type) {
        typedef decltype(type) T;
        if (both) {
            item<T>(u, cols, ld);
            item<T>(v, cols, ld);
        } else {
            item<T>(u, cols, ld);
        }
    });
}

/* The definition's sum over a row of the stage, of which four blocks are read at a time.  twice: pairs of m come after
 * those of the scale (of blocks of 256 always those of a minimum, zeros where there is none). */
template <int BLOCK> DEVICE float add_up(const float *row, uint32_t nb, bool twice) {
    const float4 *p = (const float4 *)row;
    const bool both = BLOCK == 256 || twice; /* numbers of a block: four, or two */
    const uint32_t n = both ? nb : nb / 2;
    float acc = 0;
    uint32_t b = 0;
#pragma unroll 1
    for (; b + 4 <= n; b += 4) {
        const float4 v[4] = {p[b], p[b + 1], p[b + 2], p[b + 3]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            acc = fmaf(v[i].x, v[i].y, acc);
            acc = fmaf(v[i].z, v[i].w, acc);
        }
    }
#pragma unroll 1
    for (; b < n; b++) {
        const float4 v = p[b];
        acc = fmaf(v.x, v.y, acc);
        acc = fmaf(v.z, v.w, acc);
    }
    if (!both && nb % 2)
        acc = fmaf(p[n].x, p[n].y, acc);
    return acc;
}

/* ---- what comes after ---- */

/* Row r of a tile. */
DEVICE float biased(const struct tile &t, uint32_t r, float sum) { return t.bias ? sum + t.bias[r] : sum; }

/* Row r of a unit, whose tiles are t[..], from its rows' sums, sum(k) that of tile k. */
template <class F> DEVICE float join_row(const struct lode_cuda_gemv_args &a, const struct tile *t, uint32_t r, F sum) {
    float v = biased(t[0], r, sum(0));
    if (a.output == LODE_GEMV_GLU) {
        float up = biased(t[1], r, sum(1));
        if (a.n_used && a.weigh_input)
            v *= t[0].weight, up *= t[1].weight;
        v = short_glu_of(a.act, v, up);
    } else if (a.output == LODE_GEMV_SUM) {
        v = fmaf(a.weigh_input ? 1.0f : t[0].weight, v, 0.0f);
#pragma unroll 1
        for (uint32_t k = 1; k < a.per_unit; k++)
            v = fmaf(a.weigh_input ? 1.0f : t[k].weight, biased(t[k], r, sum(k)), v);
    }
    return v;
}

/* What is added to row r of a unit, of which t is the first tile. */
DEVICE float residual_of(const struct lode_cuda_gemv_args &a, const struct tile &t, uint32_t r) {
    return a.residual ? at<const float>(a.residual)[t.first + r] : 0.0f;
}
/* That row to where it goes; x: its residual. */
DEVICE void end_row(const struct lode_cuda_gemv_args &a, const struct tile &t, uint32_t r, float v, float x) {
    if (a.residual)
        v = with_residual(a, v, x);
    t.y[r] = v;
}

/* Parameters come from memory too, a line at a time, the first time that they are read: before they are
 * waited for. */
DEVICE void read_ahead(const struct lode_cuda_gemv_args &a) {
#pragma unroll
    for (uint32_t i = 0; i < sizeof a / 4; i += 16)
        asm volatile("" ::"r"(((const uint32_t *)&a)[i]));
}

/* ---- all of it ---- */

/* What the next product begins with, a part for each block of threads. */
DEVICE void fetch_next(const struct lode_cuda_gemv_args &a) {
    if (a.next_size && threadIdx.x == 0)
        fetch_ahead(at<const uint8_t>(a.next + (size_t)blockIdx.x * a.next_size), a.next_size);
}


template <class S> DEVICE void gemv(const struct lode_cuda_gemv_args &a) {
    constexpr int BLOCK = S::BLOCK;
    __shared__ struct tile tiles[LODE_GEMV_TILES];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *stage = row_mem, *sums = stage + a.phase * a.per_unit * TILE_ROWS * a.ld;
    uint8_t *x = (uint8_t *)row_mem + a.x_at;
    const uint32_t nb = a.cols / BLOCK, per_tile = BLOCK == 256 ? nb : (nb + 7) / 8; /* items */
    const uint32_t n_units = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x, n_tiles = n_units * a.per_unit;
    let_next_come();
    read_ahead(a);
    keep_norm(a);
    if (a.n_used) /* which experts, only the launch before knows */
        wait_for_last();
    if (threadIdx.x < n_tiles) {
        const uint32_t unit = blockIdx.x + threadIdx.x / a.per_unit * gridDim.x;
        const struct tile t = tile_at(a, unit, threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = t;
        if (threadIdx.x < a.ahead)
            fetch_ahead(t.w, t.rows * t.stride);
    }
    __syncthreads();
    auto work_of = [&](uint32_t first, uint32_t n, uint32_t b) { /* item b of tile n of the phase */
        struct work w;
        w.t = tiles[first + n];
        w.b = b;
        w.x = a.output == LODE_GEMV_SUM ? x + w.t.slot * x_size<BLOCK>(a.cols) : x;
        w.stage = stage + n * TILE_ROWS * a.ld;
        return w;
    };
    auto walk = [&](uint32_t &n, uint32_t &b) {
        for (; b >= per_tile; b -= per_tile)
            n++;
    };
    /* Where this warp's items do not come to pairs, the first of them comes while x is waited for. */
    const uint32_t n_items = (n_units < a.phase ? n_units : a.phase) * a.per_unit * per_tile;
    const bool odd = n_items > warp && ((n_items - warp - 1) / GEMV_WARPS) % 2 == 0;
    uint32_t n = 0, b = warp;
    struct kept_words kept;
    struct work head;
    if (odd) {
        walk(n, b);
        head = work_of(0, n, b);
        begin_item<S>(kept, head, a.cols);
        b += GEMV_WARPS;
    }
    if (!a.n_used)
        wait_for_last();
    float residual = 0; /* of this thread's row, while x is rounded */
    if (threadIdx.x < n_units * TILE_ROWS) {
        const struct tile &own = tiles[threadIdx.x / TILE_ROWS * a.per_unit];
        if (threadIdx.x % TILE_ROWS < own.rows)
            residual = residual_of(a, own, threadIdx.x % TILE_ROWS);
    }
    read_x<BLOCK>(a, x); /* ends with a barrier */
    if (odd)
        end_item<S>(kept, head, a.cols, a.ld);
#pragma unroll 1
    for (uint32_t unit = 0;;) {
        const uint32_t units = n_units - unit < a.phase ? n_units - unit : a.phase;
        const uint32_t first = unit * a.per_unit, some = units * a.per_unit;
        for (walk(n, b); n < some; walk(n, b)) {
            struct work w[2];
            bool both = false;
#pragma unroll
            for (int k = 0; k < 2; k++) {
                if (k)
                    walk(n, b);
                both = n < some;
                if (b == 0 && lane == 0 && both && first + n + a.ahead < n_tiles) {
                    const struct tile &f = tiles[first + n + a.ahead];
                    fetch_ahead(f.w, f.rows * f.stride);
                }
                w[k] = work_of(first, both ? n : 0, b);
                b += GEMV_WARPS;
            }
            const bool alike = w[0].t.type == w[1].t.type;
            items<S>(w[0], w[1], both && alike, a.cols, a.ld);
            if (both && !alike)
                items<S>(w[1], w[1], false, a.cols, a.ld);
        }
        if (unit + units == n_units)
            fetch_next(a);
        __syncthreads();
        auto sum_of = [&](uint32_t tile, uint32_t r) {
            return add_up<BLOCK>(stage + (tile * TILE_ROWS + r) * a.ld, nb, S::adds_twice(tiles[first + tile].type));
        };
        const bool many = a.per_unit > 2; /* sums first, a thread each */
        if (many) {
            for (uint32_t i = threadIdx.x; i < some * TILE_ROWS; i += GEMV_THREADS)
                sums[i] = sum_of(i / TILE_ROWS, i % TILE_ROWS);
            __syncthreads();
        }
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < units * TILE_ROWS; i += GEMV_THREADS) {
            const uint32_t u = i / TILE_ROWS * a.per_unit, r = i % TILE_ROWS;
            const struct tile *const t = &tiles[first + u];
            if (r >= t->rows)
                continue;
            const float v = join_row(a, t, r, [&](uint32_t k) {
                return many ? sums[(u + k) * TILE_ROWS + r] : sum_of(u + k, r);
            });
            end_row(a, *t, r, v, first == 0 && i == threadIdx.x ? residual : residual_of(a, *t, r));
        }
        unit += units;
        if (unit >= n_units)
            break;
        __syncthreads(); /* the stage is free again */
        n = 0, b = warp;
    }
}

/* A kernel of a list of types. */
#define GEMV(name, ...)                                                                            \
    extern "C" __global__ void __launch_bounds__(GEMV_THREADS, 1)                                        \
        gemv_##name(const __grid_constant__ struct lode_cuda_gemv_args a) {                        \
        gemv<struct types_of<__VA_ARGS__>>(a);                                                     \
    }
#endif
