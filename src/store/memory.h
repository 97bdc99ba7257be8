/* memory.h - where large buffers live: in the host's memory or in a device's.
 *
 * An address of a device's memory is not to be read or written by the host; arithmetic on it is
 * all that works everywhere.
 */
#ifndef LODE_STORE_MEMORY_H
#define LODE_STORE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct lode_memory {
    /* n * size bytes, aligned to `align` (a power of two, at most 4096); NULL: there are not so
     * many, or the product overflows. */
    void *(*alloc)(const struct lode_memory *m, size_t align, size_t n, size_t size);
    void (*free)(const struct lode_memory *m, void *p); /* p may be NULL */
};

extern const struct lode_memory lode_host_memory;

#endif
