/* draw.h - the arguments of draws (best.cu), and where the next step finds what was drawn.  Beside shared.h,
 * which every kernel depends on, because few do on this. */
#ifndef LODE_BACKEND_CUDA_DRAW_H
#define LODE_BACKEND_CUDA_DRAW_H

#include "backend/cuda/kernels/shared.h"
#include "base/draw.h"

enum {
    LODE_DRAW_ROWS = 32,      /* of one draw */
    /* The id of row i lies -1 - i places before the step: a row of the step whose token is that number means it. */
    LODE_DRAW_BEFORE_STEP = 256, /* bytes */
};

struct lode_cuda_draw_args {
    struct lode_cuda_best_args best;
    lode_dev step, ids; /* ids: the host's, which has them as the step has */
    struct lode_draw draws[LODE_DRAW_ROWS];
};

#endif
