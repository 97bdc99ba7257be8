/* wide_ahead.cuh - who brings what products of many rows on Hopper's warpgroups need for tiles of 64 rows of x: one thread x and three warps
 * weights, as far ahead as there is room: of the pairs of experts, few columns of x by many weights.  Of x no more comes than is multiplied. */
#ifndef LODE_CUDA_WIDE_AHEAD_CUH
#define LODE_CUDA_WIDE_AHEAD_CUH

#include "wide_x.cuh"

enum {
    X_COPIERS = 32,
    W_COPIERS = COPIERS - X_COPIERS,
    KEPT_AHEAD = 40, /* registers of those that copy, and of those that multiply */
    TAKEN_AHEAD = 232,
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

static_assert(MULTIPLIERS * TAKEN_AHEAD + COPIERS * KEPT_AHEAD <= LODE_WIDE_THREADS * 168, "registers of a launch");

/* What comes with a part's last stage for the first `rows` of 64 rows, as far as the type wants it.  Bytes. */
template <class T> DEVICE uint32_t more_bytes(uint32_t rows) {
    if (T::BLOCK == 32)
        return T::HAS_M ? sizeof(struct quad_scales) : sizeof(((struct quad_scales *)0)->d);
    return rows * (T::HAS_M ? 72 : 4);
}
template <class T> DEVICE void bring_more(uint8_t *to, const uint8_t *from, uint32_t rows, uint64_t *full) {
    enum { D = X_ROWS * 64, ALL = D + X_ROWS * 4 }; /* of struct x_block's */
    if (T::BLOCK == 32 || (T::HAS_M && rows == X_ROWS)) {
        bulk_copy(to, from, more_bytes<T>(rows), full);
        return;
    }
    if (T::HAS_M) {
        bulk_copy(to, from, rows * 64, full);
        bulk_copy(to + ALL, from + ALL, rows * 4, full);
    }
    bulk_copy(to + D, from + D, rows * 4, full);
}
/* Part i of x, as far as columns are multiplied; by one thread. */
template <class T, int N> DEVICE void bring_part_ahead(struct wide_mem<T, N, true> *m, const struct wide_job &job, uint32_t i, struct ring &r) {
    typedef struct x_parts<T::BLOCK, N, true> parts;
    const uint32_t rows = columns_ahead(job.x_rows);
    const bool more = (i + 1) % parts::MORE_EACH == 0;
    const uint8_t *from = job.x + (size_t)i * parts::SIZE + i / parts::MORE_EACH * (size_t)parts::MORE;
    uint64_t *full = &m->x_full[r.at];
    await_place<parts>(m, r);
    barrier_expect(full, parts::SIZE / N * rows + (more ? more_bytes<T>(rows) : 0));
#pragma unroll
    for (uint32_t b = 0; b < parts::SIZE; b += N * 128)
        bulk_copy(m->x[r.at] + b, from + b, rows * 128, full);
    if (more)
        bring_more<T>(m->more[r.at / parts::MORE_EACH], from + parts::SIZE, rows, full);
    barrier_arrive(full);
    next_of<parts::PARTS>(r);
}
/* `bytes` of each row that there is, as the others are never looked at; by thread t. */
template <class T, int I>
DEVICE void bring_some(uint8_t (*to)[item_of<T>::SIZE], const struct wide_job &job, const uint8_t *from, uint32_t bytes, uint32_t t) {
    const bool by_16 = plane<T, I>::BYTES % 16 == 0 && (((uintptr_t)from | bytes) & 15) == 0;
    const uint32_t size = by_16 ? 16 : 4, n = (bytes + 3) / size;
#pragma unroll 1
    for (uint32_t k = t; k < job.w_rows * n; k += W_COPIERS) {
        const uint32_t row = k / n, piece = k % n * size;
        const uint8_t *const p = from + piece + row * job.w_stride;
        uint8_t *const at = to[row / 16] + plane<T, I>::AT + row % 16 * plane<T, I>::STRIDE + piece;
        if (by_16)
            copy_async<16>(at, p);
        else
            copy_async<4>(at, p);
    }
}
/* Plane I of item b. */
template <class T, int I> DEVICE void bring_plane_ahead(uint8_t (*to)[item_of<T>::SIZE], const struct wide_job &job, uint32_t b) {
    constexpr uint32_t BYTES = plane<T, I>::BYTES, PIECE = BYTES % 16 == 0 ? 16 : 4, N = BYTES < PIECE ? 1 : BYTES / PIECE, STRIDE = plane<T, I>::STRIDE;
    if constexpr (BYTES != 0) {
        const uint32_t t = threadIdx.x - MULTIPLIERS - X_COPIERS, warp = t / 32, lane = t % 32;
        const struct plane_place place = plane_place_of<T, I>(job, b);
        const uint32_t from = place.from, left = place.left;
        if constexpr (32 % N == 0 && BYTES >= PIECE) {
            if (from % PIECE == 0 && left >= BYTES) {
                constexpr uint32_t STEP = 32 / N, EACH = STEP > 16 ? STEP : 16; /* rows of an instruction; of a warp's turn */
                const uint32_t first = lane / N, piece = lane % N * PIECE;
                uint8_t *const at = to[STEP > 16 ? first / 16 : 0] + plane<T, I>::AT + first % 16 * STRIDE + piece;
                const uint8_t *const w = job.w + from + piece;
                const size_t stride = job.w_stride, step = STEP * stride;
#pragma unroll 1
                for (uint32_t r = warp * EACH; r < job.w_rows; r += W_COPIERS / 32 * EACH) {
                    uint8_t *const slot = at + r / 16 * item_of<T>::SIZE;
                    const uint8_t *p = w + (r + first) * stride;
                    if (r + EACH <= job.w_rows) {
#pragma unroll
                        for (uint32_t i = 0; i < EACH; i += STEP, p += step)
                            copy_async<PIECE>(slot + i * STRIDE, p);
                    } else {
#pragma unroll 1
                        for (uint32_t i = 0; r + i + first < job.w_rows; i += STEP, p += step)
                            copy_async<PIECE>(slot + i * STRIDE, p);
                    }
                }
                return;
            }
        }
        bring_some<T, I>(to, job, job.w + from, left < BYTES ? left : BYTES, t);
    }
}
template <class T, int N> DEVICE void bring_weights(struct wide_mem<T, N, true> *m, const struct wide_job &job, struct ring &w) {
    for (uint32_t b = 0; b < job.items; b++, next_of<wide_mem<T, N, true>::DEPTH>(w)) {
        uint8_t (*to)[item_of<T>::SIZE] = m->w[w.at];
        barrier_wait(&m->w_empty[w.at], w.parity);
        bring_plane_ahead<T, 0>(to, job, b);
        bring_plane_ahead<T, 1>(to, job, b);
        bring_plane_ahead<T, 2>(to, job, b);
        bring_plane_ahead<T, 3>(to, job, b);
        barrier_arrive_copied(&m->w_full[w.at]);
    }
}

/* All that unit after unit wants; find(u) says what unit u is. */
template <class T, int N, class F> DEVICE void bring_ahead(struct wide_mem<T, N, true> *m, uint32_t units, F find) {
    struct ring at = {0, 1};
    const uint32_t t = threadIdx.x - MULTIPLIERS;
    if (t == 0)
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x) {
            const struct wide_job &job = find(u);
            for (uint32_t i = 0; i < parts_of_x<T>(job); i++)
                bring_part_ahead<T, N>(m, job, i, at);
        }
    if (t >= X_COPIERS)
        for (uint32_t u = blockIdx.x; u < units; u += gridDim.x)
            bring_weights<T, N>(m, find(u), at);
}

#endif
#endif
