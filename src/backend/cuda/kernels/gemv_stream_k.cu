/* gemv_stream_k.cu - products of one row with Q4_K, Q5_K and Q6_K whose weights come through shared memory
 * (stream.cuh), and what comes before and after them in a layer, on Hopper.
 *
 * A thread has half a block of one row at a time (half_blocks.cuh), a warp four blocks of four rows.  x is asked for
 * before the weights, but in launches that have little to do: it would have to wait for all that stands before it. */
#include "half_blocks.cuh"
#include "mul.cuh"
#include "stream.cuh"

#if __CUDA_ARCH__ >= 900

enum { STREAM_THREADS = 32 * LODE_STREAM_WARPS };

/* ---- where a chunk's fields lie in a slot ---- */

/* A field's bytes of a row's blocks stand together, rows so far apart that eight threads, of four rows and both halves
 * of a block, have all banks. */
enum {
    ROWS = LODE_STREAM_K_ROWS,
    BLOCKS = LODE_STREAM_K_BLOCKS, /* of a row */
    CODES = BLOCKS * 128 + 16,     /* from one row to the next */
    HIGH_5 = BLOCKS * 32 + 16,
    HIGH_6 = BLOCKS * 64 + 64, /* every two pieces exchanged in the last two rows */
    HEAD = BLOCKS * 16 + 16,
    D = 16,
    AFTER_CODES = ROWS * CODES,
    Q5_HEADS = AFTER_CODES + ROWS * HIGH_5,
    Q6_SCALES = AFTER_CODES + ROWS * HIGH_6,
    Q6_D = Q6_SCALES + ROWS * HEAD,
};
static_assert(AFTER_CODES + ROWS * HEAD == LODE_STREAM_Q4_K_SLOT && Q5_HEADS + ROWS * HEAD == LODE_STREAM_Q5_K_SLOT &&
                  Q6_D + ROWS * D == LODE_STREAM_Q6_K_SLOT,
              "stream_shared.h");

/* ---- the kind ---- */

/* A part of a chunk is four blocks of four rows.  One thread a row adds, in ascending order, the pairs
 * (d_w d_x, isum) and (-dmin d_x, msum), which lie in shared memory: those of the part before; or, where a unit has
 * several warps, all of them when all are there. */
struct k_kind {
    enum {
        ROWS = LODE_STREAM_K_ROWS,
        PART = 16 / ROWS, /* blocks of a row */
        CHUNK = 256 * BLOCKS,
        COPIERS = 32,
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

    /* SIZE bytes of each block from byte `from` of the rows on; `left`: blocks of them that are there. */
    template <int SIZE, int PITCH, bool SWAP = false>
    static DEVICE_MEMBER void copy_field(const uint8_t *from, uint32_t stride, uint32_t left, uint32_t to) {
        enum { EACH = SIZE / 16, PIECES = EACH * BLOCKS, AT_ONCE = PIECES < 32 ? 32 / PIECES : 1 }; /* of a block, of a row; rows */
        static_assert(!SWAP || AT_ONCE == 1, "rows that are swapped");
        const uint32_t lane = threadIdx.x % 32, row = PIECES < 32 ? lane / PIECES : 0, piece = PIECES < 32 ? lane % PIECES : lane;
        const uint32_t at = to + row * PITCH + piece * 16, swapped = SWAP ? to + (piece ^ 1) * 16 : at;
        from += (size_t)row * stride + piece * 16;
#pragma unroll
        for (int r = 0; r < ROWS; r += AT_ONCE, from += AT_ONCE * (size_t)stride)
#pragma unroll
            for (int i = 0; i < PIECES; i += 32)
                if (piece / EACH + i / EACH < left)
                    copy_async_at<16>((r < 2 ? at : swapped) + r * PITCH + i * 16, from + i * 16);
    }
    static DEVICE_MEMBER void copy(const struct stream_rows &of, uint32_t from, uint32_t cols, uint32_t slot, uint32_t barrier) {
        const uint32_t b = from / 256, nb = cols / 256, left = nb - b, stride = of.stride;
        const uint8_t *w = of.w;
        copy_field<128, CODES>(w + b * 128, stride, left, slot);
        if (of.type == LODE_Q6_K) {
            copy_field<64, HIGH_6, true>(w + nb * 128 + b * 64, stride, left, slot + AFTER_CODES);
            copy_field<16, HEAD>(w + nb * 192 + b * 16, stride, left, slot + Q6_SCALES);
            const uint32_t lane = threadIdx.x % 32;
            if (lane < ROWS)
                copy_async_at<2 * BLOCKS>(slot + Q6_D + lane * D, w + (size_t)lane * stride + nb * 208 + b * 2);
        } else if (of.type == LODE_Q5_K) {
            copy_field<32, HIGH_5>(w + nb * 128 + b * 32, stride, left, slot + AFTER_CODES);
            copy_field<16, HEAD>(w + nb * 160 + b * 16, stride, left, slot + Q5_HEADS);
        } else {
            copy_field<16, HEAD>(w + nb * 128 + b * 16, stride, left, slot + AFTER_CODES);
        }
        barrier_arrive_copied(barrier);
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
    DEVICE_MEMBER void chunk(const uint8_t *slot, uint32_t from, uint32_t cols, uint32_t type) {
        const uint32_t h = half(), r = row();
#pragma unroll 1
        for (uint32_t part = 0; part < BLOCKS / PART; part++, from += 256 * PART) {
            if (from >= cols)
                break;
            if (part)
                __syncwarp();
            add_up(); /* the part before */
            const uint32_t b = PART * part + block();
            const struct half_of o = {slot + r * CODES + b * 128 + h * 64, x + from / 128 * HALF_X, sums + from / 128 * 16,
                                      h, 0};
            struct half_sums v;
            uint32_t d; /* two halves: of the codes, of the minima */
            if (type == LODE_Q6_K) {
                const uint2 s = *(const uint2 *)(slot + Q6_SCALES + r * HEAD + b * 16 + 8 * h);
                v = q6_k_half(o, s, slot + AFTER_CODES + r * HIGH_6 + b * 64 + h * 32, r / 2);
                d = *(const uint16_t *)(slot + Q6_D + r * D + b * 2);
            } else {
                const uint4 head =
                    *(const uint4 *)(slot + (type == LODE_Q5_K ? Q5_HEADS : AFTER_CODES) + r * HEAD + b * 16);
                v = type == LODE_Q5_K ? q5_k_half(o, head, slot + AFTER_CODES + r * HIGH_5 + b * 32) : q4_k_half(o, head);
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
    kind.split = s.split, kind.pairs = LODE_STREAM_K_PAIRS(a.cols);
    const uint32_t share = stream_share(s);
    kind.of_block = parted(of_warp(threadIdx.x / 32), s.split);
    kind.ends = threadIdx.x % 32 < 2 * ROWS && kind.half() == 0 && share == 0;
    kind.stage = s.split == 1 ? ring.slots + ring.n * ring.size : (uint8_t *)row_mem + s.stage_at + kind.of_block * ROWS * kind.pairs;
    stream_units(ring, a, kind, first, step);
}
extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)
    stream_k(const __grid_constant__ struct lode_cuda_stream_args s) {
    products(s);
}

#endif
