/* attention.cu - softmax attention over the pages of the KV cache; the definition, order included, is
 * at the head of backend/cpu/attention.c.
 *
 * A block of threads takes up to TILE query rows (tokens by heads) of one head of keys, and either
 * walks the pages that they see, merging each page's part as it goes, or (few rows, many pages) does
 * one page and leaves the part for `merge`, which does the same sums.  A page's keys and values come
 * at once, or where shared memory is too small for that, in pieces.
 */
#include "attention.cuh"

enum { ATT_THREADS = 256, TILE = 16, ROWS = 4 /* that a thread scores at once */ };

/* Number i of a stored row. */
DEVICE float stored(const uint8_t *row, uint32_t i, uint32_t type) {
    switch (type) {
    case LODE_F32: return ((const float *)row)[i];
    case LODE_F16: return f16_f32(((const uint16_t *)row)[i]);
    case LODE_BF16: return lode_bf16_f32(((const uint16_t *)row)[i]);
    default: {
        const uint8_t *b = row + i / 32 * 34;
        return (float)((const int8_t *)b)[2 + i % 32] * f16_f32(*(const uint16_t *)b);
    }
    }
}

/* n rows of dim numbers from a page into shared memory as floats, ld apart. */
DEVICE void load_rows(float *to, uint32_t ld, const uint8_t *from, uint32_t stride, uint32_t n,
                      uint32_t dim, uint32_t type) {
    if ((type == LODE_F16 || type == LODE_BF16) && dim % 8 == 0 && stride % 16 == 0 &&
        (uintptr_t)from % 16 == 0) {
        const uint32_t each = dim / 8;
        for (uint32_t i = threadIdx.x; i < n * each; i += ATT_THREADS) {
            const uint4 v = *(const uint4 *)(from + (size_t)(i / each) * stride + i % each * 16);
            float *y = to + i / each * ld + i % each * 8;
            const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int k = 0; k < 4; k++) {
                y[2 * k] = type == LODE_F16 ? f16_f32((uint16_t)w[k]) : lode_bits_f32(w[k] << 16);
                y[2 * k + 1] =
                    type == LODE_F16 ? f16_f32((uint16_t)(w[k] >> 16)) : lode_bits_f32(w[k] & 0xffff0000u);
            }
        }
        return;
    }
    for (uint32_t i = threadIdx.x; i < n * dim; i += ATT_THREADS)
        to[i / dim * ld + i % dim] = stored(from + (size_t)(i / dim) * stride, i % dim, type);
}

extern __shared__ float att_mem[];

struct att_mem_of {
    float *q, *kv, *s, *sum; /* (TILE, ld), (kv_rows, ld), (TILE, PAGE), (TILE, dim_v) */
    float *max, *total, *new_max, *new_total, *old, *now; /* old, now: factors of the sums so far, of the page */
    uint32_t *lo, *hi, *first;                            /* first: the row's first page */
    uint32_t ld;
};
DEVICE struct att_mem_of carve(const struct lode_cuda_att_args &a) {
    struct att_mem_of m;
    const uint32_t dim = a.head_dim > a.head_dim_v ? a.head_dim : a.head_dim_v;
    m.ld = ((dim + 15) & ~15u) + 4;
    m.q = att_mem;
    m.kv = m.q + TILE * m.ld;
    m.s = m.kv + a.kv_rows * m.ld;
    m.sum = m.s + TILE * PAGE;
    m.max = m.sum + TILE * a.head_dim_v;
    m.total = m.max + TILE;
    m.new_max = m.total + TILE;
    m.new_total = m.new_max + TILE;
    m.old = m.new_total + TILE;
    m.now = m.old + TILE;
    m.lo = (uint32_t *)(m.now + TILE);
    m.hi = m.lo + TILE;
    m.first = m.hi + TILE;
    return m;
}

/* A page's keys or values of the tile's head. */
struct page_rows {
    const uint8_t *rows;
    uint32_t stride, n, dim, type;
};
/* Of these from `first` on as many as there is room for, when nobody reads the ones before any more: how many. */
DEVICE uint32_t load_piece(const struct lode_cuda_att_args &a, const struct att_mem_of &m, const struct page_rows &p, uint32_t first) {
    const uint32_t n = p.n - first < a.kv_rows ? p.n - first : a.kv_rows;
    load_rows(m.kv, m.ld, p.rows + (size_t)first * p.stride, p.stride, n, p.dim, p.type);
    return n;
}

/* Scores of n keys from `first` on: a thread has one key and ROWS query rows, each with its sixteen lanes. */
DEVICE void score(const struct lode_cuda_att_args &a, const struct att_mem_of &m, const struct rows_of &t, uint32_t first, uint32_t n) {
    for (uint32_t i = threadIdx.x; i < PAGE * (TILE / ROWS); i += ATT_THREADS) {
        const uint32_t key = i % PAGE, r0 = i / PAGE * ROWS;
        if (r0 >= t.n || key >= n)
            continue;
        float acc[ROWS][16];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int l = 0; l < 16; l++)
                acc[r][l] = 0;
        const float *k = m.kv + key * m.ld;
        uint32_t c = 0;
        for (; c + 16 <= a.head_dim; c += 16)
#pragma unroll
            for (int l = 0; l < 16; l += 4) {
                const float4 kk = *(const float4 *)(k + c + l);
#pragma unroll
                for (int r = 0; r < ROWS; r++) {
                    const float4 qq = *(const float4 *)(m.q + (r0 + r) * m.ld + c + l);
                    acc[r][l] = fmaf(qq.x, kk.x, acc[r][l]);
                    acc[r][l + 1] = fmaf(qq.y, kk.y, acc[r][l + 1]);
                    acc[r][l + 2] = fmaf(qq.z, kk.z, acc[r][l + 2]);
                    acc[r][l + 3] = fmaf(qq.w, kk.w, acc[r][l + 3]);
                }
            }
#pragma unroll
        for (int l = 0; l < 16; l++)
            if (c + l < a.head_dim)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    acc[r][l] = fmaf(m.q[(r0 + r) * m.ld + c + l], k[c + l], acc[r][l]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
#pragma unroll
            for (int w = 8; w; w /= 2)
#pragma unroll
                for (int l = 0; l < w; l++)
                    acc[r][l] += acc[r][l + w];
            m.s[(r0 + r) * PAGE + first + key] = acc[r][0];
        }
    }
}

/* One page's part for all rows: new_max, new_total, what mix needs, the first piece of the values; lo = hi where a row sees none of
 * it.  Returns the values. */
DEVICE struct page_rows page_part(const struct lode_cuda_att_args &a, const struct att_mem_of &m,
                                  const struct rows_of &t, const struct lode_cuda_view &view, uint32_t page) {
    const uint32_t start = page * PAGE;
    const uint32_t n_k = t.last - start < PAGE ? t.last - start + 1 : PAGE;
    const uint8_t *base = page_of(view, page);
    const struct page_rows keys = {base + view.k + (size_t)t.head * PAGE * view.k_stride, view.k_stride, n_k, a.head_dim, view.type_k},
                           values = {base + view.v + (size_t)t.head * PAGE * view.v_stride, view.v_stride, n_k, a.head_dim_v, view.type_v};
    for (uint32_t first = 0; first < n_k; first += a.kv_rows) {
        __syncthreads(); /* kv and s are read by nobody any more */
        const uint32_t n = load_piece(a, m, keys, first);
        if (first == 0 && threadIdx.x < t.n) {
            const struct keys_seen seen = keys_seen_by(a, t.pos + (t.first + threadIdx.x) / t.group, true, start, n_k);
            m.lo[threadIdx.x] = seen.lo;
            m.hi[threadIdx.x] = seen.hi;
        }
        __syncthreads();
        score(a, m, t, first, n);
    }
    __syncthreads();
    /* softmax: sixteen threads a row; meanwhile nobody reads the keys */
    for (uint32_t r = threadIdx.x / 16; r < TILE; r += ATT_THREADS / 16) {
        const uint32_t l = threadIdx.x % 16;
        const bool here = r < t.n;
        const uint32_t n = here ? m.hi[r] - m.lo[r] : 0;
        float *s = m.s + r * PAGE + (here ? m.lo[r] : 0);
        float max = -INFINITY, total = 0;
        for (uint32_t i = l; i < n; i += 16) {
            float v = s[i] * a.scale;
            if (a.cap > 0)
                v = a.cap * lode_tanhf(v / a.cap);
            s[i] = v;
            max = v > max ? v : max;
        }
        __syncwarp();
        max = join_max(max);
        for (uint32_t i = l; i < n; i += 16) {
            s[i] = lode_expf(s[i] - max);
            total += s[i];
        }
        __syncwarp();
        total = join_lanes(total);
        if (l == 0 && here) {
            m.new_max[r] = max;
            m.new_total[r] = total;
        }
    }
    load_piece(a, m, values, 0);
    __syncthreads();
    return values;
}

/* What the page gives: the values mixed, for two rows and four numbers a thread; put(r, c, value) takes them. */
template <class F>
DEVICE void mix(const struct lode_cuda_att_args &a, const struct att_mem_of &m, const struct rows_of &t, const struct page_rows &values,
                F put) {
    const uint32_t each = (a.head_dim_v + 3) / 4, n_cells = TILE / 2 * each;
    const bool pieces = values.n > a.kv_rows;
    for (uint32_t cell = 0; cell < n_cells; cell += ATT_THREADS) { /* all threads, as pieces are all's */
        const uint32_t i = cell + threadIdx.x, r = i / each * 2, c = i % each * 4;
        const bool here = i < n_cells && r < t.n;
        const uint32_t lo = here ? m.lo[r] : 0, hi = here ? m.hi[r] : 0;
        const uint32_t lo2 = here && r + 1 < t.n ? m.lo[r + 1] : lo, hi2 = here && r + 1 < t.n ? m.hi[r + 1] : hi;
        const float *s = m.s + r * PAGE;
        float y[2][4] = {};
        const auto add = [&](int k, float e, float4 x) {
            y[k][0] = fmaf(e, x.x, y[k][0]), y[k][1] = fmaf(e, x.y, y[k][1]);
            y[k][2] = fmaf(e, x.z, y[k][2]), y[k][3] = fmaf(e, x.w, y[k][3]);
        };
        for (uint32_t first = 0; first < values.n; first += a.kv_rows) {
            if (pieces && cell + first > 0) { /* page_part brought the first */
                __syncthreads();
                load_piece(a, m, values, first);
                __syncthreads();
            }
            const float *v = m.kv + c - (size_t)first * m.ld;
            const uint32_t end = first + a.kv_rows, from = lo > first ? lo : first, to = hi < end ? hi : end;
            if (lo == lo2 && hi == hi2) {
#pragma unroll 8
                for (uint32_t j = from; j < to; j++) {
                    const float4 x = *(const float4 *)(v + j * m.ld);
                    add(0, s[j], x);
                    add(1, s[PAGE + j], x);
                }
            } else {
                const uint32_t low = lo < lo2 ? lo : lo2, high = hi > hi2 ? hi : hi2;
                for (uint32_t j = low > first ? low : first; j < (high < end ? high : end); j++) {
                    const float4 x = *(const float4 *)(v + j * m.ld);
                    if (j >= lo && j < hi)
                        add(0, s[j], x);
                    if (j >= lo2 && j < hi2)
                        add(1, s[PAGE + j], x);
                }
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < 2; k++)
#pragma unroll
            for (uint32_t n = 0; n < 4; n++)
                if (here && r + k < t.n && m.lo[r + k] < m.hi[r + k] && c + n < a.head_dim_v)
                    put(r + k, c + n, y[k][n]);
    }
}

DEVICE void load_queries(const struct lode_cuda_att_args &a, const struct att_mem_of &m,
                         const struct rows_of &t) {
    for (uint32_t i = threadIdx.x; i < TILE * a.head_dim; i += ATT_THREADS) {
        const uint32_t r = i / a.head_dim, c = i % a.head_dim, n = t.first + r;
        m.q[r * m.ld + c] = r < t.n ? row_at<const float>(a.q, t.first_row + n / t.group)
                                          [(t.head * t.group + n % t.group) * a.head_dim + c]
                                    : 0;
    }
}

KERNEL(ATT_THREADS) attention_walk(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    const struct att_mem_of m = carve(a);
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<TILE>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    load_queries(a, m, t);
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group);
    for (uint32_t page = oldest / PAGE; page <= t.last / PAGE; page++) {
        const struct page_rows values = page_part(a, m, t, view, page);
        if (threadIdx.x < t.n && m.lo[threadIdx.x] < m.hi[threadIdx.x]) {
            const uint32_t r = threadIdx.x;
            const float max = m.new_max[r], top = m.max[r] > max ? m.max[r] : max;
            const float old = lode_expf(m.max[r] - top), now = lode_expf(max - top);
            m.first[r] = page == first_seen(a, t.pos + (t.first + r) / t.group) / PAGE;
            m.total[r] = m.first[r] ? m.new_total[r] : fmaf(m.new_total[r], now, m.total[r] * old);
            m.max[r] = m.first[r] ? max : top;
            m.old[r] = old, m.now[r] = now;
        }
        __syncthreads();
        mix(a, m, t, values, [&](uint32_t r, uint32_t c, float part) {
            float *sum = &m.sum[r * a.head_dim_v + c];
            *sum = m.first[r] ? part : fmaf(m.now[r], part, m.old[r] != 1.0f ? *sum * m.old[r] : *sum);
        });
    }
    __syncthreads();
    const float *sinks = at<const float>(a.sinks);
    for (uint32_t i = threadIdx.x; i < a.head_dim_v * t.n; i += ATT_THREADS) {
        const uint32_t r = i / a.head_dim_v;
        const float *sink = sinks ? sinks + t.head * t.group + (t.first + r) % t.group : NULL;
        out_row(a, t, r)[i % a.head_dim_v] = finish(m.max[r], m.total[r], m.sum[i], sink);
    }
}

/* One page of each (blockIdx.z, counted from the first that any row of the tile sees).  The part of
 * (row, head) goes to scratch[((row * n_heads + head) * max_pages + z) * (dim_v + 2)]: max, total, o. */
KERNEL(ATT_THREADS) attention_page(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    const struct att_mem_of m = carve(a);
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<TILE>(a, t, &segment))
        return;
    const uint32_t page = first_seen(a, t.pos + t.first / t.group) / PAGE + blockIdx.z;
    if (page > t.last / PAGE)
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    load_queries(a, m, t);
    const struct page_rows values = page_part(a, m, t, view, page);
    mix(a, m, t, values, [&](uint32_t r, uint32_t c, float value) {
        const uint32_t n = t.first + r, row = t.first_row + n / t.group, head = t.head * t.group + n % t.group;
        /* its own first page, so that merge need not know the tile */
        const uint32_t z = page - first_seen(a, t.pos + n / t.group) / PAGE;
        float *part = at<float>(a.scratch) +
                      (((size_t)row * a.n_heads + head) * a.max_pages + z) * (a.head_dim_v + 2);
        part[2 + c] = value;
        if (c == 0) {
            part[0] = m.new_max[r];
            part[1] = m.new_total[r];
        }
    });
}

/* blockIdx.x: head, blockIdx.y: row */
KERNEL(ATT_THREADS) attention_merge(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    const struct lode_cuda_row &row = step_row(a.step, blockIdx.y);
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[row.segment];
    const uint32_t last = a.both_ways ? s.pos + s.n_rows - 1 : row.pos;
    const uint32_t n = last / PAGE - first_seen(a, row.pos) / PAGE + 1;
    const float *parts = at<const float>(a.scratch) +
                         ((size_t)blockIdx.y * a.n_heads + blockIdx.x) * a.max_pages *
                             (a.head_dim_v + 2);
    const float *sink = a.sinks ? at<const float>(a.sinks) + blockIdx.x : NULL;
    for (uint32_t c = threadIdx.x; c < a.head_dim_v; c += blockDim.x) {
        float m = 0, l = 0, o = 0;
#pragma unroll 4
        for (uint32_t z = 0; z < n; z++) {
            const float *p = parts + (size_t)z * (a.head_dim_v + 2);
            merge_one(&m, &l, &o, p[0], p[1], p[2 + c], z == 0);
        }
        row_at<float>(a.y, blockIdx.y)[blockIdx.x * a.head_dim_v + c] = finish(m, l, o, sink);
    }
}
