#include "failmalloc.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The allocator below us: glibc's, or the sanitizer's, which would not see our blocks otherwise and
 * find no leak.  This file itself is compiled without sanitizers (meson.build): it is called before
 * theirs are set up. */
#ifdef FAILMALLOC_SANITIZED
#define BELOW(name) __interceptor_##name
#else
#define BELOW(name) __libc_##name
#endif

void *BELOW(malloc)(size_t);
void *BELOW(calloc)(size_t, size_t);
void *BELOW(realloc)(void *, size_t);
void *BELOW(memalign)(size_t, size_t);
void BELOW(free)(void *);

/* Whether this thread's calls are the program's. */
#ifdef FAILMALLOC_SANITIZED
static _Thread_local bool born;
#define OURS born
#else
#define OURS true
#endif

static atomic_bool counting;
static atomic_bool persists;
static atomic_uint_fast64_t fails_at, calls, failed;
static atomic_int_fast64_t live;

void failmalloc_start(uint64_t nth, bool persistent) {
#ifdef FAILMALLOC_SANITIZED
    born = true;
#endif
    atomic_store(&calls, 0);
    atomic_store(&failed, 0);
    atomic_store(&live, 0);
    atomic_store(&fails_at, nth);
    atomic_store(&persists, persistent);
    atomic_store(&counting, true);
}

struct failmalloc_stats failmalloc_stop(void) {
    atomic_store(&counting, false);
    return (struct failmalloc_stats){
        .calls = atomic_load(&calls), .failed = atomic_load(&failed), .live = atomic_load(&live)};
}

/* Counts one call; false: it is to fail. */
static bool admit(void) {
    if (!atomic_load_explicit(&counting, memory_order_relaxed) || !OURS)
        return true;
    const uint64_t n = atomic_fetch_add(&calls, 1) + 1, at = atomic_load(&fails_at);
    if (at == 0 || (n != at && !(n > at && atomic_load(&persists))))
        return true;
    atomic_fetch_add(&failed, 1);
    return false;
}

static void *got(void *p) {
    if (p && atomic_load_explicit(&counting, memory_order_relaxed) && OURS)
        atomic_fetch_add(&live, 1);
    return p;
}

static void *refused(void) {
    errno = ENOMEM;
    return NULL;
}

/* Visible to the libraries that the program loads, or they would keep to the C library's. */
#pragma GCC visibility push(default)

void *malloc(size_t size) { return admit() ? got(BELOW(malloc)(size)) : refused(); }

void *calloc(size_t n, size_t size) { return admit() ? got(BELOW(calloc)(n, size)) : refused(); }

void *realloc(void *p, size_t size) {
    if (!admit())
        return refused();
    void *q = BELOW(realloc)(p, size);
    return p ? q : got(q);
}

void *memalign(size_t align, size_t size) {
    return admit() ? got(BELOW(memalign)(align, size)) : refused();
}

void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

int posix_memalign(void **out, size_t align, size_t size) {
    void *p = memalign(align, size);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

void free(void *p) {
    if (p && atomic_load_explicit(&counting, memory_order_relaxed) && OURS)
        atomic_fetch_sub(&live, 1);
    BELOW(free)(p);
}

#ifdef FAILMALLOC_SANITIZED
/* A thread that starts allocates for the sanitizer first, at a moment that nobody can foresee, and
 * the sanitizer does not survive a failure there: its calls count from its own function on. */
int BELOW(pthread_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

struct birth {
    void *(*run)(void *);
    void *arg;
};

static void *bear(void *arg) {
    const struct birth b = *(struct birth *)arg;
    BELOW(free)(arg);
    born = true;
    void *r = b.run(b.arg);
    born = false;
    return r;
}

int pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*run)(void *), void *arg) {
    if (!admit()) /* what the C library would have allocated for it */
        return EAGAIN;
    struct birth *b = BELOW(malloc)(sizeof *b);
    if (!b)
        return EAGAIN;
    *b = (struct birth){run, arg};
    const bool was = born;
    born = false;
    const int rc = BELOW(pthread_create)(t, attr, bear, b);
    born = was;
    if (rc != 0)
        BELOW(free)(b);
    return rc;
}
#endif

#pragma GCC visibility pop
