/* nccl.h - what GPUs exchange their parts of a row with: NVIDIA's collective communications library, found at run
 * time like the driver.  Nothing of it is linked; types and numbers are those of its binary interface. */
#ifndef LODE_BACKEND_CUDA_NCCL_H
#define LODE_BACKEND_CUDA_NCCL_H

#include "base/error.h"

#include <stddef.h>

typedef int lode_nccl_result; /* 0: success */

enum { LODE_NCCL_FLOAT = 7 }; /* ncclDataType_t */

/* X(name here, symbol, result, arguments) */
#define LODE_NCCL_LIST(X)                                                                          \
    X(version, ncclGetVersion, lode_nccl_result, (int *version))                                   \
    X(init_all, ncclCommInitAll, lode_nccl_result, (void **comms, int n, const int *devices))      \
    X(destroy, ncclCommDestroy, lode_nccl_result, (void *comm))                                    \
    X(abort, ncclCommAbort, lode_nccl_result, (void *comm))                                        \
    X(async_error, ncclCommGetAsyncError, lode_nccl_result, (void *comm, lode_nccl_result *error)) \
    X(group_start, ncclGroupStart, lode_nccl_result, (void))                                       \
    X(group_end, ncclGroupEnd, lode_nccl_result, (void))                                           \
    X(all_gather, ncclAllGather, lode_nccl_result,                                                 \
      (const void *send, void *receive, size_t n, int type, void *comm, void *stream))             \
    X(error_text, ncclGetErrorString, const char *, (lode_nccl_result rc))

struct lode_nccl {
    void *library; /* NULL: not open */
#define LODE_NCCL_FIELD(name, symbol, result, args) result(*name) args;
    LODE_NCCL_LIST(LODE_NCCL_FIELD)
#undef LODE_NCCL_FIELD
};

/* LODE_ERR_MISSING says what there is not, or that it is too old to be part of captured graphs. */
int lode_nccl_open(struct lode_nccl *nccl, struct lode_error *err);
void lode_nccl_close(struct lode_nccl *nccl);
/* LODE_ERR_DEVICE with the library's words for rc; 0 for success. */
int lode_nccl_check(const struct lode_nccl *nccl, lode_nccl_result rc, const char *what, struct lode_error *err);

#endif
