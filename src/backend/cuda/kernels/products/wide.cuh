/* wide.cuh - what products of many rows on Hopper's warpgroups have in common, whatever they make of the weights.
 *
 * A block of threads has 128 rows of w.  Two warpgroups multiply, 64 rows each; a third brings what they need:
 * items of weights as few.cuh has them (items.cuh), and x. */
#ifndef LODE_CUDA_WIDE_CUH
#define LODE_CUDA_WIDE_CUH

#include "columns.cuh"
#include "gemm.cuh"
#include "items.cuh"
#include "backend/cuda/kernels/warpgroups.cuh"

enum {
    W_ROWS = LODE_WIDE_W, /* of a block of threads */
    ITEM = 256,           /* numbers of K that weights come by */
    ITEMS = 2,            /* on their way or in use */
    MULTIPLIERS = 256,    /* threads; those that copy follow */
    COPIERS = 128,
    KEPT = 24, /* registers of those that copy, and of those that multiply; together no more than at the launch */
    TAKEN = 240,
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define EVERY(i, n) _Pragma("unroll") for (int i = 0; i < (n); i++)

/* Bytes of 16 rows of an item. */
template <class T> struct item_of { enum { SIZE = plane<T, 3>::AT + 16 * plane<T, 3>::STRIDE }; };

/* gemm_job, with what x's tile and K are here.  PAIRED: the tile has half as many rows of each of two matrices, of every
 * sixteen eight of w and the same eight of `other`. */
struct wide_job : gemm_job {
    enum { PAIRED = 0 };
    const uint8_t *x; /* its spread tile */
    uint32_t nb, items;
    int half; /* of the tile, which is twice as large; -1: all of it */
};

static_assert(MULTIPLIERS * TAKEN + COPIERS * KEPT <= LODE_WIDE_THREADS * 168, "registers of a launch");

/* The barriers of a wide_mem: who copies says that x or an item is full, warps that multiply that it is empty.  By one thread. */
template <class M> DEVICE void make_barriers(M *m, uint32_t weight_copiers) {
    for (size_t i = 0; i < sizeof m->x_full / sizeof *m->x_full; i++) {
        barrier_init(&m->x_full[i], 1);
        barrier_init(&m->x_empty[i], MULTIPLIERS / 32);
    }
    for (size_t i = 0; i < sizeof m->w_full / sizeof *m->w_full; i++) {
        barrier_init(&m->w_full[i], weight_copiers);
        barrier_init(&m->w_empty[i], MULTIPLIERS / 32);
    }
    barriers_made();
}

/* ---- those that copy ---- */

/* Plane I of item b, of 128 rows: every thread's pieces are one below the other. */
template <class T, int I, int PIECE, class J>
DEVICE void bring_rows(uint8_t (*to)[item_of<T>::SIZE], const J &job, const uint8_t *from) {
    constexpr uint32_t N = plane<T, I>::BYTES / PIECE, STEP = COPIERS / N, STRIDE = plane<T, I>::STRIDE;
    static_assert(STEP % 16 == 0 || 8 % STEP == 0, "rows of a step lie in half an item, or in whole ones");
    const uint32_t t = threadIdx.x - MULTIPLIERS, row = t / N, piece = t % N * PIECE;
    uint8_t *at = to[row / 16] + plane<T, I>::AT + row % 16 * STRIDE + piece;
    if constexpr (J::PAIRED) {
        const size_t stride = job.w_stride;
        const uint8_t *first = (STEP >= 16 && row % 16 >= 8 ? from + (job.other - job.w) : from) + piece +
                               (STEP >= 16 ? row / 16 * 8 + row % 8 : row) * stride;
        if constexpr (STEP >= 16) {
#pragma unroll
            for (uint32_t i = 0; i < W_ROWS; i += STEP, first += STEP / 2 * stride)
                copy_async<PIECE>(at + i / 16 * item_of<T>::SIZE, first);
        } else {
            const uint8_t *second = first + (job.other - job.w);
#pragma unroll
            for (uint32_t i = 0; i < 16; i += STEP) {
                const uint8_t *p = (i < 8 ? first : second) + i % 8 * stride;
#pragma unroll
                for (uint32_t k = 0; k < W_ROWS / 16; k++, p += 8 * stride)
                    copy_async<PIECE>(at + k * item_of<T>::SIZE + i * STRIDE, p);
            }
        }
        return;
    }
    from += row * (size_t)job.w_stride + piece;
#pragma unroll
    for (uint32_t i = 0; i < W_ROWS; i += STEP, from += STEP * (size_t)job.w_stride)
        copy_async<PIECE>(at + i / 16 * item_of<T>::SIZE + i % 16 * STRIDE, from);
}
/* Any rows, `bytes` of each. */
template <class T, int I, class J>
DEVICE void bring_words(uint8_t (*to)[item_of<T>::SIZE], const J &job, const uint8_t *from, uint32_t bytes) {
    const uint32_t n = (bytes + 3) / 4;
#pragma unroll 1
    for (uint32_t k = threadIdx.x - MULTIPLIERS; k < W_ROWS * n; k += COPIERS) {
        const uint32_t row = k / n, word = k % n * 4;
        const uint8_t *base = from;
        uint32_t of = row < job.w_rows ? row : job.w_rows - 1;
        if constexpr (J::PAIRED) {
            base += row % 16 >= 8 ? job.other - job.w : 0;
            of = row / 16 * 8 + row % 8;
        }
        copy_async<4>(to[row / 16] + plane<T, I>::AT + row % 16 * plane<T, I>::STRIDE + word,
                      base + (size_t)of * job.w_stride + word);
    }
}
/* Where plane I of item b begins in a row, and how many bytes of it are left from there on. */
struct plane_place { uint32_t from, left; };
template <class T, int I> DEVICE struct plane_place plane_place_of(const struct wide_job &job, uint32_t b) {
    const uint32_t nb = job.nb * T::BLOCK / planes<T>::NUMBERS, left = (nb - b * (ITEM / planes<T>::NUMBERS)) * planes<T>::size(I);
    /* of less than four bytes, those four that they lie in */
    return {(nb * plane_before<T, I>::SIZE + b * plane<T, I>::BYTES) & ~3u, left};
}
template <class T, int I, class J>
DEVICE void bring_plane(uint8_t (*to)[item_of<T>::SIZE], const J &job, uint32_t b) {
    constexpr uint32_t BYTES = plane<T, I>::BYTES, PIECE = BYTES % 16 == 0 ? 16 : 4;
    if constexpr (BYTES != 0) {
        const struct plane_place at = plane_place_of<T, I>(job, b);
        const uint32_t from = at.from, left = at.left;
        if constexpr (COPIERS % (BYTES < PIECE ? 1 : BYTES / PIECE) == 0 && BYTES >= PIECE) {
            if (from % PIECE == 0 && left >= BYTES && (J::PAIRED || job.w_rows == W_ROWS)) {
                bring_rows<T, I, PIECE>(to, job, job.w + from);
                return;
            }
        }
        bring_words<T, I>(to, job, job.w + from, left < BYTES ? left : BYTES);
    }
}
/* All planes. */
template <class T, class J>
DEVICE void bring_item(uint8_t (*to)[item_of<T>::SIZE], const J &job, uint32_t b) {
    bring_plane<T, 0>(to, job, b);
    bring_plane<T, 1>(to, job, b);
    bring_plane<T, 2>(to, job, b);
    bring_plane<T, 3>(to, job, b);
}

/* ---- those that multiply ---- */

/* A thread's place in the results: rows `row` and 8 more, columns `column` and one more of each
 * tile of 8.  The warp's rows begin at 16 warp. */
struct seat {
    uint32_t warp, row, column;
};
DEVICE struct seat seat_of(uint32_t t) {
    const uint32_t lane = t % 32;
    return {t / 32, t / 32 * 16 + lane / 4, lane % 4 * 2};
}

#endif
#endif
