/* fast_items.cuh - items of packed weights (items.cuh) as halves, for products of --numerics fast.
 *
 * An item's rows are 256 numbers, the slice of K that the tensor cores add up by themselves (fast.cuh).  Of a row,
 *
 *     w = a q - b        a, b: of a group (d s, dmin m; d, -m), q: its code, an unsigned byte
 *
 * becomes the half of f w, f a power of two of its own for each row of an item, which the slice's sum is divided by:
 *
 *     half(f w) = fma(A, q 2^-24, -B)     A = half(2^24 f a), B = half(f b)
 *
 * A byte in a half's low bits is q 2^-24, subnormal, which costs an AND or a permutation for two codes, and one
 * multiply-add makes both their weights.  f puts the largest that A and B may be into [2^14, 2^15], so nothing
 * overflows: f |w| < 2^-9 * 255 + |B|.  2^24 f d and f m are exact.  So a weight errs by at most 2^-11 |w| for the
 * last rounding, as much for A's where a = d s, 2^-11 (|a q| + |b|) instead where b = dmin m (Q2_K, Q4_K, Q5_K), and
 * 2^-23 / f, at most 2^-13 of what a may be in the slice, for what is subnormal.
 *
 * Codes with signs are q + 128, b = 128 a; those less an offset, b = offset a. */
#ifndef LODE_CUDA_FAST_ITEMS_CUH
#define LODE_CUDA_FAST_ITEMS_CUH

#include "fast.cuh"

/* ---- pairs of halves ---- */

DEVICE uint32_t twice(uint16_t h) { return h * 0x10001u; }
DEVICE uint32_t fma_halves(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
DEVICE uint32_t halves_of_floats(float low, float high) {
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}
template <int I> DEVICE uint32_t one_twice(uint32_t v) { /* half I of v */
    uint32_t d;
    if (I)
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(d) : "r"(v));
    else
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(d) : "r"(v));
    return d;
}

/* ---- what codes mean ---- */

template <class T> struct code_of {
    enum {
        SIGNED = !T::HAS_M && T::OFFSET == 0,
        ZERO = SIGNED ? 128 : T::OFFSET, /* b / a, but of types with minima */
        MINUS_ZERO = 0x8000 | ZERO,      /* -ZERO 2^-24, as a half's bits */
    };
};

/* f, of the largest that a and b 2^-24 can be in magnitude: 2^24 f, f and 1 / f. */
struct item_scale {
    float a, b, undo;
};
DEVICE struct item_scale item_scale_of(float most) {
    const uint32_t e = lode_f32_bits(most) >> 23 & 255, n = e < 28 ? 28 : e > 243 ? 243 : e;
    return {lode_bits_f32((268 - n) << 23), lode_bits_f32((244 - n) << 23), lode_bits_f32((n + 10) << 23)};
}

/* A row of an item, as a thread needs it.  Blocks of 256: scales as bytes, less BIAS, and minima, by groups; 2^24 f d
 * and -f dmin as pairs.  Blocks of 32: A and -B of pairs of blocks. */
template <class T> struct fast_row {
    uint32_t s[4], m[4], d, min;
    float undo;
};
#define FAST_32(name)                                                                              \
    template <> struct fast_row<struct name> {                                                     \
        uint32_t a[4], b[4];                                                                       \
        float undo;                                                                                \
    };
FAST_32(q4_0)
FAST_32(q4_1)
FAST_32(q5_0)
FAST_32(q5_1)
FAST_32(q8_0)
FAST_32(iq4_nl)
FAST_32(mxfp4)

/* The largest that scales and minima of groups can be, powers of two; what is added to scales. */
template <class T> struct group_range { enum { S = 64, M = 64, BIAS = 0 }; };
template <> struct group_range<struct q2_k> { enum { S = 16, M = 16, BIAS = 0 }; };
template <> struct group_range<struct q3_k> { enum { S = 32, M = 0, BIAS = 128 }; };
template <> struct group_range<struct q6_k> { enum { S = 128, M = 0, BIAS = 128 }; };
template <> struct group_range<struct iq4_xs> { enum { S = 32, M = 0, BIAS = 32 }; };

template <class T> DEVICE void set_factors(struct fast_row<T> &z, float2 d) {
    typedef group_range<T> range;
    const struct item_scale f = item_scale_of(fmaxf(fabsf(d.x) * range::S, fabsf(d.y) * (range::M * 0x1p-24f)));
    z.d = twice(f32_f16(d.x * f.a));
    z.min = twice(f32_f16(-d.y * f.b));
    z.undo = f.undo;
}
#define FAST_ROW(name)                                                                             \
    DEVICE struct fast_row<struct name> fast_row_of(const struct name *, const uint8_t *slot,      \
                                                    uint32_t row, uint32_t b)
template <class T> DEVICE struct fast_row<T> k_fast_row(uint4 head) {
    struct fast_row<T> z;
    const uint32_t a = head.y, b = head.z, c = head.w;
    z.s[0] = a & 0x3f3f3f3f, z.s[1] = (c & 0x0f0f0f0f) | (a >> 2 & 0x30303030);
    z.m[0] = b & 0x3f3f3f3f, z.m[1] = (c >> 4 & 0x0f0f0f0f) | (b >> 2 & 0x30303030);
    set_factors<T>(z, two_halves(head.x));
    return z;
}
FAST_ROW(q4_k) { return k_fast_row<struct q4_k>(*(const uint4 *)row_of<struct q4_k, 1>(slot, row)); }
FAST_ROW(q5_k) { return k_fast_row<struct q5_k>(*(const uint4 *)row_of<struct q5_k, 2>(slot, row)); }
FAST_ROW(q2_k) {
    const struct row_scales r = scales_of((const struct q2_k *)NULL, slot, row, b);
    const uint4 v = *(const uint4 *)row_of<struct q2_k, 1>(slot, row);
    const uint32_t low = 0x0f0f0f0f;
    struct fast_row<struct q2_k> z = {{r.s[0], r.s[1], r.s[2], r.s[3]},
                                      {v.x >> 4 & low, v.y >> 4 & low, v.z >> 4 & low, v.w >> 4 & low}};
    set_factors<struct q2_k>(z, r.d);
    return z;
}
template <class T> DEVICE struct fast_row<T> signed_fast_row(const struct row_scales &r) {
    struct fast_row<T> z;
#pragma unroll
    for (int i = 0; i < 4; i++)
        z.s[i] = r.s[i] ^ 0x80808080;
    set_factors<T>(z, make_float2(r.d.x, 0));
    return z;
}
FAST_ROW(q3_k) { return signed_fast_row<struct q3_k>(scales_of((const struct q3_k *)NULL, slot, row, b)); }
FAST_ROW(q6_k) { return signed_fast_row<struct q6_k>(scales_of((const struct q6_k *)NULL, slot, row, b)); }
/* Four bits of a group in v.y, two in v's upper half. */
FAST_ROW(iq4_xs) {
    const uint2 v = *(const uint2 *)row_of<struct iq4_xs, 1>(slot, row);
    uint32_t high = v.x >> 16;
    high = (high | high << 8) & 0x00ff00ff;
    high = (high | high << 4) & 0x0f0f0f0f; /* of two groups a byte */
    const uint32_t even = (v.y & 0x0f0f0f0f) | (high & 0x03030303) << 4,
                   odd = (v.y >> 4 & 0x0f0f0f0f) | (high & 0x0c0c0c0c) << 2;
    struct fast_row<struct iq4_xs> z;
    z.s[0] = __byte_perm(even, odd, 0x5140), z.s[1] = __byte_perm(even, odd, 0x7362);
    set_factors<struct iq4_xs>(z, make_float2(f16_f32((uint16_t)v.x), 0));
    return z;
}

/* Scales (and m) of eight blocks of 32. */
template <class T> DEVICE void block_scales(float2 (&d)[8], const uint8_t *slot, uint32_t row) {
    constexpr int PLANE_D = planes<T>::size(2) ? 2 : 1, SIZE = planes<T>::size(PLANE_D);
    const uint8_t *p = row_of<T, PLANE_D>(slot, row);
#pragma unroll
    for (int k = 0; k < 8; k++)
        if (SIZE == 1)
            d[k] = block_scale<T>(slot, row, k);
        else if (SIZE == 4)
            d[k] = two_halves(word_at(p + 4 * k));
        else /* a word's halves; of one load */
            d[k] = make_float2(half_of(word_at(p + k / 2 * 4), k), 0);
}
template <class T> DEVICE struct fast_row<T> fast_row_of(const T *, const uint8_t *slot, uint32_t row, uint32_t) {
    struct fast_row<T> z;
    float2 d[8];
    float most = 0;
    block_scales<T>(d, slot, row);
#pragma unroll
    for (int k = 0; k < 8; k++)
        most = fmaxf(fmaxf(most, fabsf(d[k].x)), fabsf(d[k].y) * 0x1p-24f);
    const struct item_scale f = item_scale_of(most);
#pragma unroll
    for (int p = 0; p < 4; p++) {
        z.a[p] = halves_of_floats(d[2 * p].x * f.a, d[2 * p + 1].x * f.a);
        z.b[p] = T::HAS_M ? halves_of_floats(d[2 * p].y * f.b, d[2 * p + 1].y * f.b)
                          : mul_halves(z.a[p], twice(code_of<T>::MINUS_ZERO));
    }
    z.undo = f.undo;
    return z;
}

/* ---- a and b of pairs of groups ---- */

/* A and -B of numbers 16 k and on of pair p (64 numbers), k of 4. */
struct fast_groups {
    uint32_t a[4], b[4];
};
template <class T>
DEVICE void set_groups(struct fast_groups &g, const fast_row<T> &z, int p) {
    if constexpr (T::BLOCK == 256) {
        typedef group_range<T> range;
        constexpr int N = T::GROUP == 16 ? 2 : 1; /* pairs of groups */
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int i = N * p + n, pick = i % 2 ? 0x4342 : 0x4140;
            const uint32_t zero = twice(0x6400), magic = 0x64646464; /* 0x6400 + n: the bits of 1024 + n */
            const uint32_t a = mul_halves(sub_halves(__byte_perm(z.s[i / 2], magic, pick),
                                                     zero + twice(range::BIAS)), z.d);
            const uint32_t b = T::HAS_M ? mul_halves(sub_halves(__byte_perm(z.m[i / 2], magic, pick), zero), z.min)
                                        : mul_halves(a, twice(code_of<T>::MINUS_ZERO));
#pragma unroll
            for (int k = 0; k < 4 / N; k++) {
                const int to = 4 / N * n + k;
                g.a[to] = 2 * k < 4 / N ? one_twice<0>(a) : one_twice<1>(a);
                g.b[to] = 2 * k < 4 / N ? one_twice<0>(b) : one_twice<1>(b);
            }
        }
    } else {
        g.a[0] = g.a[1] = one_twice<0>(z.a[p]), g.a[2] = g.a[3] = one_twice<1>(z.a[p]);
        g.b[0] = g.b[1] = one_twice<0>(z.b[p]), g.b[2] = g.b[3] = one_twice<1>(z.b[p]);
    }
}

/* ---- weights ---- */

/* Four steps of 16 numbers of K, pair p: a thread's halves as mma and wgmma take them (row r: 0 and 2, row r + 8: 1
 * and 3), numbers 4 q and 4 q + 2 before 4 q + 1 and 4 q + 3. */
template <class T>
DEVICE void fast_pair(uint32_t (*h)[4], const uint8_t *slot, int p, const fast_row<T> z[2]) {
    const T *const type = NULL;
    uint32_t u[2][4];
    struct fast_groups g[2];
    pair_words(type, slot, p, u[0], u[1]);
    set_groups<T>(g[0], z[0], p);
    set_groups<T>(g[1], z[1], p);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const uint32_t v = u[k / 2][k % 2 * 2 + r], q = code_of<T>::SIGNED ? v ^ 0x80808080 : v;
            h[k][r] = fma_halves(g[r].a[k], q & 0x00ff00ff, g[r].b[k]);
            h[k][2 + r] = fma_halves(g[r].a[k], __byte_perm(q, 0, 0x4341), g[r].b[k]);
        }
}

#endif
