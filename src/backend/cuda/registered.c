#include "backend/cuda/registered.h"

#include "backend/cuda/cuda.h"

#include <stdlib.h>

enum { PAGE = 4096 };

static int by_address(const void *a, const void *b) {
    const struct lode_cuda_range *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Whole pages around them, those that touch as one, as a page can be registered once. */
static uint32_t join(struct lode_cuda_range *r, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uintptr_t begin = (uintptr_t)r[i].at & ~(uintptr_t)(PAGE - 1);
        const uintptr_t end = ((uintptr_t)r[i].at + r[i].size + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
        r[i] = (struct lode_cuda_range){(char *)begin, end - begin};
    }
    qsort(r, n, sizeof *r, by_address);
    for (uint32_t i = 0; i < n; i++) {
        struct lode_cuda_range *last = kept ? &r[kept - 1] : NULL;
        if (!last || r[i].at > last->at + last->size)
            r[kept++] = r[i];
        else if (r[i].at + r[i].size > last->at + last->size)
            last->size = (size_t)(r[i].at + r[i].size - last->at);
    }
    return kept;
}

bool lode_cuda_register(const struct lode_cuda *c, struct lode_cuda_registered *r, struct lode_cuda_range *all, uint32_t n) {
    *r = (struct lode_cuda_registered){.at = all};
    n = join(all, n);
    while (r->n < n && c->cu.host_register(all[r->n].at, all[r->n].size, LODE_CU_REGISTER_READ_ONLY) == 0)
        r->n++;
    if (n && r->n == n)
        return true;
    lode_cuda_unregister(c, r);
    r->at = NULL;
    return false;
}

void lode_cuda_unregister(const struct lode_cuda *c, struct lode_cuda_registered *r) {
    for (uint32_t i = 0; i < r->n; i++)
        c->cu.host_unregister(r->at[i].at);
    r->n = 0;
}

bool lode_cuda_is_registered(const struct lode_cuda_registered *r, const void *at, size_t size) {
    uint32_t low = 0, high = r->n; /* the last that begins there or before */
    while (high - low > 1) {
        const uint32_t mid = low + (high - low) / 2;
        if (r->at[mid].at <= (const char *)at)
            low = mid;
        else
            high = mid;
    }
    return r->n && (const char *)at >= r->at[low].at && (const char *)at + size <= r->at[low].at + r->at[low].size;
}
