/* unite.h - what host and device agree on (shared.h) about moving columns of heads. */
#ifndef LODE_BACKEND_CUDA_UNITE_H
#define LODE_BACKEND_CUDA_UNITE_H

#include "backend/cuda/kernels/shared.h"

/* n_heads times `width` numbers of each row, of each of gridDim.z ranks; bytes from one head and one rank to the
 * next, in x and in y. */
struct lode_cuda_unite_args {
    struct lode_cuda_mat x, y;
    unsigned long long x_head, y_head, x_rank, y_rank;
    uint32_t width, n_heads;
};

#endif
