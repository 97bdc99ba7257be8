/* few.cuh - products of a few rows (up to 32) with quantised weights, and what comes after them.
 *
 * As in gemv.cuh a warp's item is 16 rows of weights by 256 numbers, but the eight columns of the
 * tensor cores are eight rows of x: a weight is unpacked once for all of them.  C times eight
 * columns are computed at a time.
 *
 * Weights come into shared memory by asynchronous copies, a ring of items for each warp, so that
 * what is on its way needs no registers; no warp waits for another's.  x was put in the order in
 * which threads want it (few_x): every load is whole lines.
 *
 * An item's exact sums are added to its tile's sums in ascending order of blocks, as the definition
 * says.  Where several warps share a tile, each waits for the block before its own.
 */
#ifndef LODE_CUDA_FEW_CUH
#define LODE_CUDA_FEW_CUH

#include "gemv.cuh"

enum { FEW_WARPS = LODE_FEW_WARPS, FEW_THREADS = 32 * FEW_WARPS, FEW_ACC = 128 /* floats of a tile's sums, a group of columns */ };

/* Where things lie in a block of x: 256 numbers of eight rows. */
enum {
    X_FACTORS = 2048, /* A256: m, bytes of (two columns, group, column) */
    X_SUMS = 2112,    /* A256: the sixteen sums' low bytes, then high, as an mma takes them */
    X_SCALES = 2368,  /* A256: d of each column */
    X_BLOCKS = 2048,  /* A32: (d, sum) of (block, column) */
};

/* 16 rows by 32 bytes of a plane, as an mma takes them; p: row lane % 16, half lane / 16. */
DEVICE void rows_by_32(uint32_t v[4], const uint8_t *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(p))
                 : "memory");
}

/* A tile of rows of a part. */
struct __align__(16) few_tile {
    const uint8_t *w;
    uint32_t stride;
    uint16_t type;
    uint8_t rows, part;
};

/* ---- an item's place in shared memory: plane by plane, 16 rows each ---- */

template <class T> struct planes;
#define PLANES(name, dtype, block, ...)                                                            \
    template <> struct planes<struct name> {                                                       \
        static constexpr __device__ uint32_t size(int i) {                                         \
            const uint32_t v[][2] = {__VA_ARGS__};                                                 \
            return i < (int)(sizeof v / sizeof *v) ? v[i][1] : 0;                                  \
        }                                                                                          \
    };
LODE_CUDA_QUANT_LIST(PLANES)
#undef PLANES
template <class T, int I> struct plane_before {
    enum { SIZE = planes<T>::size(I - 1) + plane_before<T, I - 1>::SIZE };
};
template <class T> struct plane_before<T, 0> { enum { SIZE = 0 }; };
/* Bytes of a row of an item; from one row to the next, an odd number of 16 bytes, which keeps the banks
 * apart; where the plane begins. */
template <class T, int I> struct plane {
    enum {
        SIZE = planes<T>::size(I),
        BYTES = SIZE * (256 / T::BLOCK),
        STRIDE = BYTES >= 16 ? BYTES | 16 : (BYTES + 3) & ~3,
        AT = plane<T, I - 1>::AT + 16 * plane<T, I - 1>::STRIDE
    };
};
template <class T> struct plane<T, -1> { enum { AT = 0, STRIDE = 0 }; };

/* N pieces a row; a warp copies 32 of them at a time. */
template <class T, int I>
DEVICE void copy_plane(const struct few_tile &t, uint32_t nb, uint32_t b, uint8_t *slot) {
    typedef plane<T, I> P;
    constexpr uint32_t BYTES = P::BYTES, PIECE = BYTES % 16 == 0 ? 16 : BYTES % 8 == 0 ? 8 : 4,
                       N = BYTES < PIECE ? 1 : BYTES / PIECE, ALL = 16 * N, STRIDE = P::STRIDE;
    if constexpr (BYTES != 0) {
        const uint32_t lane = threadIdx.x % 32;
        /* of less than four bytes, those four that they lie in */
        const uint32_t from = (nb * (256 / T::BLOCK) * plane_before<T, I>::SIZE + b * BYTES) & ~3u;
        const uint8_t *w = t.w + from;
        slot += P::AT;
        if (32 % N || t.rows < 16) {
#pragma unroll 1
            for (uint32_t k = lane; k < ALL; k += 32) {
                const uint32_t row = k / N, piece = k % N * PIECE;
                copy_async<PIECE>(slot + row * STRIDE + piece,
                                  w + (size_t)(row < t.rows ? row : t.rows - 1) * t.stride + piece);
            }
        } else if (ALL >= 32 || lane < ALL) {
            const uint32_t row = lane / N, piece = lane % N * PIECE, next = 32 / N * t.stride;
            w += row * t.stride + piece;
            slot += row * STRIDE + piece;
#pragma unroll
            for (uint32_t i = 0; i < (ALL + 31) / 32; i++)
                copy_async<PIECE>(slot + i * (32 / N) * STRIDE, w + i * (size_t)next);
        }
    }
}
/* nb: items of a row. */
template <int BLOCK>
DEVICE void copy_item(const struct few_tile &t, uint32_t nb, uint32_t b, uint8_t *slot) {
    switch (t.type) {
#define COPY(name, dtype, block, ...)                                                              \
    case LODE_##dtype:                                                                             \
        if constexpr (BLOCK == block) {                                                            \
            copy_plane<struct name, 0>(t, nb, b, slot);                                            \
            copy_plane<struct name, 1>(t, nb, b, slot);                                            \
            copy_plane<struct name, 2>(t, nb, b, slot);                                            \
            copy_plane<struct name, 3>(t, nb, b, slot);                                            \
        }                                                                                          \
        break;
        LODE_CUDA_QUANT_LIST(COPY)
#undef COPY
    }
}

template <class T, int I> DEVICE const uint8_t *row_of(const uint8_t *slot, uint32_t row) {
    return slot + plane<T, I>::AT + row * plane<T, I>::STRIDE;
}
DEVICE uint32_t word_at(const uint8_t *p) { return *(const uint32_t *)p; }

/* ---- codes, as an mma takes them: of two neighbouring groups of 32 numbers, a and b ---- */

/* Of groups (or blocks) 2 p and 2 p + 1. */
#define PAIR(name)                                                                                 \
    DEVICE void pair_words(const struct name *, const uint8_t *slot, int p, uint32_t a[4],         \
                           uint32_t b[4])
template <class T, int I> DEVICE void plane_words(uint32_t v[4], const uint8_t *slot, uint32_t from) {
    const uint32_t lane = threadIdx.x % 32;
    rows_by_32(v, row_of<T, I>(slot, lane % 16) + 16 * (lane / 16) + from);
}
DEVICE void split_nibbles(uint32_t a[4], uint32_t b[4], const uint32_t v[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = v[i] & 0x0f0f0f0f, b[i] = v[i] >> 4 & 0x0f0f0f0f;
}
/* Where the nibbles of a byte are numbers 16 apart of one group. */
DEVICE void cross_nibbles(uint32_t a[4], uint32_t b[4], const uint32_t v[4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        a[i] = v[i] & 0x0f0f0f0f, a[2 + i] = v[i] >> 4 & 0x0f0f0f0f;
        b[i] = v[2 + i] & 0x0f0f0f0f, b[2 + i] = v[2 + i] >> 4 & 0x0f0f0f0f;
    }
}
DEVICE void cross_table(uint32_t a[4], uint32_t b[4], const uint32_t v[4], uint4 t) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        table16(&a[i], &a[2 + i], v[i], t);
        table16(&b[i], &b[2 + i], v[2 + i], t);
    }
}

PAIR(q4_k) {
    uint32_t v[4];
    plane_words<struct q4_k, 0>(v, slot, 32 * p);
    split_nibbles(a, b, v);
}
PAIR(q5_k) {
    uint32_t v[4], h[4];
    plane_words<struct q5_k, 0>(v, slot, 32 * p);
    plane_words<struct q5_k, 1>(h, slot, 0);
    split_nibbles(a, b, v);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] |= (h[i] >> (2 * p) & 0x01010101) << 4;
        b[i] |= (h[i] >> (2 * p + 1) & 0x01010101) << 4;
    }
}
PAIR(q6_k) { /* of half p / 2: bytes 0 to 31 and 32 to 63, low nibbles first */
    uint32_t v[4], w[4], h[4];
    const int from = 64 * (p / 2), shift = 4 * (p % 2);
    plane_words<struct q6_k, 0>(v, slot, from);
    plane_words<struct q6_k, 0>(w, slot, from + 32);
    plane_words<struct q6_k, 1>(h, slot, from / 2);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = (v[i] >> shift & 0x0f0f0f0f) | (h[i] >> shift & 0x03030303) << 4;
        b[i] = (w[i] >> shift & 0x0f0f0f0f) | (h[i] >> (shift + 2) & 0x03030303) << 4;
    }
}
template <class T>
DEVICE void pair_of_two_bits(const uint8_t *slot, int p, uint32_t a[4], uint32_t b[4]) {
    uint32_t v[4];
    plane_words<T, 0>(v, slot, 32 * (p / 2));
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = v[i] >> (4 * (p % 2)) & 0x03030303;
        b[i] = v[i] >> (4 * (p % 2) + 2) & 0x03030303;
    }
}
PAIR(q2_k) { pair_of_two_bits<struct q2_k>(slot, p, a, b); }
PAIR(q3_k) {
    uint32_t m[4];
    pair_of_two_bits<struct q3_k>(slot, p, a, b);
    plane_words<struct q3_k, 1>(m, slot, 0);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] |= (m[i] >> (2 * p) & 0x01010101) << 2;
        b[i] |= (m[i] >> (2 * p + 1) & 0x01010101) << 2;
    }
}
PAIR(iq4_xs) {
    uint32_t v[4];
    plane_words<struct iq4_xs, 0>(v, slot, 32 * p);
    cross_table(a, b, v, iq4_levels());
}
PAIR(q4_0) {
    uint32_t v[4];
    plane_words<struct q4_0, 0>(v, slot, 32 * p);
    cross_nibbles(a, b, v);
}
PAIR(q4_1) {
    uint32_t v[4];
    plane_words<struct q4_1, 0>(v, slot, 32 * p);
    cross_nibbles(a, b, v);
}
template <class T>
DEVICE void pair_of_five_bits(const uint8_t *slot, int p, uint32_t a[4], uint32_t b[4]) {
    const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    uint32_t v[4];
    plane_words<T, 0>(v, slot, 32 * p);
    cross_nibbles(a, b, v);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 h = *(const uint2 *)(row_of<T, 1>(slot, r + 8 * i) + 8 * p);
        a[i] |= fifth_bits(h.x >> (4 * q)), a[2 + i] |= fifth_bits(h.x >> (16 + 4 * q));
        b[i] |= fifth_bits(h.y >> (4 * q)), b[2 + i] |= fifth_bits(h.y >> (16 + 4 * q));
    }
}
PAIR(q5_0) { pair_of_five_bits<struct q5_0>(slot, p, a, b); }
PAIR(q5_1) { pair_of_five_bits<struct q5_1>(slot, p, a, b); }
PAIR(iq4_nl) {
    uint32_t v[4];
    plane_words<struct iq4_nl, 0>(v, slot, 32 * p);
    cross_table(a, b, v, iq4_levels());
}
PAIR(mxfp4) {
    uint32_t v[4];
    plane_words<struct mxfp4, 0>(v, slot, 32 * p);
    cross_table(a, b, v, fp4_levels());
}
PAIR(q8_0) {
    plane_words<struct q8_0, 0>(a, slot, 64 * p);
    plane_words<struct q8_0, 0>(b, slot, 64 * p + 32);
}

/* ---- scales of a row ---- */

/* s: scales as signed bytes, by groups (IQ4_XS: packed); own: the four of them, or of the minima of
 * groups of 16, that an mma wants of this thread. */
struct row_scales {
    uint32_t s[4], own;
    float2 d;
};
#define ROW_SCALES(name)                                                                           \
    DEVICE struct row_scales scales_of(const struct name *, const uint8_t *slot, uint32_t row,     \
                                       uint32_t b)
DEVICE struct row_scales k_row(uint4 head) {
    const uint32_t a = head.y, b = head.z, c = head.w;
    struct row_scales z = {{a & 0x3f3f3f3f, (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030)}, 0,
                           two_halves(head.x)};
    const uint32_t q = threadIdx.x % 4; /* minima 2 q and 2 q + 1, twice each */
    z.own = __byte_perm(b & 0x3f3f3f3f, (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030),
                        0x1100 + 0x2222 * q);
    return z;
}
ROW_SCALES(q4_k) { return k_row(*(const uint4 *)row_of<struct q4_k, 1>(slot, row)); }
ROW_SCALES(q5_k) { return k_row(*(const uint4 *)row_of<struct q5_k, 2>(slot, row)); }
/* One half of a word. */
DEVICE float half_of(uint32_t v, uint32_t b) { return f16_f32((uint16_t)(b & 1 ? v >> 16 : v)); }
ROW_SCALES(q6_k) {
    const uint4 v = *(const uint4 *)row_of<struct q6_k, 2>(slot, row);
    return {{v.x, v.y, v.z, v.w},
            word_at(row_of<struct q6_k, 2>(slot, row) + 4 * (threadIdx.x % 4)),
            make_float2(half_of(word_at(row_of<struct q6_k, 3>(slot, row)), b), 0)};
}
ROW_SCALES(q3_k) {
    const uint8_t *p = row_of<struct q3_k, 2>(slot, row);
    const uint32_t low[2] = {word_at(p), word_at(p + 4)}, h = word_at(p + 8);
    struct row_scales z = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t v = (low[i % 2] >> (i / 2 * 4) & 0x0f0f0f0f) | (h >> (2 * i) & 0x03030303) << 4;
        z.s[i] = ((v | 0x80808080) - 0x20202020) ^ 0x80808080;
        z.own = (int)(threadIdx.x % 4) == i ? z.s[i] : z.own;
    }
    z.d = make_float2(half_of(word_at(row_of<struct q3_k, 3>(slot, row)), b), 0);
    return z;
}
ROW_SCALES(q2_k) {
    const uint4 v = *(const uint4 *)row_of<struct q2_k, 1>(slot, row);
    const uint32_t low = 0x0f0f0f0f;
    return {{v.x & low, v.y & low, v.z & low, v.w & low},
            word_at(row_of<struct q2_k, 1>(slot, row) + 4 * (threadIdx.x % 4)) >> 4 & low,
            two_halves(word_at(row_of<struct q2_k, 2>(slot, row)))};
}
ROW_SCALES(iq4_xs) {
    const uint2 v = *(const uint2 *)row_of<struct iq4_xs, 1>(slot, row);
    return {{v.x, v.y}, 0, make_float2(f16_f32((uint16_t)v.x), 0)};
}
DEVICE int scale_of(const struct iq4_xs *, const struct row_scales &z, int g) {
    return (int)((z.s[1] >> (4 * g) & 15) | (z.s[0] >> (16 + 2 * g) & 3) << 4) - 32;
}
template <class T> DEVICE int scale_of(const T *, const struct row_scales &z, int g) {
    return (int8_t)(z.s[g / 4] >> (8 * (g % 4)));
}

/* Scale, and m, of block k of eight of 32; MXFP4's plane has one byte of exponent. */
template <class T> DEVICE float2 block_scale(const uint8_t *slot, uint32_t row, int k) {
    constexpr int PLANE_D = planes<T>::size(2) ? 2 : 1;
    constexpr uint32_t SIZE = planes<T>::size(PLANE_D);
    const uint8_t *p = row_of<T, PLANE_D>(slot, row) + SIZE * k;
    if constexpr (SIZE == 1)
        return make_float2(lode_bits_f32(*p < 2 ? 0x200000u << *p : (*p - 1u) << 23), 0);
    else if constexpr (SIZE == 2)
        return make_float2(f16_f32(*(const uint16_t *)p), 0);
    else
        return two_halves(word_at(p));
}

/* ---- whose turn it is ---- */

struct few_item {
    const uint8_t *slot, *x; /* x: of the block */
    float4 *acc;             /* the tile's sums, this thread's of each group of columns */
    uint32_t *turns;         /* of the tile, by group of columns; NULL: the warp has it alone */
    uint32_t b;              /* the tile's turn says so when it is this item's */
};
DEVICE void await_turn(const struct few_item &w, int c) {
    if (!w.turns || w.b == 0)
        return;
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(w.turns + c);
    uint32_t n;
    do
        asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(n) : "r"(at) : "memory");
    while (n != w.b);
}
DEVICE void end_turn(const struct few_item &w, int c) {
    if (!w.turns)
        return;
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(
                         (uint32_t)__cvta_generic_to_shared(w.turns + c)),
                     "r"(w.b + 1)
                     : "memory");
}
DEVICE float4 sums_so_far(const struct few_item &w, int c) {
    return w.b ? w.acc[32 * c] : make_float4(0, 0, 0, 0);
}

/* ---- an item ---- */

DEVICE uint4 read16(const uint8_t *p) { return *(const uint4 *)p; }
DEVICE uint2 read8(const uint8_t *p) { return *(const uint2 *)p; }

/* What an item needs of x first, on its way before the weights are looked at: codes of groups 0 and 1, or of
 * all eight of one group of columns; A256: the factors. */
template <int BLOCK, int C> struct few_x_first {
    uint4 codes[BLOCK == 256 ? C : 4], m[BLOCK == 256 ? C : 1];
};
template <int BLOCK, int C>
DEVICE void read_first(struct few_x_first<BLOCK, C> &v, const uint8_t *x) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (BLOCK == 256) {
#pragma unroll
        for (int c = 0; c < C; c++) {
            v.codes[c] = read16(x + c * LODE_FEW_X256 + 16 * lane);
            v.m[c] = read16(x + c * LODE_FEW_X256 + X_FACTORS + 16 * (lane % 4));
        }
    } else {
#pragma unroll
        for (int p = 0; p < 4; p++)
            v.codes[p] = read16(x + 512 * p + 16 * lane);
    }
}

/* Group g's dots with two columns and rows r and r + 8, times scales and factors: m's low bytes. */
template <class T>
DEVICE void add_group(int isum[4], const uint32_t w[4], uint32_t x0, uint32_t x1, uint32_t m,
                      const struct row_scales z[2], int g) {
    const T *const type = NULL;
    const int by[2] = {(int)(m & 255), (int)(m >> 8 & 255)};
    if constexpr (T::GROUP == 16) {
        int lo[4] = {}, hi[4] = {};
        mma_ss(lo, w[0], w[1], x0);
        mma_ss(hi, w[2], w[3], x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += by[e % 2] * (scale_of(type, z[e / 2], 2 * g) * lo[e] +
                                    scale_of(type, z[e / 2], 2 * g + 1) * hi[e]);
    } else {
        int dot[4] = {};
        mma_bytes(dot, w[0], w[1], w[2], w[3], x0, x1);
#pragma unroll
        for (int e = 0; e < 4; e++)
            isum[e] += scale_of(type, z[e / 2], g) * by[e % 2] * dot[e];
    }
}
DEVICE uint32_t pair_factors(uint4 m, int p) { return p == 0 ? m.x : p == 1 ? m.y : p == 2 ? m.z : m.w; }

template <class T, int C>
DEVICE void few_item_256(const struct few_item &w, struct few_x_first<256, C> &x) {
    const T *const type = NULL;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
    const struct row_scales z[2] = {scales_of(type, w.slot, r, w.b),
                                    scales_of(type, w.slot, r + 8, w.b)};
    int isum[C][4] = {};
#pragma unroll
    for (int p = 0; p < 4; p++) {
        uint32_t u[4], v[4];
        uint4 next[C];
#pragma unroll
        for (int c = 0; c < C && p < 3; c++) /* on their way while these are used */
            next[c] = read16(w.x + c * LODE_FEW_X256 + 512 * (p + 1) + 16 * lane);
        pair_words(type, w.slot, p, u, v);
#pragma unroll
        for (int c = 0; c < C; c++) {
            const uint4 a = x.codes[c];
            const uint32_t m = pair_factors(x.m[c], p);
            add_group<T>(isum[c], u, a.x, a.y, m, z, 2 * p);
            add_group<T>(isum[c], v, a.z, a.w, m >> 16, z, 2 * p + 1);
            x.codes[c] = next[c];
        }
    }
#pragma unroll
    for (int c = 0; c < C; c++) {
        const uint8_t *more = w.x + c * LODE_FEW_X256;
        const float2 dx = *(const float2 *)(more + X_SCALES + 8 * q);
        int side[4] = {};
        if (T::HAS_M || T::OFFSET) {
            const uint2 sums = read8(more + X_SUMS + 8 * lane);
            int low[4] = {}, high[4] = {};
            mma_su(low, z[0].own, z[1].own, sums.x);
            mma_ss(high, z[0].own, z[1].own, sums.y);
#pragma unroll
            for (int e = 0; e < 4; e++)
                side[e] = high[e] * 256 + low[e];
        }
        await_turn(w, c);
        const float4 so_far = sums_so_far(w, c);
        float v[4] = {so_far.x, so_far.y, so_far.z, so_far.w};
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float d = e % 2 ? dx.y : dx.x;
            v[e] = fmaf(z[e / 2].d.x * d, (float)(isum[c][e] - T::OFFSET * side[e]), v[e]);
            if (T::HAS_M)
                v[e] = fmaf(-(z[e / 2].d.y * d), (float)side[e], v[e]);
        }
        w.acc[32 * c] = make_float4(v[0], v[1], v[2], v[3]);
        end_turn(w, c);
    }
}

template <class T, int C>
DEVICE void few_item_32(const struct few_item &w, struct few_x_first<32, C> &first) {
    const T *const type = NULL;
    const uint32_t lane = threadIdx.x % 32, r = lane / 4, q = lane % 4;
#pragma unroll 1
    for (int c = 0; c < C; c++) {
        const uint8_t *x = w.x + c * LODE_FEW_X32;
        int dot[8][4] = {};
        if (c)
            read_first<32, C>(first, x);
#pragma unroll
        for (int p = 0; p < 4; p++) {
            uint32_t u[4], v[4];
            pair_words(type, w.slot, p, u, v);
            const uint4 a = first.codes[p];
            mma_bytes(dot[2 * p], u[0], u[1], u[2], u[3], a.x, a.y);
            mma_bytes(dot[2 * p + 1], v[0], v[1], v[2], v[3], a.z, a.w);
        }
        await_turn(w, c);
        const float4 so_far = sums_so_far(w, c);
        float v[4] = {so_far.x, so_far.y, so_far.z, so_far.w};
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const uint4 m = read16(x + X_BLOCKS + 64 * k + 16 * q); /* d, sum; d, sum */
            const float2 d[2] = {block_scale<T>(w.slot, r, k), block_scale<T>(w.slot, r + 8, k)};
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const float dx = lode_bits_f32(e % 2 ? m.z : m.x);
                const int sum = (int)(e % 2 ? m.w : m.y);
                v[e] = fmaf(d[e / 2].x * dx, (float)(dot[k][e] - T::OFFSET * sum), v[e]);
                if (T::HAS_M)
                    v[e] = fmaf(d[e / 2].y * dx, (float)sum, v[e]);
            }
        }
        w.acc[32 * c] = make_float4(v[0], v[1], v[2], v[3]);
        end_turn(w, c);
    }
}

template <int BLOCK, int C>
DEVICE void few_item(const struct few_item &w, struct few_x_first<BLOCK, C> &x, uint32_t type) {
    switch (type) {
#define ITEM(name, dtype, block, ...)                                                              \
    case LODE_##dtype:                                                                             \
        if constexpr (BLOCK == block) {                                                            \
            if constexpr (BLOCK == 256)                                                            \
                few_item_256<struct name, C>(w, x);                                                   \
            else                                                                                   \
                few_item_32<struct name, C>(w, x);                                                    \
        }                                                                                          \
        break;
        LODE_CUDA_QUANT_LIST(ITEM)
#undef ITEM
    }
}

/* ---- what comes after ---- */

/* Row r of a unit whose first row is `first` of part `part`, of row x; value(k): the sum of its tile k. */
template <class F>
DEVICE void few_finish(const struct lode_cuda_few_args &f, uint32_t part, uint32_t first, uint32_t r,
                       uint32_t x, F value) {
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t i = first + r;
    auto biased = [&](uint32_t p, float v) {
        return a.parts[p].bias ? v + at<const float>(a.parts[p].bias)[i] : v;
    };
    float v = biased(part, value(0));
    if (a.output == LODE_GEMV_GLU)
        v = glu_of(a.act, v, biased(1, value(1)));
    if (a.residual) {
        const float y = at<const float>(a.residual + x * f.residual_stride)[i];
        v = a.scale == 1.0f ? y + v : a.product_first ? fmaf(a.scale, y, v) : fmaf(a.scale, v, y);
    }
    at<float>(a.parts[part].y + x * f.y_stride[part])[i] = v;
}

/* ---- all of it ---- */

/* A warp's way through the items of its block of threads: the tiles of a pass block by block of x, every
 * FEW_WARPS-th item. */
struct few_walk {
    uint32_t first, some; /* tiles before the pass, and of it */
    uint32_t tile, b;     /* tile: of the pass */
    uint32_t tiles, blocks; /* to the next item */
};
DEVICE void walk_pass(struct few_walk &w, uint32_t first, uint32_t n_tiles, uint32_t most) {
    w.first = first;
    w.some = first >= n_tiles ? 0 : n_tiles - first < most ? n_tiles - first : most;
    if (w.some == 0)
        return;
    w.tile = threadIdx.x / 32 % w.some, w.b = threadIdx.x / 32 / w.some;
    w.tiles = FEW_WARPS % w.some, w.blocks = FEW_WARPS / w.some;
}
DEVICE void walk_on(struct few_walk &w) {
    w.tile += w.tiles;
    w.b += w.blocks;
    if (w.tile >= w.some)
        w.tile -= w.some, w.b++;
}

template <int BLOCK, int C> DEVICE void few(const struct lode_cuda_few_args &f) {
    constexpr uint32_t X_BLOCK = C * (BLOCK == 256 ? LODE_FEW_X256 : LODE_FEW_X32);
    __shared__ struct few_tile tiles[LODE_GEMV_TILES];
    __shared__ uint32_t first_row[LODE_GEMV_TILES];
    __shared__ uint32_t turns[FEW_WARPS * C];
    const struct lode_cuda_gemv_args &a = f.a;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, steps = a.cols / 256;
    const uint32_t n_tiles = (a.n_units + gridDim.x - 1 - blockIdx.x) / gridDim.x * a.per_unit;
    float *acc = row_mem;
    uint8_t *ring = (uint8_t *)row_mem + f.tiles * C * FEW_ACC * sizeof(float) +
                    (size_t)warp * f.depth * f.slot_size;
    let_next_come();
    if (threadIdx.x < n_tiles) {
        const struct tile t = tile_at(a, blockIdx.x + threadIdx.x / a.per_unit * gridDim.x,
                                      threadIdx.x % a.per_unit, TILE_ROWS);
        tiles[threadIdx.x] = {t.w, t.stride, (uint16_t)t.type, (uint8_t)t.rows, (uint8_t)t.part};
        first_row[threadIdx.x] = t.first;
    }
    if (threadIdx.x < FEW_WARPS * C)
        turns[threadIdx.x] = 0;
    __syncthreads();
    struct few_walk ahead, now;
    walk_pass(ahead, 0, n_tiles, f.tiles);
    uint32_t to = 0, from = 0; /* slots of the ring */
    auto ask = [&]() {                   /* for the next item */
        while (ahead.some && ahead.b >= steps)
            walk_pass(ahead, ahead.first + f.tiles, n_tiles, f.tiles);
        if (ahead.some) {
            copy_item<BLOCK>(tiles[ahead.first + ahead.tile], steps, ahead.b, ring + to);
            to = to + f.slot_size < f.depth * f.slot_size ? to + f.slot_size : 0;
            walk_on(ahead);
        }
        copies_end_group();
    };
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < f.depth; i++)
        ask();
    wait_for_last();
    for (walk_pass(now, 0, n_tiles, f.tiles); now.some;
         walk_pass(now, now.first + f.tiles, n_tiles, f.tiles)) {
        const bool alone = now.some == FEW_WARPS;
#pragma unroll 1
        for (; now.b < steps; walk_on(now)) {
            struct few_x_first<BLOCK, C> first;
            read_first<BLOCK, C>(first, at<const uint8_t>(a.x) + (size_t)now.b * X_BLOCK);
            ask();
            if (f.depth == 2)
                copies_wait<1>();
            else
                copies_wait<2>();
            __syncwarp();
            const struct few_item w = {ring + from,
                                       at<const uint8_t>(a.x) + (size_t)now.b * X_BLOCK,
                                       (float4 *)(acc + now.tile * C * FEW_ACC) + lane,
                                       alone ? NULL : turns + now.tile * C, now.b};
            few_item<BLOCK, C>(w, first, tiles[now.first + now.tile].type);
            __syncwarp();
            from = from + f.slot_size < f.depth * f.slot_size ? from + f.slot_size : 0;
        }
        __syncthreads();
        if (threadIdx.x < FEW_WARPS * C)
            turns[threadIdx.x] = 0;
        for (uint32_t i = threadIdx.x; i < now.some / a.per_unit * TILE_ROWS * 8 * C;
             i += FEW_THREADS) {
            const uint32_t r = i % TILE_ROWS, x = i / TILE_ROWS % (8 * C),
                           u = i / (TILE_ROWS * 8 * C) * a.per_unit;
            const struct few_tile &t = tiles[now.first + u];
            if (x < a.n_x && r < t.rows)
                few_finish(f, t.part, first_row[now.first + u], r, x, [&](uint32_t k) {
                    return acc[((u + k) * C + x / 8) * FEW_ACC + 16 * (r % 8) + x % 8 / 2 * 4 +
                               r / 8 * 2 + x % 2];
                });
        }
        __syncthreads();
    }
}

#endif
