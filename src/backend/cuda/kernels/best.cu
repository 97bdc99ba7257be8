/* best.cu - the largest numbers of rows and where they are: what a sampler wants of logits.
 *
 * A number is a key as in engine/sampler_impl.h: keys ascend from the best, of equal numbers the smaller
 * place is first, and what is no candidate (NaN, -infinity) is behind all.  Keys are told apart by their
 * places, so what is kept does not depend on how a row is cut.
 *
 * Draws (base/draw.h) end here too: a warp a row, or where only the largest number counts a search for it.
 *
 * A block of threads sorts a slice in chunks and halves their number again and again: of two ascending
 * chunks the smaller of a's j-th and b's j-th from the end are the smallest of both, which a bitonic
 * merge puts in order (Batcher, "Sorting networks and their applications", 1968).  A chunk holds what is kept:
 * LODE_BEST_FEW keys, or LODE_BEST_KEPT for who wants more. */
#include "backend/cuda/kernels/common.cuh"
#include "backend/cuda/kernels/draw.h"

#include <float.h>

#define DMATH DEVICE
#define DMATH_STATIC DEVICE
#include "base/dmath_body.h"

/* One warp a draw. */
#define DRAW DEVICE
#define DRAW_LANE threadIdx.x
#define DRAW_LANES 32
#define DRAW_MEET() __syncwarp()
#include "base/draw_body.h"

typedef unsigned long long key;

enum { THREADS = LODE_BEST_THREADS };

#define NO_KEY (~(key)0)

struct pair {
    float number;
    int32_t place;
};

DEVICE key key_of(float x, uint32_t place) {
    if (!(x > -INFINITY))
        return NO_KEY;
    const uint32_t bits = lode_f32_bits((x < FLT_MAX ? x : FLT_MAX) + 0.0f); /* -0 becomes 0 */
    const uint32_t rising = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (key)~rising << 32 | place;
}

DEVICE struct pair pair_of(key k) {
    const uint32_t rising = ~(uint32_t)(k >> 32);
    const uint32_t bits = rising >> 31 ? rising & 0x7fffffffu : ~rising;
    struct pair p = {0, -1};
    if (k != NO_KEY) {
        memcpy(&p.number, &bits, sizeof bits);
        p.place = (int32_t)(uint32_t)k;
    }
    return p;
}

/* Puts a[i] and a[i + distance] in order, for all i of n keys that have such a partner. */
template <uint32_t CHUNK> DEVICE void order(key *a, uint32_t n, uint32_t distance, uint32_t run) {
    __syncthreads();
    for (uint32_t t = threadIdx.x; t < n / 2; t += THREADS) {
        const uint32_t i = 2 * t - (t & (distance - 1)); /* distance: a power of two */
        const bool falls = (i & run) && run < CHUNK; /* a chunk as a whole rises */
        const key x = a[i], y = a[i + distance];
        if ((x > y) != falls) {
            a[i] = y;
            a[i + distance] = x;
        }
    }
}

/* Each chunk of the slice in ascending order. */
template <uint32_t CHUNK> DEVICE void sort_chunks(key *a) {
    for (uint32_t run = 2; run <= CHUNK; run *= 2)
        for (uint32_t distance = run / 2; distance; distance /= 2)
            order<CHUNK>(a, LODE_BEST_SLICE, distance, run);
    __syncthreads();
}

/* The smallest keys of all chunks, which are in order, to the first. */
template <uint32_t CHUNK> DEVICE void merge_chunks(key *a) {
    for (uint32_t n = LODE_BEST_SLICE / CHUNK / 2; n; n /= 2) {
        __syncthreads();
        for (uint32_t t = threadIdx.x; t < n * CHUNK; t += THREADS) { /* chunk c takes in chunk n + c */
            const uint32_t c = t / CHUNK, j = t % CHUNK;
            const key other = a[(n + c) * CHUNK + CHUNK - 1 - j];
            a[t] = other < a[t] ? other : a[t];
        }
        for (uint32_t distance = CHUNK / 2; distance; distance /= 2)
            order<CHUNK>(a, n * CHUNK, distance, CHUNK);
    }
    __syncthreads();
}

/* Block (slice, row): the best of a slice of a row. */
template <uint32_t CHUNK> DEVICE void best_of_slice(const struct lode_cuda_best_args &a) {
    __shared__ key keys[LODE_BEST_SLICE];
    begin();
    const uint32_t first = blockIdx.x * LODE_BEST_SLICE;
    const float *x = row_at<const float>(a.x, blockIdx.y);
    for (uint32_t i = threadIdx.x; i < LODE_BEST_SLICE; i += THREADS)
        keys[i] = first + i < a.width ? key_of(x[first + i], first + i) : NO_KEY;
    sort_chunks<CHUNK>(keys);
    merge_chunks<CHUNK>(keys);
    key *kept = at<key>(a.kept) + ((uint64_t)blockIdx.y * a.n_slices + blockIdx.x) * CHUNK;
    if (threadIdx.x < CHUNK)
        kept[threadIdx.x] = keys[threadIdx.x];
}
KERNEL(THREADS) best_of_slices(const __grid_constant__ struct lode_cuda_best_args a) { best_of_slice<LODE_BEST_KEPT>(a); }
KERNEL(THREADS) few_of_slices(const __grid_constant__ struct lode_cuda_best_args a) { best_of_slice<LODE_BEST_FEW>(a); }

/* The best of all slices of row blockIdx.x, to keys; the first chunk is what was best so far. */
template <uint32_t CHUNK> DEVICE void merge_slices(key *keys, lode_dev slices, uint32_t n_slices) {
    const key *kept = at<const key>(slices) + (uint64_t)blockIdx.x * n_slices * CHUNK;
    const uint32_t n = n_slices * CHUNK;
    for (uint32_t from = 0; from < n; from += LODE_BEST_SLICE - CHUNK) {
        for (uint32_t i = threadIdx.x; i < LODE_BEST_SLICE; i += THREADS) {
            const uint32_t k = from + i - CHUNK;
            if (i >= CHUNK)
                keys[i] = k < n ? kept[k] : NO_KEY;
            else if (from == 0)
                keys[i] = NO_KEY;
        }
        merge_chunks<CHUNK>(keys);
    }
}

/* Block row: the best of all its slices. */
template <uint32_t CHUNK> DEVICE void best_of_row(const struct lode_cuda_best_args &a) {
    __shared__ key keys[LODE_BEST_SLICE];
    begin();
    merge_slices<CHUNK>(keys, a.kept, a.n_slices);
    struct pair *y = at<struct pair>(a.y) + (uint64_t)blockIdx.x * a.k;
    if (threadIdx.x < a.k)
        y[threadIdx.x] = pair_of(keys[threadIdx.x]);
}
KERNEL(THREADS) best_of_rows(const __grid_constant__ struct lode_cuda_best_args a) { best_of_row<LODE_BEST_KEPT>(a); }
KERNEL(THREADS) few_of_rows(const __grid_constant__ struct lode_cuda_best_args a) { best_of_row<LODE_BEST_FEW>(a); }

/* ---- draws: the id alone ---- */

DEVICE void put_drawn(lode_dev step, uint32_t row, int32_t id) { at<int32_t>(step)[-1 - (int)row] = id; }

/* Block row: a draw among the best of all its slices. */
KERNEL(THREADS) draw_of_rows(const __grid_constant__ struct lode_cuda_draw_args a) {
    __shared__ key keys[LODE_BEST_SLICE];
    __shared__ struct lode_draw_room room;
    begin();
    merge_slices<LODE_BEST_FEW>(keys, a.kept, a.n_slices);
    if (threadIdx.x >= 32)
        return;
    const struct lode_draw *d = &a.draws[blockIdx.x];
    uint32_t n = 0; /* those that are there come first */
    while (n < d->n && keys[n] != NO_KEY)
        n++;
    for (uint32_t i = threadIdx.x; i < n; i += 32) {
        const struct pair p = pair_of(keys[i]);
        room.logit[i] = p.number;
        room.id[i] = p.place;
    }
    if (threadIdx.x == 0)
        room.n = n;
    __syncwarp();
    const int32_t id = draw_few(d, &room);
    if (threadIdx.x == 0)
        put_drawn(a.step, blockIdx.x, id);
}

/* The smallest key of a block's threads; the first has it. */
DEVICE key smallest(key k) {
    __shared__ key of_warp[LODE_DRAW_THREADS / 32];
    for (int w = 16; w; w /= 2) {
        const key o = __shfl_down_sync(0xffffffffu, k, w);
        k = o < k ? o : k;
    }
    if (threadIdx.x % 32 == 0)
        of_warp[threadIdx.x / 32] = k;
    __syncthreads();
    for (uint32_t i = 0; i < LODE_DRAW_THREADS / 32; i++)
        k = of_warp[i] < k ? of_warp[i] : k;
    return k;
}

/* Block (slice, row): the largest number of a slice. */
KERNEL(LODE_DRAW_THREADS) draw_slices(const __grid_constant__ struct lode_cuda_draw_args a) {
    begin();
    const uint32_t first = blockIdx.x * LODE_DRAW_SLICE;
    const float *x = row_at<const float>(a.x, blockIdx.y);
    key best = NO_KEY;
    for (uint32_t i = first + threadIdx.x; i < first + LODE_DRAW_SLICE && i < a.width; i += LODE_DRAW_THREADS) {
        const key k = key_of(x[i], i);
        best = k < best ? k : best;
    }
    best = smallest(best);
    if (threadIdx.x == 0)
        at<key>(a.kept)[(uint64_t)blockIdx.y * a.n_slices + blockIdx.x] = best;
}

/* Block row: the place of the largest of all its slices'. */
KERNEL(LODE_DRAW_THREADS) draw_largest(const __grid_constant__ struct lode_cuda_draw_args a) {
    begin();
    const key *kept = at<const key>(a.kept) + (uint64_t)blockIdx.x * a.n_slices;
    key best = NO_KEY;
    for (uint32_t i = threadIdx.x; i < a.n_slices; i += LODE_DRAW_THREADS)
        best = kept[i] < best ? kept[i] : best;
    best = smallest(best);
    if (threadIdx.x == 0)
        put_drawn(a.step, blockIdx.x, best == NO_KEY ? 0 : (int32_t)(uint32_t)best);
}
