/* chosen.cu - the experts that one row has chosen, whose weights are Q4_K, Q5_K or Q6_K: gate and up with their
 * activation, and the weighed sum of down.
 *
 * There is little to read, so what a launch takes is what has to be done one after the other.  All that a block of
 * threads reads is asked for at once, by asynchronous copies, as soon as the experts are known: rows of gate and up
 * before x is rounded, rows of down while gate and up are still computed, by blocks of threads that come early
 * (the route was there before gate and up began; see `known`).
 *
 * A thread has half a block of one row (half_blocks.cuh), a warp as many rows side by side as it has threads for.  The
 * pairs that the definition adds go to shared memory, and one thread a row adds them in ascending order; of several
 * units at once, as that is one chain of instructions after the other. */
#include "chosen_shared.h"
#include "half_blocks.cuh"

enum { CHOSEN_THREADS = 32 * LODE_CHOSEN_WARPS };

/* ---- a row's way through shared memory ---- */

/* A row as it lies on the device: 128 bytes of codes a block, behind all of them the top bits, then 16 bytes a block: of Q4_K and
 * Q5_K d, dmin and scales, of Q6_K scales, behind which its d's come last. */
template <int TYPE> struct row_of {
    enum { TOP = TYPE == LODE_Q6_K ? 64 : TYPE == LODE_Q5_K ? 32 : 0, PIECES = 8 + TOP / 16 + 1 }; /* 16 bytes, of a block */
    /* A row's pieces; eight threads that read the same piece of eight halves have all banks. */
    static DEVICE_MEMBER void ask(uint8_t *to, const uint8_t *from, uint32_t nb) {
        const uint32_t lane = threadIdx.x % 32, n = PIECES * nb + (TYPE == LODE_Q6_K ? (nb + 7) / 8 : 0);
        const uint32_t codes = lane ^ (lane / 8 & 3), top = lane ^ ((lane / 8 ^ nb) & 1);
#pragma unroll 3
        for (uint32_t k = 0; k < n; k += 32) {
            const uint32_t p = k + lane;
            const uint32_t place = k + (p < 8 * nb ? codes : TYPE == LODE_Q6_K && p < 12 * nb ? top : lane);
            if (p < n)
                copy_async<16>(to + place * 16, from + p * 16);
        }
    }
};

/* Half `half` of the row at `row` by that of x: its pairs, to `pairs` where `here` says so.  By all threads of a warp: two
 * neighbours have a block. */
template <int TYPE>
DEVICE void put_half(const uint8_t *row, const uint8_t *x, uint32_t nb, uint32_t half, uint8_t *pairs, bool here) {
    const uint32_t h = half & 1, b = half / 2;
    const uint8_t *after = row + nb * 128;
    const struct half_of o = {row + half * 64, x + half * HALF_X, x + 2 * nb * HALF_X + half * 16, h, half / 2 & 3};
    struct half_sums v;
    uint32_t d; /* two halves: of the codes, of the minima */
    if (TYPE == LODE_Q6_K) {
        v = q6_k_half(o, *(const uint2 *)(after + nb * 64 + b * 16 + 8 * h), after + half * 32, b / 2 & 1);
        d = *(const uint16_t *)(after + nb * 80 + b * 2);
    } else {
        const uint4 head = *(const uint4 *)(after + nb * row_of<TYPE>::TOP + b * 16);
        v = TYPE == LODE_Q5_K ? q5_k_half(o, head, after + b * 32, 0) : q4_k_half(o, head);
        d = head.x;
    }
    const struct half_pair pair = half_pair_of(o, v, d);
    if (here)
        pair.put(pairs + b * 16, h);
}

/* Halves of some rows that lie side by side, by a warp: f(row, half, whether it is there); what is not there is a half
 * of row 0. */
struct halves_of {
    uint32_t of_row, n; /* halves */
    uint32_t row, half; /* this thread's first */
    DEVICE_MEMBER void set(const struct lode_cuda_divisor &nb, uint32_t rows) {
        of_row = 2 * nb.by, n = of_row * rows;
        row = over(threadIdx.x % 32 / 2, nb), half = threadIdx.x % 32 - row * of_row;
    }
    template <class F> DEVICE_MEMBER void each(F f) const {
        uint32_t r = row, k = half;
#pragma unroll 1
        for (uint32_t first = 0;;) {
            const bool here = first + threadIdx.x % 32 < n;
            f(here ? r : 0, here ? k : k & 1, here);
            if ((first += 32) >= n)
                break;
            for (k += 32; k >= of_row; k -= of_row)
                r++;
        }
    }
};

/* The definition's sum over a row's pairs. */
DEVICE float add_pairs(const uint8_t *pairs, uint32_t nb) {
    const float4 *p = (const float4 *)pairs;
    float acc = 0;
#pragma unroll 4
    for (uint32_t b = 0; b < nb; b++) {
        const float4 v = p[b];
        acc = fmaf(v.x, v.y, acc);
        acc = fmaf(v.z, v.w, acc);
    }
    return acc;
}

/* ---- a warp's units ---- */

/* Waits until all copies have come but those of the last n groups. */
DEVICE void wait_but(uint32_t n) {
    switch (n) {
    case 0:
        copies_wait<0>();
        break;
    case 1:
        copies_wait<1>();
        break;
    case 2:
        copies_wait<2>();
        break;
    default:
        copies_wait<3>();
    }
    __syncwarp();
}
static_assert(LODE_CHOSEN_SLOTS == 4, "wait_but");

struct walk {
    uint8_t *slots, *pairs;
    uint32_t first, step; /* units */
    uint32_t asked, fill, slot;
};
DEVICE struct walk begin_walk(const struct lode_cuda_chosen_args &s) {
    const uint32_t warp = threadIdx.x / 32;
    uint8_t *own = (uint8_t *)row_mem + s.own_at + warp * s.own;
    return {own, own + s.slots * s.slot_size, warp * gridDim.x + blockIdx.x, gridDim.x * n_warps(),
            warp * gridDim.x + blockIdx.x, 0, 0};
}
/* The next unit, by ask(unit, slot), where there is one; a group of copies in any case. */
template <class F> DEVICE void ask_next(struct walk &w, const struct lode_cuda_chosen_args &s, F ask) {
    if (w.asked < s.a.n_units)
        ask(w.asked, w.slots + w.fill * s.slot_size);
    copies_end_group();
    w.asked += w.step;
    w.fill = w.fill + 1 == s.slots ? 0 : w.fill + 1;
}
template <class F> DEVICE void ask_first(struct walk &w, const struct lode_cuda_chosen_args &s, F ask) {
#pragma unroll 1
    for (uint32_t i = 0; i < s.slots; i++)
        ask_next(w, s, ask);
}
/* All units: pairs(slot, pairs) of one to the k-th of s.batch places, then end(unit of the first, n of them). */
template <class F, class P, class E>
DEVICE void each_unit(struct walk &w, const struct lode_cuda_chosen_args &s, uint32_t pairs_size, F ask, P pairs, E end) {
    uint32_t n = 0;
#pragma unroll 1
    for (uint32_t unit = w.first; unit < s.a.n_units; unit += w.step) {
        wait_but(s.slots - 1);
        pairs(w.slots + w.slot * s.slot_size, w.pairs + n * pairs_size);
        w.slot = w.slot + 1 == s.slots ? 0 : w.slot + 1;
        __syncwarp(); /* the slot is free, and the pairs are there */
        ask_next(w, s, ask);
        if (++n < s.batch && unit + w.step < s.a.n_units)
            continue;
        end(unit - (n - 1) * w.step, n);
        n = 0;
        __syncwarp();
    }
}

/* The route: thread i of a warp has the i-th expert and its weight (the last one's where there is none).  Not by way of the
 * first cache: see `known`. */
struct route_of {
    int expert;
    float weight;
};
DEVICE struct route_of read_route(const struct lode_cuda_gemv_args &a) {
    const uint32_t lane = threadIdx.x % 32, i = lane < a.n_used ? lane : a.n_used - 1;
    int2 v;
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(a.route + 8 * i));
    return {v.x, lode_bits_f32((uint32_t)v.y)};
}

/* ---- gate and up ---- */

/* x, rounded: a warp a block.  then(): when the first are asked for.  make_x (stream_x.cuh) in fewer instructions, as no norm
 * comes before. */
template <class F> DEVICE void make_rounded(const struct lode_cuda_gemv_args &a, uint8_t *x, F then) {
    const uint32_t warp = threadIdx.x / 32, nb = a.cols / 256;
    const bool as_is = a.input == LODE_GEMV_AS_IS;
    const float4 *numbers = at<const float4>(a.x) + threadIdx.x % 32 * 2;
    float4 u, v;
    if (!as_is && warp < nb)
        u = numbers[warp * 64], v = numbers[warp * 64 + 1];
    then();
#pragma unroll 1
    for (uint32_t b = warp; b < nb; b += n_warps()) {
        if (as_is) {
            put_x(x, a.cols, b, get_a256(at<const uint8_t>(a.x) + b * 304));
            continue;
        }
        round_block(a, x, b, u, v);
        if (b + n_warps() < nb)
            u = numbers[(b + n_warps()) * 64], v = numbers[(b + n_warps()) * 64 + 1];
    }
    __syncthreads();
}

template <int TYPE> DEVICE void gate_and_up(const struct lode_cuda_chosen_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, each = s.each.by;
    const uint32_t pitch = LODE_STREAM_K_PAIRS(a.cols), stride = a.parts[0].w_stride;
    uint8_t *x = (uint8_t *)row_mem;
    struct walk w = begin_walk(s);
    struct halves_of halves;
    halves.set(s.nb, 2 * each);
    wait_for_last();
    let_next_come(); /* after the wait: who comes next may read the route before it waits */
    const struct route_of route = read_route(a);
    const auto ask = [&](uint32_t unit, uint8_t *slot) {
        const uint32_t i = over(unit, s.per), first = (unit - i * s.per.by) * each;
        const int expert = __shfl_sync(0xffffffffu, route.expert, i);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint8_t *from = at<const uint8_t>(a.parts[m].w) + expert * a.parts[m].expert_size + (size_t)first * stride;
#pragma unroll 1
            for (uint32_t r = 0; r < each; r++, from += stride, slot += s.pitch)
                row_of<TYPE>::ask(slot, from, nb);
        }
    };
    make_rounded(a, x, [&] { ask_first(w, s, ask); }); /* ends with a barrier */
    const auto pairs = [&](const uint8_t *slot, uint8_t *to) {
        halves.each([&](uint32_t r, uint32_t half, bool here) {
            put_half<TYPE>(slot + r * s.pitch, x, nb, half, to + r * pitch, here);
        });
    };
    const auto end = [&](uint32_t unit, uint32_t n) { /* a thread a row of both */
        const uint32_t k = over(lane, s.each), r = lane - k * each;
        unit += k * w.step;
        const uint32_t i = over(unit, s.per), row = (unit - i * s.per.by) * each + r;
        const int expert = __shfl_sync(0xffffffffu, route.expert, i);
        const float weight = __shfl_sync(0xffffffffu, route.weight, i);
        if (k >= n)
            return;
        const uint8_t *own = w.pairs + (k * 2 * each + r) * pitch;
        float v = add_pairs(own, nb), u = add_pairs(own + each * pitch, nb);
        if (a.parts[0].bias)
            v += at<const float>(a.parts[0].bias)[(size_t)expert * a.parts[0].rows + row];
        if (a.parts[1].bias)
            u += at<const float>(a.parts[1].bias)[(size_t)expert * a.parts[1].rows + row];
        if (a.weigh_input)
            v *= weight, u *= weight;
        ((float *)(a.parts[0].y + i * a.y_stride))[row] = short_glu_of(a.act, v, u);
    };
    each_unit(w, s, 2 * each * pitch, ask, pairs, end);
}

/* ---- down ---- */

/* A thread's numbers of block j of all rows of x. */
struct eight { float4 u, v; };
DEVICE struct eight eight_at(const struct lode_cuda_chosen_args &s, uint32_t j) {
    const uint32_t row = over(j, s.nb), b = j - row * s.nb.by;
    const float4 *p = at<const float4>(s.a.x + row * s.a.x_stride) + b * 64 + threadIdx.x % 32 * 2;
    return {p[0], p[1]};
}
template <int TYPE> DEVICE void down(const struct lode_cuda_chosen_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const struct lode_cuda_gemv_part &part = a.parts[0];
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t pitch = LODE_STREAM_K_PAIRS(a.cols), x_size = LODE_CHOSEN_X(a.cols);
    uint8_t *x = (uint8_t *)row_mem;
    struct walk w = begin_walk(s);
    struct halves_of halves;
    halves.set(s.nb, a.n_used);
    let_next_come();
    if (!s.known)
        wait_for_last();
    const uint32_t own = lane < a.n_used ? lane : a.n_used - 1; /* of the experts */
    const struct route_of route = read_route(a);
    const float weight = a.weigh_input ? 1.0f : route.weight;
    const unsigned long long matrix = part.w + route.expert * part.expert_size;
    const auto ask = [&](uint32_t unit, uint8_t *slot) {
        const unsigned long long row = matrix + (size_t)unit * part.w_stride;
#pragma unroll 4
        for (uint32_t i = 0; i < a.n_used; i++, slot += s.pitch)
            row_of<TYPE>::ask(slot, at<const uint8_t>(__shfl_sync(0xffffffffu, row, i)), nb);
    };
    ask_first(w, s, ask);
    if (s.known)
        wait_for_last();
    const float residual = a.residual && w.first < a.n_units ? at<const float>(a.residual)[w.first] : 0;
#pragma unroll 1
    for (uint32_t j = warp; j < a.n_used * nb; j += 2 * n_warps()) { /* two blocks are on their way together */
        const uint32_t other = j + n_warps() < a.n_used * nb ? j + n_warps() : j;
        struct eight now = eight_at(s, j);
        const struct eight next = eight_at(s, other);
#pragma unroll 1
        for (uint32_t k = j;; k = other, now = next) {
            const float numbers[8] = {now.u.x, now.u.y, now.u.z, now.u.w, now.v.x, now.v.y, now.v.z, now.v.w};
            const uint32_t row = over(k, s.nb);
            put_x(x + row * x_size, a.cols, k - row * nb, round_256(numbers));
            if (k == other)
                break;
        }
    }
    __syncthreads();
    const auto pairs = [&](const uint8_t *slot, uint8_t *to) {
        halves.each([&](uint32_t i, uint32_t half, bool here) {
            put_half<TYPE>(slot + i * s.pitch, x + i * x_size, nb, half, to + i * pitch, here);
        });
    };
    const auto end = [&](uint32_t row, uint32_t) { /* a thread an expert, then all threads their sum */
        float v = add_pairs(w.pairs + own * pitch, nb);
        if (part.bias)
            v += at<const float>(part.bias)[(size_t)route.expert * part.rows + row];
        float sum = 0;
#pragma unroll 8
        for (uint32_t k = 0; k < a.n_used; k++)
            sum = fmaf(__shfl_sync(0xffffffffu, weight, k), __shfl_sync(0xffffffffu, v, k), sum);
        if (lane)
            return;
        if (a.residual)
            sum = with_residual(a, sum, row == w.first ? residual : at<const float>(a.residual)[row]);
        at<float>(part.y)[row] = sum;
    };
    each_unit(w, s, a.n_used * pitch, ask, pairs, end);
}

#define CHOSEN(suffix, type)                                                                                     \
    extern "C" __global__ void __launch_bounds__(CHOSEN_THREADS, 1)                                              \
        chosen_in_##suffix(const __grid_constant__ struct lode_cuda_chosen_args s) {                             \
        gate_and_up<LODE_##type>(s);                                                                             \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(CHOSEN_THREADS, 1)                                              \
        chosen_out_##suffix(const __grid_constant__ struct lode_cuda_chosen_args s) {                            \
        down<LODE_##type>(s);                                                                                    \
    }
CHOSEN(q4_k, Q4_K)
CHOSEN(q5_k, Q5_K)
CHOSEN(q6_k, Q6_K)
