/* draw.h - the arguments of draws (best.cu), and where the next step finds what was drawn.  Beside shared.h,
 * which every kernel depends on, because few do on this. */
#ifndef LODE_BACKEND_CUDA_DRAW_H
#define LODE_BACKEND_CUDA_DRAW_H

#include "backend/cuda/kernels/rows_shared.h"
#include "base/draw.h"

enum {
    LODE_DRAW_ROWS = 32,      /* of one draw */
    /* The id of row i lies -1 - i places before the step: a row of the step whose token is that number means it. */
    LODE_DRAW_BEFORE_STEP = 256, /* bytes */
};

/* What changes from one draw to the next, beside the logits: in the step where a graph has both, else in the host's memory. */
struct lode_cuda_draws {
    lode_dev ids; /* the host's, which has them as the step has */
    unsigned long long pad;
    struct lode_draw draws[LODE_DRAW_ROWS];
};
struct lode_cuda_draw_args {
    struct lode_cuda_best_args best;
    lode_dev step, draws; /* draws: struct lode_cuda_draws, of which as many are there as rows */
};

#endif
