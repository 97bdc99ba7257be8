/* tile_place.cuh - which rows of a part of a product a tile has. */
#ifndef LODE_CUDA_TILE_PLACE_CUH
#define LODE_CUDA_TILE_PLACE_CUH

#include "backend/cuda/kernels/common.cuh"

struct tile_place {
    uint32_t first, limit, head; /* rows from first on, before limit */
};
/* Of tile i of `tile` rows of the part's.  head_rows: of each head of a HEADS, of whose rows a tile has those of one; 0: there are
 * no heads. */
DEVICE struct tile_place place_of_tile(const struct lode_cuda_part &part, uint32_t head_rows, uint32_t i, uint32_t tile) {
    if (head_rows == 0)
        return {i * tile, part.rows, 0};
    const uint32_t tiles = (head_rows + tile - 1) / tile, head = i / tiles;
    return {head * head_rows + i % tiles * tile, (head + 1) * head_rows, head};
}

#endif
