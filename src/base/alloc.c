#include "base/alloc.h"

#include <assert.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static atomic_size_t active, peak, mapped, limit;
static _Thread_local int forbidden;

/* Whether `bytes` more are allowed.  Two threads that ask at once may together exceed the limit by
 * the smaller of theirs; the next one to ask is refused. */
static bool allowed(size_t bytes) {
    const size_t most = atomic_load_explicit(&limit, memory_order_relaxed);
    const size_t now = atomic_load_explicit(&active, memory_order_relaxed) +
                       atomic_load_explicit(&mapped, memory_order_relaxed);
    return most == 0 || (now <= most && bytes <= most - now);
}

static void count(void *p) {
    assert(!forbidden && "allocation inside a decode step");
    if (!p)
        return;
    const size_t size = malloc_usable_size(p);
    const size_t now = atomic_fetch_add_explicit(&active, size, memory_order_relaxed) + size;
    size_t high = atomic_load_explicit(&peak, memory_order_relaxed);
    while (now > high && !atomic_compare_exchange_weak_explicit(
                             &peak, &high, now, memory_order_relaxed, memory_order_relaxed))
        ;
}

static void uncount(void *p) {
    if (p)
        atomic_fetch_sub_explicit(&active, malloc_usable_size(p), memory_order_relaxed);
}

void *lode_alloc(size_t n, size_t size) {
    size_t bytes;
    if (!lode_mul_size(n, size, &bytes) || !allowed(bytes))
        return NULL;
    void *p = malloc(bytes ? bytes : 1);
    count(p);
    return p;
}

void *lode_alloc_zero(size_t n, size_t size) {
    size_t bytes;
    if (!lode_mul_size(n, size, &bytes) || !allowed(bytes))
        return NULL;
    void *p = calloc(n ? n : 1, size ? size : 1);
    count(p);
    return p;
}

void *lode_realloc(void *p, size_t n, size_t size) {
    size_t bytes;
    if (!lode_mul_size(n, size, &bytes))
        return NULL;
    const size_t before = p ? malloc_usable_size(p) : 0;
    if (bytes > before && !allowed(bytes - before))
        return NULL;
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        return NULL;
    atomic_fetch_sub_explicit(&active, before, memory_order_relaxed);
    count(q);
    return q;
}

void lode_free(void *p) {
    uncount(p);
    free(p);
}

char *lode_strndup(const char *s, size_t n) {
    char *copy = lode_alloc(n + 1, 1);
    if (!copy)
        return NULL;
    memcpy(copy, s, n);
    copy[n] = '\0';
    return copy;
}

void *lode_alloc_aligned(size_t align, size_t n, size_t size) {
    size_t bytes;
    if (!lode_mul_size(n, size, &bytes) || bytes > SIZE_MAX - align || !allowed(bytes))
        return NULL;
    void *p = NULL;
    if (posix_memalign(&p, align < sizeof(void *) ? sizeof(void *) : align, bytes ? bytes : 1))
        return NULL;
    count(p);
    return p;
}

void *lode_alloc_large(size_t n, size_t size) {
    void *p = lode_alloc_aligned((size_t)2 << 20, n, size);
    if (p)
        lode_alloc_use_large(p, n * size);
    return p;
}

void lode_alloc_use_large(void *p, size_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)p + page - 1) & ~(page - 1);
    if (first < (uintptr_t)p + n)
        (void)madvise((void *)first, (uintptr_t)p + n - first, MADV_HUGEPAGE);
}

void lode_free_aligned(void *p) { lode_free(p); }

void lode_alloc_discard(void *p, size_t n) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)p + page - 1) & ~(page - 1), end = ((uintptr_t)p + n) & ~(page - 1);
    if (first < end)
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

size_t lode_alloc_active(void) { return atomic_load_explicit(&active, memory_order_relaxed); }
size_t lode_alloc_peak(void) { return atomic_load_explicit(&peak, memory_order_relaxed); }

void lode_alloc_reset_peak(void) {
    atomic_store_explicit(&peak, lode_alloc_active(), memory_order_relaxed);
}

size_t lode_alloc_mapped(void) { return atomic_load_explicit(&mapped, memory_order_relaxed); }
void lode_alloc_add_mapped(int64_t bytes) {
    atomic_fetch_add_explicit(&mapped, (size_t)bytes, memory_order_relaxed);
}
size_t lode_alloc_limit(void) { return atomic_load_explicit(&limit, memory_order_relaxed); }
void lode_alloc_set_limit(size_t bytes) {
    atomic_store_explicit(&limit, bytes, memory_order_relaxed);
}

void lode_alloc_forbid(bool forbid) { forbidden += forbid ? 1 : -1; }
