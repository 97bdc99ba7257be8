/* attention_ring.cu - attention of many rows on Hopper, for heads of 128 or 64 numbers; the definition, order included, is
 * at the head of backend/cpu/attention.c.
 *
 * A block of threads takes 128 query rows of one head of keys, sixteen a warp.  Four warps more bring pages, widened, to a ring in
 * shared memory, at which all others meet and nowhere else: so one warp's exponents stand beside another's products.
 * Those have most of the registers.
 *
 * Scores have sixteen lanes.  Eight threads share eight rows and take key after key, every second one; thread l has lanes
 * l and l + 8 of the rows, all steps of sixteen numbers of their queries in registers.  The lanes' tree: + 8 within a thread,
 * + 4, + 2 and + 1 between threads, which halve the rows each time, so that thread l ends with row l.  What is row i ^ l to
 * thread l lies in its i-th place; so partners always exchange the same places, and nothing is chosen.  Threads are
 * numbered so that neighbours read the same numbers of a key: they come in half as many turns.
 *
 * Values are mixed in pieces of 8 rows by 8 numbers (by 4 of heads of 64). */
#include "attention_ring.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { KEPT = 40, TAKEN = 232 }; /* registers of those that bring, of those that compute */
static_assert(KEPT * BRINGERS + TAKEN * 32 * WARPS <= 65536 / LODE_RING_THREADS / 8 * 8 * LODE_RING_THREADS, "");

extern __shared__ __align__(16) float ring_mem[];

/* A warp's threads while it scores, by the bits of their numbers: 16 keys, 2 lanes of the definition, 1 rows. */
DEVICE uint32_t lane_of() { return threadIdx.x / 2 % 8; }
DEVICE uint32_t eight_rows() { return threadIdx.x % 2 * 8; }
DEVICE uint32_t odd_key() { return threadIdx.x / 16 % 2; }

/* The warp's rows, from `at` on, into the sums' place. */
template <int STEPS> DEVICE void load_queries(const struct lode_cuda_att_args &a, struct ring_of<STEPS> &m, uint32_t at) {
    enum { THREADS = 4 * STEPS, AT_ONCE = 32 / THREADS }; /* of a row; rows */
    const struct block_rows &rows = m.rows;
    const uint32_t c = threadIdx.x % THREADS * 4;
#pragma unroll 8
    for (uint32_t r = at + threadIdx.x % 32 / THREADS; r < at + WARP_ROWS; r += AT_ONCE) {
        const uint32_t n = rows.number(r), token = n / rows.group;
        float4 v = make_float4(0, 0, 0, 0);
        if (rows.here(r))
            v = *(const float4 *)(row_at<const float>(a.q, rows.first_row + token) +
                                  (rows.head * rows.group + n - token * rows.group) * m.DIM + c);
        float *y = m.sum + r * m.DIM + place<STEPS>(c); /* the next number is the next thread's */
        y[0] = v.x, y[4] = v.y, y[8] = v.z, y[12] = v.w;
    }
}

/* Scores of a page's keys; one too many rather than asking for each whether it is there.  While one is multiplied, the lanes of
 * the one before are joined and the one after is on its way. */
template <int STEPS>
DEVICE void score(const float *keys, float *s, const float (&q)[8][2][STEPS], uint32_t n_keys) {
    enum { STEP_K = 2 * 4 * ring_of<STEPS>::LD, STEP_S = 2 * 4 * LD_S, M = STEPS / 4 }; /* bytes */
    uint32_t in = opaque(shared_address(keys + odd_key() * ring_of<STEPS>::LD + lane_of() * 4)),
             out = opaque(shared_address(s + odd_key() * LD_S + eight_rows() + lane_of()));
    const uint32_t end = out + (n_keys + 1) / 2 * STEP_S;
    float before[8] = {};
    float4 next[2 * M];
    const auto read = [&] {
#pragma unroll
        for (int p = 0; p < 2 * M; p++)
            next[p] = load4(in + p * 128);
        in += STEP_K;
    };
    const auto join = [&] {
#pragma unroll
        for (int w = 4; w; w /= 2)
#pragma unroll
            for (int i = 0; i < w; i++)
                before[i] += __shfl_xor_sync(0xffffffffu, before[i + w], 2 * w);
        return before[0];
    };
    read();
    uint32_t step = 0;
#pragma unroll 2
    for (; out + step != end; out += step, step = STEP_S) {
        float4 v[2 * M];
        float acc[8][2];
#pragma unroll
        for (int i = 0; i < 2 * M; i++)
            v[i] = next[i];
        read(); /* behind the last one: numbers of what comes next in shared memory */
#pragma unroll
        for (int i = 0; i < 8; i++)
            acc[i][0] = acc[i][1] = 0;
#pragma unroll
        for (int p = 0; p < M; p++) {
            const float y[2][4] = {{v[p].x, v[p].y, v[p].z, v[p].w}, {v[p + M].x, v[p + M].y, v[p + M].z, v[p + M].w}};
#pragma unroll
            for (int e = 0; e < 4; e++)
#pragma unroll
                for (int h = 0; h < 2; h++)
#pragma unroll
                    for (int i = 0; i < 8; i++)
                        acc[i][h] = fmaf(q[i][h][4 * p + e], y[h][e], acc[i][h]);
        }
        store_float(out, join()); /* at first nothing, where the first one's go then */
#pragma unroll
        for (int i = 0; i < 8; i++)
            before[i] = acc[i][0] + acc[i][1];
    }
    store_float(out, join());
}

/* Not where it is called: code is near only as long as there is little of it. */
static __device__ __noinline__ float capped(float v, float cap) { return cap * lode_tanhf(v / cap); }

/* Scores to weights, two threads a row: each has every second key of those that the row sees, so of the sixteen lanes of their
 * sum every second one; then as attention_walk.  WHOLE: all rows see all of the page. */
template <int STEPS, bool WHOLE>
DEVICE void soften(const struct lode_cuda_att_args &a, struct ring_of<STEPS> &m, float *scores, uint32_t page) {
    const uint32_t r = threadIdx.x / 2, from = threadIdx.x % 2, lo = WHOLE ? 0 : m.lo[r],
                   n = WHOLE ? PAGE : m.hi[r] - lo;
    const uint32_t s = opaque(shared_address(scores + (lo + from) * LD_S + r % 16));
    const uint32_t mine = n > from ? n - from : 0; /* keys from the first of its own on */
    float x[4][8], scale = a.scale, max = -INFINITY; /* of a lane its four keys, of lane + 8 its four */
    if (a.cap > 0) {
        scale = 1;
#pragma unroll 1
        for (uint32_t i = 0; i < mine; i += 2)
            store_float(s + i * 4 * LD_S, capped(load_float(s + i * 4 * LD_S) * a.scale, a.cap));
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const uint32_t key = 8 * i + 2 * l;
            x[l][i] = WHOLE || key < mine ? load_float(s + key * 4 * LD_S) : -INFINITY;
        }
#pragma unroll
    for (int l = 0; l < 4; l++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
            x[l][i] *= scale;
            max = x[l][i] > max ? x[l][i] : max;
        }
    const float other = __shfl_xor_sync(0xffffffffu, max, 1);
    max = other > max ? other : max;
    float lane[4];
#pragma unroll
    for (int l = 0; l < 4; l++) {
        float sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint32_t key = 8 * i + 2 * l;
            const float e = exp_below(x[l][i] - max);
            if (WHOLE || key < mine) {
                store_float(s + key * 4 * LD_S, e);
                sum[i % 2] += e;
            }
        }
        lane[l] = sum[0] + sum[1];
    }
    /* + 4, + 2, then + 1 between threads */
    float total = (lane[0] + lane[2]) + (lane[1] + lane[3]);
    total += __shfl_xor_sync(0xffffffffu, total, 1);
    if (from || n == 0)
        return;
    const bool first = page == m.first[r];
    const float before = m.max[r], top = before > max ? before : max;
    const float old = first ? 1 : lode_expf(before - top), now = first ? 1 : lode_expf(max - top);
    m.total[r] = fmaf(total, now, m.total[r] * old);
    m.max[r] = first ? max : top;
    m.old[r] = old, m.now[r] = now;
}

/* 8 rows, and of those numbers c .. + 3 and, where a piece has eight, c + 64 .. + 3 */
struct piece {
    uint32_t row, c;
};

/* Adds values of keys from `from` up to `to` to rows that `sees` says see them.  values, weights: of shared memory, of the
 * piece's numbers and rows. */
template <int STEPS, class F>
DEVICE void add_keys(uint32_t values, uint32_t weights, uint32_t from, uint32_t to, float (&y)[8][STEPS], F sees) {
    enum { STEP_V = 4 * ring_of<STEPS>::LD, STEP_S = 4 * LD_S, NUMBERS = STEPS }; /* STEP: bytes */
    values = opaque(values + from * STEP_V), weights = opaque(weights + from * STEP_S);
    float4 e_next[2], v_next[NUMBERS / 4];
    const auto read = [&] {
        e_next[0] = load4(weights), e_next[1] = load4(weights + 16);
#pragma unroll
        for (int i = 0; i < NUMBERS / 4; i++)
            v_next[i] = load4(values + 256 * i);
        values += STEP_V, weights += STEP_S;
    };
    read();
#pragma unroll 1
    for (uint32_t j = from; j < to; j++) {
        const float e[8] = {e_next[0].x, e_next[0].y, e_next[0].z, e_next[0].w, e_next[1].x, e_next[1].y, e_next[1].z, e_next[1].w};
        float v[NUMBERS];
#pragma unroll
        for (int i = 0; i < NUMBERS; i += 4)
            v[i] = v_next[i / 4].x, v[i + 1] = v_next[i / 4].y, v[i + 2] = v_next[i / 4].z, v[i + 3] = v_next[i / 4].w;
        read(); /* behind the last one what stands there */
#pragma unroll
        for (int r = 0; r < 8; r++)
            if (sees(r, j))
#pragma unroll
                for (int i = 0; i < NUMBERS; i++)
                    y[r][i] = fmaf(e[r], v[i], y[r][i]);
    }
}

/* The page's values, mixed and merged into the sums, which begin with -0: what is added to that stays as it is. */
template <int STEPS, bool WHOLE>
DEVICE void mix(struct ring_of<STEPS> &m, const float *page, const float *s, const struct piece &p) {
    enum { NUMBERS = STEPS };
    const uint32_t values = shared_address(page + p.c), weights = shared_address(s);
    float y[8][NUMBERS];
#pragma unroll
    for (int r = 0; r < 8; r++)
#pragma unroll
        for (int i = 0; i < NUMBERS; i++)
            y[r][i] = 0;
    if (WHOLE) {
        add_keys<STEPS>(values, weights, 0, PAGE, y, [](int, uint32_t) { return true; });
    } else {
        each_seen(m.lo + p.row, m.hi + p.row,
                  [&](uint32_t from, uint32_t to, auto sees) { add_keys<STEPS>(values, weights, from, to, y, sees); });
    }
    const uint32_t sums = opaque(shared_address(m.sum + p.row * m.DIM + p.c)), factors = opaque(shared_address(m.old + p.row));
    enum { FOURS = NUMBERS / 4 };
    const float4 old[2] = {load4(factors), load4(factors + 16)},
                 now[2] = {load4(factors + 4 * ROWS), load4(factors + 4 * ROWS + 16)};
    float4 next[FOURS];
    const auto read = [&](int r) {
#pragma unroll
        for (int i = 0; i < FOURS; i++)
            next[i] = load4(sums + (r * m.DIM + 64 * i) * 4);
    };
    read(0);
#pragma unroll
    for (int r = 0; r < 8; r++) {
        const auto of_row = [&](const float4 (&f)[2]) {
            const float4 v = f[r / 4];
            return r % 4 == 0 ? v.x : r % 4 == 1 ? v.y : r % 4 == 2 ? v.z : v.w;
        };
        const float a = of_row(old), b = of_row(now);
        float4 o[FOURS];
#pragma unroll
        for (int i = 0; i < FOURS; i++)
            o[i] = next[i];
        if (r < 7)
            read(r + 1);
        if (!WHOLE && m.lo[p.row + r] >= m.hi[p.row + r])
            continue;
#pragma unroll
        for (int i = 0; i < FOURS; i++)
            store4(sums + (r * m.DIM + 64 * i) * 4,
                   make_float4(fmaf(b, y[r][4 * i], o[i].x * a), fmaf(b, y[r][4 * i + 1], o[i].y * a),
                               fmaf(b, y[r][4 * i + 2], o[i].z * a), fmaf(b, y[r][4 * i + 3], o[i].w * a)));
    }
}

template <int STEPS>
DEVICE void put_results(const struct lode_cuda_att_args &a, const struct ring_of<STEPS> &m, const struct piece &p) {
    const struct block_rows &rows = m.rows;
    const float *sinks = at<const float>(a.sinks);
#pragma unroll 1
    for (uint32_t r = p.row; r < p.row + 8 && rows.here(r); r++) {
        const uint32_t n = rows.number(r), head = rows.head * rows.group + n % rows.group;
        const float *sink = sinks ? sinks + head : NULL;
        float *y = row_at<float>(a.y, rows.first_row + n / rows.group) + head * m.DIM + p.c;
        const float max = m.max[r], total = m.total[r];
#pragma unroll
        for (int i = 0; i < STEPS; i += 4) {
            const float4 v = *(const float4 *)(m.sum + r * m.DIM + p.c + 16 * i);
            *(float4 *)(y + 16 * i) = make_float4(finish(max, total, v.x, sink), finish(max, total, v.y, sink),
                                                  finish(max, total, v.z, sink), finish(max, total, v.w, sink));
        }
    }
}

/* struct ring_of's of the warp whose rows begin at `at`; no page where there are none. */
DEVICE uint4 pages_seen(const struct lode_cuda_att_args &a, const struct block_rows &rows, uint32_t at) {
    if (!rows.here(at))
        return make_uint4(1, 0, 0, 0);
    const uint32_t left = rows.n[at / HALF] - at % HALF, n = left < WARP_ROWS ? left : WARP_ROWS;
    const uint32_t first = rows.position(at), last = rows.position(at + n - 1);
    return make_uint4(first_seen(a, first) / PAGE, (a.both_ways ? rows.last : last) / PAGE,
                      (first_seen(a, last) + PAGE - 1) / PAGE,
                      n < WARP_ROWS ? 0 : ((a.both_ways ? rows.last : first) + 1) / PAGE);
}
/* What row r sees of a page, to m.lo and m.hi: keys before the latter, which is returned. */
template <int STEPS>
DEVICE uint32_t look(const struct lode_cuda_att_args &a, struct ring_of<STEPS> &m, uint32_t r, uint32_t page) {
    const uint32_t start = page * PAGE, end = m.rows.last - start + 1, n_k = end < PAGE ? end : PAGE;
    const uint32_t pos = m.rows.position(r), from = first_seen(a, pos), lo = from > start ? from - start : 0;
    const uint32_t hi = seen_of_page(a, pos, start, n_k);
    const bool none = lo >= hi || !m.rows.here(r);
    m.lo[r] = none ? 0 : lo, m.hi[r] = none ? 0 : hi;
    return none ? 0 : hi;
}

template <int STEPS> DEVICE void compute(const struct lode_cuda_att_args &a, struct ring_of<STEPS> &m) {
    const uint32_t warp = of_warp(threadIdx.x / 32), lane = threadIdx.x % 32, at = warp * WARP_ROWS;
    const struct piece p = {at + lane % 2 * 8, lane / 2 * 4};
    float *s = m.s[warp];
    load_queries(a, m, at);
    if (lane < WARP_ROWS) {
        m.max[at + lane] = m.total[at + lane] = -0.0f;
        m.first[at + lane] = first_seen(a, m.rows.position(at + lane)) / PAGE;
    }
    m.seen[warp] = pages_seen(a, m.rows, at);
    __syncwarp();
    float q[8][2][STEPS];
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int k = 0; k < STEPS / 2; k++) {
            const uint32_t l = lane_of();
            const float4 v = *(const float4 *)(m.sum + (at + eight_rows() + (i ^ l)) * m.DIM + k * 32 + l * 4);
            float *x = &q[i][k / (STEPS / 4)][k % (STEPS / 4) * 4];
            x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        }
    __syncwarp();
#pragma unroll 1
    for (uint32_t r = p.row; r < p.row + 8; r++)
        for (int i = 0; i < STEPS; i += 4)
            *(float4 *)(m.sum + r * m.DIM + p.c + 16 * i) = make_float4(-0.0f, -0.0f, -0.0f, -0.0f);
    struct turn turn = {0, 0};
    const auto done = [&] {
        __syncwarp();
        if (lane == 0)
            barrier_arrive(&m.empty[turn.slot]);
        turn.next();
    };
    const uint32_t end = m.rows.last / PAGE + 1;
#pragma unroll 1
    for (uint32_t page = m.rows.from_page; page < end; page++) {
        const uint4 seen = m.seen[warp];
        const bool any = seen.x <= page && page <= seen.y, whole = seen.z <= page && page < seen.w;
        barrier_wait(&m.full[turn.slot], turn.parity);
        if (any) {
            const uint32_t n = whole ? PAGE : __reduce_max_sync(0xffffffffu, look(a, m, at + lane % WARP_ROWS, page));
            score<STEPS>(m.slot[turn.slot], s, q, n);
        }
        done();
        if (whole)
            soften<STEPS, true>(a, m, s, page);
        else if (any)
            soften<STEPS, false>(a, m, s, page);
        barrier_wait(&m.full[turn.slot], turn.parity);
        __syncwarp();
        if (whole)
            mix<STEPS, true>(m, m.slot[turn.slot], s + lane % 2 * 8, p);
        else if (any)
            mix<STEPS, false>(m, m.slot[turn.slot], s + lane % 2 * 8, p);
        done();
    }
    put_results(a, m, p);
}

/* The block's rows: HALF times two neighbours; or (halves) those of the last tokens, which see most, with those of the first ones. */
DEVICE bool find_block(const struct lode_cuda_ring_args &args, struct block_rows &b, uint32_t *segment) {
    const struct lode_cuda_att_args &a = args.att;
    struct rows_of t;
    if (!find_rows<ROWS>(a, t, segment))
        return false;
    const struct lode_cuda_segment &s = at<const struct lode_cuda_segment>(step_at(a.step)->segments)[*segment];
    const uint32_t rows = s.n_rows * t.group, tiles = (rows + HALF - 1) / HALF, i = t.first / ROWS;
    const uint32_t low = args.halves ? (tiles + 1) / 2 - 1 - i : 2 * i, high = args.halves ? tiles - 1 - low : low + 1;
    const uint32_t of[2] = {high, low};
    for (int k = 0; k < 2; k++) {
        const uint32_t first = of[k] * HALF, left = first < rows ? rows - first : 0;
        b.first[k] = first, b.n[k] = k && low == high ? 0 : left < HALF ? left : HALF;
    }
    const uint32_t end = b.n[0] ? b.first[0] + b.n[0] : b.first[1] + b.n[1];
    b.group = t.group, b.head = t.head, b.pos = t.pos, b.first_row = t.first_row;
    b.last = a.both_ways ? t.last : t.pos + (end - 1) / t.group;
    b.from_page = first_seen(a, t.pos + low * HALF / t.group) / PAGE;
    return true;
}

template <int STEPS> DEVICE void attend(const struct lode_cuda_ring_args &args) {
    struct ring_of<STEPS> &m = *(struct ring_of<STEPS> *)ring_mem;
    struct block_rows rows;
    uint32_t segment;
    if (!find_block(args, rows, &segment))
        return;
    if (threadIdx.x == 0) {
        m.rows = rows;
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            barrier_init(&m.full[i], BRINGERS / 32);
            barrier_init(&m.empty[i], WARPS);
        }
        barriers_made();
    }
    __syncthreads();
    if (threadIdx.x >= 32 * WARPS) {
        keep_registers<KEPT>();
        const struct lode_cuda_segment &s =
            at<const struct lode_cuda_segment>(step_at(args.att.step)->segments)[segment];
        bring(m, at<const struct lode_cuda_view>(s.views)[args.att.layer]);
    } else {
        take_registers<TAKEN>();
        compute(args.att, m);
    }
}

extern "C" __global__ void __launch_bounds__(LODE_RING_THREADS, 1)
    attention_ring_128(const __grid_constant__ struct lode_cuda_ring_args a) {
    begin();
    attend<8>(a);
}
extern "C" __global__ void __launch_bounds__(LODE_RING_THREADS, 1)
    attention_ring_64(const __grid_constant__ struct lode_cuda_ring_args a) {
    begin();
    attend<4>(a);
}

#endif
