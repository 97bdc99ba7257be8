/* foresight.h - how likely guesses of experts are right, by their place in a router's order.
 *
 * Whoever guesses keeps one such number for each place, and changes it by what each router then chooses;
 * a replay of a trace with guesses (trace.h) keeps the same, so that it reads ahead what was read ahead.
 */
#ifndef LODE_STORE_FORESIGHT_H
#define LODE_STORE_FORESIGHT_H

#include <stdbool.h>
#include <stdint.h>

enum { LODE_FORESIGHT_ROWS = 64 /* over which chances are averaged */ };

#define LODE_FORESIGHT_START 0.5f /* nothing is known */
#define LODE_FORESIGHT_LEAST 0.5f /* what is less likely than that is not read ahead */

/* n: rows that it is the average of, with this one; up to LODE_FORESIGHT_ROWS count. */
static inline float lode_foresight_after(float chance, bool right, uint32_t n) {
    return chance + ((right ? 1.0f : 0.0f) - chance) / (float)(n + 1);
}

#endif
