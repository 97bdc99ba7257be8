/* clock.h - seconds and nanoseconds that have passed, for what is timed. */
#ifndef LODE_BASE_CLOCK_H
#define LODE_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic; since when does not matter. */
static inline double lode_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
static inline uint64_t lode_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The moment so many milliseconds from now, as waits by that clock take it. */
static inline struct timespec lode_clock_after(int64_t ms) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += (time_t)(ms / 1000);
    t.tv_nsec += (long)(ms % 1000) * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return t;
}

#endif
