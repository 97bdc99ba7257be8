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
 */
#ifndef LODE_CUDA_GEMV_CUH
#define LODE_CUDA_GEMV_CUH

#include "mma.cuh"
#include "rows.cuh"

enum {
    GEMV_THREADS = 512,
    GEMV_WARPS = GEMV_THREADS / 32,
    TILE_ROWS = LODE_GEMV_TILE,
    LODE_GEMV_TILES = 128, /* of a block of threads, at most: fuse.c */
};

/* ---- which weights ---- */

struct tile {
    const uint8_t *w;
    uint32_t stride, rows, type;
    uint32_t part, slot, first; /* slot: of the chosen experts; first: row of the part */
    float weight;               /* of the expert */
    int expert;
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
    t.expert = 0, t.weight = 1;
    if (a.n_used) {
        t.expert = at<const int>(a.route)[2 * t.slot];
        t.weight = at<const float>(a.route)[2 * t.slot + 1];
        t.w += t.expert * part.expert_size;
    }
    return t;
}

/* ---- x ---- */

/* x in shared memory.  A256: its blocks as they are.  A32: the numbers, then (d, sum) of each
 * block. */
DEVICE uint32_t x_blocks(uint32_t cols) { return (cols / 32 + 7) & ~7u; }
template <int BLOCK> DEVICE uint32_t x_size(uint32_t cols) {
    return BLOCK == 256 ? cols / 256 * 304 : x_blocks(cols) * 40;
}

/* n floats to row_mem, their loads on their way together. */
DEVICE void load_floats(const float *x, uint32_t n) {
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < n / 4; i += GEMV_THREADS)
        ((float4 *)row_mem)[i] = ((const float4 *)x)[i];
}
/* As many rows of x as there are, `stride` bytes apart. */
DEVICE void load_rows(const struct lode_cuda_gemv_args &a) {
    const uint32_t each = a.cols / 4;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < a.n_x * each; i += GEMV_THREADS)
        ((float4 *)row_mem)[i] = at<const float4>(a.x + i / each * a.x_stride)[i % each];
}

/* x into row_mem, and what its RMS norm divides by. */
DEVICE float norm_root(const float *x, float eps, uint32_t cols) {
    __shared__ float sum;
    load_floats(x, cols);
    const float dot = lanes_sum(cols, &sum, [](float v, float acc) { return fmaf(v, v, acc); });
    return sqrtf(dot / (float)cols + eps);
}
/* Numbers 4 i and on of row_mem, normed; w: NULL or the weights. */
DEVICE float4 normed(uint32_t i, float root, const float4 *w) {
    float4 v = ((const float4 *)row_mem)[i];
    v.x /= root, v.y /= root, v.z /= root, v.w /= root;
    if (w) {
        const float4 u = __ldg(w + i);
        v.x *= u.x, v.y *= u.y, v.z *= u.z, v.w *= u.w;
    }
    return v;
}
/* The RMS norm of x, in row_mem. */
DEVICE void load_normed(const struct lode_cuda_gemv_args &a) {
    const float root = norm_root(at<const float>(a.x), a.eps, a.cols);
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < a.cols / 4; i += GEMV_THREADS) {
        const float4 v = normed(i, root, at<const float4>(a.norm));
        ((float4 *)row_mem)[i] = v;
        if (a.x_out && blockIdx.x == 0)
            at<float4>(a.x_out)[i] = v;
    }
}
/* The norm's weights, on their way while the launch before still runs. */
DEVICE void fetch_norm(const struct lode_cuda_gemv_args &a) {
    if (a.input == LODE_GEMV_NORM && a.norm && threadIdx.x < a.cols / 32)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(a.norm + 128 * threadIdx.x));
}
/* What the next product begins with, a part for each block of threads. */
DEVICE void fetch_next(const struct lode_cuda_gemv_args &a) {
    if (a.next_size && threadIdx.x == 0)
        fetch_ahead(at<const uint8_t>(a.next + (size_t)blockIdx.x * a.next_size), a.next_size);
}

/* row_mem's floats, rounded.  Loops are kept short: every instruction comes from memory once a
 * launch. */
template <int BLOCK> DEVICE void round_floats(uint8_t *to, uint32_t cols, uint32_t n_x) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (BLOCK == 256) {
#pragma unroll 1
        for (uint32_t b = warp; b < cols / 256 * n_x; b += GEMV_WARPS) {
            const float4 u = *(const float4 *)(row_mem + b * 256 + 8 * lane);
            const float4 v = *(const float4 *)(row_mem + b * 256 + 8 * lane + 4);
            const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
            round_a256(to + (size_t)b * 304, x);
        }
    } else {
        const uint32_t each = cols / 32;
#pragma unroll 1
        for (uint32_t first = warp * 4; first < each * n_x; first += GEMV_WARPS * 4) {
            const uint32_t b = first + lane / 8, k = lane % 8;
            const bool here = b < each * n_x;
            const struct rounded r =
                round_a32(*(const float4 *)(row_mem + (here ? b : 0) * 32 + 4 * k));
            if (!here)
                continue;
            uint8_t *row = to + b / each * x_size<BLOCK>(cols);
            *(uint32_t *)(row + 32 * (b % each) + 4 * k) = r.q;
            if (k == 0)
                *(uint2 *)(row + 32 * x_blocks(cols) + 8 * (b % each)) =
                    make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
        }
    }
}

/* Rounded rows between global memory and x in shared memory. */
template <int BLOCK> DEVICE uint2 *word_of(uint8_t *x, uint32_t cols, uint32_t i) {
    if constexpr (BLOCK == 256)
        return (uint2 *)x + i;
    const uint32_t b = i / 5, k = i % 5;
    return (uint2 *)(k ? x + 32 * b + 8 * (k - 1) : x + 32 * x_blocks(cols) + 8 * b);
}
template <int BLOCK> DEVICE uint32_t n_words(uint32_t cols) {
    return BLOCK == 256 ? cols / 256 * 38 : cols / 32 * 5;
}

/* x to shared memory as the weights want it; row_mem is free again afterwards. */
template <int BLOCK> DEVICE void read_x(const struct lode_cuda_gemv_args &a, uint8_t *to) {
    if (a.input == LODE_GEMV_AS_IS) {
        for (uint32_t i = threadIdx.x; i < n_words<BLOCK>(a.cols); i += GEMV_THREADS)
            *word_of<BLOCK>(to, a.cols, i) = at<const uint2>(a.x)[i];
        __syncthreads();
        return;
    }
    if (a.input == LODE_GEMV_NORM)
        load_normed(a);
    else
        load_rows(a);
    __syncthreads();
    round_floats<BLOCK>(to, a.cols, a.n_x);
    __syncthreads();
    if (a.q_out && blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < n_words<BLOCK>(a.cols); i += GEMV_THREADS)
            at<uint2>(a.q_out)[i] = *word_of<BLOCK>(to, a.cols, i);
}

/* ---- an item: 16 rows by 256 numbers ---- */

template <class T> DEVICE void item_256(const struct tile &t, uint32_t nb, uint32_t b,
                                        const uint8_t *x, float *stage, uint32_t ld) {
    constexpr bool BY16 = T::GROUP == 16;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint8_t *row[2] = {t.w + (r < t.rows ? r : t.rows - 1) * t.stride,
                             t.w + (r + 8 < t.rows ? r + 8 : t.rows - 1) * t.stride};
    struct chunk c[2][2]; /* rows r and r + 8; chunks q and q + 4 */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            T::chunk_at(c[i][h], row[i], nb, b, (int)q + 4 * h);
    struct pair_of_scales s[2][BY16 ? 2 : 1];
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < (BY16 ? 2 : 1); h++)
            s[i][h] = pair_at((const T *)0, row[i], nb, b, h, (int)q);
    const float2 d = T::scale_at(q & 1 ? row[1] : row[0], nb, b);
    x += (size_t)b * 304;
    int acc[2][4] =
        {}; /* column: of groups of 32, 2 (g % 4) + g / 4; of 16, a set for each h, q + 4 half */
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t g = (uint32_t)(half ? c[0][h].g1 : c[0][h].g0);
            const uint32_t column = BY16 ? q + 4 * half : 2 * (g / 2 % 4) + g / 8;
            const uint32_t mask = column == r ? 0xffffffffu : 0; /* r: the column, as mma sees x */
            const uint4 v = *(const uint4 *)(x + 48 + 16 * g);
            const uint32_t *u = c[0][h].q + 4 * half, *l = c[1][h].q + 4 * half;
            mma_bytes(acc[BY16 ? h : 0], u[0], l[0], u[1], l[1], v.x & mask, v.y & mask);
            mma_bytes(acc[BY16 ? h : 1], u[2], l[2], u[3], l[3], v.z & mask, v.w & mask);
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
                const struct pair_of_scales &p = s[i][h];
                isum[i] += m * (p.s0 * acc[h][2 * i] + p.s1 * acc[h][2 * i + 1]) -
                           T::OFFSET * (p.s0 * z0 + p.s1 * z1);
                msum[i] += p.n0 * z0 + p.n1 * z1;
            } else { /* h: group q, then q + 4 */
                const struct pair_of_scales &p = s[i][0];
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
            make_float4(d.x * dx, (float)sum, -(d.y * dx), (float)min);
}

/* Eight blocks of 32, 8 b and on; column: the block. */
template <class T> DEVICE void item_32(const struct tile &t, uint32_t nb, uint32_t cols, uint32_t b,
                                       const uint8_t *x, float *stage, uint32_t ld) {
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint8_t *row[2] = {t.w + (r < t.rows ? r : t.rows - 1) * t.stride,
                             t.w + (r + 8 < t.rows ? r + 8 : t.rows - 1) * t.stride};
    struct chunk c[2][2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t k = 8 * b + q + 4 * h;
#pragma unroll
        for (int i = 0; i < 2; i++)
            T::chunk_at(c[i][h], row[i], nb, k < nb ? k : nb - 1, 0);
    }
    float2 d[2][2];
    const uint32_t own = 8 * b + 2 * q; /* this thread's results: blocks own and own + 1 */
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int e = 0; e < 2; e++)
            d[i][e] = T::scale_at(row[i], nb, own + e < nb ? own + e : nb - 1);
    int acc[2][4] = {};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const uint32_t mask = q + 4 * h == r ? 0xffffffffu : 0;
        const uint4 *v = (const uint4 *)(x + 32 * (8 * b + q + 4 * h));
        const uint4 v0 = v[0], v1 = v[1];
        const uint32_t *u = c[0][h].q, *l = c[1][h].q;
        mma_bytes(acc[0], u[0], l[0], u[1], l[1], v0.x & mask, v0.y & mask);
        mma_bytes(acc[1], u[2], l[2], u[3], l[3], v0.z & mask, v0.w & mask);
        mma_bytes(acc[0], u[4], l[4], u[5], l[5], v1.x & mask, v1.y & mask);
        mma_bytes(acc[1], u[6], l[6], u[7], l[7], v1.z & mask, v1.w & mask);
    }
    const uint4 head = *(const uint4 *)(x + 32 * x_blocks(cols) + 8 * own); /* d, sum; d, sum */
    const float dx[2] = {lode_bits_f32(head.x), lode_bits_f32(head.z)};
    const int sum[2] = {(int)head.y, (int)head.w};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float isum[2];
#pragma unroll
        for (int e = 0; e < 2; e++)
            isum[e] = (float)(acc[0][2 * i + e] + acc[1][2 * i + e] - T::OFFSET * sum[e]);
        float *to = stage + (r + 8 * i) * ld;
        if (T::HAS_M) {
#pragma unroll
            for (int e = 0; e < 2; e++)
                *(float4 *)(to + 4 * (own + e)) =
                    make_float4(d[i][e].x * dx[e], isum[e], d[i][e].y * dx[e], (float)sum[e]);
        } else {
            *(float4 *)(to + 2 * own) =
                make_float4(d[i][0].x * dx[0], isum[0], d[i][1].x * dx[1], isum[1]);
        }
    }
}

struct work { /* an item and what it needs */
    struct tile t;
    uint32_t b;
    const uint8_t *x;
    float *stage;
};
template <class T> DEVICE void item_of(const struct work &w, uint32_t cols, uint32_t ld) {
    if constexpr (T::BLOCK == 256)
        item_256<T>(w.t, cols / 256, w.b, w.x, w.stage, ld);
    else
        item_32<T>(w.t, cols / 32, cols, w.b, w.x, w.stage, ld);
}
/* u, and where `both` says so v, of the same type: then all their loads are on their way together.
 */
template <int BLOCK> DEVICE void items(const struct work &u, const struct work &v, bool both,
                                       uint32_t cols, uint32_t ld) {
    switch (u.t.type) {
#define ITEMS(name, dtype, block, ...)                                                             \
    case LODE_##dtype:                                                                             \
        if constexpr (BLOCK == block) {                                                            \
            if (both) {                                                                            \
                item_of<struct name>(u, cols, ld);                                                 \
                item_of<struct name>(v, cols, ld);                                                 \
            } else {                                                                               \
                item_of<struct name>(u, cols, ld);                                                 \
            }                                                                                      \
        }                                                                                          \
        break;
        LODE_CUDA_QUANT_LIST(ITEMS)
#undef ITEMS
    }
}

/* Whether pairs of a minimum (or m) come after those of the scale. */
DEVICE bool has_min(uint32_t type) {
    switch (type) {
#define HAS(name, dtype, block, ...)                                                               \
    case LODE_##dtype:                                                                             \
        return name::HAS_M;
        LODE_CUDA_QUANT_LIST(HAS)
#undef HAS
    default:
        return false;
    }
}

/* The definition's sum over a row of the stage. */
template <int BLOCK> DEVICE float add_up(const float *row, uint32_t nb, bool min) {
    const float4 *p = (const float4 *)row;
    float acc = 0;
    if (min) {
#pragma unroll 8
        for (uint32_t b = 0; b < nb; b++) {
            const float4 v = p[b];
            acc = fmaf(v.x, v.y, acc);
            acc = fmaf(v.z, v.w, acc);
        }
    } else if (BLOCK == 256) {
#pragma unroll 8
        for (uint32_t b = 0; b < nb; b++) {
            const float2 v = *(const float2 *)&p[b];
            acc = fmaf(v.x, v.y, acc);
        }
    } else {
#pragma unroll 8
        for (uint32_t b = 0; b + 1 < nb; b += 2) {
            const float4 v = p[b / 2];
            acc = fmaf(v.x, v.y, acc);
            acc = fmaf(v.z, v.w, acc);
        }
        if (nb % 2) {
            const float4 v = p[nb / 2];
            acc = fmaf(v.x, v.y, acc);
        }
    }
    return acc;
}

/* ---- what comes after ---- */

/* Row r of tile k of a unit: its sum, and what that makes of the result of the tiles before. */
DEVICE float join_tile(const struct lode_cuda_gemv_args &a, const struct tile &t, uint32_t k,
                       uint32_t r, float sum, float before) {
    const struct lode_cuda_gemv_part &p = a.parts[t.part];
    const float v =
        p.bias ? sum + at<const float>(p.bias)[(size_t)t.expert * p.rows + t.first + r] : sum;
    if (a.output == LODE_GEMV_SUM)
        return fmaf(a.weigh_input ? 1.0f : t.weight, v, k ? before : 0.0f);
    if (a.output != LODE_GEMV_GLU)
        return v;
    const float weighed = a.n_used && a.weigh_input ? v * t.weight : v;
    return k ? glu_of(a.act, before, weighed) : weighed;
}

/* Row r of a unit, of which t is the first tile, to where it goes. */
DEVICE void end_row(const struct lode_cuda_gemv_args &a, const struct tile &t, uint32_t r, float v) {
    const uint32_t i = t.first + r;
    if (a.residual) {
        const float x = at<const float>(a.residual)[i];
        v = a.scale == 1.0f ? x + v : a.product_first ? fmaf(a.scale, x, v) : fmaf(a.scale, v, x);
    }
    ((float *)(a.parts[t.part].y + t.slot * a.y_stride))[i] = v;
}

/* ---- all of it ---- */

template <int BLOCK> DEVICE void gemv(const struct lode_cuda_gemv_args &a) {
    __shared__ struct tile tiles[LODE_GEMV_TILES];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float *stage = row_mem, *sums = stage + a.phase * a.per_unit * TILE_ROWS * a.ld;
    uint8_t *x = (uint8_t *)row_mem + a.x_at;
    const uint32_t nb = a.cols / BLOCK, per_tile = BLOCK == 256 ? nb : (nb + 7) / 8; /* items */
    const uint32_t n_tiles = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x * a.per_unit;
    let_next_come();
    fetch_norm(a);
    if (a.n_used) /* which experts, only the launch before knows */
        wait_for_last();
    if (threadIdx.x < n_tiles) {
        const uint32_t unit = blockIdx.x + threadIdx.x / a.per_unit * gridDim.x;
        const struct tile t = tile_at(a, unit, threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = t;
        if (threadIdx.x < a.ahead)
            fetch_ahead(t.w, t.rows * t.stride);
    }
    if (!a.n_used)
        wait_for_last();
    read_x<BLOCK>(a, x); /* ends with a barrier */
    for (uint32_t first = 0; first < n_tiles; first += a.phase * a.per_unit) {
        const uint32_t most = a.phase * a.per_unit,
                       some = n_tiles - first < most ? n_tiles - first : most;
        uint32_t n = 0, b = warp;
#pragma unroll 1
        for (;;) {
            struct work w[2];
            bool here[2];
#pragma unroll
            for (int k = 0; k < 2; k++, b += GEMV_WARPS) {
                for (; b >= per_tile; b -= per_tile)
                    n++;
                here[k] = n < some;
                if (b == 0 && lane == 0 && here[k] && first + n + a.ahead < n_tiles) {
                    const struct tile &f = tiles[first + n + a.ahead];
                    fetch_ahead(f.w, f.rows * f.stride);
                }
                w[k].t = tiles[here[k] ? first + n : first];
                w[k].b = b;
                w[k].x = a.output == LODE_GEMV_SUM ? x + w[k].t.slot * x_size<BLOCK>(a.cols) : x;
                w[k].stage = stage + n * TILE_ROWS * a.ld;
            }
            if (!here[0])
                break;
            const bool alike = w[0].t.type == w[1].t.type;
            items<BLOCK>(w[0], w[1], here[1] && alike, a.cols, a.ld);
            if (here[1] && !alike)
                items<BLOCK>(w[1], w[1], false, a.cols, a.ld);
        }
        if (first + some == n_tiles)
            fetch_next(a);
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < some * TILE_ROWS; i += GEMV_THREADS)
            sums[i] =
                add_up<BLOCK>(stage + i * a.ld, nb, has_min(tiles[first + i / TILE_ROWS].type));
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < some / a.per_unit * TILE_ROWS; i += GEMV_THREADS) {
            const uint32_t u = i / TILE_ROWS * a.per_unit, r = i % TILE_ROWS;
            const struct tile *const t = &tiles[first + u];
            if (r >= t->rows)
                continue;
            float v = 0;
            for (uint32_t k = 0; k < a.per_unit; k++)
                v = join_tile(a, t[k], k, r, sums[(u + k) * TILE_ROWS + r], v);
            end_row(a, *t, r, v);
        }
    }
}

#endif
