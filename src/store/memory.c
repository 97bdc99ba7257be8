#include "store/memory.h"

#include "base/alloc.h"

#include <string.h>

static void *host_alloc(const struct lode_memory *m, size_t align, size_t n, size_t size) {
    (void)m;
    return lode_alloc_aligned(align, n, size);
}

static void host_free(const struct lode_memory *m, void *p) {
    (void)m;
    lode_free_aligned(p);
}

static bool host_copy(const struct lode_memory *m, void *to, const void *from, size_t n) {
    (void)m;
    memcpy(to, from, n);
    return true;
}

static bool host_zero(const struct lode_memory *m, void *to, size_t n) {
    (void)m;
    memset(to, 0, n);
    return true;
}

const struct lode_memory lode_host_memory = {host_alloc, host_free, host_copy,
                                             host_copy,  host_copy, host_zero};
