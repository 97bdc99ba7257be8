/* failmalloc.h - counts allocations, and makes one of them fail.
 *
 * A test program that links failmalloc.c has its own malloc, calloc, realloc, posix_memalign,
 * aligned_alloc and free: every allocation of the process passes through them, those of the C
 * library and of third-party libraries too.  They do nothing but count and, when told to, fail.
 *
 *     failmalloc_start(0, false);                  count, fail nothing
 *     step();
 *     assert_int_equal(failmalloc_stop().calls, 0);
 *
 *     for (uint64_t n = 1;; n++) {                  fail every allocation in turn
 *         failmalloc_start(n, false);
 *         int rc = work();
 *         struct failmalloc_stats s = failmalloc_stop();
 *         if (s.failed == 0)                       n is past the last one
 *             break;
 *         assert_int_equal(s.live, 0);              nothing leaked
 *     }
 *
 * Between start and stop the calls of all threads count; there is one window at a time.  Under the
 * address and thread sanitizers the calls go on to the sanitizer's own functions.
 */
#ifndef LODE_TESTS_FAILMALLOC_H
#define LODE_TESTS_FAILMALLOC_H

#include <lode/error.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

struct failmalloc_stats {
    uint64_t calls;  /* allocations asked for, failed ones included; a realloc is one */
    uint64_t failed; /* of these, how many were made to fail */
    int64_t live;    /* blocks got minus blocks freed since start */
};

/* nth: which allocation from now fails, 1 the next, 0 none.  persistent: and all after it. */
void failmalloc_start(uint64_t nth, bool persistent);
struct failmalloc_stats failmalloc_stop(void);

/* Whether an error is one of memory, as failed allocations are to be told.  That a thread cannot be had is one too:
 * pthread_create says EAGAIN for want of memory as where there are too many threads. */
static inline bool failmalloc_told(int rc, const struct lode_error *err) {
    const bool thread = rc == LODE_ERR_LIMIT && strcmp(err->where, "threads") == 0;
    return (rc == LODE_ERR_NOMEM || thread) && err->code == rc && err->text[0];
}

#endif
