/* decode.cu - attention of steps that have one row a sequence, or few, over keys and values in f16 or bf16;
 * the definition is at the head of backend/cpu/attention.c.
 *
 * A block of threads takes one page of one head of keys, for as many of the query heads that share
 * it as leave work for all multiprocessors: for each of them a warp has a chain of instructions,
 * which is what a step of few pages waits for.  Two threads are a key, each with eight of the
 * sixteen lanes.  Keys and values are on their way to shared memory before the launch before has
 * ended: what is in the cache was there before the step, all but the keys and values of its own rows, which
 * come later.
 *
 * Of up to LODE_DECODE_PAGES pages a block has all of a head, as many threads for each, and adds up what they give in the
 * end: a launch for that would take longer.  Of more pages it has one, and what that gives goes to the scratch, whose pages
 * decode_merge adds up in ascending order: the largest scores so far, and with them the factors, are found for 32 pages
 * at once; what is left is a chain of one multiply and one fused multiply-add a page.
 *
 * scratch: the parts, (n_rows, n_heads, max_pages, dim_v); then (max, total) of each. */
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "decode.cuh"

enum { DECODE_THREADS = LODE_DECODE_THREADS, MERGE_THREADS = 256, MERGE_PAGES = 32 };

extern __shared__ __align__(16) uint8_t decode_mem[];

/* The eight numbers of 16 bytes. */
DEVICE void widen8(float y[8], uint4 v, bool half) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; k++) {
        y[2 * k] = half ? f16_f32((uint16_t)w[k]) : lode_bits_f32(w[k] << 16);
        y[2 * k + 1] = half ? f16_f32((uint16_t)(w[k] >> 16)) : lode_bits_f32(w[k] & 0xffff0000u);
    }
}

/* Scores of n keys, `stride` bytes apart in either memory, for G query heads from q on (G, dim), scaled, to s (G, PAGE). */
template <int G>
DEVICE void score(float *s, const float *q, const struct lode_cuda_att_args &a, const uint8_t *keys, uint32_t stride,
                  uint32_t n, enum lode_dtype type) {
    enum { DEEP = 4 };
    const uint32_t key = page_thread<DECODE_THREADS>() / 2, half = threadIdx.x % 2, dim = a.head_dim;
    const uint8_t *k = keys + (size_t)(key < n ? key : 0) * stride + 16 * half;
    float acc[G][8] = {};
    for (uint32_t c = 0; c < dim; c += 16 * DEEP) {
        uint4 v[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; u++)
            if (c + 16 * u < dim)
                v[u] = *(const uint4 *)(k + 2 * (c + 16 * u));
#pragma unroll
        for (int u = 0; u < DEEP; u++) {
            if (c + 16 * u >= dim)
                break;
            float x[8];
            widen8(x, v[u], type == LODE_F16);
#pragma unroll
            for (int g = 0; g < G; g++) {
                const float4 *y = (const float4 *)(q + g * dim + c + 16 * u + 8 * half);
                const float4 y0 = y[0], y1 = y[1];
                acc[g][0] = fmaf(y0.x, x[0], acc[g][0]), acc[g][1] = fmaf(y0.y, x[1], acc[g][1]);
                acc[g][2] = fmaf(y0.z, x[2], acc[g][2]), acc[g][3] = fmaf(y0.w, x[3], acc[g][3]);
                acc[g][4] = fmaf(y1.x, x[4], acc[g][4]), acc[g][5] = fmaf(y1.y, x[5], acc[g][5]);
                acc[g][6] = fmaf(y1.z, x[6], acc[g][6]), acc[g][7] = fmaf(y1.w, x[7], acc[g][7]);
            }
        }
    }
    /* the tree of the sixteen lanes: the first step is between the two threads */
#pragma unroll
    for (int g = 0; g < G; g++) {
        float lane[8];
#pragma unroll
        for (int l = 0; l < 8; l++)
            lane[l] = acc[g][l] + __shfl_xor_sync(0xffffffffu, acc[g][l], 1);
#pragma unroll
        for (int w = 4; w; w /= 2)
#pragma unroll
            for (int l = 0; l < w; l++)
                lane[l] += lane[l + w];
        if (half == 0) {
            const float v = lane[0] * a.scale;
            s[g * PAGE + key] = a.cap > 0 ? a.cap * lode_tanhf(v / a.cap) : v;
        }
    }
}

/* The scores of n keys, s (G, PAGE), to e, exp(s - max); max and total to ml (G).  Who has a head
 * in common finds its largest score by itself. */
template <int G> DEVICE void soften(float *e, const float *s, float2 *ml, uint32_t n) {
    enum { EACH = DECODE_THREADS / G, WIDTH = EACH < 32 ? EACH : 32 };
    const uint32_t t = page_thread<DECODE_THREADS>(), g = t / EACH, l = t % 16;
    float max = -INFINITY, total = 0;
    for (uint32_t i = t % WIDTH; i < n; i += WIDTH)
        max = s[g * PAGE + i] > max ? s[g * PAGE + i] : max;
    __syncwarp();
    max = warp_max(max, WIDTH);
    for (uint32_t i = t % EACH; i < n; i += EACH)
        e[g * PAGE + i] = exp_below(s[g * PAGE + i] - max);
    if (t % EACH == 0)
        ml[g].x = max;
    page_sync<DECODE_THREADS>();
    const uint32_t r = t / 16; /* sixteen threads are the lanes of a head's total */
    for (uint32_t i = l; r < G && i < n; i += 16)
        total += e[r * PAGE + i];
    __syncwarp();
    total = join_lanes(total);
    if (l == 0 && r < G)
        ml[r].y = total;
}

/* N numbers of 16 bits. */
template <int N> struct halves;
template <> struct halves<1> { typedef uint16_t type; };
template <> struct halves<2> { typedef uint32_t type; };
template <> struct halves<4> { typedef uint2 type; };
template <int N> struct floats;
template <> struct floats<1> { typedef float type; };
template <> struct floats<2> { typedef float2 type; };
template <> struct floats<4> { typedef float4 type; };

/* Rows in shared memory, `pitch` bytes apart. */
struct rows_here {
    uint8_t *at;
    uint32_t pitch;
    struct lode_cuda_divisor pieces; /* of 16 bytes, of a row; as many threads have one at most */
    /* Those from the first to before the last. */
    DEVICE_MEMBER void ask(const uint8_t *from, uint32_t stride, uint32_t first, uint32_t last) const {
        ask_rows<DECODE_THREADS, 0>(at, pitch, from, stride, first, last, pieces);
    }
};

/* A warp's row of n numbers in 16 bits to two places, the second of which may be NULL. */
DEVICE void put_halves(uint16_t *y, uint16_t *z, const float *x, uint32_t n, bool half) {
    for (uint32_t i = threadIdx.x % 32; i < n; i += 32) {
        const uint16_t h = half ? f32_f16(x[i]) : f32_bf16(x[i]);
        y[i] = h;
        if (z)
            z[i] = h;
    }
}

/* n_q queries from x on normed and turned, to q (G + 1, dim), zeros behind them, and behind G the row's key, where the page
 * is its own: then the key and the value go into it and beside the others, the same bytes by all blocks that share the head,
 * each of which reads its own.  A warp has a query, the key or the value by itself, so that all are read at once.
 * keys.at NULL: not here. */
template <int G>
DEVICE void prepare_heads(const struct lode_cuda_prepare_args &a, const float *x, float *q, uint32_t n_q, uint32_t row, uint32_t head,
                          const struct page_of &p, const struct seen &w, const struct rows_here &keys,
                          const struct rows_here &values) {
    enum { WARPS = DECODE_THREADS / 32 };
    const uint32_t warp = page_thread<DECODE_THREADS>() / 32, dim = a.head_dim;
#pragma unroll 1
    for (uint32_t i = warp; i <= G; i += WARPS) {
        const bool key = i == G;
        const uint32_t pairs = key ? a.pairs_k : a.pairs_q;
        const float *from = key ? row_at<const float>(a.k, row) + head * dim : x + i * a.q_apart;
        float *to = q + i * dim;
        if (key ? p.own == PAGE : i >= n_q) {
            for (uint32_t c = threadIdx.x % 32; c < dim; c += 32)
                to[c] = 0;
            continue;
        }
        const struct turns turns = read_turns(row_at<const float2>(a.table, row), pairs);
#pragma unroll 4
        for (uint32_t c = threadIdx.x % 32; c < dim; c += 32)
            to[c] = from[c];
        __syncwarp();
        if (key ? a.norms_k : a.norms_q)
            norm_warp(to, dim, at<const float>(key ? a.norm_k : a.norm_q), key ? a.eps_k : a.eps_q);
        if (pairs)
            turn_warp(to, pairs, key ? a.kind_k : a.kind_q, turns);
        if (key)
            put_halves((uint16_t *)(p.k + p.own * w.k_stride), keys.at ? (uint16_t *)(keys.at + p.own * keys.pitch) : NULL,
                       to, dim, w.type_k == LODE_F16);
    }
    if (p.own < PAGE && warp == WARPS - 1)
        put_halves((uint16_t *)(p.v + p.own * w.v_stride), (uint16_t *)(values.at + p.own * values.pitch),
                   own_value(a, head, row), a.head_dim_v, w.type_v == LODE_F16);
}

/* N numbers to global memory. */
template <int N> DEVICE void store(float *to, const float (&y)[N]) {
    typename floats<N>::type v;
    memcpy(&v, y, sizeof v);
    *(typename floats<N>::type *)to = v;
}

template <int G> DEVICE void decode(const struct lode_cuda_page_args &args) {
    const struct lode_cuda_decode_args &d = args.decode;
    enum { WIDE = G < 4 ? G : 4, MOST = G < 8 ? LODE_DECODE_PAGES : 1 }; /* values that a thread adds up; pages here */
    __shared__ float2 ml[MOST][G];
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t at_row = blockIdx.y, row = a.first_row + at_row, group = args.group, head_k = over(blockIdx.x, args.parts),
                   first_q = (blockIdx.x - head_k * args.parts.by) * G, first_head = head_k * group + first_q;
    const uint32_t n_q = group - first_q < G ? group - first_q : G;
    const uint32_t v_size = 2 * a.head_dim_v, pitch = LODE_DECODE_KEY_PITCH(a.head_dim), each = args.each.by; /* a.head_dim_v / WIDE */
    const uint32_t at_page = threadIdx.x / DECODE_THREADS, z = args.whole ? at_page : blockIdx.z; /* the page */
    float *q = (float *)(decode_mem + at_page * args.page_bytes); /* (G, head_dim), and a key; then what the page gives */
    float *s = q + (G + 1) * a.head_dim, *e = s + G * PAGE;
    uint8_t *v = (uint8_t *)(e + G * PAGE); /* (PAGE, head_dim_v) as stored */
    const struct rows_here values = {v, v_size, args.v_pieces},
                           keys = {args.keys_here ? v + PAGE * v_size : NULL, pitch, args.k_pieces};
    let_next_come();
    /* the step was there before the first launch: its places can be found while the last one runs
     */
    const struct seen w = seen_by(a, row, head_k);
    const bool here = z < w.n_pages;
    struct page_of p;
    if (here) {
        p = page_at(w, z, page_base(w, z));
        if (keys.at)
            keys.ask(p.k, w.k_stride, 0, p.old);
        values.ask(p.v, w.v_stride, 0, p.old);
    }
    wait_for_last();
    if (here) {
        const float *x =
            row_at<const float>(d.prepares ? d.heads.q : a.q, row) + first_head * (d.prepares ? d.heads.q_apart : a.head_dim);
        if (d.prepares) {
            prepare_heads<G>(d.heads, x, q, n_q, row, head_k, p, w, keys, values);
        } else {
            if (keys.at)
                keys.ask(p.k, w.k_stride, p.old, p.n);
            values.ask(p.v, w.v_stride, p.old, p.n);
#pragma unroll 4
            for (uint32_t i = page_thread<DECODE_THREADS>(); i < G * a.head_dim; i += DECODE_THREADS)
                q[i] = i < n_q * a.head_dim ? x[i] : 0;
        }
        copies_end_group();
        copies_wait<0>();
        page_sync<DECODE_THREADS>();
        score<G>(s, q, a, keys.at ? keys.at : p.k, keys.at ? pitch : w.k_stride, p.n, w.type_k);
        page_sync<DECODE_THREADS>();
        soften<G>(e, s, ml[at_page], p.n);
        page_sync<DECODE_THREADS>();
        const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
        for (uint32_t i = page_thread<DECODE_THREADS>(); i < n_q * each; i += DECODE_THREADS) {
            const uint32_t g = over(i, args.each), c = (i - g * each) * WIDE;
            const bool half = w.type_v == LODE_F16;
            float y[WIDE] = {};
#pragma unroll 8
            for (uint32_t j = 0; j < p.n; j++) {
                const typename halves<WIDE>::type words =
                    *(const typename halves<WIDE>::type *)(v + j * v_size + 2 * c);
                uint16_t x[WIDE];
                memcpy(x, &words, sizeof x);
#pragma unroll
                for (int k = 0; k < WIDE; k++)
                    y[k] = fmaf(e[g * PAGE + j],
                                half ? f16_f32(x[k]) : lode_bits_f32((uint32_t)x[k] << 16), y[k]);
            }
            const size_t n = ((size_t)at_row * a.n_heads + first_head + g) * a.max_pages + z;
            if (!args.whole && c == 0)
                *(float2 *)(at<float>(a.scratch) + n_parts * a.head_dim_v + 2 * n) = ml[at_page][g];
            store(args.whole ? q + g * a.head_dim_v + c : at<float>(a.scratch) + n * a.head_dim_v + c, y);
        }
    }
    if (!args.whole)
        return;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n_q * each; i += blockDim.x) {
        const uint32_t g = over(i, args.each), c = (i - g * each) * WIDE, head = first_head + g;
        float m = ml[0][g].x, l = ml[0][g].y, o[WIDE];
#pragma unroll 1
        for (uint32_t k = 0; k < w.n_pages; k++) {
            const float *part = (float *)(decode_mem + k * args.page_bytes) + g * a.head_dim_v + c;
            const float max = ml[k][g].x, top = m > max ? m : max;
            const float old = k ? lode_expf(m - top) : 0, now = k ? lode_expf(max - top) : 1;
            l = k ? fmaf(ml[k][g].y, now, l * old) : l;
            m = k ? top : m;
#pragma unroll
            for (int n = 0; n < WIDE; n++)
                o[n] = k ? fmaf(now, part[n], o[n] * old) : part[n];
        }
        const float *sink = a.sinks ? at<const float>(a.sinks) + head : NULL;
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            o[k] = finish(m, l, o[k], sink);
        store(row_at<float>(a.y, row) + head * a.head_dim_v + c, o);
    }
}

/* decode_G: up to G query heads; blockIdx: those of a head of keys after the other, row, page or (whole) nothing. */
#define DECODE(G, pages)                                                                           \
    KERNEL(DECODE_THREADS * pages) decode_##G(const __grid_constant__ struct lode_cuda_page_args a) { \
        decode<G>(a);                                                                              \
    }
DECODE(1, LODE_DECODE_PAGES)
DECODE(2, LODE_DECODE_PAGES)
DECODE(4, LODE_DECODE_PAGES)
DECODE(8, 1)

/* What becomes of the sums so far (a) and of a page's (b), in order; lanes of a warp are pages. */
struct factors {
    float a, b, total;
};
DEVICE struct factors factors_of(float2 ml, bool here, bool first, float *so_far) {
    const uint32_t lane = threadIdx.x % 32;
    float m = here ? ml.x : -INFINITY;
    if (lane == 0 && !first)
        m = *so_far > m ? *so_far : m;
    for (int w = 1; w < 32; w *= 2) { /* the largest up to here */
        const float o = __shfl_up_sync(0xffffffffu, m, w);
        if (lane >= (uint32_t)w)
            m = o > m ? o : m;
    }
    float last = __shfl_up_sync(0xffffffffu, m, 1);
    if (lane == 0)
        last = *so_far;
    *so_far = __shfl_sync(0xffffffffu, m, 31);
    struct factors f;
    f.a = lode_expf(last - m);
    f.b = lode_expf(ml.x - m);
    f.total = ml.y;
    return f;
}

/* blockIdx: head, row */
KERNEL(MERGE_THREADS) decode_merge(const __grid_constant__ struct lode_cuda_att_args a) {
    __shared__ float4 part[MERGE_PAGES * 64]; /* of up to 256 values */
    __shared__ struct factors f[MERGE_PAGES];
    const uint32_t at_row = blockIdx.y, row = a.first_row + at_row, head = blockIdx.x, each = a.head_dim_v / 4, c = threadIdx.x;
    let_next_come();
    const struct lode_cuda_row &r = step_row(a.step, row);
    const uint32_t n = parts_of(a, r.pos);
    const float4 *in = (const float4 *)head_parts_of(a, at_row, head).of;
    const float2 *ml = head_parts_of(a, at_row, head).ml;
    wait_for_last();
    float so_far = 0, l = 0, o = 0;
    for (uint32_t first = 0; first < n; first += MERGE_PAGES) {
        const uint32_t some = n - first < MERGE_PAGES ? n - first : MERGE_PAGES;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < some * each; i += MERGE_THREADS)
            part[i] = in[(size_t)first * each + i];
        if (threadIdx.x < 32) {
            const bool here = threadIdx.x < some;
            f[threadIdx.x] = factors_of(here ? ml[first + threadIdx.x] : make_float2(0, 0), here,
                                        first == 0, &so_far);
        }
        __syncthreads();
        if (c < a.head_dim_v)
#pragma unroll 8
            for (uint32_t z = 0; z < some; z++) {
                const float v = ((const float *)part)[z * a.head_dim_v + c];
                const struct factors t = f[z];
                if (first + z == 0) {
                    l = t.total, o = v;
                } else {
                    l = fmaf(t.total, t.b, l * t.a);
                    o = fmaf(t.b, v, o * t.a);
                }
            }
        __syncthreads();
    }
    __shared__ float largest;
    if (threadIdx.x == 0)
        largest = so_far;
    __syncthreads();
    const float *sink = a.sinks ? at<const float>(a.sinks) + head : NULL;
    if (c < a.head_dim_v)
        row_at<float>(a.y, row)[head * a.head_dim_v + c] = finish(largest, l, o, sink);
}
