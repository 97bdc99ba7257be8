/* mul.cuh - products of a few rows: y[j][i] = <w row i, x row j>, bit for bit kern/mul_scalar.c's and
 * kern/mul_float_scalar.c's.
 *
 * Quantised.  A block of threads takes ROWS rows of w and NX rows of x.  A thread reads a chunk of 32
 * weights for R rows of w and meets it with all of x; eight threads join their integers, which are
 * exact, to those of a block of 256.  What the sequential definition needs of a block of weights and a
 * row of x is (d_w d_x, isum) and (dmin d_x, msum): these pairs go to shared memory, and one warp,
 * which has a lane for each (row of w, row of x), adds them in ascending order while the others read on.
 *
 * Floats, and packed types that have no rounded activations.  Eight threads are a row of w, each with two
 * of the sixteen lanes.
 */
#ifndef LODE_CUDA_MUL_CUH
#define LODE_CUDA_MUL_CUH

#include "blocks.cuh"

enum { MUL_THREADS = 256, MUL_WARPS = MUL_THREADS / 32 };

struct mul_job { /* one tile */
    const uint8_t *w;        /* its first row */
    const uint8_t *x[8];     /* the first rows of x; (NX) */
    float *y[8];             /* where the tile's results go, for each of x; NULL: none wanted */
    const float *bias;       /* of the tile's first row; may be NULL */
    size_t w_stride;
    uint32_t rows, cols;     /* rows: those of the tile that exist */
};

template <int NX> struct tile_rows { enum { N = NX == 1 ? 16 : NX == 2 ? 16 : NX == 4 ? 8 : 4 }; };
template <class T, int NX> struct stage_blocks {
    enum { N = T::BLOCK == 256 ? (NX == 1 ? 64 : 16) : terms_of<T>::TWO ? 32 : 64 };
};

template <class T, int NX> struct mul_stage {
    float2 a[tile_rows<NX>::N * NX][stage_blocks<T, NX>::N + 1];
    float2 m[terms_of<T>::TWO ? tile_rows<NX>::N * NX : 1][stage_blocks<T, NX>::N + 1];
};

DEVICE int dot16(const uint32_t q[4], uint4 x) {
    int s = dp4a((int)q[0], (int)x.x, 0);
    s = dp4a((int)q[1], (int)x.y, s);
    s = dp4a((int)q[2], (int)x.z, s);
    return dp4a((int)q[3], (int)x.w, s);
}

/* A chunk with a row of x: this thread's part of the block's two sums. */
template <class T>
DEVICE void chunk_dot(const struct chunk &c, const uint8_t *x, uint32_t b, int *isum, int *msum) {
    if (T::BLOCK == 256) {
        const uint8_t *blk = x + (size_t)b * 304;
        const uint4 x0 = ((const uint4 *)(blk + 48))[c.g0];
        const uint4 x1 = ((const uint4 *)(blk + 48))[c.g1];
        const int m0 = blk[4 + c.g0 / 2], m1 = blk[4 + c.g1 / 2];
        int a = m0 * dot16(c.q, x0), z = m1 * dot16(c.q + 4, x1);
        if (T::OFFSET || T::HAS_M) {
            const int s0 = ((const int16_t *)(blk + 16))[c.g0];
            const int s1 = ((const int16_t *)(blk + 16))[c.g1];
            a -= T::OFFSET * s0;
            z -= T::OFFSET * s1;
            *msum = c.n0 * s0 + c.n1 * s1;
        }
        *isum = c.s0 * a + c.s1 * z;
    } else {
        const uint8_t *blk = x + (size_t)b * 40;
        const uint2 head = *(const uint2 *)blk;
        int s[2] = {};
        for (int i = 0; i < 4; i++) {
            const uint2 v = ((const uint2 *)(blk + 8))[i];
            int &sum = s[terms_of<T>::HALVES ? i / 2 : 0];
            sum = dp4a((int)c.q[2 * i], (int)v.x, sum);
            sum = dp4a((int)c.q[2 * i + 1], (int)v.y, sum);
        }
        *isum = s[0] - T::OFFSET * (int)head.y;
        *msum = terms_of<T>::HALVES ? s[1] : (int)head.y;
    }
}
template <class T> DEVICE float x_scale(const uint8_t *x, uint32_t b) {
    return *(const float *)(x + (size_t)b * (T::BLOCK == 256 ? 304 : 40));
}

template <class T, int NX>
DEVICE void mul_quant(const struct mul_job &job, struct mul_stage<T, NX> *stage, float *acc) {
    enum {
        ROWS = tile_rows<NX>::N, SB = stage_blocks<T, NX>::N, R = NX == 1 && T::BLOCK == 256 ? 4 : 2, CHUNKS = T::BLOCK / 32,
        LANES = T::BLOCK == 256 ? 8 : 1, GROUPS = ROWS / R
    };
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t nb = job.cols / T::BLOCK;
    if (threadIdx.x < ROWS * NX)
        acc[threadIdx.x] = 0;
    uint32_t n = 0;
    for (uint32_t first = 0; first < nb; first += SB, n++) {
        struct mul_stage<T, NX> *s = &stage[n & 1];
        const uint32_t some = nb - first < SB ? nb - first : SB;
        const uint32_t segments = (some * CHUNKS + 31) / 32;
        for (uint32_t item = warp; item < GROUPS * segments; item += MUL_WARPS) {
            const uint32_t r0 = item % GROUPS * R, u = item / GROUPS * 32 + lane;
            const bool here = u < some * CHUNKS;
            const uint32_t in = here ? u / CHUNKS : 0, b = first + in;
            struct chunk c[R];
            const uint8_t *row[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                const uint32_t i = r0 + r < job.rows ? r0 + r : job.rows - 1;
                row[r] = job.w + i * job.w_stride;
                T::chunk_at(c[r], row[r], nb, b, (int)(u % CHUNKS));
            }
            float2 d[R];
#pragma unroll
            for (int r = 0; r < R; r++)
                d[r] = T::scale_at(row[r], nb, b);
#pragma unroll
            for (int j = 0; j < NX; j++) {
                const float dx = x_scale<T>(job.x[j], b);
#pragma unroll
                for (int r = 0; r < R; r++) {
                    int isum = 0, msum = 0;
                    chunk_dot<T>(c[r], job.x[j], b, &isum, &msum);
                    if (LANES == 8) {
#pragma unroll
                        for (int w = 4; w; w /= 2) {
                            isum += __shfl_xor_sync(0xffffffffu, isum, w);
                            if (T::HAS_M)
                                msum += __shfl_xor_sync(0xffffffffu, msum, w);
                        }
                    }
                    if (here && lane % LANES == 0) {
                        const uint32_t e = (r0 + r) * NX + j;
                        s->a[e][in] = make_float2(d[r].x * dx, (float)isum);
                        if (terms_of<T>::TWO)
                            s->m[e][in] = make_float2(
                                T::BLOCK == 256 ? -(d[r].y * dx) : d[r].y * dx, (float)msum);
                    }
                }
            }
        }
        __syncthreads();
        if (warp == n % MUL_WARPS && lane < ROWS * NX) {
            float v = acc[lane];
#pragma unroll 8
            for (uint32_t i = 0; i < some; i++) {
                const float2 p = s->a[lane][i];
                v = fmaf(p.x, p.y, v);
                if (terms_of<T>::TWO) {
                    const float2 m = s->m[lane][i];
                    v = fmaf(m.x, m.y, v);
                }
            }
            acc[lane] = v;
        }
    }
    __syncthreads();
    if (threadIdx.x < ROWS * NX) {
        const uint32_t r = threadIdx.x / NX, j = threadIdx.x % NX;
        float *y = NULL;
#pragma unroll
        for (int k = 0; k < NX; k++)
            y = (int)j == k ? job.y[k] : y;
        if (r < job.rows && y)
            y[r] = job.bias ? acc[threadIdx.x] + job.bias[r] : acc[threadIdx.x];
    }
}

/* ---- floats ---- */

struct f32 { typedef float type; };
struct f16 { typedef uint16_t type; };
struct bf16 { typedef uint16_t type; };
/* Two neighbouring weights: as they are loaded, and widened. */
template <class T> struct pair_of { /* of a type of packed.cuh: widened as they are loaded */
    enum { PACKED = 1 };
    typedef float2 raw;
    static __device__ __forceinline__ float2 widen(raw v) { return v; }
};
template <> struct pair_of<f32> {
    enum { PACKED = 0 };
    typedef float2 raw;
    static __device__ __forceinline__ raw load(const uint8_t *p) { return __ldcs((const raw *)p); }
    static __device__ __forceinline__ float2 widen(raw v) { return v; }
};
template <> struct pair_of<f16> {
    enum { PACKED = 0 };
    typedef uint32_t raw;
    static __device__ __forceinline__ raw load(const uint8_t *p) { return __ldcs((const raw *)p); }
    static __device__ __forceinline__ float2 widen(raw v) { return two_halves(v); }
};
template <> struct pair_of<bf16> {
    enum { PACKED = 0 };
    typedef uint32_t raw;
    static __device__ __forceinline__ raw load(const uint8_t *p) { return __ldcs((const raw *)p); }
    static __device__ __forceinline__ float2 widen(raw v) {
        return make_float2(lode_bits_f32(v << 16), lode_bits_f32(v & 0xffff0000u));
    }
};
/* Numbers k and k + 1 of a row, k even. */
template <class T> DEVICE typename pair_of<T>::raw load_pair(const uint8_t *row, size_t k) {
    if constexpr (pair_of<T>::PACKED)
        return T::pair(row, (uint32_t)k);
    else
        return pair_of<T>::load(row + k * sizeof(typename T::type));
}

enum { FLOAT_ROWS = MUL_THREADS / 8 }; /* of a tile */

template <int NX> struct float_stage {
    enum { N = 4096 / NX };
    float x[NX][N]; /* a piece of the rows of x: the weights' stream leaves the first cache no room */
};

template <class T, int NX> DEVICE void mul_float(const struct mul_job &job, struct float_stage<NX> *s) {
    enum { /* DEEP: loads under way */
        DEEP = pair_of<T>::PACKED ? 0 : NX >= 4 ? 8 : 16, PIECE = float_stage<NX>::N
    };
    const uint32_t r = threadIdx.x / 8, t = threadIdx.x % 8;
    const uint32_t i = r < job.rows ? r : job.rows - 1;
    const uint8_t *w = job.w + i * job.w_stride;
    float2 acc[NX];
#pragma unroll
    for (int j = 0; j < NX; j++)
        acc[j] = make_float2(0, 0);
    typename pair_of<T>::raw next[DEEP + 1];
    if (DEEP && (uint32_t)(16 * DEEP) <= job.cols)
#pragma unroll
        for (int u = 0; u < DEEP; u++)
            next[u] = load_pair<T>(w, 16 * u + 2 * t);
    for (uint32_t first = 0; first < job.cols; first += PIECE) {
        const uint32_t some = job.cols - first < PIECE ? job.cols - first : PIECE;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < NX; j++)
            for (uint32_t l = threadIdx.x; l < some; l += MUL_THREADS)
                s->x[j][l] = ((const float *)job.x[j])[first + l];
        __syncthreads();
        uint32_t k = 0; /* within the piece */
        for (; DEEP && k + 16 * DEEP <= some; k += 16 * DEEP) {
            typename pair_of<T>::raw v[DEEP + 1];
#pragma unroll
            for (int u = 0; u < DEEP; u++)
                v[u] = next[u];
            if (first + k + 32 * DEEP <= job.cols) /* on their way while these are used */
#pragma unroll
                for (int u = 0; u < DEEP; u++)
                    next[u] = load_pair<T>(w, first + k + 16 * (DEEP + u) + 2 * t);
#pragma unroll
            for (int u = 0; u < DEEP; u++) {
                const float2 p = pair_of<T>::widen(v[u]);
#pragma unroll
                for (int j = 0; j < NX; j++) {
                    const float2 x = *(const float2 *)&s->x[j][k + 16 * u + 2 * t];
                    acc[j].x = fmaf(p.x, x.x, acc[j].x);
                    acc[j].y = fmaf(p.y, x.y, acc[j].y);
                }
            }
        }
#pragma unroll 1
        for (; k + 2 * t < some; k += 16) { /* the end of the row, or all */
            const float2 v = pair_of<T>::widen(load_pair<T>(w, first + k + 2 * t));
#pragma unroll
            for (int j = 0; j < NX; j++) {
                const float *x = &s->x[j][k + 2 * t];
                acc[j].x = fmaf(v.x, x[0], acc[j].x);
                if (k + 2 * t + 1 < some)
                    acc[j].y = fmaf(v.y, x[1], acc[j].y);
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int j = 0; j < NX; j++) {
        float2 a = acc[j];
        for (int d = 4; d; d /= 2) {
            a.x += __shfl_down_sync(0xffffffffu, a.x, d, 8);
            a.y += __shfl_down_sync(0xffffffffu, a.y, d, 8);
        }
        const float sum = a.x + a.y;
        if (t == 0 && r < job.rows && job.y[j])
            job.y[j][r] = job.bias ? sum + job.bias[r] : sum;
    }
}

#endif
