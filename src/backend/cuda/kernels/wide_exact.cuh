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
 *   blocks of 32    <q, xq> in bytes, one product for a block; then the definition's fused multiply-add.
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
    float d[N], all[N];   /* all: the sum of sums; where place_of_scale says */
};
DEVICE uint32_t sums_piece(uint32_t r, uint32_t piece) { return (piece ^ (r >> 1 & 3)) * 8; }
/* With four blocks of 32: behind their bytes. */
template <int N> struct x_quad { float d[4][N], sum[4][N]; };

/* Where a number of row r of x lies: what a thread wants for two tiles of eight rows is 16 bytes. */
DEVICE uint32_t place_of_scale(uint32_t r) { return r / 16 * 16 + r % 8 / 2 * 4 + r / 8 % 2 * 2 + r % 2; }

/* x comes in parts: the high bytes of a block of 256, then its low ones; four blocks of 32. */
template <int BLOCK, int N> struct x_parts {
    enum {
        SIZE = N * (BLOCK == 256 ? 256 : 128),
        PARTS = N == 64 ? 8 : BLOCK == 256 ? 4 : 6, /* on their way or in use */
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
template <int N> DEVICE uint32_t step_of(uint32_t x, int k) { return x + k / 4 * PANEL_ROWS(N) + k % 4 * PANEL_STEP; }

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

/* w' = high 2^SHIFT + low.  Of small scales and codes without signs each digit is a digit of the scale times the code: one
 * multiplication for four of them, as none leaves its byte.  Else the digits are w's two bytes. */
template <class T> struct digit_of { enum { SHIFT = 8 }; };
template <> struct digit_of<struct q4_k> { enum { SHIFT = 4 }; }; /* at most 15 3 and 15 15 */
template <> struct digit_of<struct q5_k> { enum { SHIFT = 3 }; }; /* 31 7 */

/* Where codes are signed bytes, and where w' is. */
template <class T> struct sign_of { enum { CODES = 0, W = !T::HAS_M }; };
template <> struct sign_of<struct iq4_xs> { enum { CODES = 1, W = 1 }; };

/* w' of an item: its high digits and its low ones, step by step. */
template <class T> DEVICE void unpack_digits(uint32_t (&high)[8][4], uint32_t (&low)[8][4], const uint8_t *slot,
                                             const struct row_scales z[2]) {
    enum { SHIFT = digit_of<T>::SHIFT };
    const T *const type = NULL;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[2][4];
        pair_words(type, slot, p, u[0], u[1]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = 2 * p + i / 4;
            const uint32_t s = z[i % 2].s[k / 4];
            const uint32_t above = s >> SHIFT & (63 >> SHIFT) * 0x01010101u, below = s & ((1 << SHIFT) - 1) * 0x01010101u;
            high[k][i % 4] = u[i / 4][i % 4] * (above >> 8 * (k % 4) & 255);
            low[k][i % 4] = u[i / 4][i % 4] * (below >> 8 * (k % 4) & 255);
        }
    }
}
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

/* Columns of blocks of 256 are multiplied in pieces of 64, so that the tensor cores have one while the other's
 * sums are shifted or added up.  A thread has 32 results of a piece. */
enum { PIECE = 64, OF_PIECE = PIECE / 2 };

/* In place: what the compiler may choose costs 64 registers more. */
template <int BY> DEVICE void shift(uint32_t (&d)[OF_PIECE]) {
    EVERY(e, OF_PIECE)
        asm volatile("shl.b32 %0, %0, %1;" : "+r"(d[e]) : "n"(BY));
}
/* w's high digits have signs where they are bytes. */
template <int SHIFT> DEVICE void high_by_signed(uint32_t (&d)[OF_PIECE], const uint32_t (&w)[4], uint32_t x, int add) {
    if (SHIFT == 8)
        wgmma_ss(d, w, x, add);
    else
        wgmma_us(d, w, x, add);
}
template <int SHIFT> DEVICE void high_by_unsigned(uint32_t (&d)[OF_PIECE], const uint32_t (&w)[4], uint32_t x) {
    if (SHIFT == 8)
        wgmma_su(d, w, x, 1);
    else
        wgmma_uu(d, w, x, 1);
}
/* What a thread wants of two tiles of eight columns. */
struct four { float of[4]; };
DEVICE struct four four_of(const float *by, const struct seat &at, int two_tiles) {
    const float4 v = ((const float4 *)by)[4 * two_tiles + at.column / 2];
    return {{v.x, v.y, v.z, v.w}};
}
/* The first addition of a block; xd: of the piece's first column. */
DEVICE void add_products(const float *xd, const struct seat &at, const float (&dw)[2], const uint32_t (&d)[OF_PIECE],
                         float *acc) {
    EVERY(t, PIECE / 16) {
        const struct four dx = four_of(xd, at, t);
        EVERY(e, 8)
            acc[8 * t + e] = fmaf(dw[e % 4 / 2] * dx.of[e / 4 * 2 + e % 2], (float)(int)d[8 * t + e], acc[8 * t + e]);
    }
}
/* The second, of types with minima; side: sums of their products as far as halves hold them (begin_minima). */
DEVICE void add_minima(const float *xd, const float *xall, const struct seat &at, const float (&dm)[2],
                       const float (&side)[OF_PIECE], float *acc) {
    EVERY(t, PIECE / 16) {
        const struct four dx = four_of(xd, at, t), all = four_of(xall, at, t);
        EVERY(e, 8) {
            const int c = e / 4 * 2 + e % 2;
            acc[8 * t + e] = fmaf(-(dm[e % 4 / 2] * dx.of[c]), fmaf(32, all.of[c], side[8 * t + e]), acc[8 * t + e]);
        }
    }
}
/* n: minima less 32, of the thread. */
DEVICE void begin_minima(float (&side)[OF_PIECE], const uint32_t (&n)[4], uint64_t sums) {
    wgmma_f16(side, n, sums, 0);
    wgmma_f16(side, n, sums + PANEL_STEP, 1);
}

/* last: there is no tile after this. */
template <class T, int N>
DEVICE void multiply_256(struct wide_mem<T, N> *m, const struct wide_job &job, const struct seat &at,
                         float (&acc)[N / 2], struct ring &w, struct ring &x, bool last) {
    typedef struct x_parts<256, N> parts;
    enum { PIECES = N / PIECE, MORE = PIECES - 1, SHIFT = digit_of<T>::SHIFT };
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
#pragma unroll 1
    for (uint32_t b = 0; b < job.nb; b++, next_of<ITEMS>(w)) {
        uint32_t d[PIECES][OF_PIECE], high[8][4], low[8][4], n[4];
        float side[OF_PIECE], dw[2], dm[2];
        const uint8_t *slot = m->w[w.at][at.warp];
        barrier_wait(&m->w_full[w.at], w.parity);
        {
            const struct row_scales z[2] = {scales_of(type, slot, r, b), scales_of(type, slot, r + 8, b)};
            if constexpr (SHIFT == 8)
                unpack<T>(high, low, slot, z);
            else
                unpack_digits<T>(high, low, slot, z);
            EVERY(h, 2) {
                const uint2 v = halves_of(z[h].own, 32);
                n[h] = v.x, n[2 + h] = v.y;
                dw[h] = z[h].d.x, dm[h] = z[h].d.y;
            }
        }
        release(&m->w_empty[w.at]);
        const uint32_t first = x.at, x_high = panel_bytes_at(m->x[x.at]);
        barrier_wait(&m->x_full[x.at], x.parity);
        next_of<parts::PARTS>(x);
        const uint32_t x_low = panel_bytes_at(m->x[x.at]);
        const struct x_block<N> *more = (const struct x_block<N> *)m->more[x.at / 2];
        const uint64_t sums = panel_64_at(more->sums);

        await_turn();
        EVERY(p, PIECES) {
            wgmma_begin();
            EVERY(k, 8)
                high_by_signed<SHIFT>(d[p], high[k], step_of<N>(x_high, k) + PANEL_ROWS(p * PIECE), k);
            wgmma_end();
        }
        EVERY(p, PIECES) {
            wgmma_wait<MORE>(d[p]);
            shift<SHIFT>(d[p]);
            wgmma_begin();
            EVERY(k, 8)
                wgmma_us(d[p], low[k], step_of<N>(x_high, k) + PANEL_ROWS(p * PIECE), 1);
            wgmma_end();
        }
        barrier_wait(&m->x_full[x.at], x.parity);
        EVERY(p, PIECES) {
            if (SHIFT != 8) {
                wgmma_wait<MORE>(d[p]);
                shift<8 - SHIFT>(d[p]);
            }
            wgmma_begin();
            EVERY(k, 8)
                high_by_unsigned<SHIFT>(d[p], high[k], step_of<N>(x_low, k) + PANEL_ROWS(p * PIECE));
            wgmma_end();
        }
        EVERY(p, PIECES) {
            wgmma_wait<MORE>(d[p]);
            if (p == MORE)
                release(&m->x_empty[first]);
            shift<SHIFT>(d[p]);
            wgmma_begin();
            if (T::HAS_M && p == MORE) /* now that `high` is no longer wanted */
                begin_minima(side, n, sums);
            EVERY(k, 8)
                wgmma_uu(d[p], low[k], step_of<N>(x_low, k) + PANEL_ROWS(p * PIECE), 1);
            wgmma_end();
        }
        if (threadIdx.x < 128 || !last || b + 1 < job.nb) /* nobody awaits a turn after the last */
            give_turn();
        if (PIECES == 1)
            wgmma_wait<0>(d[0]);
        else
            wgmma_wait<1>(d[0]);
        add_products(more->d, at, dw, d[0], acc);
        if (PIECES == 2)
            wgmma_wait<0>(d[MORE]);
        if (T::HAS_M) {
            wgmma_wait<0>(side);
            add_minima(more->d, more->all, at, dm, side, acc);
        }
        if (PIECES == 2) {
            if (T::HAS_M) {
                wgmma_begin();
                begin_minima(side, n, sums + (PIECE * 64 >> 4));
                wgmma_end();
            }
            add_products(more->d + PIECE, at, dw, d[MORE], acc + OF_PIECE);
            if (T::HAS_M) {
                wgmma_wait<0>(side);
                add_minima(more->d + PIECE, more->all + PIECE, at, dm, side, acc + OF_PIECE);
            }
        }
        release(&m->x_empty[x.at]);
        next_of<parts::PARTS>(x);
    }
}

/* Codes as signed bytes. */
template <class T> DEVICE uint32_t signed_codes(uint32_t u) {
    return T::OFFSET ? ((u | 0x80808080) - T::OFFSET * 0x01010101u) ^ 0x80808080 : u;
}
template <class T, int N> DEVICE void add_32(const struct x_quad<N> *x, const struct seat &at, const float2 (&dw)[2], int k,
                                             const uint32_t (&d)[N / 2], float (&acc)[N / 2]) {
    EVERY(t, N / 16) {
        const struct four dx = four_of(x->d[k], at, t), sum = T::HAS_M ? four_of(x->sum[k], at, t) : dx;
        EVERY(e, 8) {
            const int c = e / 4 * 2 + e % 2;
            float v = fmaf(dw[e % 4 / 2].x * dx.of[c], (float)(int)d[8 * t + e], acc[8 * t + e]);
            if (T::HAS_M)
                v = fmaf(dw[e % 4 / 2].y * dx.of[c], sum.of[c], v);
            acc[8 * t + e] = v;
        }
    }
}
/* The first `blocks` of a part's four. */
template <class T, int N>
DEVICE void multiply_part_32(struct wide_mem<T, N> *m, const struct seat &at, float (&acc)[N / 2], const struct ring &w,
                             const struct ring &x, int half, int blocks) {
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4, panel = panel_bytes_at(m->x[x.at]);
    const uint8_t *slot = m->w[w.at][at.warp];
    const struct x_quad<N> *more = (const struct x_quad<N> *)m->more[x.at];
    uint32_t u[2][4];
    EVERY(k, 4) {
        if (k >= blocks)
            return;
        uint32_t d[N / 2], codes[4];
        if (k % 2 == 0)
            pair_words(type, slot, (half + k) / 2, u[0], u[1]);
        EVERY(e, 4)
            codes[e] = signed_codes<T>(u[k % 2][e]);
        wgmma_begin();
        wgmma_ss(d, codes, panel + k * PANEL_STEP, 0);
        wgmma_end();
        const float2 dw[2] = {block_scale<T>(slot, r, half + k), block_scale<T>(slot, r + 8, half + k)};
        wgmma_wait<0>(d);
        add_32<T, N>(more, at, dw, k, d, acc);
    }
}
/* Two parts of x an item of w.  One set of sums: with a second, so that a product is under way while the last is added, too few
 * registers are left; the other warpgroup's is. */
template <class T, int N> DEVICE void multiply_32(struct wide_mem<T, N> *m, const struct wide_job &job,
                                                  const struct seat &at, float (&acc)[N / 2], struct ring &w,
                                                  struct ring &x) {
    typedef struct x_parts<32, N> parts;
    const uint32_t whole = job.nb / 4, rest = job.nb % 4;
    auto await_part = [&](uint32_t i) {
        if (i % 2 == 0)
            barrier_wait(&m->w_full[w.at], w.parity);
        barrier_wait(&m->x_full[x.at], x.parity);
    };
    auto release_part = [&](bool of_item) {
        release(&m->x_empty[x.at]);
        next_of<parts::PARTS>(x);
        if (of_item) {
            release(&m->w_empty[w.at]);
            next_of<ITEMS>(w);
        }
    };
#pragma unroll 1
    for (uint32_t i = 0; i < whole; i++) {
        await_part(i);
        multiply_part_32<T, N>(m, at, acc, w, x, i % 2 * 4, 4);
        release_part(i % 2 || (i + 1 == whole && !rest));
    }
    if (rest) {
        await_part(whole);
        multiply_part_32<T, N>(m, at, acc, w, x, whole % 2 * 4, (int)rest);
        release_part(true);
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
    if (!a.beside)
        wait_for_last();
    let_next_come(); /* after the wait: who comes beside reads x before it waits */
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
    if (a.beside) /* who waits for this launch waits for that one too */
        wait_for_last();
}

#endif
#endif
