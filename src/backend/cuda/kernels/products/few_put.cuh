/* few_put.cuh - blocks of x of few rows' products, rounded or to be rounded, put where few.cuh's warps read them (few_x.cuh). */
#ifndef LODE_CUDA_FEW_PUT_CUH
#define LODE_CUDA_FEW_PUT_CUH

#include "few_x.cuh"

/* The word of a column's codes that has numbers 4 i and on of a block of 256. */
DEVICE uint32_t *code_word(uint8_t *y, uint32_t column, uint32_t i) {
    const uint32_t g = i / 8, k = i % 8;
    return (uint32_t *)(y + g / 2 * 512 + (4 * column + k % 4) * 16 + g % 2 * 8 + k / 4 * 4);
}

/* A block (kern.h's A256) to its column of y; by a warp. */
DEVICE void put_a256(uint8_t *y, uint32_t column, const uint8_t *block) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = lane; i < 64; i += 32)
        *code_word(y, column, i) = word_at(block + 48 + 4 * i);
    if (lane < 8)
        y[X_FACTORS + column / 2 * 16 + lane * 2 + column % 2] = block[4 + lane];
    if (lane < 4) {
        const uint2 v = *(const uint2 *)(block + 16 + 8 * lane);
        *(uint2 *)(y + X_SUMS + 16 * (4 * column + lane)) =
            make_uint2(__byte_perm(v.x, v.y, 0x6420), __byte_perm(v.x, v.y, 0x7531));
    }
    if (lane < 8) /* threads r, and 4 r + q has columns 2 q and 2 q + 1 */
        *(uint32_t *)(y + X_SUMS + 16 * (4 * lane + column / 2) + 8 + column % 2 * 4) = word_at(block);
}
/* Block k of eight: this thread's word of codes, and by its first thread what belongs to it. */
DEVICE void put_a32(uint8_t *y, uint32_t column, uint32_t k, uint32_t word, struct rounded r) {
    *code_word(y, column, 8 * k + word) = r.q;
    if (word == 0)
        *(uint2 *)(y + X_BLOCKS + 64 * k + column / 2 * 16 + column % 2 * 8) =
            make_uint2(lode_f32_bits(r.d), (uint32_t)r.sum);
}

/* Which of a block's 64 times four numbers a thread has, first and second. */
template <int BLOCK> DEVICE uint32_t at_of(uint32_t lane, uint32_t k) { return BLOCK == 256 ? 2 * lane + k : lane + 32 * k; }

/* Numbers 256 b and on of a column, by a warp; mem: room for such a block rounded to A256.  Columns that are no row are zeros.  rounded: the
 * row; NULL: numbers(b, v) has a thread's eight (at_of). */
template <int BLOCK, class F>
DEVICE void put_block(uint8_t *y, uint32_t column, uint32_t b, uint8_t *mem, bool here, const uint8_t *rounded, F numbers) {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (BLOCK == 256) {
        const uint8_t *block = mem;
        if (!here) {
            for (uint32_t i = lane; i < 304 / 4; i += 32)
                ((uint32_t *)mem)[i] = 0;
        } else if (rounded) {
            block = rounded + (size_t)b * 304;
        } else {
            float4 v[2];
            numbers(b, v);
            const float z[8] = {v[0].x, v[0].y, v[0].z, v[0].w, v[1].x, v[1].y, v[1].z, v[1].w};
            round_a256(mem, z);
        }
        __syncwarp();
        put_a256(y, column, block);
        __syncwarp();
    } else {
        float4 v[2];
        if (here && !rounded)
            numbers(b, v);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const uint32_t k = lane / 8 + 4 * half, i = lane % 8;
            struct rounded r = {0, 0, 0};
            if (here && rounded) {
                const uint8_t *block = rounded + (size_t)(8 * b + k) * 40;
                r = {*(const float *)block, *(const int *)(block + 4), word_at(block + 8 + 4 * i)};
            } else if (here) {
                r = round_a32(v[half]);
            }
            put_a32(y, column, k, i, r);
        }
    }
}

#endif
