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

#endif
#endif
