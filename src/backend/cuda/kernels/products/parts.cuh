/* parts.cuh - reading blocks of several 32 numbers, whose scales lie together, as blocks.cuh's types of 32.  Codes have
 * their signs.  Of NVFP4 each half of 32 has a scale: GROUP is 16, and scale_at's second number is that of the other half. */
#ifndef LODE_CUDA_PARTS_CUH
#define LODE_CUDA_PARTS_CUH

#include "blocks.cuh"
#include "fp8.cuh"

/* What the block that number b of nb 32 is of has: `parts` of them a block. */
#define PART_PLANE(parts, before, size) PLANE(row, (nb) / (parts), before, (b) / (parts), size)

/* 1 in byte i where bit i of four is set, else -1. */
DEVICE uint32_t bits_to_signs(uint32_t four) { return ~(bits_to_bytes(four) * 0xfe); }
BLOCK_TYPE(q1_0, 32, 0, 0, 32) {
    const uint32_t v = in.load4(PART_PLANE(4, 0, 16) + b % 4 * 4);
#pragma unroll
    for (int t = 0; t < 8; t++)
        c.q[t] = bits_to_signs(v >> (4 * t));
    whole_block(c);
}
BLOCK_SCALE(q1_0) { return make_float2(f16_f32(in.load2(PART_PLANE(4, 16, 2))), 0); }

/* The four codes of two bits of byte i, less one, as bytes. */
DEVICE uint32_t pairs_to_bytes(uint32_t v, uint32_t i) {
    uint32_t x = v >> (8 * i) & 255;
    x |= x << 12;
    return less_one((x | x << 6) & 0x03030303);
}
BLOCK_TYPE(q2_0, 32, 0, 0, 32) {
    const uint2 v = in.load8(PART_PLANE(2, 0, 16) + b % 2 * 8);
#pragma unroll
    for (int t = 0; t < 4; t++) {
        c.q[t] = pairs_to_bytes(v.x, t);
        c.q[4 + t] = pairs_to_bytes(v.y, t);
    }
    whole_block(c);
}
BLOCK_SCALE(q2_0) { return make_float2(f16_f32(in.load2(PART_PLANE(2, 16, 2))), 0); }

/* Groups of 16, of eight bytes each: the low nibbles, then the high ones. */
DEVICE void fp4_halves(uint32_t q[8], uint4 v) {
    const uint4 t = fp4_levels();
    table16(&q[0], &q[2], v.x, t);
    table16(&q[1], &q[3], v.y, t);
    table16(&q[4], &q[6], v.z, t);
    table16(&q[5], &q[7], v.w, t);
}
/* E4M3 without a sign, halved; 0x7f is 0. */
DEVICE float ue4m3_half(uint32_t c) {
    const uint32_t man = c & 7, exp = c >> 3 & 15;
    return c == 0x7f ? 0.0f : exp ? (float)((8 + man) << exp) * 0x1p-11f : (float)man * 0x1p-10f;
}
BLOCK_TYPE(nvfp4, 32, 0, 0, 16) {
    fp4_halves(c.q, in.load16(PART_PLANE(2, 0, 32) + b % 2 * 16));
    whole_block(c);
}
BLOCK_SCALE(nvfp4) {
    const uint32_t d = in.load2(PART_PLANE(2, 32, 4) + b % 2 * 2);
    return make_float2(ue4m3_half(d & 255), ue4m3_half(d >> 8));
}
BLOCK_TYPE(nvfp4g, 32, 0, 0, 16) { /* a float that divides, then scales with their signs */
    fp4_halves(c.q, in.load16(PART_PLANE(2, 0, 32) + b % 2 * 16));
    whole_block(c);
}
BLOCK_SCALE(nvfp4g) {
    const uint2 v = in.load8(PART_PLANE(2, 32, 8));
    const uint32_t d = v.y >> (b % 2 * 16);
    const float by = lode_bits_f32(v.x);
    return make_float2(e4m3_of(d & 255) / by * 0.5f, e4m3_of(d >> 8 & 255) / by * 0.5f);
}

#endif
