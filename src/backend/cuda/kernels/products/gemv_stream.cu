/* gemv_stream.cu - products of one row whose weights come through shared memory (stream.cuh), and what comes before
 * and after them in a layer: float types and Q8_0, on Hopper.  Neighbouring threads have different rows
 * and read the same numbers of x, which then take fewer passes over the banks. */
#include "backend/cuda/kernels/planes.h"
#include "mul.cuh"
#include "stream.cuh"

#if __CUDA_ARCH__ >= 900

enum { STREAM_THREADS = 32 * LODE_STREAM_WARPS };

/* Four of the definition's sixteen lanes a thread. */
template <class T> struct float_kind {
    enum {
        ROWS = LODE_STREAM_ROWS,
        LANES = 16 * ROWS / 32,
        SIZE = sizeof(typename T::type),
        CHUNK = LODE_STREAM_CHUNK / SIZE,
        STEPS = LODE_STREAM_LINE / (16 * SIZE), /* of sixteen numbers, in a line */
    };
    float acc[LANES];
    DEVICE_MEMBER uint32_t row() const { return threadIdx.x % ROWS; }
    DEVICE_MEMBER uint32_t lanes() const { return threadIdx.x % 32 / ROWS * LANES; } /* from this one on */
    DEVICE_MEMBER bool finishes() const { return lanes() == 0; }

    static DEVICE_MEMBER void copy(const struct lode_cuda_stream_args &s, const struct stream_ring &ring, uint32_t barrier) {
        copy_floats<SIZE>(s, ring, barrier);
    }
    DEVICE_MEMBER void begin() {
#pragma unroll
        for (int i = 0; i < LANES; i++)
            acc[i] = 0;
    }
    DEVICE_MEMBER void add(const uint8_t *w, const float *x) {
        typedef typename pair_of<T>::raw raw;
        const struct __align__(2 * sizeof(raw)) { raw a, b; } v = *(const decltype(v) *)w;
        const float2 p = pair_of<T>::widen(v.a), q = pair_of<T>::widen(v.b);
        const float4 z = *(const float4 *)x;
        acc[0] = fmaf(p.x, z.x, acc[0]);
        acc[1] = fmaf(p.y, z.y, acc[1]);
        acc[2] = fmaf(q.x, z.z, acc[2]);
        acc[3] = fmaf(q.y, z.w, acc[3]);
    }
    /* Where this thread's numbers of sixteen lie. */
    DEVICE_MEMBER const uint8_t *numbers(const uint8_t *slot, uint32_t step) const {
        const uint32_t byte = (16 * step + lanes()) * SIZE;
        return slot + in_lines<ROWS>(row(), byte / 16) + byte % 16;
    }
    DEVICE_MEMBER void chunk(const uint8_t *slot, const uint8_t *, uint32_t from, uint32_t cols, uint32_t) {
        const float *x = row_mem + from + lanes();
        if (from + CHUNK <= cols) {
            const uint8_t *w[STEPS]; /* of the first line; of the others as far on */
#pragma unroll
            for (int i = 0; i < STEPS; i++)
                w[i] = numbers(slot, i);
#pragma unroll 16 / STEPS
            for (int line = 0; line < LODE_STREAM_LINES; line++)
#pragma unroll
                for (int i = 0; i < STEPS; i++)
                    add(w[i] + line * ROWS * LODE_STREAM_LINE, x + (line * STEPS + i) * 16);
            return;
        }
#pragma unroll 1
        for (uint32_t i = 0; from + i * 16 + lanes() < cols; i++) /* cols is a multiple of LANES */
            add(numbers(slot, i), x + i * 16);
        __syncwarp();
    }
    /* The tree of the sixteen lanes. */
    DEVICE_MEMBER float end(uint32_t) {
#pragma unroll
        for (int d = 16 / LANES / 2; d; d /= 2)
#pragma unroll
            for (int i = 0; i < LANES; i++)
                acc[i] += __shfl_down_sync(0xffffffffu, acc[i], d * ROWS);
        return (acc[0] + acc[2]) + (acc[1] + acc[3]);
    }
};
static_assert(float_kind<struct f16>::LANES == 4, "add and end");

template <class T> DEVICE void stream_floats(const struct lode_cuda_stream_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = stream_step(s);
    let_next_come();
    struct stream_ring ring = stream_ring_of<float_kind<T>>(s, first);
    const struct early_norm early = read_norm(a);
    const struct first_floats x = stream_fill_around<float_kind<T>>(ring, s, step, [&] { return ask_floats(a, a.cols / 4); });
    if (a.input == LODE_GEMV_NORM)
        each_normed(a, early, x, [&](uint32_t i, float4 v) {
            if (i < a.cols / 4)
                ((float4 *)row_mem)[i] = v;
        });
    else
        put_floats(a, x);
    __syncthreads();
    float_kind<T> kind;
    stream_units(ring, s, kind, first, step);
}

#define STREAM(name, type)                                                                         \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)                                \
        stream_##name(const __grid_constant__ struct lode_cuda_stream_args s) {                    \
        stream_floats<struct name>(s);                                                             \
    }
LODE_CUDA_FLOAT_LIST(STREAM)


/* ---- Q8_0 ---- */

/* A part of a chunk is sixteen blocks of a row, two a thread; one thread a row adds, in ascending order, the pairs
 * (d_w d_x, isum) of the part before, which lie in shared memory. */
struct q8_0_kind {
    enum {
        ROWS = LODE_STREAM_Q8_ROWS,
        CHUNK = LODE_STREAM_CHUNK,
        PART = 512, /* numbers of a chunk that are multiplied at a time */
        BLOCKS = PART / 32,
        SCALES = CHUNK / 16, /* bytes of a row's, beside a slot */
        STAGE = LODE_STREAM_Q8_OWN / 2, /* of two: the pairs of a chunk */
        STAGE_PITCH = STAGE / ROWS,
    };
    const uint8_t *x; /* codes, then (d, sum) of each block (gemv_x.cuh) */
    const uint8_t *heads;
    uint8_t *stage;
    uint32_t half, n; /* of the stage: the one that is written next; blocks of the last part */
    float acc;
    DEVICE_MEMBER uint32_t row() const { return threadIdx.x % ROWS; }
    DEVICE_MEMBER uint32_t pair() const { return threadIdx.x % 32 / ROWS; } /* of blocks */
    DEVICE_MEMBER bool finishes() const { return pair() == 0; }

    static DEVICE_MEMBER void copy(const struct lode_cuda_stream_args &s, const struct stream_ring &ring, uint32_t barrier) {
        const struct lode_cuda_map *maps = s.maps[ring.rows.part];
        barrier_arrive_expect(barrier, LODE_STREAM_Q8_SLOT + LODE_STREAM_Q8_HEADS);
        bulk_lines(ring.to + ring.fill * LODE_STREAM_Q8_SLOT, maps, ring.from / LODE_STREAM_LINE, ring.rows.first, barrier);
        bulk_lines(ring.heads_to + ring.fill * LODE_STREAM_Q8_HEADS, maps + 1, ring.from / CHUNK, ring.rows.first, barrier);
    }
    DEVICE_MEMBER void begin() { acc = 0, half = 0, n = 0; }
    DEVICE_MEMBER void add_up() {
        if (!finishes())
            return;
        const float4 *p = (const float4 *)(stage + (half ^ 1) * STAGE + row() * STAGE_PITCH);
        if (n == BLOCKS) {
#pragma unroll
            for (int i = 0; i < BLOCKS / 2; i++) {
                const float4 v = p[i];
                acc = fmaf(v.x, v.y, acc);
                acc = fmaf(v.z, v.w, acc);
            }
            return;
        }
#pragma unroll 1
        for (uint32_t i = 0; i < n; i++) {
            const float2 v = ((const float2 *)p)[i];
            acc = fmaf(v.x, v.y, acc);
        }
    }
    DEVICE_MEMBER void chunk(const uint8_t *slot, const uint8_t *scales, uint32_t from, uint32_t cols, uint32_t) {
#pragma unroll
        for (uint32_t part = 0; part < CHUNK; part += PART) {
            if (from + part >= cols)
                break;
            if (part)
                __syncwarp();
            add_up(); /* the part before */
            const uint32_t first = from + part;
            const uint8_t *z = x + first + pair() * 64;
            int sum[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const uint4 u = *(const uint4 *)(slot + in_lines<ROWS>(row(), part / 16 + pair() * 4 + i)), v = *(const uint4 *)(z + 16 * i);
                int &s = sum[i / 2];
                s = dp4a((int)u.w, (int)v.w,
                         dp4a((int)u.z, (int)v.z, dp4a((int)u.y, (int)v.y, dp4a((int)u.x, (int)v.x, s))));
            }
            const float2 d = two_halves(*(const uint32_t *)(scales + row() * SCALES + part / 16 + pair() * 4));
            const uint4 head = *(const uint4 *)(heads + first / 4 + pair() * 16); /* d, sum; d, sum */
            ((float4 *)(stage + half * STAGE + row() * STAGE_PITCH))[pair()] =
                make_float4(d.x * lode_bits_f32(head.x), (float)sum[0], d.y * lode_bits_f32(head.z), (float)sum[1]);
            half ^= 1;
            n = cols - first < PART ? (cols - first) / 32 : BLOCKS;
        }
    }
    DEVICE_MEMBER float end(uint32_t) {
        __syncwarp();
        add_up();
        return acc;
    }
};

/* Four numbers of x, rounded, by a whole warp. */
DEVICE void round_four(const struct lode_cuda_gemv_args &a, uint8_t *to, uint32_t i, float4 v) {
    const struct rounded r = round_a32(v);
    if (i >= a.cols / 4)
        return;
    *(uint32_t *)(to + 4 * i) = r.q;
    if (i % 8 == 0)
        *(uint2 *)(to + 32 * x_blocks(a.cols) + i) = make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
}
/* x to shared memory: each thread rounds what it has read itself. */
DEVICE void round_x(const struct lode_cuda_gemv_args &a, struct first_floats x, uint8_t *to) {
    enum { N = first_floats::N };
    const uint32_t n = a.cols / 4, lane = threadIdx.x % 32;
#pragma unroll 1
    for (uint32_t first = threadIdx.x; first - lane < n; first += N * blockDim.x) {
        struct first_floats next; /* on their way while these are rounded */
#pragma unroll
        for (int u = 0; u < N; u++) {
            const uint32_t i = first + (N + u) * blockDim.x;
            next.v[u] = at<const float4>(a.x)[i < n ? i : n - 1];
        }
#pragma unroll
        for (int u = 0; u < N; u++)
            if (first - lane + u * blockDim.x < n)
                round_four(a, to, first + u * blockDim.x, x.v[u]);
        x = next;
    }
}

extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)
    stream_q8_0(const __grid_constant__ struct lode_cuda_stream_args s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = stream_step(s);
    uint8_t *x = (uint8_t *)row_mem + a.x_at;
    let_next_come();
    struct stream_ring ring = stream_ring_of<struct q8_0_kind>(s, first);
    const struct early_norm early = read_norm(a);
    const struct first_floats first_x = stream_fill_around<struct q8_0_kind>(ring, s, step, [&] {
        return ask_floats(a, a.input == LODE_GEMV_AS_IS ? 1 : a.cols / 4); /* rounded rows are not read so */
    });
    if (a.input == LODE_GEMV_NORM)
        each_normed(a, early, first_x, [&](uint32_t i, float4 v) { round_four(a, x, i, v); });
    else if (a.input == LODE_GEMV_ROUND)
        round_x(a, first_x, x);
    else
        for (uint32_t i = threadIdx.x; i < n_words<32>(a.cols); i += blockDim.x)
            *word_of<32>(x, a.cols, i) = at<const uint2>(a.x)[i];
    __syncthreads();
    if (a.q_out && blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < n_words<32>(a.cols); i += blockDim.x)
            at<uint2>(a.q_out)[i] = *word_of<32>(x, a.cols, i);
    struct q8_0_kind kind;
    kind.x = x, kind.heads = x + 32 * x_blocks(a.cols);
    kind.stage = ring.own;
    stream_units(ring, s, kind, first, step);
}

#endif
