/* wide.cu - products of many rows with quantised weights on Hopper's warpgroups (wide_exact.cuh), and their x. */
#include "backend/cuda/kernels/experts/experts_shared.h"
#include "gemv_x.cuh"
#include "wide_exact.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

static_assert(LODE_WIDE_THREADS == MULTIPLIERS + COPIERS, "products_shared.h");
LODE_CUDA_QUANT_LIST(WIDE)

/* ---- x ---- */

/* Whether tile t has a place i; of tiles of experts' pairs what lies at the others is never stored. */
DEVICE bool has_place(const struct lode_cuda_spread_args &a, uint32_t t, uint32_t i) {
    return !a.tiles || (t < *at<const uint32_t>(a.tiles) && i < at<const struct lode_cuda_gemm_tile>(a.tiles)[1 + t].n);
}
/* The row that place i of tile t has, of which a block of threads spreads head blockIdx.z; of rows as they come those that do not exist
 * repeat the last. */
DEVICE const uint8_t *spread_row(const struct lode_cuda_spread_args &a, uint32_t t, uint32_t i) {
    if (!a.tiles) {
        const uint32_t r = t * a.tile + i;
        return row_at<const uint8_t>(a.x, r < a.n_x ? r : a.n_x - 1) + blockIdx.z * a.x_head;
    }
    const struct lode_cuda_gemm_tile tile = at<const struct lode_cuda_gemm_tile>(a.tiles)[1 + t];
    return row_at<const uint8_t>(
        a.x, at<const uint32_t>(a.list)[tile.first + i] / a.x_div);
}
/* Where number k of 16 lies, so that a thread's four neighbours of w are its four of an operand of halves. */
DEVICE uint32_t place_of(uint32_t k) { return k / 4 * 2 + k % 2 + k % 4 / 2 * 8; }
DEVICE uint16_t half_of(int v) { return f32_f16((float)v); }

/* Four signed bytes by m, 1 to 16: the products' high and low bytes.  As u = q + 128 nothing is carried from one of two products
 * in a word to the other: q m = (u m + 2^15 - 128 m) ^ 2^15. */
struct bytes_of_products { uint32_t high, low; };
DEVICE struct bytes_of_products products_of(uint32_t q, int m) {
    const uint32_t u = q ^ 0x80808080, more = 0x10001u * (uint32_t)(0x8000 - 128 * m);
    const uint32_t first = __byte_perm(u, 0, 0x4140) * (uint32_t)m + more, last = __byte_perm(u, 0, 0x4342) * (uint32_t)m + more;
    return {__byte_perm(first, last, 0x7531) ^ 0x80808080, __byte_perm(first, last, 0x6420)};
}
/* Row r's block to block b of a tile; by a warp. */
template <int N> DEVICE void put_256(uint8_t *tile, uint32_t r, uint32_t b, const struct rounded_256 &v) {
    const uint32_t lane = threadIdx.x % 32;
    uint8_t *to = tile + (size_t)b * (4 * N * 128 + sizeof(struct x_block<N>));
    struct x_block<N> *more = (struct x_block<N> *)(to + 4 * N * 128);
    const struct bytes_of_products x = products_of(v.q.x, v.mul), y = products_of(v.q.y, v.mul);
    to += lane / 16 * (N * 128) + in_panel(r, lane % 16 / 2) + lane % 2 * 8;
    *(uint2 *)to = make_uint2(x.high, y.high);
    *(uint2 *)(to + N * 256) = make_uint2(x.low, y.low);
    int sum = __shfl_sync(0xffffffffu, v.sum, 2 * lane % 32); /* of sixteen numbers: two threads' */
    if (lane < 16) {
        const int high = (sum + 128) >> 8;
        const uint32_t place = place_of(lane);
        uint16_t *sums = more->of[r / X_ROWS].sums[r % X_ROWS];
        sums[sums_piece(r, place / 8) + place % 8] = half_of(256 * high);
        sums[sums_piece(r, 2 + place / 8) + place % 8] = half_of(sum - 256 * high);
    }
    for (int w = 8; w; w /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, w);
    if (lane == 0) {
        more->of[r / X_ROWS].d[place_of_scale(r % X_ROWS)] = v.d;
        more->of[r / X_ROWS].all[place_of_scale(r % X_ROWS)] = (float)sum;
    }
}

DEVICE uint8_t *spread_tile(const struct lode_cuda_spread_args &a, uint32_t t) {
    return at<uint8_t>(a.y) + (size_t)blockIdx.z * a.y_head + t * a.tile_size;
}

/* Rounded rows.  A warp a block of 256 of a row; blockIdx.x: a row of a tile. */
template <int N> DEVICE void spread_256(const struct lode_cuda_spread_args &a) {
    const uint32_t t = blockIdx.x / N, r = blockIdx.x % N, b = blockIdx.y * n_warps() + threadIdx.x / 32;
    begin();
    if (b >= a.cols / 256 || !has_place(a, t, r))
        return;
    put_256<N>(spread_tile(a, t), r, b, get_a256(spread_row(a, t, r) + (size_t)b * 304));
}
/* Four blocks of 32. */
template <int N> DEVICE void spread_32(const struct lode_cuda_spread_args &a) {
    const uint32_t t = blockIdx.x / N, r = blockIdx.x % N,
                   stage = blockIdx.y * n_warps() + threadIdx.x / 32;
    const uint32_t lane = threadIdx.x % 32, i = lane / 8, k = lane % 8, nb = a.cols / 32;
    begin();
    if (stage * 4 >= nb || !has_place(a, t, r))
        return;
    const uint32_t b = stage * 4 + i < nb ? stage * 4 + i : nb - 1;
    const uint8_t *from = spread_row(a, t, r) + (size_t)b * 40;
    put_32(spread_block_of(spread_tile(a, t), N, r, stage, i), k,
           {*(const float *)from, *(const int *)(from + 4), *(const uint32_t *)(from + 8 + 4 * k)});
}

/* What gate and up of the tiles' pairs come to, rounded: the same work. */
template <int BLOCK, int N> DEVICE void spread_met(const struct lode_cuda_spread_met_args &a) {
    const struct lode_cuda_spread_args &to = a.to;
    const uint32_t t = blockIdx.x / N, r = blockIdx.x % N, part = blockIdx.y * n_warps() + threadIdx.x / 32, lane = threadIdx.x % 32;
    begin();
    if (part * (BLOCK == 256 ? 256 : 128) >= to.cols || !has_place(to, t, r))
        return;
    const uint32_t pair = at<const uint32_t>(to.list)[at<const struct lode_cuda_gemm_tile>(to.tiles)[1 + t].first + r];
    const float4 *const gate = row_at<const float4>(to.x, pair), *const up = at<const float4>(a.up + pair * to.x.stride);
    const float by = weight_before(a, pair);
    const auto numbers = [&](uint32_t i) { return glu_of_weighed(a.act, gate[i], up[i], by); }; /* 4 i and on */
    if constexpr (BLOCK == 256) {
        const float4 u = numbers(64 * part + 2 * lane), v = numbers(64 * part + 2 * lane + 1);
        const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
        put_256<N>(spread_tile(to, t), r, part, round_256(x));
    } else {
        const uint32_t i = lane / 8, k = lane % 8, nb = to.cols / 32, b = part * 4 + i < nb ? part * 4 + i : nb - 1;
        put_32(spread_block_of(spread_tile(to, t), N, r, part, i), k, round_a32(numbers(8 * b + k)));
    }
}

/* Rows of floats, normed where a.input says so, rounded and spread; blockIdx.x: a row of a tile, which repeats the last
 * where there is none. */
template <int BLOCK, int N> DEVICE void round_spread(const struct lode_cuda_fast_x_args &a) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, r = blockIdx.x % N,
                   of = blockIdx.x < a.n_x ? blockIdx.x : a.n_x - 1;
    uint8_t *tile = at<uint8_t>(a.y) + blockIdx.x / N * a.tile_size;
    const float4 *row = row_at<const float4>(a.x, of);
    struct divisor root = {1, 1, true};
    begin();
    if (a.input == LODE_GEMV_NORM)
        root = norm_root((const float *)row, a.eps, a.cols);
    auto numbers = [&](uint32_t i) { /* 4 i and on */
        if (a.input != LODE_GEMV_NORM)
            return row[i];
        const float4 v = normed(i, root, at<const float4>(a.norm));
        if (a.x_out.data && of == blockIdx.x)
            row_at<float4>(a.x_out, of)[i] = v;
        return v;
    };
    if constexpr (BLOCK == 256) {
#pragma unroll 1
        for (uint32_t b = warp; b < a.cols / 256; b += n_warps()) {
            const float4 u = numbers(64 * b + 2 * lane), v = numbers(64 * b + 2 * lane + 1);
            const float x[8] = {u.x, u.y, u.z, u.w, v.x, v.y, v.z, v.w};
            put_256<N>(tile, r, b, round_256(x));
        }
    } else {
        const uint32_t nb = a.cols / 32, i = lane / 8, k = lane % 8;
#pragma unroll 1
        for (uint32_t stage = warp; stage * 4 < nb; stage += n_warps()) {
            const uint32_t b = stage * 4 + i < nb ? stage * 4 + i : nb - 1;
            put_32(spread_block_of(tile, N, r, stage, i), k, round_a32(numbers(8 * b + k)));
        }
    }
}
static_assert(sizeof(struct x_block<128>) == 128 * 72 && sizeof(struct x_quad<64>) == 64 * 32,
              "products_shared.h's sizes");

/* So few registers that four blocks run side by side on a multiprocessor: 512 rows at once. */
#define KERNEL_OF_FOUR(threads) extern "C" __global__ void __launch_bounds__(threads, 4)
#define SPREAD(n)                                                                                  \
    KERNEL(256) spread_256_##n(const __grid_constant__ struct lode_cuda_spread_args a) {           \
        spread_256<n>(a);                                                                          \
    }                                                                                              \
    KERNEL(256) spread_32_##n(const __grid_constant__ struct lode_cuda_spread_args a) {            \
        spread_32<n>(a);                                                                           \
    }                                                                                              \
    KERNEL_OF_FOUR(512) spread_floats_256_##n(const __grid_constant__ struct lode_cuda_fast_x_args a) {    \
        round_spread<256, n>(a);                                                                   \
    }                                                                                              \
    KERNEL_OF_FOUR(512) spread_floats_32_##n(const __grid_constant__ struct lode_cuda_fast_x_args a) {     \
        round_spread<32, n>(a);                                                                    \
    }
SPREAD(64)
SPREAD(128)
#define SPREAD_MET(block)                                                                          \
    KERNEL(256) spread_met_##block##_64(const __grid_constant__ struct lode_cuda_spread_met_args a) { \
        spread_met<block, 64>(a);                                                                  \
    }
SPREAD_MET(32)
SPREAD_MET(256)

#endif
