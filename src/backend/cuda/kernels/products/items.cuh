/* items.cuh - items of weights, 16 rows by 256 numbers, in shared memory: where they lie, and their codes and
 * scales as the tensor cores take them.
 *
 * A warp's thread of lane l gets, of 16 rows by 32 numbers, four words of four codes: row l / 4, numbers 4 (l %
 * 4) and on; the same of row l / 4 + 8; and both again 16 numbers further. */
#ifndef LODE_CUDA_ITEMS_CUH
#define LODE_CUDA_ITEMS_CUH

#include "backend/cuda/kernels/planes.h"
#include "blocks.cuh"
#include "backend/cuda/kernels/copies.cuh"
#include "parts.cuh"

/* 16 rows by 32 bytes of a plane, as an mma takes them; p: row lane % 16, half lane / 16. */
DEVICE void rows_by_32(uint32_t v[4], const uint8_t *p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
                 : "r"(shared_address(p))
                 : "memory");
}

/* ---- an item's place in shared memory: plane by plane, 16 rows each ---- */

template <class T> struct planes;
#define PLANES(name, dtype, block, ...)                                                            \
    template <> struct planes<struct name> {                                                       \
        enum { NUMBERS = block }; /* that these are of */                                          \
        static constexpr __device__ uint32_t size(int i) {                                         \
            const uint32_t v[][2] = {__VA_ARGS__};                                                 \
            return i < (int)(sizeof v / sizeof *v) ? v[i][1] : 0;                                  \
        }                                                                                          \
    };
LODE_CUDA_QUANT_LIST(PLANES)
LODE_CUDA_OWN_LIST(PLANES)
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
        BYTES = SIZE * (256 / planes<T>::NUMBERS),
        STRIDE = BYTES >= 16 ? BYTES | 16 : (BYTES + 3) & ~3,
        AT = plane<T, I - 1>::AT + 16 * plane<T, I - 1>::STRIDE
    };
};
template <class T> struct plane<T, -1> { enum { AT = 0, STRIDE = 0 }; };

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
PAIR(u4) { /* the first 32 in one plane, the others in the next */
    const uint32_t lane = threadIdx.x % 32, row = lane % 16;
    uint32_t v[4];
    rows_by_32(v, (lane < 16 ? row_of<struct u4, 0>(slot, row) : row_of<struct u4, 1>(slot, row)) + 16 * p);
    cross_nibbles(a, b, v);
}
PAIR(q1_0) {
    const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint2 v = *(const uint2 *)(row_of<struct q1_0, 0>(slot, r + 8 * i) + 8 * p);
        a[i] = bits_to_signs(v.x >> (4 * q)), a[2 + i] = bits_to_signs(v.x >> (16 + 4 * q));
        b[i] = bits_to_signs(v.y >> (4 * q)), b[2 + i] = bits_to_signs(v.y >> (16 + 4 * q));
    }
}
PAIR(q2_0) {
    const uint32_t r = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 v = *(const uint4 *)(row_of<struct q2_0, 0>(slot, r + 8 * i) + 16 * p);
        a[i] = pairs_to_bytes(v.x, q), a[2 + i] = pairs_to_bytes(v.y, q);
        b[i] = pairs_to_bytes(v.z, q), b[2 + i] = pairs_to_bytes(v.w, q);
    }
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
    constexpr int PER = planes<T>::NUMBERS / 32; /* blocks that it is of */
    if constexpr (planes<T>::size(3) == 4) /* two floats */
        return make_float2(lode_bits_f32(word_at(row_of<T, 2>(slot, row) + k / PER * 4)),
                           lode_bits_f32(word_at(row_of<T, 3>(slot, row) + k / PER * 4)));
    constexpr int PLANE_D = planes<T>::size(2) ? 2 : 1;
    constexpr uint32_t SIZE = planes<T>::size(PLANE_D);
    const uint8_t *p = row_of<T, PLANE_D>(slot, row) + SIZE * (k / PER);
    if constexpr (SIZE == 1)
        return make_float2(lode_bits_f32(*p < 2 ? 0x200000u << *p : (*p - 1u) << 23), 0);
    else if constexpr (SIZE == 2)
        return make_float2(f16_f32(*(const uint16_t *)p), 0);
    else
        return two_halves(word_at(p));
}

#endif
