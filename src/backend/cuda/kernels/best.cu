/* best.cu - the largest numbers of rows and where they are: what a sampler wants of logits.
 *
 * A number is a key as in engine/sampler_impl.h: keys ascend from the best, of equal numbers the smaller
 * place is first, and what is no candidate (NaN, -infinity) is behind all.  Keys are told apart by their
 * places, so what is kept does not depend on how a row is cut.
 *
 * Draws (base/draw.h) end here too: a warp a row.
 *
 * The largest number of each slice comes first, a warp a slice.  t is about the largest number of which it is true that as many
 * slices as numbers are wanted have one no smaller: then as many numbers are no smaller, and whatever is among the best lies in these
 * slices, which are few.  Of what they have from t on, mostly hardly more than is wanted, each number's place is how many come
 * before it. */
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

enum {
    THREADS = LODE_BEST_THREADS,
    ROOM = 2048,  /* keys that are put in order at a time */
    FIND = 16,    /* threads that find one's place */
    AT_ONCE = 8,  /* numbers that a thread asks for together */
    LEAST_BIT = 12, /* of t that is looked for: a few numbers more are found with less */
};

#define NO_KEY (~(key)0)

struct pair {
    float number;
    int32_t place;
};

/* Ascends with the number; 0: no candidate. */
DEVICE uint32_t rising_of(float x) {
    if (!(x > -INFINITY))
        return 0;
    const uint32_t bits = lode_f32_bits((x < FLT_MAX ? x : FLT_MAX) + 0.0f); /* -0 becomes 0 */
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
DEVICE key key_of(uint32_t rising, uint32_t place) { return (key)~rising << 32 | place; }

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

/* Block (some slices, row): the largest number of each. */
KERNEL(LODE_BEST_SLICE_THREADS) best_of_slices(const __grid_constant__ struct lode_cuda_best_args a) {
    begin();
    const uint32_t lane = threadIdx.x % 32, slice = blockIdx.x * (LODE_BEST_SLICE_THREADS / 32) + threadIdx.x / 32, first = slice << a.log_slice;
    const uint32_t end = a.width - first < 1u << a.log_slice ? a.width : first + (1u << a.log_slice);
    if (slice >= a.n_slices)
        return;
    const float *x = row_at<const float>(a.x, blockIdx.y);
    uint32_t top = 0;
#pragma unroll 1
    for (uint32_t i = first + lane; i < end; i += 32 * AT_ONCE) {
        float v[AT_ONCE]; /* on their way together */
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++)
            v[u] = i + 32 * u < end ? x[i + 32 * u] : -INFINITY;
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t r = rising_of(v[u]);
            top = r > top ? r : top;
        }
    }
    top = warp_max(top, 32);
    if (lane == 0)
        at<uint32_t>(a.tops)[(uint64_t)blockIdx.y * a.n_slices + slice] = top;
}

/* ---- the best of a row ---- */

struct best {
    key found[ROOM], sorted[LODE_BEST_MOST];
    uint16_t slices[LODE_BEST_SLICES];
    uint32_t tops[THREADS / 32];
    uint32_t n_found, n_slices;
};

/* Of all threads' numbers; the twenty barriers of a search would be a third of a draw of the likeliest. */
DEVICE uint32_t largest(struct best &b, uint32_t top) {
    const uint32_t lane = threadIdx.x % 32;
    top = warp_max(top, 32);
    if (lane == 0)
        b.tops[threadIdx.x / 32] = top;
    __syncthreads();
    return warp_max(b.tops[lane], 32);
}

/* Those that are t and more, of the chosen slices' numbers from the first to before the last (multiples of 32), behind the keys that
 * are found; what there is no room for is counted. */
DEVICE void find(struct best &b, const struct lode_cuda_best_args &a, const float *x, uint32_t t, uint32_t first, uint32_t last) {
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t k = first + threadIdx.x; k - lane < last; k += THREADS * AT_ONCE) { /* by whole warps */
        uint32_t place[AT_ONCE];
        float v[AT_ONCE];
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t j = k + THREADS * u, in = j < last ? j : first;
            place[u] = ((uint32_t)b.slices[in >> a.log_slice] << a.log_slice) + (in & ((1u << a.log_slice) - 1));
            v[u] = j < last && place[u] < a.width ? x[place[u]] : -INFINITY;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const uint32_t r = rising_of(v[u]), who = __ballot_sync(0xffffffffu, r >= t);
            uint32_t to = 0;
            if (who && lane == 0)
                to = atomicAdd(&b.n_found, __popc(who));
            to = __shfl_sync(0xffffffffu, to, 0) + __popc(who & ((1u << lane) - 1));
            if (r >= t && to < ROOM)
                b.found[to] = key_of(r, place[u]);
        }
    }
    __syncthreads();
}
/* The best k of the n that are found, in order. */
DEVICE void put_in_order(struct best &b, uint32_t n, uint32_t k) {
    for (uint32_t first = threadIdx.x / 32 * (32 / FIND); first < n; first += THREADS / FIND) {
        const uint32_t i = first + threadIdx.x % 32 / FIND;
        const key own = b.found[i < n ? i : 0];
        uint32_t before = 0;
        for (uint32_t j = threadIdx.x % FIND; j < n; j += FIND)
            before += b.found[j] < own;
        __syncwarp();
        for (int w = FIND / 2; w; w /= 2)
            before += __shfl_xor_sync(0xffffffffu, before, w);
        if (threadIdx.x % FIND == 0 && i < n && before < k)
            b.sorted[before] = own;
    }
    __syncthreads();
}

/* The best k of row x to b.sorted, in order; how many there are.  By THREADS threads. */
DEVICE uint32_t best_of_row(struct best &b, const struct lode_cuda_best_args &a, uint32_t k) {
    const float *x = row_at<const float>(a.x, blockIdx.x);
    const uint32_t top = threadIdx.x < a.n_slices ? at<const uint32_t>(a.tops)[(uint64_t)blockIdx.x * a.n_slices + threadIdx.x] : 0;
    uint32_t t = k == 1 ? largest(b, top) : 0;
#pragma unroll 1
    for (uint32_t bit = k == 1 ? 0 : 1u << 31; bit >= 1u << LEAST_BIT; bit >>= 1)
        if ((uint32_t)__syncthreads_count(top >= (t | bit)) >= k)
            t |= bit;
    t = t ? t : 1; /* all candidates */
    if (threadIdx.x == 0)
        b.n_found = b.n_slices = 0;
    __syncthreads();
    if (top >= t)
        b.slices[atomicAdd(&b.n_slices, 1)] = (uint16_t)threadIdx.x;
    __syncthreads();
    const uint32_t all = b.n_slices << a.log_slice;
    find(b, a, x, t, 0, all);
    uint32_t n = b.n_found;
    if (n <= ROOM) {
        put_in_order(b, n, k);
        return n < k ? n : k;
    }
    /* many are alike: so many at a time that all have room beside the best so far */
    enum { SOME = ROOM - LODE_BEST_MOST };
    uint32_t kept = 0;
    for (uint32_t from = 0; from < all; from += SOME) {
        __syncthreads();
        if (threadIdx.x == 0)
            b.n_found = kept;
        if (threadIdx.x < kept)
            b.found[threadIdx.x] = b.sorted[threadIdx.x];
        __syncthreads();
        find(b, a, x, t, from, from + SOME < all ? from + SOME : all);
        n = b.n_found;
        put_in_order(b, n, k);
        kept = n < k ? n : k;
    }
    return kept;
}

/* Block row. */
KERNEL(THREADS) best_of_rows(const __grid_constant__ struct lode_cuda_best_args a) {
    __shared__ struct best b;
    begin();
    const uint32_t n = best_of_row(b, a, a.k);
    struct pair *y = at<struct pair>(a.y) + (uint64_t)blockIdx.x * a.k;
    if (threadIdx.x < a.k)
        y[threadIdx.x] = pair_of(threadIdx.x < n ? b.sorted[threadIdx.x] : NO_KEY);
}

/* Block row: a draw among the best, whose id alone the next step and the host want. */
KERNEL(THREADS) draw_of_rows(const __grid_constant__ struct lode_cuda_draw_args a) {
    __shared__ struct best b;
    __shared__ struct lode_draw_room room;
    __shared__ struct lode_draw own;
    begin();
    const struct lode_cuda_draws *draws = at<const struct lode_cuda_draws>(a.draws);
    const struct lode_draw *from = &draws->draws[blockIdx.x], *d = &own;
    static_assert(sizeof own / 4 <= 32, "a word a thread");
    const uint32_t word = threadIdx.x < sizeof own / 4 ? ((const uint32_t *)from)[threadIdx.x] : 0;
    const uint32_t n = best_of_row(b, a.best, from->n);
    if (threadIdx.x >= 32)
        return;
    if (threadIdx.x < sizeof own / 4)
        ((uint32_t *)&own)[threadIdx.x] = word;
    for (uint32_t i = threadIdx.x; i < n; i += 32) {
        const struct pair p = pair_of(b.sorted[i]);
        room.logit[i] = p.number;
        room.id[i] = p.place;
    }
    if (threadIdx.x == 0)
        room.n = n;
    __syncwarp();
    const int32_t id = draw_few(d, &room);
    if (threadIdx.x == 0) /* straight to the host: a copy would begin later than this ends */
        at<int32_t>(a.step)[-1 - (int)blockIdx.x] = at<int32_t>(draws->ids)[-1 - (int)blockIdx.x] = id;
}
