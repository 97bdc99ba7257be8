/* memory.h - where large buffers live: in the host's memory or in a device's.
 *
 * An address of a device's memory is not to be read or written by the host; arithmetic on it is
 * all that works everywhere.  Bytes move by the calls below, which wait for the steps before them and
 * are done when they return.
 *
 * A model may be spread over several places: what runs at one keeps its buffers, its keys and values
 * and its states there.  Place 0 is the host, the others are devices; who has them keeps one memory a
 * place.
 */
#ifndef LODE_STORE_MEMORY_H
#define LODE_STORE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LODE_PLACES = 9, LODE_HOST = 0 };

struct lode_memory {
    /* n * size bytes, aligned to `align` (a power of two, at most 4096); NULL: there are not so
     * many, or the product overflows. */
    void *(*alloc)(const struct lode_memory *m, size_t align, size_t n, size_t size);
    void (*free)(const struct lode_memory *m, void *p); /* p may be NULL */
    /* n bytes from one place of this memory to another, to the host (get) and from it (put); they do
     * not overlap; zeros.  false: the device failed, and will fail whatever it is asked next. */
    bool (*copy)(const struct lode_memory *m, void *to, const void *from, size_t n);
    bool (*get)(const struct lode_memory *m, void *host, const void *from, size_t n);
    bool (*put)(const struct lode_memory *m, void *to, const void *host, size_t n);
    bool (*zero)(const struct lode_memory *m, void *to, size_t n);
};

extern const struct lode_memory lode_host_memory;

#endif
