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

#endif
