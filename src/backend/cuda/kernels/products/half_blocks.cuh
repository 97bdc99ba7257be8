/* half_blocks.cuh - half a block of 256 numbers of Q4_K, Q5_K or Q6_K by half a block of x, by one thread: dp4a.
 *
 * Four groups of 32 are as many as share a word of scales and of multipliers, and the dot products of a whole half cost
 * one reduction: about one instruction a number. */
#ifndef LODE_CUDA_HALF_BLOCKS_CUH
#define LODE_CUDA_HALF_BLOCKS_CUH

#include "stream_x.cuh"

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
    const uint8_t *codes_at, *x, *sums; /* of this half: 64 bytes; stream_x.cuh's */
    uint32_t h; /* 0, 1 */
    uint32_t turn; /* piece i of the codes lies at i ^ turn */
    DEVICE_MEMBER uint4 codes(uint32_t piece) const { return *(const uint4 *)(codes_at + 16 * (piece ^ turn)); }
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

/* What a half's thread leaves for the definition's sum over blocks: of the first half the codes' d and both halves' sum, of the
 * second the minima's and both halves' minimum.  d: two halves.  By neighbouring threads, which have a block. */
struct half_pair {
    float scale;
    int total;
    DEVICE_MEMBER void put(uint8_t *block, uint32_t h) const {
        *(float2 *)(block + h * 8) = make_float2(h ? -scale : scale, (float)total);
    }
};
DEVICE struct half_pair half_pair_of(const struct half_of &o, const struct half_sums &v, uint32_t d) {
    const int total = (o.h ? v.min : v.sum) + __shfl_xor_sync(0xffffffffu, o.h ? v.sum : v.min, 1);
    const float dx = *(const float *)(o.x + 128);
    return {f16_f32((uint16_t)(o.h ? d >> 16 : d)) * dx, total};
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
/* fifth: bits of 16 numbers, and of the next 16, piece i at i ^ swap; of both halves. */
DEVICE struct half_sums q5_k_half(const struct half_of &o, uint4 head, const uint8_t *fifth, uint32_t swap) {
    int dot[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint4 high = shifted(*(const uint4 *)(fifth + 16 * (i ^ swap)), 4 * o.h);
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
/* top: two bits of this half's numbers, piece i at i ^ swap; s: its eight scales. */
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
    uint32_t sum = 0; /* of one half more than 31 bits: exact modulo 2^32 */
    int offset = __dp2a_lo((int)z.x, (int)s.x, 0);
    offset = __dp2a_hi((int)z.y, (int)s.x, offset);
    offset = __dp2a_lo((int)z.z, (int)s.y, offset);
    offset = __dp2a_hi((int)z.w, (int)s.y, offset);
#pragma unroll
    for (int g = 0; g < 4; g++) {
        const uint32_t w = g < 2 ? s.x : s.y;
        const int two = signed_byte_of(w, 2 * (g % 2)) * dot[2 * g] + signed_byte_of(w, 2 * (g % 2) + 1) * dot[2 * g + 1];
        sum += (uint32_t)byte_of(m, g) * (uint32_t)two;
    }
    return {(int)(sum - 32u * (uint32_t)offset), 0};
}

#endif
