/* decode_walk.cu - attention of steps that have one row a sequence, over many pages; the definition is
 * at the head of backend/cpu/attention.c.  With few pages decode.cu is quicker; its decode_merge or
 * decode_join add up what the pages give.
 *
 * A warp takes a page of a head of keys, and then every n-th, by itself: no barriers.  Neighbouring pages go to
 * different blocks of threads, so that all have as many, give or take one.  Keys and values
 * come by asynchronous copies into a ring of slots of 32 rows that the warp keeps ahead of what it
 * computes, from before the launch before has ended on: what is in the cache was there before the step,
 * all but the row's own key and value, which are put into their slot later.
 *
 * Four threads are a key, each with four of the sixteen lanes of up to four query heads; a thread has
 * four keys at once, so that what it reads of the queries serves all four.  Keys that neighbouring
 * threads read at once lie in the same place of their rows: steps of sixteen numbers change places
 * within their rows (turn), or rows are padded, so that they are in different banks. */
#include "attention_shared.h"
#include "copies.cuh"
#include "decode.cuh"

enum { WARPS = LODE_WALK_WARPS, SLOTS = LODE_WALK_SLOTS, BLOCKS = LODE_WALK_BLOCKS, ROWS = LODE_WALK_ROWS };

#define MEMBER __device__ __forceinline__

extern __shared__ __align__(16) uint8_t walk_mem[];

/* Shared memory by its own addresses, of 32 bits. */
DEVICE uint32_t shared_at(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEVICE float4 load4(uint32_t p) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(p));
    return v;
}
DEVICE uint2 load2(uint32_t p) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(p));
    return v;
}
DEVICE uint32_t load_half(uint32_t p) {
    uint16_t v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(p));
    return v;
}
/* n floats, a multiple of 4, or 1 or 2 */
template <int n> DEVICE void load_floats(float *y, uint32_t p) {
    if (n >= 4) {
#pragma unroll
        for (int i = 0; i + 4 <= n; i += 4) {
            const float4 v = load4(p + 4 * i);
            y[i] = v.x, y[i + 1] = v.y, y[i + 2] = v.z, y[i + 3] = v.w;
        }
    } else if (n == 2) {
        const uint2 v = load2(p);
        y[0] = lode_bits_f32(v.x), y[1] = lode_bits_f32(v.y);
    } else {
        asm volatile("ld.shared.f32 %0, [%1];" : "=f"(y[0]) : "r"(p));
    }
}

/* Numbers n to n + 3 of a row, n a multiple of 4. */
template <int TYPE> DEVICE void four(float y[4], uint32_t row, uint32_t n, uint32_t turn) {
    if (TYPE == LODE_Q8_0) {
        const uint32_t block = row + n / 32 * 34, p = block + 2 + n % 32;
        const float d = f16_f32((uint16_t)load_half(block));
        /* 0x4b0000xx is 2^23 + xx; bytes are xx - 128 */
        const uint32_t q = (load_half(p) | load_half(p + 2) << 16) ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[i] = (lode_bits_f32(__byte_perm(q, 0x4b000000, 0x7440 + i)) - (0x1p23f + 128)) * d;
    } else {
        const uint2 v = load2(row + (2 * n ^ turn));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const uint32_t w = i < 2 ? v.x : v.y;
            y[i] = TYPE == LODE_F16 ? f16_f32((uint16_t)(w >> 16 * (i % 2)))
                                    : lode_bits_f32(i % 2 ? w & 0xffff0000u : w << 16);
        }
    }
}

/* Where rows are in a slot: row r at r * stride, its 32 bytes from 32 m on at (32 m) ^ (r & mask) * 32. */
struct layout {
    uint32_t bytes, stride, mask;
};
template <int TYPE> DEVICE struct layout layout_of(bool values, uint32_t dim) {
    if (TYPE == LODE_Q8_0)
        return {dim / 32 * 34, dim / 32 * 34, 0};
    return {2 * dim, values ? 2 * dim : LODE_WALK_KEY_STRIDE(dim), values || dim % 64 ? 0u : 3u};
}

/* Scores of a slot's 32 keys for HEADS query heads, to s: key's at s + key * ld. */
template <int HEADS, int TYPE>
DEVICE void score(float *s, uint32_t ld, uint32_t q, uint32_t dim, uint32_t slot, const struct layout &k) {
    const uint32_t lane = threadIdx.x % 32, t = lane % 4, b = lane / 4, turn = (b & k.mask) * 32;
    uint32_t row[4];
    float acc[HEADS][4][4]; /* of keys b + 8 (i ^ t): partners then want what the other has in a fixed place */
#pragma unroll
    for (int i = 0; i < 4; i++) {
        row[i] = slot + (b + 8 * (i ^ t)) * k.stride;
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int l = 0; l < 4; l++)
                acc[g][i][l] = 0;
    }
#pragma unroll 2
    for (uint32_t c = 4 * t; c < dim; c += 16) {
        float4 x[HEADS];
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            x[g] = load4(q + 4 * (g * dim + c));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float y[4];
            four<TYPE>(y, row[i], c, turn);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                acc[g][i][0] = fmaf(x[g].x, y[0], acc[g][i][0]);
                acc[g][i][1] = fmaf(x[g].y, y[1], acc[g][i][1]);
                acc[g][i][2] = fmaf(x[g].z, y[2], acc[g][i][2]);
                acc[g][i][3] = fmaf(x[g].w, y[3], acc[g][i][3]);
            }
        }
    }
    /* the tree of lanes: + 8 is thread t ^ 2, + 4 t ^ 1, + 2 and + 1 are within; thread t keeps key b + 8 t */
    s += (b + 8 * t) * ld;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        float v[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const float near = acc[g][0][l] + __shfl_xor_sync(0xffffffffu, acc[g][2][l], 2);
            const float far = acc[g][1][l] + __shfl_xor_sync(0xffffffffu, acc[g][3][l], 2);
            v[l] = near + __shfl_xor_sync(0xffffffffu, far, 1);
        }
        s[g] = (v[0] + v[2]) + (v[1] + v[3]);
    }
}

/* The page's scores (PAGE, G), of which n are there, to their weights; max and total to ml (heads, max_pages). */
template <int G>
DEVICE void weigh(const struct lode_cuda_att_args &a, float *s, uint32_t n, float2 *ml, uint32_t n_q) {
    const uint32_t lane = threadIdx.x % 32, t = lane % 4, b = lane / 4, key = b + 8 * t;
    float *mine[2] = {s + key * G, s + (ROWS + key) * G}; /* which this thread wrote itself */
    const bool here[2] = {key < n, ROWS + key < n};
    float scale = a.scale;
    if (a.cap > 0) {
        scale = 1;
#pragma unroll 1
        for (int i = 0; i < 2 * G; i++) {
            float *x = &mine[i / G][i % G];
            *x = a.cap * lode_tanhf(*x * a.scale / a.cap);
        }
    }
#pragma unroll(G < 4 ? G : 4)
    for (int g = 0; g < G; g++) {
        float e[2], max = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            e[h] = mine[h][g] * scale;
            if (here[h])
                max = e[h] > max ? e[h] : max;
        }
#pragma unroll
        for (int w = 1; w < 32; w *= 2) {
            const float o = __shfl_xor_sync(0xffffffffu, max, w);
            max = o > max ? o : max;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            e[h] = exp_below(e[h] - max);
            e[h] = here[h] ? e[h] : 0.0f;
            mine[h][g] = e[h];
        }
        /* key's lane is key % 16: 8 (t % 2) + b, whose four keys t and t ^ 2 have in turn; what is not there adds 0 */
        const float o0 = __shfl_xor_sync(0xffffffffu, e[0], 2), o1 = __shfl_xor_sync(0xffffffffu, e[1], 2);
        float total = e[0] + o0;
        total += t & 2 ? o1 : e[1];
        total += t & 2 ? e[1] : o1;
        total += __shfl_xor_sync(0xffffffffu, total, 1);
        total += __shfl_xor_sync(0xffffffffu, total, 16);
        total += __shfl_xor_sync(0xffffffffu, total, 8);
        total += __shfl_xor_sync(0xffffffffu, total, 4);
        if (lane == 0 && g < (int)n_q)
            ml[(size_t)g * a.max_pages] = make_float2(max, total);
    }
}

/* n rows of values by their weights at e, ld bytes apart: four numbers from c on. */
template <int HEADS, int TYPE>
DEVICE void mix(float (&y)[HEADS][4], uint32_t e, uint32_t ld, uint32_t slot, const struct layout &v, uint32_t n,
                uint32_t c) {
#pragma unroll 4
    for (uint32_t j = 0; j < n; j++, slot += v.stride, e += ld) {
        float x[4], w[HEADS];
        four<TYPE>(x, slot, c, 0);
        load_floats<HEADS>(w, e);
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                y[g][i] = fmaf(w[g], x[i], y[g][i]);
    }
}

/* What a warp has asked for and what it takes, in slots of 32 rows: keys, keys, values, values of a page. */
template <int TYPE> struct ring {
    const struct lode_cuda_att_args &a;
    const struct seen &w;
    uint8_t *slots;
    uint32_t slot_size, lane;
    uint32_t asked, taken;        /* slot */
    uint32_t z, part, every;      /* the next to be asked for */
    const uint8_t *base, *own_k, *own_v; /* base: page z; own: the row's own key and value as stored, or NULL */

    /* Asks for the next rows, and that is a group of copies whether there are any or not. */
    MEMBER void ask() {
        if (z < w.n_pages) {
            const bool values = part >= 2;
            const struct page_of p = page_at(w, z, base);
            const uint32_t first = part % 2 * ROWS, stride = values ? w.v_stride : w.k_stride;
            const uint32_t n = p.n > first ? (p.n - first < ROWS ? p.n - first : ROWS) : 0;
            const uint8_t *from = (values ? p.v : p.k) + first * stride;
            uint8_t *to = slots + asked * slot_size;
            if (TYPE == LODE_Q8_0) { /* rows are no multiple of 16 bytes */
                const uint32_t skew = (uint32_t)(uintptr_t)from % 16;
                if (n)
#pragma unroll 2
                    for (uint32_t i = 16 * lane; i < skew + n * stride; i += 16 * 32)
                        copy_async<16>(to + i, from - skew + i);
            } else {
                const uint32_t dim = values ? a.head_dim_v : a.head_dim, pieces = dim / 8, some = 32 / pieces;
                const struct layout r = layout_of<TYPE>(values, dim);
                const uint32_t c = lane % pieces * 16;
                uint32_t j = lane < some * pieces ? lane / pieces : ROWS;
                from += c + j * stride;
                to += j * r.stride;
#pragma unroll 4
                for (; j < n; j += some, from += some * stride, to += some * r.stride)
                    copy_async<16>(to + (c ^ (j & r.mask) * 32), from);
            }
            if (++part == 4) {
                part = 0;
                z += every;
                if (z < w.n_pages)
                    base = page_base(w, z);
            }
        }
        copies_end_group();
        asked = asked + 1 == SLOTS ? 0 : asked + 1;
    }
    /* The rows asked for longest ago, when they are there: their address. */
    MEMBER uint32_t take(const struct page_of &p, uint32_t which) {
        const bool values = which >= 2;
        const uint32_t skew = TYPE == LODE_Q8_0 ? (uint32_t)(uintptr_t)(values ? p.v : p.k) % 16 : 0;
        uint8_t *slot = slots + taken * slot_size + skew;
        copies_wait<SLOTS - 1>();
        __syncwarp();
        const uint32_t own_at = p.own - which % 2 * ROWS;
        if (own_at < ROWS) { /* which came as it was before the step */
            const struct layout r = layout_of<TYPE>(values, values ? a.head_dim_v : a.head_dim);
            const uint8_t *mine = values ? own_v : own_k;
            if (!mine)
                mine = values ? p.v + p.own * w.v_stride : p.k + p.own * w.k_stride;
#pragma unroll 1
            for (uint32_t i = 2 * lane; i < r.bytes; i += 64)
                *(uint16_t *)(slot + own_at * r.stride + (i ^ (own_at & r.mask) * 32)) = *(const uint16_t *)(mine + i);
            __syncwarp();
        }
        taken = taken + 1 == SLOTS ? 0 : taken + 1;
        return shared_at(slot);
    }
};

/* The page's values for HEADS of the block's heads from g0 on, numbers c .. c + 3 of each; to
 * (n_q, max_pages, dim_v) at `to`. */
template <int G, int HEADS, int TYPE>
DEVICE void values(const struct lode_cuda_att_args &a, struct ring<TYPE> &r, const struct page_of &p, const float *s,
                   uint32_t g0, uint32_t c, uint32_t n_q, float *to) {
    const struct layout v = layout_of<TYPE>(true, a.head_dim_v);
    float y[HEADS][4];
#pragma unroll
    for (int g = 0; g < HEADS; g++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            y[g][i] = 0;
#pragma unroll 1
    for (uint32_t h = 0; h < 2; h++) {
        const uint32_t slot = r.take(p, 2 + h);
        const uint32_t n = p.n > h * ROWS ? (p.n - h * ROWS < ROWS ? p.n - h * ROWS : ROWS) : 0;
        if (c < a.head_dim_v)
            mix<HEADS, TYPE>(y, shared_at(s + h * ROWS * G + g0), 4 * G, slot, v, n, c);
        __syncwarp();
        r.ask();
    }
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        if (g0 + g < n_q && c < a.head_dim_v)
            *(float4 *)(to + (size_t)(g0 + g) * a.max_pages * a.head_dim_v + c) =
                make_float4(y[g][0], y[g][1], y[g][2], y[g][3]);
}

template <int G, int TYPE> DEVICE void walk(const struct lode_cuda_walk_args &args) {
    const struct lode_cuda_decode_args &d = args.decode;
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + G - 1) / G;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * G, first_head = head * group + some;
    const uint32_t n_q = group - some < G ? group - some : G;
    const uint32_t dim = a.head_dim, larger = dim > a.head_dim_v ? dim : a.head_dim_v;
    float *q = (float *)walk_mem, *key = q + G * dim;         /* (G, dim), (dim) */
    uint8_t *own = (uint8_t *)(key + dim);                    /* (2, larger) of 16 bits */
    float *s = (float *)(own + 4 * larger) + warp * PAGE * G; /* (WARPS, PAGE, G) */
    uint8_t *slots = own + 4 * larger + WARPS * PAGE * G * 4 + (size_t)warp * SLOTS * args.slot_size;
    let_next_come();
    const struct seen w = seen_by(a, row, head);
    const uint32_t every = gridDim.z * WARPS, mine = warp * gridDim.z + blockIdx.z;
    struct ring<TYPE> r = {a, w, slots, args.slot_size, lane, 0, 0, mine, 0, every, NULL, NULL, NULL};
    if (mine < w.n_pages)
        r.base = page_base(w, mine);
    const uint8_t *base = r.base;
    const float *x = row_at<const float>(d.prepares ? d.heads.q : a.q, row) + first_head * dim;
#pragma unroll 1
    for (int i = 0; i < SLOTS; i++)
        r.ask();
    wait_for_last();
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < G * dim; i += 32 * WARPS)
        q[i] = i < n_q * dim ? x[i] : 0;
    __syncthreads();
    if (d.prepares) {
        prepare_queries(d.heads, q, n_q, row);
        if ((w.n_pages - 1) % every == mine) { /* the warp that gets to the row's own page */
            const struct page_of p = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
            prepare_key(d.heads, key, head, row);
            put_row(own, key, dim, TYPE);
            put_row((uint8_t *)p.k + p.own * w.k_stride, key, dim, TYPE);
            const float *v = own_value(d.heads, head, row);
            put_row(own + 2 * larger, v, a.head_dim_v, TYPE);
            put_row((uint8_t *)p.v + p.own * w.v_stride, v, a.head_dim_v, TYPE);
            r.own_k = own;
            r.own_v = own + 2 * larger;
        }
        __syncthreads();
    }
    const struct layout keys = layout_of<TYPE>(false, dim);
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
#pragma unroll 1
    for (uint32_t z = mine; z < w.n_pages; z += every) {
        const struct page_of p = page_at(w, z, base);
        if (z + every < w.n_pages)
            base = page_base(w, z + every);
#pragma unroll 1
        for (uint32_t h = 0; h < 2; h++) {
            enum { HEADS = G < 4 ? G : 4 };
            const uint32_t slot = r.take(p, h);
#pragma unroll 1
            for (int g = 0; g < G; g += HEADS)
                score<HEADS, TYPE>(s + h * ROWS * G + g, G, shared_at(q + g * dim), dim, slot, keys);
            __syncwarp();
            r.ask();
        }
        const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + z;
        float *to = at<float>(a.scratch) + part * a.head_dim_v;
        weigh<G>(a, s, p.n, (float2 *)(at<float>(a.scratch) + n_parts * a.head_dim_v) + part, n_q);
        __syncwarp();
        if (G > 1 && a.head_dim_v <= 64)
            values<G, (G > 1 ? G / 2 : 1), TYPE>(a, r, p, s, lane / 16 * (G / 2), lane % 16 * 4, n_q, to);
        else
            values<G, G, TYPE>(a, r, p, s, 0, lane * 4, n_q, to);
    }
}

/* walk_TYPE_G: up to G query heads at a time of a head of keys; blockIdx: head of keys and which of its query
 * heads, row, which pages.  Values have at most 128 numbers. */
#define WALK(suffix, TYPE, G)                                                                      \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)                               \
        walk_##suffix##_##G(const __grid_constant__ struct lode_cuda_walk_args a) {              \
        walk<G, LODE_##TYPE>(a);                                                                   \
    }
#define WALKS(suffix, TYPE) WALK(suffix, TYPE, 1) WALK(suffix, TYPE, 2) WALK(suffix, TYPE, 4) WALK(suffix, TYPE, 8)
WALKS(f16, F16)
WALKS(bf16, BF16)
WALKS(q8_0, Q8_0)

/* decode_merge for many pages: a block has 32 numbers of a head.  Its last warp adds them up, page by page;
 * the others find the factors of the next pages meanwhile, a thread a page, and ask for their parts. */
enum { JOIN_PAGES = LODE_JOIN_PAGES, JOIN_COLS = LODE_JOIN_COLS, JOIN_THREADS = LODE_JOIN_THREADS, JOIN_SLOTS = 2 };
struct factors { /* of the sums so far, of the page's, and its total */
    float a, b, total, pad;
};

/* blockIdx: head and which of its numbers, row */
KERNEL(JOIN_THREADS) decode_join(const __grid_constant__ struct lode_cuda_att_args a) {
    __shared__ __align__(16) float part[JOIN_SLOTS][JOIN_PAGES][JOIN_COLS];
    __shared__ struct factors f[JOIN_SLOTS][JOIN_PAGES];
    __shared__ float largest[JOIN_SLOTS][JOIN_PAGES / 32];
    const uint32_t pieces = (a.head_dim_v + JOIN_COLS - 1) / JOIN_COLS, row = blockIdx.y;
    const uint32_t head = blockIdx.x / pieces, c0 = blockIdx.x % pieces * JOIN_COLS, tid = threadIdx.x, lane = tid % 32;
    const uint32_t cols = a.head_dim_v - c0 < JOIN_COLS ? a.head_dim_v - c0 : JOIN_COLS;
    let_next_come();
    const struct lode_cuda_row &r = step_row(a.step, row);
    const uint32_t n = r.pos / PAGE - first_seen(a, r.pos) / PAGE + 1;
    const size_t at_part = ((size_t)row * a.n_heads + head) * a.max_pages;
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    const float *in = at<const float>(a.scratch) + at_part * a.head_dim_v + c0;
    const float2 *ml = (const float2 *)(at<const float>(a.scratch) + n_parts * a.head_dim_v) + at_part;
    const bool adds = tid >= JOIN_PAGES;
    wait_for_last();
    float so_far = 0, l = 0, o = 0;
    const auto ask = [&](uint32_t i) { /* pages from JOIN_PAGES i on */
        for (uint32_t k = tid; k < JOIN_PAGES * JOIN_COLS / 4; k += JOIN_PAGES) {
            const uint32_t z = i * JOIN_PAGES + k / (JOIN_COLS / 4), c = k % (JOIN_COLS / 4) * 4;
            if (z < n && c < cols)
                copy_async<16>(&part[i % JOIN_SLOTS][k / (JOIN_COLS / 4)][c], in + (size_t)z * a.head_dim_v + c);
        }
        copies_end_group();
    };
    float2 next = make_float2(0, 0);
    if (!adds) {
        ask(0);
        if (tid < n)
            next = ml[tid];
    }
    const uint32_t rounds = (n + JOIN_PAGES - 1) / JOIN_PAGES;
#pragma unroll 1
    for (uint32_t i = 0; i < rounds; i++) {
        const uint32_t slot = i % JOIN_SLOTS;
        float m, last = 0;
        const float2 now = next;
        const bool first = i == 0 && tid == 0;
        if (!adds) {
            const uint32_t z = i * JOIN_PAGES + tid;
            if (z + JOIN_PAGES < n)
                next = ml[z + JOIN_PAGES];
            m = z < n ? now.x : -INFINITY;
#pragma unroll
            for (int w = 1; w < 32; w *= 2) { /* the largest up to here */
                const float v = __shfl_up_sync(0xffffffffu, m, w);
                if (lane >= (uint32_t)w)
                    m = v > m ? v : m;
            }
            if (lane == 31)
                largest[slot][tid / 32] = m;
            last = __shfl_up_sync(0xffffffffu, m, 1);
            asm volatile("bar.sync 1, 128;" ::: "memory");
            float before = i ? so_far : -INFINITY;
#pragma unroll
            for (uint32_t k = 0; k < JOIN_PAGES / 32; k++) {
                if (k == tid / 32) {
                    last = lane == 0 ? before : before > last ? before : last;
                    m = before > m ? before : m;
                }
                before = largest[slot][k] > before ? largest[slot][k] : before;
            }
            so_far = before;
            f[slot][tid] = {first ? 0.0f : exp_below(last - m), exp_below(now.x - m), now.y, 0};
            copies_wait<0>();
        }
        __syncthreads(); /* round i is ready, and nobody reads the one before the last */
        if (!adds && i + 1 < rounds)
            ask(i + 1);
        if (adds && lane < cols) {
            const uint32_t some = n - i * JOIN_PAGES < JOIN_PAGES ? n - i * JOIN_PAGES : JOIN_PAGES;
            uint32_t z = 0;
            if (i == 0)
                l = f[0][0].total, o = part[0][0][lane], z = 1;
#pragma unroll 8
            for (; z < some; z++) {
                const struct factors t = f[slot][z];
                l = fmaf(t.total, t.b, l * t.a);
                o = fmaf(t.b, part[slot][z][lane], o * t.a);
            }
        }
    }
    if (tid == 0)
        largest[0][0] = so_far;
    __syncthreads();
    const float *sink = a.sinks ? at<const float>(a.sinks) + head : NULL;
    if (adds && lane < cols)
        row_at<float>(a.y, row)[head * a.head_dim_v + c0 + lane] = finish(largest[0][0], l, o, sink);
}
