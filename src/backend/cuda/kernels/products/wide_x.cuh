/* wide_x.cuh - x of products of many rows with quantised weights on Hopper's warpgroups, as wide.cu spreads it and as it
 * lies in shared memory: in the order and swizzle of wgmma's operands, once for all rows of w; and who brings it.
 */
#ifndef LODE_CUDA_WIDE_X_CUH
#define LODE_CUDA_WIDE_X_CUH

#include "spread.cuh"
#include "wide.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What comes with a block of x, X_ROWS rows of it and then the next: spread_256 leaves it behind the block's bytes. */
template <int N> struct x_block {
    struct {
        uint16_t sums[X_ROWS][32];    /* halves, a panel of 64 bytes: 256 h of 16 groups, l of 16 */
        float d[X_ROWS], all[X_ROWS]; /* all: the sum of sums; where place_of_scale says */
    } of[N / X_ROWS];
};
DEVICE uint32_t sums_piece(uint32_t r, uint32_t piece) { return (piece ^ (r >> 1 & 3)) * 8; }
/* With four blocks of 32: behind their bytes. */
template <int N> struct x_quad {
    struct quad_scales of[N / X_ROWS];
};

/* x comes in parts: the high bytes of a block of 256, then its low ones; four blocks of 32.  AHEAD: as wide_ahead.cuh brings them. */
template <int BLOCK, int N, bool AHEAD> struct x_parts {
    enum {
        SIZE = N * (BLOCK == 256 ? 256 : 128),
        PARTS = AHEAD ? 6 : N == 64 ? 8 : BLOCK == 256 ? 4 : 6, /* on their way or in use */
        MORE = BLOCK == 256 ? sizeof(struct x_block<N>) : sizeof(struct x_quad<N>),
        MORE_EACH = BLOCK == 256 ? 2 : 1, /* parts that `more` comes once for, with the last */
        MORE_SIZE = (MORE + 255) & ~255,
    };
};

template <class T, int N, bool AHEAD> struct __align__(1024) wide_mem {
    typedef struct x_parts<T::BLOCK, N, AHEAD> parts;
    enum {
        W_ITEM = W_ROWS / 16 * item_of<T>::SIZE,
        ROOM = (LODE_WIDE_SHARED - 2048 - parts::PARTS * (parts::SIZE + parts::MORE_SIZE)) / W_ITEM,
        DEPTH = !AHEAD ? ITEMS : ROOM < 6 ? ROOM : 6, /* items of weights on their way or in use */
    };
    uint8_t x[parts::PARTS][parts::SIZE];
    __align__(128) uint8_t more[parts::PARTS / parts::MORE_EACH][parts::MORE_SIZE];
    uint8_t w[DEPTH][W_ROWS / 16][item_of<T>::SIZE];
    uint64_t x_full[parts::PARTS], x_empty[parts::PARTS], w_full[DEPTH], w_empty[DEPTH];
};

/* What a thread wants of two tiles of eight columns. */
struct four { float of[4]; };
DEVICE struct four four_of(const float *by, const struct seat &at, int two_tiles) {
    const float4 v = ((const float4 *)by)[4 * two_tiles + at.column / 2];
    return {{v.x, v.y, v.z, v.w}};
}
/* ---- those that copy ---- */

/* Part i of half a tile to slot `at`: X_ROWS of each of its panels, and what comes with those. */
template <class T, int N> DEVICE void bring_half(struct wide_mem<T, N, false> *m, const struct wide_job &job, uint32_t i, uint32_t at) {
    typedef struct x_parts<T::BLOCK, N, false> parts;
    const uint8_t *from = job.x + 2 * ((size_t)i * parts::SIZE + i / parts::MORE_EACH * (size_t)parts::MORE);
#pragma unroll
    for (uint32_t b = 0; b < parts::SIZE; b += N * 128)
        bulk_copy(m->x[at] + b, from + 2 * b + job.half * (N * 128), N * 128, &m->x_full[at]);
    if ((i + 1) % parts::MORE_EACH == 0)
        bulk_copy(m->more[at / parts::MORE_EACH], from + 2 * parts::SIZE + job.half * parts::MORE, parts::MORE, &m->x_full[at]);
}
/* Part i of x, by one thread, as soon as it is known that what was there is read: when the part after that is said to be.  As soon as it is said
 * of itself reads may still be on their way, behind copies that are asked for piece by piece, and a bulk copy does not wait behind them
 * (bench/notes/cuda.md: seen where weights are brought further ahead). */
template <class P, class M> DEVICE void await_place(M *m, const struct ring &r) {
    struct ring after = r;
    next_of<P::PARTS>(after);
    barrier_wait(&m->x_empty[after.at], after.parity);
}
template <class T, int N>
DEVICE void bring_x(struct wide_mem<T, N, false> *m, const struct wide_job &job, uint32_t i, struct ring &r) {
    typedef struct x_parts<T::BLOCK, N, false> parts;
    const bool more = (i + 1) % parts::MORE_EACH == 0;
    const uint8_t *from = job.x + (size_t)i * parts::SIZE + i / parts::MORE_EACH * (size_t)parts::MORE;
    await_place<parts>(m, r);
    barrier_expect(&m->x_full[r.at], more ? parts::SIZE + parts::MORE : parts::SIZE);
    if (N == 64 && job.half >= 0) {
        bring_half(m, job, i, r.at);
    } else {
        bulk_copy(m->x[r.at], from, parts::SIZE, &m->x_full[r.at]);
        if (more)
            bulk_copy(m->more[r.at / parts::MORE_EACH], from + parts::SIZE, parts::MORE, &m->x_full[r.at]);
    }
    barrier_arrive(&m->x_full[r.at]);
    next_of<parts::PARTS>(r);
}
template <class T> DEVICE uint32_t parts_of_x(const struct wide_job &job) { return T::BLOCK == 256 ? 2 * job.nb : (job.nb + 3) / 4; }
/* x_waits: of the thread that brings x, which the launch before is still to make. */
template <class T, int N, class J>
DEVICE void bring_all(struct wide_mem<T, N, false> *m, const J &job, struct ring &w, struct ring &x, bool &x_waits) {
    const uint32_t n_x = parts_of_x<T>(job);
    for (uint32_t b = 0; b < job.items; b++, next_of<ITEMS>(w)) {
        barrier_wait(&m->w_empty[w.at], w.parity);
        bring_item<T>(m->w[w.at], job, b);
        barrier_arrive_copied(&m->w_full[w.at]);
        if (x_waits) {
            wait_for_last();
            x_waits = false;
        }
        for (uint32_t i = 2 * b; threadIdx.x == MULTIPLIERS && i < n_x && i < 2 * b + 2; i++)
            bring_x<T, N>(m, job, i, x);
        __syncwarp();
    }
}

#endif
#endif
