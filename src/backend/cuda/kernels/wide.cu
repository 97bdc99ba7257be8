/* wide.cu - products of many rows on Hopper's warpgroups, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads has 128 rows of w and N of x.  Two warpgroups unpack weights to 16-bit panels
 * in shared memory, 128 numbers of K at a time (a stage), in turns; two multiply, 64 rows of w
 * each: while the tensor cores work for one, the other adds up.  x comes spread (spread_256,
 * spread_32: the same panels, made once for all rows of w) by bulk copies.
 *
 * Products of halves are exact, and so is the tensor cores' sum while it is an integer below 2^24:
 *
 *   blocks of 32    D = <q, xq>, at most 32 * 128 * 127; then the definition's fused multiply-add.
 *   blocks of 256   the panel of x holds x' = mul xq, at most 2032.  D begins as MAGIC = 1.5 *
 * 2^23, so that its bits are those of MAGIC plus the sum, and runs on over groups as long as the
 * sum stays below 2^22 (RESET numbers); the scales meet its running values P: sum over g of s[g]
 * (P[g] - P[g - 1])  =  sum over g of (s[g] - s[g + 1]) P[g], in integers that may wrap around, one
 * multiply-add for a group. minima          sum over g of min[g] sums[g]: with n = min - 32 and
 * sums = 256 h + l, D = <n, 256 h> + <n, l> is at most 32 * 256 * 2032 < 2^24; + 32 (sum of sums)
 * by one fused multiply-add, which rounds as the conversion of the integer does.
 */
#include "wgmma.cuh"
#include "gemm.cuh"
#include "blocks.cuh"

enum {
    W_ROWS = LODE_WIDE_W, /* of a block of threads */
    STAGES = 3,
    STEP = 128,    /* numbers of K in a stage: two panels */
    UNPACKERS = 2, /* warpgroups */
    W_PANEL = W_ROWS * 128,
};

/* Registers of those that unpack and of those that multiply, for N rows of x. */
template <int N> struct share {
    enum { KEPT = N == 64 ? 104 : 48, TAKEN = N == 64 ? 152 : 208 };
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define MAGIC 0x1.8p23f
enum { MAGIC_BITS = 0x4b400000 };

/* How many numbers of a type D may run over. */
template <class T> struct reset_of {
    enum { N = 128 };
}; /* 15 * 2032 * 128 < 2^22; q2_k, q3_k less */
template <> struct reset_of<q5_k> {
    enum { N = 64 };
}; /* 31 * 2032 * 64 */
template <> struct reset_of<q6_k> {
    enum { N = 64 };
}; /* 32 * 2032 * 64 */
template <> struct reset_of<iq4_xs> {
    enum { N = 16 };
}; /* 127 * 2032 * 16 */
/* Numbers that one multiply-add of scales is for. */
template <class T> struct group_of {
    enum { N = (int)T::GROUP < (int)reset_of<T>::N ? (int)T::GROUP : (int)reset_of<T>::N };
};

/* What comes with a block of x: spread_a256 leaves it behind the block's panels. */
template <int N> struct x_block {
    uint16_t sums[N][32]; /* halves, a panel of 64 bytes: 256 h of 16 groups, l of 16 */
    float d[N], all[N];   /* all: the sum of sums */
};
DEVICE uint32_t sums_piece(uint32_t r, uint32_t piece) { return (piece ^ (r >> 1 & 3)) * 8; }
/* With four blocks of 32: behind their panels. */
template <int N> struct x_quad { float d[4][N], sum[4][N]; };

template <class T, int N> struct __align__(1024) wide_mem {
    uint8_t w[STAGES][2 * W_PANEL];
    uint8_t x[STAGES][2 * N * 128];
    union {
        struct { /* blocks of 256: what belongs to a block comes with the stage of its second half
                  */
            struct x_block<N> x[2];
            uint16_t n[2][W_ROWS][16]; /* halves, a panel of 32 bytes: min - 32 */
            float2 d[2][W_ROWS];
            int8_t s[STAGES][W_ROWS][8]; /* of groups of 16 */
        } k;
        struct {
            struct x_quad<N> x[STAGES];
            float2 d[STAGES][4][W_ROWS];
        } b;
    };
    uint64_t full[STAGES], empty[STAGES];
};
DEVICE uint32_t min_place(uint32_t r, uint32_t g) { return g ^ (r >> 2 & 1) * 8; }

/* gemm_job, with what x's tile and K are here. */
struct wide_job : gemm_job {
    const uint8_t *x; /* its spread tile */
    uint32_t nb, stages;
};

/* ---- those that unpack ---- */

DEVICE uint32_t less(uint32_t a, uint32_t b) { /* halves */
    uint32_t d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
/* Four codes less their offset, as halves: 0x6400 + n are the bits of 1024 + n. */
template <class T> DEVICE uint2 halves_of(uint32_t q) {
    const uint32_t u = q ^ 0x80808080u, zero = (0x6400 + 128 + T::OFFSET) * 0x10001u;
    return make_uint2(less(__byte_perm(u, 0x64646464, 0x4140), zero),
                      less(__byte_perm(u, 0x64646464, 0x4342), zero));
}
/* 16 numbers of row r from k on (within the stage). */
template <class T>
DEVICE void put_codes(uint8_t *panels, uint32_t r, uint32_t k, const uint32_t q[4]) {
    uint8_t *p = panels + k / 64 * W_PANEL;
    const uint32_t c = k % 64 / 8;
    const uint2 a = halves_of<T>(q[0]), b = halves_of<T>(q[1]), d = halves_of<T>(q[2]),
                e = halves_of<T>(q[3]);
    *(uint4 *)(p + in_panel(r, c)) = make_uint4(a.x, a.y, b.x, b.y);
    *(uint4 *)(p + in_panel(r, c + 1)) = make_uint4(d.x, d.y, e.x, e.y);
}

/* A thread's chunk `turn` of a stage: of row 32 turn + .., quarter i of the stage's 128 numbers. */
struct place {
    uint32_t r, i;
};
DEVICE struct place place_of(uint32_t turn) {
    const uint32_t lane = threadIdx.x % 32;
    return {32 * turn + threadIdx.x % 128 / 32 * 8 + lane % 8, lane / 8};
}
template <class T, int N> DEVICE void unpack(struct wide_mem<T, N> *m, const struct wide_job &job,
                                             uint32_t stage, uint32_t slot, uint32_t turn) {
    const struct place at = place_of(turn);
    const uint8_t *row = job.w + (size_t)(at.r < job.w_rows ? at.r : job.w_rows - 1) * job.w_stride;
    struct chunk c;
    if constexpr (T::BLOCK == 256) {
        const uint32_t parity = stage / 2 % 2, half = stage % 2;
        T::chunk_at(c, row, job.nb, stage / 2, (int)(half * 4 + at.i));
        const uint32_t g0 = c.g0 - 8 * half, g1 = c.g1 - 8 * half;
        put_codes<T>(m->w[slot], at.r, 16 * g0, c.q);
        put_codes<T>(m->w[slot], at.r, 16 * g1, c.q + 4);
        m->k.s[slot][at.r][g0] = (int8_t)c.s0, m->k.s[slot][at.r][g1] = (int8_t)c.s1;
        if (T::HAS_M) {
            m->k.n[parity][at.r][min_place(at.r, c.g0)] = f32_f16((float)(c.n0 - 32));
            m->k.n[parity][at.r][min_place(at.r, c.g1)] = f32_f16((float)(c.n1 - 32));
        }
        if (half && at.i == 0)
            m->k.d[parity][at.r] = T::scale_at(row, job.nb, stage / 2);
    } else {
        const uint32_t b =
            stage * 4 + at.i < job.nb ? stage * 4 + at.i : job.nb - 1; /* the end: nobody looks */
        T::chunk_at(c, row, job.nb, b, 0);
        put_codes<T>(m->w[slot], at.r, 32 * at.i, c.q);
        put_codes<T>(m->w[slot], at.r, 32 * at.i + 16, c.q + 4);
        m->b.d[slot][at.i][at.r] = T::scale_at(row, job.nb, b);
    }
}

/* Weights that are read AHEAD numbers of K later, those of LINE numbers, on their way to the second
 * cache. */
enum { AHEAD = 1024, LINE = 256 };
DEVICE void want_line(const uint8_t *p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
template <class T> struct planes_of;
#define PLANES_OF(name, type, block, ...)                                                          \
    template <> struct planes_of<name> {                                                           \
        static __device__ __forceinline__ void want(const uint8_t *row, uint32_t nb, uint32_t k) { \
            constexpr uint32_t planes[][2] = {__VA_ARGS__};                                        \
            const uint32_t b = k / block;                                                          \
            uint32_t before = 0;                                                                   \
            _Pragma("unroll") for (const auto &p : planes) {                                       \
                _Pragma("unroll") for (uint32_t i = 0; i < LINE / block * p[1];                    \
                                       i += 128) if (b * p[1] + i < nb * p[1])                     \
                    want_line(row + (size_t)nb * before + b * p[1] + i);                           \
                before += p[1];                                                                    \
            }                                                                                      \
        }                                                                                          \
    };
LODE_CUDA_QUANT_LIST(PLANES_OF)

/* Copies a stage of x. */
template <class T, int N> DEVICE void bring_x(struct wide_mem<T, N> *m, const struct wide_job &job,
                                              uint32_t stage, uint32_t slot) {
    constexpr uint32_t size = 2 * N * 128;
    if constexpr (T::BLOCK == 256) {
        constexpr uint32_t more = sizeof(struct x_block<N>);
        const uint8_t *from = job.x + (size_t)(stage / 2) * (2 * size + more);
        barrier_expect(&m->full[slot], stage % 2 ? size + more : size);
        bulk_copy(m->x[slot], from + stage % 2 * size, size, &m->full[slot]);
        if (stage % 2)
            bulk_copy(&m->k.x[stage / 2 % 2], from + 2 * size, more, &m->full[slot]);
    } else {
        constexpr uint32_t more = sizeof(struct x_quad<N>);
        const uint8_t *from = job.x + (size_t)stage * (size + more);
        barrier_expect(&m->full[slot], size + more);
        bulk_copy(m->x[slot], from, size, &m->full[slot]);
        bulk_copy(&m->b.x[slot], from + size, more, &m->full[slot]);
    }
}

template <class T, int N>
DEVICE void unpack_all(struct wide_mem<T, N> *m, const struct wide_job &job) {
    const uint32_t group = threadIdx.x / 128, t = threadIdx.x % 128;
    const uint8_t *row = job.w + (size_t)(t < job.w_rows ? t : job.w_rows - 1) * job.w_stride;
    for (uint32_t stage = group; stage < job.stages; stage += UNPACKERS) {
        const uint32_t slot = stage % STAGES;
        if (stage % (LINE / STEP) == 0)
            planes_of<T>::want(row, job.nb, stage * STEP + AHEAD);
        barrier_wait(&m->empty[slot], stage / STAGES % 2 ^ 1);
        if (t == 0)
            bring_x<T, N>(m, job, stage, slot);
#pragma unroll 1
        for (uint32_t turn = 0; turn < 4; turn += 2) {
            unpack<T, N>(m, job, stage, slot, turn);
            unpack<T, N>(m, job, stage, slot, turn + 1);
        }
        stored_for_wgmma();
        barrier_arrive(&m->full[slot]);
    }
}

/* ---- those that multiply ---- */

/* A thread's place in the results: rows `row` and 8 more, columns `column` and one more of each
 * tile of 8. */
struct seat {
    uint32_t half, row, column, quad;
};
DEVICE struct seat seat_of(uint32_t t) {
    const uint32_t lane = t % 32;
    return {t / 128, t / 128 * 64 + t % 128 / 32 * 16 + lane / 4, lane % 4 * 2, lane % 4};
}
template <class M> DEVICE void release(M *m, uint32_t slot) {
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(&m->empty[slot]);
}
DEVICE int scale_of(uint2 s, int g) { /* byte g of eight */
    return (int)(int8_t)((g < 4 ? s.x : s.y) >> g % 4 * 8);
}

/* The products of a stage, group by group, into isum; first: the sum of scales that MAGIC was met
 * with. */
template <class T, int N> DEVICE void multiply_256(struct wide_mem<T, N> *m, const struct seat &at,
                                                   uint32_t slot, float (&d)[N / 2],
                                                   uint32_t (&isum)[N / 2], int first[2]) {
    constexpr int GROUP = group_of<T>::N, GROUPS = STEP / GROUP, RUN = reset_of<T>::N / GROUP;
    const uint64_t w = panel_at(m->w[slot] + at.half * 64 * 128), x = panel_at(m->x[slot]);
    const uint2 s[2] = {*(const uint2 *)m->k.s[slot][at.row],
                        *(const uint2 *)m->k.s[slot][at.row + 8]};
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        int by[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            by[h] = scale_of(s[h], g * GROUP / 16);
            if (g % RUN == 0)
                first[h] += by[h];
            if ((g + 1) % RUN)
                by[h] -= scale_of(s[h], (g + 1) * GROUP / 16);
        }
        if (g % RUN == 0)
#pragma unroll
            for (int e = 0; e < N / 2; e++)
                d[e] = MAGIC;
        wgmma_begin();
#pragma unroll
        for (int k = 0; k < GROUP / 16; k++) {
            const int step = g * (GROUP / 16) + k;
            wgmma_f16(d, w + step / 4 * (W_PANEL >> 4) + step % 4 * PANEL_STEP,
                      x + step / 4 * (N * 128 >> 4) + step % 4 * PANEL_STEP, 1);
        }
        wgmma_end();
        wgmma_wait<0>(d);
#pragma unroll
        for (int e = 0; e < N / 2; e++)
            isum[e] += (uint32_t)by[e % 4 / 2] * __float_as_uint(d[e]);
    }
}

/* The one addition, or two, of a block; d is free. */
template <class T, int N> DEVICE void finish_256(const struct wide_mem<T, N> *m,
                                                 const struct seat &at, uint32_t parity,
                                                 float (&d)[N / 2], const uint32_t (&isum)[N / 2],
                                                 const int first[2], float (&acc)[N / 2]) {
    const struct x_block<N> &x = m->k.x[parity];
    const float2 dw[2] = {m->k.d[parity][at.row], m->k.d[parity][at.row + 8]};
    if (T::HAS_M) {
        const uint64_t n = panel_32_at(m->k.n[parity][at.half * 64]), sums = panel_64_at(x.sums);
        wgmma_begin();
        wgmma_f16(d, n, sums, 0);
        wgmma_f16(d, n, sums + PANEL_STEP, 1);
        wgmma_end();
    }
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
        const float2 dx = *(const float2 *)&x.d[8 * t + at.column];
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int sum = (int)(isum[4 * t + e] - (uint32_t)MAGIC_BITS * (uint32_t)first[e / 2]);
            acc[4 * t + e] = fmaf(dw[e / 2].x * (e % 2 ? dx.y : dx.x), (float)sum, acc[4 * t + e]);
        }
    }
    if (!T::HAS_M)
        return;
    wgmma_wait<0>(d);
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
        const float2 dx = *(const float2 *)&x.d[8 * t + at.column];
        const float2 all = *(const float2 *)&x.all[8 * t + at.column];
#pragma unroll
        for (int e = 0; e < 4; e++)
            acc[4 * t + e] = fmaf(-(dw[e / 2].y * (e % 2 ? dx.y : dx.x)),
                                  fmaf(32, e % 2 ? all.y : all.x, d[4 * t + e]), acc[4 * t + e]);
    }
}

template <int N> DEVICE void begin_quad(float (&d)[N / 2], uint64_t w, uint64_t x, int g) {
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma_f16(d, w + g / 2 * (W_PANEL >> 4) + (g % 2 * 2 + k) * PANEL_STEP,
                  x + g / 2 * (N * 128 >> 4) + (g % 2 * 2 + k) * PANEL_STEP, k);
    wgmma_end();
}
template <class T, int N> DEVICE void add_32(const struct wide_mem<T, N> *m, const struct seat &at,
                                             uint32_t slot, int g, const float (&d)[N / 2],
                                             float (&acc)[N / 2]) {
    const struct x_quad<N> &x = m->b.x[slot];
    const float2 dw[2] = {m->b.d[slot][g][at.row], m->b.d[slot][g][at.row + 8]};
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
        const float2 dx = *(const float2 *)&x.d[g][8 * t + at.column];
        const float2 sum = T::HAS_M ? *(const float2 *)&x.sum[g][8 * t + at.column] : dx;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float by = e % 2 ? dx.y : dx.x;
            float v = fmaf(dw[e / 2].x * by, d[4 * t + e], acc[4 * t + e]);
            if (T::HAS_M)
                v = fmaf(dw[e / 2].y * by, e % 2 ? sum.y : sum.x, v);
            acc[4 * t + e] = v;
        }
    }
}
/* n blocks of 32; of four, each product is begun before the last one's is added. */
template <class T, int N> DEVICE void multiply_32(struct wide_mem<T, N> *m, const struct seat &at,
                                                  uint32_t slot, uint32_t n, float (&acc)[N / 2]) {
    const uint64_t w = panel_at(m->w[slot] + at.half * 64 * 128), x = panel_at(m->x[slot]);
    float d[N / 2], e[N / 2];
    if (n == 4) {
        begin_quad<N>(d, w, x, 0);
        begin_quad<N>(e, w, x, 1);
        wgmma_wait<1>(d);
        add_32<T, N>(m, at, slot, 0, d, acc);
        begin_quad<N>(d, w, x, 2);
        wgmma_wait<1>(e);
        add_32<T, N>(m, at, slot, 1, e, acc);
        begin_quad<N>(e, w, x, 3);
        wgmma_wait<1>(d);
        add_32<T, N>(m, at, slot, 2, d, acc);
        wgmma_wait<0>(e);
        add_32<T, N>(m, at, slot, 3, e, acc);
        return;
    }
#pragma unroll 1
    for (uint32_t g = 0; g < n; g++) {
        begin_quad<N>(d, w, x, (int)g);
        wgmma_wait<0>(d);
        add_32<T, N>(m, at, slot, (int)g, d, acc);
    }
}

template <class T, int N>
DEVICE void store(const struct wide_job &job, const struct seat &at, const float (&acc)[N / 2]) {
    const float bias[2] = {job.bias && at.row < job.w_rows ? job.bias[at.row] : 0,
                           job.bias && at.row + 8 < job.w_rows ? job.bias[at.row + 8] : 0};
#pragma unroll
    for (int t = 0; t < N / 8; t++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t x = 8 * t + at.column + c;
            if (x >= job.x_rows)
                continue;
            float *y = (float *)(job.y + y_row(job, x) * job.y_stride);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float v = acc[4 * t + 2 * h + c];
                if (at.row + 8 * h < job.w_rows)
                    y[at.row + 8 * h] = job.bias ? v + bias[h] : v;
            }
        }
}

template <class T, int N>
DEVICE void multiply_all(struct wide_mem<T, N> *m, const struct wide_job &job) {
    const struct seat at = seat_of(threadIdx.x - 128 * UNPACKERS);
    uint32_t slot = 0, parity = 0;
    float acc[N / 2];
#pragma unroll
    for (int e = 0; e < N / 2; e++)
        acc[e] = 0;
    if constexpr (T::BLOCK == 256) {
        for (uint32_t b = 0; b < job.nb; b++) {
            float d[N / 2];
            uint32_t isum[N / 2];
            int first[2] = {0, 0};
#pragma unroll
            for (int e = 0; e < N / 2; e++)
                isum[e] = 0;
#pragma unroll 1
            for (uint32_t half = 0; half < 2; half++) {
                barrier_wait(&m->full[slot], parity);
                multiply_256<T, N>(m, at, slot, d, isum, first);
                if (half)
                    finish_256<T, N>(m, at, b % 2, d, isum, first, acc);
                release(m, slot);
                if (++slot == STAGES)
                    slot = 0, parity ^= 1;
            }
        }
    } else {
        for (uint32_t stage = 0; stage < job.stages; stage++) {
            barrier_wait(&m->full[slot], parity);
            multiply_32<T, N>(m, at, slot, job.nb - stage * 4 < 4 ? job.nb - stage * 4 : 4, acc);
            release(m, slot);
            if (++slot == STAGES)
                slot = 0, parity ^= 1;
        }
    }
    store<T, N>(job, at, acc);
}

template <class T, int N> DEVICE void wide(const struct lode_cuda_gemm_args &a) {
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    typedef struct wide_mem<T, N> mem;
    mem *m = (mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + 1024 <= LODE_WIDE_SHARED, "shared.h");
    struct wide_job job;
    begin();
    if (!find_job(job, a, W_ROWS, N))
        return;
    job.x = at<const uint8_t>(a.x.data) + blockIdx.x * a.x.stride;
    job.nb = a.cols / T::BLOCK;
    job.stages = (a.cols + STEP - 1) / STEP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&m->full[i], 128);
            barrier_init(&m->empty[i], 8);
        }
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x < 128 * UNPACKERS) {
        keep_registers<share<N>::KEPT>();
        unpack_all<T, N>(m, job);
    } else {
        take_registers<share<N>::TAKEN>();
        multiply_all<T, N>(m, job);
    }
}

#define WIDE_OF(name, n)                                                                           \
    extern "C" __global__ void __launch_bounds__(LODE_WIDE_THREADS, 1)                             \
        wide_##name##_##n(const __grid_constant__ struct lode_cuda_gemm_args a) {                  \
        wide<struct name, n>(a);                                                                   \
    }
#define WIDE(name, type, block, ...) WIDE_OF(name, 64) WIDE_OF(name, 128)
static_assert(LODE_WIDE_THREADS == 128 * (2 + UNPACKERS), "shared.h");
LODE_CUDA_QUANT_LIST(WIDE)

/* ---- x ---- */

/* The row that place i of tile t has; tiles' rows that do not exist repeat the last. */
DEVICE const uint8_t *spread_row(const struct lode_cuda_spread_args &a, uint32_t t, uint32_t i) {
    if (!a.tiles) {
        const uint32_t r = t * a.tile + i;
        return row_at<const uint8_t>(a.x, r < a.n_x ? r : a.n_x - 1);
    }
    const struct lode_cuda_gemm_tile tile = at<const struct lode_cuda_gemm_tile>(a.tiles)[1 + t];
    return row_at<const uint8_t>(
        a.x, at<const uint32_t>(a.list)[tile.first + (i < tile.n ? i : tile.n - 1)] / a.x_div);
}
DEVICE uint16_t half_of(int v) { return f32_f16((float)v); }

/* A warp a block of 256 of a row; blockIdx.x: a row of a tile. */
template <int N> DEVICE void spread_256(const struct lode_cuda_spread_args &a) {
    const uint32_t t = blockIdx.x / N, r = blockIdx.x % N, b = blockIdx.y * 8 + threadIdx.x / 32,
                   lane = threadIdx.x % 32;
    begin();
    if (b >= a.cols / 256 || (a.tiles && t >= *at<const uint32_t>(a.tiles)))
        return;
    const uint8_t *from = spread_row(a, t, r) + (size_t)b * 304;
    uint8_t *to =
        at<uint8_t>(a.y) + t * a.tile_size + (size_t)b * (4 * N * 128 + sizeof(struct x_block<N>));
    struct x_block<N> *more = (struct x_block<N> *)(to + 4 * N * 128);
    const uint2 q = *(const uint2 *)(from + 48 + 8 * lane);
    const int m = from[4 + lane / 4];
    uint16_t x[8];
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = half_of(m * (int)(int8_t)((i < 4 ? q.x : q.y) >> i % 4 * 8));
    *(uint4 *)(to + lane / 8 * (N * 128) + in_panel(r, lane % 8)) =
        make_uint4(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16,
                   x[4] | (uint32_t)x[5] << 16, x[6] | (uint32_t)x[7] << 16);
    int sum = 0;
    if (lane < 16) {
        sum = *(const int16_t *)(from + 16 + 2 * lane);
        const int high = (sum + 128) >> 8;
        more->sums[r][sums_piece(r, lane / 8) + lane % 8] = half_of(256 * high);
        more->sums[r][sums_piece(r, 2 + lane / 8) + lane % 8] = half_of(sum - 256 * high);
    }
    for (int w = 8; w; w /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, w);
    if (lane == 0) {
        more->d[r] = *(const float *)from;
        more->all[r] = (float)sum;
    }
}
/* Four blocks of 32. */
template <int N> DEVICE void spread_32(const struct lode_cuda_spread_args &a) {
    const uint32_t t = blockIdx.x / N, r = blockIdx.x % N,
                   stage = blockIdx.y * 8 + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, i = lane / 8, k = lane % 8, nb = a.cols / 32;
    begin();
    if (stage * 4 >= nb || (a.tiles && t >= *at<const uint32_t>(a.tiles)))
        return;
    const uint32_t b = stage * 4 + i < nb ? stage * 4 + i : nb - 1;
    const uint8_t *from = spread_row(a, t, r) + (size_t)b * 40;
    uint8_t *to = at<uint8_t>(a.y) + t * a.tile_size +
                  (size_t)stage * (2 * N * 128 + sizeof(struct x_quad<N>));
    struct x_quad<N> *more = (struct x_quad<N> *)(to + 2 * N * 128);
    const uint32_t q = *(const uint32_t *)(from + 8 + 4 * k);
    uint16_t x[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        x[n] = half_of((int)(int8_t)(q >> n * 8));
    *(uint2 *)(to + i / 2 * (N * 128) + in_panel(r, i % 2 * 4 + k / 2) + k % 2 * 8) =
        make_uint2(x[0] | (uint32_t)x[1] << 16, x[2] | (uint32_t)x[3] << 16);
    if (k == 0) {
        more->d[i][r] = *(const float *)from;
        more->sum[i][r] = (float)*(const int *)(from + 4);
    }
}
static_assert(sizeof(struct x_block<128>) == 128 * 72 && sizeof(struct x_quad<64>) == 64 * 32,
              "shared.h's sizes");

#define SPREAD(n)                                                                                  \
    KERNEL(256) spread_256_##n(const __grid_constant__ struct lode_cuda_spread_args a) {           \
        spread_256<n>(a);                                                                          \
    }                                                                                              \
    KERNEL(256) spread_32_##n(const __grid_constant__ struct lode_cuda_spread_args a) {            \
        spread_32<n>(a);                                                                           \
    }
SPREAD(64)
SPREAD(128)

#endif
