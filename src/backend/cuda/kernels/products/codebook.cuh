/* codebook.cuh - reading the codebook types IQ1, IQ2 and IQ3, and ternary digits (TQ1_0, TQ2_0), as blocks.cuh's types.
 * Layouts and what they mean: tensor/block.h, kern/codebook.h.
 *
 * Chunk j of a type with groups of 32 is group j; with groups of 16 it is two of them, as q6_k's.  Codes have their signs,
 * and d a type's power of two.  Grids lie in memory, of which the first cache holds what is in use; with CODEBOOK_NEAR
 * they are in shared memory, where the kernel brings those that it wants. */
#ifndef LODE_CUDA_CODEBOOK_CUH
#define LODE_CUDA_CODEBOOK_CUH

#include "backend/cuda/kernels/planes.h"
#include "blocks.cuh"

#include "kern/iq_grids.h"
#ifdef CODEBOOK_NEAR
#define LODE_GRID(name, n, type)                                                                   \
    static __shared__ __align__(16) type grid_##name[n];                                           \
    static __device__ const __align__(16) type far_##name[n]
#include "kern/iq_grids_data.h"
template <class E> DEVICE E entry_of(const E *grid, uint32_t index) { return grid[index]; }

static_assert(sizeof grid_iq1 + sizeof grid_iq2_xxs + sizeof grid_iq2_xs + sizeof grid_iq2_s + sizeof grid_iq3_xxs +
                      sizeof grid_iq3_s == LODE_CODEBOOK_GRIDS, "planes.h");
#else
#define LODE_GRID(name, n, type) static __device__ const type grid_##name[n]
#include "kern/iq_grids_data.h"
DEVICE uint64_t entry_of(const uint64_t *grid, uint32_t index) { return __ldg((const unsigned long long *)grid + index); }
DEVICE uint32_t entry_of(const uint32_t *grid, uint32_t index) { return __ldg(grid + index); }
#endif

enum { IQ1_BIAS = 9, IQ1_PLUS = 2 };

/* Four numbers, none zero, where a bit is set negative. */
DEVICE uint32_t with_signs(uint32_t bytes, uint32_t four) {
    const uint32_t negative = bits_to_bytes(four);
    return (bytes ^ negative * 255) + negative;
}
/* Seven stored signs and the eighth that makes their number even. */
DEVICE uint32_t even_signs(uint32_t s) { return (s & 127) | (uint32_t)(__popc(s & 127) & 1) << 7; }

/* Numbers 8 i .. 8 i + 7 of a chunk. */
DEVICE void put_eight(struct chunk &c, int i, uint32_t low, uint32_t high, uint32_t signs) {
    c.q[2 * i] = with_signs(low, signs);
    c.q[2 * i + 1] = with_signs(high, signs >> 4);
}
DEVICE void put_eight(struct chunk &c, int i, uint64_t bytes, uint32_t signs) {
    put_eight(c, i, (uint32_t)bytes, (uint32_t)(bytes >> 32), signs);
}
DEVICE int odd(uint32_t s) { return (int)(2 * s + 1); }
DEVICE void one_group(struct chunk &c, int j, uint32_t scale) {
    c.g0 = 2 * j, c.g1 = 2 * j + 1;
    c.s0 = c.s1 = odd(scale);
    c.n0 = c.n1 = 0;
}
/* Group `half` of chunk j of a type with groups of 16. */
DEVICE int group_16(int j, int half) { return j / 4 * 8 + j % 4 + 4 * half; }
DEVICE void two_groups(struct chunk &c, int j, uint32_t first, uint32_t second) {
    c.g0 = group_16(j, 0), c.g1 = group_16(j, 1);
    c.s0 = odd(first), c.s1 = odd(second);
    c.n0 = c.n1 = 0;
}
/* The scale of a group of 16 from bytes that have two. */
template <class R> DEVICE uint32_t nibble_of(R &in, const uint8_t *scales, int g) {
    return in.load1(scales + g / 2) >> (g % 2 * 4) & 15;
}
DEVICE struct pair_of_scales odd_pair(uint32_t first, uint32_t second) { return {odd(first), odd(second), 0, 0}; }

BLOCK_TYPE(iq2_xxs, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        put_eight(c, i, entry_of(grid_iq2_xxs, v.x >> (8 * i) & 255), even_signs(v.y >> (7 * i)));
    one_group(c, j, v.y >> 28);
}
BLOCK_PAIR(iq2_xxs) {
    const uint8_t *words = PLANE(row, nb, 0, b, 64) + 4;
    return odd_pair(in.load4(words + 8 * q) >> 28, in.load4(words + 8 * q + 32) >> 28);
}
BLOCK_SCALE(iq2_xxs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 64, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq2_xs, 256, 0, 0, 16) {
    const uint8_t *qs = PLANE(row, nb, 0, b, 64), *scales = PLANE(row, nb, 64, b, 8);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t v = in.load4(qs + 4 * group_16(j, half));
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const uint32_t word = v >> (16 * i) & 0xffff;
            put_eight(c, 2 * half + i, entry_of(grid_iq2_xs, word & 511), even_signs(word >> 9));
        }
    }
    two_groups(c, j, nibble_of(in, scales, group_16(j, 0)), nibble_of(in, scales, group_16(j, 1)));
}
DEVICE int first_group(const struct iq2_xs *, int h, int q) { return 8 * h + 2 * q; }
BLOCK_PAIR(iq2_xs) {
    const uint32_t scales = in.load1(PLANE(row, nb, 64, b, 8) + first_group((struct iq2_xs *)0, h, q) / 2);
    return odd_pair(scales & 15, scales >> 4);
}
BLOCK_SCALE(iq2_xs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 72, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq2_s, 256, 0, 0, 16) {
    const uint8_t *scales = PLANE(row, nb, 72, b, 8);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int g = group_16(j, half);
        const uint32_t q = in.load2(PLANE(row, nb, 0, b, 32) + 2 * g), signs = in.load2(PLANE(row, nb, 32, b, 32) + 2 * g);
        const uint32_t high = in.load1(PLANE(row, nb, 64, b, 8) + g / 2) >> (g % 2 * 4);
#pragma unroll
        for (int i = 0; i < 2; i++)
            put_eight(c, 2 * half + i, entry_of(grid_iq2_s, (q >> (8 * i) & 255) | (high >> (2 * i) & 3) << 8),
                      signs >> (8 * i));
    }
    two_groups(c, j, nibble_of(in, scales, group_16(j, 0)), nibble_of(in, scales, group_16(j, 1)));
}
DEVICE int first_group(const struct iq2_s *, int h, int q) { return 8 * h + 2 * q; }
BLOCK_PAIR(iq2_s) {
    const uint32_t scales = in.load1(PLANE(row, nb, 72, b, 8) + first_group((struct iq2_s *)0, h, q) / 2);
    return odd_pair(scales & 15, scales >> 4);
}
BLOCK_SCALE(iq2_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 80, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq3_xxs, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
    const uint32_t word = in.load4(PLANE(row, nb, 64, b, 32) + 4 * j);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2));
        put_eight(c, i, entry_of(grid_iq3_xxs, two & 255), entry_of(grid_iq3_xxs, two >> 8 & 255), even_signs(word >> (7 * i)));
    }
    one_group(c, j, word >> 28);
}
BLOCK_PAIR(iq3_xxs) {
    const uint8_t *words = PLANE(row, nb, 64, b, 32);
    return odd_pair(in.load4(words + 4 * q) >> 28, in.load4(words + 4 * q + 16) >> 28);
}
BLOCK_SCALE(iq3_xxs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 96, b, 2))) * 0.25f, 0); }

BLOCK_TYPE(iq3_s, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
    const uint32_t signs = in.load4(PLANE(row, nb, 64, b, 32) + 4 * j), high = in.load1(PLANE(row, nb, 96, b, 8) + j);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2));
        put_eight(c, i, entry_of(grid_iq3_s, (two & 255) | (high >> (2 * i) & 1) << 8),
                  entry_of(grid_iq3_s, (two >> 8 & 255) | (high >> (2 * i + 1) & 1) << 8), signs >> (8 * i));
    }
    one_group(c, j, nibble_of(in, PLANE(row, nb, 104, b, 4), j));
}
BLOCK_PAIR(iq3_s) {
    const uint32_t scales = in.load4(PLANE(row, nb, 104, b, 4)) >> (4 * q);
    return odd_pair(scales & 15, scales >> 16 & 15);
}
BLOCK_SCALE(iq3_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 108, b, 2))), 0); }

/* ---- ternary ---- */

BLOCK_TYPE(tq2_0, 256, 0, 0, 32) {
    const uint8_t *qs = PLANE(row, nb, 0, b, 64) + j / 4 * 32;
    two_bits(c.q, in.load16(qs), j % 4 * 2);
    two_bits(c.q + 4, in.load16(qs + 16), j % 4 * 2);
#pragma unroll
    for (int i = 0; i < 8; i++)
        c.q[i] = less_one(c.q[i]);
    one_group(c, j, 0); /* a scale of 1 */
}
BLOCK_PAIR(tq2_0) { return odd_pair(0, 0); }
BLOCK_SCALE(tq2_0) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 64, b, 2))), 0); }

/* Digit k of four bytes, less one: what is above it falls out of a byte, and three times the rest has it there instead. */
DEVICE uint32_t digit_of_each(uint32_t v, int k) {
    const uint32_t power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81, even = 0x00ff00ff;
    const uint32_t low = ((v & even) * power & even) * 3 >> 8 & even, high = ((v >> 8 & even) * power & even) * 3 & ~even;
    return less_one(low | high);
}
BLOCK_TYPE(tq1_0, 256, 0, 0, 32) {
    if (j < 5) {
        const uint4 v = in.load16(PLANE(row, nb, 0, b, 32)), w = in.load16(PLANE(row, nb, 0, b, 32) + 16);
        c.q[0] = v.x, c.q[1] = v.y, c.q[2] = v.z, c.q[3] = v.w;
        c.q[4] = w.x, c.q[5] = w.y, c.q[6] = w.z, c.q[7] = w.w;
    } else {
        const uint4 v = in.load16(PLANE(row, nb, 32, b, 16));
        const uint32_t four = in.load4(PLANE(row, nb, 48, b, 4));
        const bool last = j == 7;
        c.q[0] = v.x, c.q[1] = v.y, c.q[2] = v.z, c.q[3] = v.w;
        c.q[4] = last ? four : v.x, c.q[5] = last ? four : v.y, c.q[6] = last ? four : v.z, c.q[7] = last ? four : v.w;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int k = j < 5 ? j : i < 4 ? 2 * (j - 5) : j < 7 ? 2 * (j - 5) + 1 : i - 4;
        c.q[i] = digit_of_each(c.q[i], k);
    }
    one_group(c, j, 0); /* a scale of 1 */
}
BLOCK_PAIR(tq1_0) { return odd_pair(0, 0); }
BLOCK_SCALE(tq1_0) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 52, b, 2))), 0); }

/* ---- IQ1 ---- */

/* Four and four numbers of an entry: eight times them and delta. */
DEVICE void put_iq1(struct chunk &c, int i, uint64_t bytes, bool minus) {
    /* of bytes up to 18, less 9: no byte borrows with its top bit set */
    const uint32_t add = minus ? 0 : IQ1_PLUS * 0x01010101u, top = 0x80808080u, bias = IQ1_BIAS * 0x01010101u;
    c.q[2 * i] = ((((uint32_t)bytes + add) | top) - bias) ^ top;
    c.q[2 * i + 1] = ((((uint32_t)(bytes >> 32) + add) | top) - bias) ^ top;
}
BLOCK_TYPE(iq1_s, 256, 0, 0, 32) {
    const uint32_t q = in.load4(PLANE(row, nb, 0, b, 32) + 4 * j), high = in.load2(PLANE(row, nb, 32, b, 16) + 2 * j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        put_iq1(c, i, entry_of(grid_iq1, (q >> (8 * i) & 255) | (high >> (3 * i) & 7) << 8), high & 0x8000);
    one_group(c, j, high >> 12 & 7);
}
BLOCK_PAIR(iq1_s) {
    const uint8_t *words = PLANE(row, nb, 32, b, 16);
    return odd_pair(in.load2(words + 2 * q) >> 12 & 7, in.load2(words + 2 * q + 8) >> 12 & 7);
}
BLOCK_SCALE(iq1_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 48, b, 2))) * 0.125f, 0); }

/* Scale of group g of 16: three bits of four words. */
template <class R> DEVICE uint32_t iq1_m_scale(R &in, const uint8_t *scales, int g) {
    return in.load2(scales + g / 4 * 2) >> (g % 4 * 3) & 7;
}
BLOCK_TYPE(iq1_m, 256, 0, 0, 16) {
    const uint8_t *scales = PLANE(row, nb, 48, b, 8);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int g = group_16(j, half);
        const uint32_t q = in.load2(PLANE(row, nb, 0, b, 32) + 2 * g), high = in.load1(PLANE(row, nb, 32, b, 16) + g);
#pragma unroll
        for (int i = 0; i < 2; i++)
            put_iq1(c, 2 * half + i, entry_of(grid_iq1, (q >> (8 * i) & 255) | (high >> (4 * i) & 7) << 8),
                    high >> (4 * i) & 8);
    }
    two_groups(c, j, iq1_m_scale(in, scales, group_16(j, 0)), iq1_m_scale(in, scales, group_16(j, 1)));
}
DEVICE int first_group(const struct iq1_m *, int h, int q) { return 8 * h + 2 * q; }
BLOCK_PAIR(iq1_m) {
    const uint8_t *scales = PLANE(row, nb, 48, b, 8);
    const int g = first_group((struct iq1_m *)0, h, q);
    return odd_pair(iq1_m_scale(in, scales, g), iq1_m_scale(in, scales, g + 1));
}
BLOCK_SCALE(iq1_m) { /* its half in the top nibbles of four words */
    const uint2 v = in.load8(PLANE(row, nb, 48, b, 8));
    const uint32_t half = (v.x >> 12 & 15) | (v.x >> 28) << 4 | (v.y >> 12 & 15) << 8 | (v.y >> 28) << 12;
    return make_float2(f16_f32((uint16_t)half) * 0.125f, 0);
}

#endif
