/* gemv_stream_fast.cu - products of one row, and of up to LODE_STREAM_FEW, with 16-bit weights on the tensor cores (fast.cuh), whose
 * weights come through shared memory (stream.cuh); on Hopper.
 *
 * A warp has eight rows of w, which are the instruction's columns, and rows of x are its rows, sixteen an instruction: so all of a slot is
 * used, whether there are thirty-two of those or one.  A slot has two slices of K, two chains of products that do not wait for each other.
 *
 * The one row is normed and rounded by every block of threads and lies in shared memory, read by all eight rows of a piece
 * at once.  More come from few_fast_x, in the order in which the instruction has them, to a ring that all warps share (x_ring.cuh), a
 * slot's numbers of K at a time. */
#include "fast.cuh"
#include "stream.cuh"
#include "x_ring.cuh"

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

/* Instructions' tiles that G groups of eight rows of x are, sixteen rows each; 0: the only row. */
static constexpr __device__ int tiles_of(int groups) { return groups > 2 ? groups / 2 : 1; }

/* Where a chunk lies. */
struct two_slices {
    uint32_t slot;   /* this lane's first piece of w */
    uint32_t x;      /* .. of the one row */
    const uint2 *xs; /* .. of more */
};
DEVICE uint32_t pieces_at(uint32_t slot, uint32_t slice, uint32_t step) { /* of two steps; slot: this lane's first piece */
    return (slot + (slice * (SLICE / 64) + step / 4) * LODE_STREAM_ROWS * LODE_STREAM_LINE) ^ (step / 2 % 2 * 64);
}

/* A step of one slice, to every tile's sums: low and high are the eight rows of w. */
template <class T, int G>
DEVICE void multiply_step(float (&d)[tiles_of(G)][4], const uint2 *x, uint32_t low, uint32_t high) {
#pragma unroll
    for (int i = 0; i < tiles_of(G); i++)
        mma_fast<T>(d[i], x[2 * i * 32], G > 1 ? x[(2 * i + 1) * 32] : make_uint2(0, 0), make_uint2(low, high));
}
/* Both slices, all there. */
template <class T, int G> DEVICE void multiply_slices(float (&d)[SLICES][tiles_of(G)][4], const struct two_slices &c) {
#pragma unroll
    for (uint32_t i = 0; i < STEPS; i += 2) {
        uint32_t w[SLICES][4], z[SLICES][4];
#pragma unroll
        for (uint32_t s = 0; s < SLICES; s++) {
            load_pieces(w[s], pieces_at(c.slot, s, i));
            if (G == 0)
                load_pieces(z[s], c.x + 2 * (s * SLICE + 16 * i));
        }
#pragma unroll
        for (uint32_t k = 0; k < 2; k++)
#pragma unroll
            for (uint32_t s = 0; s < SLICES; s++)
                if constexpr (G == 0)
                    mma_fast<T>(d[s][0], make_uint2(z[s][2 * k], z[s][2 * k + 1]), make_uint2(0, 0), make_uint2(w[s][2 * k], w[s][2 * k + 1]));
                else
                    multiply_step<T, G>(d[s], c.xs + (s * STEPS + i + k) * G * 32, w[s][2 * k], w[s][2 * k + 1]);
    }
}
/* Slice `slice`, of which `left` numbers exist. */
template <class T, int G>
DEVICE void multiply_rest(float (&d)[tiles_of(G)][4], const struct two_slices &c, uint32_t slice, uint32_t left) {
#pragma unroll 1
    for (uint32_t i = 0; i < STEPS && 16 * i < left; i++) {
        uint32_t w[4];
        load_pieces(w, pieces_at(c.slot, slice, i & ~1u));
        /* behind the row's end there is anything */
        const uint32_t odd = i % 2 * 2, low = odd ? w[2] : w[0], high = left - 16 * i > 8 ? odd ? w[3] : w[1] : 0;
        if constexpr (G == 0) {
            uint32_t z[4];
            load_pieces(z, c.x + 2 * (slice * SLICE + 16 * (i & ~1u)));
            mma_fast<T>(d[0], odd ? make_uint2(z[2], z[3]) : make_uint2(z[0], z[1]), make_uint2(0, 0), make_uint2(low, high));
        } else {
            multiply_step<T, G>(d, c.xs + (slice * STEPS + i) * G * 32, low, high);
        }
    }
}
template <int N> DEVICE void add_slices(float (&acc)[N][4], const float (&d)[N][4]) {
#pragma unroll
    for (int i = 0; i < 4 * N; i++)
        acc[i / 4][i % 4] += d[i / 4][i % 4];
}
/* A chunk, of which `left` numbers exist, to acc. */
template <class T, int G> DEVICE void add_chunk(float (&acc)[tiles_of(G)][4], const struct two_slices &c, uint32_t left) {
    float d[SLICES][tiles_of(G)][4] = {};
    if (left < SLICES * SLICE) {
        multiply_rest<T, G>(d[0], c, 0, left);
        add_slices(acc, d[0]);
        if (left > SLICE) {
            multiply_rest<T, G>(d[1], c, 1, left - SLICE);
            add_slices(acc, d[1]);
        }
        return;
    }
    multiply_slices<T, G>(d, c);
    add_slices(acc, d[0]);
    add_slices(acc, d[1]);
}

/* ---- all of it ---- */

/* Of a block's warps, how many have a unit of the turn whose first is `unit`, which this block's first warp has. */
DEVICE uint32_t warps_of(const struct lode_cuda_stream_args &s, uint32_t unit) {
    const uint32_t left = s.a.n_units - unit;
    return left > (s.warps - 1) * gridDim.x ? s.warps : (left + gridDim.x - 1) / gridDim.x;
}

/* G: groups of eight rows of x; 0: one row. */
template <class T, int G> DEVICE void stream_fast(const struct lode_cuda_stream_few_args &f) {
    enum { TILES = tiles_of(G), N = G > 1 ? 4 : 2 }; /* results of a thread and tile: rows lane / 4 (and 8 on) of x, rows 2 q and 2 q + 1 of w */
    const struct lode_cuda_stream_args &s = f.s;
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = stream_step(s), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t chunks = (a.cols + tensor_kind::CHUNK - 1) / tensor_kind::CHUNK;
    uint8_t *halves = (uint8_t *)row_mem + a.x_at;
    let_next_come();
    struct stream_ring ring = stream_ring_of<struct tensor_kind>(s, first);
    struct x_ring xs;
    float undo[TILES][2];
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++)
        undo[i / 2][i % 2] = 1;
    if constexpr (G == 0) {
        const struct early_norm early = read_norm(a);
        const struct first_floats x = stream_fill_around<struct tensor_kind>(ring, s, step, [&] { return ask_floats(a, a.cols / 4); });
        undo[0][0] = round_one<T>(a, early, x, halves);
        __syncthreads();
    } else {
        const uint32_t steps = (a.cols + 15) / 16;
        xs = {at<const uint8_t>(a.x), (uint8_t *)row_mem, f.x_slots, chunks, LODE_STREAM_X_SLOT(G), steps * (G * 256) - (chunks - 1) * LODE_STREAM_X_SLOT(G)};
        const uint32_t turns = blockIdx.x < a.n_units ? (a.n_units - blockIdx.x + step - 1) / step : 0;
        xs.total = xs.all() ? chunks : turns * a.per_unit * chunks;
        x_ring_begin(xs);
        __syncthreads();
        const float *factors = (const float *)(at<const uint2>(a.x) + (size_t)steps * G * 32) + lane / 4;
        struct factors { float v[TILES][2]; };
        const struct factors all = stream_fill_around<struct tensor_kind>(ring, s, step, [&] {
            struct factors of;
#pragma unroll
            for (int i = 0; i < 2 * TILES; i++)
                of.v[i / 2][i % 2] = G > 1 || i == 0 ? factors[8 * i] : 0;
            if (warp == 0)
                x_ring_fill(xs);
            return of;
        });
#pragma unroll
        for (int i = 0; i < 2 * TILES; i++)
            undo[i / 2][i % 2] = all.v[i / 2][i % 2];
    }
    const uint32_t x = shared_address(halves) + lane / 8 * 16;
    const uint32_t piece = lane % 8 * LODE_STREAM_LINE + ((lane / 8 ^ lane % 8) << 4);
#pragma unroll 1
    for (uint32_t unit = first; unit < a.n_units; unit += step) {
        const uint32_t here = G ? warps_of(s, unit - warp * gridDim.x) : 0;
        float value[TILES][N], residual[TILES][N];
#pragma unroll 1
        for (uint32_t k = 0; k < a.per_unit; k++) {
            const struct stream_rows rows = stream_rows_at<struct tensor_kind>(a, unit, k);
            auto place = [&](int tile, int e, uint32_t *z) { /* whether there is such a result; z: its row of x */
                *z = lane / 4 + e / 2 * 8 + tile * 16;
                return lane % 4 * 2 + e % 2 < rows.n && *z < a.n_x;
            };
            const uint32_t row = rows.first + lane % 4 * 2;
            if (a.residual)
#pragma unroll
                for (int i = 0; i < TILES * N; i++) {
                    uint32_t z;
                    const bool there = place(i / N, i % N, &z);
                    residual[i / N][i % N] = there ? at<const float>(a.residual + z * f.residual_stride)[row + i % 2] : 0;
                }
            float acc[TILES][4] = {};
            uint32_t b = 0;
#pragma unroll 1
            for (uint32_t from = ring.begin; from < ring.end; from += tensor_kind::CHUNK, b++) {
                __syncwarp(); /* the slot before is free */
                stream_ask<struct tensor_kind>(ring, s, step);
                struct two_slices c = {ring.to + ring.slot * LODE_STREAM_SLOT + piece, x + 2 * from, NULL};
                if (G)
                    c.xs = (const uint2 *)x_ring_await(xs, b) + lane;
                barrier_wait(ring.barriers + ring.slot * 8, ring.parity);
                add_chunk<T, G>(acc, c, a.cols - from);
                if (G)
                    x_ring_leave(xs, b, 1, here);
                if (++ring.slot == ring.n)
                    ring.slot = 0, ring.parity ^= 1;
            }
            if (G && !xs.all())
                xs.first += chunks;
            const struct lode_cuda_gemv_part &part = a.parts[rows.part];
#pragma unroll
            for (int i = 0; i < TILES * N; i++) {
                const int tile = i / N, e = i % N;
                uint32_t z;
                if (!place(tile, e, &z))
                    continue;
                float sum = acc[tile][e] * undo[tile][e / 2];
                if (part.bias)
                    sum += at<const float>(part.bias)[row + e % 2];
                float &v = value[tile][e];
                v = k ? short_glu_of(a.act, v, sum) : sum;
                if (k + 1 < a.per_unit)
                    continue;
                const uint32_t p = a.output == LODE_GEMV_GLU ? 0 : rows.part;
                at<float>(a.parts[p].y + z * f.y_stride[p])[row + e % 2] = a.residual ? with_residual(a, v, residual[tile][e]) : v;
            }
        }
    }
}

#define STREAM_FAST_OF(name, groups)                                                               \
    extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)                                \
        stream_fast_##name##_##groups(const __grid_constant__ struct lode_cuda_stream_few_args f) { \
        stream_fast<struct name, groups>(f);                                                       \
    }
#define STREAM_FAST(name) STREAM_FAST_OF(name, 0) STREAM_FAST_OF(name, 1) STREAM_FAST_OF(name, 2) STREAM_FAST_OF(name, 4)
STREAM_FAST(f16)
STREAM_FAST(bf16)

#endif
