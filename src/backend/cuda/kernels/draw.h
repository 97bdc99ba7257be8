/* draw.h - the arguments of draws (best.cu), and where the next step finds what was drawn.  Beside shared.h,
 * which every kernel depends on, because few do on this. */
#ifndef LODE_BACKEND_CUDA_DRAW_H
#define LODE_BACKEND_CUDA_DRAW_H

#include "backend/cuda/kernels/shared.h"
#include "base/draw.h"

enum {
    LODE_DRAW_ROWS = 32,      /* of one draw */
    LODE_DRAW_SLICE = 1024,   /* numbers of a row that a block of threads looks at for the largest */
    LODE_DRAW_THREADS = 256,
    /* The id of row i lies -1 - i places before the step: a row of the step whose token is that number means it. */
    LODE_DRAW_BEFORE_STEP = 256, /* bytes */
};

struct lode_cuda_draw_args {
    struct lode_cuda_mat x; /* draw_largest: none */
    lode_dev kept;          /* (rows, n_slices) keys: of draw_slices for draw_largest, of few_of_slices for draw_of_rows */
    lode_dev step;
    uint32_t width, n_slices;
    struct lode_draw draws[LODE_DRAW_ROWS]; /* of draw_of_rows */
};

#endif
