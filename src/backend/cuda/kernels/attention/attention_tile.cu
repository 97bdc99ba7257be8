/* attention_tile.cu - softmax attention of many rows, walking the pages; the definition, order
 * included, is at the head of backend/cpu/attention.c.
 *
 * A block of threads takes 64 query rows (tokens by heads) of one head of keys, so that what it
 * reads from shared memory serves many multiply-adds: scores in pieces of 4 rows by 4 keys, values
 * in pieces of 4 rows by 8 or 16 numbers, whose sums stay in registers from page to page.
 *
 * Scores have sixteen lanes.  Four threads share a piece; thread t has lanes t, t + 4, t + 8, t +
 * 12, which lie side by side in shared memory (number 16 m + 4 e + t at 16 m + 4 t + e), so that
 * the lanes' tree is mostly within a thread: + 8 and + 4 there, + 2 and + 1 between threads.
 */
#include "attention.cuh"

enum { TILE = 64, TILE_THREADS = 256, LD_S = TILE + 4 };

extern __shared__ __align__(16) float tile_mem[];

struct tile_mem_of {
    float *q, *kv, *s;              /* (TILE, ld), (PAGE, ld), (PAGE, LD_S): scores by key */
    float *max, *total, *old, *now; /* (TILE): as attention_walk's */
    uint32_t *lo, *hi, *first;
    uint32_t ld;
};
DEVICE struct tile_mem_of carve(const struct lode_cuda_att_args &a) {
    struct tile_mem_of m;
    const uint32_t dim = a.head_dim > a.head_dim_v ? a.head_dim : a.head_dim_v;
    m.ld = (dim + 31) / 32 * 32 + 16; /* neighbouring rows start 16 banks apart */
    m.q = tile_mem;
    m.kv = m.q + TILE * m.ld;
    m.s = m.kv + PAGE * m.ld;
    m.max = m.s + PAGE * LD_S;
    m.total = m.max + TILE;
    m.old = m.total + TILE;
    m.now = m.old + TILE;
    m.lo = (uint32_t *)(m.now + TILE);
    m.hi = m.lo + TILE;
    m.first = m.hi + TILE;
    return m;
}

/* n rows of dim numbers from a page; by_lanes: in the order that scores read. */
template <bool by_lanes> DEVICE void load_rows(float *to, uint32_t ld, const uint8_t *from,
                                               uint32_t stride, uint32_t n, uint32_t dim,
                                               uint32_t type) {
    const uint32_t each = dim / 8;
    for (uint32_t i = threadIdx.x; i < n * each; i += TILE_THREADS) {
        const uint32_t r = i / each, c = i % each;
        float x[8];
        read_eight(x, from + (size_t)r * stride, c * 8, type);
        if (by_lanes) {
            float *y = to + r * ld + c / 2 * 16 +
                       c % 2 * 2; /* numbers 4 e + t, e = 2 (c % 2) and one more */
#pragma unroll
            for (int t = 0; t < 4; t++)
                *(float2 *)(y + 4 * t) = make_float2(x[t], x[4 + t]);
        } else {
            float4 *y = (float4 *)(to + r * ld + c * 8);
            y[0] = make_float4(x[0], x[1], x[2], x[3]);
            y[1] = make_float4(x[4], x[5], x[6], x[7]);
        }
    }
}

DEVICE void load_queries(const struct lode_cuda_att_args &a, const struct tile_mem_of &m,
                         const struct rows_of &t) {
    for (uint32_t i = threadIdx.x; i < TILE * a.head_dim; i += TILE_THREADS) {
        const uint32_t r = i / a.head_dim, c = i % a.head_dim, n = t.first + r, in = c % 16;
        m.q[r * m.ld + c / 16 * 16 + in % 4 * 4 + in / 4] =
            r < t.n ? row_at<const float>(
                          a.q, t.first_row +
                                   n / t.group)[(t.head * t.group + n % t.group) * a.head_dim + c]
                    : 0;
    }
}

/* A warp's 4 rows from r0 on by 32 keys from k0 on: thread 4 b + t has keys b, b + 8, b + 16, b +
 * 24 of them. */
DEVICE void score(const struct tile_mem_of &m, uint32_t dim, uint32_t r0, uint32_t k0) {
    const uint32_t lane = threadIdx.x % 32, t = lane % 4, b = lane / 4;
    const float *q = m.q + r0 * m.ld + 4 * t, *k = m.kv + (k0 + b) * m.ld + 4 * t;
    float4 acc[4][4];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            acc[r][i] = make_float4(0, 0, 0, 0);
#pragma unroll 2
    for (uint32_t c = 0; c < dim; c += 16) {
        float4 x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            x[i] = *(const float4 *)(q + i * m.ld + c);
            y[i] = *(const float4 *)(k + 8 * i * m.ld + c);
        }
#pragma unroll
        for (int r = 0; r < 4; r++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc[r][i].x = fmaf(x[r].x, y[i].x, acc[r][i].x);
                acc[r][i].y = fmaf(x[r].y, y[i].y, acc[r][i].y);
                acc[r][i].z = fmaf(x[r].z, y[i].z, acc[r][i].z);
                acc[r][i].w = fmaf(x[r].w, y[i].w, acc[r][i].w);
            }
    }
    /* lanes + 8, + 4; then threads t and t ^ 2 halve the rows, t and t ^ 1 again: thread t keeps
     * row t */
    float s[4][4], two[2][4];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[r][i] = (acc[r][i].x + acc[r][i].z) + (acc[r][i].y + acc[r][i].w);
    const bool upper = t & 2, odd = t & 1;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float mine = upper ? s[r + 2][i] : s[r][i], other = upper ? s[r][i] : s[r + 2][i];
            two[r][i] = mine + __shfl_xor_sync(0xffffffffu, other, 2);
        }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float mine = odd ? two[1][i] : two[0][i], other = odd ? two[0][i] : two[1][i];
        m.s[(k0 + b + 8 * i) * LD_S + r0 + t] = mine + __shfl_xor_sync(0xffffffffu, other, 1);
    }
}

/* Row r's part of the page, by sixteen threads: what attention_walk does after page_part. */
DEVICE void soften(const struct lode_cuda_att_args &a, const struct tile_mem_of &m,
                   const struct rows_of &t, uint32_t r, uint32_t page) {
    const uint32_t l = threadIdx.x % 16, lo = m.lo[r], n = m.hi[r] - lo;
    float *s = m.s + lo * LD_S + r, max = -INFINITY, total = 0;
    for (uint32_t i = l; i < n; i += 16) {
        float v = s[i * LD_S] * a.scale;
        if (a.cap > 0)
            v = a.cap * lode_tanhf(v / a.cap);
        s[i * LD_S] = v;
        max = v > max ? v : max;
    }
    max = join_max(max);
    for (uint32_t i = l; i < n; i += 16) {
        const float e = lode_expf(s[i * LD_S] - max);
        s[i * LD_S] = e;
        total += e;
    }
    total = join_lanes(total);
    if (l || n == 0)
        return;
    const float top = m.max[r] > max ? m.max[r] : max;
    const float old = lode_expf(m.max[r] - top), now = lode_expf(max - top);
    m.first[r] = page == first_seen(a, t.pos + (t.first + r) / t.group) / PAGE;
    m.total[r] = m.first[r] ? total : fmaf(total, now, m.total[r] * old);
    m.max[r] = m.first[r] ? max : top;
    m.old[r] = old, m.now[r] = now;
}

/* 4 rows, and of those numbers c .. + 3 of each of PARTS parts of them, `apart` from one to the next */
struct piece {
    uint32_t row, c, apart;
    bool used;
};

template <int PARTS>
DEVICE void add_key(const struct tile_mem_of &m, const struct piece &p, uint32_t j, float4 *e,
                    float4 (&v)[PARTS]) {
    *e = *(const float4 *)(m.s + j * LD_S + p.row);
#pragma unroll
    for (int i = 0; i < PARTS; i++)
        v[i] = *(const float4 *)(m.kv + j * m.ld + p.c + i * p.apart);
}
template <int PARTS> DEVICE void mix_row(float (&y)[4 * PARTS], float e, const float4 (&v)[PARTS]) {
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        y[4 * i] = fmaf(e, v[i].x, y[4 * i]), y[4 * i + 1] = fmaf(e, v[i].y, y[4 * i + 1]);
        y[4 * i + 2] = fmaf(e, v[i].z, y[4 * i + 2]), y[4 * i + 3] = fmaf(e, v[i].w, y[4 * i + 3]);
    }
}
/* The page's values, mixed and merged into the sums. */
template <int PARTS>
DEVICE void mix(const struct tile_mem_of &m, const struct piece &p, float (&sum)[4][4 * PARTS]) {
    float y[4][4 * PARTS];
    uint32_t lo[4], hi[4], from = PAGE, to = 0;
    bool same = true;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        lo[r] = m.lo[p.row + r], hi[r] = m.hi[p.row + r];
        same = same && lo[r] == lo[0] && hi[r] == hi[0];
        if (lo[r] < hi[r]) {
            from = lo[r] < from ? lo[r] : from;
            to = hi[r] > to ? hi[r] : to;
        }
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            y[r][i] = 0;
    }
    float4 e, v[PARTS];
    if (same) {
#pragma unroll 4
        for (uint32_t j = from; j < to; j++) {
            add_key(m, p, j, &e, v);
            mix_row<PARTS>(y[0], e.x, v), mix_row<PARTS>(y[1], e.y, v), mix_row<PARTS>(y[2], e.z, v),
                mix_row<PARTS>(y[3], e.w, v);
        }
    } else {
        for (uint32_t j = from; j < to; j++) {
            add_key(m, p, j, &e, v);
            const float w[4] = {e.x, e.y, e.z, e.w};
#pragma unroll
            for (int r = 0; r < 4; r++)
                if (j >= lo[r] && j < hi[r])
                    mix_row<PARTS>(y[r], w[r], v);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++) {
        if (lo[r] >= hi[r])
            continue;
        const float old = m.old[p.row + r], now = m.now[p.row + r];
        const bool first = m.first[p.row + r];
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            sum[r][i] =
                first ? y[r][i] : fmaf(now, y[r][i], old != 1.0f ? sum[r][i] * old : sum[r][i]);
    }
}

/* Keys and values in 16 bits or Q8_0; heads of numbers that are a multiple of 16 (keys), and of up to 64 PARTS, a multiple of
 * 4 PARTS (values). */
template <int PARTS> DEVICE void attend(const struct lode_cuda_att_args &a) {
    const struct tile_mem_of m = carve(a);
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<TILE>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, apart = a.head_dim_v / PARTS;
    const struct piece p = {(warp * 2 + lane / 16) * 4, lane % 16 * 4, apart, lane % 16 * 4 < apart};
    float sum[4][4 * PARTS];
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            sum[r][i] = 0;
    load_queries(a, m, t);
    if (threadIdx.x < TILE)
        m.max[threadIdx.x] = m.total[threadIdx.x] = 0;
    const uint32_t oldest = first_seen(a, t.pos + t.first / t.group);
    for (uint32_t page = oldest / PAGE; page <= t.last / PAGE; page++) {
        const uint32_t start = page * PAGE, n_k = t.last - start < PAGE ? t.last - start + 1 : PAGE;
        const uint8_t *base = page_of(view, page);
        __syncthreads(); /* kv and s are read by nobody any more */
        load_rows<true>(m.kv, m.ld, base + view.k + (size_t)t.head * PAGE * view.k_stride,
                          view.k_stride, n_k, a.head_dim, view.type_k);
        if (threadIdx.x < TILE) {
            const uint32_t r = threadIdx.x;
            const struct keys_seen seen = keys_seen_by(a, t.pos + (t.first + r) / t.group, r < t.n, start, n_k);
            m.lo[r] = seen.lo;
            m.hi[r] = seen.hi;
        }
        __syncthreads();
        for (uint32_t i = warp; i < TILE / 4 * 2; i += TILE_THREADS / 32)
            if (i / 2 * 4 < t.n && i % 2 * 32 < n_k)
                score(m, a.head_dim, i / 2 * 4, i % 2 * 32);
        __syncthreads();
        load_rows<false>(m.kv, m.ld, base + view.v + (size_t)t.head * PAGE * view.v_stride,
                           view.v_stride, n_k, a.head_dim_v, view.type_v);
        for (uint32_t r = threadIdx.x / 16; r < TILE; r += TILE_THREADS / 16)
            soften(a, m, t, r, page);
        __syncthreads();
        if (p.used && p.row < t.n)
            mix<PARTS>(m, p, sum);
    }
    const float *sinks = at<const float>(a.sinks);
    if (!p.used)
        return;
#pragma unroll
    for (int r = 0; r < 4; r++) {
        const uint32_t row = p.row + r;
        if (row >= t.n)
            break;
        const float *sink = sinks ? sinks + t.head * t.group + (t.first + row) % t.group : NULL;
        float *y = out_row(a, t, row) + p.c;
#pragma unroll
        for (int i = 0; i < 4 * PARTS; i++)
            y[i / 4 * p.apart + i % 4] = finish(m.max[row], m.total[row], sum[r][i], sink);
    }
}

/* Of up to 128 values, of up to 256. */
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
    attention_tile(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    attend<2>(a);
}
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 1)
    attention_tile_256(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    attend<4>(a);
}
