/* decode_walk.cu - attention of steps that have one row a sequence, over many pages; the definition is
 * at the head of backend/cpu/attention.c.  With few pages decode.cu is quicker; its decode_merge or
 * decode_join add up what the pages give.
 *
 * Two warps take a page of a head of keys, and then every n-th, by themselves: each scores half of its keys, then
 * finds half of the query heads' weights and has half of the values' numbers (of at most 64 all, for half of the heads).  They wait for nobody but each other.  Neighbouring
 * pages go to different blocks of threads, so that all have as many, give or take one.  Keys and values
 * come by asynchronous copies into a ring of slots of 16 rows that each warp keeps ahead of what the two
 * compute, from before the launch before has ended on: what is in the cache was there before the step,
 * all but the row's own key and value, which are put into their slot later.
 *
 * Four threads are a key, each with four of the sixteen lanes of up to four query heads; a thread has
 * two keys at once, so that what it reads of the queries serves both.  Neighbouring threads are keys, as what they read of
 * the queries is then the same and comes in half as many turns.  What they read of keys lies in the same place of their
 * rows: pieces of eight numbers change places within their rows (turn), or rows are padded, so that they are in different
 * banks. */
#include "attention_shared.h"
#include "copies.cuh"
#include "decode.cuh"

enum { WARPS = LODE_WALK_WARPS, SLOTS = LODE_WALK_SLOTS, BLOCKS = LODE_WALK_BLOCKS, ROWS = LODE_WALK_ROWS };
enum { PAIRS = WARPS / 2, PARTS = PAGE / 2 / ROWS, HALF = PAGE / 2 }; /* a warp's slots of a page's keys, or values */
static_assert(PARTS * ROWS == HALF && ROWS == 16, "a slot's rows are eight threads' two keys");

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
DEVICE uint32_t load1(uint32_t p) {
    uint32_t v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(p));
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

/* N numbers of a row from n on, N being 2 or 4 and n a multiple of it. */
template <int TYPE, int N> DEVICE void some(float (&y)[N], uint32_t row, uint32_t n, uint32_t turn) {
    if (TYPE == LODE_Q8_0) {
        const uint32_t block = row + n / 32 * 34, p = block + 2 + n % 32;
        const float d = f16_f32((uint16_t)load_half(block));
        /* 0x4b0000xx is 2^23 + xx; bytes are xx - 128 */
        const uint32_t q = (load_half(p) | (N == 4 ? load_half(p + 2) << 16 : 0)) ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < N; i++)
            y[i] = (lode_bits_f32(__byte_perm(q, 0x4b000000, 0x7440 + i)) - (0x1p23f + 128)) * d;
    } else {
        const uint32_t at = row + (2 * n ^ turn);
        const uint2 v = N == 4 ? load2(at) : make_uint2(load1(at), 0);
#pragma unroll
        for (int i = 0; i < N; i++) {
            const uint32_t w = i < 2 ? v.x : v.y;
            y[i] = TYPE == LODE_F16 ? f16_f32((uint16_t)(w >> 16 * (i % 2)))
                                    : lode_bits_f32(i % 2 ? w & 0xffff0000u : w << 16);
        }
    }
}

/* Where rows are in a slot: row r at r * stride, its 16 bytes from 16 m on at (16 m) ^ (r & mask) * 16. */
struct layout {
    uint32_t bytes, stride, mask;
};
template <int TYPE> DEVICE struct layout layout_of(bool values, uint32_t dim) {
    if (TYPE == LODE_Q8_0)
        return {dim / 32 * 34, dim / 32 * 34, 0};
    return {2 * dim, values ? 2 * dim : LODE_WALK_KEY_STRIDE(dim), values || dim % 64 ? 0u : 7u};
}
/* Numbers of a head, known when compiling where DIM is not 0. */
template <int DIM> DEVICE uint32_t dim_of(uint32_t dim) { return DIM ? DIM : dim; }

/* Scores of a slot's 16 keys for HEADS query heads, to s: key's at s + key * ld. */
template <int HEADS, int TYPE, int DIM>
DEVICE void score(float *s, uint32_t ld, uint32_t q, uint32_t n, uint32_t slot) {
    constexpr bool KNOWN = DIM != 0;
    constexpr int UNROLLED = KNOWN ? 4 : 2;
    const uint32_t dim = dim_of<DIM>(n);
    const struct layout k = layout_of<TYPE>(false, dim);
    const uint32_t lane = threadIdx.x % 32, t = lane / 8, b = lane % 8, turn = (b & k.mask) * 16;
    uint32_t row[2], at[2][4];
    float acc[HEADS][2][4]; /* of keys b + 8 (i ^ t / 2): a partner then wants what the other has in a fixed place */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        row[i] = slot + (b + 8 * (i ^ t / 2)) * k.stride;
#pragma unroll
        for (int m = 0; m < 4; m++)
            at[i][m] = row[i] + ((8 * t + 32 * m) ^ turn);
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int l = 0; l < 4; l++)
                acc[g][i][l] = 0;
    }
#pragma unroll UNROLLED
    for (uint32_t m = 0; m < dim / 16; m++) {
        const uint32_t c = 4 * t + 16 * m;
        float4 x[HEADS];
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            x[g] = load4(q + 4 * (g * dim + c));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float y[4];
            if (KNOWN && TYPE != LODE_Q8_0) /* as below, by one of four addresses */
                some<TYPE>(y, at[i][m % 4] + m / 4 * 128, 0, 0);
            else
                some<TYPE>(y, row[i], c, turn);
#pragma unroll
            for (int g = 0; g < HEADS; g++) {
                acc[g][i][0] = fmaf(x[g].x, y[0], acc[g][i][0]);
                acc[g][i][1] = fmaf(x[g].y, y[1], acc[g][i][1]);
                acc[g][i][2] = fmaf(x[g].z, y[2], acc[g][i][2]);
                acc[g][i][3] = fmaf(x[g].w, y[3], acc[g][i][3]);
            }
        }
    }
    /* the tree of lanes: + 8 is t ^ 2, + 4 t ^ 1, + 2 and + 1 are within; t has key b + 8 (t / 2) */
    s += (b + 8 * (t / 2)) * ld;
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        float v[4];
#pragma unroll
        for (int l = 0; l < 4; l++) {
            const float near = acc[g][0][l] + __shfl_xor_sync(0xffffffffu, acc[g][1][l], 16);
            v[l] = near + __shfl_xor_sync(0xffffffffu, near, 8);
        }
        if (t % 2 == 0)
            s[g] = (v[0] + v[2]) + (v[1] + v[3]);
    }
}

/* HEADS heads' scores of a page, key's at s + key * ld, of which n are there, to their weights; largest and total to
 * ml (heads, max_pages) of the first n_q. */
template <int HEADS>
DEVICE void weigh(const struct lode_cuda_att_args &a, float *s, uint32_t ld, uint32_t n, float2 *ml, uint32_t n_q) {
    const uint32_t lane = threadIdx.x % 32;
    float e[HEADS][2], scale = a.scale;
#pragma unroll
    for (int g = 0; g < HEADS; g++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            e[g][h] = s[(lane + 32 * h) * ld + g];
    if (a.cap > 0) {
        scale = 1;
#pragma unroll
        for (int g = 0; g < HEADS; g++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                e[g][h] = a.cap * lode_tanhf(e[g][h] * a.scale / a.cap);
    }
#pragma unroll
    for (int g = 0; g < HEADS; g++) {
        float max = -INFINITY;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            e[g][h] *= scale;
            if (lane + 32 * h < n)
                max = e[g][h] > max ? e[g][h] : max;
        }
#pragma unroll
        for (int w = 1; w < 32; w *= 2) {
            const float o = __shfl_xor_sync(0xffffffffu, max, w);
            max = o > max ? o : max;
        }
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float v = exp_below(e[g][h] - max);
            e[g][h] = lane + 32 * h < n ? v : 0.0f;
            s[(lane + 32 * h) * ld + g] = e[g][h];
        }
        /* key's lane is key % 16: a thread and its partner have its four keys in turn; what is not there adds 0 */
        const float o0 = __shfl_xor_sync(0xffffffffu, e[g][0], 16), o1 = __shfl_xor_sync(0xffffffffu, e[g][1], 16);
        float total = e[g][0] + o0;
        total += lane < 16 ? e[g][1] : o1;
        total += lane < 16 ? o1 : e[g][1];
#pragma unroll
        for (int w = 8; w > 0; w /= 2)
            total += __shfl_xor_sync(0xffffffffu, total, w);
        if (lane == 0 && g < (int)n_q)
            ml[(size_t)g * a.max_pages] = make_float2(max, total);
    }
}

/* n rows of values, `stride` bytes apart, by their weights at e, ld bytes apart: two numbers from c on. */
template <int HEADS, int TYPE>
DEVICE void mix(float (&y)[HEADS][2], uint32_t e, uint32_t ld, uint32_t slot, uint32_t stride, uint32_t n, uint32_t c) {
    const auto row = [&](uint32_t j) {
        float x[2], w[HEADS];
        some<TYPE>(x, slot + j * stride, c, 0);
        load_floats<HEADS>(w, e + j * ld);
#pragma unroll
        for (int g = 0; g < HEADS; g++)
            y[g][0] = fmaf(w[g], x[0], y[g][0]), y[g][1] = fmaf(w[g], x[1], y[g][1]);
    };
    if (n == ROWS)
#pragma unroll
        for (uint32_t j = 0; j < ROWS; j++)
            row(j);
    else
#pragma unroll 1
        for (uint32_t j = 0; j < n; j++)
            row(j);
}

DEVICE uint32_t rows_from(uint32_t first, uint32_t n) {
    return n > first ? (n - first < ROWS ? n - first : ROWS) : 0;
}

/* Pages of a sequence, every n-th. */
struct way {
    uint32_t z, every;    /* number of the page that comes, and from one to the next */
    uint32_t entry, step; /* the same of its entry among the sequence's pages */
    const uint8_t *base;  /* where it is */
};
DEVICE void look_up(struct way &n, const struct seen &w) {
    if (n.z < w.n_pages)
        n.base = at<const uint8_t>(w.pages[n.entry]);
}
DEVICE struct way way_from(const struct seen &w, uint32_t first, uint32_t every) {
    struct way n = {first, every, (w.first + first) % w.n_entries, every % w.n_entries, NULL};
    look_up(n, w);
    return n;
}
/* The page that comes; of no rows where there is none.  The one after it is looked up. */
DEVICE struct page_of next_page(struct way &n, const struct seen &w) {
    struct page_of p = {};
    if (n.z < w.n_pages)
        p = page_at(w, n.z, n.base);
    n.z += n.every;
    n.entry += n.step;
    n.entry -= n.entry >= w.n_entries ? w.n_entries : 0;
    look_up(n, w);
    return p;
}

/* A warp's slots and its pair's.  Part i of a page is 16 rows: of keys, of the warp's half of the page; of values, of every
 * 32 those whose turn it is. */
template <int TYPE, int DIM> struct ring {
    const struct lode_cuda_att_args &a;
    const struct seen &w;
    uint32_t slots; /* the pair's, in shared memory: (2, SLOTS, slot_size) */
    uint32_t slot_size, lane, half;
    uint32_t now;                 /* the slot whose rows were asked for longest ago */
    const uint8_t *own_k, *own_v; /* the row's own key and value as stored, or NULL */

    MEMBER uint32_t dim(bool values) { return dim_of<DIM>(values ? a.head_dim_v : a.head_dim); }
    MEMBER uint32_t stride(bool values) { return DIM ? 2 * DIM : values ? w.v_stride : w.k_stride; }
    MEMBER uint32_t slot_of(uint32_t warp, uint32_t i) { return slots + (warp * SLOTS + i) * slot_size; }
    MEMBER uint32_t first_of(bool values, uint32_t i) { return values ? i * 2 * ROWS + half * ROWS : half * HALF + i * ROWS; }

    /* Asks for a part of a page, to slot i: a group of copies, though there may be none. */
    MEMBER void ask(const struct page_of &p, bool values, uint32_t part, uint32_t i) {
        const uint32_t first = first_of(values, part), n = rows_from(first, p.n), step = stride(values), size = dim(values);
        const uint8_t *from = (values ? p.v : p.k) + first * step;
        const struct layout r = layout_of<TYPE>(values, size);
        uint32_t to = slot_of(half, i);
        if (TYPE == LODE_Q8_0) { /* rows are no multiple of 16 bytes */
            const uint32_t skew = (uint32_t)(uintptr_t)from % 16;
            if (n)
#pragma unroll 2
                for (uint32_t b = 16 * lane; b < skew + n * step; b += 16 * 32)
                    copy_async_at<16>(to + b, from - skew + b);
        } else if (DIM && n == ROWS) { /* one row after the other, there and here */
            constexpr uint32_t PIECES = DIM ? DIM / 8 : 2, SOME = 32 / PIECES;
            const uint32_t j = lane / PIECES, c = lane % PIECES * 16;
            from += 16 * lane;
            to += j * r.stride;
#pragma unroll
            for (uint32_t k = 0; k < ROWS / SOME; k++)
                copy_async_at<16>(to + k * SOME * r.stride + (c ^ ((j + k * SOME) & r.mask) * 16), from + k * 512);
        } else {
            const uint32_t pieces = size / 8, rows = 32 / pieces, c = lane % pieces * 16;
            uint32_t j = lane < rows * pieces ? lane / pieces : ROWS;
            from += c + j * step;
            to += j * r.stride;
#pragma unroll 4
            for (; j < n; j += rows, from += rows * step, to += rows * r.stride)
                copy_async_at<16>(to + (c ^ (j & r.mask) * 16), from);
        }
        copies_end_group();
    }
    /* Of what was asked for the first, when all but the last `later` groups are there: the slot of page p's part i. */
    template <int LATER> MEMBER uint32_t take(const struct page_of &p, bool values, uint32_t i) {
        const uint32_t own_at = p.own - first_of(values, i), slot = now;
        copies_wait<LATER>();
        __syncwarp();
        if (own_at < ROWS) /* which came as it was before the step */
            put_own(p, values, own_at, slot_of(half, slot) + skew_of(p, values));
        now = now + 1 == SLOTS ? 0 : now + 1;
        return slot;
    }
    MEMBER void put_own(const struct page_of &p, bool values, uint32_t own_at, uint32_t slot) {
        const struct layout r = layout_of<TYPE>(values, dim(values));
        const uint8_t *mine = values ? own_v : own_k;
        if (!mine)
            mine = (values ? p.v : p.k) + p.own * stride(values);
#pragma unroll 1
        for (uint32_t b = 2 * lane; b < r.bytes; b += 64)
            asm volatile("st.shared.u16 [%0], %1;" ::"r"(slot + own_at * r.stride + (b ^ (own_at & r.mask) * 16)),
                         "h"(*(const uint16_t *)(mine + b))
                         : "memory");
        __syncwarp();
    }
    /* So many bytes into a slot its rows begin; ROWS of them are a multiple of 16 bytes. */
    MEMBER uint32_t skew_of(const struct page_of &p, bool values) {
        return TYPE == LODE_Q8_0 ? (uint32_t)(uintptr_t)(values ? p.v : p.k) % 16 : 0;
    }
};

/* Both warps of a pair have come here, and what they wrote before is there. */
DEVICE void pair_meets() { asm volatile("bar.sync %0, 64;" ::"r"(1 + threadIdx.x / 64) : "memory"); }

/* Page p's values for HEADS heads, by their weights at s, numbers c and c + 1 of each; to (n_q, max_pages, dim_v) at
 * `to`.  Of the page after it rows are asked for. */
template <int HEADS, int TYPE, int DIM>
DEVICE void values(struct ring<TYPE, DIM> &r, const struct page_of &p, const struct page_of &next, uint32_t s, uint32_t ld,
                   uint32_t c, uint32_t n_q, float *to) {
    const uint32_t dim = r.dim(true), stride = layout_of<TYPE>(true, dim).stride, skew = r.skew_of(p, true);
    float y[HEADS][2];
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        y[g][0] = y[g][1] = 0;
    const auto mix_part = [&](uint32_t i, uint32_t slot) { /* of both warps' slots */
        if (c < dim)
#pragma unroll 1
            for (uint32_t of = 0; of < 2; of++) {
                const uint32_t first = (2 * i + of) * ROWS;
                mix<HEADS, TYPE>(y, s + first * ld, ld, r.slot_of(of, slot) + skew, stride, rows_from(first, p.n), c);
            }
    };
    const uint32_t first = r.template take<SLOTS - 1>(p, true, 0);
    pair_meets();
    mix_part(0, first);
    const uint32_t second = r.template take<SLOTS - 2>(p, true, 1);
    pair_meets();
    r.ask(next, false, 1, first);
    mix_part(1, second);
    pair_meets();
    r.ask(next, true, 0, second);
#pragma unroll
    for (int g = 0; g < HEADS; g++)
        if (g < (int)n_q && c < dim)
            *(float2 *)(to + (size_t)g * r.a.max_pages * dim + c) = make_float2(y[g][0], y[g][1]);
}

template <int G, int TYPE, int DIM> DEVICE void walk(const struct lode_cuda_walk_args &args) {
    static_assert(SLOTS == 3 && PARTS == 2, "a part of keys or values is asked for when the one before the last was used");
    const struct lode_cuda_decode_args &d = args.decode;
    const struct lode_cuda_att_args &a = d.att;
    const uint32_t warp = threadIdx.x / 32, pair = warp / 2, half = warp % 2, lane = threadIdx.x % 32, row = blockIdx.y;
    const uint32_t group = a.n_heads / a.n_kv_heads, parts = (group + G - 1) / G;
    const uint32_t head = blockIdx.x / parts, some = blockIdx.x % parts * G, first_head = head * group + some;
    const uint32_t n_q = group - some < G ? group - some : G;
    const uint32_t dim = dim_of<DIM>(a.head_dim), dim_v = dim_of<DIM>(a.head_dim_v), larger = dim > dim_v ? dim : dim_v;
    float *q = (float *)walk_mem, *key = q + G * dim;         /* (G, dim), (dim) */
    uint8_t *own = (uint8_t *)(key + dim);                    /* (2, larger) of 16 bits */
    float *s = (float *)(own + 4 * larger) + pair * PAGE * G; /* (PAIRS, PAGE, G) */
    const uint8_t *slots = own + 4 * larger + PAIRS * PAGE * G * 4 + (size_t)pair * 2 * SLOTS * args.slot_size;
    let_next_come();
    const struct seen w = seen_by(a, row, head);
    const uint32_t every = gridDim.z * PAIRS, mine = pair * gridDim.z + blockIdx.z;
    struct way on = way_from(w, mine, every);
    struct page_of p = next_page(on, w);
    struct ring<TYPE, DIM> r = {a, w, shared_at(slots), args.slot_size, lane, half, 0, NULL, NULL};
    const float *x = row_at<const float>(d.prepares ? d.heads.q : a.q, row) + first_head * dim;
    r.ask(p, false, 0, 0);
    r.ask(p, false, 1, 1);
    r.ask(p, true, 0, 2);
    const bool last_too = d.prepares && (w.n_pages - 1) % every == mine; /* the pair that gets to the row's own page */
    wait_for_last();
    struct turns turns = {};
    if (d.prepares)
        turns = read_turns(row_at<const float2>(d.heads.table, row), d.heads.pairs_q);
#pragma unroll
    for (uint32_t g = warp; g < G; g += WARPS) /* those that the warp will prepare */
#pragma unroll
        for (uint32_t i = 4 * lane; i < dim; i += 128)
            *(float4 *)(q + g * dim + i) = g < n_q ? *(const float4 *)(x + g * dim + i) : make_float4(0, 0, 0, 0);
    __syncwarp();
    if (d.prepares)
        prepare_queries(d.heads, q, n_q, turns);
    if (last_too) {
        const struct page_of last = page_at(w, w.n_pages - 1, page_base(w, w.n_pages - 1));
        if (half == 0) {
            prepare_key(d.heads, key, head, row);
            put_row(own, key, dim, TYPE);
            put_row((uint8_t *)last.k + last.own * w.k_stride, key, dim, TYPE);
        } else {
            const float *v = own_value(d.heads, head, row);
            put_row(own + 2 * larger, v, dim_v, TYPE);
            put_row((uint8_t *)last.v + last.own * w.v_stride, v, dim_v, TYPE);
        }
        r.own_k = own;
        r.own_v = own + 2 * larger;
    }
    __syncthreads();
    enum { MINE = G > 1 ? G / 2 : 1, HEADS = G < 4 ? G : 4 }; /* heads whose weights a warp finds, and whose scores it makes at once */
    const uint32_t g0 = G > 1 ? half * MINE : 0, n_mine = n_q > g0 ? n_q - g0 : 0;
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
#pragma unroll 1
    for (uint32_t z = mine; z < w.n_pages; z += every) {
        const struct page_of next = next_page(on, w);
        const auto score_part = [&](uint32_t i) {
            const uint32_t slot = r.template take<SLOTS - 1>(p, false, i);
#pragma unroll 1
            for (int g = 0; g < G; g += HEADS)
                score<HEADS, TYPE, DIM>(s + (half * HALF + i * ROWS) * G + g, G, shared_at(q + g * dim), dim,
                                        r.slot_of(half, slot) + r.skew_of(p, false));
            __syncwarp();
            return slot;
        };
        r.ask(p, true, 1, score_part(0));
        r.ask(next, false, 0, score_part(1));
        pair_meets();
        const size_t part = ((size_t)row * a.n_heads + first_head) * a.max_pages + z, part0 = part + (size_t)g0 * a.max_pages;
        float *parts_at = at<float>(a.scratch);
        if (G > 1 || half == 0)
            weigh<MINE>(a, s + g0, G, p.n, (float2 *)(parts_at + n_parts * dim_v) + part0, n_mine);
        if (G > 1 && dim_v <= 64)
            values<MINE, TYPE, DIM>(r, p, next, shared_at(s + g0), 4 * G, 2 * lane, n_mine, parts_at + part0 * dim_v);
        else
            values<G, TYPE, DIM>(r, p, next, shared_at(s), 4 * G, 64 * half + 2 * lane, n_q, parts_at + part * dim_v);
        p = next;
    }
}

/* walk_TYPE_G: up to G query heads at a time of a head of keys; blockIdx: head of keys and which of its query
 * heads, row, which pages.  Values have at most 128 numbers.  walk_TYPE_DIM_G: of heads of DIM numbers, whose rows follow one
 * another in their pages. */
#define WALK(name, TYPE, DIM, G)                                                                   \
    extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)                               \
        name(const __grid_constant__ struct lode_cuda_walk_args a) {                               \
        walk<G, LODE_##TYPE, DIM>(a);                                                              \
    }
#define WALKS(name, TYPE, DIM) WALK(name##_1, TYPE, DIM, 1) WALK(name##_2, TYPE, DIM, 2) WALK(name##_4, TYPE, DIM, 4) WALK(name##_8, TYPE, DIM, 8)
WALKS(walk_f16, F16, 0)
WALKS(walk_bf16, BF16, 0)
WALKS(walk_q8_0, Q8_0, 0)
WALKS(walk_f16_128, F16, 128)
WALKS(walk_bf16_128, BF16, 128)

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
