/* gemm_fast.cu - products of many rows with 16-bit weights in --numerics tensor (fast.cuh).
 *
 * A block of threads has 128 rows of w by 128 of x, which comes rounded, in panels (fast_x).
 *
 * Hopper: one thread copies stages of 64 numbers of K, a warpgroup has 64 rows of w.  The sums of a slice are
 * added to a result while the next slice's begin, in accumulators of their own.  Where gate and up are multiplied with
 * each other, one warpgroup has 64 rows of gate and the other the same of up, and each gives the other half of them in the end.  Two by two blocks are a
 * cluster: each loads a half of its tiles of w and of x and gives it to the block beside it too, or the
 * second cache could not feed the tensor cores (64 bytes a cycle instead of 32).
 *
 * Others: eight warps, 32 rows of w by 64 of x each, two stages. */
#include "fast.cuh"
#include "wide_store.cuh"
#include "gemm.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

#if __CUDA_ARCH__ >= 800

enum { TILE = LODE_FAST_TILE, STEP = 64, PANEL = LODE_FAST_PANEL, SLICE_STEPS = LODE_FAST_SLICE / STEP };

struct fast_job {
    const uint8_t *w, *x;
    const float *bias, *factors; /* factors: of the tile's rows of x */
    uint8_t *y;                  /* of the first rows of both */
    unsigned long long w_stride, y_stride;
    uint32_t part, first, w_rows, x_rows; /* first: row of w; rows: that there are */
    uint32_t first_x;
    uint32_t cols, steps;
};
/* The tiles of this block; beyond the last the last again, of which nothing is stored. */
DEVICE struct fast_job fast_job_of(const struct lode_cuda_fast_args &f) {
    const struct lode_cuda_gemm_args &a = f.g;
    struct fast_job j;
    const uint32_t w_tile = min(blockIdx.y, f.w_tiles - 1), x_tile = min(blockIdx.x, f.x_tiles - 1);
    const bool none = w_tile != blockIdx.y || x_tile != blockIdx.x;
    const uint32_t rows = f.end.output == LODE_GEMV_GLU ? TILE / 2 : TILE;
    uint32_t p = 0;
    while (rows == TILE && p + 1 < a.n_parts && w_tile >= a.parts[p + 1].first_tile)
        p++;
    const struct lode_cuda_part &part = a.parts[p];
    j.part = p;
    j.first = (w_tile - part.first_tile) * rows;
    j.first_x = x_tile * TILE;
    j.w = at<const uint8_t>(part.w) + (size_t)j.first * part.w_stride;
    j.w_stride = part.w_stride, j.y_stride = part.y_stride;
    j.bias = part.bias ? at<const float>(part.bias) + j.first : NULL;
    j.y = at<uint8_t>(part.y) + (size_t)x_tile * TILE * part.y_stride + j.first * sizeof(float);
    j.w_rows = none ? 0 : min(part.rows - j.first, rows);
    j.x_rows = none ? 0 : min(a.n_x - x_tile * TILE, (uint32_t)TILE);
    j.cols = a.cols;
    j.steps = (a.cols + STEP - 1) / STEP;
    j.x = row_at<const uint8_t>(a.x, x_tile);
    j.factors = (const float *)(j.x + (size_t)j.steps * PANEL);
    return j;
}
DEVICE void put_result(const struct fast_job &j, uint32_t w, uint32_t x, float v) {
    if (w >= j.w_rows || x >= j.x_rows)
        return;
    v *= j.factors[x];
    ((float *)(j.y + x * j.y_stride))[w] = j.bias ? v + j.bias[w] : v;
}

/* ---- x ---- */

/* Eight numbers, 8 piece and on, of row r, to where they go. */
DEVICE uint8_t *panel_of(const struct lode_cuda_fast_x_args &a, uint32_t r, uint32_t piece) {
    return at<uint8_t>(a.y) + r / TILE * a.tile_size + (size_t)(piece / 8) * PANEL;
}
DEVICE void put_in_panels(const struct lode_cuda_fast_x_args &a, uint32_t r, uint32_t piece, uint4 v) {
    *(uint4 *)(panel_of(a, r, piece) + in_panel(r % TILE, piece % 8)) = v;
}
DEVICE void put_in_pieces(const struct lode_cuda_fast_x_args &a, uint32_t r, uint32_t piece, uint4 v) {
    uint2 *to = at<uint2>(a.y) + ((size_t)(piece / 2) * a.groups + r / 8) * 32 + r % 8 * 4;
    if (a.paired) {
        uint32_t *half = (uint32_t *)to + piece % 2;
        half[0] = v.x, half[2] = v.y, half[4] = v.z, half[6] = v.w;
        return;
    }
    to += piece % 2 * 2;
    to[0] = make_uint2(v.x, v.y);
    to[1] = make_uint2(v.z, v.w);
}
/* For packed weights (fast_items.cuh): of each sixteen those at even places, v.x and v.z, before the others. */
DEVICE void put_split_in_panels(const struct lode_cuda_fast_x_args &a, uint32_t r, uint32_t piece, uint4 v) {
    uint8_t *panel = panel_of(a, r, piece) + piece % 2 * 8;
    *(uint2 *)(panel + in_panel(r % TILE, piece % 8 & 6)) = make_uint2(v.x, v.z);
    *(uint2 *)(panel + in_panel(r % TILE, piece % 8 | 1)) = make_uint2(v.y, v.w);
}
/* Two steps of 16 numbers side by side; groups 0: of the only row. */
DEVICE void put_split_in_pieces(const struct lode_cuda_fast_x_args &a, uint32_t r, uint32_t piece, uint4 v) {
    const uint32_t k = piece / 2, lane = piece % 2 * 2, lanes = a.groups ? 32 * a.groups : 4;
    uint2 *to = at<uint2>(a.y) + (size_t)(k / 2) * lanes * 2 + (r / 8 * 32 + r % 8 * 4 + lane) * 2 + k % 2;
    to[0] = make_uint2(v.x, v.y);
    to[2] = make_uint2(v.z, v.w);
}

/* A block of threads a row.  SPLIT: in the order of packed weights. */
template <class T, bool FEW, bool SPLIT> DEVICE void fast_x(const struct lode_cuda_fast_x_args &a) {
    const uint32_t r = blockIdx.x, t = threadIdx.x, unit = FEW ? 2 : 8, pieces = (a.cols / 8 + unit - 1) / unit * unit;
    const bool norms = a.input == LODE_GEMV_NORM;
    begin();
    const float *x = row_at<const float>(a.x, r);
    const struct divisor root = norms ? norm_root(x, a.eps, a.cols) : divisor_of(1);
    auto numbers = [&](uint32_t i) {
        return norms ? normed(i, root, at<const float4>(a.norm)) : ((const float4 *)x)[i];
    };
    float2 factors = make_float2(1, 1);
    if (T::SCALED) {
        uint32_t most = 0;
        for (uint32_t i = t; i < a.cols / 4; i += GEMV_THREADS)
            most = most_of(numbers(i), most);
        factors = factors_of<T>(block_max(most));
    }
    for (uint32_t i = t; i < pieces; i += GEMV_THREADS) {
        uint4 v = make_uint4(0, 0, 0, 0);
        if (i < a.cols / 8) {
            const float4 b = numbers(2 * i), c = numbers(2 * i + 1);
            if (a.x_out.data)
                row_at<float4>(a.x_out, r)[2 * i] = b, row_at<float4>(a.x_out, r)[2 * i + 1] = c;
            v = SPLIT ? make_uint4(pair_16<T>(b.x, b.z, factors.x), pair_16<T>(b.y, b.w, factors.x),
                                   pair_16<T>(c.x, c.z, factors.x), pair_16<T>(c.y, c.w, factors.x))
                      : make_uint4(pair_16<T>(b.x, b.y, factors.x), pair_16<T>(b.z, b.w, factors.x),
                                   pair_16<T>(c.x, c.y, factors.x), pair_16<T>(c.z, c.w, factors.x));
        }
        if (FEW)
            SPLIT ? put_split_in_pieces(a, r, i, v) : put_in_pieces(a, r, i, v);
        else
            SPLIT ? put_split_in_panels(a, r, i, v) : put_in_panels(a, r, i, v);
    }
    if (t == 0 && FEW)
        at<float>(a.y + (size_t)(pieces / 2) * (a.groups ? a.groups * 256 : 32))[r] = factors.y;
    else if (t == 0)
        at<float>(a.y + r / TILE * a.tile_size + (size_t)(pieces / 8) * PANEL)[r % TILE] = factors.y;
}

/* ---- Hopper ---- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { STAGES = 6, SIDE_X = LODE_FAST_CLUSTER_X, SIDE_W = LODE_FAST_CLUSTER_W, BLOCKS = SIDE_X * SIDE_W };

struct __align__(1024) fast_mem {
    uint8_t w[STAGES][PANEL], x[STAGES][PANEL];
    uint64_t full[STAGES], empty[STAGES];
};

/* Blocks of a cluster: rank = x + SIDE_X w. */
struct seat_in_cluster {
    uint32_t x, w;
};
DEVICE struct seat_in_cluster cluster_seat() {
    const uint32_t rank = cluster_rank();
    return {rank % SIDE_X, rank / SIDE_X};
}

DEVICE void copy_all(struct fast_mem *m, const struct lode_cuda_fast_args &f, const struct fast_job &j) {
    const struct seat_in_cluster at = cluster_seat();
    uint16_t same_w = 0, same_x = 0; /* blocks that want the same tile of w, of x */
    for (uint32_t i = 0; i < SIDE_X; i++)
        same_w |= 1 << (i + SIDE_X * at.w);
    for (uint32_t i = 0; i < SIDE_W; i++)
        same_x |= 1 << (at.x + SIDE_X * i);
    const uint32_t x_part = at.w * (PANEL / SIDE_W);
    const bool two = f.end.output == LODE_GEMV_GLU; /* parts, half the rows of each */
    uint32_t slot = 0, parity = 1;
    for (uint32_t s = 0; s < j.steps; s++) {
        uint64_t *full = &m->full[slot];
        barrier_wait(&m->empty[slot], parity);
        barrier_arrive_expect(full, 2 * PANEL);
        for (uint32_t half = at.x; half < 2; half += SIDE_X)
            bulk_panel_to<SIDE_X != 1>(m->w[slot] + half * (PANEL / 2), &f.maps[j.part + (two ? half : 0)], s * STEP,
                                       j.first + (two ? 0 : half * (TILE / 2)), full, same_w);
        bulk_copy_to<SIDE_W != 1>(m->x[slot] + x_part, j.x + (size_t)s * PANEL + x_part, PANEL / SIDE_W, full, same_x);
        if (++slot == STAGES)
            slot = 0, parity ^= 1;
    }
}

template <class T> DEVICE void fast_wgmma(float (&d)[64], uint64_t w, uint64_t x, int add);
template <> __device__ __forceinline__ void fast_wgmma<f16>(float (&d)[64], uint64_t w, uint64_t x, int add) {
    wgmma_f16(d, w, x, add);
}
template <> __device__ __forceinline__ void fast_wgmma<bf16>(float (&d)[64], uint64_t w, uint64_t x, int add) {
    wgmma_bf16(d, w, x, add);
}

/* A warpgroup's way through the stages. */
struct ring {
    struct fast_mem *m;
    uint32_t slot, parity, last; /* last: the slot before */
    uint32_t half, dest;         /* dest: the block that this thread tells, or none */
};
/* Begins the products of step s. */
template <class T>
DEVICE void begin_step(struct ring &r, const struct fast_job &j, uint32_t s, bool first, float (&d)[64]) {
    const uint32_t left = (j.cols - s * STEP + 15) / 16;
    barrier_wait(&r.m->full[r.slot], r.parity);
    const uint64_t w = panel_at(r.m->w[r.slot] + r.half * (PANEL / 2)), x = panel_at(r.m->x[r.slot]);
    if (left >= 4) {
        wgmma_begin();
        fast_wgmma<T>(d, w, x, !first);
#pragma unroll
        for (uint32_t k = 1; k < 4; k++)
            fast_wgmma<T>(d, w + k * PANEL_STEP, x + k * PANEL_STEP, 1);
        wgmma_end();
    } else { /* the end of the rows */
#pragma unroll 1
        for (uint32_t k = 0; k < left; k++) {
            wgmma_begin();
            fast_wgmma<T>(d, w + k * PANEL_STEP, x + k * PANEL_STEP, k || !first);
            wgmma_end();
        }
        wgmma_wait<0>();
    }
    r.last = r.slot;
    if (++r.slot == STAGES)
        r.slot = 0, r.parity ^= 1;
}
/* A slot's products have been made: whoever fills it is told. */
DEVICE void release(const struct ring &r, uint32_t slot) {
    __syncwarp();
    if (r.dest < BLOCKS)
        barrier_arrive_at(&r.m->empty[slot], r.dest);
}
/* A slice from step s on into d, while the slice before, in e, ends and is added up. */
template <class T>
DEVICE void slice(struct ring &r, const struct fast_job &j, uint32_t s, float (&d)[64], float (&e)[64],
                  float (&acc)[64]) {
    const uint32_t end = min(s + SLICE_STEPS, j.steps);
    uint32_t before = r.last;
    begin_step<T>(r, j, s, true, d);
    wgmma_wait<1>(e);
    if (s)
        release(r, before);
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i] += e[i];
#pragma unroll 1
    for (s++; s < end; s++) {
        before = r.last;
        begin_step<T>(r, j, s, false, d);
        wgmma_wait<1>();
        release(r, before);
    }
}
/* The rows of gate and up that both warpgroups have, multiplied: each gives the other its half of columns. */
DEVICE void gate(struct fast_mem *m, uint32_t act, const float (&v)[64], float (&y)[32]) {
    const uint32_t t = threadIdx.x - 128, half = t / 128;
    float gates[32], ups[32], *stage = (float *)m; /* (half, 32, 128); all that came has been multiplied by both */
    static_assert(2 * 32 * 128 * sizeof(float) <= sizeof m->w, "room");
    asm volatile("bar.sync 1, 256;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 32; i++)
        stage[(half * 32 + i) * 128 + t % 128] = half ? v[i] : v[32 + i];
    asm volatile("bar.sync 1, 256;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const float own = half ? v[32 + i] : v[i], other = stage[((1 - half) * 32 + i) * 128 + t % 128];
        gates[i] = half ? other : own;
        ups[i] = half ? own : other;
    }
    if (act == LODE_GLU_SILU) /* by itself, or all of them are code that nearly every model runs over */
#pragma unroll
        for (int i = 0; i < 32; i++)
            y[i] = glu_of(LODE_GLU_SILU, gates[i], ups[i]);
    else
#pragma unroll
        for (int i = 0; i < 32; i++)
            y[i] = glu_of(act, gates[i], ups[i]);
}
/* The gated products that a warpgroup has, as fast_x would leave them: their 64 rows of w are a panel of the next
 * product's x. */
DEVICE void put_rounded(const struct lode_cuda_fast_args &f, const struct fast_job &j, const float (&y)[32], uint32_t row) {
    const uint32_t t = threadIdx.x - 128, half = t / 128;
    uint8_t *tile = rounded_tile(f.end.tiles, j.first_x / TILE);
    uint8_t *panel = tile + (size_t)(j.first / STEP) * PANEL;
    float *factors = (float *)(tile + f.end.tiles.size) - TILE;
    static_assert(TILE / 2 == STEP, "a panel a tile");
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 two = exchanged(y[2 * i], y[2 * i + 1], row);
        const uint32_t x = half * 64 + i / 2 * 8 + t % 4 * 2 + (row & 1);
        if (x < j.x_rows)
            *(uint32_t *)(panel + in_panel(x, row / 8 + i % 2) + row % 8 / 2 * 4) = pair_16<bf16>(two.x, two.y, 1);
    }
    if (j.first == 0 && t % 128 < 64 && half * 64 + t % 128 < j.x_rows)
        factors[half * 64 + t % 128] = 1;
}
/* A warpgroup's results to where they go. */
template <class T>
DEVICE void put_all(struct fast_mem *m, const struct lode_cuda_fast_args &f, const struct fast_job &j, float (&acc)[64]) {
    const uint32_t t = threadIdx.x - 128, half = t / 128, in_half = t % 128 / 32 * 16 + t % 32 / 4;
    struct results_place p = {j.y, NULL, j.y_stride, f.end.residual_stride, j.w_rows, j.x_rows};
    if (f.end.output == LODE_GEMV_GLU) {
        float y[32];
        const lode_dev bias = f.g.parts[half].bias;
        finish_results<128>(acc, j.factors, bias ? at<const float>(bias) + j.first : NULL, in_half, j.w_rows);
        gate(m, f.end.act, acc, y);
        if (!T::SCALED && f.end.tiles.kind != LODE_TILES_NONE) {
            put_rounded(f, j, y, in_half);
            return;
        }
        p.y += half * 64 * p.y_stride;
        p.x_rows = p.x_rows > half * 64 ? p.x_rows - half * 64 : 0;
        store_results<64>(p, f.end, y, in_half);
        return;
    }
    if (f.end.output == LODE_GEMV_ADD)
        p.residual = at<const uint8_t>(f.end.residual) + (size_t)j.first_x * p.residual_stride + j.first * sizeof(float);
    finish_results<128>(acc, j.factors, j.bias, half * 64 + in_half, j.w_rows);
    store_results<128>(p, f.end, acc, half * 64 + in_half);
}
template <class T>
DEVICE void multiply_all(struct fast_mem *m, const struct lode_cuda_fast_args &f, const struct fast_job &j) {
    const uint32_t t = threadIdx.x - 128, lane = t % 32;
    const struct seat_in_cluster at = cluster_seat();
    struct ring r = {m, 0, 0, 0, t / 128, BLOCKS};
    if (lane < SIDE_X) /* those of its tile of w, itself one of them; then of its tile of x */
        r.dest = lane + SIDE_X * at.w;
    else if (lane < SIDE_X + SIDE_W && lane - SIDE_X != at.w)
        r.dest = at.x + SIDE_X * (lane - SIDE_X);
    float acc[64], d[64], e[64];
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i] = e[i] = 0;
    uint32_t s = 0;
#pragma unroll 1
    for (;;) {
        slice<T>(r, j, s, d, e, acc);
        s += SLICE_STEPS;
        if (s >= j.steps) {
            wgmma_wait<0>(d);
#pragma unroll
            for (int i = 0; i < 64; i++)
                acc[i] += d[i];
            break;
        }
        slice<T>(r, j, s, e, d, acc);
        s += SLICE_STEPS;
        if (s >= j.steps) {
            wgmma_wait<0>(e);
#pragma unroll
            for (int i = 0; i < 64; i++)
                acc[i] += e[i];
            break;
        }
    }
    put_all<T>(m, f, j, acc);
}

template <class T> DEVICE void wide_fast(const struct lode_cuda_fast_args &f) {
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    struct fast_mem *m = (struct fast_mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + 1024 <= LODE_FAST_SHARED, "products_shared.h");
    begin();
    const struct fast_job j = fast_job_of(f);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&m->full[i], 1);
            barrier_init(&m->empty[i], 8 * (SIDE_X + SIDE_W - 1)); /* warps of all blocks that it gives to */
        }
        barriers_made();
    }
    cluster_sync();
    if (threadIdx.x < 128) {
        keep_registers<40>();
        if (threadIdx.x == 0)
            copy_all(m, f, j);
    } else {
        take_registers<232>();
        multiply_all<T>(m, f, j);
    }
    cluster_sync(); /* nobody leaves while others still give to it */
}

#define WIDE_FAST(name)                                                                            \
    extern "C" __global__ void __cluster_dims__(SIDE_X, SIDE_W, 1)                                     \
        __launch_bounds__(LODE_FAST_THREADS, 1)                                                    \
            wide_fast_##name(const __grid_constant__ struct lode_cuda_fast_args f) {               \
        wide_fast<struct name>(f);                                                                 \
    }
WIDE_FAST(f16)
WIDE_FAST(bf16)

#endif

/* ---- others ---- */

struct tile_mem {
    uint8_t w[2][PANEL], x[2][PANEL];
};
DEVICE void copy_step(struct tile_mem *m, const struct fast_job &j, uint32_t s) {
    const uint32_t piece = threadIdx.x % 8;
    const bool there = s * STEP + piece * 8 < j.cols;
    for (uint32_t i = threadIdx.x / 8; i < TILE; i += 32) {
        const uint8_t *row = j.w + min(i, j.w_rows - 1) * j.w_stride;
        copy_16_or_zero(m->w[s % 2] + in_panel(i, piece), there ? row + (s * STEP + piece * 8) * 2 : row, there);
        copy_16_or_zero(m->x[s % 2] + (i * 8 + piece) * 16, j.x + (size_t)s * PANEL + (i * 8 + piece) * 16, true);
    }
}
DEVICE uint2 four_of(const uint8_t *panel, uint32_t r, uint32_t k, uint32_t q) {
    return *(const uint2 *)(panel + in_panel(r, 2 * k + q / 2) + q % 2 * 8);
}

template <class T> DEVICE void tile_fast(const struct lode_cuda_fast_args &f) {
    extern __shared__ __align__(1024) uint8_t tile_bytes[];
    struct tile_mem *m = (struct tile_mem *)(tile_bytes + (-shared_address(tile_bytes) & 127));
    static_assert(sizeof *m + 128 <= LODE_FAST_TILE_SHARED, "products_shared.h");
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const uint32_t w0 = warp % 4 * 32, x0 = warp / 4 * 64;
    float acc[2][8][4], d[2][8][4];
    begin();
    const struct fast_job j = fast_job_of(f);
#pragma unroll
    for (int i = 0; i < 64; i++)
        acc[i / 32][i / 4 % 8][i % 4] = 0;
    copy_step(m, j, 0);
    copies_end_group();
#pragma unroll 1
    for (uint32_t s = 0; s < j.steps; s++) {
        if (s + 1 < j.steps)
            copy_step(m, j, s + 1);
        copies_end_group();
        copies_wait<1>();
        __syncthreads();
        if (s % SLICE_STEPS == 0)
#pragma unroll
            for (int i = 0; i < 64; i++)
                d[i / 32][i / 4 % 8][i % 4] = 0;
        const uint32_t left = (j.cols - s * STEP + 15) / 16;
#pragma unroll 1
        for (uint32_t k = 0; k < 4 && k < left; k++) {
            uint2 w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = four_of(m->w[s % 2], w0 + 8 * i + r, k, q);
#pragma unroll
            for (int n = 0; n < 8; n++) {
                const uint2 x = four_of(m->x[s % 2], x0 + 8 * n + r, k, q);
                mma_fast<T>(d[0][n], w[0], w[1], x);
                mma_fast<T>(d[1][n], w[2], w[3], x);
            }
        }
        if (s % SLICE_STEPS == SLICE_STEPS - 1 || s + 1 == j.steps)
#pragma unroll
            for (int i = 0; i < 64; i++)
                acc[i / 32][i / 4 % 8][i % 4] += d[i / 32][i / 4 % 8][i % 4];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 64; i++)
        put_result(j, w0 + i / 32 * 16 + r + i % 4 / 2 * 8, x0 + i / 4 % 8 * 8 + 2 * q + i % 2,
                   acc[i / 32][i / 4 % 8][i % 4]);
}

#define TILE_FAST(name)                                                                            \
    KERNEL(256) tile_fast_##name(const __grid_constant__ struct lode_cuda_fast_args f) {           \
        tile_fast<struct name>(f);                                                                 \
    }
TILE_FAST(f16)
TILE_FAST(bf16)
#define FAST_X(name, type, split)                                                                  \
    KERNEL(GEMV_THREADS) fast_x_##name(const __grid_constant__ struct lode_cuda_fast_x_args a) {   \
        fast_x<struct type, false, split>(a);                                                      \
    }                                                                                              \
    KERNEL(GEMV_THREADS) few_fast_x_##name(const __grid_constant__ struct lode_cuda_fast_x_args a) { \
        fast_x<struct type, true, split>(a);                                                       \
    }
FAST_X(f16, f16, false)
FAST_X(bf16, bf16, false)
FAST_X(packed, f16, true)

#endif
