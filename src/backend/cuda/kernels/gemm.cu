/* gemm.cu - products of many rows on the integer tensor cores, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads computes TILE_W rows of w by TILE_X rows of x, 256 numbers of K at a time, a
 * warp 32 by 32 of them.  Codes of both lie in shared memory as signed bytes; an mma gives the
 * exact dot products of 16 or 32 of them, which the scales, being integers, turn into a block's
 * exact sum; one fused multiply-add a block then follows in ascending order, in registers: the
 * definition's own sequence.  Minima meet the sums of x in an mma of their own, the sums cut into
 * two bytes.  Results depend on no tile.
 *
 * Experts: group_pairs sorts the (row, place) pairs by expert and lists tiles of pairs of one
 * expert, so that a matrix is read once for all rows that chose it.
 */
#include "mma.cuh"
#include "gemm.cuh"
#include "codebook.cuh"
#include "parts.cuh"

enum {
    TILE_W = LODE_GEMM_TILE_W,
    TILE_X = LODE_GEMM_TILE_X,
    GEMM_THREADS = 256,
    STEP = 256,     /* numbers of K at a time */
    LD = STEP + 16, /* bytes of a row of codes: 16 more keep the banks apart */
};

struct __align__(16) gemm_stage {
    uint8_t w[TILE_W][LD], x[TILE_X][LD];
    union {
        struct {               /* blocks of 256 */
            int s[16][TILE_W]; /* of groups of 16, or (the first 8) of 32 */
            float2 d[TILE_W];  /* d and minimum */
            uint8_t n[TILE_W][16], low[TILE_X][16];
            int8_t high[TILE_X][16]; /* the sums of x: 256 high + low */
            float dx[TILE_X];
            int m[8][TILE_X];
        } k;
        struct {                  /* blocks of 32 */
            float2 d[8][TILE_W];  /* d and m */
            float2 dx[8][TILE_X]; /* d and the sum of codes */
        } b;
    };
};

static_assert(sizeof(struct gemm_stage) <= 70 << 10, "cuda.h's LODE_CUDA_GEMM_SHARED");

/* Four 8 x 16-byte matrices; lane l gives the address of row l % 8 of matrix l / 8. */
DEVICE void load_matrices(uint32_t v[4], const uint8_t *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared_address(p)));
}
DEVICE uint32_t word(const void *p) { return *(const uint32_t *)p; }

/* Four codes less their type's offset. */
template <class T> DEVICE uint32_t centred(uint32_t q) {
    const uint32_t top = 0x80808080u;
    return T::OFFSET ? ((q | top) - T::OFFSET * 0x01010101u) ^ top : q;
}

template <class T> DEVICE void fill_w(struct gemm_stage *s, const struct gemm_job &job,
                                      uint32_t w_stride, uint32_t step, uint32_t nb) {
#pragma unroll 2
    for (uint32_t i = threadIdx.x; i < TILE_W * 8; i += GEMM_THREADS) {
        const uint32_t r = i / 8, j = i % 8;
        const uint8_t *row = job.w + (size_t)(r < job.w_rows ? r : job.w_rows - 1) * w_stride;
        const uint32_t b = T::BLOCK == 256 ? step : step * 8 + j;
        struct chunk c;
        if (b >= nb) { /* K ends within the step; nobody looks at these */
            s->b.d[j][r] = make_float2(0, 0);
            continue;
        }
        T::chunk_at(c, row, nb, b, (int)j);
        const uint32_t at = T::BLOCK == 256 ? 0 : 32 * j;
#pragma unroll
        for (int k = 0; k < 8; k++)
            c.q[k] = centred<T>(c.q[k]);
        *(uint4 *)&s->w[r][at + 16 * c.g0] = make_uint4(c.q[0], c.q[1], c.q[2], c.q[3]);
        *(uint4 *)&s->w[r][at + 16 * c.g1] = make_uint4(c.q[4], c.q[5], c.q[6], c.q[7]);
        if constexpr (T::BLOCK == 256) {
            const int per = T::GROUP / 16;
            s->k.s[c.g0 / per][r] = c.s0, s->k.s[c.g1 / per][r] = c.s1;
            if (T::HAS_M)
                s->k.n[r][c.g0] = (uint8_t)c.n0, s->k.n[r][c.g1] = (uint8_t)c.n1;
            if (j == 0)
                s->k.d[r] = T::scale_at(row, nb, b);
        } else {
            s->b.d[j][r] = T::scale_at(row, nb, b);
        }
    }
}

template <class T> DEVICE void fill_x(struct gemm_stage *s, const struct lode_cuda_mat &x,
                                      const struct gemm_job &job, uint32_t step, uint32_t nb) {
#pragma unroll
    for (uint32_t i = threadIdx.x; i < TILE_X * 8; i += GEMM_THREADS) {
        const uint32_t r = i / 8, j = i % 8;
        const uint8_t *row = row_at<const uint8_t>(x, y_row(job, r) / job.x_div);
        if constexpr (T::BLOCK == 256) {
            const uint8_t *b = row + (size_t)step * 304;
            const uint4 lo = *(const uint4 *)(b + 48 + 32 * j),
                        hi = *(const uint4 *)(b + 48 + 32 * j + 16);
            *(uint4 *)&s->x[r][32 * j] = lo;
            *(uint4 *)&s->x[r][32 * j + 16] = hi;
            s->k.m[j][r] = b[4 + j];
            if (T::HAS_M) {
                const uint32_t sums = word(b + 16 + 4 * j);
                s->k.low[r][2 * j] = (uint8_t)sums, s->k.high[r][2 * j] = (int8_t)(sums >> 8);
                s->k.low[r][2 * j + 1] = (uint8_t)(sums >> 16),
                                    s->k.high[r][2 * j + 1] = (int8_t)(sums >> 24);
            }
            if (j == 0)
                s->k.dx[r] = *(const float *)b;
        } else if (step * 8 + j < nb) {
            const uint8_t *b = row + (size_t)(step * 8 + j) * 40;
#pragma unroll
            for (int k = 0; k < 4; k++)
                *(uint2 *)&s->x[r][32 * j + 8 * k] = *(const uint2 *)(b + 8 + 8 * k);
            s->b.dx[j][r] = make_float2(*(const float *)b, (float)*(const int *)(b + 4));
        }
    }
}

/* A warp's 32 x 32 results: tile (i, t) of 16 x 8, of which a thread has rows lane / 4 and 8 more,
 * and two neighbouring columns. */
struct warp_tile {
    uint32_t w0, x0, row, column; /* row, column: this thread's first in a tile */
};

DEVICE void load_pieces(const struct gemm_stage *s, const struct warp_tile &at, uint32_t g,
                        uint32_t a[2][4], uint32_t b[2][4]) {
    const uint32_t lane = threadIdx.x % 32, m = lane / 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        load_matrices(a[i], &s->w[at.w0 + 16 * i + (m & 1) * 8 + lane % 8][32 * g + (m >> 1) * 16]);
        load_matrices(b[i], &s->x[at.x0 + 16 * i + (m >> 1) * 8 + lane % 8][32 * g + (m & 1) * 16]);
    }
}

/* A step of a type with blocks of 256: the block's sums, and then the one addition of each. */
template <class T>
DEVICE void step_256(const struct gemm_stage *s, const struct warp_tile &at, float acc[2][4][4]) {
    constexpr bool BY16 = T::GROUP == 16;
    int isum[2][4][4] = {};
#pragma unroll 2
    for (uint32_t g = 0; g < 8; g++) {
        uint32_t a[2][4], b[2][4];
        int scale[2][2][2]; /* of row tile, row, half */
        load_pieces(s, at, g, a, b);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t r = at.w0 + 16 * i + 8 * h + at.row;
                scale[i][h][0] = s->k.s[BY16 ? 2 * g : g][r];
                scale[i][h][1] = BY16 ? s->k.s[2 * g + 1][r] : 0;
            }
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const int2 m = *(const int2 *)&s->k.m[g][at.x0 + 8 * t + at.column];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int lo[4] = {}, hi[4] = {};
                if (BY16) {
                    mma_ss(lo, a[i][0], a[i][1], b[t / 2][t % 2 * 2]);
                    mma_ss(hi, a[i][2], a[i][3], b[t / 2][t % 2 * 2 + 1]);
                } else {
                    mma_bytes(lo, a[i][0], a[i][1], a[i][2], a[i][3], b[t / 2][t % 2 * 2],
                              b[t / 2][t % 2 * 2 + 1]);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int sum =
                        scale[i][e / 2][0] * lo[e] + (BY16 ? scale[i][e / 2][1] * hi[e] : 0);
                    isum[i][t][e] += (e % 2 ? m.y : m.x) * sum;
                }
            }
        }
    }
    const uint32_t quad = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = at.w0 + 16 * i + at.row;
        const float2 d[2] = {s->k.d[r], s->k.d[r + 8]};
        const uint32_t n0 = word(&s->k.n[r][4 * quad]), n1 = word(&s->k.n[r + 8][4 * quad]);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float2 dx = *(const float2 *)&s->k.dx[at.x0 + 8 * t + at.column];
            int low[4] = {}, high[4] = {};
            if (T::HAS_M) {
                const uint32_t c = at.x0 + 8 * t + threadIdx.x % 32 / 4;
                mma_uu(low, n0, n1, word(&s->k.low[c][4 * quad]));
                mma_us(high, n0, n1, word(&s->k.high[c][4 * quad]));
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = e % 2 ? dx.y : dx.x;
                float v = fmaf(d[e / 2].x * x, (float)isum[i][t][e], acc[i][t][e]);
                if (T::HAS_M)
                    v = fmaf(-(d[e / 2].y * x), (float)(high[e] * 256 + low[e]), v);
                acc[i][t][e] = v;
            }
        }
    }
}

/* A step of a type with blocks of 32, n of them.  An mma that begins with MAGIC's bits ends with
 * those of MAGIC + sum, exact as |sum| < 2^22. */
#define MAGIC 0x1.8p23f
template <class T> DEVICE void step_32(const struct gemm_stage *s, const struct warp_tile &at,
                                       uint32_t n, float acc[2][4][4]) {
    constexpr bool HALVES = terms_of<T>::HALVES;
#pragma unroll 2
    for (uint32_t g = 0; g < n; g++) {
        uint32_t a[2][4], b[2][4];
        float2 d[2][2];
        load_pieces(s, at, g, a, b);
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                d[i][h] = s->b.d[g][at.w0 + 16 * i + 8 * h + at.row];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float4 x = *(const float4 *)&s->b.dx[g][at.x0 + 8 * t + at.column];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int magic = (int)0x4b400000;
                int c[4] = {magic, magic, magic, magic}, z[4] = {magic, magic, magic, magic};
                if (HALVES) {
                    mma_ss(c, a[i][0], a[i][1], b[t / 2][t % 2 * 2]);
                    mma_ss(z, a[i][2], a[i][3], b[t / 2][t % 2 * 2 + 1]);
                } else {
                    mma_bytes(c, a[i][0], a[i][1], a[i][2], a[i][3], b[t / 2][t % 2 * 2],
                              b[t / 2][t % 2 * 2 + 1]);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float dx = e % 2 ? x.z : x.x;
                    float v = fmaf(d[i][e / 2].x * dx, __int_as_float(c[e]) - MAGIC, acc[i][t][e]);
                    if (T::HAS_M)
                        v = fmaf(d[i][e / 2].y * dx, e % 2 ? x.w : x.y, v);
                    else if (HALVES)
                        v = fmaf(d[i][e / 2].y * dx, __int_as_float(z[e]) - MAGIC, v);
                    acc[i][t][e] = v;
                }
            }
        }
    }
}

template <class T> DEVICE void gemm(const struct lode_cuda_gemm_args &a) {
    extern __shared__ __align__(16) uint8_t gemm_mem[];
    struct gemm_stage *s = (struct gemm_stage *)gemm_mem;
    struct gemm_job job;
    begin();
    if (!find_job(job, a, TILE_W, TILE_X, blockIdx.x, blockIdx.y))
        return;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct warp_tile at_tile = {warp % 4 * 32, warp / 4 * 32, lane / 4, lane % 4 * 2};
    const bool needed = at_tile.x0 < job.x_rows && at_tile.w0 < job.w_rows;
    const uint32_t nb = a.cols / T::BLOCK, steps = T::BLOCK == 256 ? nb : (nb + 7) / 8;
    float acc[2][4][4] = {};
    for (uint32_t step = 0; step < steps; step++) {
        __syncthreads();
        fill_w<T>(s, job, (uint32_t)job.w_stride, step, nb);
        fill_x<T>(s, a.x, job, step, nb);
        __syncthreads();
        if (!needed)
            continue;
        if constexpr (T::BLOCK == 256)
            step_256<T>(s, at_tile, acc);
        else
            step_32<T>(s, at_tile, nb - step * 8 < 8 ? nb - step * 8 : 8, acc);
    }
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t x = at_tile.x0 + 8 * t + at_tile.column + c;
            if (x >= job.x_rows)
                continue;
            float *y = (float *)(job.y + y_row(job, x) * job.y_stride);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint32_t r = at_tile.w0 + 8 * i + at_tile.row;
                const float v = acc[i / 2][t][i % 2 * 2 + c];
                if (r < job.w_rows)
                    y[r] = job.bias ? v + job.bias[r] : v;
            }
        }
}

/* blockIdx.x: tiles of x, so that neighbours share the weights in the second cache; y: of w. */
#define GEMM(name, type, block, ...)                                                               \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                  \
        gemm_##name(const __grid_constant__ struct lode_cuda_gemm_args a) {                        \
        gemm<struct name>(a);                                                                      \
    }
LODE_CUDA_QUANT_LIST(GEMM)
LODE_CUDA_CODEBOOK_LIST(GEMM)
LODE_CUDA_U_LIST(GEMM)
LODE_CUDA_PART_LIST(GEMM)

/* One block of threads.  tiles: their number (and three words of nothing), then each. */
enum { GROUP_THREADS = 1024, EXPERTS_MOST = LODE_GROUP_EXPERTS };
KERNEL(GROUP_THREADS) group_pairs(const __grid_constant__ struct lode_cuda_group_args a) {
    __shared__ uint32_t count[EXPERTS_MOST];
    __shared__ uint2 before[GROUP_THREADS / 32]; /* pairs and tiles of the warp's experts, then of all warps' up to it */
    begin();
    const uint32_t e = threadIdx.x, lane = e % 32;
    count[e] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += GROUP_THREADS)
        atomicAdd(&count[row_at<const int>(a.route, i / a.n_used)[2 * (i % a.n_used)]], 1u);
    __syncthreads();
    const auto up_to_here = [&](uint2 v) { /* in a warp */
#pragma unroll
        for (uint32_t w = 1; w < 32; w *= 2) {
            const uint32_t n = __shfl_up_sync(0xffffffffu, v.x, w), t = __shfl_up_sync(0xffffffffu, v.y, w);
            if (lane >= w)
                v.x += n, v.y += t;
        }
        return v;
    };
    const uint32_t n = count[e], n_tiles = (n + a.tile - 1) / a.tile;
    const uint2 in_warp = up_to_here(make_uint2(n, n_tiles));
    if (lane == 31)
        before[e / 32] = in_warp;
    __syncthreads();
    if (e < 32)
        before[e] = up_to_here(before[e]);
    __syncthreads();
    const uint2 warps = e < 32 ? make_uint2(0, 0) : before[e / 32 - 1];
    const uint32_t begin_pair = warps.x + in_warp.x - n, begin_tile = warps.y + in_warp.y - n_tiles;
    if (e == GROUP_THREADS - 1)
        *at<uint32_t>(a.tiles) = begin_tile + n_tiles;
    for (uint32_t t = 0; t < n_tiles; t++)
        at<struct lode_cuda_gemm_tile>(a.tiles)[1 + begin_tile + t] = {
            e, begin_pair + t * a.tile, n - t * a.tile < a.tile ? n - t * a.tile : a.tile, 0};
    count[e] = begin_pair;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < a.n_pairs; i += GROUP_THREADS)
        at<uint32_t>(a.list)[atomicAdd(
            &count[row_at<const int>(a.route, i / a.n_used)[2 * (i % a.n_used)]], 1u)] = i;
}
