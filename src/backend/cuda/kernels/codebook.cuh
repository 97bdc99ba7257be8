/* codebook.cuh - reading the codebook types IQ1, IQ2 and IQ3 (kern/codebook.h) as blocks.cuh's types.
 *
 * Chunk j are the 32 numbers j of a block; codes have their signs, and d a type's power of two.  Grids lie in memory, of
 * which the first cache holds what is in use. */
#ifndef LODE_CUDA_CODEBOOK_CUH
#define LODE_CUDA_CODEBOOK_CUH

#include "blocks.cuh"

#define LODE_GRID(name, n, type) static __device__ const type grid_##name[n]
#include "kern/iq_grids.h"
#include "kern/iq_grids_data.h"

enum { IQ1_BIAS = 9, IQ1_PLUS = 2 };

/* Bit i of four to byte i. */
DEVICE uint32_t bits_to_bytes(uint32_t four) { return (four & 15) * 0x00204081 & 0x01010101; }
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
DEVICE void put_scales(struct chunk &c, int j, uint32_t first, uint32_t second) {
    c.g0 = 2 * j, c.g1 = 2 * j + 1;
    c.s0 = (int)(2 * first + 1), c.s1 = (int)(2 * second + 1);
    c.n0 = c.n1 = 0;
}
DEVICE uint64_t entry_of(const uint64_t *grid, uint32_t index) { return __ldg((const unsigned long long *)grid + index); }

BLOCK_TYPE(iq2_xxs, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        put_eight(c, i, entry_of(grid_iq2_xxs, v.x >> (8 * i) & 255), even_signs(v.y >> (7 * i)));
    put_scales(c, j, v.y >> 28, v.y >> 28);
}
BLOCK_SCALE(iq2_xxs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 64, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq2_xs, 256, 0, 0, 16) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t word = (i < 2 ? v.x : v.y) >> (16 * (i % 2)) & 0xffff;
        put_eight(c, i, entry_of(grid_iq2_xs, word & 511), even_signs(word >> 9));
    }
    const uint32_t scales = in.load1(PLANE(row, nb, 64, b, 8) + j);
    put_scales(c, j, scales & 15, scales >> 4);
}
BLOCK_SCALE(iq2_xs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 72, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq2_s, 256, 0, 0, 16) {
    const uint32_t q = in.load4(PLANE(row, nb, 0, b, 32) + 4 * j), signs = in.load4(PLANE(row, nb, 32, b, 32) + 4 * j);
    const uint32_t high = in.load1(PLANE(row, nb, 64, b, 8) + j), scales = in.load1(PLANE(row, nb, 72, b, 8) + j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        put_eight(c, i, entry_of(grid_iq2_s, (q >> (8 * i) & 255) | (high >> (2 * i) & 3) << 8), signs >> (8 * i));
    put_scales(c, j, scales & 15, scales >> 4);
}
BLOCK_SCALE(iq2_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 80, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq3_xxs, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
    const uint32_t word = in.load4(PLANE(row, nb, 64, b, 32) + 4 * j);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2));
        put_eight(c, i, __ldg(grid_iq3_xxs + (two & 255)), __ldg(grid_iq3_xxs + (two >> 8 & 255)), even_signs(word >> (7 * i)));
    }
    put_scales(c, j, word >> 28, word >> 28);
}
BLOCK_SCALE(iq3_xxs) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 96, b, 2))) * 0.25f, 0); }

BLOCK_TYPE(iq3_s, 256, 0, 0, 32) {
    const uint2 v = in.load8(PLANE(row, nb, 0, b, 64) + 8 * j);
    const uint32_t signs = in.load4(PLANE(row, nb, 64, b, 32) + 4 * j), high = in.load1(PLANE(row, nb, 96, b, 8) + j);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t two = (i < 2 ? v.x : v.y) >> (16 * (i % 2));
        put_eight(c, i, __ldg(grid_iq3_s + ((two & 255) | (high >> (2 * i) & 1) << 8)),
                  __ldg(grid_iq3_s + ((two >> 8 & 255) | (high >> (2 * i + 1) & 1) << 8)), signs >> (8 * i));
    }
    const uint32_t scale = in.load1(PLANE(row, nb, 104, b, 4) + j / 2) >> (j % 2 * 4) & 15;
    put_scales(c, j, scale, scale);
}
BLOCK_SCALE(iq3_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 108, b, 2))), 0); }

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
    put_scales(c, j, high >> 12 & 7, high >> 12 & 7);
}
BLOCK_SCALE(iq1_s) { return make_float2(f16_f32(in.load2(PLANE(row, nb, 48, b, 2))) * 0.125f, 0); }

BLOCK_TYPE(iq1_m, 256, 0, 0, 16) {
    const uint32_t q = in.load4(PLANE(row, nb, 0, b, 32) + 4 * j), high = in.load2(PLANE(row, nb, 32, b, 16) + 2 * j);
#pragma unroll
    for (int i = 0; i < 4; i++)
        put_iq1(c, i, entry_of(grid_iq1, (q >> (8 * i) & 255) | (high >> (4 * i) & 7) << 8), high >> (4 * i) & 8);
    const uint32_t scales = in.load2(PLANE(row, nb, 48, b, 8) + j / 2 * 2) >> (j % 2 * 6);
    put_scales(c, j, scales & 7, scales >> 3 & 7);
}
BLOCK_SCALE(iq1_m) { /* its half in the top nibbles of four words */
    const uint2 v = in.load8(PLANE(row, nb, 48, b, 8));
    const uint32_t half = (v.x >> 12 & 15) | (v.x >> 28) << 4 | (v.y >> 12 & 15) << 8 | (v.y >> 28) << 12;
    return make_float2(f16_f32((uint16_t)half) * 0.125f, 0);
}

#endif
