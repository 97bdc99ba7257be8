/* fast_rows.cuh - sixteen query rows of a warp on their way through pages (attention_fast.cuh's arithmetic): what a thread has of its two
 * rows, and what becomes of their sums. */
#ifndef LODE_CUDA_FAST_ROWS_CUH
#define LODE_CUDA_FAST_ROWS_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "attention_fast.cuh"
#include "backend/cuda/kernels/rows.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

/* The block's rows, `most` at most, of those that parts are of. */
DEVICE void find_some_rows(const struct lode_cuda_att_args &a, struct rows_of &t, uint32_t most, uint32_t *segment) {
    const struct lode_cuda_row &first = step_row(a.step, a.first_row);
    t.group = a.n_heads / a.n_kv_heads;
    t.first = blockIdx.y * most;
    t.n = min(a.n_rows * t.group - t.first, most);
    t.head = blockIdx.x, t.pos = first.pos, t.first_row = a.first_row;
    t.last = t.pos + (t.first + t.n - 1) / t.group;
    *segment = first.segment;
}

/* The two rows of a thread. */
struct own_rows {
    const float *q[2];         /* NULL: there is none */
    uint32_t head[2], row[2];  /* of all heads; of the step */
    uint32_t from[2], last[2]; /* what it sees; nothing, last before from, where there is none */
    float scale[2];            /* of its scores: what undoes the rounded queries' factor too */
};
/* tile: which sixteen of the block's rows are the warp's. */
DEVICE void find_own(struct own_rows &o, const struct lode_cuda_att_args &a, const struct rows_of &t, uint32_t tile) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t r = tile * ROW_TILE + threadIdx.x % 32 / 4 + 8 * i, n = t.first + r;
        const uint32_t token = n / t.group, pos = t.pos + token;
        const bool here = r < t.n;
        o.row[i] = t.first_row + token;
        o.head[i] = t.head * t.group + n % t.group;
        o.q[i] = here ? row_at<const float>(a.q, o.row[i]) + o.head[i] * a.head_dim : NULL;
        o.from[i] = here ? first_seen(a, pos) : 1;
        o.last[i] = !here ? 0 : a.both_ways ? t.last : pos;
    }
}

/* A warp's queries, rounded: put(step, v) takes what a thread has of each step of sixteen numbers (query_step).  AHEAD steps are read at once. */
template <class T, int AHEAD = 2, class F> DEVICE void round_queries(struct own_rows &o, const struct lode_cuda_att_args &a, F put) {
    const uint32_t lane = threadIdx.x % 32;
    float factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t most = 0;
        if (T::SCALED && o.q[i])
#pragma unroll(AHEAD > 4 ? AHEAD : 4)
            for (uint32_t c = lane % 4 * 4; c < a.head_dim; c += 16)
                most = most_of(*(const float4 *)(o.q[i] + c), most);
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 1));
        most = max(most, __shfl_xor_sync(0xffffffffu, most, 2));
        const float2 f = factors_of<T>(most);
        factor[i] = f.x;
        o.scale[i] = a.scale * f.y;
    }
#pragma unroll(AHEAD)
    for (uint32_t s = 0; s < a.head_dim / 16; s++)
        put(s, query_step<T>(o.q, factor, s));
}

DEVICE struct sight sight_of(const struct own_rows &o, uint32_t start) {
    struct sight s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t lo = o.from[i] > start ? o.from[i] - start : 0;
        const uint32_t hi = o.last[i] < start ? 0 : min(o.last[i] - start + 1, (uint32_t)PAGE);
        s.lo[i] = lo;
        s.n[i] = lo < hi ? hi - lo : 0;
    }
    return s;
}

/* A chain of which rows see `seen` of its first page, as it is, for decode_merge and decode_join. */
template <int TILES>
DEVICE void leave_rows(const struct lode_cuda_att_args &a, const struct own_rows &own, uint32_t page, const struct sight &seen,
                       const struct weights &w, const float (&y)[TILES][4]) {
    const size_t n_parts = (size_t)a.n_rows * a.n_heads * a.max_pages;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (seen.n[i] == 0)
            continue;
        const uint32_t z = page - own.from[i] / PAGE; /* of its own, so that who merges need not know the tile */
        const size_t part = ((size_t)(own.row[i] - a.first_row) * a.n_heads + own.head[i]) * a.max_pages + z;
        float *to = at<float>(a.scratch) + part * a.head_dim_v + threadIdx.x % 4 * 2;
        if (threadIdx.x % 4 == 0)
            ((float2 *)(at<float>(a.scratch) + n_parts * a.head_dim_v))[part] = make_float2(w.max[i], w.total[i]);
#pragma unroll
        for (int n = 0; n < TILES; n++)
            if (8 * n < a.head_dim_v)
                *(float2 *)(to + 8 * n) = make_float2(y[n][2 * i], y[n][2 * i + 1]);
    }
}

/* DIM: at most so many numbers of a key, of a value.  y: numbers 8 t + 2 q and the next of both rows. */
template <class T, int DIM> struct sums {
    float y[DIM / 8][4], max[2], total[2];
};

/* What becomes of a row's sums so far (old) and of the page's (now); neither where the row does not see it. */
struct merging {
    float old[2], now[2];
    bool seen[2], first[2], plain; /* plain: all rows of the warp see it, and saw others before */
};
DEVICE void merge(float (&y)[4], const struct merging &m, const float (&part)[4]) {
    if (m.plain) {
#pragma unroll
        for (int e = 0; e < 4; e++)
            y[e] = fmaf(m.now[e / 2], part[e], y[e] * m.old[e / 2]);
    } else {
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float v = fmaf(m.now[e / 2], part[e], y[e] * m.old[e / 2]);
            y[e] = m.first[e / 2] ? part[e] : m.seen[e / 2] ? v : y[e];
        }
    }
}

/* A page's weights to a row's maximum and total so far, by the definition's lines: of its two exponentials one is always that of 0. */
DEVICE void merge_row(struct merging &g, int i, float &max, float &total, const struct weights &w) {
    const bool more = w.max[i] > max;
    const float top = more ? w.max[i] : max, e = exp_below(more ? max - top : w.max[i] - top);
    g.old[i] = more ? e : 1, g.now[i] = more ? 1 : e;
    const float sum = fmaf(w.total[i], g.now[i], total * g.old[i]);
    total = g.first[i] ? w.total[i] : g.seen[i] ? sum : total;
    max = g.first[i] ? w.max[i] : g.seen[i] ? top : max;
}
/* o: its largest scores and totals. */
template <class SUMS>
DEVICE struct merging begin_merge(SUMS &o, const struct own_rows &own, uint32_t page, const struct sight &seen, const struct weights &w) {
    struct merging g;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        g.seen[i] = seen.n[i] != 0;
        g.first[i] = g.seen[i] && page == own.from[i] / PAGE;
        merge_row(g, i, o.max[i], o.total[i], w);
    }
    g.plain = __all_sync(0xffffffffu, g.seen[0] && g.seen[1] && !g.first[0] && !g.first[1]);
    return g;
}

/* A thread's numbers of row `row` as fast_x would leave them for a product with BF16 weights; first: of the head. */
template <class T, int DIM>
DEVICE void store_panels(const struct lode_cuda_att_args &a, uint32_t row, uint32_t first, const struct ending &end,
                          const struct sums<T, DIM> &o, int i) {
    const uint32_t r = row % LODE_FAST_TILE, q = threadIdx.x % 4;
    uint8_t *tile = rounded_tile(a.tiles, row / LODE_FAST_TILE);
#pragma unroll
    for (int n = 0; n < DIM / 8; n++) {
        const uint32_t piece = first / 8 + n;
        if (8 * n < a.head_dim_v)
            *(uint32_t *)(tile + (size_t)(piece / 8) * LODE_FAST_PANEL + in_panel(r, piece % 8) + 4 * q) =
                pair_16<bf16>(ended(o.y[n][2 * i], end), ended(o.y[n][2 * i + 1], end), 1);
    }
    if (first == 0 && q == 0)
        ((float *)(tile + a.tiles.size) - LODE_FAST_TILE)[r] = 1;
}
/* o: of a head's numbers those from first_value on. */
template <class T, int DIM>
DEVICE void store(const struct lode_cuda_att_args &a, const struct own_rows &own, const struct sums<T, DIM> &o, uint32_t first_value) {
    const float *sinks = at<const float>(a.sinks);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (own.last[i] < own.from[i])
            continue;
        const struct ending end = ending_of(o.max[i], o.total[i], sinks ? sinks + own.head[i] : NULL);
        const uint32_t first = own.head[i] * a.head_dim_v + first_value;
        if (a.tiles.kind == LODE_TILES_PANELS) {
            store_panels<T, DIM>(a, own.row[i], first, end, o, i);
            continue;
        }
        float *y = row_at<float>(a.y, own.row[i]) + first + threadIdx.x % 4 * 2;
#pragma unroll
        for (int n = 0; n < DIM / 8; n++)
            if (8 * n < a.head_dim_v)
                *(float2 *)(y + 8 * n) = make_float2(ended(o.y[n][2 * i], end), ended(o.y[n][2 * i + 1], end));
    }
}

#endif
