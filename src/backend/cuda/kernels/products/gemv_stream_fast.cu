/* gemv_stream_fast.cu - products of one row, and of up to sixteen, with 16-bit weights on the tensor cores (fast.cuh), whose weights
 * come through shared memory (stream.cuh); on Hopper.
 *
 * A warp has eight rows of w, which are the instruction's columns, and rows of x are its rows: so all of a slot is used, whether
 * there are sixteen of those or one.  A slot has two slices of K, two chains of products that do not wait for each other.
 *
 * The one row is normed and rounded by every block of threads and lies in shared memory, read by all eight rows of a piece
 * at once.  More come from few_fast_x, in the order in which the instruction has them, by way of the second cache. */
#include "fast.cuh"
#include "stream.cuh"

#if __CUDA_ARCH__ >= 900

enum { STREAM_THREADS = 32 * LODE_STREAM_WARPS, SLICE = LODE_FAST_SLICE, SLICES = 2, STEPS = SLICE / 16 };

struct tensor_kind {
    enum { ROWS = LODE_STREAM_ROWS, SIZE = 2, CHUNK = LODE_STREAM_CHUNK / SIZE };
    static DEVICE_MEMBER void copy(const struct lode_cuda_stream_args &s, const struct stream_ring &ring, uint32_t barrier) {
        copy_floats<SIZE>(s, ring, barrier);
    }
};
static_assert((int)tensor_kind::CHUNK == SLICES * SLICE, "a slot");

/* ---- the one row of x ---- */

/* Rounded to `to`; what undoes its factor. */
template <class T>
DEVICE float round_one(const struct lode_cuda_gemv_args &a, const struct early_norm &early, const struct first_floats &x, uint8_t *to) {
    const uint32_t n = a.cols / 4;
    uint32_t most = 0;
    auto put = [&](uint32_t i, float4 v, float factor) {
        ((uint2 *)to)[i] = make_uint2(pair_16<T>(v.x, v.y, factor), pair_16<T>(v.z, v.w, factor));
    };
    auto take = [&](uint32_t i, float4 v) {
        if (i >= n)
            return;
        if (!T::SCALED)
            return put(i, v, 1);
        ((float4 *)row_mem)[i] = v;
        most = most_of(v, most);
    };
    if (a.input == LODE_GEMV_NORM) {
        each_normed(a, early, x, take);
    } else {
#pragma unroll
        for (int u = 0; u < first_floats::N; u++)
            take(threadIdx.x + u * blockDim.x, x.v[u]);
#pragma unroll 4
        for (uint32_t i = threadIdx.x + first_floats::N * blockDim.x; i < n; i += blockDim.x)
            take(i, at<const float4>(a.x)[i]);
    }
    if (a.cols % 16 && threadIdx.x < 2)
        ((uint2 *)to)[n + threadIdx.x] = make_uint2(0, 0);
    if (!T::SCALED)
        return 1;
    const float2 factors = factors_of<T>(block_max(most));
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
        put(i, ((const float4 *)row_mem)[i], factors.x);
    return factors.y;
}

/* ---- slices ---- */

/* Steps of both slices of a chunk, of rows of x from few_fast_x: asked for while others are multiplied. */
template <int G> struct x_part {
    enum { PART = G > 1 ? 2 : 4 };
    uint2 v[SLICES][PART][G];
    DEVICE_MEMBER void ask(const uint2 *x, uint32_t part) {
#pragma unroll
        for (int i = 0; i < SLICES * PART * G; i++) {
            const uint32_t slice = i / (PART * G), step = i / G % PART;
            v[slice][step][i % G] = x[((slice * STEPS + part * PART + step) * G + i % G) * 32];
        }
    }
};

/* Where a chunk lies. */
struct two_slices {
    uint32_t slot;   /* this lane's first piece of w */
    uint32_t x;      /* .. of the one row */
    const uint2 *xs; /* .. of more */
};
DEVICE uint32_t pieces_at(uint32_t slot, uint32_t slice, uint32_t step) { /* of two steps; slot: this lane's first piece */
    return (slot + (slice * (SLICE / 64) + step / 4) * LODE_STREAM_ROWS * LODE_STREAM_LINE) ^ (step / 2 % 2 * 64);
}

/* Part `part` of both slices, all there; now: of more rows than one. */
template <class T, int G>
DEVICE void multiply_part(float (&d)[SLICES][4], const struct two_slices &c, uint32_t part, const struct x_part<G ? G : 1> &now) {
    enum { PART = x_part<G ? G : 1>::PART };
#pragma unroll
    for (uint32_t i = 0; i < PART; i += 2) {
        uint32_t w[SLICES][4], z[SLICES][4];
#pragma unroll
        for (uint32_t s = 0; s < SLICES; s++) {
            load_pieces(w[s], pieces_at(c.slot, s, part * PART + i));
            if (G == 0)
                load_pieces(z[s], c.x + 2 * (s * SLICE + 16 * (part * PART + i)));
        }
#pragma unroll
        for (uint32_t k = 0; k < 2; k++)
#pragma unroll
            for (uint32_t s = 0; s < SLICES; s++)
                mma_fast<T>(d[s], G ? now.v[s][i + k][0] : make_uint2(z[s][2 * k], z[s][2 * k + 1]),
                            G > 1 ? now.v[s][i + k][G > 1 ? G - 1 : 0] : make_uint2(0, 0), make_uint2(w[s][2 * k], w[s][2 * k + 1]));
    }
}
/* Slice `slice`, of which `left` numbers exist. */
template <class T, int G> DEVICE void multiply_rest(float (&d)[4], const struct two_slices &c, uint32_t slice, uint32_t left) {
#pragma unroll 1
    for (uint32_t i = 0; i < STEPS && 16 * i < left; i++) {
        uint32_t w[4], z[4];
        uint2 u, v = make_uint2(0, 0);
        load_pieces(w, pieces_at(c.slot, slice, i & ~1u));
        const uint32_t odd = i % 2 * 2;
        if (G == 0) {
            load_pieces(z, c.x + 2 * (slice * SLICE + 16 * (i & ~1u)));
            u = odd ? make_uint2(z[2], z[3]) : make_uint2(z[0], z[1]);
        } else {
            u = c.xs[(slice * STEPS + i) * G * 32];
            v = G > 1 ? c.xs[((slice * STEPS + i) * G + 1) * 32] : v;
        }
        const uint32_t low = odd ? w[2] : w[0], high = odd ? w[3] : w[1];
        mma_fast<T>(d, u, v, make_uint2(low, left - 16 * i > 8 ? high : 0)); /* behind the row's end there is anything */
    }
}
DEVICE void add_slices(float (&acc)[4], const float (&d)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        acc[i] += d[i];
}
/* A chunk, of which `left` numbers exist, to acc.  now: what was asked for of it; then of what comes next at `next`. */
template <class T, int G>
DEVICE void add_chunk(float (&acc)[4], const struct two_slices &c, uint32_t left, struct x_part<G ? G : 1> &now, const uint2 *next) {
    enum { PARTS = STEPS / x_part<G ? G : 1>::PART };
    float d[SLICES][4] = {};
    if (left < SLICES * SLICE) {
        multiply_rest<T, G>(d[0], c, 0, left);
        add_slices(acc, d[0]);
        if (left > SLICE) {
            multiply_rest<T, G>(d[1], c, 1, left - SLICE);
            add_slices(acc, d[1]);
        }
        if (G)
            now.ask(next, 0);
        return;
    }
#pragma unroll
    for (uint32_t part = 0; part < PARTS; part++) {
        struct x_part<G ? G : 1> then;
        if (G)
            part + 1 < PARTS ? then.ask(c.xs, part + 1) : then.ask(next, 0);
        multiply_part<T, G>(d, c, part, now);
        if (G)
            now = then;
    }
    add_slices(acc, d[0]);
    add_slices(acc, d[1]);
}

/* ---- all of it ---- */

/* G: groups of eight rows of x; 0: one row. */
template <class T, int G> DEVICE void stream_fast(const struct lode_cuda_stream_few_args &f) {
    enum { N = G > 1 ? 4 : 2 }; /* results of a thread: rows lane / 4 (and 8 on) of x, rows 2 q and 2 q + 1 of w */
    const struct lode_cuda_stream_args &s = f.s;
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = stream_step(s), lane = threadIdx.x % 32;
    uint8_t *halves = (uint8_t *)row_mem + a.x_at;
    let_next_come();
    struct stream_ring ring = stream_ring_of<struct tensor_kind>(s, first);
    float undo[2] = {1, 1};
    if constexpr (G == 0) {
        const struct early_norm early = read_norm(a);
        const struct first_floats x = stream_fill_around<struct tensor_kind>(ring, s, step, [&] { return ask_floats(a, a.cols / 4); });
        undo[0] = round_one<T>(a, early, x, halves);
        __syncthreads();
    } else {
        const float *factors = (const float *)(at<const uint2>(a.x) + (size_t)(a.cols + 15) / 16 * G * 32);
        const float2 both = stream_fill_around<struct tensor_kind>(
            ring, s, step, [&] { return make_float2(factors[lane / 4], G > 1 ? factors[lane / 4 + 8] : 0); });
        undo[0] = both.x, undo[1] = both.y;
    }
    const uint32_t x = shared_address(halves) + lane / 8 * 16;
    auto xs_at = [&](uint32_t from) { return G ? at<const uint2>(a.x) + (size_t)from / 16 * G * 32 + lane : NULL; };
    struct x_part<G ? G : 1> now;
    if (G)
        now.ask(xs_at(ring.begin), 0);
    const uint32_t piece = lane % 8 * LODE_STREAM_LINE + ((lane / 8 ^ lane % 8) << 4);
#pragma unroll 1
    for (uint32_t unit = first; unit < a.n_units; unit += step) {
        float value[N], residual[N];
#pragma unroll 1
        for (uint32_t k = 0; k < a.per_unit; k++) {
            const struct stream_rows rows = stream_rows_at<struct tensor_kind>(a, unit, k);
            auto place = [&](int e, uint32_t *z) { /* whether there is such a result; z: its row of x */
                *z = lane / 4 + e / 2 * 8;
                return lane % 4 * 2 + e % 2 < rows.n && *z < a.n_x;
            };
            const uint32_t row = rows.first + lane % 4 * 2;
            if (a.residual)
#pragma unroll
                for (int e = 0; e < N; e++) {
                    uint32_t z;
                    residual[e] = place(e, &z) ? at<const float>(a.residual + z * f.residual_stride)[row + e % 2] : 0;
                }
            float acc[4] = {};
#pragma unroll 1
            for (uint32_t from = ring.begin; from < ring.end; from += tensor_kind::CHUNK) {
                __syncwarp(); /* the slot before is free */
                stream_ask<struct tensor_kind>(ring, s, step);
                barrier_wait(ring.barriers + ring.slot * 8, ring.parity);
                const uint32_t then = from + tensor_kind::CHUNK < ring.end ? from + tensor_kind::CHUNK : ring.begin;
                const struct two_slices c = {ring.to + ring.slot * LODE_STREAM_SLOT + piece, x + 2 * from, xs_at(from)};
                add_chunk<T, G>(acc, c, a.cols - from, now, xs_at(then));
                if (++ring.slot == ring.n)
                    ring.slot = 0, ring.parity ^= 1;
            }
            const struct lode_cuda_gemv_part &part = a.parts[rows.part];
#pragma unroll
            for (int e = 0; e < N; e++) {
                uint32_t z;
                if (!place(e, &z))
                    continue;
                float sum = acc[e] * undo[e / 2];
                if (part.bias)
                    sum += at<const float>(part.bias)[row + e % 2];
                value[e] = k ? short_glu_of(a.act, value[e], sum) : sum;
                if (k + 1 < a.per_unit)
                    continue;
                const uint32_t p = a.output == LODE_GEMV_GLU ? 0 : rows.part;
                at<float>(a.parts[p].y + z * f.y_stride[p])[row + e % 2] = a.residual ? with_residual(a, value[e], residual[e]) : value[e];
            }
        }
    }
}

#define STREAM_FAST_OF(name, groups)                                                               \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)                                \
        stream_fast_##name##_##groups(const __grid_constant__ struct lode_cuda_stream_few_args f) { \
        stream_fast<struct name, groups>(f);                                                       \
    }
#define STREAM_FAST(name) STREAM_FAST_OF(name, 0) STREAM_FAST_OF(name, 1) STREAM_FAST_OF(name, 2)
STREAM_FAST(f16)
STREAM_FAST(bf16)

#endif
