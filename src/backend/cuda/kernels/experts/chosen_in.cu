/* chosen_in.cu - gate and up of the experts that one row has chosen, and their activation, in Q4_K, Q5_K and Q6_K; the choice itself, where the
 * router's logits are what comes before.
 *
 * A choice of its own launch takes longer than one that every block of threads makes for itself.  Rows of gate and up are asked for before x is
 * rounded or, where the choice is made here, when x is rounded and experts are chosen, by warps of their own.
 *
 * A warp has as many rows side by side as it has threads for, and adds up the pairs of several units at once, as that is one chain of
 * instructions after the other. */
#include "chosen_256.cuh"
#include "chosen_choice.cuh"

/* ---- a row's way through shared memory ---- */

/* A row's pieces; eight threads that read the same piece of eight halves have all banks. */
template <int TYPE> DEVICE void ask_row(uint8_t *to, const uint8_t *from, uint32_t nb) {
    const uint32_t lane = threadIdx.x % 32, n = row_of<TYPE>::PIECES * nb + (TYPE == LODE_Q6_K ? (nb + 7) / 8 : 0);
    const uint32_t codes = lane ^ (lane / 8 & 3), top = lane ^ ((lane / 8 ^ nb) & 1);
#pragma unroll 3
    for (uint32_t k = 0; k < n; k += 32) {
        const uint32_t p = k + lane;
        const uint32_t place = k + (p < 8 * nb ? codes : TYPE == LODE_Q6_K && p < 12 * nb ? top : lane);
        if (p < n)
            copy_async<16>(to + place * 16, from + p * 16);
    }
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

/* ---- a warp's units ---- */

struct walk {
    uint8_t *slots, *pairs;
    uint32_t first, step; /* units */
    uint32_t asked, fill, slot;
};
DEVICE struct walk begin_walk(const struct lode_cuda_chosen_in_args &s) {
    const uint32_t warp = threadIdx.x / 32;
    uint8_t *own = (uint8_t *)row_mem + s.own_at + warp * s.own;
    return {own, own + s.slots * s.slot_size, warp * gridDim.x + blockIdx.x, gridDim.x * n_warps(),
            warp * gridDim.x + blockIdx.x, 0, 0};
}
/* The next unit, by ask(unit, slot), where there is one; a group of copies in any case. */
template <class F> DEVICE void ask_next(struct walk &w, const struct lode_cuda_chosen_in_args &s, F ask) {
    if (w.asked < s.a.n_units)
        ask(w.asked, w.slots + w.fill * s.slot_size);
    copies_end_group();
    w.asked += w.step;
    w.fill = w.fill + 1 == s.slots ? 0 : w.fill + 1;
}
template <class F> DEVICE void ask_first(struct walk &w, const struct lode_cuda_chosen_in_args &s, F ask) {
#pragma unroll 1
    for (uint32_t i = 0; i < s.slots; i++)
        ask_next(w, s, ask);
}
/* All units: pairs(slot, pairs) of one to the k-th of s.batch places, then end(unit of the first, n of them). */
template <class F, class P, class E>
DEVICE void each_unit(struct walk &w, const struct lode_cuda_chosen_in_args &s, uint32_t pairs_size, F ask, P pairs, E end) {
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

/* ---- x ---- */

/* x, rounded: a warp a block, the last warps first, as the first ones choose experts.  asked(): when the first are asked for.  make_x
 * (stream_x.cuh) in fewer instructions, as no norm comes before. */
template <class F> DEVICE void make_rounded(const struct lode_cuda_gemv_args &a, uint8_t *x, F asked) {
    const uint32_t warp = n_warps() - 1 - threadIdx.x / 32, nb = a.cols / 256;
    const bool as_is = a.input == LODE_GEMV_AS_IS;
    const float4 *numbers = at<const float4>(a.x) + threadIdx.x % 32 * 2;
    float4 u, v;
    if (!as_is && warp < nb)
        u = numbers[warp * 64], v = numbers[warp * 64 + 1];
    asked();
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
}

template <int TYPE> DEVICE void gate_and_up(const struct lode_cuda_chosen_in_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32, each = s.each.by;
    const uint32_t pitch = LODE_STREAM_K_PAIRS(a.cols), stride = a.parts[0].w_stride;
    uint8_t *x = (uint8_t *)row_mem;
    struct walk w = begin_walk(s);
    struct halves_of halves;
    halves.set(s.nb, 2 * each);
    struct route_of route = begin_chosen(s);
    const auto ask = [&](uint32_t unit, uint8_t *slot) {
        const uint32_t i = over(unit, s.per), first = (unit - i * s.per.by) * each;
        const int expert = __shfl_sync(0xffffffffu, route.expert, i);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint8_t *from = at<const uint8_t>(a.parts[m].w) + expert * a.parts[m].expert_size + (size_t)first * stride;
#pragma unroll 1
            for (uint32_t r = 0; r < each; r++, from += stride, slot += s.pitch)
                ask_row<TYPE>(slot, from, nb);
        }
    };
    make_rounded(a, x, [&] {
        if (!s.chooses)
            ask_first(w, s, ask);
    });
    if (s.chooses) { /* ends with a barrier */
        route = choose_here(s);
        ask_first(w, s, ask);
    } else {
        __syncthreads();
    }
    const auto pairs = [&](const uint8_t *slot, uint8_t *to) {
        halves.each([&](uint32_t r, uint32_t half, bool here) {
            put_half<TYPE, true>(slot + r * s.pitch, x, nb, half, to + r * pitch, here);
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

#define GATE_AND_UP(suffix, type) CHOSEN(chosen_in, gate_and_up, lode_cuda_chosen_in_args, suffix, LODE_##type)
LODE_CHOSEN_256_LIST(GATE_AND_UP)
