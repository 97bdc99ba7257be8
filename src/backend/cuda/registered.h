/* registered.h - memory of the host's that a device reads by itself: pages of a mapped file that the driver keeps where
 * they are. */
#ifndef LODE_BACKEND_CUDA_REGISTERED_H
#define LODE_BACKEND_CUDA_REGISTERED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lode_cuda;

struct lode_cuda_range {
    char *at;
    size_t size;
};
struct lode_cuda_registered {
    struct lode_cuda_range *at; /* owned; (n), ascending, whole pages */
    uint32_t n;
};

/* With the device's context entered, as unregister.  all: (n), becomes the registered memory's; false, and it stays the
 * caller's: the driver does not take it. */
bool lode_cuda_register(const struct lode_cuda *c, struct lode_cuda_registered *r, struct lode_cuda_range *all, uint32_t n);
/* `at` is the caller's to free. */
void lode_cuda_unregister(const struct lode_cuda *c, struct lode_cuda_registered *r);
bool lode_cuda_is_registered(const struct lode_cuda_registered *r, const void *at, size_t size);

#endif
