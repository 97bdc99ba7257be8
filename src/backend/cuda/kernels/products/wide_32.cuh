/* wide_32.cuh - blocks of 32 of products of many rows (wide_exact.cuh): one product of bytes a block, whose sum is an
 * integer, then the definition's fused multiply-add. */
#ifndef LODE_CUDA_WIDE_32_CUH
#define LODE_CUDA_WIDE_32_CUH

#include "wide_x.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Codes as signed bytes. */
template <class T> DEVICE uint32_t signed_codes(uint32_t u) {
    return T::OFFSET ? ((u | 0x80808080) - T::OFFSET * 0x01010101u) ^ 0x80808080 : u;
}
template <class T, int N, int OF> DEVICE void add_32(const struct x_quad<N> *x, const struct seat &at, const float2 (&dw)[2], int k,
                                                     const uint32_t (&d)[OF], float *acc) {
    EVERY(t, OF / 8) {
        const auto &of = x->of[t / (X_ROWS / 16)];
        const int tiles = t % (X_ROWS / 16);
        const struct four dx = four_of(of.d[k], at, tiles), sum = T::HAS_M ? four_of(of.sum[k], at, tiles) : dx;
        EVERY(e, 8) {
            const int c = e / 4 * 2 + e % 2;
            float v = fmaf(dw[e % 4 / 2].x * dx.of[c], (float)(int)d[8 * t + e], acc[8 * t + e]);
            if (T::HAS_M)
                v = fmaf(dw[e % 4 / 2].y * dx.of[c], sum.of[c], v);
            acc[8 * t + e] = v;
        }
    }
}
/* Scales of block k of an item, of the thread's two rows. */
struct two_scales { float2 of[2]; };
template <class T> DEVICE struct two_scales scales_at(const uint8_t *slot, int k) {
    const uint32_t r = threadIdx.x % 32 / 4;
    return {{block_scale<T>(slot, r, k), block_scale<T>(slot, r + 8, k)}};
}
/* The first `blocks` of a part's four, from block `half` of the item on, which is there; x is awaited.  What is a constant of these two
 * costs no address. */
template <class T, int N, int COLS, bool AHEAD>
DEVICE void multiply_part_32(struct wide_mem<T, N, AHEAD> *m, const struct seat &at, float *acc, const struct ring &w,
                             const struct ring &x, int half, int blocks) {
    const T *const type = NULL;
    const uint32_t panel = panel_bytes_at(m->x[x.at]);
    const uint8_t *slot = m->w[w.at][at.warp];
    const struct x_quad<N> *more = (const struct x_quad<N> *)m->more[x.at];
    uint32_t u[2][4];
    pair_words(type, slot, half / 2, u[0], u[1]);
    barrier_wait(&m->x_full[x.at], x.parity);
    EVERY(k, 4) {
        if (k >= blocks)
            return;
        uint32_t d[COLS / 2], codes[4];
        if (k == 2)
            pair_words(type, slot, half / 2 + 1, u[0], u[1]);
        EVERY(e, 4)
            codes[e] = signed_codes<T>(u[k % 2][e]);
        wgmma_begin();
        wgmma_ss(d, codes, panel + k * PANEL_STEP, 0);
        wgmma_end();
        const struct two_scales dw = scales_at<T>(slot, half + k);
        wgmma_wait<0>(d);
        add_32<T, N>(more, at, dw.of, k, d, acc);
    }
}
/* An item's eight blocks, of so few columns that there are registers for two sets of sums: a product is under way while the one before is added.  All codes are
 * made first, as ptxas wants it that is to let products overlap with anything. */
template <class T, int N, int COLS, bool AHEAD>
DEVICE void multiply_item_32(struct wide_mem<T, N, AHEAD> *m, const struct seat &at, float *acc, const struct ring &w, struct ring &x) {
    const T *const type = NULL;
    const uint8_t *slot = m->w[w.at][at.warp];
    uint32_t codes[8][4], d[2][COLS / 2];
    EVERY(p, 4)
        pair_words(type, slot, p, codes[2 * p], codes[2 * p + 1]);
    EVERY(e, 32)
        codes[e / 4][e % 4] = signed_codes<T>(codes[e / 4][e % 4]);
    struct ring part[2] = {x, x};
    next_of<x_parts<32, N, AHEAD>::PARTS>(part[1]);
    const auto begin = [&](int k) {
        const struct ring &of = part[k / 4];
        if (k % 4 == 0)
            barrier_wait(&m->x_full[of.at], of.parity);
        wgmma_begin();
        wgmma_ss(d[k % 2], codes[k], panel_bytes_at(m->x[of.at]) + k % 4 * PANEL_STEP, 0);
        wgmma_end();
    };
    begin(0);
    EVERY(k, 8) {
        if (k < 7)
            begin(k + 1);
        const struct two_scales dw = scales_at<T>(slot, k);
        if (k < 7)
            wgmma_wait<1>(d[k % 2]);
        else
            wgmma_wait<0>(d[k % 2]);
        add_32<T, N>((const struct x_quad<N> *)m->more[part[k / 4].at], at, dw.of, k % 4, d[k % 2], acc);
        if (k % 4 == 3)
            release(&m->x_empty[part[k / 4].at]);
    }
    x = part[1];
    next_of<x_parts<32, N, AHEAD>::PARTS>(x);
}
/* The first COLS of the tile's columns.  Two parts of x an item of w.  Of more than 64 columns one set of sums: with a second too few registers
 * are left; the other warpgroup's product is under way then. */
template <class T, int N, int COLS, bool AHEAD> DEVICE void multiply_32(struct wide_mem<T, N, AHEAD> *m, const struct wide_job &job,
                                                  const struct seat &at, float (&acc)[N / 2], struct ring &w,
                                                  struct ring &x) {
    typedef struct x_parts<32, N, AHEAD> parts;
    enum { PART = 4, OF_ITEM = ITEM / 32 };
    const uint32_t rest = job.nb % OF_ITEM;
    const auto part = [&](int half, int blocks) {
        multiply_part_32<T, N, COLS, AHEAD>(m, at, acc, w, x, half, blocks);
        release(&m->x_empty[x.at]);
        next_of<parts::PARTS>(x);
    };
    const auto await_item = [&] { barrier_wait(&m->w_full[w.at], w.parity); };
    const auto leave_item = [&] {
        release(&m->w_empty[w.at]);
        next_of<wide_mem<T, N, AHEAD>::DEPTH>(w);
    };
#pragma unroll 1
    for (uint32_t b = rest; b < job.nb; b += OF_ITEM) {
        await_item();
        if constexpr (AHEAD) {
            multiply_item_32<T, N, COLS, AHEAD>(m, at, acc, w, x);
        } else {
            part(0, PART);
            part(PART, PART);
        }
        leave_item();
    }
    if (rest == 0)
        return;
    await_item();
#pragma unroll 1
    for (uint32_t b = 0; b < rest; b += PART)
        part((int)b, (int)(rest - b < PART ? rest - b : PART));
    leave_item();
}

#endif
#endif
