/* effort.h - how much a test does of what it could go on with: all of it in the long form (LODE_LONG); else a share
 * where a sanitizer, or no optimisation, makes everything many times as slow.  What such a build leaves out, others
 * of the same run do. */
#ifndef TESTS_EFFORT_H
#define TESTS_EFFORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

#ifdef __OPTIMIZE__
enum { SLOW = SANITIZED };
#else
enum { SLOW = 1 };
#endif

static inline bool at_length(void) {
    const char *s = getenv("LODE_LONG");
    return s && *s && strcmp(s, "0") != 0;
}

/* Whether some of what could be tried will do: every second model, say. */
static inline bool few_do(void) { return SLOW && !at_length(); }

/* n times as a rule, a quarter of that where it is slow. */
static inline uint64_t effort(uint64_t n) { return few_do() ? (n + 3) / 4 : n; }

/* From one of many places to the next, where each could be tried: all of them at length. */
static inline uint64_t effort_step(uint64_t step) { return at_length() ? 1 : SLOW ? 4 * step - 1 : step; }

#endif
