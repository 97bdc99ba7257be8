/* chosen_in_32.cu - gate and up of the experts that one row has chosen, and their activation, in types of blocks of 32; the choice itself, where
 * the router's logits are what comes before.
 *
 * A warp's unit are two rows of an expert's gate and the same of its up.  Four neighbouring threads have one block of each of these and read
 * the same numbers of x, which take most passes over the banks: sixteen bytes of codes meet thirty-two of x.  Pairs go where the row's
 * codes were, so that there is room for more rows on their way; a thread a row then adds them. */
#include "chosen_32.cuh"
#include "chosen_choice.cuh"

enum {
    EACH = LODE_CHOSEN_EACH_32,
    ROWS = 2 * EACH,  /* of a unit: gate's, then up's */
    STEP = 32 / ROWS, /* blocks of each that a warp has at a time */
};

/* ---- a warp's units, on their way to its slots ---- */

struct units {
    uint8_t *slots;
    uint32_t first, step;  /* of the warp's; from one to the next */
    uint32_t asked, fill;  /* the next one, to the next slot */
    uint32_t slot, parity; /* which is used next */
};
DEVICE struct units begin_units(const struct lode_cuda_chosen_in_args &s) {
    const uint32_t warp = threadIdx.x / 32, first = warp * gridDim.x + blockIdx.x;
    if (IN_BULK)
        make_barriers(s.slots);
    return {(uint8_t *)row_mem + s.own_at + warp * s.own, first, gridDim.x * n_warps(), first, 0, 0, 0};
}

/* Whose rows a unit's are: of the chosen, from which row on. */
struct place {
    uint32_t chosen, first;
};
DEVICE struct place place_of(const struct lode_cuda_chosen_in_args &s, uint32_t unit) {
    const uint32_t chosen = over(unit, s.per);
    return {chosen, (unit - chosen * s.per.by) * EACH};
}

/* The next unit, where there is one; expert: thread i's the i-th. */
DEVICE void ask_next(struct units &u, const struct lode_cuda_chosen_in_args &s, int expert) {
    if (u.asked < s.a.n_units) {
        const struct place p = place_of(s, u.asked);
        const uint32_t stride = s.a.parts[0].w_stride, barrier = IN_BULK ? barrier_of(u.fill, threadIdx.x / 32) : 0;
        const int who = __shfl_sync(0xffffffffu, expert, p.chosen);
        uint32_t to = shared_address(u.slots + u.fill * s.slot_size);
        if (IN_BULK && elected())
            barrier_arrive_expect(barrier, ROWS * stride);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint8_t *from = at<const uint8_t>(s.a.parts[m].w) + who * s.a.parts[m].expert_size + (size_t)p.first * stride;
#pragma unroll
            for (uint32_t r = 0; r < EACH; r++, from += stride, to += s.pitch)
                if (!IN_BULK)
                    for (uint32_t i = 16 * (threadIdx.x % 32); i < stride; i += 512)
                        copy_async_at<16>(to + i, from + i);
                else if (elected())
                    bulk_copy(to, from, stride, barrier);
        }
    }
    if (!IN_BULK)
        copies_end_group();
    u.asked += u.step;
    u.fill = u.fill + 1 == s.slots ? 0 : u.fill + 1;
}
DEVICE void ask_first(struct units &u, const struct lode_cuda_chosen_in_args &s, int expert) {
#pragma unroll 1
    for (uint32_t i = 0; i < s.slots; i++)
        ask_next(u, s, expert);
}
DEVICE uint8_t *await_next(const struct units &u, const struct lode_cuda_chosen_in_args &s) {
    if (IN_BULK)
        barrier_wait(barrier_of(u.slot, threadIdx.x / 32), u.parity);
    else
        wait_but(s.slots - 1);
    return u.slots + u.slot * s.slot_size;
}
/* The slot is free: nobody reads any more what was stored there. */
DEVICE void use_next(struct units &u, const struct lode_cuda_chosen_in_args &s, int expert) {
    if (IN_BULK)
        stored_for_wgmma(); /* for copies here */
    __syncwarp();
    if (++u.slot == s.slots)
        u.slot = 0, u.parity ^= 1;
    ask_next(u, s, expert);
}

/* ---- x ---- */

/* x, rounded: a warp four blocks, the last warps first, as the first ones choose experts.  asked(): when the first are asked for. */
template <class T, class F> DEVICE void make_rounded(const struct lode_cuda_gemv_args &a, uint8_t *x, F asked) {
    const uint32_t nb = a.cols / 32, step = 4 * n_warps(), k = word_here();
    const bool as_is = a.input == LODE_GEMV_AS_IS;
    uint32_t b = block_from(step - 4 - threadIdx.x / 32 * 4);
    float4 now = make_float4(0, 0, 0, 0), next = now;
    if (!as_is)
        now = four_numbers_of(at<const float>(a.x), nb, b), next = four_numbers_of(at<const float>(a.x), nb, b + step);
    asked();
#pragma unroll 1
    for (; b - threadIdx.x % 32 / 8 < nb; b += step) {
        struct rounded r;
        if (as_is) {
            const uint32_t *block = at<const uint32_t>(a.x) + (b < nb ? b : nb - 1) * 10;
            r = {lode_bits_f32(block[0]), (int)block[1], block[2 + k]};
        } else {
            r = round_a32(now);
            now = next, next = four_numbers_of(at<const float>(a.x), nb, b + 2 * step);
        }
        put_block<T>(x, nb, b, r);
        if (!a.q_out || blockIdx.x || b >= nb)
            continue;
        uint32_t *block = at<uint32_t>(a.q_out) + b * 10;
        block[2 + k] = r.q;
        if (k == 0)
            *(uint2 *)block = make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
    }
}

/* ---- products ---- */

/* A thread's pairs of N blocks of the row at `row`, from block b on every STEP-th, when all threads have read theirs.  The pairs of a block are
 * no larger than its codes, so they reach no codes that are still wanted.  WHOLE: all of them are there. */
template <class T, int N, bool WHOLE>
DEVICE void put_some(const struct codes_of<T> &codes, uint8_t *row, const uint8_t *x, uint32_t nb, uint32_t b) {
    struct pairs_of<T> p[N];
#pragma unroll
    for (uint32_t i = 0; i < N; i++)
        p[i].set(codes, row, x, nb, WHOLE || b + i * STEP < nb ? b + i * STEP : nb - 1);
    __syncwarp();
#pragma unroll
    for (uint32_t i = 0; i < N; i++)
        if (WHOLE || b + i * STEP < nb)
            p[i].put(row, b + i * STEP);
}
/* Those of a unit's rows. */
template <class T>
DEVICE void put_pairs(const struct lode_cuda_chosen_in_args &s, const struct codes_of<T> &codes, uint8_t *slot, const uint8_t *x) {
    const uint32_t nb = s.nb.by, lane = threadIdx.x % 32;
    uint8_t *row = slot + lane % ROWS * s.pitch;
    uint32_t b = lane / ROWS;
#pragma unroll 1
    for (uint32_t n = nb / (2 * STEP); n; n--, b += 2 * STEP)
        put_some<T, 2, true>(codes, row, x, nb, b);
#pragma unroll 1
    for (; b - lane / ROWS < nb; b += STEP)
        put_some<T, 1, false>(codes, row, x, nb, b);
    __syncwarp();
}

template <class T> DEVICE void gate_and_up(const struct lode_cuda_chosen_in_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t lane = threadIdx.x % 32;
    const bool adds = lane < ROWS, is_up = lane >= EACH; /* a thread a row */
    uint8_t *x = (uint8_t *)row_mem;
    struct units u = begin_units(s);
    struct route_of route = begin_chosen(s);
    make_rounded<T>(a, x, [&] {
        if (!s.chooses)
            ask_first(u, s, route.expert);
    });
    if (s.chooses) { /* ends with a barrier */
        route = choose_here(s);
        ask_first(u, s, route.expert);
    } else {
        __syncthreads();
    }
    const struct codes_of<T> codes;
    const lode_dev bias_at = is_up ? a.parts[1].bias : a.parts[0].bias;
#pragma unroll 1
    for (uint32_t unit = u.first; unit < a.n_units; unit += u.step) {
        const struct place p = place_of(s, unit);
        const uint32_t row = p.first + (is_up ? lane - EACH : lane);
        const int expert = __shfl_sync(0xffffffffu, route.expert, p.chosen);
        const float weight = __shfl_sync(0xffffffffu, route.weight, p.chosen);
        const bool biased = adds && bias_at;
        float bias = 0, v = 0;
        if (biased) /* on its way meanwhile */
            bias = at<const float>(bias_at)[(size_t)expert * a.parts[0].rows + row];
        uint8_t *slot = await_next(u, s);
        put_pairs<T>(s, codes, slot, x);
        if (adds)
            v = add_blocks<T>(slot + lane * s.pitch, s.nb.by);
        use_next(u, s, route.expert);
        if (biased)
            v += bias;
        float up = __shfl_down_sync(0xffffffffu, v, EACH);
        if (a.weigh_input)
            v *= weight, up *= weight;
        if (lane < EACH)
            ((float *)(a.parts[0].y + p.chosen * a.y_stride))[row] = short_glu_of(a.act, v, up);
    }
}

#define GATE_AND_UP(suffix, type) CHOSEN(chosen_in, gate_and_up, lode_cuda_chosen_in_args, suffix, struct suffix)
LODE_CHOSEN_32_LIST(GATE_AND_UP)
