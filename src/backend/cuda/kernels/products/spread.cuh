/* spread.cuh - rows rounded to blocks of 32 as products of many rows on Hopper's warpgroups read them (wide_x.cuh): in tiles of 64 or 128
 * rows, where the codes are wgmma's operands already.  What a tile is made of, and where a number of it lies, is said here alone: wide.cu
 * spreads rows, and who makes rows may leave them so (attention_wide.cu, wide_round.cuh).
 *
 *     stage 0            stage 1  ..     a stage: 128 numbers of each of the tile's n rows
 *     codes | scales     ..
 *
 *     codes    a panel (wgmma.cuh): row r has 128 bytes, two pieces of 16 for each of four blocks
 *     scales   of 64 rows, then of the next 64: struct quad_scales
 *
 * Blocks that a row's last stage lacks, and rows that the last tile lacks, may be anything: no product that is stored has them. */
#ifndef LODE_CUDA_SPREAD_CUH
#define LODE_CUDA_SPREAD_CUH

#include "backend/cuda/kernels/rows.cuh"
#include "backend/cuda/kernels/shared_memory.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

/* What comes with four blocks of rows of x, so many of them and then of the next: scales, and sums of codes, where place_of_scale says. */
enum { X_ROWS = 64 };
struct quad_scales {
    float d[4][X_ROWS], sum[4][X_ROWS];
};
/* What a thread wants for two tiles of eight rows is 16 bytes. */
DEVICE uint32_t place_of_scale(uint32_t r) { return r / 16 * 16 + r % 8 / 2 * 4 + r / 8 % 2 * 2 + r % 2; }

/* One of a row's blocks. */
struct spread_block {
    uint8_t *codes, *scales; /* of its stage */
    uint32_t r, i;           /* the row, the block of four */
    DEVICE_MEMBER uint8_t *piece(uint32_t p) const { return codes + in_panel(r, 2 * i + p); } /* 0, 1 */
    DEVICE_MEMBER void put_scale(float d, int sum) const {
        struct quad_scales &of = ((struct quad_scales *)scales)[r / X_ROWS];
        of.d[i][place_of_scale(r % X_ROWS)] = d;
        of.sum[i][place_of_scale(r % X_ROWS)] = (float)sum;
    }
};
/* Block i of stage `stage` of row r of a tile of n rows. */
DEVICE struct spread_block spread_block_of(uint8_t *tile, uint32_t n, uint32_t r, uint32_t stage, uint32_t i) {
    uint8_t *codes = tile + (size_t)stage * (n * (128 + sizeof(struct quad_scales) / X_ROWS));
    return {codes, codes + n * 128, r, i};
}
/* Its word k, of four codes. */
DEVICE void put_32(const struct spread_block &b, uint32_t k, const struct rounded &v) {
    *(uint32_t *)(b.piece(k / 4) + k % 4 * 4) = v.q;
    if (k == 0)
        b.put_scale(v.d, v.sum);
}

/* Block b of row `row` of all that such tiles have. */
DEVICE struct spread_block spread_block_in(const struct lode_cuda_tiles &t, uint32_t row, uint32_t b) {
    return spread_block_of(rounded_tile(t, row / t.rows), t.rows, row % t.rows, b / 4, b % 4);
}
/* The 32 numbers that are row r of a panel of floats in shared memory, to their place; by one thread.  It runs once a tile, from memory: so
 * there is little of it, and numbers are read twice. */
DEVICE void round_block_32(const struct spread_block &to, uint32_t panel, uint32_t r) {
    uint32_t most = 0;
#pragma unroll 4
    for (uint32_t k = 0; k < 8; k++)
        most = most_of(load4(panel + in_panel(r, k)), most);
    const struct scale_32 s = scale_32_of(most);
    int sum = 0;
#pragma unroll 1
    for (uint32_t p = 0; p < 2; p++) {
        uint32_t q[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            q[k] = codes_32(s, load4(panel + in_panel(r, 4 * p + k)));
            sum = sum_bytes(q[k], sum);
        }
        *(uint4 *)to.piece(p) = make_uint4(q[0], q[1], q[2], q[3]);
    }
    to.put_scale(s.d, sum);
}

#endif
