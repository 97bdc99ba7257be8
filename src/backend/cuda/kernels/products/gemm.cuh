/* gemm.cuh - what a block of threads of a product of many rows works on. */
#ifndef LODE_CUDA_GEMM_CUH
#define LODE_CUDA_GEMM_CUH

#include "backend/cuda/kernels/products/products_shared.h"
#include "backend/cuda/kernels/common.cuh"

struct gemm_job {
    const uint8_t *w;
    const float *bias;
    uint8_t *y; /* of its first row of w */
    unsigned long long w_stride, y_stride;
    uint32_t w_rows, x_rows; /* that there are */
    const uint32_t *list;    /* rows of y; x: those by x_div.  NULL: first_x and on */
    uint32_t first, first_x, x_div; /* first: row of w */
    uint32_t x_at;                  /* bytes of x before the head's; 0 where there are none */
};

/* Tile y of tile_w rows of all parts' w; x of tile_x rows of x, or of the experts' tiles. False: there is
 * none. */
DEVICE bool find_job(struct gemm_job &job, const struct lode_cuda_gemm_args &a, uint32_t tile_w,
                     uint32_t tile_x, uint32_t x, uint32_t y) {
    uint32_t p = 0, expert = 0;
    while (p + 1 < a.n_parts && y >= a.parts[p + 1].first_tile)
        p++;
    const struct lode_cuda_part &part = a.parts[p];
    const uint32_t first = (y - part.first_tile) * tile_w;
    job.first = first;
    job.x_at = over(y, a.head_tiles) * a.x_head; /* heads have one part */
    job.first_x = x * tile_x;
    job.x_rows = a.n_x - job.first_x < tile_x ? a.n_x - job.first_x : tile_x;
    job.x_div = 1;
    job.list = NULL;
    if (a.tiles) {
        if (x >= *at<const uint32_t>(a.tiles))
            return false;
        const struct lode_cuda_gemm_tile t =
            at<const struct lode_cuda_gemm_tile>(a.tiles)[1 + x];
        expert = t.expert;
        job.list = at<const uint32_t>(a.list) + t.first;
        job.x_rows = t.n;
        job.x_div = a.x_div;
    }
    job.w = at<const uint8_t>(part.w) + expert * a.expert_size[p] + (size_t)first * part.w_stride;
    job.w_rows = part.rows - first < tile_w ? part.rows - first : tile_w;
    job.bias = part.bias ? at<const float>(part.bias) + (size_t)expert * part.rows + first : NULL;
    job.y = at<uint8_t>(part.y) + first * sizeof(float);
    job.w_stride = part.w_stride;
    job.y_stride = part.y_stride;
    return true;
}
/* Where results of tile y go, of heads that have others' between theirs: behind job.y.  By itself, as find_job has no register to spare. */
DEVICE uint32_t between_heads(const struct lode_cuda_gemm_args &a, uint32_t y) { return over(y, a.head_tiles) * a.y_head; }
/* The row of y (and of x, by x_div) of the tile's row i; where there is none, of its last. */
DEVICE uint32_t y_row(const struct gemm_job &j, uint32_t i) {
    const uint32_t k = i < j.x_rows ? i : j.x_rows - 1;
    return j.list ? j.list[k] : j.first_x + k;
}

#endif
