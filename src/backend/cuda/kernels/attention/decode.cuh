/* decode.cuh - what the kernels of steps with one row a sequence share: where a row's page lies, and
 * the row's own key and value on their way into it. */
#ifndef LODE_CUDA_DECODE_CUH
#define LODE_CUDA_DECODE_CUH

#include "attention.cuh"
#include "backend/cuda/kernels/copies.cuh"
#include "own_head.cuh"

/* What a row sees of a head of keys: pages from `first` on, of the first one keys from `lo` on.  step_pos: where the
 * step's own rows of the sequence begin. */
struct seen {
    const lode_dev *pages, *near; /* near: the first of these */
    unsigned long long k, v; /* where the head's part of a page is */
    uint32_t n_entries, k_stride, v_stride, pos, step_pos, first, lo, n_pages;
    enum lode_dtype type_k, type_v;
};
DEVICE struct seen seen_by(const struct lode_cuda_att_args &a, uint32_t row, uint32_t head) {
    const struct lode_cuda_row &r = step_row(a.step, row);
    const struct lode_cuda_view &view = at<const struct lode_cuda_view>(a.views ? a.views : r.views)[a.layer];
    const uint32_t from = first_seen(a, r.pos);
    struct seen w;
    w.pages = at<const lode_dev>(view.pages), w.near = view.near, w.n_entries = view.n_entries;
    w.k_stride = view.k_stride, w.v_stride = view.v_stride;
    w.k = view.k + (size_t)head * PAGE * view.k_stride;
    w.v = view.v + (size_t)head * PAGE * view.v_stride;
    w.type_k = (enum lode_dtype)view.type_k, w.type_v = (enum lode_dtype)view.type_v;
    w.pos = r.pos, w.step_pos = r.step_pos, w.first = from / PAGE, w.lo = from % PAGE;
    w.n_pages = r.pos / PAGE - w.first + 1;
    return w;
}
DEVICE const uint8_t *page_base(const struct seen &w, uint32_t z) {
    const uint32_t i = w.first + z;
    return at<const uint8_t>(w.pages[i < w.n_entries ? i : i % w.n_entries]);
}

/* The keys of page z that the row sees: n of them.  Nobody has to know where in the page they begin. */
struct page_of {
    const uint8_t *k, *v;
    uint32_t n, own; /* own: the row's own key, PAGE where that is on another page */
    uint32_t old;    /* so many of the n were there before the step */
};
DEVICE struct page_of page_at(const struct seen &w, uint32_t z, const uint8_t *base) {
    const uint32_t lo = z ? 0 : w.lo, start = (w.first + z) * PAGE;
    const bool last = z + 1 == w.n_pages;
    struct page_of p;
    p.k = base + w.k + lo * w.k_stride;
    p.v = base + w.v + lo * w.v_stride;
    p.n = (last ? w.pos - start + 1 : PAGE) - lo;
    p.own = last ? p.n - 1 : PAGE;
    const uint32_t before = w.step_pos > start + lo ? w.step_pos - start - lo : 0;
    p.old = before < p.n ? before : p.n;
    return p;
}

/* A thread's number among the THREADS of its page, and a barrier of these. */
template <uint32_t THREADS> DEVICE uint32_t page_thread() { return threadIdx.x % THREADS; }
template <uint32_t THREADS> DEVICE void page_sync() {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + threadIdx.x / THREADS), "r"(THREADS) : "memory");
}

/* Rows `first` to before `last` of a page, of `pieces` pieces of 16 bytes (PIECES, where that is known when compiling), to shared
 * memory, by as many threads as a page has: a piece of a row each, of as many rows at once as there are threads for. */
template <uint32_t THREADS, uint32_t PIECES>
DEVICE void ask_rows(uint8_t *to, uint32_t pitch, const uint8_t *from, uint32_t stride, uint32_t first, uint32_t last,
                     const struct lode_cuda_divisor &pieces) {
    const uint32_t t = page_thread<THREADS>(), n = PIECES ? PIECES : pieces.by, at_once = PIECES ? THREADS / PIECES : over(THREADS, pieces);
    const uint32_t row = PIECES ? t / PIECES : over(t, pieces), c = t - row * n;
    if (row < at_once)
        for (uint32_t j = first + row; j < last; j += at_once)
            copy_async<16>(to + j * pitch + 16 * c, from + (size_t)j * stride + 16 * c);
}

/* The weights of queries' or keys' norm that a thread has in hand. */
DEVICE struct head_weights weights_of(const struct lode_cuda_prepare_args &a, bool key) {
    return read_weights((key ? a.norms_k : a.norms_q) ? at<const float>(key ? a.norm_k : a.norm_q) : NULL, a.head_dim);
}
/* A warp norms and turns its own of a head's queries (n_q, dim): those from its number on.  turns: the row's. */
DEVICE void prepare_queries(const struct lode_cuda_prepare_args &a, float *q, uint32_t n_q, const struct turns &turns,
                            const struct head_weights &weights) {
    for (uint32_t g = threadIdx.x / 32; g < n_q; g += blockDim.x / 32) {
        if (a.norms_q)
            norm_warp(q + g * a.head_dim, a.head_dim, at<const float>(a.norm_q), weights, a.eps_q);
        if (a.pairs_q)
            turn_warp(q + g * a.head_dim, a.pairs_q, a.kind_q, turns);
    }
}
/* The row's own key, from where the product left it, in x (dim). */
DEVICE void prepare_key(const struct lode_cuda_prepare_args &a, float *x, uint32_t head, uint32_t row) {
    const float *k = row_at<const float>(a.k, row) + head * a.head_dim;
    const struct turns turns = read_turns(row_at<const float2>(a.table, row), a.pairs_k);
    const struct head_weights weights = weights_of(a, true);
    for (uint32_t i = threadIdx.x % 32; i < a.head_dim; i += 32)
        x[i] = k[i];
    __syncwarp();
    if (a.norms_k)
        norm_warp(x, a.head_dim, at<const float>(a.norm_k), weights, a.eps_k);
    if (a.pairs_k)
        turn_warp(x, a.pairs_k, a.kind_k, turns);
}

/* A column's sum of pages' parts, in order: lane k of a warp finds what page k's are multiplied by. */
template <int PAGES>
DEVICE float join_pages(const float2 *ml, const float *part, uint32_t apart, uint32_t n, float *max, float *total) {
    const uint32_t lane = threadIdx.x % 32;
    float m = ml[0].x, before = m, after = m;
#pragma unroll
    for (uint32_t k = 1; k < PAGES; k++)
        if (k < n) {
            const float top = ml[k].x > m ? ml[k].x : m;
            before = lane == k ? m : before, after = lane == k ? top : after;
            m = top;
        }
    const float old = exp_below(before - after), now = exp_below(ml[lane < n ? lane : 0].x - after);
    float l = ml[0].y, o = part[0];
#pragma unroll 1
    for (uint32_t k = 1; k < n; k++) {
        const float f = __shfl_sync(0xffffffffu, old, k), g = __shfl_sync(0xffffffffu, now, k);
        l = fmaf(ml[k].y, g, l * f);
        o = fmaf(g, part[k * apart], o * f);
    }
    *max = m, *total = l;
    return o;
}

#endif
