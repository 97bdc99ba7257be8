/* wide_256.cuh - blocks of 256 of products of many rows (wide_exact.cuh).
 *
 *   w' = scale (q - OFFSET), |w'| <= 4096, and x' = mul xq, |x'| <= 2032, are numbers of 16 bits: w' = 2^SHIFT h + l
 *   of bytes (digit_of), x' = 256 h + l of a signed and an unsigned byte.  Their four products of bytes have sums that
 *   stay in the same 32-bit accumulators, shifted in between, wrap around, and come out as the same integer.
 *   minima: sum over g of min[g] sums[g], in halves, whose sums are exact below 2^24: with n = min - 32 and sums =
 *   256 h + l, D = <n, 256 h> + <n, l> is at most 32 * 256 * 2032 < 2^24; + 32 (sum of sums) by one fused
 *   multiply-add, which rounds as the integer's conversion. */
#ifndef LODE_CUDA_WIDE_256_CUH
#define LODE_CUDA_WIDE_256_CUH

#include "wide_x.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

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
template <class T> DEVICE void unpack(uint32_t (&high)[8][4], uint32_t (&low)[8][4], const uint8_t *slot,
                                      const struct row_scales z[2]) {
    const T *const type = NULL;
    enum { SHIFT = digit_of<T>::SHIFT };
    constexpr uint32_t ZERO = T::OFFSET + (sign_of<T>::CODES ? 128 : 0), BIAS = sign_of<T>::W ? 0x8000 : 0,
                       EVEN = 0x00ff00ff, SIGNS = 0x80808080, EACH = 0x01010101;
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[2][4];
        pair_words(type, slot, p, u[0], u[1]);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int k = 2 * p + i / 4;
            const uint32_t q = sign_of<T>::CODES ? u[i / 4][i % 4] ^ SIGNS : u[i / 4][i % 4];
            if constexpr (SHIFT != 8) {
                const uint32_t s = z[i % 2].s[k / 4], above = s >> SHIFT & (63 >> SHIFT) * EACH,
                               below = s & ((1 << SHIFT) - 1) * EACH;
                high[k][i % 4] = q * (above >> 8 * (k % 4) & 255);
                low[k][i % 4] = q * (below >> 8 * (k % 4) & 255);
            } else {
                const uint32_t s = (uint32_t)scale_of(type, z[i % 2], T::GROUP == 16 ? 2 * k + i % 4 / 2 : k);
                const uint32_t add = (BIAS - ZERO * s) * 0x10001u;
                const uint32_t a = (q & EVEN) * s + add, b = (q >> 8 & EVEN) * s + add;
                low[k][i % 4] = __byte_perm(a, b, 0x6240);
                high[k][i % 4] = sign_of<T>::W ? __byte_perm(a, b, 0x7351) ^ SIGNS : __byte_perm(a, b, 0x7351);
            }
        }
    }
}

/* COLS columns are multiplied in pieces of 64 at most, so that the tensor cores have one while the other's sums are shifted or added up. A
 * thread has half as many results of a piece. */
template <int COLS> struct pieces_of { enum { PIECE = COLS < X_ROWS ? COLS : X_ROWS, OF = PIECE / 2, N = COLS / PIECE }; };

/* In place: what the compiler may choose costs 64 registers more.  Integers have two pipes: half of the numbers go by either, as
 * whoever adds up meanwhile needs them too.  By constants alone ptxas sends nearly all by one; zero: a number that is 0, which it
 * does not know.  Which way for the other half is quicker differs by kernel (bench/notes/cuda.md). */
template <int BY, bool MULTIPLIES, int OF> DEVICE void shift(uint32_t (&d)[OF], uint32_t zero) {
    const uint32_t by = BY + zero, times = (1u << BY) + zero;
    EVERY(e, OF)
        if (e % 2 == 0)
            asm volatile("shl.b32 %0, %0, %1;" : "+r"(d[e]) : "r"(by));
        else if (MULTIPLIES)
            asm volatile("mul.lo.u32 %0, %0, %1;" : "+r"(d[e]) : "r"(times));
        else
            asm volatile("shl.b32 %0, %0, %1;" : "+r"(d[e]) : "n"(BY));
}
/* w's high digits have signs where they are bytes. */
template <int SHIFT, int OF> DEVICE void high_by_signed(uint32_t (&d)[OF], const uint32_t (&w)[4], uint32_t x, int add) {
    if (SHIFT == 8)
        wgmma_ss(d, w, x, add);
    else
        wgmma_us(d, w, x, add);
}
template <int SHIFT, int OF> DEVICE void high_by_unsigned(uint32_t (&d)[OF], const uint32_t (&w)[4], uint32_t x) {
    if (SHIFT == 8)
        wgmma_su(d, w, x, 1);
    else
        wgmma_uu(d, w, x, 1);
}
/* The first addition of a block; xd: of the piece's first column. */
template <int OF>
DEVICE void add_products(const float *xd, const struct seat &at, const float (&dw)[2], const uint32_t (&d)[OF], float *acc) {
    EVERY(t, OF / 8) {
        const struct four dx = four_of(xd, at, t);
        EVERY(e, 8)
            acc[8 * t + e] = fmaf(dw[e % 4 / 2] * dx.of[e / 4 * 2 + e % 2], (float)(int)d[8 * t + e], acc[8 * t + e]);
    }
}
/* The second, of types with minima; side: sums of their products as far as halves hold them (begin_minima). */
template <int OF>
DEVICE void add_minima(const float *xd, const float *xall, const struct seat &at, const float (&dm)[2], const float (&side)[OF], float *acc) {
    EVERY(t, OF / 8) {
        const struct four dx = four_of(xd, at, t), all = four_of(xall, at, t);
        EVERY(e, 8) {
            const int c = e / 4 * 2 + e % 2;
            acc[8 * t + e] = fmaf(-(dm[e % 4 / 2] * dx.of[c]), fmaf(32, all.of[c], side[8 * t + e]), acc[8 * t + e]);
        }
    }
}
/* n: minima less 32, of the thread. */
template <int OF> DEVICE void begin_minima(float (&side)[OF], const uint32_t (&n)[4], uint64_t sums) {
    wgmma_f16(side, n, sums, 0);
    wgmma_f16(side, n, sums + PANEL_STEP, 1);
}

/* The first COLS of the tile's columns.  last: there is no tile after this. */
template <class T, int N, int COLS, bool GATED, bool AHEAD>
DEVICE void multiply_256(struct wide_mem<T, N, AHEAD> *m, const struct wide_job &job, const struct seat &at,
                         float (&acc)[N / 2], struct ring &w, struct ring &x, bool last) {
    typedef struct x_parts<256, N, AHEAD> parts;
    enum { PIECE = pieces_of<COLS>::PIECE, OF = pieces_of<COLS>::OF, PIECES = pieces_of<COLS>::N, MORE = PIECES - 1, SHIFT = digit_of<T>::SHIFT };
    const T *const type = NULL;
    const uint32_t r = threadIdx.x % 32 / 4;
    uint32_t zero;
    asm volatile("mov.u32 %0, %%tid.z;" : "=r"(zero));
#pragma unroll 1
    for (uint32_t b = 0; b < job.nb; b++, next_of<wide_mem<T, N, AHEAD>::DEPTH>(w)) {
        uint32_t d[PIECES][OF], high[8][4], low[8][4], n[4];
        float side[OF], dw[2], dm[2];
        const uint8_t *slot = m->w[w.at][at.warp];
        barrier_wait(&m->w_full[w.at], w.parity);
        {
            const struct row_scales z[2] = {scales_of(type, slot, r, b), scales_of(type, slot, r + 8, b)};
            unpack<T>(high, low, slot, z);
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
        const uint64_t sums = panel_64_at(more->of[0].sums);

        await_turn();
        EVERY(p, PIECES) {
            wgmma_begin();
            EVERY(k, 8)
                high_by_signed<SHIFT>(d[p], high[k], step_of<N>(x_high, k) + PANEL_ROWS(p * PIECE), k);
            wgmma_end();
        }
        EVERY(p, PIECES) {
            wgmma_wait<MORE>(d[p]);
            shift<SHIFT, GATED>(d[p], zero);
            wgmma_begin();
            EVERY(k, 8)
                wgmma_us(d[p], low[k], step_of<N>(x_high, k) + PANEL_ROWS(p * PIECE), 1);
            wgmma_end();
        }
        barrier_wait(&m->x_full[x.at], x.parity);
        EVERY(p, PIECES) {
            if (SHIFT != 8) {
                wgmma_wait<MORE>(d[p]);
                shift<8 - SHIFT, GATED>(d[p], zero);
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
            shift<SHIFT, GATED>(d[p], zero);
            wgmma_begin();
            if (T::HAS_M && p == MORE) /* now that `high` is no longer wanted */
                begin_minima(side, n, sums);
            EVERY(k, 8)
                wgmma_uu(d[p], low[k], step_of<N>(x_low, k) + PANEL_ROWS(p * PIECE), 1);
            wgmma_end();
        }
        if (threadIdx.x < 128 || !last || b + 1 < job.nb) /* nobody awaits a turn after the last */
            give_turn();
        EVERY(p, PIECES) {
            if (T::HAS_M && p > 0) {
                wgmma_begin();
                begin_minima(side, n, sums + p * (sizeof more->of[0] >> 4));
                wgmma_end();
            }
            if (p == 0)
                wgmma_wait<MORE>(d[0]);
            add_products(more->of[p].d, at, dw, d[p], acc + p * OF);
            if (p == 0 && MORE)
                wgmma_wait<0>(d[MORE]);
            if (T::HAS_M) {
                wgmma_wait<0>(side);
                add_minima(more->of[p].d, more->of[p].all, at, dm, side, acc + p * OF);
            }
        }
        release(&m->x_empty[x.at]);
        next_of<parts::PARTS>(x);
    }
}

#endif
#endif
