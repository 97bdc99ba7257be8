/* wide_exact.cuh - products of many rows on Hopper's warpgroups, bit for bit kern/mul_scalar.c's.
 *
 * A block of threads has 128 rows of w and N of x.  Two warpgroups multiply, 64 rows of w each: while the
 * tensor cores work for one, the other unpacks or adds up.  A third brings what they need, items of weights
 * as few.cuh has them (items.cuh), which every warp unpacks into its own registers, and x, which was spread
 * (spread_256, spread_32: in the order and swizzle of wgmma's operands, once for all rows of w).
 *
 *   blocks of 256   w' = scale (q - OFFSET), |w'| <= 4096, and x' = mul xq, |x'| <= 2032, are numbers of 16
 *                   bits: w' = 256 h + l of a signed and an unsigned byte, x' likewise.  isum = 65536 <h, h> +
 *                   256 (<h, l> + <l, h>) + <l, l>: four products of bytes whose sums stay in the same 32-bit
 *                   accumulators, shifted in between, wrap around, and come out as the same integer.
 *   minima          sum over g of min[g] sums[g], in halves, whose sums are exact below 2^24: with n = min -
 *                   32 and sums = 256 h + l, D = <n, 256 h> + <n, l> is at most 32 * 256 * 2032 < 2^24;
 *                   + 32 (sum of sums) by one fused multiply-add, which rounds as the integer's conversion.
 *   blocks of 32    D = <q, xq> in halves, at most 32 * 128 * 127; then the definition's fused multiply-add.
 *
 * Where gate and up are multiplied with each other a tile has 64 rows of both, of each sixteen eight of gate and the
 * same eight of up: so a thread has both.
 */
#ifndef LODE_CUDA_WIDE_EXACT_CUH
#define LODE_CUDA_WIDE_EXACT_CUH

#include "wide_store.cuh"
#include "wide.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What comes with a block of x: spread_256 leaves it behind the block's bytes. */
template <int N> struct x_block {
    uint16_t sums[N][32]; /* halves, a panel of 64 bytes: 256 h of 16 groups, l of 16 */
    float d[N], all[N];   /* all: the sum of sums */
};
DEVICE uint32_t sums_piece(uint32_t r, uint32_t piece) { return (piece ^ (r >> 1 & 3)) * 8; }
/* With four blocks of 32: behind their halves. */
template <int N> struct x_quad { float d[4][N], sum[4][N]; };

/* x comes in parts of 256 bytes a row: the high bytes of a block of 256, then its low ones; four blocks of 32. */
template <int BLOCK, int N> struct x_parts {
    enum {
        SIZE = N * 256,
        PARTS = N == 64 ? 8 : 4, /* on their way or in use */
        MORE = BLOCK == 256 ? sizeof(struct x_block<N>) : sizeof(struct x_quad<N>),
        MORE_EACH = BLOCK == 256 ? 2 : 1, /* parts that `more` comes once for, with the last */
    };
};

template <class T, int N> struct __align__(1024) wide_mem {
    typedef struct x_parts<T::BLOCK, N> parts;
    uint8_t x[parts::PARTS][parts::SIZE];
    __align__(128) uint8_t more[parts::PARTS / parts::MORE_EACH][(parts::MORE + 255) & ~255];
    uint8_t w[ITEMS][W_ROWS / 16][item_of<T>::SIZE];
    uint64_t x_full[parts::PARTS], x_empty[parts::PARTS], w_full[ITEMS], w_empty[ITEMS];
};

/* ---- those that copy ---- */

/* Part i of x, by one thread. */
template <class T, int N>
DEVICE void bring_x(struct wide_mem<T, N> *m, const struct wide_job &job, uint32_t i, struct ring &r) {
    typedef struct x_parts<T::BLOCK, N> parts;
    const bool more = (i + 1) % parts::MORE_EACH == 0;
    const uint8_t *from = job.x + (size_t)i * parts::SIZE + i / parts::MORE_EACH * (size_t)parts::MORE;
    barrier_wait(&m->x_empty[r.at], r.parity);
    barrier_expect(&m->x_full[r.at], more ? parts::SIZE + parts::MORE : parts::SIZE);
    bulk_copy(m->x[r.at], from, parts::SIZE, &m->x_full[r.at]);
    if (more)
        bulk_copy(m->more[r.at / parts::MORE_EACH], from + parts::SIZE, parts::MORE, &m->x_full[r.at]);
    barrier_arrive(&m->x_full[r.at]);
    next_of<parts::PARTS>(r);
}
template <class T, int N, class J>
DEVICE void bring_all(struct wide_mem<T, N> *m, const J &job, struct ring &w, struct ring &x) {
    const uint32_t n_x = T::BLOCK == 256 ? 2 * job.nb : (job.nb + 3) / 4;
    for (uint32_t b = 0; b < job.items; b++, next_of<ITEMS>(w)) {
        barrier_wait(&m->w_empty[w.at], w.parity);
        bring_item<T>(m->w[w.at], job, b);
        barrier_arrive_copied(&m->w_full[w.at]);
        for (uint32_t i = 2 * b; threadIdx.x == MULTIPLIERS && i < n_x && i < 2 * b + 2; i++)
            bring_x<T, N>(m, job, i, x);
        __syncwarp();
    }
}

/* ---- those that multiply ---- */

/* Step k of eight, 32 bytes each, of a part of x. */
template <int N> DEVICE uint64_t step_of(uint64_t x, int k) {
    return x + k / 4 * (N * 128 >> 4) + k % 4 * PANEL_STEP;
}

DEVICE uint32_t less(uint32_t a, uint32_t b) { /* halves */
    uint32_t d;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
/* Four bytes less `zero` as halves, each thread's of a half of 16 of K: 0x6400 + n are the bits of 1024 + n. */
DEVICE uint2 halves_of(uint32_t u, uint32_t zero) {
    zero = (0x6400 + zero) * 0x10001u;
    return make_uint2(less(__byte_perm(u, 0x64646464, 0x4140), zero),
                      less(__byte_perm(u, 0x64646464, 0x4342), zero));
}

/* Where codes are signed bytes, and where w' is. */
template <class T> struct sign_of { enum { CODES = 0, W = !T::HAS_M }; };
template <> struct sign_of<struct iq4_xs> { enum { CODES = 1, W = 1 }; };

/* w' of an item: its high bytes and its low ones, step by step. */
template <class T> DEVICE void unpack(uint32_t (&high)[8][4], uint32_t (&low)[8][4], const uint8_t *slot,
                                      const struct row_scales z[2]) {
    const T *const type = NULL;
    constexpr uint32_t ZERO = T::OFFSET + (sign_of<T>::CODES ? 128 : 0), BIAS = sign_of<T>::W ? 0x8000 : 0,
                       EVEN = 0x00ff00ff, SIGNS = 0x80808080;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[2][4];
        pair_words(type, slot, p, u[0], u[1]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = 2 * p + i / 4;
            const uint32_t q = sign_of<T>::CODES ? u[i / 4][i % 4] ^ SIGNS : u[i / 4][i % 4];
            const uint32_t s = (uint32_t)scale_of(type, z[i % 2], T::GROUP == 16 ? 2 * k + i % 4 / 2 : k);
            const uint32_t add = (BIAS - ZERO * s) * 0x10001u;
            const uint32_t a = (q & EVEN) * s + add, b = (q >> 8 & EVEN) * s + add;
            low[k][i % 4] = __byte_perm(a, b, 0x6240);
            high[k][i % 4] = sign_of<T>::W ? __byte_perm(a, b, 0x7351) ^ SIGNS : __byte_perm(a, b, 0x7351);
        }
    }
}

/* In place: what the compiler may choose costs 64 registers more. */
template <int N> DEVICE void shift(uint32_t (&d)[N]) {
    EVERY(e, N)
        asm volatile("shl.b32 %0, %0, 8;" : "+r"(d[e]));
}
/* The first addition of a block. */
template <int N>
DEVICE void add_products(const struct x_block<N> *x, uint32_t column, const struct row_scales z[2],
                         const uint32_t (&d)[N / 2], float (&acc)[N / 2]) {
    EVERY(t, N / 8) {
        const float2 dx = *(const float2 *)&x->d[8 * t + column];
        EVERY(e, 4)
            acc[4 * t + e] = fmaf(z[e / 2].d.x * (e % 2 ? dx.y : dx.x), (float)(int)d[4 * t + e], acc[4 * t + e]);
    }
}
/* The second, of types with minima; n: they less 32, of the thread. */
template <int N>
DEVICE void add_minima(const struct x_block<N> *x, uint32_t column, const struct row_scales z[2],
                       const uint32_t (&n)[4], uint64_t sums, float (&acc)[N / 2]) {
    float side[N / 2];
    wgmma_begin();
    wgmma_f16(side, n, sums, 0);
    wgmma_f16(side, n, sums + PANEL_STEP, 1);
    wgmma_end();
    wgmma_wait<0>(side);
    EVERY(t, N / 8) {
        const float2 dx = *(const float2 *)&x->d[8 * t + column];
        const float2 all = *(const float2 *)&x->all[8 * t + column];
        EVERY(e, 4)
            acc[4 * t + e] = fmaf(-(z[e / 2].d.y * (e % 2 ? dx.y : dx.x)),
                                  fmaf(32, e % 2 ? all.y : all.x, side[4 * t + e]), acc[4 * t + e]);
    }
}

/* last: there is no tile after this. */
template <class T, int N>
DEVICE void multiply_256(struct wide_mem<T, N> *m, const struct wide_job &job, const struct seat &at,
                         float (&acc)[N / 2], struct ring &w, struct ring &x, bool last) {
    typedef struct x_parts<256, N> parts;
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
#pragma unroll 1
    for (uint32_t b = 0; b < job.nb; b++, next_of<ITEMS>(w)) {
        uint32_t d[N / 2], high[8][4], low[8][4], n[4];
        const uint8_t *slot = m->w[w.at][at.warp];
        barrier_wait(&m->w_full[w.at], w.parity);
        const struct row_scales z[2] = {scales_of(type, slot, r, b), scales_of(type, slot, r + 8, b)};
        unpack<T>(high, low, slot, z);
        release(&m->w_empty[w.at]);
        EVERY(h, 2) {
            const uint2 v = halves_of(z[h].own, 32);
            n[h] = v.x, n[2 + h] = v.y;
        }
        const uint32_t first = x.at;
        const uint64_t x_high = panel_at(m->x[x.at]);
        barrier_wait(&m->x_full[x.at], x.parity);
        next_of<parts::PARTS>(x);
        const uint64_t x_low = panel_at(m->x[x.at]);
        const struct x_block<N> *more = (const struct x_block<N> *)m->more[x.at / 2];
        const uint64_t sums = panel_64_at(more->sums);

        await_turn();
        wgmma_begin();
        EVERY(k, 8)
            wgmma_ss(d, high[k], step_of<N>(x_high, k), k);
        wgmma_end();
        barrier_wait(&m->x_full[x.at], x.parity);
        wgmma_wait<0>(d);
        shift(d);
        wgmma_begin();
        EVERY(k, 8)
            wgmma_us(d, low[k], step_of<N>(x_high, k), 1);
        EVERY(k, 8)
            wgmma_su(d, high[k], step_of<N>(x_low, k), 1);
        wgmma_end();
        wgmma_wait<0>(d);
        release(&m->x_empty[first]);
        shift(d);
        wgmma_begin();
        EVERY(k, 8)
            wgmma_uu(d, low[k], step_of<N>(x_low, k), 1);
        wgmma_end();
        if (threadIdx.x < 128 || !last || b + 1 < job.nb) /* nobody awaits a turn after the last */
            give_turn();
        wgmma_wait<0>(d);
        add_products<N>(more, at.column, z, d, acc);
        if (T::HAS_M)
            add_minima<N>(more, at.column, z, n, sums, acc);
        release(&m->x_empty[x.at]);
        next_of<parts::PARTS>(x);
    }
}

/* Block g of four of a part: codes as halves, and their product begun. */
template <class T, int N> DEVICE void begin_32(float (&d)[N / 2], uint32_t (&h)[2][4], const uint32_t u[4], uint64_t x,
                                               int g) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint2 v = halves_of(u[i] ^ 0x80808080u, 128 + T::OFFSET);
        h[i / 2][i % 2] = v.x, h[i / 2][2 + i % 2] = v.y;
    }
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 2; k++)
        wgmma_f16(d, h[k], x + g / 2 * (N * 128 >> 4) + (g % 2 * 2 + k) * PANEL_STEP, k);
    wgmma_end();
}
template <class T, int N> DEVICE void add_32(const struct x_quad<N> *x, const struct seat &at, const uint8_t *slot,
                                             int k, const float (&d)[N / 2], float (&acc)[N / 2]) {
    const uint32_t r = threadIdx.x % 32 / 4;
    const float2 dw[2] = {block_scale<T>(slot, r, k), block_scale<T>(slot, r + 8, k)};
#pragma unroll
    for (int t = 0; t < N / 8; t++) {
        const float2 dx = *(const float2 *)&x->d[k % 4][8 * t + at.column];
        const float2 sum = T::HAS_M ? *(const float2 *)&x->sum[k % 4][8 * t + at.column] : dx;
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
/* n blocks of 32 of an item; of a whole part of x, each product is begun before the last one's is added. */
template <class T, int N> DEVICE void multiply_32(struct wide_mem<T, N> *m, const struct wide_job &job,
                                                  const struct seat &at, float (&acc)[N / 2], struct ring &w,
                                                  struct ring &x) {
    typedef struct x_parts<32, N> parts;
    const T *const type = NULL;
    const uint32_t n = (job.nb + 3) / 4;
#pragma unroll 1
    for (uint32_t i = 0; i < n; i++, next_of<parts::PARTS>(x)) {
        const int half = i % 2 * 4;
        const uint8_t *slot = m->w[w.at][at.warp];
        const struct x_quad<N> *more = (const struct x_quad<N> *)m->more[x.at];
        const uint64_t panel = panel_at(m->x[x.at]);
        float d[N / 2], e[N / 2];
        uint32_t u[4], v[4], hd[2][4], he[2][4];
        if (half == 0)
            barrier_wait(&m->w_full[w.at], w.parity);
        barrier_wait(&m->x_full[x.at], x.parity);
        pair_words(type, slot, half / 2, u, v);
        if (job.nb - 4 * i >= 4) {
            begin_32<T, N>(d, hd, u, panel, 0);
            begin_32<T, N>(e, he, v, panel, 1);
            pair_words(type, slot, half / 2 + 1, u, v);
            wgmma_wait<1>(d);
            add_32<T, N>(more, at, slot, half, d, acc);
            begin_32<T, N>(d, hd, u, panel, 2);
            wgmma_wait<1>(e);
            add_32<T, N>(more, at, slot, half + 1, e, acc);
            begin_32<T, N>(e, he, v, panel, 3);
            wgmma_wait<1>(d);
            add_32<T, N>(more, at, slot, half + 2, d, acc);
            wgmma_wait<0>(e);
            add_32<T, N>(more, at, slot, half + 3, e, acc);
        } else {
#pragma unroll
            for (int g = 0; g < 3; g++) {
                if (4 * i + g >= job.nb)
                    break;
                if (g == 2)
                    pair_words(type, slot, half / 2 + 1, u, v);
                begin_32<T, N>(d, hd, g == 1 ? v : u, panel, g);
                wgmma_wait<0>(d);
                add_32<T, N>(more, at, slot, half + g, d, acc);
            }
        }
        release(&m->x_empty[x.at]);
        if (half || i + 1 == n) {
            release(&m->w_empty[w.at]);
            next_of<ITEMS>(w);
        }
    }
}

/* Unit u of all tiles of x and of w: those of x first.  other: as w, of the second part. */
template <bool GATED> struct exact_unit : wide_job {
    enum { PAIRED = GATED };
    const uint8_t *other;
};
template <int N, bool GATED>
DEVICE void find_exact_unit(struct exact_unit<GATED> &job, const struct lode_cuda_gemm_args &a, uint32_t u,
                            uint32_t x_tiles) {
    const uint32_t x_tile = u % x_tiles;
    find_job(job, a, GATED ? W_ROWS / 2 : W_ROWS, N, x_tile, u / x_tiles);
    job.other = GATED ? at<const uint8_t>(a.parts[1].w) + (job.w - at<const uint8_t>(a.parts[0].w)) : NULL;
    job.x = at<const uint8_t>(a.x.data) + x_tile * a.x.stride;
}

/* Rows that are sorted by expert, to wherever they came from. */
template <int N> DEVICE void store_sorted(const struct wide_job &job, const struct seat &at, const float (&acc)[N / 2]) {
#pragma unroll
    for (int t = 0; t < N / 8; t++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const uint32_t x = 8 * t + at.column + c;
            if (x >= job.x_rows)
                continue;
            float *y = (float *)(job.y + y_row(job, x) * job.y_stride);
#pragma unroll
            for (int h = 0; h < 2; h++)
                if (at.row + 8 * h < job.w_rows)
                    y[at.row + 8 * h] = acc[4 * t + 2 * h + c];
        }
}
template <int N> DEVICE void add_bias(const struct wide_job &job, const struct seat &at, float (&acc)[N / 2]) {
    if (!job.bias)
        return;
    const float bias[2] = {at.row < job.w_rows ? job.bias[at.row] : 0, at.row + 8 < job.w_rows ? job.bias[at.row + 8] : 0};
    EVERY(e, N / 2)
        acc[e] += bias[e % 4 / 2];
}
template <class T, int N>
DEVICE void store_unit(const struct exact_unit<false> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                       float (&acc)[N / 2]) {
    add_bias<N>(job, at, acc);
    if (f.g.tiles) {
        store_sorted<N>(job, at, acc);
        return;
    }
    struct results_place p = {job.y + job.first_x * job.y_stride, NULL, job.y_stride, f.end.residual_stride, job.w_rows,
                              job.x_rows};
    if (f.end.output == LODE_GEMV_ADD) /* of one part */
        p.residual = (const uint8_t *)f.end.residual + job.first_x * p.residual_stride +
                     (job.y - (const uint8_t *)f.g.parts[0].y);
    store_results<N, T::BLOCK == 256 ? 8 : 4>(p, f.end, acc, at.row); /* of blocks of 32 more spill */
}
/* Gate and up, which have no biases, multiplied with each other. */
template <class T, int N>
DEVICE void store_unit(const struct exact_unit<true> &job, const struct lode_cuda_packed_args &f, const struct seat &at,
                       const float (&acc)[N / 2]) {
    store_gated<N>({job.y + job.first_x * job.y_stride, NULL, job.y_stride, 0, job.w_rows, job.x_rows}, f.end.act, at.row,
                   [&](int i) { return acc[i]; });
}

template <class T, int N, bool GATED> DEVICE void wide(const struct lode_cuda_packed_args &f) {
    const struct lode_cuda_gemm_args &a = f.g;
    extern __shared__ __align__(1024) uint8_t wide_bytes[];
    typedef struct wide_mem<T, N> mem;
    mem *m = (mem *)(wide_bytes + (-shared_address(wide_bytes) & 1023));
    static_assert(sizeof *m + 1024 <= LODE_WIDE_SHARED, "shared.h");
    if (threadIdx.x == 0) {
        for (int i = 0; i < mem::parts::PARTS; i++) {
            barrier_init(&m->x_full[i], 1);
            barrier_init(&m->x_empty[i], MULTIPLIERS / 32);
        }
        for (int i = 0; i < ITEMS; i++) {
            barrier_init(&m->w_full[i], COPIERS);
            barrier_init(&m->w_empty[i], MULTIPLIERS / 32);
        }
        barriers_made();
    }
    begin();
    __syncthreads();
    const uint32_t x_tiles = a.tiles ? *at<const uint32_t>(a.tiles) : (a.n_x + N - 1) / N, units = x_tiles * a.w_tiles;
    struct exact_unit<GATED> job;
    job.nb = a.cols / T::BLOCK;
    job.items = (a.cols + ITEM - 1) / ITEM;
    if (threadIdx.x >= MULTIPLIERS) {
        struct ring w = {0, 1}, x = {0, 1};
        keep_registers<KEPT>();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            find_exact_unit<N>(job, a, u, x_tiles);
            bring_all<T, N>(m, job, w, x);
        }
    } else {
        struct ring w = {0, 0}, x = {0, 0};
        const struct seat at = seat_of(threadIdx.x);
        take_registers<TAKEN>();
        if (T::BLOCK == 256 && blockIdx.x < units)
            begin_turns();
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            find_exact_unit<N>(job, a, u, x_tiles);
            float acc[N / 2];
            EVERY(e, N / 2)
                acc[e] = 0;
            if constexpr (T::BLOCK == 256)
                multiply_256<T, N>(m, job, at, acc, w, x, u + gridDim.x >= units);
            else
                multiply_32<T, N>(m, job, at, acc, w, x);
            store_unit<T, N>(job, f, at, acc);
        }
    }
}

#endif
#endif
