/* columns.cuh - how many columns are multiplied of a tile of experts' pairs, whose products are those of many rows (wide_ahead.cuh). */
#ifndef LODE_CUDA_COLUMNS_CUH
#define LODE_CUDA_COLUMNS_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/common.cuh"

/* Of a tile of N rows of x, of which x_rows are there, all are multiplied, or (AHEAD) as many as FEW, SOME or N: the columns of a product.
 * f(columns), and how many. */
enum { FEW_COLUMNS = 16, SOME_COLUMNS = 32, ALL_COLUMNS = LODE_GEMM_TILE_X };
template <int COLS> struct columns { enum { N = COLS }; };
template <int N, bool AHEAD, class F> DEVICE void by_columns(uint32_t x_rows, F f) {
    if constexpr (AHEAD) {
        if (x_rows <= FEW_COLUMNS)
            return f(columns<FEW_COLUMNS>());
        if (x_rows <= SOME_COLUMNS)
            return f(columns<SOME_COLUMNS>());
    }
    f(columns<N>());
}
DEVICE uint32_t columns_ahead(uint32_t x_rows) {
    return x_rows > SOME_COLUMNS ? ALL_COLUMNS : x_rows > FEW_COLUMNS ? SOME_COLUMNS : FEW_COLUMNS;
}
/* Tiles' kinds, those of most columns first. */
enum { COLUMN_KINDS = 3 };
DEVICE uint32_t column_kind(uint32_t x_rows) { return x_rows > SOME_COLUMNS ? 0 : x_rows > FEW_COLUMNS ? 1 : 2; }

#endif
