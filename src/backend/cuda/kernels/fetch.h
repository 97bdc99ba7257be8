/* fetch.h - the arguments of fetch (fetch.cu): a small copy from the host's pinned memory by a kernel, where the device's copy
 * engine would have to be woken up (8 us for a step of some KB, of which its way is 1). */
#ifndef LODE_BACKEND_CUDA_FETCH_H
#define LODE_BACKEND_CUDA_FETCH_H

#include "backend/cuda/kernels/shared.h"

enum {
    LODE_FETCH_THREADS = 256,
    LODE_FETCH_MOST = 64 << 10, /* bytes; more come sooner by the copy engine */
};

struct lode_cuda_fetch_args {
    lode_dev from, to; /* multiples of 16 */
    uint32_t n;        /* pieces of 16 bytes: one a thread */
};

#endif
