/* alloc.h - memory from the heap, counted and overflow-checked.
 *
 * The library takes all of its own memory here, so that it can say how much it holds
 * (lode_memory_usage) and so that a debug build can prove that a decode step allocates nothing:
 * between lode_alloc_forbid(true) and lode_alloc_forbid(false) every call on that thread aborts a
 * build with assertions.  Sizes given as (n, size) are multiplied with an overflow check; an
 * overflow is an allocation failure.  All functions return NULL on failure; freeing NULL is fine.
 * Any thread may call any of them.
 */
#ifndef LODE_BASE_ALLOC_H
#define LODE_BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *lode_alloc(size_t n, size_t size);      /* uninitialised */
void *lode_alloc_zero(size_t n, size_t size); /* zeroed */
void *lode_realloc(void *p, size_t n, size_t size);
void lode_free(void *p);
char *lode_strndup(const char *s, size_t n); /* always NUL-terminated */

/* align: a power of two.  Freed by lode_free_aligned only. */
void *lode_alloc_aligned(size_t align, size_t n, size_t size);
/* The same on large pages (2 MiB, aligned so), where the system has them to give: what is read from end to
 * end, many rows side by side, comes faster from them. */
void *lode_alloc_large(size_t n, size_t size);
/* Asks for large pages under n bytes of an allocation, which nobody has written yet: where one is touched, two megabytes are. */
void lode_alloc_use_large(void *p, size_t n);
void lode_free_aligned(void *p);
/* Gives the system the memory of n bytes whose contents nobody wants; they read as anything until they are
 * written.  Whole pages only. */
void lode_alloc_discard(void *p, size_t n);

#define LODE_NEW(type) ((type *)lode_alloc_zero(1, sizeof(type)))
#define LODE_NEW_ARRAY(type, n) ((type *)lode_alloc_zero((n), sizeof(type)))

/* Bytes now held through these functions, and the most held since the last reset. */
size_t lode_alloc_active(void);
size_t lode_alloc_peak(void);
void lode_alloc_reset_peak(void);

/* Bytes of mapped files that are computed with; whoever maps adds and takes away. */
size_t lode_alloc_mapped(void);
void lode_alloc_add_mapped(int64_t bytes);
/* What would make active + mapped more than this fails; 0: no limit. */
size_t lode_alloc_limit(void);
void lode_alloc_set_limit(size_t bytes);

void lode_alloc_forbid(bool forbid); /* this thread; nests by counting */

/* true and *out = a*b (a+b), or false on overflow */
static inline bool lode_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool lode_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

#endif
