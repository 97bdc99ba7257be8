/* gemv_stream_k.cu - products of one row with Q4_K, Q5_K and Q6_K whose weights come through shared memory
 * (stream.cuh), and what comes before and after them in a layer, on Hopper.
 *
 * A thread has half a block of one row at a time (half_blocks.cuh), a warp four blocks of four rows.  x is asked for
 * before the weights, but in launches that have little or very much to do: it would have to wait for all that stands before
 * it. */
#include "half_blocks.cuh"
#include "mul.cuh"
#include "stream.cuh"

#if __CUDA_ARCH__ >= 900

enum { STREAM_THREADS = 32 * LODE_STREAM_WARPS };

/* Beside a slot: lines of high bits, then one of heads (scales), then of Q6_K a row's d, 16 bytes of it. */
enum {
    ROWS = LODE_STREAM_K_ROWS,
    BLOCKS = LODE_STREAM_K_BLOCKS, /* of a row */
    Q5_HEADS = 2 * LODE_STREAM_K_LINE,
    Q6_SCALES = 4 * LODE_STREAM_K_LINE,
    Q6_D = Q6_SCALES + LODE_STREAM_K_LINE,
    D = 2 * BLOCKS,
};
static_assert(BLOCKS * 16 == LODE_STREAM_LINE && Q6_D + ROWS * D <= LODE_STREAM_Q6_K_HEADS, "stream_shared.h");

/* ---- the kind ---- */

/* A part of a chunk is four blocks of four rows.  One thread a row adds, in ascending order, the pairs
 * (d_w d_x, isum) and (-dmin d_x, msum), which lie in shared memory: those of the part before; or, where a unit has
 * several warps, all of them when all are there. */
struct k_kind {
    enum {
        ROWS = LODE_STREAM_K_ROWS,
        PART = 16 / ROWS, /* blocks of a row */
        CHUNK = 256 * BLOCKS,
        STAGE = LODE_STREAM_K_OWN / 2,
        STAGE_PITCH = STAGE / ROWS,
    };
    const uint8_t *x, *sums; /* this thread's first half, and its eight sums */
    uint8_t *stage;
    uint32_t other, n; /* the half of the stage that is written next; blocks of the last part */
    uint32_t split, pairs, of_block; /* warps of a unit; of several, bytes of a row's pairs, and which unit of the block's it is */
    bool ends; /* a row's sum is this thread's */
    float acc;
    DEVICE_MEMBER uint32_t half() const { return threadIdx.x % 2; }
    DEVICE_MEMBER uint32_t row() const { return threadIdx.x / 2 % ROWS; }
    DEVICE_MEMBER uint32_t block() const { return threadIdx.x % 32 / (2 * ROWS); } /* of a part */
    DEVICE_MEMBER bool finishes() const { return ends; }

    static DEVICE_MEMBER void copy(const struct lode_cuda_stream_args &s, const struct stream_ring &ring, uint32_t barrier) {
        const uint32_t b = ring.from / 256, first = ring.rows.first, type = ring.rows.type;
        const struct lode_cuda_map *map = s.maps[ring.rows.part];
        uint32_t to = ring.heads_to + ring.fill * s.head_size;
        barrier_arrive_expect(barrier, LODE_STREAM_K_SLOT + (type == LODE_Q6_K   ? Q6_D + ROWS * D
                                                             : type == LODE_Q5_K ? LODE_STREAM_Q5_K_HEADS
                                                                                 : LODE_STREAM_Q4_K_HEADS));
        bulk_lines(ring.to + ring.fill * LODE_STREAM_K_SLOT, map++, b, first, barrier);
        if (type != LODE_Q4_K) {
            bulk_lines(to, map++, b / (type == LODE_Q6_K ? 2 : 4), first, barrier);
            to += type == LODE_Q6_K ? (uint32_t)Q6_SCALES : (uint32_t)Q5_HEADS;
        }
        bulk_lines(to, map++, b / BLOCKS, first, barrier);
        if (type == LODE_Q6_K)
            bulk_lines(to + Q6_D - Q6_SCALES, map, b / BLOCKS, first, barrier);
    }
    DEVICE_MEMBER void begin() { acc = 0, other = 0, n = 0; }
    /* The pairs of some blocks: four at a time. */
    DEVICE_MEMBER void add_pairs(const float4 *p, uint32_t blocks) {
#pragma unroll 1
        for (; blocks >= PART; blocks -= PART, p += PART)
#pragma unroll
            for (int i = 0; i < PART; i++) {
                const float4 v = p[i];
                acc = fmaf(v.x, v.y, acc);
                acc = fmaf(v.z, v.w, acc);
            }
#pragma unroll 1
        for (; blocks; blocks--) {
            const float4 v = *p++;
            acc = fmaf(v.x, v.y, acc);
            acc = fmaf(v.z, v.w, acc);
        }
    }
    DEVICE_MEMBER void add_up() {
        if (split == 1 && finishes())
            add_pairs((const float4 *)(stage + (other ^ 1) * STAGE + row() * STAGE_PITCH), n);
    }
    /* 16 bytes of a row; its line of them; in_panel's place, but that the first line is row `turn` of a panel. */
    DEVICE_MEMBER const uint8_t *piece(const uint8_t *lines, uint32_t turn, uint32_t line, uint32_t c) const {
        line = line * ROWS + row();
        return lines + line * LODE_STREAM_LINE + ((c ^ (line + turn)) & 7) * 16;
    }
    DEVICE_MEMBER void chunk(const uint8_t *slot, const uint8_t *beside, uint32_t from, uint32_t cols, uint32_t type) {
        const uint32_t h = half(), r = row(), turn = shared_address(beside) / LODE_STREAM_LINE, swap = (r + turn) % 2; /* of two pieces */
#pragma unroll 1
        for (uint32_t part = 0; part < BLOCKS / PART; part++, from += 256 * PART) {
            if (from >= cols)
                break;
            if (part)
                __syncwarp();
            add_up(); /* the part before */
            const uint32_t b = PART * part + block();
            const struct half_of o = {slot + (b * ROWS + r) * LODE_STREAM_LINE + (h ^ (b & 1)) * 64, x + from / 128 * HALF_X,
                                      sums + from / 128 * 16, h, r};
            struct half_sums v;
            uint32_t d; /* two halves: of the codes, of the minima */
            if (type == LODE_Q6_K) {
                const uint2 s = *(const uint2 *)(piece(beside + Q6_SCALES, turn, 0, b) + 8 * h);
                v = q6_k_half(o, s, piece(beside, turn, b / 2, b % 2 * 4 + h * 2) - swap * 16, swap);
                d = *(const uint16_t *)(beside + Q6_D + r * D + b * 2);
            } else {
                const uint4 head = *(const uint4 *)piece(beside + (type == LODE_Q5_K ? (uint32_t)Q5_HEADS : 0), turn, 0, b);
                v = type == LODE_Q5_K ? q5_k_half(o, head, piece(beside, turn, b / 4, b % 4 * 2) - swap * 16, swap) : q4_k_half(o, head);
                d = head.x;
            }
            const struct half_pair pair = half_pair_of(o, v, d);
            uint8_t *to = stage + (split == 1 ? other * STAGE + r * STAGE_PITCH : r * pairs + from / 256 * 16);
            if (from + block() * 256 < cols)
                pair.put(to + block() * 16, h);
            other ^= 1;
            n = cols - from < 256 * PART ? (cols - from) / 256 : PART;
        }
    }
    DEVICE_MEMBER float end(uint32_t cols) {
        if (split == 1) {
            __syncwarp();
            add_up();
        } else {
            asm volatile("bar.sync %0, %1;" ::"r"(1 + of_block), "r"(32 * split) : "memory");
            if (finishes())
                add_pairs((const float4 *)(stage + row() * pairs), cols / 256);
        }
        return acc;
    }
};

/* One kernel for the three, as files mix them in a launch. */
DEVICE void products(const struct lode_cuda_stream_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = stream_step(s);
    uint8_t *x = (uint8_t *)row_mem + a.x_at;
    let_next_come();
    struct stream_ring ring = stream_begin<struct k_kind>(s, first, step);
    const struct early_weights early = read_weights(a);
    wait_for_last();
    make_x(a, early, x, [&] { stream_fill<struct k_kind>(ring, s, step); }); /* ends with a barrier */
    struct k_kind kind;
    const uint32_t half = 2 * kind.block() + kind.half();
    kind.x = x + half * HALF_X, kind.sums = x + a.cols / 128 * HALF_X + half * 16;
    kind.split = s.split.by, kind.pairs = LODE_STREAM_K_PAIRS(a.cols);
    const uint32_t share = stream_share(s);
    kind.of_block = over(of_warp(threadIdx.x / 32), s.split);
    kind.ends = threadIdx.x % 32 < 2 * ROWS && kind.half() == 0 && share == 0;
    kind.stage = s.split.by == 1 ? ring.own : (uint8_t *)row_mem + s.stage_at + kind.of_block * ROWS * kind.pairs;
    stream_units(ring, s, kind, first, step);
}
extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)
    stream_k(const __grid_constant__ struct lode_cuda_stream_args s) {
    products(s);
}

#endif
