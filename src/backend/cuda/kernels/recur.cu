/* recur.cu - layers that carry a state from token to token: the definitions are backend/cpu/recur.c
 * and kern/recur_body.h.
 *
 * A segment's state and the checkpoint that the step leaves are blocks of device memory (store/state.h);
 * a.at is where in a block this layer's part lies. */
#include "backend/cuda/kernels/rows_shared.h"
#include "copies.cuh"
#include "shared_memory.cuh"

#define DEVICE_METHOD __device__ __forceinline__

#define DMATH DEVICE
#define DMATH_STATIC DEVICE
#include "base/dmath_body.h"

DEVICE const struct lode_cuda_segment &segment_of(lode_dev step, uint32_t i) {
    return at<const struct lode_cuda_segment>(step_at(step)->segments)[i];
}

/* ---- gates ---- */

DEVICE float number_of(const struct lode_cuda_numbers &n, uint32_t row, uint32_t h) {
    const uint32_t i = over(h, n.each);
    return row_at<const float>(n.x, row)[n.first + i * n.apart + h - i * n.each.by];
}
/* A head's of a row.  Waits for the launch before. */
DEVICE void make_gates(const struct lode_cuda_gates_args &a, uint32_t row, uint32_t h) {
    const float decay = at<const float>(a.a)[h], dt = at<const float>(a.dt)[h];
    wait_for_last();
    const float alpha = number_of(a.alpha, row, h), beta = number_of(a.beta, row, h);
    const double x = (double)alpha + (double)dt;
    const double softplus = x > 30 ? x : lode_log(1 + lode_exp(x));
    float *y = row_at<float>(a.y, row) + 2 * h;
    y[0] = (float)lode_exp((double)decay * softplus);
    y[1] = 1.0f / (1.0f + lode_expf(-beta));
}
/* blockIdx = row, heads */
KERNEL(128) delta_gates(const __grid_constant__ struct lode_cuda_gates_args a) {
    let_next_come();
    const uint32_t h = blockIdx.y * 128 + threadIdx.x;
    if (h < a.n_heads.by)
        make_gates(a, blockIdx.x, h);
}

/* ---- convolution: blockIdx = columns, and gates; rows of the segment, segment ---- */

enum { CONV_THREADS = LODE_CUDA_CONV_COLUMNS, MAX_TAPS = 8 };

/* What the taps give goes to shared memory, from where whole groups of a row are normed, each by a warp.  Of the segment's first rows what
 * was before them is the state's, which no launch of the step but this one writes: it is read before the last launch has ended. */
KERNEL(CONV_THREADS) conv(const __grid_constant__ struct lode_cuda_conv_args a) {
    __shared__ float rows[LODE_CUDA_CONV_ROWS][CONV_THREADS];
    let_next_come();
    const struct lode_cuda_segment seg = segment_of(a.step, blockIdx.z);
    const uint32_t first = blockIdx.y * LODE_CUDA_CONV_ROWS, inputs = a.taps - 1, t = threadIdx.x;
    if (first >= seg.n_rows)
        return;
    const uint32_t n = min(seg.n_rows - first, (uint32_t)LODE_CUDA_CONV_ROWS);
    if (blockIdx.x >= a.blocks) {
        const uint32_t i = (blockIdx.x - a.blocks) * CONV_THREADS + t, r = over(i, a.gates.n_heads);
        if (r < n)
            make_gates(a.gates, seg.first_row + first + r, i - r * a.gates.n_heads.by);
        return;
    }
    const uint32_t from = blockIdx.x * a.columns, c = from + t;
    const bool mine = t < a.columns && c < a.width;
    float *before = at<float>(seg.state + a.at) + c;
    /* input i of the segment's rows and the `inputs` before them */
    const auto input = [&](uint32_t i) {
        return i < inputs ? before[(size_t)i * a.width]
                          : row_at<const float>(a.x, seg.first_row + i - inputs)[c];
    };
    if (first)
        wait_for_last();
    if (mine) {
        /* newest last, so that what there is of them does not depend on how many taps there are */
        float x[MAX_TAPS], w[MAX_TAPS];
        const float *taps = (const float *)(a.w + c * a.w_stride);
#pragma unroll
        for (uint32_t k = 0; k < MAX_TAPS; k++) {
            const bool there = k + a.taps >= MAX_TAPS;
            w[k] = there ? taps[k + a.taps - MAX_TAPS] : 0.0f;
            x[k] = there && k + 1 < MAX_TAPS ? input(first + k + a.taps - MAX_TAPS) : 0.0f;
        }
        wait_for_last();
#pragma unroll 4
        for (uint32_t r = 0; r < n; r++) {
            float sum = 0;
            x[MAX_TAPS - 1] = row_at<const float>(a.x, seg.first_row + first + r)[c];
#pragma unroll
            for (uint32_t k = 0; k < MAX_TAPS; k++)
                if (k + a.taps >= MAX_TAPS)
                    sum = fmaf(w[k], x[k], sum);
            rows[r][t] = a.silu ? lode_siluf(sum) : sum;
#pragma unroll
            for (uint32_t k = 0; k + 1 < MAX_TAPS; k++)
                x[k] = x[k + 1];
        }
    }
    __syncthreads();
    for (uint32_t i = t / 32; i < n * a.groups.by; i += CONV_THREADS / 32) {
        const uint32_t r = over(i, a.groups), in_block = (i - r * a.groups.by) * a.group, column = from + in_block, lane = t % 32;
        const float *x = rows[r] + in_block;
        float *y = row_at<float>(a.y, seg.first_row + first + r) + column, factor = 1;
        if (column < a.n) { /* the same by both halves of the warp */
            float dot = 0;
            for (uint32_t k = lane % 16; k < a.group; k += 16)
                dot = fmaf(x[k], x[k], dot);
            factor = (column < a.n_scaled ? a.scale : 1.0f) / sqrtf(join_lanes(dot) + a.eps);
        }
        for (uint32_t k = lane; k < a.group && column + k < a.width; k += 32)
            y[k] = x[k] * factor;
    }
    if (first || !mine)
        return;
    /* the first rows' thread, which alone has read what was before, writes what is kept */
    if (seg.mark != UINT32_MAX)
        for (uint32_t i = 0; i < inputs; i++)
            at<float>(seg.state_mark + a.at)[(size_t)i * a.width + c] = input(seg.mark + i);
    for (uint32_t i = 0; i < inputs; i++) /* ascending: what is read lies behind what is written */
        before[(size_t)i * a.width] = input(seg.n_rows + i);
}

/* ---- delta rule ---- */

/* blockIdx = columns of all heads, segment; a block is a warp, a thread has a column.  So a state is spread over as many
 * multiprocessors as can be, and no warp waits for another.  Where a head ends with sixteen columns, the threads that have none compute
 * the last one, too, and write nothing. */
enum { DELTA_COLUMNS = 32 };

/* Where a block works. */
struct delta_place {
    struct lode_cuda_segment seg;
    uint32_t head, columns, column; /* columns: of the block; column: the thread's, among the head's */
    uint32_t q, k, v;               /* in a row of x: the head's query and key, the block's first value */
    size_t at;                      /* of the thread's column in (n_heads, dim_v / 16, dim_k, 16) */
    bool writes;
    DEVICE_METHOD delta_place(const struct lode_cuda_recur_args &a, uint32_t dim_k) : seg(segment_of(a.step, blockIdx.y)) {
        const uint32_t per_head = (a.dim_v + DELTA_COLUMNS - 1) / DELTA_COLUMNS, first = blockIdx.x % per_head * DELTA_COLUMNS;
        head = blockIdx.x / per_head;
        columns = min(a.dim_v - first, (uint32_t)DELTA_COLUMNS);
        writes = threadIdx.x < columns;
        column = first + min(threadIdx.x, columns - 1);
        at = (size_t)head * dim_k * a.dim_v + (size_t)(column / 16) * dim_k * 16 + column % 16;
        const uint32_t key_head = a.tiled ? head % a.n_k_heads : head / (a.n_heads / a.n_k_heads);
        q = key_head * dim_k;
        k = (a.n_k_heads + key_head) * dim_k;
        v = 2 * a.n_k_heads * dim_k + head * a.dim_v + first;
    }
};

/* What a block needs of a token, as it lies in a slot of shared memory: the key, the query, the values, the gates; bytes before each, and
 * of all. */
#define DELTA_QUERY(dim) (4 * (dim))
#define DELTA_VALUES(dim) (8 * (dim))
#define DELTA_GATES(dim) (DELTA_VALUES(dim) + 4 * DELTA_COLUMNS)
#define DELTA_SLOT(dim) (DELTA_GATES(dim) + 16)
enum { DELTA_SLOTS = 8, DELTA_ASKED = DELTA_SLOTS - 1 };

/* Row r of those from p on; of a plain product the compiler makes pointers that grow, which takes more. */
template <class T> DEVICE T *row_from(T *p, uint32_t stride, uint32_t r) {
    lode_dev at;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(at) : "r"(stride), "r"(r), "l"(p));
    return (T *)at;
}

/* The tokens of a segment as they come to their slots, which they take in turn.  A thread asks for some numbers of each: all for sixteen
 * bytes of the key and the query, the first seventeen for eight of the values or the gates. */
template <uint32_t DIM> struct delta_tokens {
    enum { PIECES = DIM / 64, SLOT = DELTA_SLOT(DIM) };
    static_assert(DIM % 64 == 0, "whole pieces");
    const float *large[PIECES], *small; /* of the first */
    uint32_t large_stride, small_stride, large_at, small_at; /* at: in a slot */
    uint32_t n, n_small;                                     /* n_small: tokens of which the thread asks for a small piece */
    uint32_t slots, slots_end;
#if __CUDA_ARCH__ < 800
    float4 large_came[PIECES]; /* of the last that was asked for */
    float2 small_came;
#endif

    DEVICE_METHOD delta_tokens(const struct lode_cuda_recur_args &a, const struct delta_place &p, uint32_t to)
        : large_stride((uint32_t)a.x.stride), n(p.seg.n_rows), slots(to), slots_end(to + DELTA_SLOTS * SLOT) {
        const uint32_t lane = opaque(threadIdx.x);
        const float *x = row_at<const float>(a.x, p.seg.first_row);
#pragma unroll
        for (uint32_t i = 0; i < PIECES; i++) {
            const uint32_t c = 4 * (lane + 32 * i);
            large[i] = x + (c < DIM ? p.k + c : p.q + c - DIM);
        }
        const bool gates = lane == DELTA_COLUMNS / 2;
        n_small = gates || 2 * lane < p.columns ? n : 0;
        small = gates ? row_at<const float>(a.gates, p.seg.first_row) + 2 * p.head : x + p.v + 2 * lane;
        small_stride = (uint32_t)(gates ? a.gates.stride : a.x.stride);
        large_at = 16 * lane; /* the query follows the key, */
        small_at = opaque(DELTA_VALUES(DIM) + 8 * lane); /* and the gates the values */
    }
    DEVICE_METHOD uint32_t following(uint32_t slot) const { return slot + SLOT == slots_end ? slots : slot + SLOT; }
    DEVICE_METHOD uint32_t before(uint32_t slot) const { return (slot == slots ? slots_end : slot) - SLOT; }
    /* Asks for token t; beyond the last there is nothing to copy. */
    DEVICE_METHOD void ask(uint32_t t, uint32_t slot) {
        const float *small_from = row_from(small, small_stride, t);
#pragma unroll
        for (uint32_t i = 0; i < PIECES; i++) {
            const float *from = row_from(large[i], large_stride, t);
#if __CUDA_ARCH__ >= 800
            copy_async_if<16>(slot + large_at + 512 * i, from, t < n);
        }
        copy_async_if<8>(slot + small_at, small_from, t < n_small);
#else
            if (t < n)
                large_came[i] = *(const float4 *)from;
        }
        if (t < n_small)
            small_came = *(const float2 *)small_from;
#endif
        copies_end_group();
    }
    /* Token t, which was asked for last, goes to its slot; copies do that by themselves. */
    DEVICE_METHOD void put(uint32_t t, uint32_t slot) {
#if __CUDA_ARCH__ < 800
#pragma unroll
        for (uint32_t i = 0; i < PIECES; i++)
            if (t < n)
                store4(slot + large_at + 512 * i, large_came[i]);
        if (t < n_small)
            store2(slot + small_at, small_came);
#endif
    }
    /* Asks for the first ones, of which three are there then. */
    DEVICE_METHOD void ask_first() {
#pragma unroll 1
        for (uint32_t t = 0; t < DELTA_ASKED && t < n; t++) {
            ask(t, slots + t * SLOT);
            put(t, slots + t * SLOT);
        }
        if (n < DELTA_ASKED)
            copies_wait<0>();
        else
            copies_wait<DELTA_ASKED - 3>();
        __syncwarp();
    }
    /* While token t is computed: nobody reads the one before any more, whose slot another takes.  All up to t + 3 are there then. */
    DEVICE_METHOD void ask_next(uint32_t t, uint32_t last) {
        put(t + DELTA_ASKED - 1, before(last));
        copies_wait<DELTA_ASKED - 4>();
        __syncwarp();
        ask(t + DELTA_ASKED, last);
    }
};

/* Four numbers of a key, of the query and of the next token's key. */
struct delta_four {
    float4 key, query, next;
};
template <uint32_t DIM> DEVICE struct delta_four four_of(uint32_t slot, uint32_t next, uint32_t i) {
    return {load4(slot + 16 * i), load4(slot + DELTA_QUERY(DIM) + 16 * i), load4(next + 16 * i)};
}

/* The column stays in registers.  What bounds a token is the sum that the next one waits for, DIM additions of four cycles each that
 * wait for one another; and as each of DIM numbers takes four instructions, all others have to be few.  Hence keys and queries come from
 * shared memory four at a time; AHEAD steps before they are needed, so that nobody waits for them.  Those of the next token's first
 * steps, and what else is to be done once a token, stand BORDER steps before a token's end: what is loaded after them is needed soon,
 * which keeps the compiler from moving all of it behind the last addition, where nothing else is left to do. */
template <uint32_t DIM> DEVICE void delta_rule(const struct lode_cuda_recur_args &a) {
    enum { STEPS = DIM / 4, AHEAD = 2, BORDER = 6 };
    __shared__ __align__(16) uint8_t memory[DELTA_SLOTS * DELTA_SLOT(DIM)];
    let_next_come();
    /* the step was there before the first launch, and so was the state, which no launch but this one writes */
    const struct delta_place p(a, DIM);
    float *state = at<float>(p.seg.state + a.at) + p.at;
    float s[DIM];
#pragma unroll
    for (uint32_t i = 0; i < DIM; i++)
        s[i] = state[(size_t)i * 16];
    wait_for_last();
    struct delta_tokens<DIM> tokens(a, p, opaque(shared_address(memory)));
    tokens.ask_first();
    uint32_t now = tokens.slots, last = tokens.before(now), next = tokens.following(now), after = tokens.following(next); /* slots */
    float m = 0;
#pragma unroll
    for (uint32_t i = 0; i < STEPS; i++) {
        const float4 k = load4(now + 16 * i);
        m = fmaf(s[4 * i], k.x, m);
        m = fmaf(s[4 * i + 1], k.y, m);
        m = fmaf(s[4 * i + 2], k.z, m);
        m = fmaf(s[4 * i + 3], k.w, m);
    }
    /* beyond the segment's last token slots hold numbers that nobody uses */
    struct delta_four begun[AHEAD];
#pragma unroll
    for (uint32_t i = 0; i < AHEAD; i++)
        begun[i] = four_of<DIM>(now, next, i);
    const uint32_t mine = DELTA_VALUES(DIM) + 4 * (p.column % DELTA_COLUMNS);
    float value = load_float(now + mine);
    uint2 gates = load2(now + DELTA_GATES(DIM));
    float *y = row_at<float>(a.y, p.seg.first_row) + p.head * a.dim_v + p.column;
    for (uint32_t r = 0, end; r < p.seg.n_rows; r = end) { /* up to where a checkpoint is left, and from there on */
        end = p.seg.mark > r && p.seg.mark < p.seg.n_rows ? p.seg.mark : p.seg.n_rows;
#pragma unroll 1
        for (uint32_t t = r; t < end; t++) {
            const float decay = lode_bits_f32(gates.x), d = fmaf(-decay, m, value) * lode_bits_f32(gates.y);
            struct delta_four ahead[AHEAD];
            float sum = 0;
            m = 0;
            const auto one = [&](float &x, float key, float query, float next_key) {
                x = fmaf(key, d, x * decay);
                sum = fmaf(x, query, sum);
                m = fmaf(x, next_key, m);
            };
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++)
                ahead[i] = begun[i];
#pragma unroll
            for (uint32_t i = 0; i < STEPS; i++) {
                if (i == STEPS - BORDER) {
#pragma unroll
                    for (uint32_t k = 0; k < AHEAD; k++)
                        begun[k] = four_of<DIM>(next, after, k);
                    value = load_float(next + mine);
                    gates = load2(next + DELTA_GATES(DIM));
                    tokens.ask_next(t, last);
                }
                const struct delta_four f = ahead[i % AHEAD];
                if (i + AHEAD < STEPS)
                    ahead[i % AHEAD] = four_of<DIM>(now, next, i + AHEAD);
                one(s[4 * i], f.key.x, f.query.x, f.next.x);
                one(s[4 * i + 1], f.key.y, f.query.y, f.next.y);
                one(s[4 * i + 2], f.key.z, f.query.z, f.next.z);
                one(s[4 * i + 3], f.key.w, f.query.w, f.next.w);
            }
            last = now, now = next, next = after, after = tokens.following(after);
            if (p.writes)
                *row_from(y, (uint32_t)a.y.stride, t) = sum;
        }
        if (end == p.seg.mark && p.writes) {
            float *kept = at<float>(p.seg.state_mark + a.at) + p.at;
#pragma unroll
            for (uint32_t i = 0; i < DIM; i++)
                kept[(size_t)i * 16] = s[i];
        }
    }
    if (p.writes)
#pragma unroll
        for (uint32_t i = 0; i < DIM; i++)
            state[(size_t)i * 16] = s[i];
}

KERNEL(DELTA_COLUMNS) delta_64(const __grid_constant__ struct lode_cuda_recur_args a) { delta_rule<64>(a); }
KERNEL(DELTA_COLUMNS) delta_128(const __grid_constant__ struct lode_cuda_recur_args a) { delta_rule<128>(a); }

/* Keys of any length, and rows that lie anywhere: the column stays where it lies, the keys of this token and the next and its query
 * are in shared memory. */
KERNEL(DELTA_COLUMNS) delta_any(const __grid_constant__ struct lode_cuda_recur_args a) {
    extern __shared__ float mem[]; /* (2 keys, query) */
    begin();
    const struct delta_place p(a, a.dim_k);
    const uint32_t dim = a.dim_k, n = p.seg.n_rows;
    float *s = at<float>(p.seg.state + a.at) + p.at, *query = mem + 2 * dim;
    const auto row = [&](uint32_t r) { return row_at<const float>(a.x, p.seg.first_row + r); };
    float m = 0;
    for (uint32_t i = threadIdx.x; i < dim; i += DELTA_COLUMNS)
        mem[i] = row(0)[p.k + i];
    __syncwarp();
    for (uint32_t i = 0; i < dim; i++)
        m = fmaf(s[(size_t)i * 16], mem[i], m);
    for (uint32_t r = 0; r < n; r++) {
        const float *key = mem + r % 2 * dim;
        float *next = mem + (r + 1) % 2 * dim;
        for (uint32_t i = threadIdx.x; i < dim; i += DELTA_COLUMNS) {
            query[i] = row(r)[p.q + i];
            next[i] = r + 1 < n ? row(r + 1)[p.k + i] : 0.0f; /* of the last: not used */
        }
        __syncwarp();
        if (p.writes) {
            const float *gates = row_at<const float>(a.gates, p.seg.first_row + r) + 2 * p.head;
            const float decay = gates[0], d = fmaf(-decay, m, row(r)[p.v + threadIdx.x]) * gates[1];
            float *kept = r + 1 == p.seg.mark ? at<float>(p.seg.state_mark + a.at) + p.at : s, sum = 0;
            m = 0;
            for (uint32_t i = 0; i < dim; i++) {
                const float x = fmaf(key[i], d, s[(size_t)i * 16] * decay);
                sum = fmaf(x, query[i], sum);
                m = fmaf(x, next[i], m);
                s[(size_t)i * 16] = kept[(size_t)i * 16] = x;
            }
            row_at<float>(a.y, p.seg.first_row + r)[p.head * a.dim_v + p.column] = sum;
        }
        __syncwarp(); /* before this token's key and query are overwritten */
    }
}
