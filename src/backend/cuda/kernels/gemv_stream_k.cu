/* gemv_stream_k.cu - products of one row with Q4_K, Q5_K and Q6_K whose weights come through shared memory
 * (stream.cuh), and what comes before and after them in a layer, on Hopper.
 *
 * A thread has half a block of 256 numbers of one row: four groups of 32 are as many as share a word of scales and of
 * multipliers, and the dot products of a whole half cost one reduction: about one instruction a number, where
 * gemv.cuh's tensor cores, whose columns are groups, take two. */
#include "mul.cuh"
#include "stream.cuh"

#if __CUDA_ARCH__ >= 900

enum {
    STREAM_THREADS = 32 * LODE_STREAM_WARPS,
    HALF_X = LODE_STREAM_K_HALF, /* bytes from one half of a block of x to the next, 128 of codes first: an odd number
                                  * of 16, so that eight threads with eight halves have all banks */
};

/* ---- x: halves of blocks, then sums of sixteen, times their multipliers, of each half ---- */

struct half_head { /* behind a half's codes */
    float d;
    uint8_t m[4];
    uint32_t pad[2];
};
DEVICE void put_x(uint8_t *x, uint32_t cols, uint32_t b, const struct rounded_256 &r) {
    const uint32_t lane = threadIdx.x % 32, half = 2 * b + lane / 16, i = lane % 16;
    uint8_t *to = x + half * HALF_X;
    *(uint2 *)(to + 8 * i) = r.q;
    struct half_head *head = (struct half_head *)(to + 128);
    if (i == 0)
        head->d = r.d;
    if (i % 4 == 0)
        head->m[i / 4] = (uint8_t)r.mul;
    if (i % 2 == 0)
        *(int16_t *)(x + cols / 128 * HALF_X + half * 16 + i) = (int16_t)r.sum;
}

/* Weights of the norm of a warp's first block, read before x is there. */
struct early_weights { float4 w[2]; };
DEVICE struct early_weights read_weights(const struct lode_cuda_gemv_args &a) {
    struct early_weights early;
    const uint32_t b = threadIdx.x / 32;
    const bool there = a.input == LODE_GEMV_NORM && a.norm && b < a.cols / 256;
#pragma unroll
    for (uint32_t k = 0; k < 2; k++)
        early.w[k] = there ? at<const float4>(a.norm)[b * 64 + threadIdx.x % 32 * 2 + k] : make_float4(1, 1, 1, 1);
    return early;
}
DEVICE void round_block(const struct lode_cuda_gemv_args &a, uint8_t *x, uint32_t b, float4 u, float4 v) {
    const float numbers[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
    const struct rounded_256 r = round_256(numbers);
    put_x(x, a.cols, b, r);
    if (a.q_out && blockIdx.x == 0)
        put_a256(at<uint8_t>(a.q_out) + b * 304, r);
}
/* x before its norm: the numbers of each of the definition's sixteen lanes stand together, so that four are read at a
 * time. */
DEVICE void put_numbers(uint32_t cols, uint32_t b, const float4 v[2]) {
    const uint32_t lane = threadIdx.x % 32, pitch = LODE_STREAM_LANE_PITCH(cols);
    float *to = row_mem + lane % 2 * 8 * pitch + b * 16 + lane / 2;
    to[0] = v[0].x, to[pitch] = v[0].y, to[2 * pitch] = v[0].z, to[3 * pitch] = v[0].w;
    to[4 * pitch] = v[1].x, to[5 * pitch] = v[1].y, to[6 * pitch] = v[1].z, to[7 * pitch] = v[1].w;
}
DEVICE void get_numbers(uint32_t cols, uint32_t b, float4 v[2]) {
    const uint32_t lane = threadIdx.x % 32, pitch = LODE_STREAM_LANE_PITCH(cols);
    const float *p = row_mem + lane % 2 * 8 * pitch + b * 16 + lane / 2;
    v[0] = make_float4(p[0], p[pitch], p[2 * pitch], p[3 * pitch]);
    v[1] = make_float4(p[4 * pitch], p[5 * pitch], p[6 * pitch], p[7 * pitch]);
}
/* What the norm divides by: norm_root's number (gemv_x.cuh). */
DEVICE struct divisor root_of(uint32_t cols, float eps) {
    __shared__ float sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        const float4 *p = (const float4 *)(row_mem + threadIdx.x % 16 * LODE_STREAM_LANE_PITCH(cols));
        float4 next[4] = {p[0], p[1], p[2], p[3]};
        float acc = 0;
#pragma unroll 1
        for (uint32_t n = cols / 256; n; n--) {
            float4 v[4];
            p += 4;
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[i] = next[i], next[i] = n > 1 ? p[i] : next[i];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                acc = fmaf(v[i].x, v[i].x, acc);
                acc = fmaf(v[i].y, v[i].y, acc);
                acc = fmaf(v[i].z, v[i].z, acc);
                acc = fmaf(v[i].w, v[i].w, acc);
            }
        }
        acc = join_lanes(acc);
        if (threadIdx.x == 0)
            sum = acc;
    }
    __syncthreads();
    return divisor_of(sqrtf(sum / (float)cols + eps));
}

/* All of x.  Each warp's next block is on its way while one is rounded; meanwhile(): when the first are asked for. */
template <class F>
DEVICE void make_x(const struct lode_cuda_gemv_args &a, const struct early_weights &early, uint8_t *x, F meanwhile) {
    const uint32_t warp = threadIdx.x / 32, n = a.cols / 256, from = threadIdx.x % 32 * 2;
    const bool norm = a.input == LODE_GEMV_NORM, as_is = a.input == LODE_GEMV_AS_IS;
    const float4 *numbers = at<const float4>(a.x) + from, *w = at<const float4>(a.norm) + from;
    float4 next[2] = {make_float4(0, 0, 0, 0), make_float4(0, 0, 0, 0)}, wu[2] = {early.w[0], early.w[1]};
    auto read = [&](uint32_t b) { next[0] = numbers[b * 64], next[1] = numbers[b * 64 + 1]; };
    if (warp < n && !as_is)
        read(warp);
    meanwhile();
    if (as_is) {
#pragma unroll 1
        for (uint32_t b = warp; b < n; b += n_warps())
            put_x(x, a.cols, b, get_a256(at<const uint8_t>(a.x) + b * 304));
        __syncthreads();
        return;
    }
    struct divisor root = {1, 1, true};
    if (norm) {
        if (warp < n)
            put_numbers(a.cols, warp, next);
#pragma unroll 1
        for (uint32_t b = warp + n_warps(); b < n; b += n_warps()) {
            const float4 v[2] = {numbers[b * 64], numbers[b * 64 + 1]};
            put_numbers(a.cols, b, v);
        }
        root = root_of(a.cols, a.eps);
    }
#pragma unroll 1
    for (uint32_t b = warp; b < n; b += n_warps()) {
        const uint32_t c = b + n_warps();
        float4 next_w[2] = {make_float4(1, 1, 1, 1), make_float4(1, 1, 1, 1)}, u[2] = {next[0], next[1]};
        if (c < n) {
            if (norm)
                get_numbers(a.cols, c, next);
            else
                read(c);
            if (norm && a.norm)
                next_w[0] = w[c * 64], next_w[1] = w[c * 64 + 1];
        }
        if (norm)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                u[k] = divided(u[k], root);
                if (a.norm)
                    u[k].x *= wu[k].x, u[k].y *= wu[k].y, u[k].z *= wu[k].z, u[k].w *= wu[k].w;
                if (a.x_out && blockIdx.x == 0)
                    at<float4>(a.x_out)[b * 64 + from + k] = u[k];
            }
        round_block(a, x, b, u[0], u[1]);
        wu[0] = next_w[0], wu[1] = next_w[1];
    }
    __syncthreads();
}

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

DEVICE int dp4a_unsigned(uint32_t codes, uint32_t x, int sum) {
    asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(codes), "r"(x));
    return sum;
}
DEVICE int dot4(uint4 codes, uint4 x, int sum) {
    sum = dp4a_unsigned(codes.x, x.x, sum);
    sum = dp4a_unsigned(codes.y, x.y, sum);
    sum = dp4a_unsigned(codes.z, x.z, sum);
    return dp4a_unsigned(codes.w, x.w, sum);
}
DEVICE uint4 masked(uint4 v, uint32_t mask) { return make_uint4(v.x & mask, v.y & mask, v.z & mask, v.w & mask); }
DEVICE uint4 shifted(uint4 v, int by) { return make_uint4(v.x >> by, v.y >> by, v.z >> by, v.w >> by); }
/* Bits `mask` of v shifted left (of v shifted right where by < 0), joined to codes. */
DEVICE uint4 joined(uint4 codes, uint4 v, int by, uint32_t mask) {
    auto one = [=](uint32_t c, uint32_t bits) { return c | ((by < 0 ? bits >> -by : bits << by) & mask); };
    return make_uint4(one(codes.x, v.x), one(codes.y, v.y), one(codes.z, v.z), one(codes.w, v.w));
}
DEVICE int byte_of(uint32_t v, int i) { return (int)__byte_perm(v, 0, 0x4440 + i); }
DEVICE int signed_byte_of(uint32_t v, int i) { return (int8_t)(v >> (8 * i)); }

/* What a thread makes of half a block: the two pairs of numbers that the definition adds, as far as this half goes. */
struct half_sums {
    int sum, min;
};
struct half_of {
    const uint8_t *codes_at, *x, *sums; /* of this half */
    uint32_t h;
    DEVICE_MEMBER uint4 codes(uint32_t piece) const { return *(const uint4 *)(codes_at + 16 * piece); }
    DEVICE_MEMBER uint4 numbers(uint32_t i) const { return *(const uint4 *)(x + 16 * i); }
};

/* Q4_K, Q5_K: sum and min from the dot products of the half's groups; those of odd ones times 16 or not (`shift`). */
DEVICE struct half_sums k_sums(const struct half_of &o, uint4 head, const int dot[4], int shift) {
    const uint32_t low = 0x3f3f3f3f, top = 0x30303030, nibbles = 0x0f0f0f0f;
    const uint32_t s = o.h ? (head.w & nibbles) | (head.y >> 2 & top) : head.y & low,
                   n = o.h ? (head.w >> 4 & nibbles) | (head.z >> 2 & top) : head.z & low;
    const uint32_t m = *(const uint32_t *)(o.x + 132);
    const uint4 z = *(const uint4 *)o.sums;
    int v[4];
#pragma unroll
    for (int g = 0; g < 4; g++)
        v[g] = byte_of(s, g) * byte_of(m, g) * dot[g];
    const uint32_t n01 = __byte_perm(n, 0, 0x1100), n23 = __byte_perm(n, 0, 0x3322);
    int min = __dp2a_lo((int)z.x, (int)n01, 0);
    min = __dp2a_hi((int)z.y, (int)n01, min);
    min = __dp2a_lo((int)z.z, (int)n23, min);
    min = __dp2a_hi((int)z.w, (int)n23, min);
    return {v[0] + v[2] + ((v[1] + v[3]) >> shift), min};
}

DEVICE struct half_sums q4_k_half(const struct half_of &o, uint4 head) {
    int dot[4] = {0, 0, 0, 0}; /* of odd groups 16 times: |v[1] + v[3]| < 2 (240 127 32) (63 16) < 2^31 */
#pragma unroll
    for (int p = 0; p < 2; p++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint4 v = o.codes(2 * p + i);
            dot[2 * p] = dot4(masked(v, 0x0f0f0f0f), o.numbers(4 * p + i), dot[2 * p]);
            dot[2 * p + 1] = dot4(masked(v, 0xf0f0f0f0), o.numbers(4 * p + 2 + i), dot[2 * p + 1]);
        }
    return k_sums(o, head, dot, 4);
}
/* high: the fifth bits of 16 numbers, and of the next 16. */
DEVICE struct half_sums q5_k_half(const struct half_of &o, uint4 head, const uint8_t *fifth) {
    int dot[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 high = shifted(*(const uint4 *)(fifth + 16 * i), 4 * o.h);
#pragma unroll
        for (int p = 0; p < 2; p++) {
            const uint4 v = o.codes(2 * p + i);
            dot[2 * p] = dot4(joined(masked(v, 0x0f0f0f0f), high, 4 - 2 * p, 0x10101010), o.numbers(4 * p + i), dot[2 * p]);
            dot[2 * p + 1] = dot4(joined(masked(shifted(v, 4), 0x0f0f0f0f), high, 3 - 2 * p, 0x10101010),
                                  o.numbers(4 * p + 2 + i), dot[2 * p + 1]);
        }
    }
    return k_sums(o, head, dot, 0);
}
/* high: of this half; piece i at i ^ swap. */
DEVICE struct half_sums q6_k_half(const struct half_of &o, uint2 s, const uint8_t *top, uint32_t swap) {
    int dot[8] = {0, 0, 0, 0, 0, 0, 0, 0}; /* of sixteen numbers */
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 high = *(const uint4 *)(top + 16 * (i ^ swap));
#pragma unroll
        for (int k = 0; k < 2; k++) {
            const uint4 v = o.codes(2 * k + i);
            dot[2 * k + i] = dot4(joined(masked(v, 0x0f0f0f0f), high, 4 - 2 * k, 0x30303030), o.numbers(2 * k + i), 0);
            dot[4 + 2 * k + i] =
                dot4(joined(masked(shifted(v, 4), 0x0f0f0f0f), high, -2 * k, 0x30303030), o.numbers(4 + 2 * k + i), 0);
        }
    }
    const uint32_t m = *(const uint32_t *)(o.x + 132);
    const uint4 z = *(const uint4 *)o.sums;
    int sum = 0, offset = __dp2a_lo((int)z.x, (int)s.x, 0);
    offset = __dp2a_hi((int)z.y, (int)s.x, offset);
    offset = __dp2a_lo((int)z.z, (int)s.y, offset);
    offset = __dp2a_hi((int)z.w, (int)s.y, offset);
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const uint32_t w = g < 2 ? s.x : s.y;
        sum += byte_of(m, g) * (signed_byte_of(w, 2 * (g % 2)) * dot[2 * g] + signed_byte_of(w, 2 * (g % 2) + 1) * dot[2 * g + 1]);
    }
    return {sum - 32 * offset, 0};
}

/* ---- the kind ---- */

/* A part of a chunk is four blocks of four rows.  One thread a row adds, in ascending order, the pairs
 * (d_w d_x, isum) and (-dmin d_x, msum) of the part before, which lie in shared memory. */
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
    float acc;
    DEVICE_MEMBER uint32_t half() const { return threadIdx.x % 2; }
    DEVICE_MEMBER uint32_t row() const { return threadIdx.x / 2 % ROWS; }
    DEVICE_MEMBER uint32_t block() const { return threadIdx.x % 32 / (2 * ROWS); } /* of a part */
    DEVICE_MEMBER bool finishes() const { return threadIdx.x % 32 < 2 * ROWS && half() == 0; }

    /* SIZE bytes of each block from byte `from` of the rows on; `left`: blocks of them that are there. */
    template <int SIZE, int PITCH, bool SWAP = false>
    static DEVICE_MEMBER void copy_field(const uint8_t *from, uint32_t stride, uint32_t left, uint8_t *to) {
        enum { PIECES = SIZE / 16 * BLOCKS, AT_ONCE = PIECES < 32 ? 32 / PIECES : 1 }; /* of a row; rows */
        const uint32_t lane = threadIdx.x % 32;
#pragma unroll
        for (int r = 0; r < ROWS; r += AT_ONCE)
#pragma unroll
            for (int i = 0; i < PIECES; i += 32) {
                const uint32_t row = PIECES < 32 ? lane / PIECES : 0, piece = PIECES < 32 ? lane % PIECES : lane + i;
                if (piece / (SIZE / 16) < left)
                    copy_async<16>(to + (r + row) * PITCH + (piece ^ (SWAP && (r + row) / 2)) * 16,
                                   from + (r + row) * stride + piece * 16);
            }
    }
    static DEVICE_MEMBER void copy(const struct stream_rows &of, uint32_t from, uint32_t cols, uint8_t *slot,
                                   uint64_t *barrier) {
        const uint32_t b = from / 256, nb = cols / 256, left = nb - b, stride = of.stride;
        const uint8_t *w = of.w;
        copy_field<128, CODES>(w + b * 128, stride, left, slot);
        if (of.type == LODE_Q6_K) {
            copy_field<64, HIGH_6, true>(w + nb * 128 + b * 64, stride, left, slot + AFTER_CODES);
            copy_field<16, HEAD>(w + nb * 192 + b * 16, stride, left, slot + Q6_SCALES);
            const uint32_t lane = threadIdx.x % 32;
            if (lane < ROWS)
                copy_async<2 * BLOCKS>(slot + Q6_D + lane * D, w + lane * stride + nb * 208 + b * 2);
        } else if (of.type == LODE_Q5_K) {
            copy_field<32, HIGH_5>(w + nb * 128 + b * 32, stride, left, slot + AFTER_CODES);
            copy_field<16, HEAD>(w + nb * 160 + b * 16, stride, left, slot + Q5_HEADS);
        } else {
            copy_field<16, HEAD>(w + nb * 128 + b * 16, stride, left, slot + AFTER_CODES);
        }
        barrier_arrive_copied(barrier);
    }
    DEVICE_MEMBER void begin() { acc = 0, other = 0, n = 0; }
    DEVICE_MEMBER void add_up() {
        if (!finishes())
            return;
        const float4 *p = (const float4 *)(stage + (other ^ 1) * STAGE + row() * STAGE_PITCH);
        if (n == PART) {
#pragma unroll
            for (int i = 0; i < PART; i++) {
                const float4 v = p[i];
                acc = fmaf(v.x, v.y, acc);
                acc = fmaf(v.z, v.w, acc);
            }
            return;
        }
#pragma unroll 1
        for (uint32_t i = 0; i < n; i++) {
            const float4 v = p[i];
            acc = fmaf(v.x, v.y, acc);
            acc = fmaf(v.z, v.w, acc);
        }
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
                                      h};
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
            /* The first half's thread ends with both halves' sum, the second's with their minimum. */
            const int total = (h ? v.min : v.sum) + __shfl_xor_sync(0xffffffffu, h ? v.sum : v.min, 1);
            const float dx = *(const float *)(o.x + 128), scale = f16_f32((uint16_t)(h ? d >> 16 : d)) * dx;
            *(float2 *)(stage + other * STAGE + r * STAGE_PITCH + block() * 16 + h * 8) =
                make_float2(h ? -scale : scale, (float)total);
            other ^= 1;
            n = cols - from < 256 * PART ? (cols - from) / 256 : PART;
        }
    }
    DEVICE_MEMBER float end() {
        __syncwarp();
        add_up();
        return acc;
    }
};

/* One kernel for the three, as files mix them in a launch. */
DEVICE void products(const struct lode_cuda_stream_args &s) {
    const struct lode_cuda_gemv_args &a = s.a;
    const uint32_t first = stream_first(s), step = gridDim.x * s.warps;
    uint8_t *x = (uint8_t *)row_mem + a.x_at;
    let_next_come();
    struct stream_ring ring = stream_begin<struct k_kind>(s, first, step);
    const struct early_weights early = read_weights(a);
    wait_for_last();
    make_x(a, early, x, [&] { stream_fill<struct k_kind>(ring, s, step); }); /* ends with a barrier */
    struct k_kind kind;
    const uint32_t half = 2 * kind.block() + kind.half();
    kind.x = x + half * HALF_X, kind.sums = x + a.cols / 128 * HALF_X + half * 16;
    kind.stage = ring.slots + ring.n * ring.size;
    stream_units(ring, a, kind, first, step);
}
extern "C" __global__ void __launch_bounds__(STREAM_THREADS, 1)
    stream_k(const __grid_constant__ struct lode_cuda_stream_args s) {
    products(s);
}

#endif
