/* decode_short_fast.cu - attention of one row a sequence, or few of some, that see few pages, in the arithmetic of attention_fast.cuh: what
 * decode_short.cu is to decode.cu.
 *
 * A block of threads has a head of keys, one query head or, where those would be more than multiprocessors, up to eight, which are rows
 * of the tensor cores' products, and all pages, 256 threads each.  A warp scores eight keys, and when all are there some find all weights of a page
 * for themselves and have thirty-two of its values' numbers each; two barriers lie between queries and results.
 *
 * Of a sequence's few rows each makes the keys and values of those before it, too, which is most of what a block does: so there may be
 * more threads than pages have, who make the last page's. */
#include "fast_heads.cuh"

#if __CUDA_ARCH__ >= 800

enum { PAGE_THREADS = LODE_SHORT_THREADS, PAGE_WARPS = PAGE_THREADS / 32, PAGES = LODE_SHORT_PAGES, HEADS = LODE_SHORT_FAST_HEADS,
       LD_S = LODE_DECODE_FAST_SCORES, STEP = 16 };

extern __shared__ __align__(16) uint8_t short_mem[];

/* Of values that are multiplied, sixteen at a time, those that are not `first` to before `last` become zeros: what nobody sees must
 * not be NaN. */
DEVICE void clear_others(uint8_t *to, uint32_t ld, uint32_t first, uint32_t last, uint32_t pieces) {
#pragma unroll 1
    for (uint32_t i = page_thread<PAGE_THREADS>(); i < 2 * STEP * pieces; i += PAGE_THREADS) {
        const uint32_t at = i / pieces, j = at < STEP ? first / STEP * STEP + at : last + at - STEP;
        if (at < STEP ? j < first : j < (last + STEP - 1) / STEP * STEP)
            *(uint4 *)(to + j * ld + i % pieces * 16) = make_uint4(0, 0, 0, 0);
    }
}

/* Away from what all run. */
static __device__ __noinline__ float capped(float s, float cap) { return cap * lode_tanhf(s / cap); }

/* Rows `first` to before `last` of a page, of `pieces` pieces of 16 bytes. */
template <uint32_t PIECES>
DEVICE void ask_page(uint8_t *to, uint32_t ld, const uint8_t *from, uint32_t stride, uint32_t first, uint32_t last, const struct lode_cuda_divisor &pieces) {
    const uint32_t t = page_thread<PAGE_THREADS>(), n = PIECES ? PIECES : pieces.by, at_once = PIECES ? PAGE_THREADS / PIECES : over(PAGE_THREADS, pieces);
    const uint32_t row = PIECES ? t / PIECES : over(t, pieces), c = 16 * (t - row * n);
    const uint8_t *source = from + (size_t)(first + row) * stride + c;
    uint32_t at = shared_address(to) + (first + row) * ld + c;
#pragma unroll 1
    for (uint32_t j = row < at_once ? first + row : last; j < last; j += at_once, source += at_once * stride, at += at_once * ld)
        copy_async_at<16>(at, source);
}

/* Rows `first` to before `last`, of Q8_0, which may begin at any multiple of four bytes, as they are kept. */
DEVICE void ask_packed_rows(uint8_t *to, const uint8_t *from, uint32_t stride, uint32_t first, uint32_t last) {
    for (uint32_t i = first * stride + 4 * page_thread<PAGE_THREADS>(); i < last * stride; i += 4 * PAGE_THREADS)
        copy_async<4>(to + i, from + i);
}

/* PACKED: keys and values come as they are kept, in Q8_0, and are widened when all have.  The step's own heads: made before, or here, of one
 * row or of several. */
enum own { MADE, OF_ONE, OF_SEVERAL };
template <class T, bool PACKED, int DIM, enum own OWN> DEVICE void attend(const struct lode_cuda_short_fast_args &args) {
    constexpr bool PREPARES = OWN != MADE, SEVERAL = OWN == OF_SEVERAL;
    enum { U = DIM ? DIM / 32 : 8, PIECES = DIM / 8, MIXERS = DIM ? DIM / 32 : PAGE_WARPS }; /* warps that find weights: exponentials are few a cycle */
    __shared__ float2 ml[HEADS][PAGES];
    __shared__ float undo[HEADS];
    const struct lode_cuda_att_args &a = args.decode.att;
    const uint32_t warp = page_thread<PAGE_THREADS>() / 32, lane = threadIdx.x % 32, z = threadIdx.x / PAGE_THREADS;
    const uint32_t row = a.first_row + blockIdx.y, head_k = over(blockIdx.x, args.parts);
    const uint32_t some = (blockIdx.x - head_k * args.parts.by) * args.heads, first_head = head_k * args.group + some;
    const uint32_t n_q = min(args.group - some, args.heads);
    const uint32_t dim = DIM ? DIM : a.head_dim, dim_v = DIM ? DIM : a.head_dim_v;
    const uint32_t ld = LODE_ATT_FAST_STRIDE(dim), ld_v = LODE_ATT_FAST_STRIDE(dim_v);
    const uint32_t page_bytes = PACKED ? LODE_SHORT_FAST_Q8_0_PAGE(dim, dim_v) : LODE_SHORT_FAST_PAGE(dim, dim_v);
    let_next_come();
    /* the step was there before the first launch: its places can be found while the last one runs */
    const struct seen w = seen_by(a, row, head_k);
    lode_dev near = w.near[z]; /* asked for before it is known that the first page seen is the table's */
    const bool here = z < w.n_pages, makes = here ? z + 1 == w.n_pages : SEVERAL; /* queries, and the last page's keys and values */
    const uint32_t page = SEVERAL && !here ? w.n_pages - 1 : z;
    if (SEVERAL && !here)
        near = w.near[page];
    uint8_t *keys = short_mem + LODE_SHORT_FAST_PAGES_AT(dim) + page * page_bytes, *values = keys + PAGE * ld;
    float *s = (float *)(values + PAGE * ld_v);
    uint8_t *const packed_k = (uint8_t *)(s + HEADS * LD_S), *const packed_v = packed_k + PAGE * (dim / WIDEN_NUMBERS) * WIDEN_BYTES;
    const uint32_t lo = page ? 0 : w.lo; /* keys count by their place in the page, as in prompts */
    struct page_of p = {};
    if (SEVERAL || here) {
        p = page_at(w, page, w.first ? page_base(w, page) : at<const uint8_t>(near));
        if (PACKED) /* from the page's first row on: any other may begin in the middle of sixteen bytes */
            p.k -= lo * w.k_stride, p.v -= lo * w.v_stride;
    }
    if (here) {
        if constexpr (PACKED) {
            ask_packed<PAGE_THREADS>(page_thread<PAGE_THREADS>(), packed_k, p.k, (lo + p.old) * w.k_stride);
            ask_packed<PAGE_THREADS>(page_thread<PAGE_THREADS>(), packed_v, p.v, (lo + p.old) * w.v_stride);
        } else {
            ask_page<PIECES>(keys + lo * ld, ld, p.k, w.k_stride, 0, p.old, args.k_pieces);
            ask_page<PIECES>(values + lo * ld_v, ld_v, p.v, w.v_stride, 0, p.old, args.v_pieces);
        }
    }
    const struct queries q = {row, head_k, first_head, makes ? n_q : 0, short_mem, undo, (float *)(short_mem + HEADS * ld)};
    const uint32_t first_own = (w.first + page) * PAGE + lo + p.old; /* position of the page's first that came with the step */
    const uint32_t before = page * PAGE_WARPS, maker = SEVERAL && makes ? threadIdx.x / 32 - before : warp;
    const uint32_t makers = SEVERAL && makes ? blockDim.x / 32 - before : PAGE_WARPS;
    make_queries<T, DIM, PREPARES>(args.decode, q, {p.n - p.old, w.pos - first_own}, maker, makers, [&](uint32_t i, bool value, const float(&x)[U]) {
        /* to the page by all blocks that share the head, the same bytes; others' rows are left by who has their queries */
        const uint32_t j = p.old + i, n = value ? dim_v : dim;
        if constexpr (PACKED) {
            const uint32_t at = (lo + j) * (value ? w.v_stride : w.k_stride);
            put_blocks<U>(x, (value ? packed_v : packed_k) + at, j == p.own ? (uint8_t *)(value ? p.v : p.k) + at : NULL, n);
        } else {
            put_halves<T::SCALED, U>(x, value ? values + (lo + j) * ld_v : keys + (lo + j) * ld, n);
            if (j == p.own)
                put_halves<T::SCALED, U>(x, (uint8_t *)(value ? p.v + j * w.v_stride : p.k + j * w.k_stride), n);
        }
    });
    if (!PREPARES && here) {
        if constexpr (PACKED) {
            ask_packed_rows(packed_k, p.k, w.k_stride, lo + p.old, lo + p.n);
            ask_packed_rows(packed_v, p.v, w.v_stride, lo + p.old, lo + p.n);
        } else {
            ask_page<PIECES>(keys + lo * ld, ld, p.k, w.k_stride, p.old, p.n, args.k_pieces);
            ask_page<PIECES>(values + lo * ld_v, ld_v, p.v, w.v_stride, p.old, p.n, args.v_pieces);
        }
    }
    if (!PACKED && here)
        clear_others(values, ld_v, lo, lo + p.n, dim_v / 8);
    copies_end_group();
    copies_wait<0>();
    __syncthreads();
    if constexpr (PACKED) {
        if (here) {
            widen_rows<PAGE_THREADS>(page_thread<PAGE_THREADS>(), keys, packed_k, lo, p.n, dim);
            widen_rows<PAGE_THREADS>(page_thread<PAGE_THREADS>(), values, packed_v, lo, p.n, dim_v);
        }
        __syncthreads();
    }
    const uint32_t g = lane / 4; /* the head whose weights a thread has, with three others */
    const bool one = w.n_pages == 1;
    if (here) {
        const float scale = a.scale * undo[g];
        float now[1][4] = {};
        if (8 * warp < lo + p.n) {
            score_keys<T, 1, 1, DIM>(now, shared_address(short_mem), dim, keys_in_rows(shared_address(keys + 8 * warp * ld), ld));
            if (a.cap > 0) {
                now[0][0] = capped(now[0][0] * scale, a.cap);
                now[0][1] = capped(now[0][1] * scale, a.cap);
            }
            *(float2 *)(s + g * LD_S + 8 * warp + lane % 4 * 2) = make_float2(now[0][0], now[0][1]);
        }
        page_sync<PAGE_THREADS>();
    }
    if (here && warp < MIXERS) {
        float c[KEY_TILES][4];
        const float scale[2] = {a.cap > 0 ? 1 : a.scale * undo[g], 1};
        struct sight seen;
        struct weights e;
        seen.lo[0] = lo, seen.n[0] = p.n;
#pragma unroll
        for (int tile = 0; tile < KEY_TILES; tile++) {
            const float2 two = *(const float2 *)(s + g * LD_S + 8 * tile + lane % 4 * 2);
            c[tile][0] = two.x, c[tile][1] = two.y;
        }
        begin_chain(e); /* so few pages are a chain each */
        weigh<1>(e, c, scale, 0, seen, p.n == PAGE);
        round_weights<T, 1>(e, c);
        if (!one && warp == 0 && lane % 4 == 0)
            ml[g][z] = make_float2(e.max[0], e.total[0]);
        const uint32_t head = first_head + (g < n_q ? g : 0);
        const struct ending end = one ? ending_of(e.max[0], e.total[0], a.sinks ? at<const float>(a.sinks) + head : NULL) : ending{1, 1};
        float *to = one ? row_at<float>(a.y, row) + head * dim_v : (float *)keys + g * dim_v; /* all scores are there */
#pragma unroll 1
        for (uint32_t i = warp; i < dim_v / 16; i += MIXERS) {
            float y[2][4] = {};
#pragma unroll
            for (uint32_t step = 0; step < PAGE / STEP; step++)
                if (step >= lo / STEP && step * STEP < lo + p.n)
                    mix_step<T>(y[0], y[1], e, step, values_at(shared_address(values), ld_v, i, step));
            if (g < n_q)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    float2 v = make_float2(y[half][0], y[half][1]);
                    if (one)
                        v = make_float2(ended(v.x, end), ended(v.y, end));
                    *(float2 *)(to + 16 * i + 8 * half + lane % 4 * 2) = v;
                }
        }
    }
    if (one)
        return;
    __syncthreads();
    const uint32_t parts = (dim_v + 31) / 32; /* of a head, by a warp each */
#pragma unroll 1
    for (uint32_t i = threadIdx.x / 32; i < n_q * parts; i += blockDim.x / 32) {
        const uint32_t of = i / parts, c = i % parts * 32 + lane, head = first_head + of;
        const float *part = (const float *)(short_mem + LODE_SHORT_FAST_PAGES_AT(dim)) + of * dim_v + (c < dim_v ? c : 0);
        float2 all;
        const float y = join_pages<PAGES>(ml[of], part, page_bytes / 4, w.n_pages, &all.x, &all.y);
        if (c < dim_v)
            row_at<float>(a.y, row)[head * dim_v + c] = finish(all.x, all.y, y, a.sinks ? at<const float>(a.sinks) + head : NULL);
    }
}

/* blockIdx: head of keys and part of its query heads, row; several: a row may see others of the step; made: the step's heads are ready, and
 * its keys and values are in their pages. */
#define SHORT_AS(name, type, packed, dim, own)                                                     \
    KERNEL(PAGE_THREADS * PAGES) name(const __grid_constant__ struct lode_cuda_short_fast_args a) { \
        attend<struct type, packed, dim, own>(a);                                                  \
    }
#define SHORT(name, type, packed, dim)                                                             \
    SHORT_AS(decode_short_fast_##name##_##dim, type, packed, dim, OF_ONE)                          \
    SHORT_AS(decode_short_made_##name##_##dim, type, packed, dim, MADE)
#define SHORT_SEVERAL(name, type, packed, dim) SHORT_AS(decode_short_several_##name##_##dim, type, packed, dim, OF_SEVERAL)
#define SHORTS(name, type, packed)                                                                 \
    SHORT(name, type, packed, 0) SHORT(name, type, packed, 64) SHORT(name, type, packed, 128)       \
    SHORT_SEVERAL(name, type, packed, 64) SHORT_SEVERAL(name, type, packed, 128)
SHORTS(f16, f16, false)
SHORTS(bf16, bf16, false)
SHORTS(q8_0, f16, true)

#endif
