/* decode_join.cu - decode_merge (decode.cu) for many pages, or chains of them (attention_fast.cuh), here pages as well: a block has 32
 * numbers of a head.  Its last warps add them up and the weights' totals, page by page; the others, a thread a page, have parts brought and
 * find what sums and parts are multiplied by, of the next pages meanwhile.  Pages that are not there have factors that change nothing, the
 * sign of a zero included. */
#include "decode_join.cuh"

enum { AHEAD = LODE_JOIN_AHEAD };
static_assert(2 * AHEAD == 32, "a warp's pages");

/* A round's pages in shared memory; behind them are AHEAD that are read before they are added, or not at all. */
template <int PAGES> struct round_mem {
    enum { ROOM = PAGES + AHEAD, WARPS = PAGES / 32 };
    float part[ROOM][COLS];
    float kept[ROOM], by[ROOM]; /* what the sums so far and a page's part are multiplied by */
    float totals[ROOM];         /* of the weights */
    float largest[WARPS];       /* score of a warp's pages */
    uint32_t same[WARPS];       /* a bit for each of them: sums are kept as they are */
};

/* Pages that a thread has in registers: what a page's part is multiplied by, and a number of it, APART from the next page's. */
template <uint32_t APART> struct pages_ahead {
    float by[AHEAD], v[AHEAD];
    DEVICE_MEMBER void read(const float *from, const float *part, uint32_t z) {
#pragma unroll
        for (int k = 0; k < AHEAD; k += 4) {
            const float4 four = *(const float4 *)(from + z + k);
            by[k] = four.x, by[k + 1] = four.y, by[k + 2] = four.z, by[k + 3] = four.w;
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            v[k] = part[(z + k) * APART];
    }
    /* To a sum that is multiplied by kept[0], kept[1], .. before each; same: these are 1, as no page has a larger score than those before
     * it, which is so for most. */
    DEVICE_MEMBER void add(float &sum, bool same, const float *kept) const {
        if (same) {
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                sum = fmaf(by[k], v[k], sum);
        } else {
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                sum = fmaf(by[k], v[k], sum * kept[k]);
        }
    }
    /* A number that depends on all of it. */
    DEVICE_MEMBER uint32_t bits() const {
        uint32_t of[4] = {};
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            of[k % 4] ^= lode_f32_bits(v[k]) ^ lode_f32_bits(by[k]);
        return (of[0] ^ of[1] ^ of[2]) ^ of[3];
    }
};
/* A round's first n pages to a sum.  Loads share the flags that tell of their coming: what is asked for while older ones are still on
 * their way holds up who waits for those.  So the next ones' address depends on these, by a number that is 0, which compilers do not know. */
template <uint32_t APART, int PAGES> DEVICE void add_pages(float &sum, uint32_t n, const struct round_mem<PAGES> &m, const float *part) {
    struct pages_ahead<APART> now, then;
    const auto step = [&](const struct pages_ahead<APART> &these, struct pages_ahead<APART> &next, uint32_t z) {
        const uint32_t zero = these.bits() & (gridDim.z - 1);
        next.read(m.by, part, z + AHEAD + zero);
        sum = lode_bits_f32(lode_f32_bits(sum) ^ zero);
        these.add(sum, (m.same[z / 32] >> z % 32 & 0xffff) == 0xffff, m.kept + z);
    };
    now.read(m.by, part, 0);
#pragma unroll 1
    for (uint32_t z = 0; z < n; z += 2 * AHEAD) {
        step(now, then, z);
        step(then, now, z + AHEAD);
    }
}

template <int PAGES> DEVICE void join(const struct lode_cuda_att_args &a) {
    extern __shared__ __align__(16) uint8_t join_mem[];
    __shared__ float max_and_total[2];
    struct round_mem<PAGES> *const slots = (struct round_mem<PAGES> *)join_mem;
    static_assert(sizeof *slots == LODE_JOIN_SLOT(PAGES), "attention_shared.h");
    const uint32_t tid = threadIdx.x, lane = tid % 32;
    const struct joined j = joined_at(a, blockIdx.x, blockIdx.y);
    const uint32_t n = j.n, rounds = (n + PAGES - 1) / PAGES;
    const bool adds = tid >= PAGES, of_totals = tid >= PAGES + 32;
    wait_for_last();
    float so_far = 0, sum = -0.0f; /* to which the first page adds itself */
    const auto ask = [&](uint32_t i) { /* pages from PAGES i on */
        float *const to = slots[i % 2].part[0];
#pragma unroll
        for (uint32_t k = 0; k < COLS / 4; k++) {
            const uint32_t at = tid / (COLS / 4) + k * (PAGES / (COLS / 4)), z = i * PAGES + at, c = tid % (COLS / 4) * 4;
            if (z >= n)
                *(float4 *)(to + at * COLS + c) = make_float4(0, 0, 0, 0);
            else if (c < j.cols)
                copy_async<16>(to + at * COLS + c, j.of + (size_t)z * a.head_dim_v + c);
        }
    };
    float2 next = make_float2(0, 0);
    if (!adds) {
        if (tid < n)
            next = j.ml[tid]; /* factors come of it, after a long way: before the parts */
        ask(0);
    }
    let_next_come(); /* whose copies would stand before what the last warps read */
#pragma unroll 1
    for (uint32_t i = 0; i < rounds; i++) {
        struct round_mem<PAGES> &m = slots[i % 2];
        if (!adds) {
            const float2 now = next;
            const uint32_t z = i * PAGES + tid;
            if (z + PAGES < n)
                next = j.ml[z + PAGES];
            find_factors<PAGES, false>(m, now, z, z < n, so_far);
            copies_end_group();
            copies_wait<0>();
        }
        __syncthreads(); /* round i is ready, and nobody reads the one before any more */
        if (!adds && i + 1 < rounds)
            ask(i + 1);
        if (adds && !of_totals)
            add_pages<COLS>(sum, min(n - i * PAGES, (uint32_t)PAGES), m, m.part[0] + lane);
        else if (adds)
            add_pages<1>(sum, min(n - i * PAGES, (uint32_t)PAGES), m, m.totals);
    }
    if (tid == PAGES + 32)
        max_and_total[1] = sum;
    if (tid == 0)
        max_and_total[0] = so_far;
    __syncthreads();
    const float *sink = a.sinks ? at<const float>(a.sinks) + j.head : NULL;
    if (adds && !of_totals && lane < j.cols)
        row_at<float>(a.y, j.row)[j.head * a.head_dim_v + j.c0 + lane] = finish(max_and_total[0], max_and_total[1], sum, sink);
}

/* decode_join_PAGES: so many at once.  blockIdx: head and which of its numbers, row */
#define JOIN(pages)                                                                                \
    KERNEL(LODE_JOIN_THREADS(pages)) decode_join_##pages(const __grid_constant__ struct lode_cuda_att_args a) { join<pages>(a); }
JOIN(128)
JOIN(256)
