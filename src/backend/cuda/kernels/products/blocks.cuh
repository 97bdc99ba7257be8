/* blocks.cuh - reading quantised weights, 32 numbers at a time.
 *
 * A chunk is what one thread reads at once: two groups of 16 numbers of a block, g0 and g1 within the
 * block, whose codes lie in the same 16 or 32 bytes.  What a code stands for is q - OFFSET; products
 * take the offset out by the activations' own sums, which is the same integer.
 *
 *   isum = s0 m[g0 / 2] <q, x> + s1 ..   of 256-blocks;   <q, x> of 32-blocks
 *   w    = d s (q - OFFSET) - dmin mn    of 256-blocks;   d (q - OFFSET) + m of 32-blocks
 *
 * Layouts: tensor/block.h; the planes that a row is kept in: planes.h.
 */
#ifndef LODE_CUDA_BLOCKS_CUH
#define LODE_CUDA_BLOCKS_CUH

#include "backend/cuda/kernels/common.cuh"

struct chunk {
    uint32_t q[8];      /* codes as bytes: of g0, then of g1 */
    int s0, s1, n0, n1; /* 256-blocks: scales and minima */
    int g0, g1;
};

/* How weights are read: now; or in two steps, first all that is in memory (Reads), later, from what was kept, what it
 * means (Kept).  A type is written once, in terms of a reader; run twice, with the one and the other, each leaves
 * of it what is its own, and what is kept are registers.  Through the first cache: a line of weights is read in two
 * halves. */
struct reads_now {
    DEVICE_MEMBER uint4 load16(const uint8_t *p) { return __ldg((const uint4 *)p); }
    DEVICE_MEMBER uint2 load8(const uint8_t *p) { return __ldg((const uint2 *)p); }
    DEVICE_MEMBER uint32_t load4(const uint8_t *p) { return __ldg((const uint32_t *)p); }
    DEVICE_MEMBER uint16_t load2(const uint8_t *p) { return __ldg((const uint16_t *)p); }
    DEVICE_MEMBER uint8_t load1(const uint8_t *p) { return __ldg(p); }
};
struct kept_words {
    uint4 v[48]; /* what is not used takes no register */
};
struct reads_to_keep {
    struct kept_words &kept;
    int n = 0;
    DEVICE_MEMBER uint4 load16(const uint8_t *p) { return kept.v[n++] = __ldg((const uint4 *)p); }
    DEVICE_MEMBER uint2 load8(const uint8_t *p) {
        const uint2 v = __ldg((const uint2 *)p);
        kept.v[n].x = v.x, kept.v[n++].y = v.y;
        return v;
    }
    DEVICE_MEMBER uint32_t load4(const uint8_t *p) { return kept.v[n++].x = __ldg((const uint32_t *)p); }
    DEVICE_MEMBER uint16_t load2(const uint8_t *p) { return kept.v[n++].x = __ldg((const uint16_t *)p); }
    DEVICE_MEMBER uint8_t load1(const uint8_t *p) { return kept.v[n++].x = __ldg(p); }
};
struct reads_kept {
    const struct kept_words &kept;
    int n = 0;
    DEVICE_MEMBER uint4 load16(const uint8_t *) { return kept.v[n++]; }
    DEVICE_MEMBER uint2 load8(const uint8_t *) { return n++, make_uint2(kept.v[n - 1].x, kept.v[n - 1].y); }
    DEVICE_MEMBER uint32_t load4(const uint8_t *) { return kept.v[n++].x; }
    DEVICE_MEMBER uint16_t load2(const uint8_t *) { return (uint16_t)kept.v[n++].x; }
    DEVICE_MEMBER uint8_t load1(const uint8_t *) { return (uint8_t)kept.v[n++].x; }
};

/* Bytes of weights that will be read soon, on their way to the second cache: a multiple of 16.  Rows that
 * do not start at one are left alone. */
DEVICE void fetch_ahead(const uint8_t *p, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    if ((uintptr_t)p % 16 == 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes) : "memory");
#endif
}

DEVICE void low_nibbles(uint32_t q[4], uint4 v) {
    q[0] = v.x & 0x0f0f0f0f, q[1] = v.y & 0x0f0f0f0f, q[2] = v.z & 0x0f0f0f0f,
    q[3] = v.w & 0x0f0f0f0f;
}
DEVICE void high_nibbles(uint32_t q[4], uint4 v) {
    low_nibbles(q, make_uint4(v.x >> 4, v.y >> 4, v.z >> 4, v.w >> 4));
}
DEVICE void two_bits(uint32_t q[4], uint4 v, int shift) {
    q[0] = v.x >> shift & 0x03030303, q[1] = v.y >> shift & 0x03030303,
    q[2] = v.z >> shift & 0x03030303, q[3] = v.w >> shift & 0x03030303;
}
/* Bit `bit` of each byte of v, as bit `to` of the codes. */
DEVICE void or_bit(uint32_t q[4], uint4 v, int bit, int to) {
    const uint32_t one = 0x01010101u;
    q[0] |= (v.x >> bit & one) << to, q[1] |= (v.y >> bit & one) << to,
        q[2] |= (v.z >> bit & one) << to, q[3] |= (v.w >> bit & one) << to;
}
/* Bits 0..3 of v to bit 4 of the four bytes. */
DEVICE uint32_t fifth_bits(uint32_t v) {
    return (v & 1) << 4 | (v & 2) << 11 | (v & 4) << 18 | (v & 8) << 25;
}

/* Bit i of four to byte i. */
DEVICE uint32_t bits_to_bytes(uint32_t four) { return (four & 15) * 0x00204081 & 0x01010101; }
/* Four bytes below 128, less one each. */
DEVICE uint32_t less_one(uint32_t v) { return ((v | 0x80808080) - 0x01010101) ^ 0x80808080; }

/* Eight nibbles through a table of 16 bytes: lo gets those of the low nibbles, hi of the high. */
DEVICE void table16(uint32_t *lo, uint32_t *hi, uint32_t v, uint4 t) {
    uint32_t r[2];
    for (int i = 0; i < 2; i++, v >>= 16) {
        const uint32_t pick = v & 0x7777, upper = 0x3210 | (v & 0x8888) >> 1;
        r[i] = __byte_perm(__byte_perm(t.x, t.y, pick), __byte_perm(t.z, t.w, pick), upper);
    }
    *lo = __byte_perm(r[0], r[1], 0x6420);
    *hi = __byte_perm(r[0], r[1], 0x7531);
}
DEVICE void table_nibbles(uint32_t q[8], uint4 v, uint4 t) {
    table16(&q[0], &q[4], v.x, t);
    table16(&q[1], &q[5], v.y, t);
    table16(&q[2], &q[6], v.z, t);
    table16(&q[3], &q[7], v.w, t);
}
/* kern/iq_grids.h's levels, four to a word */
DEVICE uint4 iq4_levels() { return make_uint4(0xbfad9881, 0xf6eaddcf, 0x26190d01, 0x71594535); }
DEVICE uint4 fp4_levels() { return make_uint4(0x03020100, 0x0c080604, 0xfdfeff00, 0xf4f8fafc); }

/* What a plane-wise row of nb blocks of type T has at block b. */
#define PLANE(row, nb, before, b, size) ((row) + (size_t)(nb) * (before) + (size_t)(b) * (size))

/* Q4_K, Q5_K: scale and minimum of group of 32 number g, from the block's 12 bytes. */
DEVICE void k_scale(uint32_t a, uint32_t b, uint32_t c, int g, int *scale, int *min) {
    const int shift = 8 * (g & 3);
    const uint32_t sa = a >> shift, sb = b >> shift, sc = c >> shift;
    if (g < 4) {
        *scale = sa & 63;
        *min = sb & 63;
    } else {
        *scale = (sc & 15) | (sa >> 2 & 0x30);
        *min = (sc >> 4 & 15) | (sb >> 2 & 0x30);
    }
}
DEVICE void k_scales(struct chunk &c, uint4 head, int pair) {
    k_scale(head.y, head.z, head.w, 2 * pair, &c.s0, &c.n0);
    k_scale(head.y, head.z, head.w, 2 * pair + 1, &c.s1, &c.n1);
}

#define BLOCK_TYPE(name, block, offset, has_m, group)                                              \
    struct name {                                                                                  \
        enum { BLOCK = block, OFFSET = offset, HAS_M = has_m, GROUP = group /* of a scale */ };    \
        template <class R>                                                                         \
        static DEVICE_MEMBER void chunk_at(struct chunk &c, R &in, const uint8_t *row, uint32_t nb, \
                                           uint32_t b, int j);                                     \
        static DEVICE_MEMBER void chunk_at(struct chunk &c, const uint8_t *row, uint32_t nb,       \
                                           uint32_t b, int j) {                                    \
            struct reads_now in;                                                                   \
            chunk_at(c, in, row, nb, b, j);                                                        \
        }                                                                                          \
        /* scale, and minimum or m */                                                              \
        template <class R>                                                                         \
        static DEVICE_MEMBER float2 scale_at(R &in, const uint8_t *row, uint32_t nb, uint32_t b);  \
        static DEVICE_MEMBER float2 scale_at(const uint8_t *row, uint32_t nb, uint32_t b) {        \
            struct reads_now in;                                                                   \
            return scale_at(in, row, nb, b);                                                       \
        }                                                                                          \
    };                                                                                             \
    template <class R>                                                                             \
    DEVICE_MEMBER void name::chunk_at(struct chunk &c, R &in, const uint8_t *row, uint32_t nb,     \
                                      uint32_t b, int j)
#define BLOCK_SCALE(name)                                                                          \
    template <class R>                                                                             \
    DEVICE_MEMBER float2 name::scale_at(R &in, const uint8_t *row, uint32_t nb, uint32_t b)

/* Blocks of 32 whose halves have a scale each, scale_at's second number that of the last 16; and whether what a block of 32
 * adds are two products, of which the second has m, or that scale. */
template <class T> struct terms_of {
    enum { HALVES = T::BLOCK == 32 && T::GROUP == 16, TWO = T::HAS_M || HALVES };
};

DEVICE float2 two_halves(uint32_t v) {
    return make_float2(f16_f32((uint16_t)v), f16_f32((uint16_t)(v >> 16)));
}
DEVICE void whole_block(struct chunk &c) {
    c.g0 = 0, c.g1 = 1;
    c.s0 = c.s1 = 1;
    c.n0 = c.n1 = 0;
}

BLOCK_TYPE(q4_0, 32, 8, 0, 32) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 16));
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    whole_block(c);
}
BLOCK_SCALE(q4_0) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 16, b, 2))), 0); }

BLOCK_TYPE(q4_1, 32, 0, 1, 32) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 16));
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    whole_block(c);
}
BLOCK_SCALE(q4_1) { return two_halves(in.load4(PLANE(row, nb, 16, b, 4))); }

template <class R> DEVICE void five_bits(struct chunk &c, R &in, const uint8_t *row, uint32_t nb, uint32_t b) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 16));
    const uint32_t h = in.load4(PLANE(row, nb, 16, b, 4));
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    for (int i = 0; i < 8; i++)
        c.q[i] |= fifth_bits(h >> (4 * i));
    whole_block(c);
}
BLOCK_TYPE(q5_0, 32, 16, 0, 32) { five_bits(c, in, row, nb, b); }
BLOCK_SCALE(q5_0) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 20, b, 2))), 0); }
BLOCK_TYPE(q5_1, 32, 0, 1, 32) { five_bits(c, in, row, nb, b); }
BLOCK_SCALE(q5_1) { return two_halves(in.load4(PLANE(row, nb, 20, b, 4))); }

BLOCK_TYPE(q8_0, 32, 0, 0, 32) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 32)), w = in.load16(PLANE(row, nb, 0, b, 32) + 16);
    c.q[0] = v.x, c.q[1] = v.y, c.q[2] = v.z, c.q[3] = v.w;
    c.q[4] = w.x, c.q[5] = w.y, c.q[6] = w.z, c.q[7] = w.w;
    whole_block(c);
}
BLOCK_SCALE(q8_0) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 32, b, 2))), 0); }

BLOCK_TYPE(iq4_nl, 32, 0, 0, 32) {
    table_nibbles(c.q, in.load16(PLANE(row, nb, 0, b, 16)), iq4_levels());
    whole_block(c);
}
BLOCK_SCALE(iq4_nl) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 16, b, 2))), 0); }

BLOCK_TYPE(mxfp4, 32, 0, 0, 32) {
    table_nibbles(c.q, in.load16(PLANE(row, nb, 0, b, 16)), fp4_levels());
    whole_block(c);
}
BLOCK_SCALE(mxfp4) {
    const uint32_t e = in.load1(PLANE(row, nb, 16, b, 1));
    return make_float2(lode_bits_f32(e < 2 ? 0x200000u << e : (e - 1) << 23), 0);
}

/* lode's own types: codes of 32 numbers in planes of bits, the lowest first (tensor/block.h). */

/* Two planes of 32 numbers, that of the first 32 of a pair and that of the second. */
#define U_PLANE(before, size)                                                                      \
    PLANE(row, (nb) / 2, (before) + (b) % 2 * (size), (b) / 2, size)

DEVICE void four_bits(uint32_t q[8], uint4 v) {
    low_nibbles(q, v);
    high_nibbles(q + 4, v);
}
/* Bits 2 t, 2 t + 1 of byte 4 h + j belong to number 16 h + 4 t + j. */
DEVICE void or_two_bits(uint32_t q[8], uint2 v, int to) {
#pragma unroll
    for (int t = 0; t < 4; t++) {
        q[t] |= (v.x >> (2 * t) & 0x03030303u) << to;
        q[4 + t] |= (v.y >> (2 * t) & 0x03030303u) << to;
    }
}
/* Bit t of byte j belongs to number 4 t + j. */
DEVICE void or_one_bit(uint32_t q[8], uint32_t v, int to) {
#pragma unroll
    for (int t = 0; t < 8; t++)
        q[t] |= (v >> t & 0x01010101u) << to;
}
DEVICE void no_bits(uint32_t q[8]) {
#pragma unroll
    for (int t = 0; t < 8; t++)
        q[t] = 0;
}
DEVICE void eight_bits(uint32_t q[8], uint4 v, uint4 w) { /* q - 128 */
    const uint32_t top = 0x80808080u;
    q[0] = v.x ^ top, q[1] = v.y ^ top, q[2] = v.z ^ top, q[3] = v.w ^ top;
    q[4] = w.x ^ top, q[5] = w.y ^ top, q[6] = w.z ^ top, q[7] = w.w ^ top;
}
DEVICE float2 two_floats(uint32_t d, uint32_t m) {
    return make_float2(lode_bits_f32(d), lode_bits_f32(m));
}
/* d and m of a pair of 32, behind its codes. */
#define U_SCALE(codes)                                                                             \
    two_floats(in.load4(PLANE(row, nb / 2, codes, b / 2, 4)),                                         \
               in.load4(PLANE(row, nb / 2, (codes) + 4, b / 2, 4)))

BLOCK_TYPE(u2, 32, 0, 1, 32) {
    no_bits(c.q);
    or_two_bits(c.q, in.load8(U_PLANE(0, 8)), 0);
    whole_block(c);
}
BLOCK_SCALE(u2) { return U_SCALE(16); }
BLOCK_TYPE(u3, 32, 0, 1, 32) {
    no_bits(c.q);
    or_two_bits(c.q, in.load8(U_PLANE(0, 8)), 0);
    or_one_bit(c.q, in.load4(U_PLANE(16, 4)), 2);
    whole_block(c);
}
BLOCK_SCALE(u3) { return U_SCALE(24); }
BLOCK_TYPE(u4, 32, 0, 1, 32) {
    four_bits(c.q, in.load16(U_PLANE(0, 16)));
    whole_block(c);
}
BLOCK_SCALE(u4) { return U_SCALE(32); }
BLOCK_TYPE(u5, 32, 0, 1, 32) {
    four_bits(c.q, in.load16(U_PLANE(0, 16)));
    or_one_bit(c.q, in.load4(U_PLANE(32, 4)), 4);
    whole_block(c);
}
BLOCK_SCALE(u5) { return U_SCALE(40); }
BLOCK_TYPE(u6, 32, 0, 1, 32) {
    four_bits(c.q, in.load16(U_PLANE(0, 16)));
    or_two_bits(c.q, in.load8(U_PLANE(32, 8)), 4);
    whole_block(c);
}
BLOCK_SCALE(u6) { return U_SCALE(48); }
BLOCK_TYPE(u8, 32, -128, 1, 32) {
    eight_bits(c.q, in.load16(U_PLANE(0, 32)), in.load16(U_PLANE(0, 32) + 16));
    whole_block(c);
}
BLOCK_SCALE(u8) { return U_SCALE(64); }
BLOCK_TYPE(u4g32, 32, 0, 1, 32) {
    four_bits(c.q, in.load16(PLANE(row, nb, 0, b, 16)));
    whole_block(c);
}
BLOCK_SCALE(u4g32) {
    const uint2 v = in.load8(PLANE(row, nb, 16, b, 8));
    return two_floats(v.x, v.y);
}
BLOCK_TYPE(u8g32, 32, -128, 1, 32) {
    eight_bits(c.q, in.load16(PLANE(row, nb, 0, b, 32)), in.load16(PLANE(row, nb, 0, b, 32) + 16));
    whole_block(c);
}
BLOCK_SCALE(u8g32) {
    const uint2 v = in.load8(PLANE(row, nb, 32, b, 8));
    return two_floats(v.x, v.y);
}

/* Chunk j = 4 h + 2 p + i of the two-bit types: half h, bits 4 p and up, 16 bytes i. */
BLOCK_TYPE(q2_k, 256, 0, 1, 16) {
    const int h = j / 4, p = j / 2 % 2, i = j % 2;
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 64) + 32 * h + 16 * i);
    const uint8_t *scales = PLANE(row, nb, 64, b, 16);
    two_bits(c.q, v, 4 * p);
    two_bits(c.q + 4, v, 4 * p + 2);
    c.g0 = 8 * h + 4 * p + i;
    c.g1 = c.g0 + 2;
    const int a = in.load1(scales + c.g0), z = in.load1(scales + c.g1);
    c.s0 = a & 15, c.s1 = z & 15;
    c.n0 = a >> 4, c.n1 = z >> 4;
}
BLOCK_SCALE(q2_k) { return two_halves(in.load4(PLANE(row, nb, 80, b, 4))); }

template <class R> DEVICE int q3_scale(R &in, const uint8_t *s, int g) {
    const int lo = in.load1(s + g % 8) >> (g / 8 * 4) & 15, hi = in.load1(s + 8 + g % 4) >> (g / 4 * 2) & 3;
    return (lo | hi << 4) - 32;
}
BLOCK_TYPE(q3_k, 256, 4, 0, 16) {
    const int h = j / 4, p = j / 2 % 2, i = j % 2;
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 64) + 32 * h + 16 * i);
    const uint4 m = in.load16(PLANE(row, nb, 64, b, 32) + 16 * i);
    const uint8_t *scales = PLANE(row, nb, 96, b, 12);
    two_bits(c.q, v, 4 * p);
    two_bits(c.q + 4, v, 4 * p + 2);
    or_bit(c.q, m, 4 * h + 2 * p, 2);
    or_bit(c.q + 4, m, 4 * h + 2 * p + 1, 2);
    c.g0 = 8 * h + 4 * p + i;
    c.g1 = c.g0 + 2;
    c.s0 = q3_scale(in, scales, c.g0), c.s1 = q3_scale(in, scales, c.g1);
    c.n0 = c.n1 = 0;
}
BLOCK_SCALE(q3_k) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 108, b, 2))), 0); }

BLOCK_TYPE(q4_k, 256, 0, 1, 32) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 128) + 16 * j);
    const uint4 head = in.load16(PLANE(row, nb, 128, b, 16));
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    c.g0 = 4 * (j / 2) + j % 2;
    c.g1 = c.g0 + 2;
    k_scales(c, head, j / 2);
}
BLOCK_SCALE(q4_k) { return two_halves(in.load4(PLANE(row, nb, 128, b, 16))); }

BLOCK_TYPE(q5_k, 256, 0, 1, 32) {
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 128) + 16 * j);
    const uint4 high = in.load16(PLANE(row, nb, 128, b, 32) + 16 * (j % 2));
    const uint4 head = in.load16(PLANE(row, nb, 160, b, 16));
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    or_bit(c.q, high, j / 2 * 2, 4);
    or_bit(c.q + 4, high, j / 2 * 2 + 1, 4);
    c.g0 = 4 * (j / 2) + j % 2;
    c.g1 = c.g0 + 2;
    k_scales(c, head, j / 2);
}
BLOCK_SCALE(q5_k) { return two_halves(in.load4(PLANE(row, nb, 160, b, 16))); }

/* Chunk j = 4 h + 2 k + i: bytes 64 h + 32 k + 16 i of ql hold numbers 128 h + 32 k + 16 i (low) and
 * 64 more (high). */
BLOCK_TYPE(q6_k, 256, 32, 0, 16) {
    const int h = j / 4, k = j / 2 % 2, i = j % 2;
    const uint4 v = in.load16(PLANE(row, nb, 0, b, 128) + 16 * j);
    const uint4 high = in.load16(PLANE(row, nb, 128, b, 64) + 32 * h + 16 * i);
    const uint8_t *scales = PLANE(row, nb, 192, b, 16);
    uint32_t z[4];
    low_nibbles(c.q, v);
    high_nibbles(c.q + 4, v);
    two_bits(z, high, 2 * k);
    for (int n = 0; n < 4; n++)
        c.q[n] |= z[n] << 4;
    two_bits(z, high, 2 * k + 4);
    for (int n = 0; n < 4; n++)
        c.q[4 + n] |= z[n] << 4;
    c.g0 = 8 * h + 2 * k + i;
    c.g1 = c.g0 + 4;
    c.s0 = (int8_t)in.load1(scales + c.g0), c.s1 = (int8_t)in.load1(scales + c.g1);
    c.n0 = c.n1 = 0;
}
BLOCK_SCALE(q6_k) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 208, b, 2))), 0); }

BLOCK_TYPE(iq4_xs, 256, 0, 0, 32) {
    const uint2 head = in.load8(PLANE(row, nb, 128, b, 8)); /* d, scales_h; scales_l */
    table_nibbles(c.q, in.load16(PLANE(row, nb, 0, b, 128) + 16 * j), iq4_levels());
    c.g0 = 2 * j, c.g1 = 2 * j + 1;
    const int lo = head.y >> (4 * j) & 15, hi = head.x >> (16 + 2 * j) & 3;
    c.s0 = c.s1 = (lo | hi << 4) - 32;
    c.n0 = c.n1 = 0;
}
BLOCK_SCALE(iq4_xs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 128, b, 8))), 0); }

/* ---- the scales of two groups, as gemv.cu's threads need them ---- */

/* Groups of 32: those of groups q and q + 4.  Groups of 16: those of group first_group(h, q) and the next. */
struct pair_of_scales { int s0, s1, n0, n1; };

DEVICE struct pair_of_scales k_pair(uint4 head, int q) {
    const uint32_t a = head.y >> (8 * q), b = head.z >> (8 * q), c = head.w >> (8 * q);
    struct pair_of_scales p;
    p.s0 = a & 63, p.n0 = b & 63;
    p.s1 = (c & 15) | (a >> 2 & 0x30);
    p.n1 = (c >> 4 & 15) | (b >> 2 & 0x30);
    return p;
}
#define BLOCK_PAIR(name)                                                                           \
    template <class R>                                                                             \
    DEVICE struct pair_of_scales pair_at(const struct name *, R &in, const uint8_t *row,           \
                                         uint32_t nb, uint32_t b, int h, int q)
BLOCK_PAIR(q4_k) { return k_pair(in.load16(PLANE(row, nb, 128, b, 16)), q); }
BLOCK_PAIR(q5_k) { return k_pair(in.load16(PLANE(row, nb, 160, b, 16)), q); }
BLOCK_PAIR(iq4_xs) {
    const uint2 head = in.load8(PLANE(row, nb, 128, b, 8));
    struct pair_of_scales p = {0, 0, 0, 0};
    p.s0 = (int)((head.y >> (4 * q) & 15) | (head.x >> (16 + 2 * q) & 3) << 4) - 32;
    p.s1 = (int)((head.y >> (4 * q + 16) & 15) | (head.x >> (24 + 2 * q) & 3) << 4) - 32;
    return p;
}
DEVICE int first_group(const struct q6_k *, int h, int q) { return 8 * h + 2 * q; }
DEVICE int first_group(const struct q2_k *, int h, int q) { return 8 * h + 4 * (q & 1) + (q & 2); }
DEVICE int first_group(const struct q3_k *, int h, int q) { return 8 * h + 4 * (q & 1) + (q & 2); }
BLOCK_PAIR(q6_k) {
    const uint32_t v = in.load2(PLANE(row, nb, 192, b, 16) + first_group((struct q6_k *)0, h, q));
    return {(int8_t)v, (int8_t)(v >> 8), 0, 0};
}
BLOCK_PAIR(q2_k) {
    const uint32_t v = in.load2(PLANE(row, nb, 64, b, 16) + first_group((struct q2_k *)0, h, q));
    return {(int)(v & 15), (int)(v >> 8 & 15), (int)(v >> 4 & 15), (int)(v >> 12)};
}
BLOCK_PAIR(q3_k) {
    const uint8_t *scales = PLANE(row, nb, 96, b, 12);
    const int g = first_group((struct q3_k *)0, h, q);
    return {q3_scale(in, scales, g), q3_scale(in, scales, g + 1), 0, 0};
}

/* The first number of a chunk's group in a row. */
template <class T> DEVICE uint32_t group_start(uint32_t b, int g) { return b * T::BLOCK + 16 * g; }

#endif
