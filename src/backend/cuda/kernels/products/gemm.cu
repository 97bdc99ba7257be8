/* gemm.cu - products of many rows on the integer tensor cores, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads computes TILE_W rows of w by TILE_X rows of x, 128 numbers of K at a time, a
 * warp 32 by 32 of them.  Codes of both lie in shared memory as signed bytes; an mma gives the
 * exact dot products of 16 or 32 of them, which the scales, being integers, turn into a block's
 * exact sum; one fused multiply-add a block then follows in ascending order, in registers: the
 * definition's own sequence.  Minima meet the sums of x in an mma of their own, the sums cut into
 * two bytes.  Results depend on no tile.  What a step needs is on its way to registers while the step before is multiplied.
 *
 * Experts: tiles are of pairs of one expert, as group_pairs (experts.cu) lists them, so that a matrix is read once for all rows that
 * chose it.
 */
#include "mma.cuh"
#include "gemm.cuh"
#include "codebook.cuh"
#include "parts.cuh"

enum {
    TILE_W = LODE_GEMM_TILE_W,
    STEP = 128,         /* numbers of K at a time */
    GROUPS = STEP / 32,
    LD = STEP + 16,     /* bytes of a row of codes: 16 more keep the banks apart */
    PIECES = STEP / 16, /* of a row of x that a thread brings */
};

/* A block of threads that has TILE_X rows of x.  Of 64 two blocks fit into 99 KB of shared memory, and one puts while the other
 * multiplies; of 128 there is room for two steps, and half of the warps do the one first, half the other. */
enum { SMALL = LODE_GEMM_TILE_X, LARGE = LODE_GEMM_LARGE_X };
template <int X> struct shape {
    enum { TILE_X = X, THREADS = LODE_GEMM_THREADS * X, BUFFERS = X == LARGE ? 2 : 1, W_EACH = TILE_W * GROUPS / THREADS,
           X_EACH = X * PIECES / THREADS };
};

template <int BLOCK, int TILE_X> struct numbers;
template <int TILE_X> struct numbers<256, TILE_X> { /* half a block */
    int8_t s[TILE_W][8]; /* of groups of 16, or (the first 4) of 32 */
    int m[GROUPS][TILE_X];
};
template <int TILE_X> struct numbers<32, TILE_X> {
    float2 d[GROUPS][TILE_W];  /* d and m */
    float2 dx[GROUPS][TILE_X]; /* d and the sum of codes */
};
template <int BLOCK, int TILE_X> struct __align__(16) stage {
    uint8_t w[TILE_W][LD], x[TILE_X][LD];
    struct numbers<BLOCK, TILE_X> of;
};
/* Of a whole block of 256, as its halves come. */
template <int BLOCK, int TILE_X> struct __align__(16) sides {};
template <int TILE_X> struct __align__(16) sides<256, TILE_X> {
    float2 d[TILE_W]; /* d and minimum */
    uint8_t n[TILE_W][16], low[TILE_X][16];
    int8_t high[TILE_X][16]; /* the sums of x: 256 high + low */
    float dx[TILE_X];
};
template <int BLOCK, int TILE_X> struct gemm_mem {
    struct stage<BLOCK, TILE_X> stages[shape<TILE_X>::BUFFERS];
    struct sides<BLOCK, TILE_X> sides[shape<TILE_X>::BUFFERS];
};
static_assert(sizeof(struct gemm_mem<256, SMALL>) <= LODE_GEMM_SHARED && sizeof(struct gemm_mem<32, SMALL>) <= LODE_GEMM_SHARED, "products_shared.h");
static_assert(sizeof(struct gemm_mem<256, LARGE>) <= LODE_GEMM_LARGE_SHARED && sizeof(struct gemm_mem<32, LARGE>) <= LODE_GEMM_LARGE_SHARED,
              "products_shared.h");

/* Four 8 x 16-byte matrices; lane l gives the address of row l % 8 of matrix l / 8. */
DEVICE void load_matrices(uint32_t v[4], const uint8_t *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared_address(p)));
}
DEVICE uint32_t word(const void *p) { return *(const uint32_t *)p; }

/* ---- what a thread brings: read while the step before is multiplied, put when it has been ---- */

/* Four codes less their type's offset. */
template <class T> DEVICE uint32_t centred(uint32_t q) {
    const uint32_t top = 0x80808080u;
    return T::OFFSET ? ((q | top) - T::OFFSET * 0x01010101u) ^ top : q;
}

/* Chunks of rows of w.  All is read by all threads, the same more than once: what only some read would be waited for at once.  Where K
 * ends within the step the last block comes again, which nobody looks at. */
template <class S> struct brought_w {
    struct kept_words of[S::W_EACH];
    const uint8_t *first;      /* of its rows */
    uint32_t apart[S::W_EACH]; /* bytes to each */
};
template <class T, class R>
DEVICE void w_chunk(struct chunk &c, float2 &d, R &in, const uint8_t *row, uint32_t nb, uint32_t step, uint32_t j) {
    const uint32_t b = T::BLOCK == 256 ? step / 2 : step * GROUPS + j < nb ? step * GROUPS + j : nb - 1;
    T::chunk_at(c, in, row, nb, b, T::BLOCK == 256 ? (int)(step % 2 * GROUPS + j) : 0);
    d = T::scale_at(in, row, nb, b);
}
template <class S> DEVICE void begin_w(struct brought_w<S> &v, const struct gemm_job &job) {
    v.first = job.w;
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const uint32_t r = (threadIdx.x + i * S::THREADS) / GROUPS;
        v.apart[i] = (r < job.w_rows ? r : job.w_rows - 1) * (uint32_t)job.w_stride;
    }
}
template <class T, class S> DEVICE void bring_w(struct brought_w<S> &v, uint32_t nb, uint32_t step) {
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        struct reads_to_keep in = {v.of[i]};
        struct chunk c;
        float2 d;
        w_chunk<T>(c, d, in, v.first + v.apart[i], nb, step, threadIdx.x % GROUPS);
    }
}
template <class T, class S, class M> DEVICE void put_w(M *mem, const struct brought_w<S> &v, uint32_t nb, uint32_t step) {
    const uint32_t j = threadIdx.x % GROUPS;
    auto *const s = &mem->stages[step % S::BUFFERS];
#pragma unroll
    for (int i = 0; i < S::W_EACH; i++) {
        const uint32_t r = (threadIdx.x + i * S::THREADS) / GROUPS, at = T::BLOCK == 256 ? 0 : 32 * j;
        struct reads_kept in = {v.of[i]};
        struct chunk c;
        float2 d;
        w_chunk<T>(c, d, in, v.first + v.apart[i], nb, step, j);
#pragma unroll
        for (int k = 0; k < 8; k++)
            c.q[k] = centred<T>(c.q[k]);
        const int g0 = T::BLOCK == 256 ? c.g0 % 8 : 0, g1 = T::BLOCK == 256 ? c.g1 % 8 : 1; /* of the step */
        *(uint4 *)&s->w[r][at + 16 * g0] = make_uint4(c.q[0], c.q[1], c.q[2], c.q[3]);
        *(uint4 *)&s->w[r][at + 16 * g1] = make_uint4(c.q[4], c.q[5], c.q[6], c.q[7]);
        if constexpr (T::BLOCK == 256) {
            constexpr int PER = T::GROUP / 16;
            auto *const side = &mem->sides[step / 2 % S::BUFFERS];
            s->of.s[r][g0 / PER] = (int8_t)c.s0, s->of.s[r][g1 / PER] = (int8_t)c.s1;
            if (T::HAS_M)
                side->n[r][c.g0] = (uint8_t)c.n0, side->n[r][c.g1] = (uint8_t)c.n1;
            if (j == 0)
                side->d[r] = d;
        } else {
            s->of.d[j][r] = d;
        }
    }
}

/* Pieces of rows of x; and of a row of its own what belongs to the codes: of a block of 256 d, four m and the sums of a group of 32,
 * of a block of 32 d and the sum. */
template <class S> struct brought_x {
    uint4 codes[S::X_EACH];
    uint32_t d, m, sums;
    uint32_t row[S::X_EACH], own; /* where they are, in eights of bytes */
};
DEVICE uint32_t row_of_x(const struct lode_cuda_mat &x, const struct gemm_job &job, uint32_t r) {
    return y_row(job, r) / job.x_div * (uint32_t)(x.stride / 8) + job.x_at / 8;
}
template <class S> DEVICE void begin_x(struct brought_x<S> &v, const struct lode_cuda_mat &x, const struct gemm_job &job) {
    static_assert(S::TILE_X * GROUPS == S::THREADS, "a thread's own row of x");
#pragma unroll
    for (int i = 0; i < S::X_EACH; i++)
        v.row[i] = row_of_x(x, job, (threadIdx.x + i * S::THREADS) / PIECES);
    v.own = row_of_x(x, job, threadIdx.x / GROUPS);
}
template <class T> DEVICE uint32_t x_block_at(uint32_t nb, uint32_t step, uint32_t j) {
    const uint32_t b = step * GROUPS + j;
    return T::BLOCK == 256 ? step / 2 * 304 : (b < nb ? b : nb - 1) * 40;
}
template <class T, class S> DEVICE void bring_x(struct brought_x<S> &v, const struct lode_cuda_mat &x, uint32_t nb, uint32_t step) {
    const uint32_t p = threadIdx.x % PIECES, j = threadIdx.x % GROUPS;
    const uint32_t codes = x_block_at<T>(nb, step, p / 2);
#pragma unroll
    for (int i = 0; i < S::X_EACH; i++) {
        const uint8_t *const b = at<const uint8_t>(x.data) + 8ull * v.row[i] + codes;
        if constexpr (T::BLOCK == 256) {
            v.codes[i] = *(const uint4 *)(b + 48 + STEP * (step % 2) + 16 * p);
        } else {
            const uint2 lo = *(const uint2 *)(b + 8 + 16 * (p % 2)), hi = *(const uint2 *)(b + 16 + 16 * (p % 2));
            v.codes[i] = make_uint4(lo.x, lo.y, hi.x, hi.y);
        }
    }
    const uint8_t *const own = at<const uint8_t>(x.data) + 8ull * v.own + x_block_at<T>(nb, step, j);
    v.d = word(own);
    v.m = word(own + 4 + (T::BLOCK == 256 ? GROUPS * (step % 2) : 0));
    if (T::BLOCK == 256 && T::HAS_M)
        v.sums = word(own + 16 + 16 * (step % 2) + 4 * j);
}
template <class T, class S, class M> DEVICE void put_x(M *mem, const struct brought_x<S> &v, uint32_t step) {
    const uint32_t p = threadIdx.x % PIECES, r = threadIdx.x / GROUPS, j = threadIdx.x % GROUPS;
    auto *const s = &mem->stages[step % S::BUFFERS];
#pragma unroll
    for (int i = 0; i < S::X_EACH; i++)
        *(uint4 *)&s->x[(threadIdx.x + i * S::THREADS) / PIECES][16 * p] = v.codes[i];
    if constexpr (T::BLOCK == 256) {
        const uint32_t g = 2 * GROUPS * (step % 2) + 2 * j;
        auto *const side = &mem->sides[step / 2 % S::BUFFERS];
        s->of.m[j][r] = (int)(v.m >> (8 * j) & 255);
        if (j == 0)
            side->dx[r] = lode_bits_f32(v.d);
        if (T::HAS_M) {
            *(uint16_t *)&side->low[r][g] = (uint16_t)__byte_perm(v.sums, 0, 0x4420);
            *(uint16_t *)&side->high[r][g] = (uint16_t)__byte_perm(v.sums, 0, 0x4431);
        }
    } else {
        s->of.dx[j][r] = make_float2(lode_bits_f32(v.d), (float)(int)v.m);
    }
}

/* ---- a step ---- */

/* A warp's 32 x 32 results: tile (i, t) of 16 x 8, of which a thread has rows lane / 4 and 8 more,
 * and two neighbouring columns. */
struct warp_tile {
    uint32_t w0, x0, row, column; /* row, column: this thread's first in a tile */
};

template <class G>
DEVICE void load_pieces(const G *s, const struct warp_tile &at, uint32_t g, uint32_t a[2][4], uint32_t b[2][4]) {
    const uint32_t lane = threadIdx.x % 32, m = lane / 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        load_matrices(a[i], &s->w[at.w0 + 16 * i + (m & 1) * 8 + lane % 8][32 * g + (m >> 1) * 16]);
        load_matrices(b[i], &s->x[at.x0 + 16 * i + (m >> 1) * 8 + lane % 8][32 * g + (m & 1) * 16]);
    }
}

/* Half a block of 256 numbers: what it adds to the block's exact sums. */
template <class T, class G> DEVICE void add_half(const G *s, const struct warp_tile &at, int isum[2][4][4]) {
    constexpr bool BY16 = T::GROUP == 16;
#pragma unroll 1
    for (int g = 0; g < GROUPS; g++) {
        uint32_t a[2][4], b[2][4];
        int scale[4][2]; /* of row, half */
        load_pieces(s, at, g, a, b);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int8_t *const by = s->of.s[at.w0 + 8 * i + at.row] + (BY16 ? 2 * g : g);
            scale[i][0] = by[0], scale[i][1] = BY16 ? by[1] : 0;
        }
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const int2 m = *(const int2 *)&s->of.m[g][at.x0 + 8 * t + at.column];
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
                    const int *const by = scale[2 * i + e / 2], sum = by[0] * lo[e] + (BY16 ? by[1] * hi[e] : 0);
                    isum[i][t][e] += (e % 2 ? m.y : m.x) * sum;
                }
            }
        }
    }
}

/* The block's one addition, or two. */
template <class T, class G>
DEVICE void end_block(const G *s, const struct warp_tile &at, int isum[2][4][4], float acc[2][4][4]) {
    const uint32_t quad = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = at.w0 + 16 * i + at.row;
        const float2 d[2] = {s->d[r], s->d[r + 8]};
        const uint32_t n0 = word(&s->n[r][4 * quad]), n1 = word(&s->n[r + 8][4 * quad]);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float2 dx = *(const float2 *)&s->dx[at.x0 + 8 * t + at.column];
            int low[4] = {}, high[4] = {};
            if (T::HAS_M) {
                const uint32_t c = at.x0 + 8 * t + threadIdx.x % 32 / 4;
                mma_uu(low, n0, n1, word(&s->low[c][4 * quad]));
                mma_us(high, n0, n1, word(&s->high[c][4 * quad]));
            }
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float x = e % 2 ? dx.y : dx.x;
                float v = fmaf(d[e / 2].x * x, (float)isum[i][t][e], acc[i][t][e]);
                if (T::HAS_M)
                    v = fmaf(-(d[e / 2].y * x), (float)(high[e] * 256 + low[e]), v);
                acc[i][t][e] = v;
                isum[i][t][e] = 0;
            }
        }
    }
}

/* A step of a type with blocks of 32, n of them.  An mma that begins with MAGIC's bits ends with
 * those of MAGIC + sum, exact as |sum| < 2^22. */
#define MAGIC 0x1.8p23f
template <class T, class G> DEVICE void step_32(const G *s, const struct warp_tile &at, uint32_t n, float acc[2][4][4]) {
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
                d[i][h] = s->of.d[g][at.w0 + 16 * i + 8 * h + at.row];
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const float4 x = *(const float4 *)&s->of.dx[g][at.x0 + 8 * t + at.column];
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

template <class T, int X> DEVICE void gemm(const struct lode_cuda_gemm_args &a) {
    typedef struct shape<X> S;
    enum { TILE_X = S::TILE_X };
    extern __shared__ __align__(16) uint8_t gemm_bytes[];
    auto *const mem = (struct gemm_mem<T::BLOCK, X> *)gemm_bytes;
    struct gemm_job job;
    begin();
    if (!find_job(job, a, TILE_W, TILE_X, blockIdx.x, blockIdx.y))
        return;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct warp_tile at_tile = {warp % 4 * 32, warp / 4 * 32, lane / 4, lane % 4 * 2};
    const bool needed = at_tile.x0 < job.x_rows && at_tile.w0 < job.w_rows;
    const uint32_t nb = a.cols / T::BLOCK, steps = T::BLOCK == 256 ? 2 * nb : (nb + GROUPS - 1) / GROUPS;
    float acc[2][4][4] = {};
    int isum[2][4][4] = {};
    struct brought_w<S> w;
    struct brought_x<S> x;
    begin_w(w, job);
    begin_x(x, a.x, job);
    const auto bring = [&](uint32_t step) {
        bring_w<T>(w, nb, step);
        bring_x<T>(x, a.x, nb, step);
    };
    const auto put = [&](uint32_t step) {
        put_w<T>(mem, w, nb, step);
        put_x<T>(mem, x, step);
    };
    const auto multiply = [&](uint32_t step) {
        if (!needed)
            return;
        const auto *const s = &mem->stages[step % S::BUFFERS];
        if constexpr (T::BLOCK == 256) {
            add_half<T>(s, at_tile, isum);
            if (step % 2)
                end_block<T>(&mem->sides[step / 2 % S::BUFFERS], at_tile, isum, acc);
        } else {
            step_32<T>(s, at_tile, nb - step * GROUPS < GROUPS ? nb - step * GROUPS : GROUPS, acc);
        }
    };
    bring(0);
    if (S::BUFFERS == 1) {
#pragma unroll 1
        for (uint32_t step = 0; step < steps; step++) {
            __syncthreads();
            put(step);
            __syncthreads();
            if (step + 1 < steps)
                bring(step + 1);
            multiply(step);
        }
    } else {
        put(0);
        if (steps > 1)
            bring(1);
        __syncthreads();
#pragma unroll 1
        for (uint32_t step = 0; step < steps; step++) {
#pragma unroll 1
            for (uint32_t turn = 0; turn < 2; turn++) {
                if (turn == warp / 4 % 2) {
                    multiply(step);
                } else if (step + 1 < steps) {
                    put(step + 1);
                    if (step + 2 < steps)
                        bring(step + 2);
                }
            }
            __syncthreads();
        }
    }
    uint32_t tile_x, tile_w; /* read again, so that nothing of the job is in registers until now */
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(tile_x));
    asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(tile_w));
    find_job(job, a, TILE_W, TILE_X, tile_x, tile_w);
    job.y += between_heads(a, tile_w);
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t column = at_tile.x0 + 8 * t + at_tile.column + c;
            if (column >= job.x_rows)
                continue;
            float *y = (float *)(job.y + y_row(job, column) * job.y_stride);
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
    extern "C" __global__ void __launch_bounds__(shape<SMALL>::THREADS, 2)                         \
        gemm_##name(const __grid_constant__ struct lode_cuda_gemm_args a) {                        \
        gemm<struct name, SMALL>(a);                                                               \
    }                                                                                              \
    extern "C" __global__ void __launch_bounds__(shape<LARGE>::THREADS, 1)                         \
        gemm_large_##name(const __grid_constant__ struct lode_cuda_gemm_args a) {                  \
        gemm<struct name, LARGE>(a);                                                               \
    }
LODE_CUDA_QUANT_LIST(GEMM)
LODE_CUDA_CODEBOOK_LIST(GEMM)
LODE_CUDA_U_LIST(GEMM)
LODE_CUDA_PART_LIST(GEMM)
