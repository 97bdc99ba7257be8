/* attention_large.cu - attention_tile for heads of 128 numbers in F16 and GPUs with the shared memory for it; the
 * definition, order included, is at the head of backend/cpu/attention.c.
 *
 * A block of threads takes 64 query rows (tokens by heads) of one head of keys, or 32 where the block that sees most
 * would otherwise be waited for by all.  What binds is how much has to come from shared memory for a multiply-add,
 * so pieces are as large as registers allow.
 *
 * Scores have sixteen lanes.  Eight threads, each the fourth after the one before (neighbours read the same numbers of a
 * key, which then come in half as many turns), share eight rows; thread l has lanes l and l + 8 of them,
 * all steps of sixteen numbers of the rows' queries in registers, and takes key after key.  The lanes'
 * tree: + 8 within a thread, + 4, + 2 and + 1 between threads, which halve the rows each time, so that
 * thread l ends with row l.  What is row i ^ l to thread l lies in its i-th place; so partners always
 * exchange the same places, and nothing is chosen.
 *
 * Numbers of keys and queries lie as they are read (place).  Values are mixed in pieces of 8 rows by 8 numbers (by 4 in tiles of
 * 32 rows).  Keys and values come as they are stored, by asynchronous copies, while the ones before are computed with. */
#include "attention.cuh"
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"

enum { TILE_THREADS = LODE_LARGE_THREADS, KEYS_AT_ONCE = 2 };

extern __shared__ __align__(16) float tile_mem[];

/* Floats from one row of queries, keys or values to the next, bytes of one as stored: neighbours start
 * 16 bytes apart in the banks. */
template <int STEPS, int TILE> struct tile_of {
    enum { DIM = 16 * STEPS, LD = DIM + 4, LD_RAW = 2 * DIM + 16, LD_S = TILE + 4 };
    enum { PIECES = TILE_THREADS / (TILE / 8), NUMBERS = DIM / PIECES }; /* of a row; numbers of each, by fours */
    enum { GROUPS = 32 / PIECES };                                       /* of eight rows, that a warp has */
    float sum[TILE * DIM];                              /* queries, until they are in registers */
    float kv[PAGE * LD], s[PAGE * LD_S];                /* s: scores by key */
    float max[TILE], total[TILE], old[TILE], now[TILE]; /* old, now: factors of the sums so far, of the page */
    uint32_t lo[TILE], hi[TILE], first[TILE];           /* what a row sees of the page; whether it is its first */
    uint8_t raw[PAGE * LD_RAW];
};

static_assert(sizeof(struct tile_of<8, 64>) == LODE_LARGE_SHARED(64), "");
static_assert(sizeof(struct tile_of<8, 32>) == LODE_LARGE_SHARED(32), "");

DEVICE float half_at(uint32_t pair, int i) { return f16_f32((uint16_t)(pair >> 16 * i)); }

/* Asks for n rows. */
template <int STEPS, int TILE>
DEVICE void ask(struct tile_of<STEPS, TILE> &m, const uint8_t *from, uint32_t stride, uint32_t n) {
    const uint32_t pieces = m.DIM / 8;
    for (uint32_t i = threadIdx.x; i < n * pieces; i += TILE_THREADS)
        copy_async<16>(m.raw + i / pieces * m.LD_RAW + i % pieces * 16,
                       from + (size_t)(i / pieces) * stride + i % pieces * 16);
    copies_end_group();
}

/* n keys from raw to kv. */
template <int STEPS, int TILE>
DEVICE void widen_keys(struct tile_of<STEPS, TILE> &m, uint32_t n) {
    for (uint32_t i = threadIdx.x; i < PAGE * STEPS / 2; i += TILE_THREADS) {
        const uint32_t key = i % PAGE, h = i / PAGE % 2, m4 = i / (2 * PAGE);
        if (key >= n)
            continue;
        uint4 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) /* numbers of 16 (4 m4 + k) + 8 h and on */
            v[k] = *(const uint4 *)(m.raw + key * m.LD_RAW + (4 * m4 + k) * 32 + h * 16);
        float4 *y = (float4 *)(m.kv + key * m.LD + (h * (STEPS / 4) + m4) * 32);
#pragma unroll
        for (int l = 0; l < 8; l++) {
            const auto at_l = [&](uint4 x) {
                return half_at(l < 2 ? x.x : l < 4 ? x.y : l < 6 ? x.z : x.w, l % 2);
            };
            y[l] = make_float4(at_l(v[0]), at_l(v[1]), at_l(v[2]), at_l(v[3]));
        }
    }
}
template <int STEPS, int TILE>
DEVICE void widen_values(struct tile_of<STEPS, TILE> &m, uint32_t n) {
    const uint32_t pieces = m.DIM / 8;
    for (uint32_t i = threadIdx.x; i < n * pieces; i += TILE_THREADS) {
        const uint4 v = *(const uint4 *)(m.raw + i / pieces * m.LD_RAW + i % pieces * 16);
        float4 *y = (float4 *)(m.kv + i / pieces * m.LD + i % pieces * 8);
        y[0] = make_float4(half_at(v.x, 0), half_at(v.x, 1), half_at(v.y, 0), half_at(v.y, 1));
        y[1] = make_float4(half_at(v.z, 0), half_at(v.z, 1), half_at(v.w, 0), half_at(v.w, 1));
    }
}

template <int STEPS, int TILE>
DEVICE void load_queries(const struct lode_cuda_att_args &a, struct tile_of<STEPS, TILE> &m, const struct rows_of &t) {
    static_assert(STEPS == 8, "a row is a warp's");
    const uint32_t c = threadIdx.x % 32 * 4;
#pragma unroll 8
    for (uint32_t r = threadIdx.x / 32; r < TILE; r += TILE_THREADS / 32) {
        const uint32_t n = t.first + r, token = n / t.group;
        float4 v = make_float4(0, 0, 0, 0);
        if (r < t.n)
            v = *(const float4 *)(row_at<const float>(a.q, t.first_row + token) +
                                  (t.head * t.group + n - token * t.group) * m.DIM + c);
        float *y = m.sum + r * m.DIM + place<STEPS>(c); /* the next number is the next thread's */
        y[0] = v.x, y[4] = v.y, y[8] = v.z, y[12] = v.w;
    }
}

/* Where a thread's eight rows begin: four times eight threads are a warp, which has 32 rows and every second or
 * fourth key. */
template <int TILE> DEVICE uint32_t first_row() { return threadIdx.x % TILE / 32 * 32 + threadIdx.x % 4 * 8; }
DEVICE uint32_t lane_of() { return threadIdx.x % 32 / 4; }

/* Scores of a page's keys; a few too many rather than asking for each whether it is there. */
template <int STEPS, int TILE>
DEVICE void score(struct tile_of<STEPS, TILE> &m, const float (&q)[8][2][STEPS], uint32_t n_keys) {
    enum { APART = TILE_THREADS / TILE, AT_ONCE = APART * KEYS_AT_ONCE };
    const uint32_t l = lane_of();
    float *out = m.s + first_row<TILE>() + l;
    const float *k = m.kv + l * 4;
#pragma unroll KEYS_AT_ONCE
    for (uint32_t key = threadIdx.x / TILE; key < (n_keys + AT_ONCE - 1) / AT_ONCE * AT_ONCE; key += APART) {
        float acc[8][2];
#pragma unroll
        for (int i = 0; i < 8; i++)
            acc[i][0] = acc[i][1] = 0;
#pragma unroll
        for (int p = 0; p < STEPS / 4; p++) {
            const float4 low = *(const float4 *)(k + key * m.LD + p * 32);
            const float4 high = *(const float4 *)(k + key * m.LD + (p + STEPS / 4) * 32);
            const float y[2][4] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        acc[i][h] = fmaf(q[i][h][4 * p + e], y[h][e], acc[i][h]);
        }
        float s[8];
#pragma unroll
        for (int i = 0; i < 8; i++)
            s[i] = acc[i][0] + acc[i][1];
#pragma unroll
        for (int w = 4; w; w /= 2)
#pragma unroll
            for (int i = 0; i < w; i++)
                s[i] += __shfl_xor_sync(0xffffffffu, s[i + w], 4 * w);
        out[key * m.LD_S] = s[0];
    }
}

/* Scores to weights, all threads, two or four a row: each has LANES neighbours of the lanes 0 to 7, and those + 8; then as
 * attention_walk. */
template <int STEPS, int TILE>
DEVICE void soften(const struct lode_cuda_att_args &a, struct tile_of<STEPS, TILE> &m, const struct rows_of &t,
                   uint32_t page) {
    enum { WAYS = TILE_THREADS / TILE, LANES = 8 / WAYS };
    const uint32_t r = threadIdx.x / WAYS, from = threadIdx.x % WAYS * LANES, lo = m.lo[r], n = m.hi[r] - lo;
    float *s = m.s + (lo + from) * m.LD_S + r;
    const uint32_t mine = n > from ? n - from : 0; /* keys from the first of its own on */
    float x[LANES][8], scale = a.scale, max = -INFINITY; /* of a lane its four keys, of lane + 8 its four */
    if (a.cap > 0) {
        scale = 1;
#pragma unroll 1
        for (uint32_t i = 0; i < mine; i += i % LANES == LANES - 1 ? 9 - LANES : 1)
            s[i * m.LD_S] = a.cap * lode_tanhf(s[i * m.LD_S] * a.scale / a.cap);
    }
#pragma unroll
    for (int l = 0; l < LANES; l++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t key = 8 * i + l;
            x[l][i] = key < mine ? s[key * m.LD_S] * scale : -INFINITY;
            max = x[l][i] > max ? x[l][i] : max;
        }
    max = warp_max(max, WAYS);
    float lane[LANES];
#pragma unroll
    for (int l = 0; l < LANES; l++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t key = 8 * i + l;
            const float e = exp_below(x[l][i] - max);
            if (key < mine) {
                s[key * m.LD_S] = e;
                sum[i % 2] += e;
            }
        }
        lane[l] = sum[0] + sum[1];
    }
    /* + 4, + 2, + 1: between threads, then within one */
#pragma unroll
    for (int w = WAYS / 2; w; w /= 2)
#pragma unroll
        for (int l = 0; l < LANES; l++)
            lane[l] += __shfl_xor_sync(0xffffffffu, lane[l], w);
#pragma unroll
    for (int w = LANES / 2; w; w /= 2)
#pragma unroll
        for (int l = 0; l < w; l++)
            lane[l] += lane[l + w];
    const float total = lane[0];
    if (from || n == 0)
        return;
    const float top = m.max[r] > max ? m.max[r] : max;
    const float old = lode_expf(m.max[r] - top), now = lode_expf(max - top);
    m.first[r] = page == first_seen(a, t.pos + (t.first + r) / t.group) / PAGE;
    m.total[r] = m.first[r] ? total : fmaf(total, now, m.total[r] * old);
    m.max[r] = m.first[r] ? max : top;
    m.old[r] = old, m.now[r] = now;
}

/* 8 rows, and of those numbers c .. + 3 and, where a piece has eight, c + 64 .. + 3 */
struct piece {
    uint32_t row, c;
};

/* Adds values of keys from `from` up to `to` to rows that `sees` says see them. */
template <int STEPS, int TILE, class F>
DEVICE void add_keys(const struct tile_of<STEPS, TILE> &m, const struct piece &p, uint32_t from, uint32_t to,
                     float (&y)[8][tile_of<STEPS, TILE>::NUMBERS], F sees) {
#pragma unroll 2
    for (uint32_t j = from; j < to; j++) {
        const float4 *w = (const float4 *)(m.s + j * m.LD_S + p.row);
        const float4 e0 = w[0], e1 = w[1];
        const float e[8] = {e0.x, e0.y, e0.z, e0.w, e1.x, e1.y, e1.z, e1.w};
        float v[m.NUMBERS];
#pragma unroll
        for (int i = 0; i < m.NUMBERS; i += 4) {
            const float4 x = *(const float4 *)(m.kv + j * m.LD + p.c + m.PIECES * i);
            v[i] = x.x, v[i + 1] = x.y, v[i + 2] = x.z, v[i + 3] = x.w;
        }
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (sees(r, j))
#pragma unroll
                for (int i = 0; i < m.NUMBERS; i++)
                    y[r][i] = fmaf(e[r], v[i], y[r][i]);
    }
}

/* The page's values, mixed and merged into the sums. */
template <int STEPS, int TILE>
DEVICE void mix(struct tile_of<STEPS, TILE> &m, const struct piece &p) {
    float y[8][m.NUMBERS];
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int i = 0; i < m.NUMBERS; i++)
            y[r][i] = 0;
    each_seen(m.lo + p.row, m.hi + p.row, [&](uint32_t from, uint32_t to, auto sees) { add_keys(m, p, from, to, y, sees); });
#pragma unroll
    for (int r = 0; r < 8; r++) {
        if (m.lo[p.row + r] >= m.hi[p.row + r])
            continue;
        const float old = m.old[p.row + r], now = m.now[p.row + r];
        const bool first = m.first[p.row + r];
        float4 *sum = (float4 *)(m.sum + (p.row + r) * m.DIM + p.c);
#pragma unroll
        for (int i = 0; i < m.NUMBERS; i += 4) {
            float4 o = sum[m.PIECES / 4 * i];
            const auto merged = [&](float so_far, float part) {
                return first ? part : fmaf(now, part, old != 1.0f ? so_far * old : so_far);
            };
            o.x = merged(o.x, y[r][i]), o.y = merged(o.y, y[r][i + 1]);
            o.z = merged(o.z, y[r][i + 2]), o.w = merged(o.w, y[r][i + 3]);
            sum[m.PIECES / 4 * i] = o;
        }
    }
}

template <int STEPS, int TILE> DEVICE void attend(const struct lode_cuda_att_args &a) {
    struct tile_of<STEPS, TILE> &m = *(struct tile_of<STEPS, TILE> *)tile_mem;
    struct rows_of t;
    uint32_t segment;
    if (!find_rows<TILE>(a, t, &segment))
        return;
    const struct lode_cuda_segment &s =
        at<const struct lode_cuda_segment>(step_at(a.step)->segments)[segment];
    const struct lode_cuda_view view = at<const struct lode_cuda_view>(s.views)[a.layer];
    const struct piece p = {(threadIdx.x / 32 * m.GROUPS + threadIdx.x % m.GROUPS) * 8, threadIdx.x % 32 / m.GROUPS * 4};
    const uint32_t last_page = t.last / PAGE, oldest = first_seen(a, t.pos + t.first / t.group);
    const auto keys_of = [&](uint32_t page) { return t.last - page * PAGE < PAGE ? t.last - page * PAGE + 1 : PAGE; };
    const auto base_of = [&](uint32_t page) {
        return page_of(view, page);
    };
    const size_t k_at = view.k + (size_t)t.head * PAGE * view.k_stride, v_at = view.v + (size_t)t.head * PAGE * view.v_stride;
    uint32_t page = oldest / PAGE;
    const uint8_t *base = base_of(page);
    ask(m, base + k_at, view.k_stride, keys_of(page));
    load_queries(a, m, t);
    if (threadIdx.x < TILE)
        m.max[threadIdx.x] = m.total[threadIdx.x] = 0;
    __syncthreads();
    float q[8][2][STEPS];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int k = 0; k < STEPS / 2; k++) {
            const uint32_t l = lane_of();
            const float4 v = *(const float4 *)(m.sum + (first_row<TILE>() + (i ^ l)) * m.DIM + k * 32 + l * 4);
            float *x = &q[i][k / (STEPS / 4)][k % (STEPS / 4) * 4];
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        }
#pragma unroll 1
    for (; page <= last_page; page++) {
        const uint32_t start = page * PAGE, n_k = keys_of(page);
        copies_wait<0>();
        __syncthreads(); /* kv and s are read by nobody any more, the keys are there */
        widen_keys(m, n_k);
        if (threadIdx.x < TILE) {
            const uint32_t r = threadIdx.x;
            const struct keys_seen seen = keys_seen_by(a, t.pos + (t.first + r) / t.group, r < t.n, start, n_k);
            m.lo[r] = seen.lo;
            m.hi[r] = seen.hi;
        }
        __syncthreads();
        ask(m, base + v_at, view.v_stride, n_k);
        if (threadIdx.x % TILE / 32 * 32 < t.n) /* whole warps: they exchange parts of sums */
            score(m, q, n_k);
        copies_wait<0>();
        __syncthreads();
        widen_values(m, n_k);
        soften(a, m, t, page);
        __syncthreads();
        if (page < last_page) {
            base = base_of(page + 1);
            ask(m, base + k_at, view.k_stride, keys_of(page + 1));
        }
        if (p.row < t.n)
            mix(m, p);
    }
    const float *sinks = at<const float>(a.sinks);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const uint32_t row = p.row + r;
        if (row >= t.n)
            break;
        const float *sink = sinks ? sinks + t.head * t.group + (t.first + row) % t.group : NULL;
        float *y = out_row(a, t, row) + p.c;
        const float max = m.max[row], total = m.total[row];
#pragma unroll
        for (int i = 0; i < m.NUMBERS; i += 4) {
            const float4 v = *(const float4 *)(m.sum + row * m.DIM + p.c + m.PIECES * i);
            *(float4 *)(y + m.PIECES * i) = make_float4(finish(max, total, v.x, sink), finish(max, total, v.y, sink),
                                                        finish(max, total, v.z, sink), finish(max, total, v.w, sink));
        }
    }
}

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
    attention_large(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    attend<8, 64>(a);
}
extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
    attention_large_32(const __grid_constant__ struct lode_cuda_att_args a) {
    begin();
    attend<8, 32>(a);
}
