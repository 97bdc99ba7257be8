/* decode_join.cu - decode_merge (decode.cu) for many pages: a block has 32 numbers of a head.  Its last warps add them up and the
 * weights' totals, page by page; the others find the factors of the next pages meanwhile, a thread a page, and ask for their parts.
 * Pages that are not there have factors that change nothing, the sign of a zero included. */
#include "attention_shared.h"
#include "backend/cuda/kernels/copies.cuh"
#include "decode.cuh"

enum { JOIN_PAGES = LODE_JOIN_PAGES, JOIN_COLS = LODE_JOIN_COLS, JOIN_THREADS = LODE_JOIN_THREADS, JOIN_SLOTS = 2 };
enum { JOIN_AHEAD = 16, JOIN_ROOM = JOIN_PAGES + JOIN_AHEAD }; /* pages that are read before they are added; some may not be there */
static_assert(JOIN_PAGES % (2 * JOIN_AHEAD) == 0, "no rest");

/* Pages that a thread has in registers: factors of the sums so far and of the page's, and a number of the page's. */
struct pages_ahead {
    float2 f[JOIN_AHEAD];
    float v[JOIN_AHEAD];
    DEVICE_MEMBER void read(const float2 *from, const float *part, uint32_t apart) {
#pragma unroll
        for (int k = 0; k < JOIN_AHEAD; k += 2) {
            const float4 two = *(const float4 *)(from + k);
            f[k] = make_float2(two.x, two.y), f[k + 1] = make_float2(two.z, two.w);
        }
#pragma unroll
        for (int k = 0; k < JOIN_AHEAD; k++)
            v[k] = part[k * apart];
    }
    DEVICE_MEMBER void add(float &sum) const {
#pragma unroll
        for (int k = 0; k < JOIN_AHEAD; k++)
            sum = fmaf(f[k].y, v[k], sum * f[k].x);
    }
    /* A number that depends on all of it. */
    DEVICE_MEMBER uint32_t bits() const {
        uint32_t of_f[4] = {}, of_v[4] = {};
#pragma unroll
        for (int k = 0; k < JOIN_AHEAD; k++)
            of_f[k % 4] ^= lode_f32_bits(f[k].x) ^ lode_f32_bits(f[k].y);
#pragma unroll
        for (int k = 0; k < JOIN_AHEAD; k += 2)
            of_v[k / 2 % 4] ^= lode_f32_bits(v[k]) ^ lode_f32_bits(v[k + 1]);
        return (of_f[0] ^ of_f[1] ^ of_f[2]) ^ (of_f[3] ^ of_v[0] ^ of_v[1]) ^ (of_v[2] ^ of_v[3]);
    }
    /* These to the sum, and the next ones asked for.  Loads share the flags that tell of their coming: what is asked for while
     * older ones are still on their way holds up who waits for those.  So the next ones' address depends on these, by a
     * number that is 0, which compilers do not know. */
    DEVICE_MEMBER void add_and_ask(float &sum, struct pages_ahead &next, const float2 *from, const float *part, uint32_t apart) const {
        const uint32_t zero = bits() & (gridDim.z - 1);
        next.read(from + zero, part + zero, apart);
        sum = lode_bits_f32(lode_f32_bits(sum) ^ zero);
        add(sum);
    }
};
/* A round's first n pages, `apart` numbers from one to the next, to a sum. */
DEVICE void add_pages(float &sum, uint32_t n, const float2 *f, const float *part, uint32_t apart) {
    struct pages_ahead now, then;
    now.read(f, part, apart);
#pragma unroll 1
    for (uint32_t z = 0; z < n; z += 2 * JOIN_AHEAD, f += 2 * JOIN_AHEAD, part += 2 * JOIN_AHEAD * apart) {
        now.add_and_ask(sum, then, f + JOIN_AHEAD, part + JOIN_AHEAD * apart, apart);
        then.add_and_ask(sum, now, f + 2 * JOIN_AHEAD, part + 2 * JOIN_AHEAD * apart, apart);
    }
}

/* blockIdx: head and which of its numbers, row */
KERNEL(JOIN_THREADS) decode_join(const __grid_constant__ struct lode_cuda_att_args a) {
    __shared__ __align__(16) float part[JOIN_SLOTS][JOIN_ROOM][JOIN_COLS];
    __shared__ __align__(16) float2 f[JOIN_SLOTS][JOIN_ROOM];
    __shared__ float totals[JOIN_SLOTS][JOIN_ROOM];
    __shared__ float largest[JOIN_SLOTS][JOIN_PAGES / 32];
    const uint32_t pieces = (a.head_dim_v + JOIN_COLS - 1) / JOIN_COLS, at_row = blockIdx.y, row = a.first_row + at_row;
    const uint32_t head = blockIdx.x / pieces, c0 = blockIdx.x % pieces * JOIN_COLS, tid = threadIdx.x, lane = tid % 32;
    const uint32_t cols = a.head_dim_v - c0 < JOIN_COLS ? a.head_dim_v - c0 : JOIN_COLS;
    const struct lode_cuda_row &r = step_row(a.step, row);
    const uint32_t n = r.pos / PAGE - first_seen(a, r.pos) / PAGE + 1;
    const size_t at_part = ((size_t)at_row * a.n_heads + head) * a.max_pages;
    const size_t n_parts = (size_t)gridDim.y * a.n_heads * a.max_pages;
    const float *in = at<const float>(a.scratch) + at_part * a.head_dim_v + c0;
    const float2 *ml = (const float2 *)(at<const float>(a.scratch) + n_parts * a.head_dim_v) + at_part;
    const bool adds = tid >= JOIN_PAGES;
    wait_for_last();
    let_next_come(); /* whose copies would stand before what the last warps read */
    float so_far = 0, sum = -0.0f; /* to which the first page adds itself */
    const auto ask = [&](uint32_t i) { /* pages from JOIN_PAGES i on */
        for (uint32_t k = tid; k < JOIN_PAGES * JOIN_COLS / 4; k += JOIN_PAGES) {
            const uint32_t z = i * JOIN_PAGES + k / (JOIN_COLS / 4), c = k % (JOIN_COLS / 4) * 4;
            float *to = &part[i % JOIN_SLOTS][k / (JOIN_COLS / 4)][c];
            if (z >= n)
                *(float4 *)to = make_float4(0, 0, 0, 0);
            else if (c < cols)
                copy_async<16>(to, in + (size_t)z * a.head_dim_v + c);
        }
        copies_end_group();
    };
    float2 next = make_float2(0, 0);
    if (!adds) {
        if (tid < n)
            next = ml[tid]; /* factors come of it, after a long way: before the parts */
        ask(0);
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
            const bool here = z < n;
            f[slot][tid] = !here ? make_float2(1, -0.0f) : first ? make_float2(0, 1) : make_float2(exp_below(last - m), exp_below(now.x - m));
            totals[slot][tid] = here ? now.y : 0;
            copies_wait<0>();
        }
        __syncthreads(); /* round i is ready, and nobody reads the one before the last */
        if (!adds && i + 1 < rounds)
            ask(i + 1);
        const uint32_t some = n - i * JOIN_PAGES < JOIN_PAGES ? n - i * JOIN_PAGES : JOIN_PAGES;
        if (adds && tid < JOIN_PAGES + 32)
            add_pages(sum, some, f[slot], part[slot][0] + lane, JOIN_COLS);
        else if (adds)
            add_pages(sum, some, f[slot], totals[slot], 1);
    }
    if (tid == JOIN_PAGES + 32)
        totals[0][0] = sum;
    if (tid == 0)
        largest[0][0] = so_far;
    __syncthreads();
    const float *sink = a.sinks ? at<const float>(a.sinks) + head : NULL;
    if (adds && tid < JOIN_PAGES + 32 && lane < cols)
        row_at<float>(a.y, row)[head * a.head_dim_v + c0 + lane] = finish(largest[0][0], totals[0][0], sum, sink);
}
