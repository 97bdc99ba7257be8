/* foresight.h - how likely guesses of experts are right, by their place in a router's order.
 *
 * Counted are those that were not there when they were guessed, as it is about them that chances decide: of what is
 * in the cache anyway more is right (its first two experts of 8 nine times of ten, of those that are not there
 * five or six times).  Whoever guesses keeps one of these for each place; a replay of a trace with guesses
 * (trace.h) keeps the same, so that it reads ahead what was read ahead.
 */
#ifndef LODE_STORE_FORESIGHT_H
#define LODE_STORE_FORESIGHT_H

#include <stdbool.h>
#include <stdint.h>

enum { LODE_FORESIGHT_ROWS = 64 /* over which a chance is averaged */ };

#define LODE_FORESIGHT_LEAST 0.5f /* what is less likely than that is not read ahead */

struct lode_foresight {
    float chance;
    uint32_t n; /* guesses that it is the average of, up to LODE_FORESIGHT_ROWS */
};
#define LODE_FORESIGHT {.chance = 0.5f} /* nothing is known */

static inline void lode_foresight_add(struct lode_foresight *f, bool right) {
    f->n += f->n < LODE_FORESIGHT_ROWS;
    f->chance += ((right ? 1.0f : 0.0f) - f->chance) / (float)(f->n + 1);
}

#endif
