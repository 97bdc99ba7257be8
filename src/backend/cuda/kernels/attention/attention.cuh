/* attention.cuh - what all kernels of attention share: what a position sees, and how pages' parts
 * are merged. */
#ifndef LODE_CUDA_ATTENTION_CUH
#define LODE_CUDA_ATTENTION_CUH

#include "backend/cuda/kernels/attention/attention_shared.h"
#include "backend/cuda/kernels/common.cuh"

#pragma push_macro("inline")
#define inline __device__ __forceinline__
#include "tensor/dtype.h"
#pragma pop_macro("inline")

enum { PAGE = 64 };

/* The first position that one at p sees. */
DEVICE uint32_t first_seen(const struct lode_cuda_att_args &a, uint32_t p) {
    const uint32_t from = a.window && p >= a.window ? p - a.window + 1 : 0;
    const uint32_t start = a.chunk ? p - p % a.chunk : 0;
    return from > start ? from : start;
}
/* How many parts what a row at `pos` sees leaves in the scratch: its pages, or chains of them, which are no more than there is room for. */
DEVICE uint32_t parts_of(const struct lode_cuda_att_args &a, uint32_t pos) {
    return min(pos / PAGE - first_seen(a, pos) / PAGE + 1, a.max_pages);
}
/* Where those of a head of a launch's row i lie: numbers, (n, head_dim_v), and of each its largest score and its weights' total. */
struct head_parts {
    const float *of;
    const float2 *ml;
};
DEVICE struct head_parts head_parts_of(const struct lode_cuda_att_args &a, uint32_t i, uint32_t head) {
    const size_t at_part = ((size_t)i * a.n_heads + head) * a.max_pages;
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    const float *of = at<const float>(a.scratch);
    return {of + at_part * a.head_dim_v, (const float2 *)(of + n_parts * a.head_dim_v) + at_part};
}
/* A sequence's page. */
DEVICE const uint8_t *page_of(const struct lode_cuda_view &view, uint32_t page) {
    return at<const uint8_t>(at<const lode_dev>(view.pages)[page % view.n_entries]);
}
/* How many of the n_k keys of a page that begins with position `start` are no later than a row at `pos` sees. */
DEVICE uint32_t seen_of_page(const struct lode_cuda_att_args &a, uint32_t pos, uint32_t start, uint32_t n_k) {
    return a.both_ways ? n_k : pos < start ? 0 : pos - start < n_k ? pos - start + 1 : n_k;
}
/* Which of them it sees, if there is such a row: from lo to before hi. */
struct keys_seen {
    uint32_t lo, hi;
};
DEVICE struct keys_seen keys_seen_by(const struct lode_cuda_att_args &a, uint32_t pos, bool here, uint32_t start, uint32_t n_k) {
    const uint32_t from = first_seen(a, pos), lo = from > start ? from - start : 0, hi = seen_of_page(a, pos, start, n_k);
    const bool none = lo >= hi || !here;
    return {none ? 0 : lo, none ? 0 : hi};
}

/* Numbers c to c + 7 of a stored row of 16 bits, whose pieces of 16 bytes can be read, or Q8_0; c is a multiple of 8. */
DEVICE void read_eight(float x[8], const uint8_t *row, uint32_t c, uint32_t type) {
    if (type == LODE_Q8_0) {
        const uint8_t *b = row + c / 32 * 34; /* at any even byte */
        const float d = f16_f32(*(const uint16_t *)b);
#pragma unroll
        for (int k = 0; k < 8; k += 2) {
            const uint16_t two = *(const uint16_t *)(b + 2 + c % 32 + k);
            x[k] = (float)(int8_t)two * d, x[k + 1] = (float)(int8_t)(two >> 8) * d;
        }
        return;
    }
    const uint4 v = *(const uint4 *)(row + 2 * c);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 8; k++)
        x[k] = type == LODE_F16 ? f16_f32((uint16_t)(w[k / 2] >> 16 * (k % 2)))
                                : lode_bits_f32(k % 2 ? w[k / 2] & 0xffff0000u : w[k / 2] << 16);
}

/* Where number c of a key or a query lies that is read by lanes l and l + 8 of scores: 16 m + 8 h + l at
 * ((h M + m / 4) 8 + l) 4 + m % 4, M = STEPS / 4. */
template <int STEPS> DEVICE uint32_t place(uint32_t c) {
    const uint32_t m = c / 16, h = c / 8 % 2, l = c % 8;
    return ((h * (STEPS / 4) + m / 4) * 8 + l) * 4 + m % 4;
}

/* lode_expf's bits for x <= 0 and NaN.  Its two factors, each half of the power of two, are 2^(n + 64) and 2^-64
 * here: the first product is exact as well (n >= -151), so the second alone rounds. */
DEVICE float exp_below(float x) {
    float t;
    const float e = 1.0f + vf_expm1_part(-104.0f > x ? -104.0f : x, &t);
    return e * lode_bits_f32((lode_f32_bits(t) << 23) + ((127 + 64) << 23)) * 0x1p-64f;
}

/* (m, l, o) with a page's (max, total, part); see the definition. */
DEVICE void merge_one(float *m, float *l, float *o, float max, float total, float part,
                      bool first) {
    if (first) {
        *m = max, *l = total, *o = part;
        return;
    }
    const float top = *m > max ? *m : max;
    const float a = lode_expf(*m - top), b = lode_expf(max - top);
    *l = fmaf(total, b, *l * a);
    *m = top;
    *o = fmaf(b, part, a != 1.0f ? *o * a : *o);
}
/* The sums so far, with the sink's part. */
DEVICE float finish(float m, float l, float o, const float *sink) {
    if (sink) {
        const float top = m > *sink ? m : *sink;
        const float a = lode_expf(m - top), b = lode_expf(*sink - top);
        l = fmaf(1.0f, b, l * a);
        if (a != 1.0f)
            o *= a;
    }
    return o * (1.0f / l);
}

struct rows_of { /* the query rows of a block */
    uint32_t first, n; /* within the segment: row i is token i / group, head i % group */
    uint32_t group, head, pos, first_row;
    uint32_t last; /* position */
};

/* The block's rows: blockIdx.y counts tiles of TILE rows over all segments. */
template <uint32_t TILE>
DEVICE bool find_rows(const struct lode_cuda_att_args &a, struct rows_of &t, uint32_t *segment) {
    const struct lode_cuda_step *step = step_at(a.step);
    const struct lode_cuda_segment *s = at<const struct lode_cuda_segment>(step->segments);
    uint32_t tile = blockIdx.y, tiles = 0, i = 0;
    t.group = a.n_heads / a.n_kv_heads;
    for (; i < step->n_segments; i++, tile -= tiles) {
        tiles = (s[i].n_rows * t.group + TILE - 1) / TILE;
        if (tile < tiles)
            break;
    }
    if (i == step->n_segments)
        return false;
    *segment = i;
    const uint32_t rows = s[i].n_rows * t.group;
    tile = tiles - 1 - tile; /* the last tokens see most: first */
    t.first = tile * TILE;
    t.n = rows - t.first < TILE ? rows - t.first : TILE;
    t.head = blockIdx.x;
    t.pos = s[i].pos;
    t.first_row = s[i].first_row;
    t.last = a.both_ways ? s[i].pos + s[i].n_rows - 1 : s[i].pos + (t.first + t.n - 1) / t.group;
    return true;
}

DEVICE float *out_row(const struct lode_cuda_att_args &a, const struct rows_of &t, uint32_t r) {
    const uint32_t n = t.first + r;
    return row_at<float>(a.y, t.first_row + n / t.group) +
           (t.head * t.group + n % t.group) * a.head_dim_v;
}

/* Calls add(from, to, sees) in ascending order for those of a page's keys that any of eight rows sees, row r keys lo[r] up to
 * hi[r]; sees(r, j) says whether r sees j, and is true at compile time for the longest run that all see. */
template <class F>
DEVICE void each_seen(const uint32_t *lo, const uint32_t *hi, F add) {
    uint32_t from = PAGE, to = 0, all_from = 0, all_to = PAGE; /* what any row sees, what all see */
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const uint32_t l = lo[r], h = hi[r];
        if (l < h) {
            from = l < from ? l : from;
            to = h > to ? h : to;
        }
        all_from = l > all_from ? l : all_from;
        all_to = h < all_to ? h : all_to;
    }
    if (all_from >= all_to)
        all_from = all_to = to;
    const auto some = [=](int r, uint32_t j) { return j >= lo[r] && j < hi[r]; };
    if (from < all_from)
        add(from, all_from, some);
    add(all_from, all_to, [](int, uint32_t) { return true; });
    if (all_to < to)
        add(all_to, to, some);
}

#endif
