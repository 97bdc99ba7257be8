/* few_experts.cu - products of routed experts of a few rows, whose (row, place) pairs group_pairs has sorted by expert in groups of
 * eight: a weight is unpacked once for all pairs of a group.
 *
 * Items are few.cuh's.  A warp has a tile of 16 rows of an expert for itself, all of it, and then another one: there are enough
 * of them, and no warp waits for another's turn.  How many, the device alone knows. */
#include "backend/cuda/kernels/experts/experts_shared.h"
#include "backend/cuda/kernels/products/few.cuh"
#include "backend/cuda/kernels/products/few_put.cuh"

/* ---- their x ---- */

/* blockIdx: group, share of its columns' blocks. */
template <int BLOCK> DEVICE void few_pairs(const struct lode_cuda_few_pairs_args &a) {
    __shared__ __align__(16) uint8_t blocks[FEW_WARPS][304];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, nb = a.cols / 256, size = x_bytes(BLOCK);
    wait_for_last();
    let_next_come(); /* what lists pairs has ended when it begins */
    if (blockIdx.x >= *at<const uint32_t>(a.tiles))
        return;
    const struct lode_cuda_gemm_tile t = at<const struct lode_cuda_gemm_tile>(a.tiles)[1 + blockIdx.x];
#pragma unroll 1
    for (uint32_t i = warp + FEW_WARPS * blockIdx.y; i < 8 * nb; i += FEW_WARPS * gridDim.y) {
        const uint32_t column = i % 8, block = i / 8;
        const bool here = column < t.n;
        const uint32_t pair = here ? at<const uint32_t>(a.list)[t.first + column] : 0;
        const uint8_t *row = row_at<const uint8_t>(a.x, pair / a.x_div);
        put_block<BLOCK>(at<uint8_t>(a.y) + ((size_t)blockIdx.x * nb + block) * size, column, block, blocks[warp], here,
                         a.input == LODE_GEMV_AS_IS ? row : NULL, [&](uint32_t b, float4 v[2]) {
                             const float4 *const up = a.up ? at<const float4>(a.up + pair * a.x.stride) : NULL;
                             const float by = weight_before(a, pair);
#pragma unroll
                             for (int k = 0; k < 2; k++) {
                                 const uint32_t j = 64 * b + at_of<BLOCK>(lane, k);
                                 v[k] = ((const float4 *)row)[j];
                                 if (up)
                                     v[k] = glu_of_weighed(a.act, v[k], up[j], by);
                             }
                         });
    }
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS) few_pairs_256(const __grid_constant__ struct lode_cuda_few_pairs_args a) {
    few_pairs<256>(a);
}
extern "C" __global__ void __launch_bounds__(FEW_THREADS) few_pairs_32(const __grid_constant__ struct lode_cuda_few_pairs_args a) {
    few_pairs<32>(a);
}

/* ---- products ---- */

/* Unit u: a tile of an expert for a group of its pairs. */
struct expert_unit {
    struct few_tile tile;
    uint32_t group, part, first_row, first_pair, pairs, expert;
};
DEVICE struct expert_unit unit_at(const struct lode_cuda_few_experts_args &f, uint32_t u) {
    const uint32_t group = over(u, f.each), of = u - group * f.each.by, part = f.n_parts > 1 && of >= f.parts[0].tiles;
    const struct lode_cuda_few_experts_part &p = f.parts[part];
    const uint32_t first = (of - (part ? f.parts[0].tiles : 0)) * TILE_ROWS, left = p.rows - first;
    const uint4 t = at<const uint4>(f.tiles)[1 + group]; /* a struct lode_cuda_gemm_tile */
    return {{at<const uint8_t>(p.w + t.x * p.expert_size + first * p.w_stride), (uint32_t)p.w_stride, (uint16_t)p.type,
             (uint8_t)(left < TILE_ROWS ? left : TILE_ROWS), (uint8_t)part},
            group, part, first, t.y, t.z, t.x};
}

template <class K> DEVICE void few_experts(const struct lode_cuda_few_experts_args &f) {
    const uint32_t warp = of_warp(threadIdx.x / 32), lane = own_lane(), steps = f.cols / 256, apart = gridDim.x * few_warps();
    const uint32_t ring_size = f.depth * f.slot_size;
    float *const acc = row_mem + warp * FEW_ACC;
    uint8_t *const ring = (uint8_t *)(row_mem + few_warps() * FEW_ACC) + (size_t)warp * ring_size;
    const uint32_t ring_at = of_warp(shared_address(ring)), n_units = *at<const uint32_t>(f.tiles) * f.each.by;
    uint32_t to = 0, from = 0, ahead = blockIdx.x + gridDim.x * warp, ahead_b = 0;
    struct few_tile next;
    let_next_come();
    auto find = [&]() {
        if (ahead < n_units)
            next = unit_at(f, ahead).tile;
    };
    auto ask = [&]() { /* for the next item */
        if (ahead < n_units) {
            copy_item<K::TYPES>(next, steps, ahead_b, ring_at + to, lane);
            to = next_slot(to, f.slot_size, ring_size);
            if (++ahead_b == steps)
                ahead += apart, ahead_b = 0, find();
        }
        copies_end_group();
    };
    find();
#pragma unroll 1
    for (uint32_t i = 0; i + 1 < f.depth; i++)
        ask();
    const struct few_x_at x = x_places(at<const uint8_t>(f.x), lane);
    typename K::first first;
    wait_for_last();
#pragma unroll 1
    for (uint32_t u = blockIdx.x + gridDim.x * warp; u < n_units; u += apart) {
        const struct expert_unit unit = unit_at(f, u);
        const struct few_x_at own = x.by((size_t)unit.group * steps * K::X_BLOCK);
        K::read(first, own);
#pragma unroll 1
        for (uint32_t b = 0; b < steps; b++) {
            ask();
            await_oldest(f.depth);
            const struct few_item w = {ring + from, own.by((size_t)b * K::X_BLOCK), own.by((size_t)(b + 1 < steps ? b + 1 : b) * K::X_BLOCK),
                                       NULL, (float4 *)acc + lane, ALONE, b, steps, 1, 0, 0, lane == 0};
            K::item(w, first, unit.tile.type);
            __syncwarp();
            from = next_slot(from, f.slot_size, ring_size);
        }
        const struct lode_cuda_few_experts_part &part = f.parts[unit.part];
        const uint32_t r = lane % TILE_ROWS;
        const float bias = part.bias && r < unit.tile.rows ? at<const float>(part.bias)[(size_t)unit.expert * part.rows + unit.first_row + r] : 0;
        for (uint32_t c = lane / TILE_ROWS; c < unit.pairs; c += 2) {
            const uint32_t pair = at<const uint32_t>(f.list)[unit.first_pair + c];
            /* sum_at, by fewer instructions as a column is below eight */
            const float v = acc[16 * (r % 8) + c / 2 * 4 + r / 8 * 2 + c % 2];
            if (r < unit.tile.rows)
                at<float>(part.y + pair * f.y_stride)[unit.first_row + r] = part.bias ? v + bias : v;
        }
        __syncwarp();
    }
}

#define FEW_EXPERTS(name, types)                                                                   \
    extern "C" __global__ void __launch_bounds__(FEW_THREADS, 1)                                   \
        few_experts_##name(const __grid_constant__ struct lode_cuda_few_experts_args f) {          \
        few_experts<struct exact_items<types, 1>>(f);                                              \
    }
FEW_EXPERTS(q4_q6, Q4_K_Q6_K)
FEW_EXPERTS(q5_q6, Q5_K_Q6_K)
FEW_EXPERTS(a256, 256)
FEW_EXPERTS(a32, 32)
FEW_EXPERTS(own, OWN_TYPES)
