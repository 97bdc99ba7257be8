/* gemm.cu - products of many rows on the integer tensor cores, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads computes TILE_W rows of w by TILE_X rows of x, 256 numbers of K at a time.  Codes of
 * both lie in shared memory as bytes; an mma gives the exact dot products of 16 or 32 of them, which the
 * scales, being integers, turn into a block's exact sum; one fused multiply-add a block then follows in
 * ascending order, in registers: the definition's own sequence.  Results depend on no tile. */
#include "mul.cuh"

enum {
    TILE_W = 64, TILE_X = 64, GEMM_THREADS = 256,
    STEP = 256,       /* numbers of K at a time */
    LD = STEP + 16,   /* bytes of a row of codes: 16 more keep the banks apart */
};

struct __align__(16) gemm_stage {
    uint8_t w[TILE_W][LD], x[TILE_X][LD];
    float2 d[TILE_W][8]; /* d and minimum (or m): one of a 256-block, one of each 32-block */
    float dx[TILE_X][8];
    int16_t s[TILE_W][16], n[TILE_W][16]; /* of groups of 16 */
    int16_t sums[TILE_X][16];
    int sum32[TILE_X][8];
    uint8_t m[TILE_X][8];
};

/* 16 x 8 products of 32 bytes: a's rows by b's rows. */
DEVICE void mma32(int c[4], const uint32_t a[4], const uint32_t b[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma16(int c[4], const uint32_t a[2], uint32_t b) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}
DEVICE uint32_t word(const uint8_t *p) { return *(const uint32_t *)p; }

template <class T>
DEVICE void fill_w(struct gemm_stage *s, const struct mul_job &job, uint32_t step, uint32_t nb) {
    for (uint32_t i = threadIdx.x; i < TILE_W * 8; i += GEMM_THREADS) {
        const uint32_t r = i / 8, j = i % 8;
        const uint8_t *row = job.w + (r < job.rows ? r : job.rows - 1) * job.w_stride;
        const uint32_t b = T::BLOCK == 256 ? step : step * 8 + j;
        struct chunk c;
        if (b >= nb) { /* K ends within the step: codes of zero */
            for (int k = 0; k < 8; k++)
                *(uint32_t *)&s->w[r][32 * j + 4 * k] = 0;
            s->d[r][j] = make_float2(0, 0);
            continue;
        }
        T::chunk_at(c, row, nb, b, (int)j);
        const uint32_t at = T::BLOCK == 256 ? 0 : 32 * j;
        for (int k = 0; k < 4; k++) {
            *(uint32_t *)&s->w[r][at + 16 * c.g0 + 4 * k] = c.q[k];
            *(uint32_t *)&s->w[r][at + 16 * c.g1 + 4 * k] = c.q[4 + k];
        }
        if (T::BLOCK == 256) {
            s->s[r][c.g0] = (int16_t)c.s0, s->s[r][c.g1] = (int16_t)c.s1;
            s->n[r][c.g0] = (int16_t)c.n0, s->n[r][c.g1] = (int16_t)c.n1;
            if (j == 0)
                s->d[r][0] = T::scale_at(row, nb, b);
        } else {
            s->d[r][j] = T::scale_at(row, nb, b);
        }
    }
}

template <class T>
DEVICE void fill_x(struct gemm_stage *s, const struct lode_cuda_mat &x, uint32_t x_head, uint32_t first,
                   uint32_t n_x, uint32_t step, uint32_t nb) {
    for (uint32_t i = threadIdx.x; i < TILE_X * 8; i += GEMM_THREADS) {
        const uint32_t r = i / 8, j = i % 8;
        const uint8_t *row = row_at<const uint8_t>(x, first + r < n_x ? first + r : n_x - 1) + x_head;
        if (T::BLOCK == 256) {
            const uint8_t *b = row + (size_t)step * 304;
            *(uint4 *)&s->x[r][32 * j] = *(const uint4 *)(b + 48 + 32 * j);
            *(uint4 *)&s->x[r][32 * j + 16] = *(const uint4 *)(b + 48 + 32 * j + 16);
            s->m[r][j] = b[4 + j];
            *(uint32_t *)&s->sums[r][2 * j] = *(const uint32_t *)(b + 16 + 4 * j);
            if (j == 0)
                s->dx[r][0] = *(const float *)b;
        } else if (step * 8 + j < nb) {
            const uint8_t *b = row + (size_t)(step * 8 + j) * 40;
            for (int k = 0; k < 4; k++)
                *(uint2 *)&s->x[r][32 * j + 8 * k] = *(const uint2 *)(b + 8 + 8 * k);
            s->dx[r][j] = *(const float *)b;
            s->sum32[r][j] = *(const int *)(b + 4);
        }
    }
}

/* A warp has 16 rows of w by 32 of x; a thread rows lane / 4 and 8 more, and of each eight rows of x
 * two. */
template <class T>
DEVICE void gemm(const struct mul_job &job, const struct lode_cuda_mat &x, uint32_t x_head,
                 uint32_t first_x, uint32_t n_x, lode_dev y, unsigned long long y_stride,
                 struct gemm_stage *s) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
    const uint32_t r0 = warp % 4 * 16 + lane / 4, x0 = warp / 4 * 32;
    const uint32_t nb = job.cols / T::BLOCK;
    const uint32_t steps = T::BLOCK == 256 ? nb : (nb + 7) / 8;
    /* groups of 16 with scales of their own need an mma each; others come by 32 */
    constexpr bool BY16 = T::BLOCK == 256 && T::GROUP == 16;
    float acc[4][4] = {};
    for (uint32_t step = 0; step < steps; step++) {
        __syncthreads();
        fill_w<T>(s, job, step, nb);
        fill_x<T>(s, x, x_head, first_x, n_x, step, nb);
        __syncthreads();
        int isum[4][4] = {}, msum[4][4] = {};
        const uint32_t groups = T::BLOCK == 256 || nb - step * 8 >= 8 ? 8 : nb - step * 8;
#pragma unroll 2
        for (uint32_t g = 0; g < groups; g++) {
            uint32_t a[4];
            const uint8_t *wa = &s->w[r0][32 * g + 4 * quad], *wb = &s->w[r0 + 8][32 * g + 4 * quad];
            a[0] = word(wa), a[1] = word(wb), a[2] = word(wa + 16), a[3] = word(wb + 16);
#pragma unroll
            for (int t = 0; t < 4; t++) {
                const uint8_t *xb = &s->x[x0 + 8 * t + lane / 4][32 * g + 4 * quad];
                const uint32_t b[2] = {word(xb), word(xb + 16)};
                int lo[4] = {}, hi[4] = {};
                if (BY16) {
                    mma16(lo, a, b[0]);
                    mma16(hi, a + 2, b[1]);
                } else {
                    mma32(lo, a, b);
                }
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const uint32_t r = r0 + e / 2 * 8, c = x0 + 8 * t + 2 * quad + e % 2;
                    if (T::BLOCK == 32) {
                        const int sum = s->sum32[c][g];
                        const float2 d = s->d[r][g];
                        const float dx = s->dx[c][g];
                        acc[t][e] = fmaf(d.x * dx, (float)(lo[e] - T::OFFSET * sum), acc[t][e]);
                        if (T::HAS_M)
                            acc[t][e] = fmaf(d.y * dx, (float)sum, acc[t][e]);
                    } else {
                        const int m = s->m[c][g], s0 = s->s[r][2 * g];
                        if (BY16) {
                            const int s1 = s->s[r][2 * g + 1];
                            isum[t][e] += m * (s0 * lo[e] + s1 * hi[e]);
                            if (T::OFFSET)
                                isum[t][e] -= T::OFFSET * (s0 * s->sums[c][2 * g] +
                                                           s1 * s->sums[c][2 * g + 1]);
                            if (T::HAS_M)
                                msum[t][e] += s->n[r][2 * g] * s->sums[c][2 * g] +
                                              s->n[r][2 * g + 1] * s->sums[c][2 * g + 1];
                        } else {
                            isum[t][e] += m * s0 * lo[e];
                            if (T::HAS_M)
                                msum[t][e] += s->n[r][2 * g] *
                                              (s->sums[c][2 * g] + s->sums[c][2 * g + 1]);
                        }
                    }
                }
            }
        }
        if (T::BLOCK == 256)
#pragma unroll
            for (int t = 0; t < 4; t++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const float2 d = s->d[r0 + e / 2 * 8][0];
                    const float dx = s->dx[x0 + 8 * t + 2 * quad + e % 2][0];
                    acc[t][e] = fmaf(d.x * dx, (float)isum[t][e], acc[t][e]);
                    if (T::HAS_M)
                        acc[t][e] = fmaf(-(d.y * dx), (float)msum[t][e], acc[t][e]);
                }
    }
#pragma unroll
    for (int t = 0; t < 4; t++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const uint32_t r = r0 + e / 2 * 8, c = first_x + x0 + 8 * t + 2 * quad + e % 2;
            if (r < job.rows && c < n_x)
                ((float *)(y + c * y_stride))[r] = job.bias ? acc[t][e] + job.bias[r] : acc[t][e];
        }
}

/* blockIdx.x: tiles of x, so that neighbours share the weights in the second cache; y: of w. */
#define GEMM(name, type, block, ...)                                                               \
    KERNEL(GEMM_THREADS) gemm_##name(const __grid_constant__ struct lode_cuda_mul_args a) {        \
        begin();                                                                                   \
        __shared__ struct gemm_stage stage;                                                        \
        struct mul_job job;                                                                        \
        uint32_t p = 0;                                                                            \
        while (p + 1 < a.n_parts && blockIdx.y >= a.parts[p + 1].first_tile)                       \
            p++;                                                                                   \
        const struct lode_cuda_part &part = a.parts[p];                                            \
        const uint32_t first = (blockIdx.y - part.first_tile) * TILE_W;                            \
        job.w = at<const uint8_t>(part.w) + first * part.w_stride;                                 \
        job.w_stride = part.w_stride;                                                              \
        job.bias = part.bias ? at<const float>(part.bias) + first : NULL;                          \
        job.rows = part.rows - first < TILE_W ? part.rows - first : TILE_W;                        \
        job.cols = a.cols;                                                                         \
        gemm<struct name>(job, a.x, 0, blockIdx.x * TILE_X, a.n_x,                                 \
                          part.y + first * sizeof(float), part.y_stride, &stage);                  \
    }
LODE_CUDA_QUANT_LIST(GEMM)
