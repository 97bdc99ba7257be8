/* half.h - halves of a double buffer, or parts of a ring: what goes up to the device, the next while the last is computed
 * with.
 *
 * Each half has pinned memory of the host's and as much of the device's.  A stream of copies fills it when nobody reads
 * what it had, and who computes waits for that:
 *
 *     lode_cuda_half_open(c, h, copies, &err);          what h->host had has left it
 *     ... fills h->host, copies to h->raw by `copies` ...
 *     lode_cuda_half_sent(c, h, copies, &err);
 *     lode_cuda_half_wait(c, h, stream, &err);          `stream` goes on when all of it is there
 *     ... reads h->raw by `stream` ...
 *     lode_cuda_half_done(c, h, stream, &err);
 */
#ifndef LODE_BACKEND_CUDA_HALF_H
#define LODE_BACKEND_CUDA_HALF_H

#include "backend/cuda/cuda.h"

struct half {
    char *host;   /* pinned */
    lode_dev raw;
    void *there, *used; /* events: it has arrived; it may be written again */
};

/* what: as lode_cuda_take's.  An error leaves what free takes. */
int lode_cuda_half_init(struct lode_cuda *c, struct half *h, uint64_t size, const char *what, struct lode_error *err);
/* With the device's context entered, when nothing is on its way. */
void lode_cuda_half_deinit(struct lode_cuda *c, struct half *h);

int lode_cuda_half_open(struct lode_cuda *c, struct half *h, void *copies, struct lode_error *err);
int lode_cuda_half_sent(struct lode_cuda *c, struct half *h, void *copies, struct lode_error *err);
int lode_cuda_half_wait(struct lode_cuda *c, struct half *h, void *stream, struct lode_error *err);
int lode_cuda_half_done(struct lode_cuda *c, struct half *h, void *stream, struct lode_error *err);

/* Rows of a matrix as files have it to the planes that kernels read. */
int lode_cuda_repack(const struct lode_cuda *c, void *stream, enum lode_dtype type, uint32_t cols, lode_dev from,
                     lode_dev to, uint64_t rows, struct lode_error *err);

#endif
